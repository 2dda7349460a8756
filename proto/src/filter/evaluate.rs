//! The evaluation of filters on the bytes of messages.
//!
//! Invariant: a comparison with what is absent is false, whatever its operator; that of a field without
//! presence compares its default value, since there absent and default are the same bytes.

use berth_domain::filter::{Operator, Value};
use prost::encoding::{WireType, decode_varint};

use super::schema::Encoding;
use crate::wire::{Lying, take};

/// What a message has to meet.
#[derive(Clone, Debug)]
pub(super) enum Node {
    All(Vec<Self>),
    Any(Vec<Self>),
    Not(Box<Self>),
    Test(Test),
}

/// What the fields at the end of a path have to meet.
#[derive(Clone, Debug)]
pub(super) struct Test {
    pub(super) steps: Vec<Step>,
    pub(super) end: End,
}

/// A step from a message into one of its fields.
#[derive(Clone, Debug)]
pub(super) struct Step {
    pub(super) number: u32,
    pub(super) target: Target,
}

/// Which of the values of a field a step leads to.
#[derive(Clone, Debug)]
pub(super) enum Target {
    /// The only one.
    One,
    /// The only one, which is empty where it is absent: the value of an entry.
    OneOrEmpty,
    /// Each of them, until one meets the rest.
    Each,
    /// The entries with this key.
    Entry(Key),
}

/// The key of an entry of a map.
#[derive(Clone, Debug)]
pub(super) enum Key {
    Text(Value),
    Number(Encoding, i128),
}

/// What is at the end of the steps.
#[derive(Clone, Debug)]
pub(super) enum End {
    /// Anything: that something is there is the test.
    Reached,
    /// A value.
    Field {
        number: u32,
        is_repeated: bool,
        /// The value of an absent one. Absent: then no comparison is met.
        default: Option<Vec<u8>>,
        check: Check,
    },
}

/// What a value has to meet.
#[derive(Clone, Debug)]
pub(super) enum Check {
    Text {
        operator: Operator,
        value: Value,
        /// The collection that is left out of a name before it is compared.
        within: Option<&'static str>,
    },
    Number(Operator, Encoding, i128),
    Bool(Operator, bool),
    Choice(Operator, i128),
    /// Seconds and nanoseconds, of a moment or a duration.
    Time(Operator, (i128, i128)),
}

impl Node {
    /// Returns whether an encoded message meets it.
    pub(super) fn is_met_by(&self, message: &[u8]) -> bool {
        match self {
            Self::All(all) => all.iter().all(|node| node.is_met_by(message)),
            Self::Any(any) => any.iter().any(|node| node.is_met_by(message)),
            Self::Not(node) => !node.is_met_by(message),
            Self::Test(test) => is_reached(&test.steps, &test.end, message),
        }
    }
}

fn is_reached(steps: &[Step], end: &End, message: &[u8]) -> bool {
    let Some((step, rest)) = steps.split_first() else {
        return end.is_met_by(message);
    };
    let goes_on = |message| is_reached(rest, end, message);
    let mut all = values(message, step.number).map(|lying| lying.content);
    match &step.target {
        Target::One => all.last().is_some_and(goes_on),
        Target::OneOrEmpty => goes_on(all.last().unwrap_or_default()),
        Target::Each => all.any(goes_on),
        Target::Entry(key) => all.any(|entry| key.is_of(entry) && goes_on(entry)),
    }
}

/// Returns the values of a field as they lie in a message.
fn values(mut message: &[u8], number: u32) -> impl Iterator<Item = Lying<'_>> {
    let all = std::iter::from_fn(move || take(&mut message));
    all.filter(move |lying| lying.number == number)
}

impl Key {
    fn is_of(&self, entry: &[u8]) -> bool {
        let key = values(entry, 1).last().map(|lying| lying.content);
        let key = key.unwrap_or_default();
        match self {
            Self::Text(value) => text(key).is_some_and(|key| value.matches(key)),
            Self::Number(encoding, number) => encoding.read(key) == Some(*number),
        }
    }
}

impl End {
    fn is_met_by(&self, message: &[u8]) -> bool {
        let Self::Field {
            number,
            is_repeated,
            default,
            check,
        } = self
        else {
            return true;
        };
        let mut all = values(message, *number);
        if *is_repeated {
            return all.any(|lying| check.is_met_by_any(&lying));
        }
        let value = all.last().map(|lying| lying.content);
        let value = value.or(default.as_deref());
        value.is_some_and(|value| check.is_met_by(value))
    }
}

impl Check {
    /// Returns whether one value of a repeated field meets it; numbers lie together.
    fn is_met_by_any(&self, lying: &Lying<'_>) -> bool {
        let is_varint = match self {
            Self::Number(..) | Self::Bool(..) | Self::Choice(..) => true,
            Self::Text { .. } | Self::Time(..) => false,
        };
        if !is_varint || lying.wire != WireType::LengthDelimited {
            return self.is_met_by(lying.content);
        }
        let mut rest = lying.content;
        let mut each = std::iter::from_fn(|| {
            let before = rest;
            decode_varint(&mut rest).ok()?;
            Some(&before[..before.len() - rest.len()])
        });
        each.any(|one| self.is_met_by(one))
    }

    /// Returns whether a value meets it; nothing is the default value.
    fn is_met_by(&self, content: &[u8]) -> bool {
        let is_met = match self {
            Self::Text {
                operator,
                value,
                within,
            } => text(content).map(|text| compare(*operator, short(text, *within), value)),
            Self::Number(operator, encoding, number) => {
                let order = encoding.read(content).map(|n| n.cmp(number));
                order.map(|order| operator.is_met_by(order))
            }
            Self::Bool(operator, value) => {
                let order = Encoding::Unsigned.read(content);
                order.map(|n| operator.is_met_by((n != 0).cmp(value)))
            }
            Self::Choice(operator, number) => {
                let order = Encoding::Signed.read(content).map(|n| n.cmp(number));
                order.map(|order| operator.is_met_by(order))
            }
            Self::Time(operator, time) => {
                let order = read_time(content).map(|t| t.cmp(time));
                order.map(|order| operator.is_met_by(order))
            }
        };
        is_met.unwrap_or(false)
    }
}

/// Returns a name without its collection.
fn short<'t>(name: &'t str, collection: Option<&str>) -> &'t str {
    let rest = collection.and_then(|collection| name.strip_prefix(collection)?.strip_prefix('/'));
    rest.unwrap_or(name)
}

/// Compares a text; it is ordered by its bytes.
fn compare(operator: Operator, text: &str, value: &Value) -> bool {
    match operator {
        Operator::Equal | Operator::Has => value.matches(text),
        Operator::NotEqual => !value.matches(text),
        Operator::Less | Operator::LessOrEqual | Operator::Greater | Operator::GreaterOrEqual => {
            operator.is_met_by(text.cmp(value.text.as_str()))
        }
    }
}

/// Reads a text. Messages of this build hold nothing else; anything else meets no comparison.
fn text(content: &[u8]) -> Option<&str> {
    std::str::from_utf8(content).ok()
}

/// Reads the seconds and nanoseconds of a moment or a duration.
fn read_time(content: &[u8]) -> Option<(i128, i128)> {
    let part = |number| {
        let part = values(content, number).last();
        Encoding::Signed.read(part.map(|lying| lying.content).unwrap_or_default())
    };
    Some((part(1)?, part(2)?))
}

impl Encoding {
    /// Reads a number; nothing is 0.
    fn read(self, mut content: &[u8]) -> Option<i128> {
        if content.is_empty() {
            return Some(0);
        }
        let number = decode_varint(&mut content).ok()?;
        Some(match self {
            Self::Unsigned => number.into(),
            Self::Signed => number.cast_signed().into(),
        })
    }
}
