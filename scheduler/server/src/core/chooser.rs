//! The hosts as the choice of one sees them.

use std::sync::Arc;

use berth_domain::host_view::HostView;
use berth_domain::name::HostName;
use berth_domain::refusal::Refusal;
use berth_selection::{Choice, Index, NoHost, Request, explain};
use berth_state::State;
use imbl::OrdMap;

/// Chooses a host of a state. What it remembers from one choice to the next only makes it
/// faster: for the same state and request every chooser chooses the same.
pub trait Chooser {
    /// Returns the choice.
    ///
    /// # Errors
    ///
    /// When no host will do.
    fn choose(&mut self, state: &State, request: &Request) -> Result<Choice, NoHost>;
}

/// Looks at every host each time.
#[derive(Clone, Copy, Debug, Default)]
pub struct EveryHost;

impl Chooser for EveryHost {
    fn choose(&mut self, state: &State, request: &Request) -> Result<Choice, NoHost> {
        Index::from_hosts(state.hosts().values()).select(request)
    }
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
