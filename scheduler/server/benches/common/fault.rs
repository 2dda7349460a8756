//! Why a measurement ends early.

type Error = Box<dyn std::error::Error + Send + Sync>;

/// The result of a part of the measurement.
pub(crate) type Outcome<T> = Result<T, Error>;

/// A sentence about it.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Fault(String);

/// Returns an error with this sentence.
pub(crate) fn fault(what: impl Into<String>) -> Error {
    Box::new(Fault(what.into()))
}
