//! The identity of a span, and the header of W3C Trace Context that carries it between programs.
//!
//! Not here: `tracestate`, of which nothing is read or written.
//!
//! Invariant: whatever a client sends as the header, the result is a valid identity or none.

/// The header, in the metadata of gRPC.
pub const HEADER: &str = "traceparent";
/// The length of the header in version 00.
const LENGTH: usize = 55;
/// What is read of a later version at most.
const LENGTH_MAX: usize = 256;

/// The identity of a span.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SpanContext {
    /// The trace; not 0.
    pub trace: u128,
    /// The span in the trace; not 0.
    pub span: u64,
    /// Whether spans of the trace are recorded.
    pub is_sampled: bool,
}

impl SpanContext {
    /// Reads the header; nothing if it is not valid.
    #[must_use]
    pub fn parse(header: &[u8]) -> Option<Self> {
        if !(LENGTH..=LENGTH_MAX).contains(&header.len()) {
            return None;
        }
        let version = hex(&header[..2])?;
        let is_complete = match header.get(LENGTH) {
            None => true,
            // Later versions may add fields.
            Some(next) => version != 0 && *next == b'-',
        };
        let is_separated = [2, 35, 52].iter().all(|at| header[*at] == b'-');
        if version == 0xff || !is_complete || !is_separated {
            return None;
        }
        let context = Self {
            trace: hex(&header[3..35])?,
            span: u64::try_from(hex(&header[36..52])?).ok()?,
            is_sampled: hex(&header[53..LENGTH])? & 1 == 1,
        };
        (context.trace != 0 && context.span != 0).then_some(context)
    }

    /// Returns the header.
    #[must_use]
    pub fn header(self) -> String {
        let flags = u8::from(self.is_sampled);
        format!("00-{:032x}-{:016x}-{flags:02x}", self.trace, self.span)
    }

    /// Returns another span of the same trace.
    #[must_use]
    pub fn with_span(self, span: u64) -> Self {
        Self { span, ..self }
    }
}

/// Reads digits of base 16, of which the header allows lower-case ones only.
fn hex(digits: &[u8]) -> Option<u128> {
    digits.iter().try_fold(0, |number: u128, digit| {
        let value = match digit {
            b'0'..=b'9' => digit - b'0',
            b'a'..=b'f' => digit - b'a' + 10,
            _ => return None,
        };
        Some(number << 4 | u128::from(value))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const VALID: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn a_header_is_written_as_it_is_read() {
        let context = SpanContext::parse(VALID.as_bytes()).unwrap();
        assert_eq!(context.trace, 0x4bf9_2f35_77b3_4da6_a3ce_929d_0e0e_4736);
        assert_eq!(context.span, 0x00f0_67aa_0ba9_02b7);
        assert!(context.is_sampled);
        assert_eq!(context.header(), VALID);
        let unsampled = VALID.replace("-01", "-00");
        let context = SpanContext::parse(unsampled.as_bytes()).unwrap();
        assert!(!context.is_sampled);
        assert_eq!(context.header(), unsampled);
    }

    /// Goal: later versions are read as version 00, as W3C prescribes.
    #[test]
    fn later_versions_may_have_more_fields() {
        for valid in [
            VALID.replacen("00", "cc", 1),
            VALID.replacen("00", "01", 1) + "-more",
        ] {
            assert!(SpanContext::parse(valid.as_bytes()).is_some(), "{valid}");
        }
    }

    #[test]
    fn hostile_headers_are_none() {
        let zero_trace = "00-00000000000000000000000000000000-00f067aa0ba902b7-01".to_owned();
        let zero_span = "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01".to_owned();
        for bad in [
            String::new(),
            "00".to_owned(),
            VALID[..54].to_owned(),
            VALID.to_owned() + "-more",
            VALID.to_owned() + "x",
            VALID.replacen("00", "ff", 1),
            VALID.replacen("00", "01", 1) + "more",
            VALID.replace('-', "_"),
            VALID.to_uppercase(),
            VALID.replace("4b", "4g"),
            VALID.replacen("00", "0x", 1),
            VALID.replacen("00", "cc", 1) + "-" + &"x".repeat(10_000),
            "\u{1b}[2J".repeat(14),
            zero_trace,
            zero_span,
        ] {
            assert_eq!(SpanContext::parse(bad.as_bytes()), None, "{bad:?}");
        }
        assert_eq!(SpanContext::parse(&[0xff; LENGTH]), None);
    }
}
