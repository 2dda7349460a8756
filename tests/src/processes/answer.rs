//! What a command printed, and how it ended.

use std::process::{Command, Stdio};

use serde_json::Value;

/// What a command printed, and how it ended.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The command, to be named when it was not what was expected.
    pub command: String,
    /// The exit status; none after a signal.
    pub status: Option<i32>,
    /// The standard output.
    pub stdout: String,
    /// The standard error output.
    pub stderr: String,
}

impl Answer {
    /// Runs a command to its end.
    ///
    /// # Panics
    ///
    /// When it cannot be started.
    #[track_caller]
    #[must_use]
    pub fn of(mut command: Command) -> Self {
        let output = command
            .stdin(Stdio::null())
            .output()
            .unwrap_or_else(|error| panic!("{command:?} does not start: {error}"));
        let words = std::iter::once(command.get_program()).chain(command.get_args());
        let words: Vec<_> = words.map(|word| word.to_string_lossy()).collect();
        Self {
            command: words.join(" "),
            status: output.status.code(),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }

    /// Returns it if the exit status is this one.
    ///
    /// # Panics
    ///
    /// When it is not.
    #[track_caller]
    #[must_use]
    pub fn with_status(self, status: i32) -> Self {
        assert_eq!(self.status, Some(status), "{self:#?}");
        self
    }

    /// Returns it if it was refused with this exit status, and in the form for programs: with one JSON
    /// object on the standard error output and nothing beside it.
    ///
    /// # Panics
    ///
    /// When it was not.
    #[track_caller]
    #[must_use]
    pub fn refused(self, status: i32) -> Self {
        let printed: Value = serde_json::from_str(&self.stderr).unwrap_or_default();
        for key in ["code", "reason", "message"] {
            assert!(printed["error"][key].is_string(), "no {key}: {self:#?}");
        }
        self.with_status(status)
    }

    /// Returns it if each of these words is on the standard error output.
    ///
    /// # Panics
    ///
    /// When one is not.
    #[track_caller]
    pub fn saying(self, words: &[&str]) -> Self {
        for word in words {
            let said = self.stderr.contains(word);
            assert!(said, "{word:?} is not said: {self:#?}");
        }
        self
    }

    /// Returns the standard output as JSON, null where nothing was printed.
    ///
    /// # Errors
    ///
    /// The whole answer, if it failed or is not JSON.
    pub fn json(&self) -> Result<Value, String> {
        self.json_with(0)
    }

    /// As [`Self::json`], of a command that ends with this exit status and prints its result all the same.
    ///
    /// # Errors
    ///
    /// The whole answer, if it has another status or is not JSON.
    pub fn json_with(&self, status: i32) -> Result<Value, String> {
        if self.status != Some(status) {
            return Err(format!("{self:#?}"));
        }
        if self.stdout.is_empty() {
            return Ok(Value::Null);
        }
        serde_json::from_str(&self.stdout).map_err(|error| format!("{error}: {self:#?}"))
    }
}
