//! Recovery: what hosts report, and how it ends.
//!
//! A host's first report shows that it is quiet: no call from before the recovery changes a guest there
//! any more. A migration whose source is not quiet may still bring a guest to a host that has reported,
//! so only reports count that were made when every host was quiet.
//!
//! | module | what |
//! |---|---|
//! | [`settle`] | VMs whose guests are where the state has a claim for them, or nowhere |
//! | [`adopt`] | guests elsewhere, or without a VM: what they hold is claimed |
//! | [`volumes`] | volumes that a guest has and the state has for another VM |
//! | [`late`] | hosts that report after the recovery |
//! | [`left`] | what is left on a host: guests without a VM, and contents of persistent memory |
//! | [`gate`] | what is refused meanwhile |
//!
//! Invariant: no operation that was in progress goes on, and no guest that is somewhere is forgotten: it
//! is its VM's, or recorded with its host as unknown.

mod adopt;
mod gate;
mod late;
mod left;
mod settle;
mod volumes;

use std::collections::BTreeSet;

use berth_domain::agent::DomainState;
use berth_domain::id::{ClaimId, Incarnation};
use berth_domain::name::HostName;
use berth_domain::numa::Assignment;
use berth_domain::recovery::{GUESTS_MAX, RecoveredHost, ReportedGuest};
use berth_domain::refusal::{Code, Refusal};
use berth_domain::vm::{Vm, VmSpec};

pub use self::gate::RECOVERING;
pub(crate) use self::left::GUEST_RUNS_TWICE;
pub(crate) use self::volumes::VOLUME_TAKEN;
use crate::recovery::{Progress, RecoveryOutcome};
use crate::refusals::{invalid, precondition};
use crate::reply::Reply;
use crate::state::State;
use crate::transaction::{Journal, Transaction};

/// Where a guest is.
#[derive(Clone, Debug)]
struct Seat {
    host: HostName,
    /// The name of its domain.
    name: String,
    /// The claim in its metadata.
    claim: Option<ClaimId>,
    /// What it holds; absent where it is what its claim has.
    held: Option<Assignment>,
    /// What its user specified, where the host reports it.
    spec: Option<Box<VmSpec>>,
    is_live: bool,
}

impl Seat {
    /// Returns that of a guest that runs on a claim of its VM, as it is recorded.
    fn on_claim(host: &HostName, vm: &Vm, claim: ClaimId) -> Self {
        Self {
            host: host.clone(),
            name: vm.name.to_string(),
            claim: Some(claim),
            held: None,
            spec: None,
            is_live: true,
        }
    }
}

impl State {
    /// Returns what is recorded of a host once it reports these guests.
    fn reported(
        &self,
        host: &HostName,
        incarnation: Incarnation,
        basis: u64,
        guests: &[ReportedGuest],
    ) -> RecoveredHost {
        let before = self.recovered_hosts.get(host);
        let before = before.filter(|before| before.incarnation == incarnation);
        let (mut running, mut others) = (BTreeSet::new(), Vec::new());
        for guest in guests.iter().filter(|guest| guest.domain.is_ours) {
            match self.claim_it_runs_on(host, guest) {
                Some(claim) => drop(running.insert(claim)),
                None => others.push(guest.clone()),
            }
        }
        others.sort_by_key(|guest| guest.domain.uuid);
        RecoveredHost {
            host: host.clone(),
            incarnation,
            quiet_at: before.map_or(self.header.revision, |before| before.quiet_at),
            basis,
            running,
            others,
        }
    }

    /// Returns whether a report would change nothing: it counts already, with the same guests.
    #[must_use]
    pub fn is_reported(
        &self,
        host: &HostName,
        incarnation: Incarnation,
        guests: &[ReportedGuest],
    ) -> bool {
        let counts = self.recovery_progress_of(host) == Some(Progress::Compared);
        let Some(recorded) = self.recovered_hosts.get(host).filter(|_| counts) else {
            return false;
        };
        **recorded == self.reported(host, incarnation, recorded.basis, guests)
    }

    /// Returns the claim on which a guest runs as it is recorded.
    fn claim_it_runs_on(&self, host: &HostName, guest: &ReportedGuest) -> Option<ClaimId> {
        let claim = self.claim(guest.domain.claim?)?;
        let vm = self.vm(&claim.vm)?;
        let is_it = claim.is_in_use()
            && claim.host == *host
            && vm.uid.0 == guest.domain.uuid
            && claim.assignment == guest.domain.held;
        (is_it && is_live(guest.state)).then_some(claim.id)
    }
}

impl<J: Journal> Transaction<'_, J> {
    /// Takes what a host reports. After the recovery it is settled at once.
    pub(super) fn report_guests(
        &mut self,
        name: &HostName,
        incarnation: Incarnation,
        basis: u64,
        guests: &[ReportedGuest],
    ) -> Result<Reply, Refusal> {
        let view = self.state.host(name);
        let host = &view.ok_or_else(|| Refusal::not_found("host", name))?.host;
        let recovery = self.state.header.recovery;
        let recovery = recovery.filter(|recovery| recovery.is_running() || host.unreported);
        let recovery = recovery.ok_or_else(not_recovering)?;
        if host.report.incarnation != incarnation {
            let message = format!("another run of the agent of host {name} has registered");
            return Err(precondition("STALE_INCARNATION", message).with("host", name));
        }
        if guests.len() > GUESTS_MAX {
            let message = format!("at most {GUESTS_MAX} guests of a host can be reported");
            return Err(invalid("INVALID_COMPARISON", message).with("host", name));
        }
        if !(recovery.first_revision..=self.state.revision()).contains(&basis) {
            let message = format!("a report cannot rest on revision {basis}");
            return Err(invalid("INVALID_COMPARISON", message).with("host", name));
        }
        let before = self.state.recovered_hosts.get(name);
        if before.is_some_and(|b| b.incarnation == incarnation && b.basis > basis) {
            let message = format!("host {name} has reported later already");
            return Err(Refusal::new(Code::Aborted, "STALE_COMPARISON", message));
        }
        let report = self.state.reported(name, incarnation, basis, guests);
        match recovery.is_running() {
            true => drop(self.put_recovered_host(report)),
            false => self.settle_late(&report),
        }
        let view = self.state.host(name).expect("it has reported");
        Ok(Reply::Host(view.host.clone()))
    }

    /// Ends the recovery.
    pub(super) fn end_recovery(&mut self, accept_conflicts: bool) -> Result<Reply, Refusal> {
        if !self.state.is_recovering() {
            return Err(not_recovering());
        }
        if !self.state.has_all_reports() {
            return Err(incomplete(self.state));
        }
        let before = self.state.clone();
        let outcome = self.settle_recovery();
        if !outcome.conflicts.is_empty() && !accept_conflicts {
            *self.state = before;
            self.journal.forget();
            return Err(conflicting(&outcome));
        }
        let hosts: Vec<_> = self.state.recovered_hosts.keys().cloned().collect();
        for host in hosts {
            self.remove_recovered_host(&host);
        }
        let now = self.now();
        let mut keeps_settled = false;
        if let Some(recovery) = &mut self.state.header.recovery {
            recovery.ended_at = Some(now);
            keeps_settled = recovery.keeps_settled;
            if keeps_settled {
                recovery.settled = outcome.count();
            }
        }
        if keeps_settled {
            for settled in outcome.kept(self.state) {
                self.put_settled_vm(settled);
            }
        }
        Ok(Reply::None)
    }
}

/// Returns whether a guest runs, or will without another call.
fn is_live(state: DomainState) -> bool {
    match state {
        DomainState::Starting
        | DomainState::Running
        | DomainState::Paused
        | DomainState::MigratingOut
        | DomainState::MigratingIn
        | DomainState::PostCopyBroken => true,
        DomainState::Absent | DomainState::Prepared | DomainState::Stopped => false,
    }
}

/// Returns whether a hypervisor has the guest, be it on or off.
fn is_here(state: DomainState) -> bool {
    is_live(state) || state == DomainState::Stopped
}

fn not_recovering() -> Refusal {
    precondition("NOT_RECOVERING", "the cluster does not recover")
}

/// Refuses the end of a recovery in which hosts have not reported.
fn incomplete(state: &State) -> Refusal {
    let progress = state.recovery_progress();
    let hosts = progress.iter();
    let hosts =
        hosts.filter(|(_, progress)| matches!(progress, Progress::Awaited | Progress::Quiet));
    let (silent, heard): (Vec<_>, Vec<_>) =
        hosts.partition(|(_, progress)| matches!(progress, Progress::Awaited));
    let count = silent.len() + heard.len();
    let (what, of, hint) = match silent.is_empty() {
        false => (
            "hosts that have not reported their guests yet",
            silent,
            "start their agents; for a host that is off: `berth host fence HOST --confirm-off`",
        ),
        true => (
            "hosts that have reported once, and will again by themselves",
            heard,
            "wait for their second reports: `berth cluster recovery status`",
        ),
    };
    let shown = of.iter().take(8).map(|(host, _)| host.to_string());
    let shown = shown.collect::<Vec<_>>().join(", ");
    let message = format!("{what}: {shown} ({} in all)", of.len());
    precondition("RECOVERY_INCOMPLETE", message)
        .with_hint(hint)
        .with("hosts", count)
}

fn conflicting(outcome: &RecoveryOutcome) -> Refusal {
    let message = format!("{} conflicts are not settled", outcome.conflicts.len());
    precondition("RECOVERY_CONFLICTS", message)
        .with_hint(
            "`berth cluster recovery status` shows them; stop the guests that are too many on their \
             hosts, or accept the conflicts: `berth cluster recovery end --accept-conflicts`",
        )
        .with("conflicts", outcome.conflicts.len())
}
