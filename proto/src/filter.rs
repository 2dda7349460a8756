//! Filters of lists, evaluated on the messages of the API.
//!
//! ```text
//! text ─▶ Expression (berth-domain: grammar, bounds) ─▶ Filter (fields and types by the descriptors)
//!                                                          │
//!                              message ─▶ its bytes ───────┴─▶ bool
//! ```
//!
//! A filter is evaluated on the encoded message, which it reads by the numbers of the fields: so each
//! field of the API can be filtered without a table of them, and costs what skipping to it costs.
//!
//! Invariant: evaluation never fails. What could is refused when the filter is read.

mod evaluate;
mod names;
mod resolve;
mod schema;
#[cfg(test)]
mod tests;

use berth_domain::filter::{Comparison, Expression, Fault};
use prost::{Message, Name};

use self::evaluate::Node;
use crate::convert::Invalid;

/// The field of requests that holds a filter.
const FIELD: &str = "filter";

/// A filter of messages of one type.
#[derive(Clone, Debug)]
pub struct Filter {
    /// Absent where everything is selected.
    root: Option<Node>,
    /// The paths that it compares.
    paths: Vec<Vec<String>>,
}

impl Filter {
    /// Reads a filter of messages of type `M`; an empty one selects all of them.
    ///
    /// # Errors
    ///
    /// With the position, when it is no filter, names a field that `M` does not have, or compares one with
    /// a value that cannot be its own.
    pub fn new<M: Name>(text: &str) -> Result<Self, Invalid> {
        let invalid = |fault: Fault| Invalid::new(FIELD, fault.to_string());
        let expression = Expression::parse(text).map_err(invalid)?;
        let Some(expression) = expression else {
            let (root, paths) = (None, Vec::new());
            return Ok(Self { root, paths });
        };
        let root = resolve::resolve(&expression, &M::full_name()).map_err(invalid)?;
        let mut paths = Vec::new();
        collect_paths(&expression, &mut paths);
        let root = Some(root);
        Ok(Self { root, paths })
    }

    /// Returns whether it selects everything.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.root.is_none()
    }

    /// Returns whether a message is selected. It is of the type that the filter was read for.
    #[must_use]
    pub fn matches(&self, message: &impl Message) -> bool {
        let Some(root) = &self.root else {
            return true;
        };
        root.is_met_by(&message.encode_to_vec())
    }

    /// As [`Self::matches`], of a message that is made only if there is a filter.
    #[must_use]
    pub fn matches_with<M: Message>(&self, message: impl FnOnce() -> M) -> bool {
        self.is_empty() || self.matches(&message())
    }

    /// Returns whether it reads a field of the message, or a part of one. What it does not read can be left
    /// out of the messages that it is evaluated on.
    #[must_use]
    pub fn reads(&self, field: &str) -> bool {
        self.paths.iter().any(|path| path[0] == field)
    }

    /// Returns whether it reads more of a field than one of the fields in it.
    #[must_use]
    pub fn reads_besides(&self, field: &str, inner: &str) -> bool {
        let mut paths = self.paths.iter().filter(|path| path[0] == field);
        paths.any(|path| path.get(1).is_none_or(|part| part != inner))
    }
}

fn collect_paths(expression: &Expression, paths: &mut Vec<Vec<String>>) {
    match expression {
        Expression::All(all) | Expression::Any(all) => {
            all.iter().for_each(|one| collect_paths(one, paths));
        }
        Expression::Not(inner) => collect_paths(inner, paths),
        Expression::Comparison(Comparison { path, .. }) => {
            paths.push(path.iter().map(|part| part.text.clone()).collect());
        }
    }
}
