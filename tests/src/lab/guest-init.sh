#!/bin/busybox sh
# The whole user space of a test guest: the first process of its initramfs.
#
# Everything it says on the serial console begins with "berth-guest: ":
#   up <uptime in seconds> <number of CPUs>
#   disk <name> <size in 512-byte sectors>          one for each disk
#   nic up <MAC address> <address>                  one for each network interface
#   count <n>                                       five times a second, for ever
#   answer to <line>: <words>                       to each line that it reads:
#     ping             pong
#     cpus             the number of CPUs
#     cpuid            what that instruction returns for 1, 7 and 0x80000001: EAX, EBX, ECX, EDX each
#     reach <address>  reached | unreachable
#     store <word>     stored: the word is on the first disk, beyond its file system
#     recall           the word that is stored there
#     keep <word>      kept: the word is where the first persistent memory begins
#     kept             the word that is kept there
#     fill <word>      filled: the word is in the guest's memory some hundred thousand times
#     look <disk>      its size in 512-byte sectors, whether it is read-only (1 or 0), its serial number
#     put <disk> <word>  put: the word is where that disk begins; "failed" where it cannot be written
#     got <disk>       the word that is there
#     seed <file>      that file of the disk that is the seed, in one line; "failed" without one
#     off              off, and powers itself off
set -u
bb=/bin/busybox
$bb mkdir -p /dev /proc /sys
$bb mount -t devtmpfs devtmpfs /dev
$bb mount -t proc proc /proc
$bb mount -t sysfs sysfs /sys
$bb --install -s /bin
PATH=/bin
exec </dev/ttyS0 >/dev/ttyS0 2>&1
stty -echo

say() { echo "berth-guest: $*"; }

say "up $(cut -d' ' -f1 /proc/uptime) $(nproc)"

for module in /modules/*.ko; do
    insmod "$module"
done

for disk in /sys/block/vd*; do
    [ -e "$disk" ] && say "disk ${disk##*/} $(cat "$disk/size")"
done

# 52:54:00:aa:bb:cc has the address 10.aa.bb.cc, each written as a decimal number.
address_of() {
    echo "$1" | {
        IFS=: read -r _ _ _ a b c
        echo "10.$((0x$a)).$((0x$b)).$((0x$c))"
    }
}

ip link set lo up
for nic in /sys/class/net/*; do
    name=${nic##*/}
    [ "$name" = lo ] && continue
    mac=$(cat "$nic/address")
    address=$(address_of "$mac")
    ip link set "$name" up && ip addr add "$address/8" dev "$name" && say "nic up $mac $address"
done

{
    n=0
    while :; do
        n=$((n + 1))
        say "count $n"
        usleep 200000
    done
} &

# The instruction is executed when the file is read, at the leaf as the offset.
cpuid() {
    for leaf in 1 7 2147483649; do
        dd if=/dev/cpu/0/cpuid bs=16 count=1 skip=$leaf iflag=skip_bytes 2>/dev/null |
            hexdump -v -e '4/4 "%08x "'
        printf ' '
    done
}

# The last MiB of the disk that lab/image.rs makes: no partition covers it.
slot=129024
store() { printf '%-512s' "$1" | dd of=/dev/vda bs=512 seek=$slot conv=notrunc,fsync 2>/dev/null; }
recall() { dd if=/dev/vda bs=512 skip=$slot count=1 iflag=direct 2>/dev/null | sed 's/ *$//'; }

# Its driver looks at it by itself, and may not be through yet.
memory() {
    n=0
    while [ ! -b "/dev/$1" ] && [ $n -lt 300 ]; do
        n=$((n + 1))
        usleep 100000
    done
    [ -b "/dev/$1" ]
}
keep() { memory pmem0 && printf '%-512s' "$1" | dd of=/dev/pmem0 bs=512 conv=notrunc,fsync 2>/dev/null; }
kept() { memory pmem0 && dd if=/dev/pmem0 bs=512 count=1 iflag=direct 2>/dev/null | sed 's/ *$//'; }

# The root file system is in memory.
fill() {
    page=$1
    while [ ${#page} -lt 16384 ]; do page=$page$page; done
    for _ in $(seq 256); do printf %s "$page"; done >/filled
}

# Any disk, and any persistent memory.
there() {
    case $1 in
    pmem*) memory "$1" ;;
    *) [ -b "/dev/$1" ] ;;
    esac
}
look() { there "$1" && (cd "/sys/block/$1" && echo "$(cat size)" "$(cat ro)" "$(cat serial 2>/dev/null)"); }
put() {
    there "$1" && printf '%-512s' "$2" | dd of="/dev/$1" bs=512 conv=notrunc,fsync 2>/dev/null
}
got() { there "$1" && dd if="/dev/$1" bs=512 count=1 iflag=direct 2>/dev/null | sed 's/ *$//'; }

# The seed is a file system on a whole disk.
seed() {
    mkdir -p /seed
    for disk in /dev/vd?; do
        mount -t vfat -o ro "$disk" /seed 2>/dev/null || continue
        content=$(cat "/seed/$1" 2>/dev/null | tr '\n' ' ')
        umount /seed
        [ -n "$content" ] && echo "$content" && return
    done
    return 1
}

while :; do
    read -r question argument || continue
    line=$question${argument:+ $argument}
    case $question in
    ping) words=pong ;;
    cpus) words=$(nproc) ;;
    cpuid) words=$(cpuid) ;;
    reach) ping -c 1 -W 5 "$argument" >/dev/null 2>&1 && words=reached || words=unreachable ;;
    store) store "$argument" && words=stored || words=failed ;;
    recall) words=$(recall) ;;
    keep) keep "$argument" && words=kept || words=failed ;;
    kept) words=$(kept) ;;
    fill) fill "$argument" && words=filled || words=failed ;;
    look) words=$(look "$argument") ;;
    put) put "${argument%% *}" "${argument#* }" && words=put || words=failed ;;
    got) words=$(got "$argument") ;;
    seed) words=$(seed "$argument") || words=failed ;;
    off) say "answer to off: off" && sync && poweroff -f ;;
    *) words="what is $question?" ;;
    esac
    say "answer to $line: $words"
done
