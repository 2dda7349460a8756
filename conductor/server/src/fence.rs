//! Runs the configured fence command, and has the scheduler record that it succeeded.
//!
//! Invariants: only an exit status of 0 within the time counts; the host's agent that was known
//! before the command began is what the record is about; no command runs for a request that was
//! carried out before or that the scheduler would refuse, if the scheduler knows `VerifyFence`; nothing that the command started in its
//! process group is left when its outcome is reported.

use std::collections::HashMap;
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use berth_domain::fence::OUTPUT_MAX;
use berth_domain::host::Host;
use berth_domain::name::HostName;
use berth_domain::refusal::{Code, Refusal};
use berth_proto::convert::ResourceName as _;
use berth_proto::host::v1::{FenceHostRequest, fence};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};
use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::process::{Child, Command};
use tokio::sync::OwnedMutexGuard;
use tokio::task::JoinHandle;

use crate::scheduler::Scheduler;

/// What stands for the host's name in the command.
pub(crate) const PLACEHOLDER: &str = "{host}";

/// How often it is looked whether the command has ended.
const LOOK_INTERVAL: Duration = Duration::from_millis(20);
/// How long its output is waited for once it has ended.
const PIPE_GRACE: Duration = Duration::from_secs(1);

/// What is run to fence a host.
#[derive(Debug, Default)]
pub(crate) struct FenceCommand {
    /// The program and its arguments; empty: there is none.
    words: Vec<String>,
    /// How long it may take.
    timeout: Duration,
    /// The hosts that are being fenced.
    running: Mutex<HashMap<HostName, Weak<tokio::sync::Mutex<()>>>>,
}

impl FenceCommand {
    pub(crate) fn new(words: Vec<String>, timeout: Duration) -> Self {
        Self {
            words,
            timeout,
            running: Mutex::default(),
        }
    }

    /// Fences a host, and has it recorded. Returns the host as it is afterwards.
    ///
    /// # Errors
    ///
    /// When the scheduler refuses the request, in which case the command was not run; as [`Self::run`]; or
    /// when the host's agent was started again while the command ran.
    pub(crate) async fn fence(
        &self,
        scheduler: &Scheduler,
        name: &HostName,
        request_id: String,
    ) -> Result<Host, Refusal> {
        // A repetition that arrives while the command runs finds its success recorded.
        let _turn = self.turn(name).await;
        // The record is about the run of the agent that was known before anything was done.
        let before = scheduler.host(name).await?;
        let mut request = FenceHostRequest {
            name: name.resource_name(),
            method: fence::Method::FenceCommand.into(),
            incarnation: before.report.incarnation.to_string(),
            output: String::new(),
            on_behalf_of: format!("conductor {}", scheduler.name()),
            request_id,
        };
        if let Some(fenced) = scheduler.verify_fence(request.clone()).await? {
            return Ok(fenced);
        }
        tracing::warn!(host = %name, command = ?self.words, "fencing a host");
        request.output = self.run(name).await?;
        scheduler.note_change();
        tracing::warn!(host = %name, output = request.output, "the fence command succeeded");
        scheduler.fence(request).await
    }

    /// Waits until no other fence of this host runs here, and returns the right to run one.
    async fn turn(&self, host: &HostName) -> OwnedMutexGuard<()> {
        let turn = {
            let running = self.running.lock();
            let mut running = running.unwrap_or_else(PoisonError::into_inner);
            running.retain(|_, turn| turn.strong_count() > 0);
            let known = running.get(host).and_then(Weak::upgrade);
            known.unwrap_or_else(|| {
                let turn = Arc::default();
                running.insert(host.clone(), Arc::downgrade(&turn));
                turn
            })
        };
        turn.lock_owned().await
    }

    /// Runs it and returns what it printed.
    ///
    /// # Errors
    ///
    /// When none is configured, it cannot be run, it takes too long or it fails.
    async fn run(&self, host: &HostName) -> Result<String, Refusal> {
        let refuse = |reason, message: String, hint: &str| {
            let refusal = Refusal::new(Code::FailedPrecondition, reason, message);
            refusal.with_hint(hint).with("host", host)
        };
        let mut words = self
            .words
            .iter()
            .map(|w| w.replace(PLACEHOLDER, host.as_str()));
        let Some(program) = words.next() else {
            return Err(refuse(
                "NO_FENCE_COMMAND",
                "this conductor has no fence command".to_owned(),
                "set fence_command in the conductor's configuration; where you have seen yourself \
                 that the host is off: --confirm-off",
            ));
        };
        let failed = |what: String| {
            refuse(
                "FENCE_FAILED",
                format!("host {host} was not fenced: {program} {what}"),
                "nothing shows that the host is off; look at it",
            )
        };
        let child = Command::new(&program)
            .args(words)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .spawn();
        let mut child = child.map_err(|error| failed(format!("cannot be run: {error}")))?;
        let outputs = [Head::of(child.stdout.take()), Head::of(child.stderr.take())];
        let group = Group::of(&child);
        let in_time = tokio::time::timeout(self.timeout, group.leader_ended()).await;
        // What it left behind would act on the host later, when its fence is over.
        drop(group);
        let status = child.wait().await;
        let mut output = String::new();
        for head in outputs {
            output.push_str(&head.text().await);
        }
        let output = shortened(&output);
        match status {
            _ if in_time.is_err() => {
                let limit = self.timeout.as_millis();
                Err(failed(format!(
                    "did not end within {limit} ms, and was killed"
                )))
            }
            Ok(status) if status.success() => Ok(output),
            Ok(status) => Err(failed(format!("ended with {status}: {}", output.trim()))),
            Err(error) => Err(failed(format!("was lost: {error}"))),
        }
    }
}

/// A program and all that it started, which are killed when this is dropped.
struct Group(Option<Pid>);

impl Group {
    /// Of a program that was started as the leader of its group.
    fn of(leader: &Child) -> Self {
        let id = leader.id().and_then(|id| i32::try_from(id).ok());
        Self(id.and_then(Pid::from_raw))
    }

    /// Waits until the leader has ended, and leaves it as it is: its id is not given to another program
    /// before it is reaped, so that the right ones are killed.
    async fn leader_ended(&self) {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
        while let Some(leader) = self.0
            && matches!(waitid(WaitId::Pid(leader), options), Ok(None))
        {
            tokio::time::sleep(LOOK_INTERVAL).await;
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if let Some(leader) = self.0 {
            // It may have ended, with all that it started.
            let _ = kill_process_group(leader, Signal::KILL);
        }
    }
}

/// The beginning of what a program prints, as it is read.
struct Head {
    kept: Arc<Mutex<Vec<u8>>>,
    reader: JoinHandle<()>,
}

impl Head {
    fn of(stream: Option<impl AsyncRead + Unpin + Send + 'static>) -> Self {
        let kept = Arc::new(Mutex::new(Vec::new()));
        let reader = tokio::spawn(read(stream, kept.clone()));
        Self { kept, reader }
    }

    /// Returns it once all is read, or soon: a program that left its group keeps the pipe open.
    async fn text(mut self) -> String {
        let _ = tokio::time::timeout(PIPE_GRACE, &mut self.reader).await;
        self.reader.abort();
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(&kept).into_owned()
    }
}

/// Reads a stream to its end and keeps its beginning.
async fn read(stream: Option<impl AsyncRead + Unpin>, kept: Arc<Mutex<Vec<u8>>>) {
    let Some(mut stream) = stream else {
        return;
    };
    let mut piece = [0; 1024];
    while let Ok(read @ 1..) = stream.read(&mut piece).await {
        let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
        let left = OUTPUT_MAX.saturating_sub(kept.len());
        kept.extend_from_slice(&piece[..read.min(left)]);
    }
}

fn shortened(text: &str) -> String {
    let end = (0..=OUTPUT_MAX.min(text.len())).rfind(|at| text.is_char_boundary(*at));
    text[..end.unwrap_or(0)].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn fence(words: &[&str], timeout_ms: u64) -> Result<String, Refusal> {
        let words = words.iter().map(|w| (*w).to_owned()).collect();
        let command = FenceCommand::new(words, Duration::from_millis(timeout_ms));
        command.run(&HostName::new("h1").unwrap()).await
    }

    /// Goal: exit status 0 alone is proof, what was printed is kept, and it ends in time.
    #[tokio::test]
    async fn only_success_is_proof() {
        let output = fence(
            &["sh", "-c", "echo $0 is off; echo sure >&2", "{host}"],
            10_000,
        )
        .await;
        assert_eq!(output.unwrap(), "h1 is off\nsure\n");
        let long = fence(&["sh", "-c", "yes | head -c 100000"], 10_000).await;
        assert_eq!(long.unwrap().len(), OUTPUT_MAX);
        let table: [(&[&str], u64, &str, &str); 4] = [
            (&[], 10_000, "NO_FENCE_COMMAND", "has no fence command"),
            (
                &["sh", "-c", "echo no power; exit 3"],
                10_000,
                "FENCE_FAILED",
                "exit status: 3: no power",
            ),
            (&["/nowhere/fence"], 10_000, "FENCE_FAILED", "cannot be run"),
            (&["sleep", "1000"], 50, "FENCE_FAILED", "within 50 ms"),
        ];
        for (words, timeout_ms, reason, part) in table {
            let refusal = fence(words, timeout_ms).await.unwrap_err();
            assert_eq!(refusal.reason, reason);
            assert!(refusal.message.contains(part), "{}", refusal.message);
        }
    }

    /// Goal: a command that is too late does nothing later, and one that has succeeded is not held up by
    /// what it left behind, nor followed by it. Method: it leaves a program that keeps its output open.
    #[tokio::test]
    async fn nothing_of_a_command_is_left() {
        let folder = tempfile::tempdir().unwrap();
        for (end, timeout_ms, outcome) in [
            ("wait", 300, Err("did not end within 300 ms")),
            ("echo off; exit 0", 60_000, Ok("off\n")),
            ("echo no >&2; exit 3", 60_000, Err("exit status: 3: no")),
        ] {
            let file = folder.path().join(end.len().to_string());
            let script = format!("sleep 1000 & echo $! > {file:?}; {end}");
            let refusal = match (fence(&["sh", "-c", &script], timeout_ms).await, outcome) {
                (Ok(output), Ok(expected)) => {
                    assert_eq!(output, expected);
                    None
                }
                (Err(refusal), Err(part)) => Some((refusal.message, part)),
                (other, _) => panic!("{end}: {other:?}"),
            };
            if let Some((message, part)) = refusal {
                assert!(message.contains(part), "{end}: {message}");
            }
            let left = std::fs::read_to_string(&file).unwrap();
            let state = format!("/proc/{}/stat", left.trim());
            // A killed one may be a zombie until its new parent reaps it.
            while std::fs::read_to_string(&state).is_ok_and(|stat| !stat.contains(") Z")) {
                tokio::time::sleep(LOOK_INTERVAL).await;
            }
        }
    }

    /// Goal: fences of one host run one after another, those of two hosts do not wait for each other, and
    /// nothing is kept of either.
    #[tokio::test]
    async fn fences_of_a_host_take_turns() {
        let command = FenceCommand::new(Vec::new(), Duration::ZERO);
        let [h1, h2] = ["h1", "h2"].map(|name| HostName::new(name).unwrap());
        let first = command.turn(&h1).await;
        let other = command.turn(&h2).await;
        let mut second = Box::pin(command.turn(&h1));
        assert!(
            std::future::poll_fn(|context| {
                std::task::Poll::Ready(second.as_mut().poll(context).is_pending())
            })
            .await
        );
        drop(first);
        drop(second.await);
        drop(other);
        drop(command.turn(&h1).await);
        assert_eq!(command.running.lock().unwrap().len(), 1);
    }
}
