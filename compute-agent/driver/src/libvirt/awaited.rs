//! Guests that are expected by live migration, until libvirt has reported what their transfers took.
//!
//! libvirt hands the figures of a transfer over with the guest: the destination has them, as those of
//! the job that ended last, while the source forgets the guest. They are read when the guest is seen
//! running, and a few times more should they not be there at once.
//!
//! Not here: whether a guest arrived. Nothing waits for these figures, and after a restart of the agent
//! those of a guest that was on its way are not read.
//!
//! Invariant: a guest that is seen [`ATTEMPTS`] times without figures is expected no longer.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use berth_domain::id::VmUid;

use super::job::{JobKind, JobStats};
use crate::arrivals::{Arrival, Arrivals};

/// How often the figures of a guest are requested.
const ATTEMPTS: u32 = 5;

/// Guests that are expected, and the arrivals that were not taken yet.
#[derive(Debug, Default)]
pub(super) struct Awaited {
    /// How often each was seen running.
    expected: Mutex<BTreeMap<VmUid, u32>>,
    arrivals: Arrivals,
}

impl Awaited {
    /// Records that a guest is expected.
    pub(super) fn expect(&self, vm: VmUid) {
        self.lock().insert(vm, 0);
    }

    /// Records that it is not expected any more.
    pub(super) fn forget(&self, vm: VmUid) {
        self.lock().remove(&vm);
    }

    /// Reads the figures of a guest that runs, if it was expected.
    pub(super) fn examine<E>(&self, vm: VmUid, job: impl FnOnce() -> Result<JobStats, E>) {
        match self.lock().get_mut(&vm) {
            None => return,
            Some(attempts) => *attempts += 1,
        }
        // Without the lock: the reply of the hypervisor may take long.
        let arrival = job().ok().and_then(|job| arrival(&job));
        let mut expected = self.lock();
        if arrival.is_some()
            || expected
                .get(&vm)
                .is_some_and(|attempts| *attempts >= ATTEMPTS)
        {
            expected.remove(&vm);
        }
        drop(expected);
        if let Some(arrival) = arrival {
            self.arrivals.push(arrival);
        }
    }

    /// Returns the arrivals since the last call.
    pub(super) fn take(&self) -> Vec<Arrival> {
        self.arrivals.take()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<VmUid, u32>> {
        // The map is whole between any two statements.
        self.expected.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns what a job says of the arrival, if it is a transfer that ended well.
fn arrival(job: &JobStats) -> Option<Arrival> {
    let is_transfer = job.kind == JobKind::Completed && job.processed_bytes > 0;
    is_transfer.then(|| Arrival {
        bytes: job.processed_bytes,
        // libvirt gives 0 for what it does not know, and no guest stands still for no time.
        downtime: (job.downtime_ms > 0).then(|| Duration::from_millis(job.downtime_ms)),
        iterations: job.all.get("memory_iteration").copied().unwrap_or(0).max(1),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(kind: JobKind) -> JobStats {
        let all = [
            ("data_processed", 5_000),
            ("downtime", 40),
            ("memory_iteration", 3),
        ];
        JobStats::new(kind, all.map(|(name, n)| (name.to_owned(), n)).into())
    }

    #[test]
    fn the_figures_of_an_expected_guest_are_read_once() {
        let awaited = Awaited::default();
        let vm = VmUid(uuid::Uuid::from_u128(1));
        let done = || Ok::<_, ()>(job(JobKind::Completed));
        awaited.examine(vm, done);
        assert!(awaited.take().is_empty(), "it was not expected");
        awaited.expect(vm);
        awaited.examine(vm, || Ok::<_, ()>(job(JobKind::None)));
        awaited.examine(vm, || Err(()));
        assert!(awaited.take().is_empty(), "there are none yet");
        awaited.examine(vm, done);
        awaited.examine(vm, done);
        let expected = Arrival {
            bytes: 5_000,
            downtime: Some(Duration::from_millis(40)),
            iterations: 3,
        };
        assert_eq!(awaited.take(), [expected]);
        awaited.expect(vm);
        awaited.forget(vm);
        awaited.examine(vm, done);
        assert!(awaited.take().is_empty(), "it is not expected any more");
        awaited.expect(vm);
        for _ in 0..ATTEMPTS {
            awaited.examine(vm, || Err(()));
        }
        awaited.examine(vm, done);
        assert!(awaited.take().is_empty(), "it was given up");
    }
}
