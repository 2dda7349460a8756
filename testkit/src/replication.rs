//! A toy machine for the tests of replication: named registers that count how often they were
//! written.
//!
//! Its commands are text, so that a failing test can be read: `set <key> <value>`,
//! `add <key> <n>`, `del <key>`. The register `patience` is the machine's patience.

pub mod group;
pub mod hung;

use berth_replication::{Applied, Machine, Row, RowChange};
use bytes::Bytes;

/// Named registers.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Registers {
    rows: imbl::OrdMap<String, String>,
    applied: u64,
}

/// A command, as text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Command(pub String);

/// Why bytes are no command.
#[derive(Debug, thiserror::Error)]
#[error("unknown command {0:?}")]
pub struct Unknown(String);

/// What was in the register before, and how many there are now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The value before the command.
    pub before: Option<String>,
    /// How many registers there are after it.
    pub rows: usize,
}

/// Returns the command that writes a register.
pub fn set(key: impl Into<String>, value: impl ToString) -> Command {
    Command(format!("set {} {}", key.into(), value.to_string()))
}

/// Returns the command that adds to a register.
pub fn add(key: &str, n: u64) -> Command {
    Command(format!("add {key} {n}"))
}

impl Registers {
    /// Returns the value of a register.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.rows.get(key).map(String::as_str)
    }

    /// Returns how many registers there are.
    pub fn count(&self) -> usize {
        self.rows.len()
    }

    fn change(&mut self, index: u64, command: &Command) -> (Outcome, Option<RowChange>) {
        assert!(index > self.applied, "index {index} was applied already");
        self.applied = index;
        let words: Vec<&str> = command.0.split(' ').collect();
        let key = words[1].to_owned();
        let before = self.rows.get(&key).cloned();
        let after = match words[0] {
            "set" => Some(words[2].to_owned()),
            "add" => {
                let old: u64 = before.as_deref().map_or(0, |v| v.parse().unwrap_or(0));
                let more: u64 = words[2].parse().expect("a number");
                Some((old + more).to_string())
            }
            _ => None,
        };
        match &after {
            Some(value) => self.rows.insert(key.clone(), value.clone()),
            None => self.rows.remove(&key),
        };
        let change = (before != after).then(|| RowChange {
            key: key.into(),
            old: before.clone().map(Bytes::from),
            new: after.map(Bytes::from),
        });
        let rows = self.rows.len();
        (Outcome { before, rows }, change)
    }
}

impl Machine for Registers {
    type Command = Command;
    type Outcome = Outcome;
    type Level = ();
    type Error = Unknown;

    fn encode(command: &Command) -> Bytes {
        command.0.clone().into()
    }

    fn decode(&self, bytes: &[u8]) -> Result<Command, Unknown> {
        let text = String::from_utf8_lossy(bytes).into_owned();
        let words: Vec<&str> = text.split(' ').collect();
        match (words.first().copied(), words.len()) {
            (Some("set" | "add"), 3) | (Some("del"), 2) => Ok(Command(text)),
            _ => Err(Unknown(text)),
        }
    }

    fn apply(&mut self, index: u64, command: &Command) -> Applied<Outcome> {
        let (outcome, change) = self.change(index, command);
        Applied {
            outcome,
            changes: change.into_iter().collect(),
        }
    }

    fn speculate(&mut self, index: u64, command: &Command) -> Outcome {
        self.change(index, command).0
    }

    fn rows(&self) -> impl Iterator<Item = Row> {
        self.rows.iter().map(|(key, value)| Row {
            key: key.clone().into(),
            value: value.clone().into(),
        })
    }

    fn from_rows((): (), rows: impl Iterator<Item = Row>, applied: u64) -> Result<Self, Unknown> {
        let text = |b: Bytes| String::from_utf8(b.to_vec()).map_err(|e| Unknown(e.to_string()));
        let mut this = Self {
            applied,
            ..Self::default()
        };
        for row in rows {
            this.rows.insert(text(row.key)?, text(row.value)?);
        }
        Ok(this)
    }

    fn check(&self) -> Result<(), String> {
        match self.rows.contains_key("") {
            true => Err("a register without a name".into()),
            false => Ok(()),
        }
    }

    fn patience(&self) -> u64 {
        self.get("patience")
            .map_or(1, |value| value.parse().unwrap_or(1))
    }
}
