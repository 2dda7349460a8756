//! Which log lines this process writes, which is changed at run time for a duration.
//!
//! ```text
//!   configured ── set(filter, duration) ──▶ changed ── set: replaces filter and duration ─┐
//!        ▲                                     │ ▲                                        │
//!        └──── the duration passed, reset ─────┘ └────────────────────────────────────────┘
//! ```
//!
//! Not here: who may change it, and what a filter may hold (`filter`).
//!
//! Invariant: a change ends by itself. The end of the duration of a change that was replaced ends
//! nothing. Programs that run in one process share the level.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use tokio::task::AbortHandle;
use tracing_subscriber::{EnvFilter, reload};

use super::filter::{self, Invalid};
use crate::run::BoxFuture;

/// The shortest duration of a change.
pub const DURATION_MIN: Duration = Duration::from_secs(1);
/// The longest duration of a change.
pub const DURATION_MAX: Duration = Duration::from_secs(24 * 3600);

/// The level of the log that this process writes.
static OF_PROCESS: OnceLock<Arc<Level>> = OnceLock::new();

/// Why a level is not changed.
#[derive(Debug, thiserror::Error)]
pub enum SetError {
    /// The filter is none.
    #[error("filter: {0}")]
    Filter(Invalid),
    /// The duration is too short or too long.
    #[error("duration: must be 1 second to 24 hours")]
    Duration,
    /// The log is not written any more.
    #[error("the log does not take another filter")]
    Log(#[source] reload::Error),
}

/// A change that is in force.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// What it adds to the configured filter.
    pub filter: String,
    /// The principal that requested it.
    pub principal: String,
    /// How long it stays in force.
    pub remaining: Duration,
}

/// What is written, and until when.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// The configured filter.
    pub configured: String,
    /// The change that is in force, if one is.
    pub change: Option<Change>,
}

/// Has the log written by another filter.
type Apply = Box<dyn Fn(EnvFilter) -> Result<(), reload::Error> + Send + Sync>;

/// The clock by which changes end.
pub trait Clock: Send + Sync {
    /// Returns the current time.
    fn now(&self) -> Instant;
    /// Waits until a time.
    fn wait_until(&self, at: Instant) -> BoxFuture<'static, ()>;
}

/// The clock of the machine.
struct Machine;

impl Clock for Machine {
    fn now(&self) -> Instant {
        Instant::now()
    }

    fn wait_until(&self, at: Instant) -> BoxFuture<'static, ()> {
        Box::pin(tokio::time::sleep_until(at.into()))
    }
}

/// Which log lines are written.
pub struct Level {
    configured: String,
    apply: Apply,
    clock: Box<dyn Clock>,
    changed: Mutex<Option<Changed>>,
}

/// A change, and what ends it.
struct Changed {
    filter: String,
    principal: String,
    until: Instant,
    /// Ends it when its duration has passed.
    timer: AbortHandle,
}

impl std::fmt::Debug for Level {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Level")
            .field("configured", &self.configured)
            .finish_non_exhaustive()
    }
}

/// Returns the level of the log that this process writes; `None` where it writes its log by other means.
#[must_use]
pub fn of_process() -> Option<Arc<Level>> {
    OF_PROCESS.get().cloned()
}

/// Makes a level that of the process; the first one stays.
pub(super) fn begin(level: Level) {
    // The log is started once.
    let _ = OF_PROCESS.set(Arc::new(level));
}

impl Level {
    /// Returns the level of a log that is written by the configured filter, and that `apply` has written
    /// by another one.
    pub fn new(
        configured: &str,
        apply: impl Fn(EnvFilter) -> Result<(), reload::Error> + Send + Sync + 'static,
    ) -> Self {
        Self {
            configured: configured.to_owned(),
            apply: Box::new(apply),
            clock: Box::new(Machine),
            changed: Mutex::new(None),
        }
    }

    /// Returns the same level with changes that end by another clock.
    #[must_use]
    pub fn with_clock(self, clock: impl Clock + 'static) -> Self {
        Self {
            clock: Box::new(clock),
            ..self
        }
    }

    /// Returns what is written, and until when.
    #[must_use]
    pub fn status(&self) -> Status {
        self.status_of(self.changed().as_ref())
    }

    /// Adds a filter to the configured one for a duration. It replaces the change before it.
    ///
    /// # Errors
    ///
    /// What is wrong with filter or duration; the level stays as it was.
    ///
    /// # Panics
    ///
    /// Outside of a runtime of Tokio.
    pub fn set(
        self: &Arc<Self>,
        filter: &str,
        duration: Duration,
        principal: &str,
    ) -> Result<Status, SetError> {
        if !(DURATION_MIN..=DURATION_MAX).contains(&duration) {
            return Err(SetError::Duration);
        }
        let built = filter::with_added(&self.configured, filter).map_err(SetError::Filter)?;
        let until = self.clock.now() + duration;
        let mut changed = self.changed();
        (self.apply)(built).map_err(SetError::Log)?;
        let timer = tokio::spawn(self.clone().end_at(until)).abort_handle();
        let next = Changed {
            filter: filter.to_owned(),
            principal: principal.to_owned(),
            until,
            timer,
        };
        if let Some(before) = changed.replace(next) {
            before.timer.abort();
        }
        let status = self.status_of(changed.as_ref());
        drop(changed);
        let seconds = duration.as_secs();
        tracing::info!(target: "audit", filter, seconds, caller = principal, "log level changed");
        Ok(status)
    }

    /// Ends a change; without one nothing happens.
    ///
    /// # Errors
    ///
    /// The log takes no other filter.
    pub fn reset(&self, principal: &str) -> Result<Status, SetError> {
        let mut changed = self.changed();
        let ended = self.end(&mut changed)?;
        let status = self.status_of(changed.as_ref());
        drop(changed);
        if let Some(ended) = ended {
            ended.timer.abort();
            let Changed { filter, .. } = ended;
            tracing::info!(target: "audit", filter, caller = principal, "log level reset");
        }
        Ok(status)
    }

    /// Ends the change whose duration ends then.
    async fn end_at(self: Arc<Self>, until: Instant) {
        self.clock.wait_until(until).await;
        let mut changed = self.changed();
        // One that replaced it ends later, or has the same end.
        if changed
            .as_ref()
            .is_none_or(|changed| changed.until != until)
        {
            return;
        }
        let ended = self.end(&mut changed);
        drop(changed);
        match ended {
            Ok(Some(Changed {
                filter, principal, ..
            })) => {
                tracing::info!(target: "audit", filter, caller = principal, "log level expired");
            }
            Ok(None) => {}
            Err(error) => tracing::error!(%error, "the log level cannot be restored"),
        }
    }

    /// Has the log written as configured, and returns the change that was in force.
    fn end(&self, changed: &mut Option<Changed>) -> Result<Option<Changed>, SetError> {
        if changed.is_none() {
            return Ok(None);
        }
        let configured = filter::configured(&self.configured);
        let configured = configured.expect("the log was started with it");
        (self.apply)(configured).map_err(SetError::Log)?;
        Ok(changed.take())
    }

    fn status_of(&self, changed: Option<&Changed>) -> Status {
        let change = changed.map(|changed| Change {
            filter: changed.filter.clone(),
            principal: changed.principal.clone(),
            remaining: changed.until.saturating_duration_since(self.clock.now()),
        });
        Status {
            configured: self.configured.clone(),
            change,
        }
    }

    fn changed(&self) -> MutexGuard<'_, Option<Changed>> {
        // It is replaced as a whole, after the log took the filter.
        self.changed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::watch;
    use tracing::subscriber::DefaultGuard;
    use tracing_subscriber::layer::SubscriberExt as _;
    use tracing_subscriber::util::SubscriberInitExt as _;

    use super::super::lines::Lines;
    use super::*;

    /// A clock that stands still until a test has time pass.
    struct Passed {
        start: Instant,
        passed: watch::Receiver<Duration>,
    }

    impl Clock for Passed {
        fn now(&self) -> Instant {
            self.start + *self.passed.borrow()
        }

        fn wait_until(&self, at: Instant) -> BoxFuture<'static, ()> {
            let (start, mut passed) = (self.start, self.passed.clone());
            Box::pin(async move {
                // Without the clock the test has ended.
                let _ = passed.wait_for(|passed| start + *passed >= at).await;
            })
        }
    }

    /// A log in memory, of the thread of the test.
    struct Log {
        passed: watch::Sender<Duration>,
        level: Arc<Level>,
        lines: Lines,
        _guard: DefaultGuard,
    }

    impl Log {
        fn start(configured: &str) -> Self {
            let lines = Lines::default();
            let built = filter::configured(configured).expect("a filter");
            let (layer, handle) = reload::Layer::new(built);
            let layers = tracing_subscriber::registry().with(layer);
            let written = tracing_subscriber::fmt::layer()
                .with_writer(lines.clone())
                .with_ansi(false);
            let guard = layers.with(written).set_default();
            let level = Level::new(configured, move |filter| handle.reload(filter));
            let (passed, clock) = watch::channel(Duration::ZERO);
            let level = level.with_clock(Passed {
                start: Instant::now(),
                passed: clock,
            });
            Self {
                passed,
                level: Arc::new(level),
                lines,
                _guard: guard,
            }
        }

        fn set(&self, filter: &str, seconds: u64) -> Result<Status, SetError> {
            let duration = Duration::from_secs(seconds);
            self.level.set(filter, duration, "operator:ann")
        }

        /// Has so many seconds pass, and what waits for that run.
        async fn pass(&self, seconds: u64) {
            let more = Duration::from_secs(seconds);
            self.passed.send_modify(|passed| *passed += more);
            // The runtime has one thread: what was woken runs before this task goes on.
            for _ in 0..10 {
                tokio::task::yield_now().await;
            }
        }

        /// Returns which of some events are written, and what was written since the last call.
        fn written(&self) -> (String, String) {
            let before = self.lines.take();
            tracing::debug!(target: "one", "one-debug");
            tracing::info!(target: "one", "one-info");
            tracing::debug!(target: "two", "two-debug");
            tracing::info!(target: "two", "two-info");
            tracing::info!(target: "audit", "audit-info");
            let written = self.lines.take();
            let written = written.lines().filter_map(|line| line.rsplit(' ').next());
            (written.collect::<Vec<_>>().join(" "), before)
        }
    }

    const AS_CONFIGURED: &str = "one-info two-info audit-info";

    #[tokio::test]
    async fn a_change_is_in_force_for_its_duration() {
        let log = Log::start("info");
        assert_eq!(log.written().0, AS_CONFIGURED);
        log.set("one=debug", 600).expect("a change");
        let (written, before) = log.written();
        assert_eq!(written, "one-debug one-info two-info audit-info");
        assert!(before.contains("log level changed"), "{before}");
        assert!(before.contains("operator:ann"), "{before}");
        log.pass(599).await;
        let change = log.level.status().change.expect("it is in force");
        assert_eq!(change.remaining, Duration::from_secs(1));
        assert_eq!(log.written().0, "one-debug one-info two-info audit-info");
        log.pass(2).await;
        let (written, before) = log.written();
        assert_eq!(written, AS_CONFIGURED);
        assert!(before.contains("log level expired"), "{before}");
        assert!(before.contains("operator:ann"), "{before}");
        assert_eq!(log.level.status().change, None);
    }

    #[tokio::test]
    async fn a_change_that_was_replaced_ends_nothing() {
        // The second one ends after the first, before it, and at the same moment.
        for (first, second) in [(10, 60), (60, 10), (30, 30)] {
            let log = Log::start("info");
            log.set("one=debug", first).expect("a change");
            log.set("two=debug", second).expect("another one");
            assert_eq!(log.written().0, "one-info two-debug two-info audit-info");
            log.pass(second - 1).await;
            assert_eq!(log.written().0, "one-info two-debug two-info audit-info");
            log.pass(2).await;
            assert_eq!(log.written().0, AS_CONFIGURED);
            log.pass(100).await;
            let (_, before) = log.written();
            assert!(!before.contains("log level expired"), "twice: {before}");
        }
    }

    #[tokio::test]
    async fn a_reset_ends_it_and_its_duration() {
        let log = Log::start("info");
        assert_eq!(
            log.level.reset("operator:bob").expect("no change").change,
            None
        );
        let (_, before) = log.written();
        assert_eq!(before, "", "nothing was reset");
        log.set("debug", 10).expect("a change");
        let status = log.level.reset("operator:bob").expect("a reset");
        assert_eq!(status.change, None);
        let (written, before) = log.written();
        assert_eq!(written, AS_CONFIGURED);
        assert!(before.contains("log level reset"), "{before}");
        assert!(before.contains("operator:bob"), "{before}");
        log.set("two=debug", 60).expect("a later change");
        log.pass(11).await;
        let (written, before) = log.written();
        assert_eq!(written, "one-info two-debug two-info audit-info");
        assert!(!before.contains("expired"), "{before}");
    }

    /// Goal: no change hides the audit, whatever it silences.
    #[tokio::test]
    async fn the_audit_stays_as_configured() {
        for (configured, added, expected) in [
            ("info", "off", "audit-info"),
            ("info", "au=off", AS_CONFIGURED),
            ("info", "warn,one=info", "one-info audit-info"),
            ("warn", "info", "one-info two-info"),
            (
                "off,audit=info",
                "one=debug",
                "one-debug one-info audit-info",
            ),
            (
                "info,audit=off",
                "debug",
                "one-debug one-info two-debug two-info",
            ),
            (
                "info,one=off",
                "one=debug",
                "one-debug one-info two-info audit-info",
            ),
        ] {
            let log = Log::start(configured);
            log.set(added, 60).expect("a change");
            assert_eq!(log.written().0, expected, "{configured} + {added}");
        }
    }

    #[tokio::test]
    async fn what_is_refused_changes_nothing() {
        let log = Log::start("info");
        log.set("one=debug", 60).expect("a change");
        let before = log.level.status();
        for (filter, seconds) in [
            ("two=loud", 60),
            ("", 60),
            ("audit=off", 60),
            ("two=debug", 0),
            ("two=debug", 24 * 3600 + 1),
            ("two=debug", u64::MAX),
        ] {
            let refused = log.set(filter, seconds);
            assert!(refused.is_err(), "{filter} for {seconds} s");
            assert_eq!(log.level.status(), before, "{filter} for {seconds} s");
        }
        assert_eq!(log.written().0, "one-debug one-info two-info audit-info");
        log.set("two=debug", 24 * 3600)
            .expect("the longest duration");
    }
}
