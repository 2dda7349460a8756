//! The hosts as the choice of one sees them.

use berth_domain::refusal::Refusal;
use berth_selection::Choice;
use berth_state::State;

/// Chooses a host of a state. What it remembers from one choice to the next only makes it
/// faster: for the same state and request every chooser chooses the same.
pub trait Chooser {
    /// Returns the choice.
    ///
    /// # Errors
    ///
    /// When no host will do, with the explanation.
    fn choose(
        &mut self,
        state: &State,
        request: &berth_selection::Request,
    ) -> Result<Choice, Refusal>;
}

/// Looks at every host each time.
#[derive(Clone, Copy, Debug, Default)]
pub struct EveryHost;

impl Chooser for EveryHost {
    fn choose(
        &mut self,
        state: &State,
        request: &berth_selection::Request,
    ) -> Result<Choice, Refusal> {
        berth_selection::select(request, state.hosts().values())
    }
}
