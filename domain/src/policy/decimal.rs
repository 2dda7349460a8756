//! Numbers with up to three decimals, as people type them: kept as whole thousandths, so that
//! members calculate with the same numbers.

/// Reads a number; `None` for what is none, has a sign, an exponent or more than three decimals.
pub(super) fn parse(text: &str) -> Option<u64> {
    let (whole, decimals) = match text.split_once('.') {
        Some((_, "")) => return None,
        Some(parts) => parts,
        None => (text, ""),
    };
    let plain = |digits: &str| digits.bytes().all(|b| b.is_ascii_digit());
    if whole.is_empty() || decimals.len() > 3 || !plain(whole) || !plain(decimals) {
        return None;
    }
    let whole: u64 = whole.parse().ok()?;
    let thousandths: u64 = format!("{decimals:0<3}").parse().ok()?;
    whole.checked_mul(1000)?.checked_add(thousandths)
}

/// Writes a number with the decimals that it has, at least one.
pub(super) fn show(milli: u64) -> String {
    let (whole, milli) = (milli / 1000, milli % 1000);
    let decimals = format!("{milli:03}");
    let kept = match decimals.trim_end_matches('0') {
        "" => "0",
        kept => kept,
    };
    format!("{whole}.{kept}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_as_they_are_shown() {
        for (text, milli) in [
            ("1.0", 1000),
            ("1.5", 1500),
            ("0.01", 10),
            ("16.125", 16_125),
        ] {
            assert_eq!(parse(text), Some(milli));
            assert_eq!(show(milli), text);
        }
        assert_eq!((parse("2"), parse("007.10")), (Some(2000), Some(7100)));
        let bad = [
            "",
            ".",
            "1.",
            ".5",
            "-1",
            "+1",
            "1e3",
            "NaN",
            "inf",
            "1.2345",
            "1,5",
            " 1",
            "0x1",
            "99999999999999999999",
            "18446744073709552.0",
        ];
        for bad in bad {
            assert_eq!(parse(bad), None, "{bad:?}");
        }
    }
}
