# A whole guest of a few hundred bytes: it fills its memory, checks it again and again, and counts.
#
# Loaded as a Multiboot kernel at 1 MiB, in 32-bit mode. From 2 MiB to the end of its memory every
# page of 4 KiB gets its own address as its content, so that the host has to give each of them.
# Then, 18.2 times a second, it looks at the next 1024 pages; in between it halts and costs nothing.
# On the serial console it says, as the other test guests do:
#   berth-guest: up 0 1
#   berth-guest: count <n>      at every fourth tick
#   berth-guest: checked <n>    when all pages were as written, for the n-th time
#   berth-guest: bad            for a page that is not
#
#   as --32 counter.S -o counter.o
#   ld -m elf_i386 -Ttext=0x100000 --oformat binary counter.o -o counter
    .set FIRST, 0x200000
    .set STACK, 0x90000
    .set PORT, 0x3f8

    .text
    .code32
    .globl _start
_start:
    jmp enter

    .balign 4
header:
    .long 0x1badb002
    .long 0x00010000
    .long -(0x1badb002 + 0x00010000)
    .long header, _start, end, end, _start

enter:
    cli
    cld
    movl $STACK, %esp
    lgdt gdt_register
    ljmp $8, $1f
1:  movw $16, %ax
    movw %ax, %ds
    movw %ax, %es
    movw %ax, %ss
    call interrupts
    call memory
    movl $FIRST, %edi
2:  movl %edi, (%edi)
    addl $4096, %edi
    cmpl top, %edi
    jb 2b
    movl $said_up, %esi
    call print

loop:
    sti
    hlt
    cli
    call look
    incl ticks
    testl $3, ticks
    jnz loop
    incl count
    movl $said_count, %esi
    movl count, %eax
    call print_number
    jmp loop

# Looks at the next 1024 pages.
look:
    movl next, %edi
    movl $1024, %ecx
1:  cmpl %edi, (%edi)
    je 2f
    movb $1, is_bad
    movl $said_bad, %esi
    call print
2:  addl $4096, %edi
    cmpl top, %edi
    jb 3f
    movl $FIRST, %edi
    cmpb $0, is_bad
    jne 3f
    incl checked
    pushl %ecx
    movl $said_checked, %esi
    movl checked, %eax
    call print_number
    popl %ecx
3:  loop 1b
    movl %edi, next
    ret

# The end of memory: what the machine's clock chip says is above 16 MiB, in units of 64 KiB.
memory:
    movb $0x35, %al
    outb %al, $0x70
    inb $0x71, %al
    movb %al, %ah
    movb $0x34, %al
    outb %al, $0x70
    inb $0x71, %al
    movzwl %ax, %eax
    shll $16, %eax
    addl $0x1000000, %eax
    movl %eax, top
    ret

# Every interrupt is the timer's: nothing else is let through. At the processor, the old interrupt
# controller comes in through the first pin of the local one.
interrupts:
    movl $32, %ecx
    movl $idt + 32 * 8, %edi
    movl $tick, %eax
    movw %ax, (%edi)
    movw $8, 2(%edi)
    movw $0x8e00, 4(%edi)
    shrl $16, %eax
    movw %ax, 6(%edi)
    lidt idt_register
    movb $0x11, %al
    outb %al, $0x20
    outb %al, $0xa0
    movb $0x20, %al
    outb %al, $0x21
    movb $0x28, %al
    outb %al, $0xa1
    movb $4, %al
    outb %al, $0x21
    movb $2, %al
    outb %al, $0xa1
    movb $1, %al
    outb %al, $0x21
    outb %al, $0xa1
    movb $0xfe, %al
    outb %al, $0x21
    movb $0xff, %al
    outb %al, $0xa1
    movl $0x1ff, 0xfee000f0
    movl $0x700, 0xfee00350
    movb $0x34, %al
    outb %al, $0x43
    xorl %eax, %eax
    outb %al, $0x40
    outb %al, $0x40
    ret

tick:
    pushl %eax
    movb $0x20, %al
    outb %al, $0x20
    popl %eax
    iret

# Prints the words at %esi, the number in %eax and the end of the line.
print_number:
    pushl %eax
    call print
    popl %eax
    movl $digits_end, %esi
    movl $10, %ebx
1:  xorl %edx, %edx
    divl %ebx
    addb $'0', %dl
    decl %esi
    movb %dl, (%esi)
    testl %eax, %eax
    jnz 1b
print:
    lodsb
    testb %al, %al
    jz 2f
    movb %al, %bl
    movw $PORT + 5, %dx
1:  inb %dx, %al
    testb $0x20, %al
    jz 1b
    movw $PORT, %dx
    movb %bl, %al
    outb %al, %dx
    jmp print
2:  ret

said_up:      .asciz "berth-guest: up 0 1\n"
said_count:   .asciz "berth-guest: count "
said_checked: .asciz "berth-guest: checked "
said_bad:     .asciz "berth-guest: bad\n"
digits:       .fill 10, 1, 0
digits_end:   .asciz "\n"
is_bad:       .byte 0
    .balign 8
gdt:          .quad 0, 0x00cf9a000000ffff, 0x00cf92000000ffff
gdt_register: .word 23
              .long gdt
idt_register: .word 33 * 8 - 1
              .long idt
    .balign 8
top:          .long 0
next:         .long FIRST
ticks:        .long 0
count:        .long 0
checked:      .long 0
    .balign 8
idt:          .fill 33 * 8, 1, 0
end:
