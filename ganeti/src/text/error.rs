//! Why a text is refused: the line, the column, and what is wrong there.
//!
//! Not a list of everything that is wrong: the first fault ends the reading, since what follows
//! it may be counted wrongly.

/// A text that is not in htools' format, or says something impossible.
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
    #[error("the text is longer than {limit} bytes; split the cluster or raise the limit")]
    TooLong {
        /// The limit in bytes.
        limit: usize,
    },
    /// A line is longer than any real one.
    #[error("the line is longer than {limit} bytes; this is not htools' text format")]
    LineTooLong {
        /// The limit in bytes.
        limit: usize,
    },
    /// Bytes that are not UTF-8.
    #[error("not UTF-8; this is not a text file")]
    NotText,
    /// A control character, a carriage return among them.
    #[error("control character {code:#04x}; write lines that end in a line feed alone")]
    ControlCharacter {
        /// Its code.
        code: u32,
    },
    /// The text ends too early.
    #[error(
        "the text has {actual} of at least 4 sections (groups, nodes, instances, cluster tags); \
         sections are separated by one empty line, also empty ones"
    )]
    MissingSections {
        /// How many there are.
        actual: usize,
    },
    /// A line has too few fields.
    #[error("a line of the {section} section has at least {least} fields, this one has {actual}")]
    FieldCount {
        /// The section.
        section: &'static str,
        /// The smallest number of fields.
        least: usize,
        /// How many there are.
        actual: usize,
    },
    /// A field that must say something is empty.
    #[error("the {field} is empty")]
    Empty {
        /// The field.
        field: &'static str,
    },
    /// A field is not a number.
    #[error("the {field} is '{value}', which is not {expected}")]
    NotANumber {
        /// The field.
        field: &'static str,
        /// What it says.
        value: String,
        /// What it should be.
        expected: &'static str,
    },
    /// A number is below what makes sense.
    #[error("the {field} is {value}, and must not be below {least}")]
    TooSmall {
        /// The field.
        field: &'static str,
        /// What it says.
        value: String,
        /// The smallest allowed value.
        least: i64,
    },
    /// A number is above what the arithmetic holds.
    #[error("the {field} is {value}, and must not be above {most}")]
    TooGreat {
        /// The field.
        field: &'static str,
        /// What it says.
        value: String,
        /// The greatest allowed value.
        most: i64,
    },
    /// A word is none of those that are known.
    #[error("the {field} is '{value}'; known are {known}")]
    UnknownWord {
        /// The field.
        field: &'static str,
        /// What it says.
        value: String,
        /// The words that are known.
        known: &'static str,
    },
    /// Two things have one name where names must differ.
    #[error("the {what} '{name}' is already on line {first}")]
    Duplicate {
        /// What has the name.
        what: &'static str,
        /// The name.
        name: String,
        /// The line of the first one.
        first: usize,
    },
    /// A name of something that is not there.
    #[error("the {what} '{name}' is not in this text")]
    UnknownReference {
        /// What is referred to.
        what: &'static str,
        /// The name.
        name: String,
    },
    /// Both copies of an instance on one node.
    #[error("'{name}' has the same primary and secondary node")]
    SameNode {
        /// The instance.
        name: String,
    },
    /// A specification with the wrong number of values.
    #[error(
        "a specification has 6 values (memory,cpus,disk size,disks,network cards,spindle use), \
         this one has {actual}"
    )]
    SpecCount {
        /// How many there are.
        actual: usize,
    },
    /// A minimum without its maximum.
    #[error("the ranges are pairs of specifications (min;max), and there are {actual}")]
    OddRanges {
        /// How many specifications there are.
        actual: usize,
    },
}
