//! Compares what the hypervisor has with what the scheduler expects of this host; and limits what an
//! agent does while its heartbeats are not acknowledged.
//!
//! ```text
//!   tick ──▶ Expect ──(scheduler)──▶ Expected ──▶ Everything ──(driver)──▶ compared ──▶ Report
//! ```
//!
//! Invariant: what is expected is read before the hypervisor is queried, so that the scheduler takes a
//! guest that comes or goes meanwhile for out of date, never for missing; and a domain on which a
//! call worked since is not reported as unknown: its claim may have begun and ended in between.
//! Nothing is stopped but what the scheduler names by its claim.

use std::collections::BTreeSet;

use berth_domain::agent::{Call, DomainState};
use berth_domain::id::{ClaimId, Epoch, TimeMs, VmUid};
use berth_domain::pmem::PmemDevice;
use berth_domain::reality::{Expected, NAME_MAX, ObservedDomain, Unknown, compare};
use berth_domain::recovery::{ReportedGuest, era_of};
use berth_domain::refusal::{Code, Refusal};
use berth_driver_api::{Answer, Error, Known, Other, Request, Token};

use super::agent::{Agent, Effect, Work};
use super::guests::{Phase, adopt};

/// What the scheduler expects of this host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Expectation {
    /// The revision from which it was read.
    pub revision: u64,
    /// One per claim.
    pub expected: Vec<Expected>,
    /// What is recorded as unknown: no claim expects it.
    pub unknown: Vec<Unknown>,
    /// What is to be stopped and removed: these run elsewhere; or the host was fenced, and their VMs are
    /// gone.
    pub lost: Vec<(VmUid, Option<ClaimId>)>,
    /// Whether the host was fenced, so that finding nothing is worth telling.
    pub fenced: bool,
    /// The namespaces of persistent memory that are to be erased, each with its claim.
    pub erasures: Vec<(ClaimId, PmemDevice)>,
    /// While the cluster recovers: the least epoch of calls from after it began.
    pub recovery: Option<Epoch>,
}

/// How often it is compared while something is waited for.
const EAGER_COMPARE_MS: u64 = 1_000;

/// How the comparing and the hearing stand.
#[derive(Clone, Debug, Default)]
pub(super) struct Reality {
    /// When the last comparison began.
    began_at: Option<TimeMs>,
    /// The query of the driver, and what its result will be compared with.
    query: Option<(Token, Expectation)>,
    /// The guests on which no work was under way when the driver was queried.
    still: Vec<VmUid>,
    /// The guests on which a call worked since the expectation was requested: it may be from before
    /// their claims, and the report arrive after these were released.
    touched: BTreeSet<VmUid>,
    /// The guests that are recorded as unknown, as far as this agent knows.
    reported: BTreeSet<VmUid>,
    /// Whether the cluster recovered when the last expectation was read.
    recovers: bool,
    /// The greatest era of an expectation.
    era: u64,
    /// When the last acknowledged heartbeat was sent, and for how long that counts.
    last_heartbeat: Option<(TimeMs, u64)>,
}

impl Reality {
    /// Returns for how long no report was answered, by when it was sent; nothing if none was ever.
    pub(super) fn silent_ms(&self, now: TimeMs) -> Option<u64> {
        self.last_heartbeat
            .map(|(at, _)| now.0.saturating_sub(at.0))
    }

    /// Records that a call works on a guest.
    pub(super) fn touch(&mut self, vm: VmUid) {
        self.touched.insert(vm);
    }

    /// Records that no call works on a guest any more. What is recorded of it as unknown, from a
    /// report that crossed the call, is compared again at the next tick.
    pub(super) fn release(&mut self, vm: VmUid) {
        if self.reported.remove(&vm) {
            self.began_at = None;
        }
    }
}

impl Agent {
    /// Begins a comparison if it is time for one.
    pub(super) fn tick_reality(&mut self) -> Vec<Effect> {
        let every = match self.is_eager() || self.reality.recovers {
            true => self.facts.compare_ms.min(EAGER_COMPARE_MS),
            false => self.facts.compare_ms,
        };
        let is_due = |at: TimeMs| self.now.0.saturating_sub(at.0) >= every;
        if every == 0 || !self.reality.began_at.is_none_or(is_due) {
            return Vec::new();
        }
        self.reality.began_at = Some(self.now);
        if self.reality.query.is_none() {
            self.reality.touched.clear();
        }
        self.reality.touched.extend(self.queues.keys());
        vec![Effect::Expect]
    }

    /// Queries the hypervisor for what it has, now that it is known what is expected.
    ///
    /// Of a cluster that has recovered, the members of before expect what is outdated, and their calls are:
    /// they may come back.
    pub(super) fn expected(&mut self, expectation: Expectation) -> Vec<Effect> {
        let era = era_of(expectation.revision);
        if era < self.reality.era {
            return Vec::new();
        }
        self.reality.era = era;
        self.fences.raise(Epoch(era));
        if self.reality.query.is_some() {
            // A query of the driver is under way still; the next comparison begins with a new one.
            return Vec::new();
        }
        self.reality.recovers = expectation.recovery.is_some();
        if let Some(least) = expectation.recovery {
            self.fences.raise(least);
        }
        let still = self.guests.keys().filter(|vm| !self.is_worked_on(**vm));
        self.reality.still = still.copied().collect();
        let token = self.spare_token();
        self.reality.query = Some((token, expectation));
        let request = Request::Everything;
        vec![Effect::Driver { token, request }]
    }

    /// Takes the driver's result, if it is that of this query.
    pub(super) fn comparison_result(
        &mut self,
        token: Token,
        result: &Result<Answer, Error>,
    ) -> Option<Vec<Effect>> {
        let (_, expectation) = self.reality.query.take_if(|(query, _)| *query == token)?;
        // A failed query says nothing about the guests.
        let Ok(Answer::Everything(known, others)) = result else {
            return Some(Vec::new());
        };
        self.forget_missing(known);
        self.take_up(known);
        if expectation.recovery.is_some() {
            return Some(self.report_guests(&expectation, known));
        }
        let erasures = self.query_erasures(&expectation, known);
        let mut comparison = compare(
            expectation.revision,
            &expectation.expected,
            &to_discovered(known, others),
        );
        self.leave_out_touched(&expectation, &mut comparison.unknown);
        let mut effects = self.evict_lost(&expectation, known);
        effects.extend(self.evict_prepared(known));
        let differs = !comparison.findings.is_empty() || comparison.unknown != expectation.unknown;
        let is_clean = comparison.unknown.iter().all(|domain| !domain.is_ours);
        if differs || (expectation.fenced && is_clean) {
            effects.push(Effect::Report(comparison));
        }
        effects.extend(erasures);
        Some(effects)
    }

    /// Reports all guests, unless a call from before the recovery still works on one: the report means
    /// that none does.
    fn report_guests(&mut self, expectation: &Expectation, known: &[Known]) -> Vec<Effect> {
        let is_sent = known.iter().any(|k| k.state == DomainState::MigratingOut);
        let is_quiet = self.reality.touched.is_empty() && self.is_quiet() && !is_sent;
        self.reality.touched.clear();
        if !is_quiet {
            return Vec::new();
        }
        let expected = |known: &Known| {
            let mut claims = expectation.expected.iter();
            claims.any(|e| e.uid == known.domain.uid && Some(e.claim) == known.domain.claim)
        };
        let guests = known.iter().map(|known| ReportedGuest {
            domain: to_unknown(known),
            state: known.state,
            spec: (!expected(known)).then(|| Box::new(known.domain.spec.clone())),
        });
        vec![Effect::ReportGuests(expectation.revision, guests.collect())]
    }

    /// Leaves out the domains on which a call worked since the expectation was requested. What is
    /// recorded stays; a fenced host reports all, since its fence is lifted when none is left.
    fn leave_out_touched(&mut self, expectation: &Expectation, unknown: &mut Vec<Unknown>) {
        let touched = std::mem::take(&mut self.reality.touched);
        if !expectation.fenced {
            unknown.retain(|domain| {
                let is_recorded = || expectation.unknown.iter().any(|u| u.uuid == domain.uuid);
                !domain.is_ours || !touched.contains(&VmUid(domain.uuid)) || is_recorded()
            });
        }
        let ours = unknown.iter().filter(|domain| domain.is_ours);
        self.reality.reported = ours.map(|domain| VmUid(domain.uuid)).collect();
    }

    /// Forgets guests that the hypervisor does not have any more, though no call removed them.
    fn forget_missing(&mut self, known: &[Known]) {
        for vm in std::mem::take(&mut self.reality.still) {
            let is_there = known.iter().any(|k| k.domain.uid == vm);
            let runs = self.guests.get(&vm).map(|guest| &guest.phase) == Some(&Phase::Running);
            if runs && !is_there && !self.is_worked_on(vm) {
                self.guests.remove(&vm);
            }
        }
    }

    /// Takes up guests that run here and that this agent does not know of, as at its start, or still waits
    /// for: a failed call may have had it forget one, and no call may have queried how a migration ended.
    fn take_up(&mut self, known: &[Known]) {
        for known in known {
            let (vm, state) = (known.domain.uid, known.state);
            if self.reality.touched.contains(&vm) || self.is_worked_on(vm) {
                continue;
            }
            match self.guests.get_mut(&vm) {
                Some(guest) if guest.phase.has_come(state, false) => guest.phase = Phase::Running,
                Some(_) => {}
                None if matches!(state, DomainState::Running | DomainState::Paused) => {
                    self.guests.extend(adopt(vec![known.clone()]));
                }
                None => {}
            }
        }
    }

    /// Stops what the scheduler names, if it is still that.
    fn evict_lost(&mut self, expectation: &Expectation, known: &[Known]) -> Vec<Effect> {
        let mut effects = Vec::new();
        for (vm, claim) in &expectation.lost {
            let is_it = |k: &&Known| k.domain.uid == *vm && k.domain.claim == *claim;
            if known.iter().any(|k| is_it(&k)) && !self.is_worked_on(*vm) {
                effects.push(self.evict(*vm, *claim));
            }
        }
        effects
    }

    /// Removes what was prepared before the cluster recovered: once it has, no guest comes there any more.
    fn evict_prepared(&mut self, known: &[Known]) -> Vec<Effect> {
        let first = Epoch(self.reality.era);
        let prepared = known.iter().filter(|k| k.state == DomainState::Prepared);
        let before =
            prepared.filter(|k| k.domain.epoch < first && !self.is_worked_on(k.domain.uid));
        let before: Vec<_> = before.map(|k| (k.domain.uid, k.domain.claim)).collect();
        let evicted = before.into_iter();
        evicted.map(|(vm, claim)| self.evict(vm, claim)).collect()
    }

    fn evict(&mut self, vm: VmUid, claim: Option<ClaimId>) -> Effect {
        // No start on that claim may be carried out any more.
        self.work(vm, Work::Evict, Request::Evict(vm, claim))
    }

    /// Records an acknowledged heartbeat.
    pub(super) fn record_heartbeat(&mut self, sent_at: TimeMs, lease_ms: u64) {
        let before = self.reality.last_heartbeat.map_or(TimeMs(0), |(at, _)| at);
        self.reality.last_heartbeat = Some((before.max(sent_at), lease_ms));
    }

    /// Refuses to start a guest while no heartbeat of this agent is acknowledged: the host may be declared
    /// dead, and the guest be started elsewhere. Everything else is done: guests that run continue.
    pub(super) fn may_start(&self, vm: VmUid, call: &Call) -> Result<(), Refusal> {
        let Some((at, lease_ms)) = self.reality.last_heartbeat.filter(|_| starts(call)) else {
            return Ok(());
        };
        let silent_ms = self.now.0.saturating_sub(at.0);
        if (lease_ms == 0 || silent_ms <= lease_ms) && !self.has_lapsed() {
            return Ok(());
        }
        let message = format!(
            "no heartbeat of the agent of host {} was acknowledged for {silent_ms} ms: it starts \
             nothing",
            self.facts.host
        );
        // Where it may have been started already, a definite code would mean that it was not.
        let code = if self.guests.contains_key(&vm) {
            Code::Unavailable
        } else {
            Code::FailedPrecondition
        };
        Err(Refusal::new(code, "AGENT_CUT_OFF", message)
            .with_hint("check the network between that host and the schedulers")
            .with("host", &self.facts.host))
    }
}

/// Returns whether a call makes a guest run on this host that did not before.
fn starts(call: &Call) -> bool {
    match call {
        Call::SpawnVm { .. } | Call::PreLiveMigration { .. } | Call::StartVm { .. } => true,
        Call::DestroyVm
        | Call::StopVm { .. }
        | Call::SettleVm
        | Call::AbortLiveMigration { .. }
        | Call::ForceCompleteLiveMigration { .. }
        | Call::MakeDisks { .. }
        | Call::CopyDisk { .. }
        | Call::PublishImage { .. }
        | Call::DropImage { .. }
        | Call::FetchDisks(_)
        | Call::DropDisks { .. }
        | Call::GetDomain
        | Call::CheckCanLiveMigrateDestination { .. }
        | Call::CheckCanLiveMigrateSource { .. }
        | Call::FitLiveMigration { .. }
        | Call::LiveMigration { .. }
        | Call::RollbackLiveMigrationAtDestination { .. }
        | Call::PostLiveMigrationAtSource { .. } => false,
    }
}

fn to_discovered(known: &[Known], others: &[Other]) -> Vec<ObservedDomain> {
    let ours = known.iter().map(|known| ObservedDomain {
        domain: to_unknown(known),
        state: known.state,
    });
    let others = others.iter().map(|other| ObservedDomain {
        domain: Unknown {
            uuid: other.uuid,
            name: shortened(&other.name),
            is_ours: false,
            claim: None,
            held: Default::default(),
        },
        state: DomainState::Running,
    });
    ours.chain(others).collect()
}

/// Returns a guest of Berth's as it is reported.
fn to_unknown(known: &Known) -> Unknown {
    Unknown {
        uuid: known.domain.uid.0,
        name: known.domain.vm.to_string(),
        is_ours: true,
        claim: known.domain.claim,
        held: known.domain.assignment.clone(),
    }
}

fn shortened(name: &str) -> String {
    let end = (0..=NAME_MAX.min(name.len())).rfind(|at| name.is_char_boundary(*at));
    name[..end.unwrap_or(0)].to_owned()
}
