//! The reading of single fields of a case, and the error that names the wrong one.

use std::collections::BTreeSet;
use std::fmt;

use berth_domain::cpu_set::{CpuId, CpuSet};
use serde_json::Value;

/// The longest rule that is written, in characters: some repeat a part of what was read.
const RULE_LENGTH_MAX: usize = 300;

/// Names the wrong field, and what is allowed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Invalid {
    /// The field, as `host.cells[1].cpuset`.
    pub path: String,
    /// What is wrong.
    pub rule: String,
}

impl fmt::Display for Invalid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.path.is_empty() {
            write!(f, "the case {}", self.rule)
        } else {
            write!(f, "{}: {}", self.path, self.rule)
        }
    }
}

/// A field of a case: its value, if it has one, and where it is.
#[derive(Clone, Debug)]
pub struct Field<'a> {
    value: Option<&'a Value>,
    path: String,
}

impl<'a> Field<'a> {
    /// Returns a whole case.
    #[must_use]
    pub fn new(case: &'a Value) -> Self {
        Self {
            value: Some(case),
            path: String::new(),
        }
    }

    /// Returns a field of this object. One that is `null` is as if it were not there.
    #[must_use]
    pub fn get(&self, name: &str) -> Self {
        let path = if self.path.is_empty() {
            name.to_owned()
        } else {
            format!("{}.{name}", self.path)
        };
        let value = self.value.and_then(|value| value.get(name));
        Self {
            value: value.filter(|value| !value.is_null()),
            path,
        }
    }

    /// Returns whether it has a value.
    #[must_use]
    pub fn is_given(&self) -> bool {
        self.value.is_some()
    }

    /// Returns an error at this place.
    #[must_use]
    pub fn invalid(&self, rule: impl fmt::Display) -> Invalid {
        let rule = rule.to_string();
        Invalid {
            path: self.path.clone(),
            rule: rule.chars().take(RULE_LENGTH_MAX).collect(),
        }
    }

    /// Returns a number that must be given.
    ///
    /// # Errors
    ///
    /// When it is not, or not between these bounds.
    pub fn number(&self, min: u64, max: u64) -> Result<u64, Invalid> {
        let number = self.optional_number(min, max)?;
        number.ok_or_else(|| self.invalid(format!("must be a number, {min} to {max}")))
    }

    /// Returns a number that may be absent.
    ///
    /// # Errors
    ///
    /// When it is not between these bounds.
    pub fn optional_number(&self, min: u64, max: u64) -> Result<Option<u64>, Invalid> {
        let Some(value) = self.value else {
            return Ok(None);
        };
        let number = value.as_u64().filter(|n| (min..=max).contains(n));
        let number = number.ok_or_else(|| {
            self.invalid(format!(
                "must be a number, {min} to {max}, not {}",
                shown(value)
            ))
        })?;
        Ok(Some(number))
    }

    /// Returns a number with a fraction that may be absent.
    ///
    /// # Errors
    ///
    /// When it is not a number.
    pub fn fraction(&self) -> Result<Option<f64>, Invalid> {
        self.value
            .map(|value| {
                let number = value.as_f64();
                number
                    .ok_or_else(|| self.invalid(format!("must be a number, not {}", shown(value))))
            })
            .transpose()
    }

    /// Returns a yes or no that may be absent.
    ///
    /// # Errors
    ///
    /// When it is neither.
    pub fn flag(&self) -> Result<Option<bool>, Invalid> {
        self.value
            .map(|value| {
                let flag = value.as_bool();
                flag.ok_or_else(|| {
                    self.invalid(format!("must be true or false, not {}", shown(value)))
                })
            })
            .transpose()
    }

    /// Returns a text that may be absent.
    ///
    /// # Errors
    ///
    /// When it is not a text.
    pub fn text(&self) -> Result<Option<&'a str>, Invalid> {
        self.value
            .map(|value| {
                let text = value.as_str();
                text.ok_or_else(|| self.invalid(format!("must be a text, not {}", shown(value))))
            })
            .transpose()
    }

    /// Returns the value as it is.
    #[must_use]
    pub fn raw(&self) -> Option<&'a Value> {
        self.value
    }

    /// Returns the entries of a list; none where it is absent.
    ///
    /// # Errors
    ///
    /// When it is no list, or has more than `max` entries.
    pub fn list(&self, max: usize) -> Result<Vec<Field<'a>>, Invalid> {
        let Some(value) = self.value else {
            return Ok(Vec::new());
        };
        let list = value
            .as_array()
            .ok_or_else(|| self.invalid(format!("must be a list, not {}", shown(value))))?;
        if list.len() > max {
            let rule = format!("has {} entries; at most {max} are allowed", list.len());
            return Err(self.invalid(rule));
        }
        let entries = list.iter().enumerate();
        Ok(entries
            .map(|(index, value)| Field {
                value: Some(value),
                path: format!("{}[{index}]", self.path),
            })
            .collect())
    }

    /// Returns the fields of an object, each with its name; none where it is absent.
    ///
    /// # Errors
    ///
    /// When it is no object, or has more than `max` fields.
    pub fn object(&self, max: usize) -> Result<Vec<(&'a str, Field<'a>)>, Invalid> {
        let Some(value) = self.value else {
            return Ok(Vec::new());
        };
        let object = value
            .as_object()
            .ok_or_else(|| self.invalid(format!("must be an object, not {}", shown(value))))?;
        if object.len() > max {
            let rule = format!("has {} fields; at most {max} are allowed", object.len());
            return Err(self.invalid(rule));
        }
        Ok(object
            .iter()
            .map(|(name, _)| (name.as_str(), self.get(name)))
            .collect())
    }

    /// Returns a set of CPUs, as a list of numbers or in the kernel's list notation; the empty set
    /// where it is absent.
    ///
    /// # Errors
    ///
    /// When it is neither.
    pub fn cpus(&self) -> Result<CpuSet, Invalid> {
        match self.value {
            None => Ok(CpuSet::new()),
            Some(Value::String(list)) => list.parse().map_err(|e| self.invalid(e)),
            Some(Value::Array(_)) => {
                let max = berth_domain::cpu_set::CPU_MAX;
                self.list(max as usize + 1)?
                    .iter()
                    .map(|cpu| {
                        let number = cpu.number(0, max.into())?;
                        Ok(CpuId(u32::try_from(number).expect("it is bounded")))
                    })
                    .collect()
            }
            Some(value) => {
                let rule = format!(
                    "must be a list of CPUs or a text as 0-3,8, not {}",
                    shown(value)
                );
                Err(self.invalid(rule))
            }
        }
    }

    /// Returns a choice that may be absent, as a number into `choices`.
    ///
    /// # Errors
    ///
    /// When it is none of these.
    pub fn choice<T: Copy>(&self, choices: &[(&str, T)]) -> Result<Option<T>, Invalid> {
        let Some(value) = self.value else {
            return Ok(None);
        };
        let text = value.as_str();
        let choice = choices.iter().find(|(name, _)| Some(*name) == text);
        match choice {
            Some((_, choice)) => Ok(Some(*choice)),
            None => {
                let names: BTreeSet<&str> = choices.iter().map(|(name, _)| *name).collect();
                let names: Vec<&str> = names.into_iter().collect();
                let rule = format!("must be one of {}, not {}", names.join(", "), shown(value));
                Err(self.invalid(rule))
            }
        }
    }
}

/// The maximum length of a wrong value in a message, in characters.
const SHOWN_MAX: usize = 64;

/// Returns a wrong value for the message that refuses it, cut where it is long.
fn shown(value: &Value) -> String {
    match value {
        Value::Array(list) => format!("a list of {}", list.len()),
        Value::Object(_) => "an object".to_owned(),
        Value::String(text) => {
            let kept: String = text.chars().take(SHOWN_MAX).collect();
            format!("{kept:?}")
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => value.to_string(),
    }
}
