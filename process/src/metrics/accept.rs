//! Which of two formats a client prefers, by the `Accept` header of its request (RFC 9110, 12.5.1).
//!
//! ```text
//!   application/openmetrics-text;version=1.0.0;q=0.8 , text/plain;q=0.5 , */*;q=0.1
//!   └─ the more a range names, the more it counts ──────────────────────────────────▶
//! ```
//!
//! Not here: the formats. Their versions are not negotiated: there is one of each.
//!
//! Invariant: a bounded number of ranges is read, and what cannot be parsed counts as not sent.

use tonic::codegen::http::HeaderMap;
use tonic::codegen::http::header::ACCEPT;

/// How many ranges are read. Prometheus sends five.
const RANGES_MAX: usize = 32;

/// The quality of a range without one, in thousandths.
const QUALITY_MAX: u16 = 1_000;

/// A range of media types that a client accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Range<'a> {
    kind: &'a str,
    subtype: &'a str,
    /// How much it is preferred, in thousandths; 0: not at all.
    quality: u16,
}

impl<'a> Range<'a> {
    fn parse(text: &'a str) -> Option<Self> {
        let mut parts = text.split(';').map(str::trim);
        let (kind, subtype) = parts.next()?.split_once('/')?;
        let is_valid = is_token(kind) && is_token(subtype) && (kind != "*" || subtype == "*");
        let mut quality = QUALITY_MAX;
        for parameter in parts {
            let Some((name, value)) = parameter.split_once('=') else {
                continue;
            };
            if name.trim().eq_ignore_ascii_case("q") {
                quality = parse_quality(value.trim())?;
            }
        }
        is_valid.then_some(Self {
            kind,
            subtype,
            quality,
        })
    }

    /// Returns how much it names of a type that it includes.
    fn precision(&self, kind: &str, subtype: &str) -> Option<u8> {
        if self.kind.eq_ignore_ascii_case(kind) && self.subtype.eq_ignore_ascii_case(subtype) {
            Some(2)
        } else if self.kind.eq_ignore_ascii_case(kind) && self.subtype == "*" {
            Some(1)
        } else {
            (self.kind == "*").then_some(0)
        }
    }
}

/// Parses a quality: 0 or 1, with at most three decimals, at most 1.
fn parse_quality(text: &str) -> Option<u16> {
    let (whole, decimals) = text.split_once('.').unwrap_or((text, ""));
    if decimals.len() > 3 || !decimals.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let whole = match whole {
        "0" => 0,
        "1" => QUALITY_MAX,
        _ => return None,
    };
    let thousandths: u16 = format!("{decimals:0<3}").parse().ok()?;
    let quality = whole + thousandths;
    (quality <= QUALITY_MAX).then_some(quality)
}

fn is_token(text: &str) -> bool {
    let is_of_token = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c);
    !text.is_empty() && text.chars().all(is_of_token)
}

/// Returns whether a client reads `OpenMetrics` at least as gladly as the older text. One that accepts
/// neither is sent the older one.
pub(super) fn prefers_open_metrics(headers: &HeaderMap) -> bool {
    if !headers.contains_key(ACCEPT) {
        return true;
    }
    let values = headers.get_all(ACCEPT).iter();
    let values = values.filter_map(|value| value.to_str().ok());
    let ranges = values.flat_map(|value| value.split(',')).take(RANGES_MAX);
    let ranges: Vec<Range<'_>> = ranges.filter_map(Range::parse).collect();
    let open_metrics = quality(&ranges, "application", "openmetrics-text");
    open_metrics > 0 && open_metrics >= quality(&ranges, "text", "plain")
}

/// Returns how much a type is preferred: by the range that names most of it, and of several of those
/// by the one with the highest quality.
fn quality(ranges: &[Range<'_>], kind: &str, subtype: &str) -> u16 {
    let including = ranges.iter().filter_map(|range| {
        let precision = range.precision(kind, subtype)?;
        Some((precision, range.quality))
    });
    including.max().map_or(0, |(_, quality)| quality)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(accept: &[&str], expected: bool) {
        let mut headers = HeaderMap::new();
        for value in accept {
            headers.append(ACCEPT, value.parse().unwrap());
        }
        assert_eq!(prefers_open_metrics(&headers), expected, "{accept:?}");
    }

    #[test]
    fn the_format_follows_from_what_a_client_accepts() {
        check(&[], true);
        check(&["*/*"], true);
        check(&["text/plain"], false);
        check(&["text/plain;version=0.0.4;q=0.5,*/*;q=0.1"], false);
        check(&["text/html"], false);
        check(&[""], false);
        // What Prometheus sends: before version 2.40, and since 3.0.
        check(
            &[
                "application/openmetrics-text;version=1.0.0,application/openmetrics-text;\
                 version=0.0.1;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
            ],
            true,
        );
        check(
            &[
                "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.5,\
                 text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,*/*;q=0.2",
            ],
            true,
        );
        // Its setting `scrape_protocols` with the older text first.
        check(
            &["text/plain;version=0.0.4;q=0.6,application/openmetrics-text;version=1.0.0;q=0.5"],
            false,
        );
    }

    #[test]
    fn qualities_and_precision_decide() {
        check(
            &["application/openmetrics-text;q=0.5, text/plain;q=0.9"],
            false,
        );
        check(
            &["application/openmetrics-text; Q=0.9 , text/plain ; q=0.5"],
            true,
        );
        check(&["application/openmetrics-text;q=0", "*/*"], false);
        check(&["text/plain;q=0, */*;q=0.1"], true);
        check(&["text/*, application/openmetrics-text;q=0.9"], false);
        check(&["application/*;q=0.4", "text/plain;q=0.3"], true);
        check(&["Application/OpenMetrics-Text"], true);
        check(&["*/*;q=0"], false);
    }

    /// Goal: what is no range or has no valid quality counts as not sent, however much there is of it.
    #[test]
    fn what_cannot_be_parsed_is_passed_over() {
        for quality in ["2", "1.001", "-1", "0.1234", "0.5x", "", "NaN", ".5", "+1"] {
            let wrong = format!("application/openmetrics-text;q={quality}, text/plain;q=0.1");
            check(&[&wrong], false);
        }
        for range in ["application", "/", "*/openmetrics-text", "a b/c", ";q=1"] {
            check(&[&format!("{range}, text/plain;q=0.1")], false);
        }
        let many = "text/html,".repeat(RANGES_MAX - 1);
        check(&[&format!("{many}application/openmetrics-text")], true);
        check(
            &[&format!("text/html,{many}application/openmetrics-text")],
            false,
        );
    }

    #[test]
    fn qualities_are_read_exactly() {
        for (text, expected) in [
            ("0", Some(0)),
            ("1", Some(1_000)),
            ("0.", Some(0)),
            ("0.5", Some(500)),
            ("0.05", Some(50)),
            ("0.005", Some(5)),
            ("1.000", Some(1_000)),
            ("1.001", None),
            ("1.99999", None),
            ("0.0001", None),
        ] {
            assert_eq!(parse_quality(text), expected, "{text}");
        }
    }
}
