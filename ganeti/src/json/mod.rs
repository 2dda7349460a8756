//! JSON with positions: every value knows its line and column, so that a request that says
//! something impossible is refused by the place where it says so.
//!
//! Not a general JSON library. Members of an object keep their order, which decides between equal
//! placements, and a key that comes twice is refused: one of both would be dropped unseen.

mod at;
mod parse;

pub use at::At;
pub use parse::{Limits, parse};

/// A value and where it begins.
#[derive(Debug, Clone, PartialEq)]
pub struct Value {
    /// The line, from 1.
    pub line: usize,
    /// The column in characters, from 1.
    pub column: usize,
    /// What it is.
    pub kind: Kind,
}

/// What a value is.
#[derive(Debug, Clone, PartialEq)]
pub enum Kind {
    /// `null`.
    Null,
    /// `true` or `false`.
    Flag(bool),
    /// A number as it was spelled.
    Number(String),
    /// A string.
    Text(String),
    /// An array.
    List(Vec<Value>),
    /// An object, its members in their order.
    Object(Vec<(String, Value)>),
}

impl Kind {
    /// Returns what it is called in a sentence.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Kind::Null => "null",
            Kind::Flag(_) => "true or false",
            Kind::Number(_) => "a number",
            Kind::Text(_) => "a string",
            Kind::List(_) => "a list",
            Kind::Object(_) => "an object",
        }
    }
}

/// A text that is not JSON, or says something impossible.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}, column {column}: {fault}")]
pub struct Error {
    /// The line, from 1.
    pub line: usize,
    /// The column in characters, from 1.
    pub column: usize,
    /// What is wrong there.
    pub fault: Fault,
}

/// What can be wrong with a text.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// The text is greater than what is read.
    #[error("the text is longer than {limit} bytes")]
    TooLong {
        /// The limit in bytes.
        limit: usize,
    },
    /// A string, number or space that is longer than any real one.
    #[error("this goes on for more than {limit} bytes")]
    Endless {
        /// The limit in bytes.
        limit: usize,
    },
    /// Values inside of values inside of values.
    #[error("values are nested more than {limit} deep")]
    TooDeep {
        /// The limit.
        limit: usize,
    },
    /// The text is not JSON.
    #[error("not JSON: {expected} was expected, and here is {actual}")]
    Syntax {
        /// What should stand there.
        expected: &'static str,
        /// What stands there.
        actual: String,
    },
    /// A key that an object has already.
    #[error("the key '{key}' is already in this object")]
    Duplicate {
        /// The key.
        key: String,
    },
    /// A key that must be there.
    #[error("{path} has no key '{key}'")]
    Missing {
        /// The object.
        path: String,
        /// The key.
        key: String,
    },
    /// A key that nothing is known of, where it cannot be passed over.
    #[error("{path} has the key '{key}', which is none of {known}")]
    UnknownKey {
        /// The object.
        path: String,
        /// The key.
        key: String,
        /// The keys that are known.
        known: String,
    },
    /// A value of another kind.
    #[error("{path} must be {expected}, and is {actual}")]
    Kind {
        /// The value.
        path: String,
        /// What it should be.
        expected: String,
        /// What it is.
        actual: String,
    },
    /// A name of something that is not there.
    #[error("{path} names the {what} '{name}', which is not in this request")]
    Unknown {
        /// The value.
        path: String,
        /// What it names.
        what: &'static str,
        /// The name.
        name: String,
    },
}

/// Returns the beginning of a text for a message.
fn shortened(text: &str) -> String {
    const MOST: usize = 60;
    if text.chars().count() <= MOST {
        return text.to_owned();
    }
    let head: String = text.chars().take(MOST).collect();
    format!("{head}…")
}
