//! Users who boot, move and delete without end, and remember how each of it ended.
//!
//! Each user has two hosts of its own: it boots a guest on one, moves it to the other and back, and
//! deletes it. One user can be halted while the agent of one of its hosts is exchanged, as an
//! operator waits until nothing is under way there; the others go on.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use serde_json::Value;

use super::commands::text;
use super::{Answer, Cluster, Programs, eventually};

/// The outcome of one request of a user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ended {
    /// `boot`, `migrate` or `delete`.
    pub what: &'static str,
    /// The reason where it failed or was refused, with all that was said.
    pub refused: Option<(String, String)>,
}

/// Users at work, each in a thread of its own.
#[derive(Debug)]
pub struct Traffic {
    users: Vec<User>,
}

#[derive(Debug)]
struct User {
    shared: Arc<Shared>,
    working: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Shared {
    halted: AtomicBool,
    stopped: AtomicBool,
    idle: AtomicBool,
    ended: Mutex<Vec<Ended>>,
}

struct Worker {
    number: usize,
    programs: Programs,
    schedulers: String,
    flavor: String,
    hosts: [String; 2],
    shared: Arc<Shared>,
}

impl Traffic {
    /// Puts a user to work on each pair of hosts.
    #[must_use]
    pub fn start(cluster: &Cluster, flavor: &str) -> Self {
        let names: Vec<String> = cluster.agents.iter().map(|a| a.name.clone()).collect();
        let pairs = names.chunks_exact(2).enumerate();
        let users = pairs.map(|(number, pair)| {
            let shared = Arc::new(Shared::default());
            let worker = Worker {
                number,
                programs: cluster.programs.clone(),
                schedulers: cluster.addresses(),
                flavor: flavor.to_owned(),
                hosts: [pair[0].clone(), pair[1].clone()],
                shared: shared.clone(),
            };
            User {
                shared,
                working: Some(std::thread::spawn(move || worker.work())),
            }
        });
        Self {
            users: users.collect(),
        }
    }

    /// Waits until nothing is under way on the hosts of a user, and lets nothing begin there while
    /// `work` is done.
    ///
    /// # Panics
    ///
    /// When the user does not come to rest.
    #[track_caller]
    pub fn while_halted(&self, user: usize, work: impl FnOnce()) {
        halt(&self.users[user..=user], work);
    }

    /// Does the same for all users: nothing is written to the cluster on their behalf meanwhile.
    ///
    /// # Panics
    ///
    /// When a user does not come to rest.
    #[track_caller]
    pub fn while_all_halted(&self, work: impl FnOnce()) {
        halt(&self.users, work);
    }

    /// Returns what has ended so far, by what it was and the reason where it was refused.
    #[must_use]
    pub fn counts(&self) -> BTreeMap<(&'static str, String), usize> {
        let mut counts = BTreeMap::new();
        for ended in self.users.iter().flat_map(|user| user.shared.ended()) {
            let reason = ended.refused.map(|(reason, _)| reason).unwrap_or_default();
            *counts.entry((ended.what, reason)).or_default() += 1;
        }
        counts
    }

    /// Waits until every user has brought this many more rounds to their end.
    ///
    /// # Panics
    ///
    /// When one does not.
    #[track_caller]
    pub fn rounds(&self, more: usize) {
        let done = |user: &User| {
            let ended = user.shared.ended();
            ended.iter().filter(|e| e.what == "delete").count()
        };
        let before: Vec<usize> = self.users.iter().map(done).collect();
        eventually("more rounds of every user", || {
            let now: Vec<usize> = self.users.iter().map(done).collect();
            let mut pairs = before.iter().zip(&now);
            pairs
                .all(|(before, now)| *now >= before + more)
                .then_some(())
                .ok_or_else(|| format!("{before:?} {now:?}"))
        });
    }

    /// Ends the users after their rounds, and returns everything that was refused or failed.
    ///
    /// # Panics
    ///
    /// When a user did.
    #[must_use]
    pub fn finish(mut self) -> Vec<Ended> {
        for user in &self.users {
            user.shared.stopped.store(true, Ordering::SeqCst);
        }
        let mut refused = Vec::new();
        for user in &mut self.users {
            if let Some(working) = user.working.take() {
                working.join().expect("a user does not panic");
            }
            refused.extend(
                user.shared
                    .ended()
                    .into_iter()
                    .filter(|e| e.refused.is_some()),
            );
        }
        refused
    }
}

#[track_caller]
fn halt(users: &[User], work: impl FnOnce()) {
    for user in users {
        user.shared.halted.store(true, Ordering::SeqCst);
    }
    for user in users {
        eventually("a user at rest", || {
            let idle = user.shared.idle.load(Ordering::SeqCst);
            idle.then_some(()).ok_or("something is under way")
        });
    }
    work();
    for user in users {
        user.shared.halted.store(false, Ordering::SeqCst);
    }
}

impl Drop for Traffic {
    fn drop(&mut self) {
        for user in &self.users {
            user.shared.stopped.store(true, Ordering::SeqCst);
        }
    }
}

impl Shared {
    fn ended(&self) -> Vec<Ended> {
        let ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        ended.clone()
    }
}

impl Worker {
    fn work(&self) {
        let mut round = 0;
        while !self.shared.stopped.load(Ordering::SeqCst) {
            if self.shared.halted.load(Ordering::SeqCst) {
                self.shared.idle.store(true, Ordering::SeqCst);
                std::thread::sleep(berth_testkit::wait::GLANCE);
                continue;
            }
            self.shared.idle.store(false, Ordering::SeqCst);
            // Halted in between: the caller that halts waits for the next look at it.
            if self.shared.halted.load(Ordering::SeqCst) {
                continue;
            }
            round += 1;
            self.round(round);
        }
        self.shared.idle.store(true, Ordering::SeqCst);
    }

    fn round(&self, round: u32) {
        let vm = format!("vm-{}-{round}", self.number);
        let [here, there] = &self.hosts;
        let create = Cluster::create(&vm, &self.flavor);
        self.ask("boot", &[&create[..], &["--host", here]].concat());
        // One that was not let go is there already.
        if self.ask("migrate", &["vm", "migrate", &vm, "--host", there]) {
            self.ask("migrate", &["vm", "migrate", &vm, "--host", here]);
        }
        self.ask("delete", &["vm", "delete", &vm]);
    }

    /// Sends a request until it is answered, with one request id, and records the outcome. Returns whether
    /// it was done.
    fn ask(&self, what: &'static str, arguments: &[&str]) -> bool {
        let id = uuid::Uuid::new_v4().to_string();
        let refused = eventually(what, || {
            let mut command = self.programs.command("berth");
            command.args(["--output", "json", "--scheduler", &self.schedulers]);
            command.args(arguments).args(["--request-id", &id]);
            let answer = Answer::of(command);
            if answer.status == Some(0) {
                return Ok(None);
            }
            // The last line: notes of what happened meanwhile may stand before it.
            let last = answer.stderr.lines().last().unwrap_or_default();
            let printed: Value = serde_json::from_str(last).unwrap_or_default();
            let reason = text(&printed["error"]["reason"]);
            let unanswered = ["UNAVAILABLE", "DEADLINE_EXCEEDED"].map(Value::from);
            let is_answer = reason == "HOST_UNREACHABLE";
            // A connection that broke in the middle is no answer.
            let is_broken = reason.is_empty() || reason == "UNKNOWN";
            if is_broken || (unanswered.contains(&printed["error"]["code"]) && !is_answer) {
                return Err(format!("{answer:?}"));
            }
            Ok(Some((reason, format!("{arguments:?}: {answer:?}"))))
        });
        let mut ended = self
            .shared
            .ended
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let is_done = refused.is_none();
        ended.push(Ended { what, refused });
        is_done
    }
}
