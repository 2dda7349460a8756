//! The text of `hw:mem_page_size`.

use crate::instance::PageSize;

/// What is allowed, for messages.
pub(super) const RULE: &str = "must be small, large, any, or a size that is a power of two of at \
     least 4 KiB, as 2048 (KiB), 2MB or 1GB";

/// Returns the page size of a text: a word, or a number with an optional unit (K, M, G, T, each
/// with or without iB or B, all in powers of 1024; KiB where none is given).
pub(super) fn parse(text: &str) -> Option<PageSize> {
    match text {
        "small" => return Some(PageSize::Small),
        "large" => return Some(PageSize::Large),
        "any" => return Some(PageSize::Any),
        _ => {}
    }
    let digits = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    let number: u64 = text[..digits].parse().ok()?;
    let factor: u64 = match &*text[digits..].to_ascii_lowercase() {
        "" | "k" | "kb" | "kib" => 1,
        "m" | "mb" | "mib" => 1024,
        "g" | "gb" | "gib" => 1024 * 1024,
        "t" | "tb" | "tib" => 1024 * 1024 * 1024,
        _ => return None,
    };
    let kib = number.checked_mul(factor)?;
    (kib >= 4 && kib.is_power_of_two()).then_some(PageSize::Kib(kib))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_and_sizes() {
        for (text, expected) in [
            ("small", Some(PageSize::Small)),
            ("large", Some(PageSize::Large)),
            ("any", Some(PageSize::Any)),
            ("2048", Some(PageSize::Kib(2048))),
            ("4", Some(PageSize::Kib(4))),
            ("2MB", Some(PageSize::Kib(2048))),
            ("2M", Some(PageSize::Kib(2048))),
            ("1GiB", Some(PageSize::Kib(1_048_576))),
            ("64k", Some(PageSize::Kib(64))),
            ("", None),
            ("MB", None),
            ("2X", None),
            ("-4", None),
            ("0", None),
            ("2", None),
            ("3000", None),
            ("99999999999999999999", None),
            ("9999999999999999TB", None),
        ] {
            assert_eq!(parse(text), expected, "{text:?}");
        }
    }
}
