//! The device that resets this machine unless it is fed: `/dev/watchdogN` of the kernel.
//!
//! ```text
//!   Off ──arm: open──▶ Armed, fed by each write ──release: 'V', close──▶ Off
//!                        │ not fed
//!                        ▼ after its timeout
//!                      the machine is reset
//! ```
//!
//! What it is not: the decision to feed; see `core::Feeding`. Nor does it set the timeout: that takes a
//! call which only unsafe code can make, so the loader of the driver sets it.
//!
//! What the kernel does, and what therefore is done here:
//!
//! * Opening a device arms and feeds it; a second one cannot open it. Closing it disarms it only where
//!   the last byte that was written was `V`, and not at all with `nowayout`; otherwise it is fed once
//!   more and goes on. So a process that dies leaves it armed, and prolongs it once.
//! * A few drivers do not know that byte, and are disarmed by whatever closes them. With those a dead
//!   agent would fence nothing. It shows by closing the device as a dead process does, and looking.
//! * With `nowayout` it cannot be disarmed: it is fed for as long as this process runs.
//!
//! Invariant: nothing here waits for anything but the driver, and a device that failed once is not
//! reported as armed again by this run of the agent.

mod device;

use std::fs::File;
use std::path::Path;

use berth_agent_core::Feeding;
use berth_process::error_chain;
use tokio::sync::watch;

use crate::config;

pub(crate) use device::Device;
pub use device::Error;

/// Whether a promise may be built on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// It does not run.
    Off,
    /// It resets the machine unless it is fed, also if this process dies.
    Armed,
    /// It failed.
    Broken,
}

/// The watchdog in the hands of the task that owns the core.
#[derive(Debug)]
pub(crate) struct Watchdog {
    device: Device,
    /// The open device: it runs.
    file: Option<File>,
    standing: watch::Sender<Standing>,
    /// The last order, to log when it changes.
    ordered: Feeding,
}

impl Watchdog {
    /// Returns one that is not armed as far as is known here.
    pub(crate) fn new(device: Device) -> Self {
        Self {
            device,
            file: None,
            standing: watch::Sender::new(Standing::Off),
            ordered: Feeding::Off,
        }
    }

    /// Returns the configured one, if one is.
    ///
    /// # Errors
    ///
    /// Why it is of no use.
    pub(crate) fn configured(
        config: &config::Watchdog,
        root: &Path,
    ) -> Result<Option<Self>, Error> {
        let Some(path) = &config.device else {
            return Ok(None);
        };
        let device = Device::find(path, config.timeout_s, root)?;
        tracing::info!(
            device = %path.display(), driver = device.identity, timeout_s = device.timeout_s,
            "watchdog configured"
        );
        if device.no_way_out {
            tracing::warn!(
                "the watchdog cannot be disarmed (nowayout): once this agent has stopped, the machine \
                 is reset unless another one is started within {} s",
                device.timeout_s
            );
        }
        Ok(Some(Self::new(device)))
    }

    /// Returns the device.
    pub(crate) fn device(&self) -> &Device {
        &self.device
    }

    /// Returns how one learns whether a promise may be built on it.
    pub(crate) fn standing(&self) -> watch::Receiver<Standing> {
        self.standing.subscribe()
    }

    /// Arms it and disarms it, so that a fault of it is known when the agent starts.
    ///
    /// # Errors
    ///
    /// The fault.
    pub(crate) fn test_disarm(&mut self) -> Result<(), Error> {
        let file = self.device.arm()?;
        self.file = self.device.disarm(file)?;
        Ok(())
    }

    /// Does what the core has decided.
    pub(crate) fn order(&mut self, feeding: Feeding) {
        let before = std::mem::replace(&mut self.ordered, feeding);
        let done = match feeding {
            Feeding::Off => self.rest(),
            Feeding::Fed => self.feed(),
            Feeding::Starved => self.starve(before),
        };
        let Err(error) = done else { return };
        // Logged once: it is tried again with every order.
        let previous = self.standing.send_replace(Standing::Broken);
        if previous != Standing::Broken {
            let error = error_chain(&error);
            tracing::error!(
                error,
                "watchdog failed: no self-fencing promise until the agent is restarted"
            );
        }
    }

    fn feed(&mut self) -> Result<(), Error> {
        match &self.file {
            Some(file) => self.device.feed(file)?,
            None => {
                self.file = Some(self.device.arm()?);
                tracing::info!(timeout_s = self.device.timeout_s, "watchdog armed");
            }
        }
        self.is_armed();
        Ok(())
    }

    fn starve(&mut self, before: Feeding) -> Result<(), Error> {
        if before != Feeding::Starved {
            tracing::error!(
                "guests were to be stopped by now, and the hypervisor does not confirm that none runs: the \
                 watchdog is not fed any more, and resets this machine within {} s",
                self.device.timeout_s
            );
        }
        // An earlier run has armed it. To open it would feed it.
        if self.file.is_none() && !self.device.is_active()? {
            self.file = Some(self.device.arm()?);
            self.is_armed();
        }
        Ok(())
    }

    fn rest(&mut self) -> Result<(), Error> {
        let Some(file) = self.file.take() else {
            return Ok(());
        };
        self.file = self.device.disarm(file)?;
        match &self.file {
            // It runs whether or not it is needed.
            Some(file) => self.device.feed(file)?,
            None => tracing::info!("watchdog disarmed"),
        }
        self.standing.send_if_modified(|standing| {
            let is_armed = *standing == Standing::Armed;
            if is_armed {
                *standing = Standing::Off;
            }
            is_armed
        });
        Ok(())
    }

    fn is_armed(&self) {
        self.standing.send_if_modified(|standing| {
            let is_off = *standing == Standing::Off;
            if is_off {
                *standing = Standing::Armed;
            }
            is_off
        });
    }

    /// The agent stops. Where it is certain that nothing runs here the device is disarmed.
    pub(crate) fn end(mut self, runs_nothing: bool) {
        if runs_nothing && let Err(error) = self.rest() {
            tracing::error!(error = error_chain(&error), "watchdog not disarmed");
        }
        if self.file.is_some() {
            tracing::error!(
                "the agent stops, and the watchdog runs on: this machine is RESET within {} s unless an \
                 agent is started here before",
                self.device.timeout_s
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::{fs, io};

    use super::device::CLASS;
    use super::*;

    /// What the kernel would tell of a watchdog. The device is one that takes whatever is written to
    /// it; what a real one does is shown by `tests/tests/real/watchdog.rs`.
    struct FakeSysfs(tempfile::TempDir);

    const NULL: &str = "/dev/null";

    impl FakeSysfs {
        fn new() -> Self {
            let sysfs = Self(tempfile::tempdir().unwrap());
            fs::create_dir_all(sysfs.file("")).unwrap();
            for (name, text) in [
                ("dev", "1:3"),
                ("identity", "made up"),
                ("timeout", "10"),
                ("nowayout", "0"),
                ("state", "active"),
            ] {
                sysfs.write(name, text);
            }
            sysfs
        }

        fn file(&self, name: &str) -> PathBuf {
            self.0.path().join(CLASS).join("watchdog7").join(name)
        }

        fn write(&self, name: &str, text: &str) {
            fs::write(self.file(name), format!("{text}\n")).unwrap();
        }

        fn find(&self, path: &str, told_s: Option<u64>) -> Result<Device, Error> {
            Device::find(Path::new(path), told_s, self.0.path())
        }
    }

    #[track_caller]
    fn fails<T: std::fmt::Debug>(result: Result<T, Error>, words: &[&str]) {
        let error = error_chain(&result.unwrap_err());
        for word in words {
            assert!(error.contains(word), "{word}: {error}");
        }
    }

    #[test]
    fn a_watchdog_is_found_by_its_numbers() {
        let sysfs = FakeSysfs::new();
        let device = sysfs.find(NULL, None).unwrap();
        assert_eq!((&*device.identity, device.timeout_s), ("made up", 10));
        assert!(!device.no_way_out);
        assert_eq!(device.reset_after_ms(), 32_000);
        let slower = sysfs.find(NULL, Some(20)).unwrap();
        assert_eq!(slower.reset_after_ms(), 62_000);
    }

    /// Goal: each error says what is wrong, and where.
    #[test]
    fn what_is_wrong_is_told() {
        let sysfs = FakeSysfs::new();
        let absent = sysfs.find("/dev/no-such-watchdog", None);
        fails(absent, &["/dev/no-such-watchdog", "not loaded"]);
        fails(sysfs.find("/proc/version", None), &["no character device"]);
        fails(sysfs.find("/dev/zero", None), &["1:5", "not listed"]);
        fails(
            sysfs.find(NULL, Some(7)),
            &["watchdog7", "after 10 s", "says 7"],
        );
        for (text, word) in [("soon", "soon"), ("1", "from 5"), ("4000", "to 3600")] {
            sysfs.write("timeout", text);
            fails(sysfs.find(NULL, None), &["watchdog7", "timeout", word]);
        }
        fs::remove_file(sysfs.file("timeout")).unwrap();
        fails(
            sysfs.find(NULL, None),
            &["watchdog7/timeout", "No such file"],
        );
        fs::remove_dir_all(sysfs.0.path().join("sys")).unwrap();
        fails(sysfs.find(NULL, None), &["CONFIG_WATCHDOG_SYSFS"]);
    }

    /// Goal: who else may have it, and that one has to be root, is said. Method: the errors are those
    /// of the calls that open it.
    #[test]
    fn a_device_that_cannot_be_had_says_why() {
        let device = FakeSysfs::new().find(NULL, None).unwrap();
        let busy = device.failure("opened", io::ErrorKind::ResourceBusy.into());
        fails(
            Err::<(), _>(busy),
            &[NULL, "fed by another process", "systemd"],
        );
        let forbidden = device.failure("opened", io::ErrorKind::PermissionDenied.into());
        fails(Err::<(), _>(forbidden), &[NULL, "root"]);
    }

    /// Goal: a driver that disarms the device whenever it is closed is refused. Method: the kernel
    /// goes on to say that it is inactive.
    #[test]
    fn a_device_that_a_dead_process_disarms_is_refused() {
        let sysfs = FakeSysfs::new();
        sysfs.write("state", "inactive");
        let mut watchdog = Watchdog::new(sysfs.find(NULL, None).unwrap());
        fails(
            watchdog.test_disarm(),
            &["disarms it when the process that feeds it dies"],
        );
    }

    /// Goal: no promise is built on a timeout that was made longer meanwhile, nor on a device that
    /// failed.
    #[test]
    fn a_device_that_has_changed_is_broken() {
        let sysfs = FakeSysfs::new();
        let mut watchdog = Watchdog::new(sysfs.find(NULL, None).unwrap());
        let standing = watchdog.standing();
        assert_eq!(*standing.borrow(), Standing::Off);
        sysfs.write("timeout", "60");
        watchdog.order(Feeding::Fed);
        assert_eq!(*standing.borrow(), Standing::Broken);
        sysfs.write("timeout", "10");
        watchdog.order(Feeding::Fed);
        assert_eq!(*standing.borrow(), Standing::Broken);
    }

    /// Goal: one that an earlier run has armed is not opened while it is to starve, since that would
    /// feed it.
    #[test]
    fn a_starving_watchdog_is_left_alone() {
        let sysfs = FakeSysfs::new();
        let mut watchdog = Watchdog::new(sysfs.find(NULL, None).unwrap());
        watchdog.order(Feeding::Starved);
        assert!(watchdog.file.is_none());
        watchdog.order(Feeding::Fed);
        assert!(watchdog.file.is_some());
        assert_eq!(*watchdog.standing().borrow(), Standing::Armed);
    }

    /// Goal: one that cannot be disarmed is kept and fed.
    #[test]
    fn without_a_way_out_it_is_kept() {
        let sysfs = FakeSysfs::new();
        sysfs.write("nowayout", "1");
        let mut watchdog = Watchdog::new(sysfs.find(NULL, None).unwrap());
        watchdog.order(Feeding::Fed);
        watchdog.order(Feeding::Off);
        assert!(watchdog.file.is_some());
        assert_eq!(*watchdog.standing().borrow(), Standing::Off);
    }
}
