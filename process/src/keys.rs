//! The keys of a configuration file: what is taken out of it is known, what is left is a fault.

use serde::de::DeserializeOwned;
use toml::{Table, Value};

/// The keys of one table.
pub struct Keys {
    table: Table,
    /// The table's own name with a dot, or nothing for the file itself.
    prefix: String,
    known: Vec<&'static str>,
    faults: Vec<String>,
}

impl Keys {
    /// Reads a file; the fault is that it is not TOML.
    pub fn parse(text: &str) -> Result<Self, String> {
        let table = text
            .parse::<Table>()
            .map_err(|error| error.to_string().trim().to_owned())?;
        Ok(Self::new(table, String::new()))
    }

    fn new(table: Table, prefix: String) -> Self {
        Self {
            table,
            prefix,
            known: Vec::new(),
            faults: Vec::new(),
        }
    }

    fn read<T: DeserializeOwned>(&mut self, key: &'static str) -> Option<T> {
        self.known.push(key);
        let value = self.table.remove(key)?;
        let shown = value.to_string();
        let read: Result<T, toml::de::Error> = Value::try_into(value);
        read.map_err(|error| {
            let why = error.to_string();
            let prefix = &self.prefix;
            self.faults
                .push(format!("{prefix}{key} = {shown} is wrong: {}", why.trim()));
        })
        .ok()
    }

    /// Takes a value that has a default.
    pub fn take<T: DeserializeOwned>(&mut self, key: &'static str, into: &mut T) {
        if let Some(value) = self.read(key) {
            *into = value;
        }
    }

    /// Takes a value that may be absent.
    pub fn take_some<T: DeserializeOwned>(&mut self, key: &'static str, into: &mut Option<T>) {
        if let Some(value) = self.read(key) {
            *into = Some(value);
        }
    }

    /// Takes a table with keys of its own.
    pub fn table(&mut self, name: &'static str, read: impl FnOnce(&mut Self)) {
        let table: Option<Table> = self.read(name);
        let mut keys = Self::new(table.unwrap_or_default(), format!("{name}."));
        read(&mut keys);
        self.faults.extend(keys.end());
    }

    /// Returns everything that is wrong.
    pub fn end(mut self) -> Vec<String> {
        let known = self.known.join(", ");
        let prefix = &self.prefix;
        let unknown = self.table.keys();
        self.faults
            .extend(unknown.map(|key| format!("unknown key {prefix}{key}; the keys are {known}")));
        self.faults
    }
}
