//! Namespaces of persistent memory that guests have left: erased before any other guest sees them.
//!
//! ```text
//!   expected ─▶ OPEN ──▶ QUERIED ──(the leader: still to be erased)──▶ RUNNING ──▶ DONE ──▶ reported
//!                ▲  ▲      └ no guest of the hypervisor has it             │
//!                │  └──────────────── after a while ◀── FAILED ◀───────────┘
//!                └ again with each comparison until the scheduler does not expect it any more
//! ```
//!
//! What is expected may be out of date: the namespace may have been erased before, by an earlier run
//! of this agent, and be another VM's by now. So an erasure begins only upon a reply of the leader about
//! this very claim, which stays true until this agent reports that it is done. What is begun ends with
//! the process of the hypervisor's driver; the next run restarts it.
//!
//! Invariant: a namespace is erased only while its claim is RELEASING and no guest here has it; and
//! no guest starts or comes here on one that is to be erased.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use berth_domain::claim::{ERASURE_FAILURE_LENGTH_MAX, ErasureProgress, ErasureReport};
use berth_domain::id::{ClaimId, TimeMs, VmUid};
use berth_domain::name::PmemName;
use berth_domain::numa::{Assignment, HostUsage};
use berth_domain::pmem::{PmemDevice, PmemNamespace};
use berth_driver_api::{Answer, DomainSpec, Error, Known, Request, Token};

use super::agent::{Agent, Effect};
use super::guests::usage_of_others;
use super::reality::Expectation;

/// How many namespaces are erased at the same time: more only share what the memory can take.
const RUNNING_MAX: usize = 4;

/// How long after a failure it is tried again, at first and at most.
const RETRY_MS_MIN: u64 = 5_000;
const RETRY_MS_MAX: u64 = 600_000;

/// Interval of progress reports.
const REPORT_MS: u64 = 5_000;

/// For how long the scheduler is queried with every tick after a guest with persistent memory has left.
const EAGER_MS: u64 = 15_000;

/// How far a namespace is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// To be erased.
    Open,
    /// The leader is queried whether it still is.
    Queried,
    /// The driver erases it.
    Running(Token),
    /// It failed; to be tried again then.
    Failed { retry_at: TimeMs },
    /// It is erased, and the scheduler may not know yet.
    Done,
}

/// A namespace that is to be erased.
#[derive(Clone, Debug)]
struct Due {
    claim: ClaimId,
    device: PmemDevice,
    phase: Phase,
    failures: u32,
    /// How much of it is erased, and how much the scheduler knows of.
    erased_bytes: u64,
    reported_bytes: u64,
}

/// All of them.
#[derive(Clone, Debug, Default)]
pub(super) struct Erasing {
    due: BTreeMap<PmemName, Due>,
    /// The newest revision from which the due erasures were read.
    revision: u64,
    reported_at: TimeMs,
    eager_until: TimeMs,
}

impl Erasing {
    /// Records what is expected, as far as it is new. Replies of members that lag behind are ignored.
    fn expect(&mut self, revision: u64, expected: &[(ClaimId, PmemDevice)]) {
        if revision < self.revision {
            return;
        }
        self.revision = revision;
        let is_listed = |name: &PmemName, due: &Due| {
            let mut listed = expected.iter();
            listed.any(|(claim, device)| *claim == due.claim && device.name == *name)
        };
        self.due
            .retain(|name, due| is_listed(name, due) || matches!(due.phase, Phase::Running(_)));
        for (claim, device) in expected {
            self.due.entry(device.name.clone()).or_insert_with(|| Due {
                claim: *claim,
                device: device.clone(),
                phase: Phase::Open,
                failures: 0,
                erased_bytes: 0,
                reported_bytes: 0,
            });
        }
    }

    fn running(&self) -> usize {
        let all = self.due.values();
        all.filter(|due| matches!(due.phase, Phase::Running(_)))
            .count()
    }
}

impl Due {
    fn report(&self, progress: ErasureProgress) -> ErasureReport {
        ErasureReport {
            claim: self.claim,
            namespace: self.device.name.clone(),
            progress,
        }
    }

    fn is_ready(&self, now: TimeMs) -> bool {
        match self.phase {
            Phase::Open | Phase::Queried => true,
            Phase::Failed { retry_at } => retry_at <= now,
            Phase::Running(_) | Phase::Done => false,
        }
    }
}

impl Agent {
    /// Returns an assignment with the devices as they are numbered now: it may have been another number
    /// when they were given, before this host restarted.
    pub(super) fn at_present(&self, given: &Assignment) -> Assignment {
        let mut given = given.clone();
        for device in &mut given.pmem {
            let now = self.facts.topology.namespace(&device.name);
            if let Some(now) = now.filter(|now| !now.path.is_empty()) {
                device.path.clone_from(&now.path);
            }
        }
        given
    }

    /// Returns what all guests but `vm` have here, and what is to be erased.
    pub(super) fn taken_by_others(&self, vm: VmUid) -> HostUsage {
        let mut taken = usage_of_others(&self.guests, &self.facts.topology, vm);
        let due = self.erasing.due.iter();
        let open = due.filter(|(_, due)| due.phase != Phase::Done);
        taken.pmem.extend(open.map(|(name, _)| name.clone()));
        taken
    }

    /// A guest may have left namespaces behind: the scheduler is queried more often for a while.
    pub(super) fn query_erasures_soon(&mut self, domain: &DomainSpec) {
        if !domain.assignment.pmem.is_empty() {
            self.erasing.eager_until = TimeMs(self.now.0 + EAGER_MS);
        }
    }

    /// Returns whether the scheduler is to be queried more often.
    pub(super) fn is_eager(&self) -> bool {
        self.now < self.erasing.eager_until
    }

    /// Queries the leader about what is to be erased and has no user any more, now that it is known what
    /// the hypervisor runs; and reports again what is done.
    pub(super) fn query_erasures(
        &mut self,
        expectation: &Expectation,
        known: &[Known],
    ) -> Vec<Effect> {
        let Expectation {
            revision, erasures, ..
        } = expectation;
        self.erasing.expect(*revision, erasures);
        let here = known.iter().map(|known| &known.domain);
        let here = here.chain(self.guests.values().map(|guest| &guest.domain));
        let mut held = BTreeSet::new();
        let mut claims = BTreeSet::new();
        for domain in here {
            held.extend(domain.assignment.pmem.iter().map(|d| d.name.clone()));
            claims.extend(domain.claim);
        }
        let mut reports = Vec::new();
        let mut free = RUNNING_MAX.saturating_sub(self.erasing.running());
        for (name, due) in &mut self.erasing.due {
            let is_held = held.contains(name) || claims.contains(&due.claim);
            if is_held && due.phase == Phase::Queried {
                // A late reply must not begin it.
                due.phase = Phase::Open;
            }
            if due.phase == Phase::Done {
                reports.push(due.report(ErasureProgress::Erased));
            } else if due.is_ready(self.now) && !is_held && free > 0 {
                free -= 1;
                due.phase = Phase::Queried;
                due.reported_bytes = 0;
                reports.push(due.report(ErasureProgress::Running { erased_bytes: 0 }));
            }
        }
        report_effects(reports)
    }

    /// The leader's reply lists what is to be erased: what was queried begins.
    pub(super) fn erasures_due(&mut self, due: &[(ClaimId, PmemName)]) -> Vec<Effect> {
        let mut effects = Vec::new();
        let mut begun = Vec::new();
        // What was queried and is not due has been assigned again since.
        self.erasing.due.retain(|name, known| {
            let mut listed = due.iter();
            known.phase != Phase::Queried || listed.any(|due| *due == (known.claim, name.clone()))
        });
        let free = RUNNING_MAX.saturating_sub(self.erasing.running());
        for (claim, name) in due {
            if begun.len() >= free {
                break;
            }
            let known = self.erasing.due.get(name);
            let mut guests = self.guests.values();
            if guests.any(|guest| guest.domain.assignment.pmem.iter().any(|d| d.name == *name)) {
                continue;
            }
            if known.is_some_and(|due| due.claim == *claim && due.phase == Phase::Queried) {
                begun.push(name.clone());
            }
        }
        for name in begun {
            let token = self.spare_token();
            let path = self.facts.topology.namespace(&name).map(|n| n.path.clone());
            let path = path.filter(|path| !path.is_empty());
            let due = self.erasing.due.get_mut(&name).expect("seen above");
            due.phase = Phase::Running(token);
            due.erased_bytes = 0;
            let mut device = due.device.clone();
            // Its device may have another number since it was assigned.
            device.path = path.unwrap_or(device.path);
            let request = Request::Erase(vec![device]);
            effects.push(Effect::Driver { token, request });
        }
        effects
    }

    /// Takes the driver's result, if it is that of an erasure.
    pub(super) fn erased(
        &mut self,
        token: Token,
        result: &Result<Answer, Error>,
    ) -> Option<Vec<Effect>> {
        let now = self.now;
        let mut all = self.erasing.due.values_mut();
        let due = all.find(|due| due.phase == Phase::Running(token))?;
        let progress = match result {
            Ok(_) => {
                due.phase = Phase::Done;
                ErasureProgress::Erased
            }
            Err(error) => {
                let delay_ms = RETRY_MS_MIN << due.failures.min(16);
                due.failures += 1;
                due.phase = Phase::Failed {
                    retry_at: TimeMs(now.0 + delay_ms.min(RETRY_MS_MAX)),
                };
                ErasureProgress::Failed {
                    failure: shortened(&error.to_string()),
                }
            }
        };
        let report = due.report(progress);
        // Another erasure may begin now.
        self.erasing.eager_until = TimeMs(now.0 + EAGER_MS);
        Some(report_effects(vec![report]))
    }

    /// Records the host's namespaces.
    pub(super) fn take_namespaces(&mut self, namespaces: Vec<PmemNamespace>) {
        // What was looked at by the same rules when the agent started.
        if let Ok(topology) = (*self.facts.topology).clone().with_pmem(namespaces) {
            self.facts.topology = Arc::new(topology);
        }
    }

    /// Records the driver's progress.
    pub(super) fn erased_bytes(&mut self, bytes: &BTreeMap<PmemName, u64>) {
        for (name, due) in &mut self.erasing.due {
            if let (Phase::Running(_), Some(bytes)) = (due.phase, bytes.get(name)) {
                due.erased_bytes = *bytes;
            }
        }
    }

    /// Reports the progress of the erasures periodically.
    pub(super) fn tick_erasing(&mut self) -> Vec<Effect> {
        if self.now.0 < self.erasing.reported_at.0 + REPORT_MS {
            return Vec::new();
        }
        self.erasing.reported_at = self.now;
        let mut reports = Vec::new();
        for due in self.erasing.due.values_mut() {
            if matches!(due.phase, Phase::Running(_)) && due.erased_bytes != due.reported_bytes {
                due.reported_bytes = due.erased_bytes;
                let erased_bytes = due.erased_bytes;
                reports.push(due.report(ErasureProgress::Running { erased_bytes }));
            }
        }
        report_effects(reports)
    }

    /// Returns whether the driver erases something.
    #[must_use]
    pub fn erases(&self) -> bool {
        self.erasing.running() > 0
    }
}

fn report_effects(reports: Vec<ErasureReport>) -> Vec<Effect> {
    match reports.is_empty() {
        true => Vec::new(),
        false => vec![Effect::ReportErasures(reports)],
    }
}

fn shortened(text: &str) -> String {
    let most = ERASURE_FAILURE_LENGTH_MAX.min(text.len());
    let end = (0..=most).rfind(|at| text.is_char_boundary(*at));
    text[..end.unwrap_or(0)].to_owned()
}
