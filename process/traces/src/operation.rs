//! The identities of the spans of an operation. They are functions of the operation's id, so that
//! every program knows them without a word of another one: each conductor that carries the operation
//! on, and the scheduler that records its end.
//!
//! ```text
//!   trace          the operation's UUID
//!   root span      the last 8 bytes of the UUID
//!   span of a step a hash of the UUID and the number of the attempt
//! ```
//!
//! Not here: what an attempt is (`berth_domain::operation::attempt`).

use xxhash_rust::xxh3::xxh3_64;

use crate::context::SpanContext;
use crate::recorder;

/// Returns the root span of an operation; nothing where its trace is not recorded.
#[must_use]
pub fn root(operation: u128) -> Option<SpanContext> {
    recorder::is_sampled(operation).then(|| root_of(operation))
}

/// Returns the span of an attempt of a step; nothing where its trace is not recorded.
#[must_use]
pub fn attempt(operation: u128, number: u64) -> Option<SpanContext> {
    let root = root(operation)?;
    Some(root.with_span(attempt_of(operation, number)))
}

fn root_of(operation: u128) -> SpanContext {
    // The first two bits of these bytes are a UUID's variant, so it is not 0.
    let [.., a, b, c, d, e, f, g, h] = operation.to_be_bytes();
    SpanContext {
        trace: operation,
        span: u64::from_be_bytes([a, b, c, d, e, f, g, h]).max(1),
        is_sampled: true,
    }
}

fn attempt_of(operation: u128, number: u64) -> u64 {
    let mut bytes = [0; 24];
    bytes[..16].copy_from_slice(&operation.to_be_bytes());
    bytes[16..].copy_from_slice(&number.to_be_bytes());
    xxh3_64(&bytes).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const OPERATION: u128 = 0x0199_8f6e_22f4_7c31_9d5e_0f3a_4b5c_6d7e;

    /// Goal: the identities are the same in every build, as conductors and schedulers of different
    /// builds join one tree.
    #[test]
    fn identities_follow_from_the_id() {
        let root = root_of(OPERATION);
        assert_eq!(
            root.header(),
            "00-01998f6e22f47c319d5e0f3a4b5c6d7e-9d5e0f3a4b5c6d7e-01"
        );
        let spans: Vec<u64> = (0..100).map(|n| attempt_of(OPERATION, n)).collect();
        let mut different = spans.clone();
        different.sort_unstable();
        different.dedup();
        assert_eq!(different.len(), spans.len());
        assert!(!spans.contains(&root.span));
        assert_ne!(attempt_of(OPERATION + 1, 0), spans[0]);
    }
}
