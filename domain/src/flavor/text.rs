//! Numbers and yes or no, as extra specs write them.

use std::ops::RangeInclusive;

/// Returns a number in digits within a range.
///
/// # Errors
///
/// The allowed values.
pub(super) fn number(text: &str, range: &RangeInclusive<u64>) -> Result<u64, String> {
    let is_digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let number = text.parse().ok().filter(|_| is_digits);
    number.filter(|n| range.contains(n)).ok_or_else(|| {
        let (first, last) = (range.start(), range.end());
        format!("must be a number, {first} to {last}")
    })
}

/// Returns a number in digits within a range.
///
/// # Errors
///
/// The allowed values.
pub(super) fn small(text: &str, last: u32) -> Result<u32, String> {
    let number = number(text, &(1..=u64::from(last)))?;
    Ok(u32::try_from(number).expect("at most `last`"))
}

/// Returns yes or no.
///
/// # Errors
///
/// The allowed values.
pub(super) fn boolean(text: &str) -> Result<bool, String> {
    match &*text.trim().to_ascii_lowercase() {
        "true" | "t" | "yes" | "y" | "on" | "1" => Ok(true),
        "false" | "f" | "no" | "n" | "off" | "0" => Ok(false),
        _ => Err("must be true or false (or yes, no, on, off, 1, 0)".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_digits_within_their_range() {
        for (text, expected) in [
            ("1", Some(1)),
            ("08", Some(8)),
            ("9", Some(9)),
            ("0", None),
            ("10", None),
            ("+1", None),
            ("-1", None),
            (" 1", None),
            ("1e0", None),
            ("", None),
            ("99999999999999999999", None),
        ] {
            assert_eq!(number(text, &(1..=9)).ok(), expected, "{text:?}");
        }
        assert_eq!(small("0", 4).unwrap_err(), "must be a number, 1 to 4");
    }

    #[test]
    fn yes_and_no_have_many_words() {
        for (text, expected) in [
            ("True", Some(true)),
            (" on ", Some(true)),
            ("Y", Some(true)),
            ("0", Some(false)),
            ("NO", Some(false)),
            ("", None),
            ("maybe", None),
        ] {
            assert_eq!(boolean(text).ok(), expected, "{text:?}");
        }
    }
}
