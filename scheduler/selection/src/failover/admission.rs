//! Which proofs a new claim would break.
//!
//! Not here: whether it is refused for that. A policy says so, and evacuations may use what is kept
//! for them.
//!
//! Invariant: the tracker is as before afterwards.

use std::collections::BTreeSet;
use std::fmt;

use berth_domain::refusal::{Code, HOSTS_MAX, Refusal};

use super::tracker::{Doubt, Key, VerdictTracker};
use super::{Domain, Verdict};
use crate::fleet::{Error, FleetGuest};

/// A domain that can fail now, and could not any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Broken {
    /// The domain.
    pub domain: Domain,
    /// What would be said of it: refuted, or not known.
    pub verdict: Verdict,
}

/// As much as so many changes may cost, one question may: what exceeds it is reported as not
/// known any more.
const ADMISSION_CHANGES: u64 = 4;

impl VerdictTracker {
    /// Returns the first few domains that are proven and would not be any more with this claim:
    /// none, if it does no harm. What is refuted now is not checked; what a change was too much for
    /// is, as if it were proven.
    ///
    /// # Errors
    ///
    /// The claim is on no host that is there.
    pub fn would_break(&mut self, guest: &FleetGuest) -> Result<Vec<Broken>, Error> {
        let host = &guest.claim.host;
        let mark = self.fleet.mark();
        let queued = self.queued();
        let is_new = self.fleet.guest(&guest.vm).is_none();
        self.fleet.join(guest.clone())?;
        self.forget_reach(host);
        let altered: BTreeSet<_> = is_new.then(|| guest.vm.clone()).into_iter().collect();
        let groups = guest.group().map(|group| group.name.clone());
        let mut doubtful = self.homes_of_members(&groups.into_iter().collect());
        if is_new {
            doubtful.extend(self.homes_of(host));
        }
        let leaning = self.leaning_on(host);
        let fallen = leaning.into_iter().filter(|key| !self.stands(key, host));
        let fallen: Vec<Key> = fallen.collect();
        doubtful.extend(fallen);
        let doubt = Doubt {
            host: Some(host),
            altered: &altered,
        };
        let mut broken = Vec::new();
        self.take_time(self.budget.per_change * ADMISSION_CHANGES);
        for key in doubtful {
            if broken.len() >= HOSTS_MAX {
                break;
            }
            // One that a change was too much for may be proven: it is checked like those that are.
            if self.kept[&key].verdict.plan().is_none() && !self.is_pending(&key) {
                continue;
            }
            let verdict = self.repaired(&key, doubt);
            if verdict.plan().is_none() {
                let domain = self.kept[&key].domain.clone();
                broken.push(Broken { domain, verdict });
            }
        }
        self.fleet.undo(mark);
        self.forget_reach(host);
        self.queue(queued);
        Ok(broken)
    }
}

impl Broken {
    /// Returns what would help.
    #[must_use]
    pub fn help(&self) -> String {
        match &self.verdict {
            Verdict::Refuted(bound) => bound.help(),
            Verdict::Proven(_) | Verdict::Unknown { .. } => {
                "add a host, or move guests off the fullest ones".to_owned()
            }
        }
    }
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = &self.domain.name;
        let is_host = self.domain.hosts.iter().all(|host| host.as_str() == name);
        let what = if is_host { "host " } else { "" };
        match &self.verdict {
            Verdict::Refuted(bound) => {
                write!(f, "{what}{name} could not fail any more: {bound}")
            }
            Verdict::Unknown { tried, stuck } => write!(
                f,
                "it would not be known any more whether {what}{name} can fail: after {tried} \
                 placements there was no host left for vm {stuck}"
            ),
            Verdict::Proven(_) => write!(f, "{what}{name} can fail"),
        }
    }
}

/// Returns the refusal of a claim for the sake of these domains; none where there are none.
#[must_use]
pub fn refusal(guest: &FleetGuest, broken: &[Broken]) -> Option<Refusal> {
    let first = broken.first()?;
    let others = match broken.len() {
        1 => "",
        HOSTS_MAX.. => " (and many further failure domains)",
        _ => " (and further failure domains)",
    };
    let names: Vec<&str> = broken.iter().map(|b| b.domain.name.as_str()).collect();
    let names = names.join(", ");
    let message = format!(
        "with vm {} on host {}, {first}{others}",
        guest.vm, guest.claim.host
    );
    let hint = format!(
        "{}; or say failover.admission=warn for the cluster",
        first.help()
    );
    let refusal = Refusal::new(Code::ResourceExhausted, "FAILOVER_CAPACITY", message);
    let refusal = refusal.with_hint(hint).with("vm", &guest.vm);
    Some(refusal.with("failure_domains", names))
}
