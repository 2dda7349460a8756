//! The hosts as the choice of one sees them.

use std::sync::Arc;

use berth_domain::constraint::exact;
use berth_domain::host_view::HostView;
use berth_domain::name::HostName;
use berth_domain::refusal::Refusal;
use berth_selection::failover::Broken;
use berth_selection::fleet::FleetGuest;
use berth_selection::{Choice, Index, NoHost, Request, explain};
use berth_state::State;
use imbl::OrdMap;

use super::admission::Reserve;
use super::request::Preferred;

/// Chooses a host of a state. What it remembers from one choice to the next only makes it
/// faster: for the same state and request every chooser chooses the same. Only where the policy asks
/// for admission, a proof that is kept may be known where one from scratch is not found in time.
pub trait Chooser {
    /// Returns the choice.
    ///
    /// # Errors
    ///
    /// When no host will do.
    fn choose(&mut self, state: &State, request: &Request) -> Result<Choice, NoHost>;

    /// Returns which proofs that a failure is survived a guest would break.
    ///
    /// # Errors
    ///
    /// The state contradicts itself.
    fn would_break(&mut self, state: &State, guest: &FleetGuest) -> Result<Vec<Broken>, Refusal>;

    /// Nobody asks any more which proofs break: what is remembered for it is dropped.
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

/// A "no" by all hosts whose reason is still to be worked out. That takes longer than the decision,
/// since every host is asked, so it is done elsewhere; the hosts are those of the decision.
#[derive(Clone, Debug, PartialEq)]
pub struct Unexplained {
    request: Request,
    hosts: OrdMap<HostName, Arc<HostView>>,
}

impl Unexplained {
    pub(super) fn new(request: Request, state: &State) -> Self {
        Self {
            request,
            hosts: state.hosts().clone(),
        }
    }

    /// Returns the reason.
    #[must_use]
    pub fn explain(&self) -> Refusal {
        explain::nowhere(&self.request, self.hosts.values())
    }
}

/// Why nothing is scheduled.
#[derive(Clone, Debug)]
pub(super) enum No {
    /// For this reason.
    Refusal(Box<Refusal>),
    /// No host will do.
    Nowhere(Box<Unexplained>),
}

impl From<Refusal> for No {
    fn from(refusal: Refusal) -> Self {
        Self::Refusal(Box::new(refusal))
    }
}

/// Returns what a plan has, if it will do, and otherwise the choice. A plan that is followed exactly
/// leaves for those that come later what it has for them.
pub(super) fn choose_preferring(
    chooser: &mut dyn Chooser,
    state: &State,
    preferred: Option<&Preferred>,
    request: Request,
) -> Result<Choice, No> {
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
) -> Result<Choice, No> {
    chooser.choose(state, &request).map_err(|no| match no {
        NoHost::Named(refusal) => No::Refusal(refusal),
        NoHost::Nowhere => No::Nowhere(Box::new(Unexplained::new(request, state))),
    })
}
