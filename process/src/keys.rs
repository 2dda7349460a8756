//! The keys of a configuration file: those that are read are known, those that are left are faults.
//! Faults name the line.

use std::path::Path;
use std::sync::Arc;

use serde::de::DeserializeOwned;
use toml::{Table, Value};

use crate::locations::KeyLocations;

/// The keys of one table.
pub struct Keys {
    table: Table,
    /// The table's own name with a dot, or nothing for the file itself.
    prefix: String,
    known: Vec<&'static str>,
    faults: Vec<String>,
    locations: Arc<KeyLocations>,
}

impl Keys {
    /// Reads the text of a file; the fault is that it is not TOML.
    pub fn parse(text: &str, file: Option<&Path>) -> Result<Self, String> {
        let table = text.parse::<Table>().map_err(|error| {
            let why = error.to_string().trim().to_owned();
            file.map_or(why.clone(), |file| format!("{}: {why}", file.display()))
        })?;
        let locations = Arc::new(KeyLocations::read(text, file));
        Ok(Self::new(table, String::new(), locations))
    }

    fn new(table: Table, prefix: String, locations: Arc<KeyLocations>) -> Self {
        Self {
            table,
            prefix,
            known: Vec::new(),
            faults: Vec::new(),
            locations,
        }
    }

    /// Returns where the keys of the whole file are.
    #[must_use]
    pub fn locations(&self) -> &KeyLocations {
        &self.locations
    }

    fn read<T: DeserializeOwned>(&mut self, key: &'static str) -> Option<T> {
        self.known.push(key);
        let value = self.table.remove(key)?;
        self.convert(format!("{}{key}", self.prefix), value)
    }

    fn convert<T: DeserializeOwned>(&mut self, path: String, value: Value) -> Option<T> {
        let shown = value.to_string();
        let read: Result<T, toml::de::Error> = Value::try_into(value);
        read.map_err(|error| {
            let why = error.to_string();
            let fault = format!("{path} = {shown} is wrong: {}", why.trim());
            self.faults
                .push(self.locations.locate([path.as_str()], &fault));
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
        let prefix = format!("{}{name}.", self.prefix);
        let mut keys = Self::new(table.unwrap_or_default(), prefix, self.locations.clone());
        read(&mut keys);
        self.faults.extend(keys.end());
    }

    /// Takes a list; an element that is wrong is a fault of its own and left out.
    pub fn take_each<T: DeserializeOwned>(&mut self, key: &'static str, into: &mut Vec<T>) {
        let Some(values) = self.read::<Vec<Value>>(key) else {
            return;
        };
        into.clear();
        for (index, value) in values.into_iter().enumerate() {
            let path = format!("{}{key}[{index}]", self.prefix);
            into.extend(self.convert(path, value));
        }
    }

    /// Takes a list of tables with keys of their own.
    pub fn tables(&mut self, name: &'static str, mut read: impl FnMut(&mut Self)) {
        let Some(values) = self.read::<Vec<Value>>(name) else {
            return;
        };
        for (index, value) in values.into_iter().enumerate() {
            let path = format!("{}{name}[{index}]", self.prefix);
            let Some(table) = self.convert::<Table>(path.clone(), value) else {
                continue;
            };
            let mut keys = Self::new(table, format!("{path}."), self.locations.clone());
            read(&mut keys);
            self.faults.extend(keys.end());
        }
    }

    /// Returns everything that is wrong.
    pub fn end(mut self) -> Vec<String> {
        let known = self.known.join(", ");
        let prefix = &self.prefix;
        for key in self.table.keys() {
            let path = format!("{prefix}{key}");
            let fault = format!("unknown key {path}; the keys are {known}");
            self.faults
                .push(self.locations.locate([path.as_str()], &fault));
        }
        self.faults
    }
}
