//! The choice of a host.

use berth_domain::constraint::{MoveKind, RestartReason, exact};
use berth_domain::cpu_model::CpuMismatch;
use berth_domain::fence::may_evacuate;
use berth_domain::hint::Hint;
use berth_domain::host::Liveness;
use berth_domain::policy::Admission;
use berth_domain::refusal::Refusal;
use berth_selection::failover::Broken;
use berth_selection::fleet::FleetGuest;
use berth_selection::{Choice, Index, NoHost, Request, explain};
use berth_state::State;

use super::admission::Reserve;
use super::request::Preferred;
use super::surroundings::{Subject, Surroundings};

/// Chooses a host of a state. What it caches between choices only makes it
/// faster: for the same state and request every chooser chooses the same. Only where the policy calls
/// for admission, a cached proof may be known where computing one would exceed the budget.
pub trait Chooser {
    /// Returns the choice.
    ///
    /// # Errors
    ///
    /// When no host fits.
    fn choose(&mut self, state: &State, request: &Request) -> Result<Choice, NoHost>;

    /// Returns which failover proofs a guest would break.
    ///
    /// # Errors
    ///
    /// The state is inconsistent.
    fn would_break(&mut self, state: &State, guest: &FleetGuest) -> Result<Vec<Broken>, Refusal>;

    /// Drops the cached proofs: admission control is off.
    fn forget_reserve(&mut self);
}

/// Looks at every host each time.
#[derive(Clone, Copy, Debug, Default)]
pub struct EveryHost;

impl Chooser for EveryHost {
    fn choose(&mut self, state: &State, request: &Request) -> Result<Choice, NoHost> {
        Index::from_hosts(state.hosts().values()).select(request)
    }

    fn would_break(&mut self, state: &State, guest: &FleetGuest) -> Result<Vec<Broken>, Refusal> {
        Reserve::default().would_break(state, guest)
    }

    fn forget_reserve(&mut self) {}
}

/// A refusal that is still to be explained. That takes longer than the decision, since every host
/// is evaluated and changes of them are tried, so it is done elsewhere, on the state of the
/// decision.
#[derive(Clone, Debug, PartialEq)]
pub struct Unexplained {
    request: Request,
    state: State,
    /// The VM; unset: only the hosts are looked at.
    subject: Option<Subject>,
}

impl Unexplained {
    pub(super) fn new(request: Request, state: &State) -> Self {
        Self {
            request,
            state: state.clone(),
            subject: None,
        }
    }

    /// Returns the reason, and the change after which the request succeeds.
    #[must_use]
    pub fn explain(&self) -> Refusal {
        let hosts = self.state.hosts().values();
        let Some(subject) = &self.subject else {
            return explain::nowhere(&self.request, hosts);
        };
        let surroundings = Surroundings {
            state: &self.state,
            subject,
        };
        let refusal = explain::refusal(&self.request, hosts, &surroundings);
        // What was tried does not include the proofs that admission control would check.
        let is_guarded = self.state.policy().failover.admission == Admission::Refuse;
        match is_guarded && subject.takes_more || self.is_out_of_reach(subject) {
            true => Refusal {
                hint: None,
                change: None,
                ..refusal
            },
            false => self.or_stopped(refusal, subject),
        }
    }

    /// Adds that a running VM can be moved stopped where hosts cannot give it the CPU that it runs with:
    /// once it is restarted it has another.
    fn or_stopped(&self, refusal: Refusal, subject: &Subject) -> Refusal {
        let is_cpu = refusal
            .causes
            .keys()
            .any(|cause| CpuMismatch::is_cause(cause));
        let leaving = self.request.demand.leaving.as_ref();
        let is_live = leaving.is_some_and(|leaving| leaving.kind == MoveKind::Live);
        // Another host is the dearest of all remedies.
        let is_open = match refusal.change.as_deref() {
            None => refusal.hint.is_none(),
            Some(Hint::AnyHostAnd(change)) => adds_host(change),
            Some(change) => adds_host(change),
        };
        if !is_open || !is_cpu {
            return refusal;
        }
        if !is_live && refusal.hint.is_none() && refusal.causes.contains_key("CPU_MODEL_UNKNOWN") {
            return refusal
                .with_hint("the models that hosts know are listed by `berth cpu models`");
        }
        if !is_live || !self.fits_stopped(subject) {
            return refusal;
        }
        let (owner, host) = match &self.request.requested {
            Some(host) => ("that host's", format!(" --host {host}")),
            None => ("another host's", String::new()),
        };
        let vm = &subject.vm;
        let stopped = format!("restart it with {owner} CPU: `berth vm migrate {vm} --cold{host}`");
        let hint = match &refusal.hint {
            Some(hint) => format!("{stopped}; or {hint}"),
            None => stopped,
        };
        refusal.with_hint(hint)
    }

    fn fits_stopped(&self, subject: &Subject) -> bool {
        let vm = self.state.vm(&subject.vm);
        let demand = vm.and_then(|vm| {
            let demand = self.state.cold_demand(vm, &vm.spec, RestartReason::Move);
            demand.ok()
        });
        demand.is_some_and(|demand| {
            let request = Request {
                demand,
                ..self.request.clone()
            };
            let hosts = self.state.hosts().values();
            Index::from_hosts(hosts).select(&request).is_ok()
        })
    }

    /// Returns whether the VM is on a host that is DOWN and may run there: no change elsewhere moves it.
    fn is_out_of_reach(&self, subject: &Subject) -> bool {
        let host = self.state.vm(&subject.vm).and_then(|vm| vm.host.as_ref());
        let view = host.and_then(|name| self.state.host(name));
        view.is_some_and(|view| {
            view.host.liveness == Liveness::Down
                && may_evacuate(&view.host, self.state.time()).is_err()
        })
    }
}

fn adds_host(change: &Hint) -> bool {
    matches!(change, Hint::AddHost { .. })
}

/// Why no host was chosen.
#[derive(Clone, Debug)]
pub(super) enum Unschedulable {
    /// The request was refused.
    Refusal(Box<Refusal>),
    /// Unschedulable host fits.
    NoHost(Box<Unexplained>),
}

impl Unschedulable {
    /// Returns it with the VM, so that its hint can look at what is around it.
    pub(super) fn about(mut self, subject: impl FnOnce() -> Subject) -> Self {
        if let Self::NoHost(unexplained) = &mut self {
            unexplained.subject = Some(subject());
        }
        self
    }
}

impl From<Refusal> for Unschedulable {
    fn from(refusal: Refusal) -> Self {
        Self::Refusal(Box::new(refusal))
    }
}

/// Returns the planned placement, if it still fits, and otherwise a choice. A plan that is followed
/// exactly leaves to later guests what it reserves for them.
pub(super) fn choose_preferring(
    chooser: &mut dyn Chooser,
    state: &State,
    preferred: Option<&Preferred>,
    request: Request,
) -> Result<Choice, Unschedulable> {
    let Some(preferred) = preferred else {
        return choose(chooser, state, request);
    };
    let planned = Request {
        requested: Some(preferred.host.clone()),
        ..request.clone()
    };
    let Ok(mut choice) = choose(chooser, state, planned) else {
        return choose(chooser, state, request);
    };
    if let (Some(view), Some(assignment)) = (state.host(&choice.host), &preferred.assignment)
        && exact::admit(view, &request.demand, assignment).is_ok()
    {
        choice.assignment = assignment.clone();
    }
    Ok(choice)
}

/// Returns the choice.
pub(super) fn choose(
    chooser: &mut dyn Chooser,
    state: &State,
    request: Request,
) -> Result<Choice, Unschedulable> {
    let chosen = chooser.choose(state, &request);
    chosen.map_err(|_| Unschedulable::NoHost(Box::new(Unexplained::new(request, state))))
}
