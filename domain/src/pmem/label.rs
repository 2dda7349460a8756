//! The label of persistent-memory namespaces that serve alike, and the resource class made of it.
//!
//! Invariant: this is the only place where labels are normalised. What an agent is configured
//! with, what a flavor requests and what a device remembers agree however each was written.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::resource::ResourceClass;

/// What the name of the class of a label begins with.
pub const CLASS_PREFIX: &str = "CUSTOM_PMEM_NAMESPACE_";

/// The longest name of a resource class, in characters.
const CLASS_LENGTH_MAX: usize = 255;

/// Why a text is not a label.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidLabel {
    /// There is none.
    #[error("a label is empty; labels are out of letters, digits and _, as 128G or SMALL")]
    Empty,
    /// It has a character that no resource class can have.
    #[error("label {text:?} has {character:?}; labels are out of letters, digits and _")]
    Character {
        /// The text, cut to a bounded length.
        text: String,
        /// The first such character.
        character: char,
    },
    /// No resource class can be named so.
    #[error(
        "a label has {length} characters; at most {} fit into a resource class",
        Label::LENGTH_MAX
    )]
    TooLong {
        /// How many it has.
        length: usize,
    },
}

/// The label of namespaces that serve alike. Opaque: `128GB` and `131072MB` are two.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Label(Arc<str>);

impl Label {
    /// The longest label, in characters.
    pub const LENGTH_MAX: usize = CLASS_LENGTH_MAX - CLASS_PREFIX.len();

    /// Returns the label in its one form, which is upper case.
    ///
    /// # Errors
    ///
    /// The rule that the text breaks.
    pub fn parse(text: &str) -> Result<Self, InvalidLabel> {
        let odd = |c: &char| !(c.is_ascii_alphanumeric() || *c == '_');
        if let Some(character) = text.chars().find(odd) {
            let text = text.chars().take(64).collect();
            return Err(InvalidLabel::Character { text, character });
        }
        match text.len() {
            0 => Err(InvalidLabel::Empty),
            length if length > Self::LENGTH_MAX => Err(InvalidLabel::TooLong { length }),
            _ => Ok(Self(text.to_ascii_uppercase().into())),
        }
    }

    /// Returns the label whose class that is, if it is the class of one.
    #[must_use]
    pub fn of_class(class: &ResourceClass) -> Option<Self> {
        let text = class.as_str().strip_prefix(CLASS_PREFIX)?;
        Self::parse(text).ok()
    }

    /// Returns the resource class in which its namespaces are counted.
    #[must_use]
    pub fn class(&self) -> ResourceClass {
        ResourceClass::new(&format!("{CLASS_PREFIX}{}", self.0))
            .expect("a label holds what a class may, and leaves room for the prefix")
    }

    /// Returns its text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl fmt::Debug for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl TryFrom<String> for Label {
    type Error = InvalidLabel;

    fn try_from(text: String) -> Result<Self, InvalidLabel> {
        Self::parse(&text)
    }
}

impl From<Label> for String {
    fn from(label: Label) -> Self {
        label.0.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_have_one_form_and_one_class() {
        for (text, expected) in [
            ("128G", "128G"),
            ("128g", "128G"),
            ("Small_1", "SMALL_1"),
            ("_", "_"),
        ] {
            let label = Label::parse(text).unwrap();
            assert_eq!(label.as_str(), expected);
            let class = label.class();
            assert_eq!(class.as_str(), format!("{CLASS_PREFIX}{expected}"));
            assert_eq!(Label::of_class(&class), Some(label));
        }
        assert_ne!(Label::parse("128GB"), Label::parse("131072MB"));
        let other = ResourceClass::vcpu();
        assert_eq!(Label::of_class(&other), None);
        let nothing = ResourceClass::new(CLASS_PREFIX).unwrap();
        assert_eq!(Label::of_class(&nothing), None);
    }

    #[test]
    fn what_no_class_can_be_named_after_is_refused() {
        assert_eq!(Label::parse(""), Err(InvalidLabel::Empty));
        for (text, odd) in [
            ("a-b", '-'),
            ("ä", 'ä'),
            (" a", ' '),
            ("a:b", ':'),
            ("a\0", '\0'),
        ] {
            let text = text.to_owned();
            let error = Label::parse(&text).unwrap_err();
            assert_eq!(
                error,
                InvalidLabel::Character {
                    text,
                    character: odd
                }
            );
        }
        let longest = "x".repeat(Label::LENGTH_MAX);
        assert_eq!(Label::parse(&longest).unwrap().class().as_str().len(), 255);
        let longer = "x".repeat(Label::LENGTH_MAX + 1);
        let length = longer.len();
        assert_eq!(Label::parse(&longer), Err(InvalidLabel::TooLong { length }));
    }
}
