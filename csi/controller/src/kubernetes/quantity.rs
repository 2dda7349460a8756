//! Quantities as Kubernetes writes them: `40Gi`, `1e9`, `500m`.
//!
//! What is read, what is refused and how it is rounded follow Kubernetes to the letter, oddities
//! included: a lone `.` is 0 there. One thing is otherwise: what is too large for 63 bits is the
//! largest number here, where Kubernetes makes 0 of `1e30`.

use std::fmt;

use serde::de::{self, Deserialize, Deserializer, Visitor};

/// An amount in whole units; a part of a unit counts as a whole one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Quantity(i64);

/// Why a text is no quantity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Invalid {
    /// It is not made like one.
    #[error("it is no number with a unit, as 40Gi, 500M or 1e9")]
    Form,
    /// What stands before the unit is no number.
    #[error("there is no number before its unit")]
    Number,
    /// What stands behind the number is no unit.
    #[error("its unit is none of Ki, Mi, Gi, Ti, Pi, Ei, n, u, m, k, M, G, T, P, E")]
    Unit,
}

/// What a number is multiplied with: a power of 2 or of 10.
#[derive(Clone, Copy)]
enum Unit {
    Binary(u32),
    Decimal(i32),
}

/// The parts of a quantity.
struct Parts<'t> {
    is_negative: bool,
    /// Without zeros in front of it.
    whole: &'t str,
    fraction: &'t str,
    /// Whether there is any digit, be it one of the zeros in front.
    has_digits: bool,
    unit: &'t str,
}

/// Kubernetes counts with 64 bits as long as a number has no more decimal places, and otherwise
/// with a library that requires digits.
const PLACES_MAX: i64 = 9;
/// The smallest power of 2 with which it counts in that library always.
const LARGE_BINARY: u32 = 50;
/// How many decimal places of binary quantities count exactly.
const BINARY_PLACES: usize = 20;

impl Quantity {
    /// Reads a quantity.
    ///
    /// # Errors
    ///
    /// When Kubernetes would not read it.
    pub fn parse(text: &str) -> Result<Self, Invalid> {
        if text.is_empty() {
            return Err(Invalid::Form);
        }
        let parts = split(text)?;
        let unit = unit(parts.unit)?;
        let wants_digits = match unit {
            Unit::Binary(power) => power >= LARGE_BINARY,
            Unit::Decimal(power) => i64::from(power) < -PLACES_MAX,
        };
        if wants_digits && !parts.has_digits {
            return Err(Invalid::Number);
        }
        let amount = match unit {
            Unit::Binary(power) => binary(parts.whole, parts.fraction, power),
            Unit::Decimal(power) => decimal(parts.whole, parts.fraction, power),
        };
        let amount = i64::try_from(amount).unwrap_or(i64::MAX);
        Ok(Self(if parts.is_negative { -amount } else { amount }))
    }

    /// Returns it as a number.
    #[must_use]
    pub fn value(self) -> i64 {
        self.0
    }
}

/// Takes a text apart; the fault is the form.
fn split(text: &str) -> Result<Parts<'_>, Invalid> {
    let is_negative = text.starts_with('-');
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let (digits, rest) = digits(unsigned);
    let (fraction, rest) = match rest.strip_prefix('.') {
        Some(rest) => self::digits(rest),
        None => ("", rest),
    };
    let letters = rest.trim_start_matches(|c| "eEinumkKMGTP".contains(c));
    let exponent = letters.strip_prefix(['+', '-']).unwrap_or(letters);
    if !exponent.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(Invalid::Form);
    }
    Ok(Parts {
        is_negative,
        whole: digits.trim_start_matches('0'),
        fraction,
        has_digits: !digits.is_empty() || !fraction.is_empty(),
        unit: rest,
    })
}

/// Splits behind the digits at the beginning.
fn digits(text: &str) -> (&str, &str) {
    let end = text.bytes().take_while(u8::is_ascii_digit).count();
    text.split_at(end)
}

fn unit(text: &str) -> Result<Unit, Invalid> {
    Ok(match text {
        "Ki" => Unit::Binary(10),
        "Mi" => Unit::Binary(20),
        "Gi" => Unit::Binary(30),
        "Ti" => Unit::Binary(40),
        "Pi" => Unit::Binary(50),
        "Ei" => Unit::Binary(60),
        "n" => Unit::Decimal(-9),
        "u" => Unit::Decimal(-6),
        "m" => Unit::Decimal(-3),
        "" => Unit::Decimal(0),
        "k" => Unit::Decimal(3),
        "M" => Unit::Decimal(6),
        "G" => Unit::Decimal(9),
        "T" => Unit::Decimal(12),
        "P" => Unit::Decimal(15),
        "E" => Unit::Decimal(18),
        other => {
            let exponent = other.strip_prefix(['e', 'E']).ok_or(Invalid::Unit)?;
            let exponent: i64 = exponent.parse().map_err(|_| Invalid::Unit)?;
            // Kubernetes keeps the lower half of it.
            #[allow(clippy::cast_possible_truncation)]
            Unit::Decimal(exponent as i32)
        }
    })
}

/// Returns `whole.fraction` times a power of 10, rounded up.
fn decimal(whole: &str, fraction: &str, power: i32) -> u128 {
    let power = i64::from(power);
    let all = || whole.bytes().chain(fraction.bytes());
    // So many of all digits stand before the decimal point.
    let before = i64::try_from(whole.len()).unwrap_or(i64::MAX) + power;
    let before = usize::try_from(before.max(0)).unwrap_or(usize::MAX);
    let mut amount = 0;
    for digit in all().take(before) {
        amount = with_digit(amount, digit);
    }
    let missing = before.saturating_sub(whole.len() + fraction.len());
    for _ in 0..missing {
        let larger = with_digit(amount, b'0');
        if larger == amount {
            // 0, or all that there is.
            break;
        }
        amount = larger;
    }
    let is_more = all().skip(before).any(|digit| digit != b'0');
    amount.saturating_add(u128::from(is_more))
}

/// Returns `whole.fraction` times a power of 2, rounded up.
fn binary(whole: &str, fraction: &str, power: u32) -> u128 {
    let whole = whole.bytes().fold(0, with_digit);
    let whole = whole.saturating_mul(1 << power);
    let fraction = fraction.trim_end_matches('0');
    let (exact, beyond) = fraction.split_at(fraction.len().min(BINARY_PLACES));
    let scale = 10_u128.pow(u32::try_from(exact.len()).unwrap_or(u32::MAX));
    // Less than 10^20 times 2^60: below 2^127.
    let parts = exact.bytes().fold(0, with_digit) << power;
    let is_whole = parts.is_multiple_of(scale) && !beyond.is_empty();
    let parts = parts.div_ceil(scale) + u128::from(is_whole);
    whole.saturating_add(parts)
}

fn with_digit(amount: u128, digit: u8) -> u128 {
    let digit = u128::from(digit - b'0');
    amount.saturating_mul(10).saturating_add(digit)
}

impl<'de> Deserialize<'de> for Quantity {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        /// Takes `"40Gi"`, and `5`, which Kubernetes takes too.
        struct Either;

        impl Visitor<'_> for Either {
            type Value = Quantity;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a quantity, as \"40Gi\"")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Quantity, E> {
                let shown: String = text.chars().take(64).collect();
                Quantity::parse(text)
                    .map_err(|why| E::custom(format!("{shown:?} is no quantity: {why}")))
            }

            fn visit_i64<E: de::Error>(self, number: i64) -> Result<Quantity, E> {
                Ok(Quantity(number))
            }

            fn visit_u64<E: de::Error>(self, number: u64) -> Result<Quantity, E> {
                Ok(Quantity(i64::try_from(number).unwrap_or(i64::MAX)))
            }

            fn visit_f64<E: de::Error>(self, number: f64) -> Result<Quantity, E> {
                self.visit_str(&number.to_string())
            }

            fn visit_unit<E: de::Error>(self) -> Result<Quantity, E> {
                Ok(Quantity(0))
            }
        }

        deserializer.deserialize_any(Either)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: i64 = 1 << 30;

    fn check(text: &str, expected: Result<i64, Invalid>) {
        assert_eq!(
            Quantity::parse(text).map(Quantity::value),
            expected,
            "{text:?}"
        );
    }

    #[test]
    fn units_are_powers_of_two_or_of_ten() {
        for (text, value) in [
            ("0", 0),
            ("7", 7),
            ("+7", 7),
            ("-7", -7),
            ("1Ki", 1 << 10),
            ("1Mi", 1 << 20),
            ("40Gi", 40 * GIB),
            ("3Ti", 3 << 40),
            ("2Pi", 2 << 50),
            ("1Ei", 1 << 60),
            ("7Ei", 7 << 60),
            ("1k", 1_000),
            ("1M", 1_000_000),
            ("40G", 40_000_000_000),
            ("1T", 1_000_000_000_000),
            ("1P", 1_000_000_000_000_000),
            ("1E", 1_000_000_000_000_000_000),
            ("1e9", 1_000_000_000),
            ("1E9", 1_000_000_000),
            ("1e+9", 1_000_000_000),
            ("12e3", 12_000),
            ("0012Mi", 12 << 20),
            ("0", 0),
            ("0000", 0),
            ("0Pi", 0),
        ] {
            check(text, Ok(value));
        }
    }

    #[test]
    fn parts_of_a_unit_count_as_a_whole_one() {
        for (text, value) in [
            ("500m", 1),
            ("1000m", 1),
            ("1001m", 2),
            ("1500m", 2),
            ("-500m", -1),
            ("-1500m", -2),
            ("0.1m", 1),
            ("1n", 1),
            ("1u", 1),
            ("1e-3", 1),
            ("1e-400", 1),
            ("0e-400", 0),
            ("1.5Gi", GIB + GIB / 2),
            ("1.5G", 1_500_000_000),
            (".5Gi", GIB / 2),
            ("1.", 1),
            ("1.Gi", GIB),
            ("0.1Ki", 103),
            ("0.0000001Ki", 1),
            ("1.0000000000000000000000000001Ki", 1025),
            ("1.00000000000000000000Ki", 1024),
            ("123456789.987654321k", 123_456_789_988),
            ("0.00000000000000000000000001", 1),
            ("100.00000", 100),
        ] {
            check(text, Ok(value));
        }
    }

    #[test]
    fn what_is_too_large_is_the_largest() {
        for text in [
            "8Ei",
            "9223372036854775807",
            "9223372036854775808",
            "10E",
            "1e19",
            "1e30",
            "1e2147483647",
            "99999999999999999999999999999999999999999999",
            "99999999999999999999999999999999999999999999Ki",
        ] {
            check(text, Ok(i64::MAX));
        }
        check("-1e30", Ok(-i64::MAX));
        check("0e2147483647", Ok(0));
        // Kubernetes keeps 32 bits of an exponent: 2^32 is 0.
        check("5e4294967296", Ok(5));
    }

    /// Kubernetes accepts these, unusual as they are.
    #[test]
    fn oddities_are_the_same() {
        for text in [".", "+", "-", "Ki", "Ti", "m", "e3", "+.", "-.k"] {
            check(text, Ok(0));
        }
        for text in ["Pi", "Ei", ".Ei", "-Ei", "e-10"] {
            check(text, Err(Invalid::Number));
        }
    }

    #[test]
    fn what_is_none_is_refused() {
        for text in [
            "", " ", "foobar", "1 Gi", " 1Gi", "1Gi ", "1gi", "1GiB", "1B", "1.5.5", "1e1.5",
            "0x10", "1,5", "1_000", "١", "1e5e", "1-2-3", "NaN", "inf", "1Gi\0",
        ] {
            check(text, Err(Invalid::Form));
        }
        for text in [
            "1K",
            "1ki",
            "1iK",
            "1mm",
            "1e",
            "1Ee3",
            "1ee3",
            "1+3",
            "--1",
            "1Gi3",
            "1e99999999999999999999",
        ] {
            check(text, Err(Invalid::Unit));
        }
    }

    #[test]
    fn json_carries_texts_and_numbers() {
        let read = |json: &str| serde_json::from_str::<Quantity>(json).map(Quantity::value);
        assert_eq!(read("\"40Gi\"").unwrap(), 40 * GIB);
        assert_eq!(read("5").unwrap(), 5);
        assert_eq!(read("1.5").unwrap(), 2);
        assert_eq!(read("18446744073709551615").unwrap(), i64::MAX);
        let refused = read("\"5 Gi\"").unwrap_err().to_string();
        assert!(refused.contains("\"5 Gi\" is no quantity"), "{refused}");
        assert!(read("true").is_err());
    }

    proptest::proptest! {
        #[test]
        fn no_text_is_a_panic(text in "[-+]?[0-9]{0,45}[.]?[0-9]{0,45}[eEinumkKMGTP]{0,2}[-+]?[0-9]{0,12}") {
            let _ = Quantity::parse(&text);
        }

        #[test]
        fn numbers_are_themselves(number: i64) {
            proptest::prop_assume!(number != i64::MIN);
            check(&number.to_string(), Ok(number));
        }

        /// Goal: the rounding is exact. Method: compared with whole numbers of thousandths.
        #[test]
        fn thousandths_are_rounded_up(thousandths in 0_u64..1 << 50, power in 0_u32..4) {
            let text = format!("{}.{:03}", thousandths / 1000, thousandths % 1000);
            let unit = ["", "Ki", "Mi", "Gi"][power as usize];
            let exact = (u128::from(thousandths) << (10 * power)).div_ceil(1000);
            let exact = i64::try_from(exact).unwrap_or(i64::MAX);
            check(&format!("{text}{unit}"), Ok(exact));
        }
    }
}
