//! Sizes as Kubernetes writes them: `10Gi`, `1.5G`, `1e9`, `128974848`.

use crate::convert::Invalid;

/// The most bytes that the interface can name.
pub const BYTES_MAX: u64 = i64::MAX as u64;

/// The longest quantity that is read; no real one comes near.
const LENGTH_MAX: usize = 64;

/// Reads a size in bytes. Parts of a byte are rounded up, as Kubernetes does.
///
/// # Errors
///
/// When it is not a quantity, is negative, or is more than 2^63 - 1.
pub fn bytes(text: &str) -> Result<u64, Invalid> {
    let invalid = |why: &str| {
        let shown = crate::convert::field::shown(text);
        Invalid::here(format!(
            "must be a size like 10Gi or 4096, not {shown}{why}"
        ))
    };
    if text.len() > LENGTH_MAX {
        return Err(invalid(""));
    }
    if text.starts_with('-') {
        return Err(invalid(": it is negative"));
    }
    let unsigned = text.strip_prefix('+').unwrap_or(text);
    let end = unsigned
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(unsigned.len());
    let (number, suffix) = unsigned.split_at(end);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() && fraction.is_empty() || fraction.contains('.') {
        return Err(invalid(""));
    }
    let unit = unit(suffix).ok_or_else(|| invalid(": its unit is not known"))?;
    let too_much = || invalid(": it is more than any volume can have");
    let digits = format!("{whole}{fraction}");
    let digits = digits.trim_start_matches('0');
    // Without a limit here the power of ten below could be beyond all numbers.
    let scale = unit.tens - i32::try_from(fraction.len()).expect("the text is short");
    scaled(digits, scale, unit.factor).map_err(|()| too_much())
}

struct Unit {
    factor: u128,
    tens: i32,
}

fn unit(suffix: &str) -> Option<Unit> {
    let binary = |shift: u32| Unit {
        factor: 1 << shift,
        tens: 0,
    };
    let decimal = |tens: i32| Unit { factor: 1, tens };
    Some(match suffix {
        "" => decimal(0),
        "Ki" => binary(10),
        "Mi" => binary(20),
        "Gi" => binary(30),
        "Ti" => binary(40),
        "Pi" => binary(50),
        "Ei" => binary(60),
        "n" => decimal(-9),
        "u" => decimal(-6),
        "m" => decimal(-3),
        "k" => decimal(3),
        "M" => decimal(6),
        "G" => decimal(9),
        "T" => decimal(12),
        "P" => decimal(15),
        "E" => decimal(18),
        exponent => {
            let power = exponent.strip_prefix(['e', 'E'])?;
            let digits = power.strip_prefix(['+', '-']).unwrap_or(power);
            let is_number = !digits.is_empty() && digits.chars().all(|c| c.is_ascii_digit());
            decimal(is_number.then(|| power.parse::<i16>().ok())??.into())
        }
    })
}

/// Returns digits times factor times ten to the power of scale, rounded up.
fn scaled(digits: &str, scale: i32, factor: u128) -> Result<u64, ()> {
    if digits.is_empty() {
        return Ok(0);
    }
    // More digits than this before the point are more than 2^63, whatever they are.
    let length = i32::try_from(digits.len()).map_err(|_| ())?;
    if length + scale > 19 {
        return Err(());
    }
    if length + scale < -60 {
        return Ok(1);
    }
    if scale >= 0 {
        let value: u128 = digits.parse().map_err(|_| ())?;
        let tens = 10_u128.pow(u32::try_from(scale).map_err(|_| ())?);
        let all = value.checked_mul(tens).and_then(|v| v.checked_mul(factor));
        return whole(all.ok_or(())?);
    }
    let point = digits
        .len()
        .saturating_sub(usize::try_from(-scale).map_err(|_| ())?);
    let before: u128 = match &digits[..point] {
        "" => 0,
        before => before.parse().map_err(|_| ())?,
    };
    let zeros = usize::try_from(-scale).map_err(|_| ())? - (digits.len() - point);
    let after = format!("{}{}", "0".repeat(zeros), &digits[point..]);
    // Eighteen places are kept: with the largest unit the rest is less than two bytes, and it
    // counts as a byte where anything of it is left.
    let (kept, rest) = after.split_at(after.len().min(18));
    let is_more = rest.chars().any(|c| c != '0');
    let tens = 10_u128.pow(u32::try_from(kept.len()).map_err(|_| ())?);
    let kept: u128 = kept.parse().unwrap_or(0);
    let part = (kept + u128::from(is_more)) * factor;
    let all = before.checked_mul(factor).ok_or(())? + part.div_ceil(tens);
    whole(all)
}

fn whole(value: u128) -> Result<u64, ()> {
    let value = u64::try_from(value).map_err(|_| ())?;
    (value <= BYTES_MAX).then_some(value).ok_or(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_those_of_kubernetes() {
        for (text, expected) in [
            ("0", 0),
            ("128974848", 128_974_848),
            ("129e6", 129_000_000),
            ("129M", 129_000_000),
            ("128974848000m", 128_974_848),
            ("123Mi", 123 << 20),
            ("1Ei", 1 << 60),
            ("1.5Gi", 3 << 29),
            (".5Ki", 512),
            ("1.Ki", 1024),
            ("+4096", 4096),
            ("1E", 1_000_000_000_000_000_000),
            ("2e3", 2000),
            ("2E+3", 2000),
            ("2500e-3", 3),
            ("0.0001", 1),
            ("1n", 1),
            ("9223372036854775807", BYTES_MAX),
            ("0001Ki", 1024),
            ("1e-300", 1),
            ("0e300", 0),
        ] {
            assert_eq!(bytes(text), Ok(expected), "{text}");
        }
    }

    #[test]
    fn what_is_no_size_is_refused() {
        for text in [
            "",
            "-1",
            "Gi",
            "1gi",
            "1 Gi",
            "1Gi ",
            "1..2",
            "1.2.3",
            ".",
            "+",
            "1e",
            "1e+",
            "1e1.5",
            "9223372036854775808",
            "8Ei",
            "1e19",
            "1e300",
            "1e99999",
            "0x10",
            "½",
            "1Gï",
        ] {
            let refused = bytes(text).unwrap_err();
            assert!(refused.rule.starts_with("must be a size like"), "{refused}");
        }
        assert!(bytes(&"1".repeat(100_000)).unwrap_err().rule.len() < 200);
    }

    proptest::proptest! {
        /// Goal: nothing makes it fail but a refusal, and plain numbers are themselves.
        #[test]
        fn anything_is_read_or_refused(text in "[-+.0-9eEKMGTPimun]{0,12}", number in 0..=BYTES_MAX) {
            let _ = bytes(&text);
            proptest::prop_assert_eq!(bytes(&number.to_string()), Ok(number));
        }
    }
}
