//! Nova in a process of its own.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde_json::Value;

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/nova/fit.py");

/// Nova, which answers one case after the other.
pub(crate) struct Nova {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Nova {
    /// Starts it, if there is a Python that has it.
    pub(crate) fn start() -> Option<Self> {
        let python = std::env::var("BERTH_NOVA_PYTHON").ok()?;
        let mut child = Command::new(python)
            .arg(SCRIPT)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("BERTH_NOVA_PYTHON is a Python");
        let input = child.stdin.take().expect("it is piped");
        let output = BufReader::new(child.stdout.take().expect("it is piped"));
        Some(Self {
            child,
            input,
            output,
        })
    }

    /// Asks one case.
    pub(crate) fn ask(&mut self, case: &Value) -> Value {
        writeln!(self.input, "{case}").expect("it reads");
        let mut line = String::new();
        self.output.read_line(&mut line).expect("it answers");
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line:?}"))
    }
}

impl Drop for Nova {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
