//! Which calls are too late: of an earlier lease, or overtaken by a call that ended what they
//! belong to.
//!
//! An epoch alone does not distinguish a delayed call from a fresh one under the same lease. So what
//! must not happen after a certain call is remembered with the VM: no spawn after a destruction, no
//! preparation after its rollback, no transfer after the conductor began to query where the guest
//! is, nothing of an operation after it was settled, no start on a claim that was released, no
//! stop after a start of the same attempt of an operation, and no start after a stop of a later one.
//!
//! Invariants: a check ([`Fences::check`]) stores nothing, and an epoch is stored only for a call that
//! no other rule refuses, as a raised epoch stops all other callers. Bounded ([`RECORDS_MAX`]). What is dropped is covered by a floor: epochs grow over the whole cluster, so
//! that an unknown VM with an epoch at or below the floor is refused.

use std::collections::{BTreeMap, VecDeque};

use berth_domain::agent::Fence;
use berth_domain::id::{ClaimId, Epoch, MigrationId, OperationId, VmUid};
use berth_domain::refusal::{Code, Refusal};

/// How many VMs are remembered.
const RECORDS_MAX: usize = 4096;

/// How many released claims of one VM are remembered. Claims are never used twice, and
/// a call that is as late as so many moves has an older epoch.
const ENDED_MAX: usize = 4;

/// One attempt of an operation: a move goes on to the next host after each that refuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Attempt {
    operation: OperationId,
    number: u32,
}

impl Attempt {
    /// Returns the attempt to which a call belongs.
    fn of(fence: &Fence) -> Self {
        Self {
            operation: fence.operation,
            number: fence.attempt,
        }
    }

    /// Returns whether it is a later one of the same operation.
    fn is_after(self, other: Self) -> bool {
        self.operation == other.operation && self.number > other.number
    }
}

/// What is remembered of one VM.
#[derive(Clone, Debug, Default)]
pub(super) struct Record {
    /// The greatest epoch that was seen.
    pub(super) epoch: Epoch,
    /// It was to be destroyed here: it never starts here again.
    pub(super) destroyed: bool,
    /// The migration whose preparation here was rolled back.
    pub(super) rolled_back: Option<MigrationId>,
    /// The migration with which it was sent away, or was tried to.
    pub(super) sent: Option<MigrationId>,
    /// The operation that queried where it is.
    pub(super) queried_by: Option<OperationId>,
    /// The operation that was settled: none of its earlier calls is carried out any more.
    pub(super) settled: Option<OperationId>,
    /// The attempt that had it started last, and on which claim: a stop of the same or an earlier
    /// attempt that comes now was overtaken.
    started: Option<(Attempt, ClaimId)>,
    /// The attempt that had it stopped last: a start of an earlier one that comes now was overtaken.
    stopped: Option<Attempt>,
    /// The operation for which its persistent memory was erased, and on which claim.
    pub(super) erased: Option<(OperationId, ClaimId)>,
    /// The last claims that were released: it never starts on them again.
    pub(super) ended: VecDeque<ClaimId>,
}

impl Record {
    /// Records that a claim is released.
    pub(super) fn end(&mut self, claim: ClaimId) {
        if !self.ended.contains(&claim) {
            self.ended.push_back(claim);
        }
        if self.ended.len() > ENDED_MAX {
            self.ended.pop_front();
        }
    }

    /// Returns whether the operation of a call has had the guest started on a claim.
    pub(super) fn was_started(&self, fence: &Fence, claim: ClaimId) -> bool {
        self.started
            .is_some_and(|(by, on)| by.operation == fence.operation && on == claim)
    }

    /// Records that the attempt of a call has the guest stopped.
    ///
    /// # Errors
    ///
    /// When the guest was started on the claim after the call was made.
    pub(super) fn stop(&mut self, fence: &Fence, claim: ClaimId) -> Result<(), Refusal> {
        let attempt = Attempt::of(fence);
        if let Some((by, _)) = self.started
            && self.was_started(fence, claim)
            && !attempt.is_after(by)
        {
            return Err(late("the guest was started after this call"));
        }
        if self.stopped.is_none_or(|last| !last.is_after(attempt)) {
            self.stopped = Some(attempt);
        }
        Ok(())
    }

    /// Records that the attempt of a call has the guest started on a claim.
    pub(super) fn start(&mut self, fence: &Fence, claim: ClaimId) {
        let attempt = Attempt::of(fence);
        let overtaken = |(by, on): (Attempt, ClaimId)| by.is_after(attempt) && on == claim;
        if !self.started.is_some_and(overtaken) {
            self.started = Some((attempt, claim));
        }
    }

    /// Returns an error when a later attempt than that of a call had the guest stopped.
    pub(super) fn may_start(&self, fence: &Fence) -> Result<(), Refusal> {
        if self
            .stopped
            .is_some_and(|by| by.is_after(Attempt::of(fence)))
        {
            return Err(late(
                "the guest was stopped for the next host after this call",
            ));
        }
        Ok(())
    }
}

/// All that is remembered.
#[derive(Clone, Debug, Default)]
pub(super) struct Fences {
    records: BTreeMap<VmUid, Record>,
    floor: Epoch,
    /// The least epoch that any call may have: those below are from before a recovery of the cluster.
    least: Epoch,
}

impl Fences {
    /// Refuses a call for its epoch. Stores nothing.
    pub(super) fn check(&self, fence: &Fence) -> Result<(), Refusal> {
        if fence.epoch < self.least {
            return Err(stale(fence, self.least));
        }
        let seen = match self.records.get(&fence.vm) {
            Some(record) => record.epoch,
            // Nothing was dropped yet: no epoch is too old.
            None if self.floor == Epoch(0) => Epoch(0),
            None => Epoch(self.floor.0 + 1),
        };
        if fence.epoch < seen {
            return Err(stale(fence, seen));
        }
        Ok(())
    }

    /// Records a call that nothing refuses. VMs that are `kept` are not dropped.
    pub(super) fn record(&mut self, fence: &Fence, kept: impl Fn(VmUid) -> bool) {
        let record = self.records.entry(fence.vm).or_default();
        record.epoch = record.epoch.max(fence.epoch);
        if self.records.len() > RECORDS_MAX {
            self.drop_oldest(|vm| vm == fence.vm || kept(vm));
        }
    }

    /// Refuses from here on all calls with an epoch below this one. So no call can be late any more behind
    /// what ended a guest or a claim before; and a cluster that was restored may have both again.
    pub(super) fn raise(&mut self, least: Epoch) {
        if least <= self.least {
            return;
        }
        self.least = least;
        let of_before = self.records.values_mut().filter(|r| r.epoch < least);
        for record in of_before {
            record.destroyed = false;
            record.ended.clear();
        }
    }

    /// Refuses a call that waited while another lease began.
    pub(super) fn recheck(&self, fence: &Fence) -> Result<(), Refusal> {
        match self.records.get(&fence.vm) {
            _ if fence.epoch < self.least => Err(stale(fence, self.least)),
            Some(record) if record.epoch > fence.epoch => Err(stale(fence, record.epoch)),
            Some(_) | None => Ok(()),
        }
    }

    /// Returns whether the operation of a call is settled here.
    pub(super) fn is_settled(&self, fence: &Fence) -> bool {
        let record = self.records.get(&fence.vm);
        record.is_some_and(|record| record.settled == Some(fence.operation))
    }

    /// Returns what is remembered of a VM, for a call that changes it.
    pub(super) fn of(&mut self, vm: VmUid) -> &mut Record {
        self.records.entry(vm).or_default()
    }

    fn drop_oldest(&mut self, kept: impl Fn(VmUid) -> bool) {
        let oldest = self
            .records
            .iter()
            .filter(|(vm, _)| !kept(**vm))
            .min_by_key(|(_, record)| record.epoch)
            .map(|(vm, record)| (*vm, record.epoch));
        if let Some((vm, epoch)) = oldest {
            self.records.remove(&vm);
            self.floor = self.floor.max(epoch);
        }
    }
}

fn stale(fence: &Fence, seen: Epoch) -> Refusal {
    let message = format!(
        "the call has epoch {}, but epoch {seen} was seen for this VM",
        fence.epoch
    );
    Refusal::new(Code::Aborted, "STALE_EPOCH", message)
        .with("epoch", fence.epoch)
        .with("epoch_seen", seen)
}

/// Returns the refusal of a call that another one overtook.
pub(super) fn late(message: &str) -> Refusal {
    Refusal::new(Code::Aborted, "LATE_CALL", message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use berth_domain::id::Incarnation;
    use uuid::Uuid;

    fn fence(vm: u128, epoch: u64) -> Fence {
        Fence {
            vm: VmUid(Uuid::from_u128(vm)),
            operation: OperationId(Uuid::nil()),
            epoch: Epoch(epoch),
            incarnation: Incarnation(Uuid::nil()),
            attempt: 0,
        }
    }

    fn admit(
        fences: &mut Fences,
        fence: &Fence,
        kept: impl Fn(VmUid) -> bool,
    ) -> Result<(), Refusal> {
        fences.check(fence)?;
        fences.record(fence, kept);
        Ok(())
    }

    /// Goal: memory stays bounded, and what is forgotten is refused rather than taken for new.
    #[test]
    fn what_is_dropped_is_below_the_floor() {
        let mut fences = Fences::default();
        let kept = |vm: VmUid| vm.0.as_u128() == 1;
        for n in 1..=(RECORDS_MAX as u64 + 10) {
            admit(&mut fences, &fence(u128::from(n), n), kept).unwrap();
        }
        assert_eq!(fences.records.len(), RECORDS_MAX);
        assert_eq!(fences.floor, Epoch(11));
        assert!(admit(&mut fences, &fence(1, 1), kept).is_ok(), "kept");
        let refused = admit(&mut fences, &fence(5, 5), kept).unwrap_err();
        assert_eq!(refused.reason, "STALE_EPOCH");
        assert!(admit(&mut fences, &fence(9_999_999, 12), kept).is_ok());
    }

    /// Goal: a VM that was deleted, and a claim that was released, after the backup of which a cluster was
    /// restored can be used again; what ended since the recovery stays so.
    #[test]
    fn a_recovery_forgets_what_ended_before() {
        let mut fences = Fences::default();
        let claim = ClaimId(Uuid::from_u128(7));
        for (vm, epoch) in [(1, 5), (2, 1_000)] {
            fences.raise(Epoch(epoch));
            let fence = fence(vm, epoch);
            admit(&mut fences, &fence, |_| false).unwrap();
            let record = fences.of(fence.vm);
            record.destroyed = true;
            record.end(claim);
        }
        fences.raise(Epoch(1_000));
        for (vm, is_ended) in [(1, false), (2, true)] {
            let record = fences.of(fence(vm, 0).vm);
            assert_eq!(record.destroyed, is_ended, "{vm}");
            assert_eq!(record.ended.contains(&claim), is_ended, "{vm}");
        }
        assert!(fences.check(&fence(1, 999)).is_err());
        assert!(fences.check(&fence(1, 1_000)).is_ok());
    }

    #[test]
    fn an_older_epoch_is_refused_and_an_equal_one_is_not() {
        let mut fences = Fences::default();
        let kept = |_| false;
        assert!(admit(&mut fences, &fence(1, 5), kept).is_ok());
        assert!(admit(&mut fences, &fence(1, 5), kept).is_ok());
        assert!(admit(&mut fences, &fence(1, 4), kept).is_err());
        assert!(admit(&mut fences, &fence(2, 4), kept).is_ok());
        assert!(fences.recheck(&fence(1, 4)).is_err());
        assert!(fences.recheck(&fence(1, 5)).is_ok());
    }
}
