//! Kinds of operations as the values of a label.
//!
//! Not here: their names, which the table of operations has.

use berth_domain::operation::Kind;
use berth_domain::operation::table::KINDS;
use berth_process::metrics::Label;

/// The kind of an operation, as its position in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct OperationKind(usize);

static ALL: [OperationKind; KINDS.len()] = {
    let mut all = [OperationKind(0); KINDS.len()];
    let mut at = 0;
    while at < all.len() {
        all[at] = OperationKind(at);
        at += 1;
    }
    all
};

impl Label for OperationKind {
    const ALL: &'static [Self] = &ALL;

    fn index(self) -> usize {
        self.0
    }

    fn as_str(self) -> &'static str {
        KINDS[self.0].label
    }
}

impl From<&Kind> for OperationKind {
    fn from(kind: &Kind) -> Self {
        let label = kind.plan().label;
        let at = KINDS.iter().position(|plan| plan.label == label);
        Self(at.expect("every kind is in the table"))
    }
}
