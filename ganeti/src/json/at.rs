//! A value together with the way to it, for messages: `nodes.node1.total_memory`.

use super::{Error, Fault, Kind, Value, shortened};

/// The greatest number that is taken: sums over a million of them stay exact.
const GREATEST: i64 = 1 << 40;

/// A value and the way to it.
#[derive(Debug, Clone)]
pub struct At<'a> {
    value: &'a Value,
    path: String,
}

impl<'a> At<'a> {
    /// Returns the whole text.
    #[must_use]
    pub fn top(value: &'a Value) -> Self {
        At {
            value,
            path: "the request".to_owned(),
        }
    }

    /// Returns an error at this value.
    #[must_use]
    pub fn error(&self, fault: Fault) -> Error {
        Error {
            line: self.value.line,
            column: self.value.column,
            fault,
        }
    }

    fn of_kind(&self, expected: &str) -> Error {
        let actual = match &self.value.kind {
            Kind::Number(text) | Kind::Text(text) => {
                format!("{} ({})", self.value.kind.name(), shortened(text))
            }
            Kind::Null | Kind::Flag(_) | Kind::List(_) | Kind::Object(_) => {
                self.value.kind.name().to_owned()
            }
        };
        let (path, expected) = (self.path.clone(), expected.to_owned());
        self.error(Fault::Kind {
            path,
            expected,
            actual,
        })
    }

    /// Refuses a name of something that is not there.
    #[must_use]
    pub fn unknown(&self, what: &'static str, name: &str) -> Error {
        let (path, name) = (self.path.clone(), shortened(name));
        self.error(Fault::Unknown { path, what, name })
    }

    /// Refuses a word that is none of those that are known.
    #[must_use]
    pub fn not_one_of(&self, known: &str) -> Error {
        self.of_kind(&format!("one of {known}"))
    }

    fn below(&self, key: &str, value: &'a Value) -> At<'a> {
        let path = if self.path == "the request" {
            shortened(key)
        } else {
            format!("{}.{}", self.path, shortened(key))
        };
        At { value, path }
    }

    /// Returns the members of an object.
    ///
    /// # Errors
    ///
    /// It is something else.
    pub fn members(&self) -> Result<Vec<(&'a str, At<'a>)>, Error> {
        match &self.value.kind {
            Kind::Object(members) => {
                let below = |(key, value): &'a (String, Value)| (&key[..], self.below(key, value));
                Ok(members.iter().map(below).collect())
            }
            Kind::Null | Kind::Flag(_) | Kind::Number(_) | Kind::Text(_) | Kind::List(_) => {
                Err(self.of_kind("an object"))
            }
        }
    }

    /// Returns a member of an object that may be missing or `null`.
    ///
    /// # Errors
    ///
    /// It is no object.
    pub fn optional(&self, key: &str) -> Result<Option<At<'a>>, Error> {
        let Kind::Object(members) = &self.value.kind else {
            return Err(self.of_kind("an object"));
        };
        let found = members.iter().find(|(known, _)| known == key);
        let found = found.filter(|(_, value)| value.kind != Kind::Null);
        Ok(found.map(|(_, value)| self.below(key, value)))
    }

    /// Returns a member of an object.
    ///
    /// # Errors
    ///
    /// It is no object, or has no such member.
    pub fn get(&self, key: &str) -> Result<At<'a>, Error> {
        self.optional(key)?.ok_or_else(|| {
            self.error(Fault::Missing {
                path: self.path.clone(),
                key: key.to_owned(),
            })
        })
    }

    /// Refuses members that are none of these.
    ///
    /// # Errors
    ///
    /// There is another one, or it is no object.
    pub fn only(&self, known: &[&str]) -> Result<(), Error> {
        for (key, at) in self.members()? {
            if !known.contains(&key) {
                return Err(at.error(Fault::UnknownKey {
                    path: self.path.clone(),
                    key: shortened(key),
                    known: known.join(", "),
                }));
            }
        }
        Ok(())
    }

    /// Returns the items of a list.
    ///
    /// # Errors
    ///
    /// It is something else.
    pub fn items(&self) -> Result<Vec<At<'a>>, Error> {
        let Kind::List(items) = &self.value.kind else {
            return Err(self.of_kind("a list"));
        };
        let item = |(index, value)| At {
            value,
            path: format!("{}[{index}]", self.path),
        };
        Ok(items.iter().enumerate().map(item).collect())
    }

    /// Returns a string.
    ///
    /// # Errors
    ///
    /// It is something else.
    pub fn text(&self) -> Result<&'a str, Error> {
        match &self.value.kind {
            Kind::Text(text) => Ok(text),
            Kind::Null | Kind::Flag(_) | Kind::Number(_) | Kind::List(_) | Kind::Object(_) => {
                Err(self.of_kind("a string"))
            }
        }
    }

    /// Returns strings.
    ///
    /// # Errors
    ///
    /// It is no list, or one of its items is no string.
    pub fn texts(&self) -> Result<Vec<String>, Error> {
        let items = self.items()?.into_iter();
        items.map(|item| item.text().map(str::to_owned)).collect()
    }

    /// Returns `true` or `false`.
    ///
    /// # Errors
    ///
    /// It is something else.
    pub fn flag(&self) -> Result<bool, Error> {
        match self.value.kind {
            Kind::Flag(flag) => Ok(flag),
            Kind::Null | Kind::Number(_) | Kind::Text(_) | Kind::List(_) | Kind::Object(_) => {
                Err(self.of_kind("true or false"))
            }
        }
    }

    /// Returns a whole number that is not below `least`.
    ///
    /// # Errors
    ///
    /// It is something else.
    pub fn integer(&self, least: i64) -> Result<i64, Error> {
        let number = match &self.value.kind {
            Kind::Number(text) => whole(text),
            Kind::Null | Kind::Flag(_) | Kind::Text(_) | Kind::List(_) | Kind::Object(_) => None,
        };
        let lowest = least.max(-GREATEST);
        match number {
            Some(number) if (lowest..=GREATEST).contains(&number) => Ok(number),
            Some(_) | None => {
                Err(self.of_kind(&format!("a whole number from {lowest} to {GREATEST}")))
            }
        }
    }

    /// Returns a number that is not below zero.
    ///
    /// # Errors
    ///
    /// It is something else.
    pub fn real(&self) -> Result<f64, Error> {
        let number = match &self.value.kind {
            Kind::Number(text) => text.parse::<f64>().ok(),
            Kind::Null | Kind::Flag(_) | Kind::Text(_) | Kind::List(_) | Kind::Object(_) => None,
        };
        match number {
            Some(number) if (0.0..=GREATEST as f64).contains(&number) => Ok(number),
            Some(_) | None => Err(self.of_kind(&format!("a number from 0 to {GREATEST}"))),
        }
    }
}

/// Returns a number that is whole, also where it is spelled `2.0`.
fn whole(text: &str) -> Option<i64> {
    if let Ok(number) = text.parse::<i64>() {
        return Some(number);
    }
    let number = text.parse::<f64>().ok()?;
    let exact = number.trunc() == number && number.abs() <= GREATEST as f64;
    exact.then_some(number as i64)
}
