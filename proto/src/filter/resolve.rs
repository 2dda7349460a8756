//! Expressions with the fields and types of a message: what evaluation needs, or what is wrong.

use berth_domain::filter::{Comparison, Expression, Fault, Operator, Part, Value};
use prost::encoding::encode_varint;
use prost_types::{Duration, Timestamp};

use super::evaluate::{Check, End, Key, Node, Step, Target, Test};
use super::schema::{Choices, Field, Kind, Message, Schema, schema};
use crate::convert::field::shown;

/// Resolves an expression for messages of this full name.
pub(super) fn resolve(expression: &Expression, name: &str) -> Result<Node, Fault> {
    let each = |all: &[Expression]| -> Result<Vec<Node>, Fault> {
        all.iter().map(|one| resolve(one, name)).collect()
    };
    Ok(match expression {
        Expression::All(all) => Node::All(each(all)?),
        Expression::Any(any) => Node::Any(each(any)?),
        Expression::Not(inner) => Node::Not(Box::new(resolve(inner, name)?)),
        Expression::Comparison(comparison) => {
            let resolver = Resolver {
                schema: schema(),
                comparison,
                steps: Vec::new(),
                is_repeated: false,
            };
            Node::Test(resolver.message(&format!(".{name}"), &comparison.path)?)
        }
    })
}

/// A comparison on its way from the message to the field at the end of its path.
struct Resolver<'c> {
    schema: &'static Schema,
    comparison: &'c Comparison,
    steps: Vec<Step>,
    /// Whether a step leads to each of several values.
    is_repeated: bool,
}

/// Where a value lies in the message to which the steps lead.
#[derive(Clone, Copy)]
struct Slot {
    number: u32,
    is_repeated: bool,
    has_presence: bool,
    /// Whether it is the value of an entry.
    is_of_entry: bool,
    collection: Option<&'static str>,
    stands_for: Option<&'static str>,
}

impl Resolver<'_> {
    fn message(self, name: &str, path: &[Part]) -> Result<Test, Fault> {
        let message = self.schema.message(name);
        let Some((part, rest)) = path.split_first() else {
            return self.reached();
        };
        let mut fields = message.fields.iter();
        let field = fields.find(|field| field.name == part.text && !field.is_left_out);
        let field = field.ok_or_else(|| unknown_field(name, message, part))?;
        let slot = Slot {
            number: field.number,
            is_repeated: field.is_repeated,
            has_presence: field.has_presence,
            is_of_entry: false,
            collection: field.collection,
            stands_for: field.stands_for,
        };
        self.value(&field.kind, slot, part, rest)
    }

    /// Resolves a value, which `part` leads to, and the rest of the path.
    fn value(mut self, kind: &Kind, slot: Slot, part: &Part, rest: &[Part]) -> Result<Test, Fault> {
        let Slot { number, .. } = slot;
        self.is_repeated |= slot.is_repeated;
        match kind {
            Kind::Message(name) => {
                let target = match (slot.is_repeated, slot.is_of_entry) {
                    (true, _) => Target::Each,
                    (false, true) => Target::OneOrEmpty,
                    (false, false) => Target::One,
                };
                self.steps.push(Step { number, target });
                self.message(name, rest)
            }
            Kind::Map(types) => self.map(types, number, rest),
            Kind::Text
            | Kind::Bool
            | Kind::Number(_)
            | Kind::Choice(_)
            | Kind::Time
            | Kind::Duration
            | Kind::Opaque => match rest.first() {
                Some(next) => {
                    let what =
                        format!("{} has no fields, such as {}", part.text, shown(&next.text));
                    Err(Fault::new(next.at, what))
                }
                None => self.scalar(kind, slot, part),
            },
        }
    }

    fn map(mut self, types: &[Kind; 2], number: u32, rest: &[Part]) -> Result<Test, Fault> {
        let [key_kind, value_kind] = types;
        let value = &self.comparison.value;
        let key = match rest.first() {
            Some(part) => {
                let (text, at) = (part.text.clone(), part.at);
                let (is_open_before, is_open_behind) = (false, false);
                let key = Value {
                    at,
                    text,
                    is_open_before,
                    is_open_behind,
                };
                key_of(key_kind, &key)?
            }
            None => {
                self.must_have("a map, whose keys are tested with `:`, and the value of one with its key behind a dot")?;
                if value.is_any() {
                    let target = Target::Each;
                    self.steps.push(Step { number, target });
                    return self.test(End::Reached);
                }
                key_of(key_kind, value)?
            }
        };
        let target = Target::Entry(key);
        self.steps.push(Step { number, target });
        let Some((part, rest)) = rest.split_first() else {
            return self.test(End::Reached);
        };
        let slot = Slot {
            number: 2,
            is_repeated: false,
            has_presence: false,
            is_of_entry: true,
            collection: None,
            stands_for: None,
        };
        let is_set = self.comparison.operator == Operator::Has && value.is_any();
        match rest.is_empty() && is_set {
            true => self.test(End::Reached),
            false => self.value(value_kind, slot, part, rest),
        }
    }

    /// Resolves a message at the end of a path, which can be there or not.
    fn reached(self) -> Result<Test, Fault> {
        self.must_have("a message: it is compared by a field of it, behind a dot, or with `:*`")?;
        let value = &self.comparison.value;
        match value.is_any() {
            true => self.test(End::Reached),
            false => Err(Fault::new(
                value.at,
                "a message is compared by a field of it, behind a dot, or with `:*`, which is whether it is set",
            )),
        }
    }

    fn scalar(mut self, kind: &Kind, slot: Slot, part: &Part) -> Result<Test, Fault> {
        let Comparison {
            operator, value, ..
        } = self.comparison;
        let at = self.comparison.operator_at;
        if *operator == Operator::Has && value.is_any() {
            let (number, target) = (slot.number, Target::Each);
            self.steps.push(Step { number, target });
            return self.test(End::Reached);
        }
        let is_has = *operator == Operator::Has;
        if self.is_repeated && !is_has {
            let what = format!(
                "{} has several values: `:` tests whether one of them is equal",
                part.text
            );
            return Err(Fault::new(at, what));
        }
        if is_has && !self.is_repeated && !slot.is_of_entry {
            let what = format!(
                "{} has one value: = and != compare it, and `:*` tests whether it is set",
                part.text
            );
            return Err(Fault::new(at, what));
        }
        let check = self.check(kind, slot, part)?;
        let default = self.default(kind, slot);
        self.test(End::Field {
            number: slot.number,
            is_repeated: slot.is_repeated,
            default,
            check,
        })
    }

    /// Returns the bytes of the value that an absent one has.
    fn default(&self, kind: &Kind, slot: Slot) -> Option<Vec<u8>> {
        if slot.has_presence {
            return None;
        }
        let Some(value) = slot.stands_for else {
            return Some(Vec::new());
        };
        let Kind::Choice(choices) = kind else {
            return Some(value.as_bytes().to_vec());
        };
        let mut bytes = Vec::new();
        let number = self.schema.choices(choices).parse(value)?;
        encode_varint(i64::from(number).cast_unsigned(), &mut bytes);
        Some(bytes)
    }

    fn check(&self, kind: &Kind, slot: Slot, part: &Part) -> Result<Check, Fault> {
        let Comparison {
            operator, value, ..
        } = self.comparison;
        let operator = *operator;
        let name = &part.text;
        match kind {
            Kind::Text => self.text_check(slot, name),
            Kind::Number(encoding) => Ok(Check::Number(operator, *encoding, number(value, name)?)),
            Kind::Bool => {
                self.must_be_equality(name)?;
                let read = plain(value).and_then(|text| text.parse().ok());
                let read = read.ok_or_else(|| wrong(value, name, "true or false"))?;
                Ok(Check::Bool(operator, read))
            }
            Kind::Choice(choices) => {
                self.must_be_equality(name)?;
                let choices = self.schema.choices(choices);
                let read = plain(value).and_then(|text| choices.parse(text));
                let read = read.ok_or_else(|| wrong(value, name, &choices.describe()))?;
                Ok(Check::Choice(operator, read.into()))
            }
            Kind::Time => {
                let read = plain(value).and_then(moment);
                let form = "a moment, as \"2026-11-01T00:00:00Z\"";
                let Timestamp { seconds, nanos } = read.ok_or_else(|| wrong(value, name, form))?;
                Ok(Check::Time(operator, (seconds.into(), nanos.into())))
            }
            Kind::Duration => {
                let read = plain(value).and_then(|text| text.parse().ok());
                let form = "a duration in seconds, as 90s or 0.5s";
                let Duration { seconds, nanos } = read.ok_or_else(|| wrong(value, name, form))?;
                Ok(Check::Time(operator, (seconds.into(), nanos.into())))
            }
            Kind::Message(_) | Kind::Map(_) | Kind::Opaque => {
                let what = format!("{name} cannot be compared");
                Err(Fault::new(part.at, what))
            }
        }
    }

    fn text_check(&self, slot: Slot, name: &str) -> Result<Check, Fault> {
        let Comparison {
            operator, value, ..
        } = self.comparison;
        if value.is_any() {
            let what = format!("{name}:* is whether {name} is set; * alone is no value");
            return Err(Fault::new(value.at, what));
        }
        let is_ordered = match operator {
            Operator::Equal | Operator::NotEqual | Operator::Has => false,
            Operator::Less
            | Operator::LessOrEqual
            | Operator::Greater
            | Operator::GreaterOrEqual => true,
        };
        if is_ordered && value.has_wildcard() {
            let what = "* stands for any text with = != : only";
            return Err(Fault::new(value.at, what));
        }
        let mut value = value.clone();
        // A resource is named with its collection and without.
        let collection = slot.collection.filter(|_| !value.text.contains('/'));
        let within = collection.filter(|_| value.is_open_before);
        if let Some(collection) = collection
            && within.is_none()
            && !value.text.is_empty()
        {
            value.text.insert(0, '/');
            value.text.insert_str(0, collection);
        }
        Ok(Check::Text {
            operator: *operator,
            value,
            within,
        })
    }

    fn must_be_equality(&self, name: &str) -> Result<(), Fault> {
        match self.comparison.operator {
            Operator::Equal | Operator::NotEqual | Operator::Has => Ok(()),
            Operator::Less
            | Operator::LessOrEqual
            | Operator::Greater
            | Operator::GreaterOrEqual => {
                let what = format!("{name} has no order: = and != compare it");
                Err(Fault::new(self.comparison.operator_at, what))
            }
        }
    }

    fn must_have(&self, what: &str) -> Result<(), Fault> {
        if self.comparison.operator == Operator::Has {
            return Ok(());
        }
        let name = self.comparison.path.last().map(|part| part.text.as_str());
        let what = format!("{} is {what}", name.unwrap_or_default());
        Err(Fault::new(self.comparison.operator_at, what))
    }

    fn test(self, end: End) -> Result<Test, Fault> {
        let steps = self.steps;
        Ok(Test { steps, end })
    }
}

impl Choices {
    /// Reads a value as tables show it, as its full name is, or as JSON spells it.
    fn parse(&self, text: &str) -> Option<i32> {
        let text = text.strip_prefix(&self.prefix).unwrap_or(text);
        let plain = |text: &str| text.replace('_', "").to_ascii_uppercase();
        let text = plain(text);
        let mut values = self.values.iter();
        let value = values.find(|(name, _)| plain(name) == text);
        value.map(|(_, number)| *number)
    }

    fn describe(&self) -> String {
        let names = self.values.iter().map(|(name, _)| name.as_str());
        format!("one of {}", names.collect::<Vec<_>>().join(", "))
    }
}

fn key_of(kind: &Kind, value: &Value) -> Result<Key, Fault> {
    match kind {
        Kind::Number(encoding) => Ok(Key::Number(*encoding, number(value, "a key")?)),
        Kind::Message(_)
        | Kind::Map(_)
        | Kind::Text
        | Kind::Bool
        | Kind::Choice(_)
        | Kind::Time
        | Kind::Duration
        | Kind::Opaque => Ok(Key::Text(value.clone())),
    }
}

fn number(value: &Value, name: &str) -> Result<i128, Fault> {
    // One of more digits is beyond every field.
    let read = plain(value).filter(|text| text.len() <= 20);
    let read: Option<i128> = read.and_then(|text| text.parse().ok());
    read.ok_or_else(|| wrong(value, name, "a whole number without a unit"))
}

/// Returns a value without asterisks.
fn plain(value: &Value) -> Option<&str> {
    (!value.has_wildcard()).then_some(value.text.as_str())
}

/// Reads a moment of RFC 3339.
fn moment(text: &str) -> Option<Timestamp> {
    // The reader of prost-types also takes years of more digits, and moments without a time or an offset.
    let bytes = text.as_bytes();
    let has_year = bytes.iter().take(4).all(u8::is_ascii_digit) && bytes.get(4) == Some(&b'-');
    let has_time = matches!(bytes.get(10), Some(b'T' | b't'));
    let has_offset = matches!(bytes.last(), Some(b'Z' | b'z'))
        || matches!(bytes.iter().rev().nth(5), Some(b'+' | b'-'));
    (has_year && has_time && has_offset && text.len() <= 35)
        .then(|| text.parse().ok())
        .flatten()
}

fn wrong(value: &Value, name: &str, form: &str) -> Fault {
    let asterisk = |is_there| if is_there { "*" } else { "" };
    let (before, behind) = (value.is_open_before, value.is_open_behind);
    let text = [asterisk(before), &value.text, asterisk(behind)].concat();
    let what = format!("{name} is {form}, not {}", shown(&text));
    Fault::new(value.at, what)
}

fn unknown_field(name: &str, message: &Message, part: &Part) -> Fault {
    let short = name.rsplit('.').next().unwrap_or(name);
    let fields = message.fields.iter().filter(|field| !field.is_left_out);
    let fields: Vec<&str> = fields.map(|field: &Field| field.name.as_str()).collect();
    let known = match fields.is_empty() {
        true => "it has none".to_owned(),
        false => format!("it has {}", fields.join(", ")),
    };
    let what = format!("{short} has no field {}; {known}", shown(&part.text));
    Fault::new(part.at, what)
}
