//! `hw:mem_page_size`: which pages a guest's memory lies in.

use super::Side;
use super::faults::Faults;
use super::settings::Settings;
use crate::instance::PageSize;

/// The name of the setting.
const NAME: &str = "mem_page_size";
/// What is allowed, for messages.
const RULE: &str = "must be small, large, any, or a size that is a power of two of at least 4 KiB: \
     2048 (KiB), 2MB, 2MiB or 1GB (a unit in b or bit, as 16Mb, counts bits)";

/// Returns the page size of a text: a word, or a number with a unit as OpenStack writes them. A
/// bare number is in KiB; k or K, M, G and T are powers of 1024, with or without `i`; `B` or
/// nothing after them means bytes, `b` and `bit` mean bits.
pub(super) fn parse(text: &str) -> Result<PageSize, String> {
    match text {
        "small" => return Ok(PageSize::Small),
        "large" => return Ok(PageSize::Large),
        "any" => return Ok(PageSize::Any),
        _ => {}
    }
    kib(text)
        .filter(|kib| *kib >= 4 && kib.is_power_of_two())
        .map(PageSize::Kib)
        .ok_or_else(|| RULE.to_owned())
}

fn kib(text: &str) -> Option<u64> {
    let not_digit = |c: char| !c.is_ascii_digit();
    let digits = text.find(not_digit).unwrap_or(text.len());
    let number: u64 = text[..digits].parse().ok()?;
    let unit = &text[digits..];
    if unit.is_empty() {
        return Some(number);
    }
    let (prefix, is_bits) = if let Some(prefix) = unit.strip_suffix("bit") {
        (prefix, true)
    } else if let Some(prefix) = unit.strip_suffix('b') {
        (prefix, true)
    } else {
        (unit.strip_suffix('B').unwrap_or(unit), false)
    };
    let factor: u64 = match prefix.strip_suffix('i').unwrap_or(prefix) {
        "" if prefix.is_empty() => 1,
        "k" | "K" => 1 << 10,
        "M" => 1 << 20,
        "G" => 1 << 30,
        "T" => 1 << 40,
        _ => return None,
    };
    let units = number.checked_mul(factor)?;
    let per_kib = if is_bits { 8 * 1024 } else { 1024 };
    units.is_multiple_of(per_kib).then_some(units / per_kib)
}

/// Returns the page size of a guest. An image may choose only where the flavor sets any or large.
pub(super) fn evaluate(settings: &Settings<'_>, faults: &mut Faults) -> Option<PageSize> {
    let setting = &settings.page_size;
    let Some(image) = setting.image else {
        return setting.flavor.map(|flavor| flavor.value);
    };
    let rule = match setting.flavor.map(|flavor| (flavor.value, flavor.text)) {
        Some((PageSize::Any | PageSize::Large, _)) => return Some(image.value),
        Some((PageSize::Unspecified | PageSize::Small | PageSize::Kib(_), text)) => {
            format!("an image may choose only where the flavor says any or large, not {text}")
        }
        None => "an image may choose only where the flavor says hw:mem_page_size=any or large; it \
                 says nothing"
            .to_owned(),
    };
    faults.add(&Side::Image.named(NAME), image.text, rule);
    None
}

/// Records a fault where the memory of a guest cell is no multiple of an exact page size.
pub(super) fn check_multiple(
    settings: &Settings<'_>,
    size: PageSize,
    memory_mib: &[u64],
    faults: &mut Faults,
) {
    let PageSize::Kib(size) = size else {
        return;
    };
    let odd = memory_mib
        .iter()
        .find(|mib| !(**mib * 1024).is_multiple_of(size));
    if let (Some(mib), Some((side, setting))) = (odd, settings.page_size.first()) {
        let rule = format!(
            "the memory of every guest NUMA node must be a multiple of it; one has {mib} MiB"
        );
        faults.add(&side.named(NAME), setting.text, rule);
    }
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
            ("4096B", Some(PageSize::Kib(4))),
            ("2MB", Some(PageSize::Kib(2048))),
            ("2MiB", Some(PageSize::Kib(2048))),
            ("2M", Some(PageSize::Kib(2048))),
            ("2Mi", Some(PageSize::Kib(2048))),
            ("1GiB", Some(PageSize::Kib(1_048_576))),
            ("1TB", Some(PageSize::Kib(1 << 30))),
            ("64k", Some(PageSize::Kib(64))),
            ("64kB", Some(PageSize::Kib(64))),
            ("64KiB", Some(PageSize::Kib(64))),
            ("16Mb", Some(PageSize::Kib(2048))),
            ("16Mbit", Some(PageSize::Kib(2048))),
            ("8Gib", Some(PageSize::Kib(1_048_576))),
            ("65536b", Some(PageSize::Kib(8))),
            ("", None),
            ("MB", None),
            ("2X", None),
            ("2mb", None),
            ("2iB", None),
            ("-4", None),
            ("0", None),
            ("2", None),
            ("2048B", None),
            ("4097B", None),
            ("3000", None),
            ("99999999999999999999", None),
            ("9999999999999999TB", None),
            ("18446744073709551615TB", None),
        ] {
            assert_eq!(parse(text).ok(), expected, "{text:?}");
        }
    }
}
