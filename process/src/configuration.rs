//! A configuration: one struct with its defaults, over which go a file, the flags, and a check.
//!
//! Invariant: unknown keys are refused, and all faults are reported at once.

use std::fmt;
use std::path::Path;

use crate::keys::Keys;
use crate::locations::KeyLocations;

/// The configuration of a program.
pub trait Configuration: Sized {
    /// Takes its values out of a file.
    fn read(&mut self, keys: &mut Keys);

    /// Returns everything that is wrong with it, each fault beginning with its key.
    fn faults(&self) -> Vec<String>;

    /// Returns everything in which it contradicts the machine that the program runs on. Each names
    /// the line itself, where it comes from one.
    fn contradictions(&self) -> Vec<String> {
        Vec::new()
    }
}

/// Returns `defaults` as overridden by this file, and that as overridden by `flags`.
///
/// # Errors
///
/// All faults: a file that cannot be read, unknown keys, values of a wrong type or out of range.
pub fn load<C: Configuration>(
    defaults: C,
    file: Option<&Path>,
    flags: impl FnOnce(&mut C),
) -> Result<C, Faults> {
    let (mut config, mut faults, locations) = match file {
        None => (defaults, Vec::new(), KeyLocations::default()),
        Some(path) => match std::fs::read_to_string(path) {
            Ok(text) => {
                let (config, faults) = parse_file(defaults, &text, file);
                (config, faults, KeyLocations::read(&text, file))
            }
            Err(error) => {
                let fault = format!("{} cannot be read: {error}", path.display());
                return Err(Faults(vec![fault]));
            }
        },
    };
    // What is wrong only with the flags has no line.
    let of_file = config.faults();
    flags(&mut config);
    let all = config.faults().into_iter();
    faults.extend(all.map(|fault| match of_file.contains(&fault) {
        true => locations.locate_by_text(&fault),
        false => fault,
    }));
    faults.extend(config.contradictions());
    Faults::none_or(faults, config)
}

/// Returns `defaults` as overridden by the text of a file, and what is wrong with the text.
pub fn parse<C: Configuration>(defaults: C, text: &str) -> (C, Vec<String>) {
    parse_file(defaults, text, None)
}

fn parse_file<C: Configuration>(defaults: C, text: &str, file: Option<&Path>) -> (C, Vec<String>) {
    let mut config = defaults;
    match Keys::parse(text, file) {
        Err(fault) => (config, vec![fault]),
        Ok(mut keys) => {
            config.read(&mut keys);
            (config, keys.end())
        }
    }
}

/// A number with its key, and the least and the most that it may be.
pub type Bounded = (&'static str, u64, u64, u64);

/// Adds a fault for every number that is out of its bounds.
pub fn check_bounds(numbers: impl IntoIterator<Item = Bounded>, faults: &mut Vec<String>) {
    for (key, value, least, most) in numbers {
        if !(least..=most).contains(&value) {
            faults.push(format!("{key} = {value} is not within {least} to {most}"));
        }
    }
}

/// Everything that is wrong with a configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Faults(pub Vec<String>);

impl Faults {
    /// Returns the value if there are no faults.
    ///
    /// # Errors
    ///
    /// The faults, if there are any.
    pub fn none_or<T>(faults: Vec<String>, value: T) -> Result<T, Self> {
        if faults.is_empty() {
            Ok(value)
        } else {
            Err(Self(faults))
        }
    }
}

impl fmt::Display for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the configuration is wrong")?;
        for fault in &self.0 {
            write!(f, "\n  {}", fault.replace('\n', "\n  "))?;
        }
        Ok(())
    }
}

impl std::error::Error for Faults {}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Default, PartialEq)]
    struct Sample {
        number: u64,
        inner: Option<String>,
    }

    impl Configuration for Sample {
        fn read(&mut self, keys: &mut Keys) {
            keys.take("number", &mut self.number);
            keys.table("table", |keys| keys.take_some("inner", &mut self.inner));
        }

        fn faults(&self) -> Vec<String> {
            let mut faults = Vec::new();
            check_bounds([("number", self.number, 0, 9)], &mut faults);
            faults
        }
    }

    #[test]
    fn keys_that_are_absent_keep_their_default() {
        let (config, faults) = parse(Sample::default(), "[table]\ninner = \"x\"\n");
        assert!(faults.is_empty(), "{faults:?}");
        assert_eq!((config.number, config.inner.as_deref()), (0, Some("x")));
    }

    #[test]
    fn all_faults_are_reported_at_once() {
        let text = "number = \"x\"\nother = 1\n[table]\ninner = 1\nouter = 2\n";
        let (_, faults) = parse(Sample::default(), text);
        let message = Faults(faults).to_string();
        for part in [
            "number = \"x\" is wrong: ",
            "unknown key other; the keys are number, table",
            "table.inner = 1 is wrong: ",
            "unknown key table.outer; the keys are inner",
        ] {
            assert!(message.contains(part), "{part}: {message}");
        }
        let faults = load(Sample::default(), None, |c| c.number = 10).unwrap_err();
        assert_eq!(faults.0, ["number = 10 is not within 0 to 9"]);
    }

    /// Goal: a fault that comes from the file names its line, one that comes from a flag does not.
    #[test]
    fn faults_of_a_file_name_the_line() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("x.toml");
        std::fs::write(&file, "\nnumber = 11\nother = 1\n").unwrap();
        let faults = |number: Option<u64>| {
            let flags = |c: &mut Sample| c.number = number.unwrap_or(c.number);
            load(Sample::default(), Some(&file), flags).unwrap_err().0
        };
        let shown = file.display();
        let unknown = format!("{shown}:3: unknown key other; the keys are number, table");
        let line = format!("{shown}:2: number = 11 is not within 0 to 9");
        assert_eq!(faults(None), [unknown.clone(), line]);
        let flag = "number = 12 is not within 0 to 9".to_owned();
        assert_eq!(faults(Some(12)), [unknown, flag]);
    }

    #[test]
    fn a_file_that_is_none_is_a_fault() {
        assert_eq!(parse(Sample::default(), "number = [\n").1.len(), 1);
        let missing = load(Sample::default(), Some(Path::new("/none/such")), |_| ());
        let message = missing.unwrap_err().to_string();
        assert!(message.contains("/none/such cannot be read"), "{message}");
    }
}
