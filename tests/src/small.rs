//! A whole Berth in the process of a test: one scheduler, a conductor and simulated hosts, each with a
//! port of its own, and the real command that asks them.
//!
//! Not for what has to be killed or to outlive something: see [`crate::processes`].

use std::fmt;

use berth_cli::dev;
use berth_cli::output::Format;
use berth_cli::session::Session;
use serde_json::Value;
use tokio::runtime::Runtime;

use crate::processes::{Answer, Programs};

/// A whole Berth. Ends when dropped.
pub struct Small {
    programs: Programs,
    schedulers: String,
    cluster: Option<dev::Cluster>,
    /// What runs it.
    pub runtime: Runtime,
}

impl Small {
    /// Starts one with so many hosts; `programs` is the test's own `berth-programs`.
    ///
    /// # Panics
    ///
    /// When it does not start.
    #[must_use]
    pub fn with_hosts(programs: &str, hosts: u16) -> Self {
        let runtime = Runtime::new().expect("a runtime");
        let plan = dev::Plan {
            schedulers: 1,
            hosts,
            port: 0,
            data_dir: None,
            transfer_ms: 200,
            ephemeral: true,
            placement: None,
            page: None,
        };
        let cluster = runtime.block_on(dev::Cluster::start(&plan));
        let cluster = cluster.expect("it starts");
        Self {
            programs: Programs::new(programs),
            schedulers: cluster.schedulers().join(","),
            cluster: Some(cluster),
            runtime,
        }
    }

    /// Returns what asks it without the command.
    ///
    /// # Panics
    ///
    /// Never, as long as it runs.
    #[must_use]
    pub fn session(&self) -> Session {
        let cluster = self.cluster.as_ref().expect("it runs");
        cluster.session(Format::Json).expect("good addresses")
    }

    /// Runs `berth` with these words.
    #[track_caller]
    #[must_use]
    pub fn berth(&self, words: &[&str]) -> Answer {
        let mut command = self.programs.command("berth");
        command.args(["--output", "json", "--scheduler", &self.schedulers]);
        command.args(words);
        Answer::of(command)
    }

    /// Runs `berth` as people do, whatever comes of it.
    #[track_caller]
    #[must_use]
    pub fn shown(&self, words: &[&str]) -> Answer {
        let mut command = self.programs.command("berth");
        command.args(["--scheduler", &self.schedulers]);
        command.args(words);
        Answer::of(command)
    }

    /// Runs `berth`, which succeeds, and returns the JSON that it printed, if any.
    ///
    /// # Panics
    ///
    /// When it does not.
    #[track_caller]
    pub fn done(&self, words: &[&str]) -> Value {
        let answer = self.berth(words).with_status(0);
        answer.json().unwrap_or_default()
    }

    /// Runs `berth`, which is refused, and returns the refusal.
    ///
    /// # Panics
    ///
    /// When it is not.
    #[track_caller]
    #[must_use]
    pub fn refused(&self, words: &[&str]) -> Value {
        let answer = self.berth(words).refused(1);
        let printed: Value = serde_json::from_str(&answer.stderr).expect("JSON");
        printed["error"].clone()
    }
}

impl fmt::Debug for Small {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut fields = f.debug_struct("Small");
        fields.field("schedulers", &self.schedulers);
        fields.finish_non_exhaustive()
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        if let Some(cluster) = self.cluster.take() {
            self.runtime.block_on(cluster.stop());
        }
    }
}

/// Returns a text, or nothing for what is none.
#[must_use]
pub fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}
