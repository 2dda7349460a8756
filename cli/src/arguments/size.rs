//! Sizes as they are typed: a number, or one with a unit behind it, of powers of 1024.
//!
//! Not here: sizes as they are shown.

/// Reads a size in bytes; a number without a unit is one.
pub(super) fn bytes(text: &str) -> Result<u64, String> {
    read(text, 0)
}

/// Reads a size in MiB; a number without a unit is one.
pub(super) fn mib(text: &str) -> Result<u64, String> {
    whole(text, 20, "MiB")
}

/// Reads a size in GiB; a number without a unit is one.
pub(super) fn gib(text: &str) -> Result<u64, String> {
    whole(text, 30, "GiB")
}

/// Reads a size that is a whole number of this unit.
fn whole(text: &str, shift: u32, unit: &str) -> Result<u64, String> {
    let bytes = read(text, shift)?;
    match bytes % (1 << shift) {
        0 => Ok(bytes >> shift),
        _ => Err(format!("it is not a whole number of {unit}")),
    }
}

/// Reads a size in bytes; a number without a unit is of the one with this shift.
fn read(text: &str, shift: u32) -> Result<u64, String> {
    let split = text.find(|c: char| !c.is_ascii_digit());
    let (number, unit) = text.split_at(split.unwrap_or(text.len()));
    let shift = match unit {
        "" => shift,
        "B" => 0,
        "K" | "k" | "Ki" | "KiB" | "KB" | "kB" => 10,
        "M" | "Mi" | "MiB" | "MB" => 20,
        "G" | "Gi" | "GiB" | "GB" => 30,
        "T" | "Ti" | "TiB" | "TB" => 40,
        _ => return Err("it is a number, or one with K, M, G or T behind it, as 40G".to_owned()),
    };
    let number: u64 = number
        .parse()
        .map_err(|_| "a whole number comes first, as 40G".to_owned())?;
    number
        .checked_mul(1 << shift)
        .ok_or_else(|| "no size is that large".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read() {
        for (text, size) in [
            ("0", 0),
            ("4096", 4096),
            ("4096B", 4096),
            ("4K", 4096),
            ("40G", 40 << 30),
            ("40Gi", 40 << 30),
            ("40GiB", 40 << 30),
            ("512MB", 512 << 20),
            ("2T", 2 << 40),
            ("18446744073709551615", u64::MAX),
        ] {
            assert_eq!(bytes(text), Ok(size), "{text}");
        }
        for bad in [
            "",
            "G",
            "-1",
            "1.5G",
            "4X",
            "4GG",
            "4iB",
            "4BB",
            "18446744073709551616",
            "99999999T",
        ] {
            assert!(bytes(bad).is_err(), "{bad}");
        }
    }

    /// Goal: a number means what the option's name says, and a unit what it says itself.
    #[test]
    fn a_number_without_a_unit_is_of_the_options_unit() {
        for (text, size) in [
            ("512", 512),
            ("2G", 2048),
            ("2GiB", 2048),
            ("1024K", 1),
            ("1T", 1 << 20),
        ] {
            assert_eq!(mib(text), Ok(size), "{text}");
        }
        assert_eq!(gib("10"), Ok(10));
        assert_eq!(gib("10G"), Ok(10));
        assert_eq!(gib("2048M"), Ok(2));
        for bad in ["1K", "512B", "1025K", "99999999999999"] {
            assert!(mib(bad).is_err(), "{bad}");
        }
        assert!(gib("512M").is_err());
    }
}
