//! A table of the firmware's that describes a watchdog: the WDAT of ACPI, for the timer of the ICH9.
//!
//! QEMU's q35 has that timer, as machines of Intel's have it. Debian's cloud kernel lacks the driver
//! for the chip (`iTCO_wdt`), and has the one for machines whose firmware says in this table how their
//! watchdog is used (`wdat_wdt`). SeaBIOS does not say it, so QEMU is given the table.
//!
//! The timer counts down in steps of 0.6 s and resets the machine when it has run out twice, so one
//! count of the table stands for 1.2 s.

/// A register of the timer, where SeaBIOS puts it.
#[derive(Clone, Copy)]
enum Register {
    /// Whatever is written there begins the countdown anew; read, it is what is left.
    Reload,
    /// Bit 11 halts the timer.
    Control,
    /// From where it counts down.
    Initial,
    /// Bit 5 has the machine not be reset, and is set when it is switched on.
    Strap,
}

impl Register {
    /// Returns where it is, in the notation of ACPI: the kind of space, bits, and how it is taken.
    fn place(self) -> ([u8; 4], u64) {
        // An I/O port (1) of 16 bits that is taken as such (2), or memory (0) of 32 bits (3).
        match self {
            Self::Reload => ([1, 16, 0, 2], 0x660),
            Self::Control => ([1, 16, 0, 2], 0x668),
            Self::Initial => ([1, 16, 0, 2], 0x672),
            Self::Strap => ([0, 32, 0, 3], 0xfed1_f410),
        }
    }
}

const HALT: u32 = 1 << 11;
const NO_RESET: u32 = 1 << 5;
const COUNT: u32 = 0x3ff;

const COUNT_MS: u32 = 1_200;

/// What is done to a register.
#[derive(Clone, Copy)]
enum How {
    ReadValue = 0,
    ReadCount = 1,
    WriteValue = 2,
    /// All else in the register is kept.
    KeepAndWriteValue = 0x82,
    KeepAndWriteCount = 0x83,
}

/// Each action by its number, how it is done, where, with which value and on which bits.
const ACTIONS: [(u8, How, Register, u32, u32); 9] = [
    // Feed it.
    (1, How::WriteValue, Register::Reload, 1, COUNT),
    // What is left, what it counts from, and setting that.
    (4, How::ReadCount, Register::Reload, 0, COUNT),
    (5, How::ReadCount, Register::Initial, 0, COUNT),
    (6, How::KeepAndWriteCount, Register::Initial, 0, COUNT),
    // Whether it runs; have it run; whether it stands; have it stand.
    (8, How::ReadValue, Register::Control, 0, HALT),
    (9, How::KeepAndWriteValue, Register::Control, 0, HALT),
    (10, How::ReadValue, Register::Control, HALT, HALT),
    (11, How::KeepAndWriteValue, Register::Control, HALT, HALT),
    // Have it reset the machine.
    (17, How::KeepAndWriteValue, Register::Strap, 0, NO_RESET),
];

/// Returns the table.
pub(super) fn table() -> Vec<u8> {
    let mut body = Vec::new();
    body.extend(32_u32.to_le_bytes());
    // No PCI function: segment (of two bytes), bus, device and function are 255.
    body.extend([0xff, 0, 0xff, 0xff, 0xff, 0, 0, 0]);
    for number in [COUNT_MS, COUNT, 2] {
        body.extend(number.to_le_bytes());
    }
    // It is enabled.
    body.extend([1, 0, 0, 0]);
    let count = u32::try_from(ACTIONS.len()).expect("a few");
    body.extend(count.to_le_bytes());
    for (action, how, register, value, mask) in ACTIONS {
        let (space, address) = register.place();
        body.extend([action, how as u8, 0, 0]);
        body.extend(space);
        body.extend(address.to_le_bytes());
        body.extend(value.to_le_bytes());
        body.extend(mask.to_le_bytes());
    }
    let length = 36 + u32::try_from(body.len()).expect("a short table");
    let mut table = b"WDAT".to_vec();
    table.extend(length.to_le_bytes());
    table.extend([1, 0]);
    table.extend(b"BERTH ICH9 TCO");
    table.extend(1_u32.to_le_bytes());
    table.extend(b"BRTH");
    table.extend(1_u32.to_le_bytes());
    table.extend(body);
    // All bytes add up to nothing.
    let sum = table.iter().fold(0_u8, |sum, byte| sum.wrapping_add(*byte));
    table[9] = sum.wrapping_neg();
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_as_long_as_it_says_and_adds_up() {
        let table = table();
        assert_eq!(table.len(), 36 + 32 + 9 * 24);
        assert_eq!(table[4..8], 284_u32.to_le_bytes());
        assert_eq!(table.iter().fold(0_u8, |a, b| a.wrapping_add(*b)), 0);
    }
}
