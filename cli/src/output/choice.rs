//! How the output of this process was requested: its format, and what belongs to it.
//!
//! It is set once, before the command begins, as standard output is one for the process. Commands do not
//! read it: they give a value, or a table.
//!
//! Invariant: what can be seen to be wrong from the command line alone is refused before a command begins.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::Value;

use super::format::{Format, Output};
use super::order::{self, SortKey};
use super::{fields, message};
use crate::usage::Usage;

static CHOICE: OnceLock<Choice> = OnceLock::new();

/// What a command shows.
#[derive(Clone, Debug, Default)]
pub struct Subject {
    /// Where the name of a resource is in its value: the first field that there is. Empty if the command has
    /// no resource to name.
    pub names: &'static [&'static str],
    /// The columns of its list. Empty if it shows no list.
    pub columns: Vec<&'static str>,
    /// Whether the command changes something, which is done before its value is known.
    pub changes: bool,
}

/// How the output was requested.
#[derive(Debug, Default)]
pub struct Choice {
    /// The format, and the fields of a custom table.
    pub(super) output: Output,
    /// Whether tables have no header line.
    pub(super) no_headers: bool,
    /// The order of a list.
    pub(super) sort: Option<SortKey>,
    subject: Subject,
    /// Whether the header line of a stream was printed.
    is_begun: AtomicBool,
}

impl Choice {
    /// Returns how the output of a command is requested, which shows `subject`.
    #[must_use]
    pub fn new(output: Output, no_headers: bool, sort: Option<SortKey>, subject: Subject) -> Self {
        Self {
            output,
            no_headers,
            sort,
            subject,
            is_begun: AtomicBool::new(false),
        }
    }

    /// Makes it that of the process, if it goes with the command of this name. The first one counts.
    ///
    /// # Errors
    ///
    /// The command has no name or no list to show, or its list has no such column.
    pub fn apply(self, command: &str) -> Result<(), Usage> {
        if self.output.format == Format::Name && self.subject.names.is_empty() {
            return Err(Usage(format!(
                "`berth {command}` has no resource to name: use -o table, wide, json, yaml or custom=FIELD,FIELD"
            )));
        }
        if let Some(sort) = &self.sort {
            if self.subject.columns.is_empty() {
                return Err(Usage(format!(
                    "`berth {command}` shows no list that --sort could order"
                )));
            }
            if !self.output.format.is_of_value() {
                column(&self.subject.columns, &sort.column)?;
            }
        }
        let _ = CHOICE.set(self);
        Ok(())
    }

    /// Returns a path with `name` for where the name of a resource is.
    fn path<'a>(&self, value: &Value, path: &'a str) -> &'a str {
        let is_own = path != "name" || value.get("name").is_some();
        let names = self.subject.names.iter();
        let mut names = names.copied().filter(|path| is_text(value, path));
        match is_own {
            true => path,
            false => names.next().unwrap_or(path),
        }
    }

    /// Returns the values of a custom table, those of each value in a row. `name` is the name of the resource,
    /// wherever the value has it.
    ///
    /// # Errors
    ///
    /// No value has one of the fields. Where something was changed already, that is a warning.
    pub(super) fn rows(&self, values: &[Value]) -> Result<Vec<Vec<String>>, Usage> {
        for path in &self.output.fields {
            let first = values.first().unwrap_or(&Value::Null);
            match fields::unknown(values, self.path(first, path)) {
                Some(why) if self.subject.changes => message(format!("warning: {why}")),
                Some(why) => return Err(Usage(why)),
                None => {}
            }
        }
        Ok(values.iter().map(|value| self.row(value)).collect())
    }

    pub(super) fn row(&self, value: &Value) -> Vec<String> {
        let cell = |path: &String| {
            let value = fields::get(value, self.path(value, path));
            fields::cell(&value.unwrap_or(Value::Null))
        };
        self.output.fields.iter().map(cell).collect()
    }

    /// Returns the name of the resource that a value is about, without its collection.
    pub(super) fn name_of(&self, value: &Value) -> Option<String> {
        let names = self.subject.names.iter();
        let values = names.filter_map(|path| fields::get(value, path).ok());
        let mut texts = values.map(|value| match value {
            Value::Null | Value::Array(_) | Value::Object(_) => String::new(),
            Value::Bool(_) | Value::Number(_) | Value::String(_) => fields::cell(&value),
        });
        let text = texts.find(|text| !text.is_empty() && text != "-")?;
        let short = text.rsplit('/').next().unwrap_or(&text);
        Some(short.to_owned())
    }

    /// Sorts the values of a list.
    ///
    /// # Errors
    ///
    /// No value has the field.
    pub(super) fn sort(&self, values: &mut Vec<Value>) -> Result<(), Usage> {
        let Some(key) = &self.sort else {
            return Ok(());
        };
        let first = values.first().unwrap_or(&Value::Null);
        let path = self.path(first, &key.column);
        match fields::unknown(values, path) {
            Some(why) => Err(Usage(format!("--sort: {why}"))),
            None => {
                order::sort_values(values, key, path);
                Ok(())
            }
        }
    }

    /// Returns whether the header line of a stream is due, which it is once.
    pub(super) fn begins(&self) -> bool {
        !self.no_headers && !self.is_begun.swap(true, Ordering::Relaxed)
    }
}

fn is_text(value: &Value, path: &str) -> bool {
    fields::get(value, path).is_ok_and(|value| value.is_string() || value.is_number())
}

/// Returns how the output was requested; tables, if nothing was.
pub(super) fn choice() -> &'static Choice {
    CHOICE.get_or_init(Choice::default)
}

/// Returns which column has a name: its header, in any case, with or without `-` or `_` for spaces. The first
/// one is `name` too.
///
/// # Errors
///
/// None has it.
pub(super) fn column(columns: &[&str], name: &str) -> Result<usize, Usage> {
    let plain = |text: &str| text.to_lowercase().replace(['-', '_'], " ");
    let at = columns
        .iter()
        .position(|column| plain(column) == plain(name));
    let first = || (plain(name) == "name").then_some(0);
    at.or_else(first).ok_or_else(|| {
        let names: Vec<String> = columns.iter().map(|column| typed(column)).collect();
        Usage(format!(
            "there is no column `{name}` to sort by: there are {}",
            names.join(", ")
        ))
    })
}

/// Returns how a column is typed: without spaces.
#[must_use]
pub fn typed(column: &str) -> String {
    column.to_lowercase().replace(' ', "-")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn of(output: &str, sort: &str, subject: Subject) -> Choice {
        let sort = Some(sort.parse().expect("any text is a key")).filter(|_| !sort.is_empty());
        Choice::new(output.parse().expect(output), false, sort, subject)
    }

    fn hosts() -> Subject {
        Subject {
            names: &["host.name", "name"],
            columns: vec!["host", "mib free"],
            changes: false,
        }
    }

    /// Goal: what does not go with a command is refused before it begins, and lists what there is.
    #[test]
    fn what_does_not_go_together_is_refused() {
        let refused = |choice: Choice| choice.apply("x y").expect_err("refused").to_string();
        let none = refused(of("name", "", Subject::default()));
        assert!(
            none.contains("`berth x y` has no resource to name"),
            "{none}"
        );
        let none = refused(of("json", "a", Subject::default()));
        assert!(none.contains("shows no list"), "{none}");
        let none = refused(of("table", "-cpus", hosts()));
        assert!(
            none.ends_with("`cpus` to sort by: there are host, mib-free"),
            "{none}"
        );
    }

    #[test]
    fn columns_are_named_as_they_are_typed() {
        for (name, at) in [
            ("host", 0),
            ("NAME", 0),
            ("MiB-free", 1),
            ("mib free", 1),
            ("mib_free", 1),
        ] {
            assert_eq!(column(&hosts().columns, name).ok(), Some(at), "{name}");
        }
    }

    #[test]
    fn a_resource_has_one_name_wherever_it_is() {
        let choice = of("custom=name,used", "-name", hosts());
        let host = |name: &str| json!({"host": {"name": name}, "used": 1});
        assert_eq!(choice.name_of(&host("h1")).as_deref(), Some("h1"));
        assert_eq!(
            choice.name_of(&json!({"name": "hosts/h1"})).as_deref(),
            Some("h1")
        );
        assert_eq!(choice.name_of(&json!({"host": null})), None);
        let mut all = vec![host("h2"), host("h10")];
        choice.sort(&mut all).expect("there is a name");
        let rows = choice.rows(&all).expect("the fields are there");
        assert_eq!(rows, [["h10", "1"], ["h2", "1"]]);
        let wrong = of("custom=nmae", "", hosts())
            .rows(&all)
            .expect_err("no field");
        assert!(wrong.to_string().ends_with("has host, used"), "{wrong}");
        assert_eq!(
            of("custom=nmae", "", hosts())
                .rows(&[])
                .expect("nothing")
                .len(),
            0
        );
        let changed = Subject {
            changes: true,
            ..hosts()
        };
        let rows = of("custom=nmae", "", changed)
            .rows(&all)
            .expect("it is done");
        assert_eq!(rows, [["-"], ["-"]]);
    }
}
