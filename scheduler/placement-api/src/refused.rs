//! What the state refuses, as HTTP, where the endpoint has no words of its own.

use axum::http::StatusCode;
use berth_domain::refusal::{Code, Refusal};
use berth_proto::status::OUTCOME_UNKNOWN;

use super::fault::{Fault, code};

/// A host of Berth reports the provider.
pub(super) const PROVIDER_READ_ONLY: &str = "PROVIDER_READ_ONLY";
/// A claim of Berth is the consumer.
pub(super) const CONSUMER_READ_ONLY: &str = "CONSUMER_READ_ONLY";

/// Returns the fault of a refusal.
pub(super) fn in_general(refusal: &Refusal) -> Fault {
    let status = match refusal.code {
        Code::InvalidArgument | Code::OutOfRange => StatusCode::BAD_REQUEST,
        Code::NotFound => StatusCode::NOT_FOUND,
        Code::AlreadyExists
        | Code::FailedPrecondition
        | Code::Aborted
        | Code::ResourceExhausted
        | Code::Cancelled => StatusCode::CONFLICT,
        Code::Unavailable | Code::DeadlineExceeded => StatusCode::SERVICE_UNAVAILABLE,
        Code::PermissionDenied => StatusCode::FORBIDDEN,
        Code::Unimplemented => StatusCode::NOT_IMPLEMENTED,
        Code::Internal => StatusCode::INTERNAL_SERVER_ERROR,
    };
    let detail = match &refusal.hint {
        Some(hint) => format!("{}; {hint}", refusal.message),
        None => refusal.message.clone(),
    };
    let fault = Fault::new(status, detail);
    match &*refusal.reason {
        PROVIDER_READ_ONLY | CONSUMER_READ_ONLY => fault.with_code(code::READ_ONLY),
        OUTCOME_UNKNOWN => fault.with_code(code::OUTCOME_UNKNOWN),
        _ => fault,
    }
}

/// A reply of another kind than the command gives: a fault in the program.
pub(super) fn mismatch() -> Fault {
    let detail = "the state returned a reply of another kind than requested";
    Fault::new(StatusCode::INTERNAL_SERVER_ERROR, detail)
}
