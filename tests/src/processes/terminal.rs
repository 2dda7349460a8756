//! A command on a terminal of its own, which `script` makes.

use std::io::{Read as _, Write as _};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};

use super::eventually;

/// A command that runs on a terminal of 31 rows and 99 columns. Killed when it is dropped.
#[derive(Debug)]
pub struct Terminal {
    child: Child,
    keys: ChildStdin,
    seen: Arc<Mutex<Vec<u8>>>,
}

impl Terminal {
    /// Runs a line of a shell; `script` is the command of that name, where it is to run.
    ///
    /// # Panics
    ///
    /// When it cannot be started.
    #[track_caller]
    #[must_use]
    pub fn open(mut script: Command, line: &str) -> Self {
        let shell = format!("stty rows 31 cols 99; {line}; echo status=$?; stty -a; echo end.");
        script.args([
            "--quiet",
            "--flush",
            "--return",
            "--command",
            &shell,
            "/dev/null",
        ]);
        script.env("SHELL", "/bin/sh").env("TERM", "xterm");
        script.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = script.spawn().expect("script runs");
        let mut output = child.stdout.take().expect("its output");
        let seen = Arc::new(Mutex::new(Vec::new()));
        let shared = seen.clone();
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(count @ 1..) = output.read(&mut buffer) {
                let mut seen = shared.lock().unwrap_or_else(PoisonError::into_inner);
                seen.extend(&buffer[..count]);
            }
        });
        Self {
            keys: child.stdin.take().expect("its input"),
            child,
            seen,
        }
    }

    /// Presses keys.
    ///
    /// # Panics
    ///
    /// When the terminal is gone.
    #[track_caller]
    pub fn keys(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).expect("keys");
        self.keys.flush().expect("keys");
    }

    /// Returns everything that was shown.
    #[must_use]
    pub fn text(&self) -> String {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(&seen).into_owned()
    }

    /// Waits until this is shown.
    ///
    /// # Panics
    ///
    /// When it is not.
    #[track_caller]
    pub fn until(&self, part: &str) -> String {
        eventually(part, || {
            let text = self.text();
            match text.contains(part) {
                true => Ok(text),
                false => Err(text),
            }
        })
    }

    /// Waits for the end, and checks that the modes of the terminal are as they were.
    ///
    /// # Panics
    ///
    /// When they are not, or the status is another one.
    #[track_caller]
    pub fn ends(&self, status: i32) -> String {
        let text = self.until("end.");
        assert!(text.contains(&format!("status={status}")), "{text}");
        let (_, modes) = text.rsplit_once("status=").expect("a status");
        let is_restored = [" icanon", " echo ", "isig "]
            .iter()
            .all(|mode| modes.contains(mode));
        assert!(is_restored && !modes.contains("-icanon"), "{text}");
        text
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // Gone already is as good.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
