//! The language in which lists are filtered: its expressions, and their bounds.
//!
//! It is a subset of AIP-160. Where AND and OR stand beside each other without parentheses that document
//! has OR bind tighter, against the habit of most languages; here it is a fault, so that every filter
//! means the same in both.
//!
//! Not here: which fields a message has and what type they are, which `berth-proto` knows.
//!
//! Invariant: a text is read in one pass, without going back; what it costs is in proportion to its
//! length, which is bounded, as are the depth of its parentheses and the number of its comparisons.

mod parser;

/// The longest filter, in bytes.
pub const LENGTH_MAX: usize = 2048;
/// How deep parentheses and negations may lie in each other.
pub const DEPTH_MAX: usize = 16;
/// The most comparisons of a filter.
pub const COMPARISONS_MAX: usize = 64;
/// The most parts of the path of a field.
pub const PATH_MAX: usize = 16;

/// What entries of a list have to meet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Expression {
    /// Each of these.
    All(Vec<Self>),
    /// At least one of these.
    Any(Vec<Self>),
    /// Not this.
    Not(Box<Self>),
    /// A field is compared with a value.
    Comparison(Comparison),
}

/// A field that is compared with a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Comparison {
    /// The path of the field; it is never empty.
    pub path: Vec<Part>,
    /// How it is compared.
    pub operator: Operator,
    /// Where the operator stands, in bytes from the beginning.
    pub operator_at: usize,
    /// The value.
    pub value: Value,
}

/// A part of a path: the name of a field, or the key of a map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// Where it stands, in bytes from the beginning.
    pub at: usize,
    /// The name or the key.
    pub text: String,
}

/// How a field is compared with a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operator {
    /// It is equal: `=`.
    Equal,
    /// It is not equal: `!=`.
    NotEqual,
    /// It is less: `<`.
    Less,
    /// It is less or equal: `<=`.
    LessOrEqual,
    /// It is greater: `>`.
    Greater,
    /// It is greater or equal: `>=`.
    GreaterOrEqual,
    /// It holds it, or is set: `:`.
    Has,
}

/// A value as it is written, without quotes and without the asterisks at its ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Value {
    /// Where it stands, in bytes from the beginning.
    pub at: usize,
    /// What is between its asterisks.
    pub text: String,
    /// Whether it begins with `*`: any text may stand before it.
    pub is_open_before: bool,
    /// Whether it ends with `*`: any text may stand behind it.
    pub is_open_behind: bool,
}

/// Why a text is no filter.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("at byte {}: {what}", .at + 1)]
pub struct Fault {
    /// Where, in bytes from the beginning; it is shown counted from 1.
    pub at: usize,
    /// What is wrong there, and what is allowed.
    pub what: String,
}

impl Expression {
    /// Reads a filter; absent where the text is empty, which selects everything.
    ///
    /// # Errors
    ///
    /// The text is no filter, or beyond a bound.
    pub fn parse(text: &str) -> Result<Option<Self>, Fault> {
        parser::parse(text)
    }
}

impl Operator {
    /// Returns how it is written.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Equal => "=",
            Self::NotEqual => "!=",
            Self::Less => "<",
            Self::LessOrEqual => "<=",
            Self::Greater => ">",
            Self::GreaterOrEqual => ">=",
            Self::Has => ":",
        }
    }

    /// Returns whether two values that are ordered like this meet it. [`Operator::Has`] compares as
    /// [`Operator::Equal`] does.
    #[must_use]
    pub fn is_met_by(self, order: std::cmp::Ordering) -> bool {
        match self {
            Self::Equal | Self::Has => order.is_eq(),
            Self::NotEqual => order.is_ne(),
            Self::Less => order.is_lt(),
            Self::LessOrEqual => order.is_le(),
            Self::Greater => order.is_gt(),
            Self::GreaterOrEqual => order.is_ge(),
        }
    }
}

impl Value {
    /// Returns whether it is `*` alone: with `:`, that a field is set.
    #[must_use]
    pub fn is_any(&self) -> bool {
        self.text.is_empty() && self.has_wildcard()
    }

    /// Returns whether it has an asterisk at an end.
    #[must_use]
    pub fn has_wildcard(&self) -> bool {
        self.is_open_before || self.is_open_behind
    }

    /// Returns whether a text is equal to it, with its asterisks.
    #[must_use]
    pub fn matches(&self, text: &str) -> bool {
        let value = self.text.as_str();
        match (self.is_open_before, self.is_open_behind) {
            (false, false) => text == value,
            (false, true) => text.starts_with(value),
            (true, false) => text.ends_with(value),
            (true, true) => text.contains(value),
        }
    }
}

impl Fault {
    /// Returns a fault at a position, in bytes from the beginning.
    #[must_use]
    pub fn new(at: usize, what: impl Into<String>) -> Self {
        let what = what.into();
        Self { at, what }
    }
}
