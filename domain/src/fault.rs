//! What is wrong with something that a person wrote, as a refusal.

use crate::refusal::{Code, Refusal};

pub use crate::field_fault::Fault;

/// Returns the refusal of a thing (`flavor`, `vm`) for all its faults.
#[must_use]
pub fn refusal(kind: &str, faults: &[Fault]) -> Refusal {
    let text = |separator| {
        let lines: Vec<_> = faults.iter().map(Fault::to_string).collect();
        lines.join(separator)
    };
    let mut refusal = Refusal::new(
        Code::InvalidArgument,
        &format!("INVALID_{}", kind.to_uppercase()),
        format!("{} is not valid: {}", kind.replace('_', " "), text("; ")),
    );
    for fault in faults {
        refusal = refusal.with(&fault.field, &fault.rule);
    }
    refusal
}
