//! What goes wrong, and where.

use berth_domain::operation::Step;

/// A call of an operation: that of a step, or the one that takes it back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Site {
    pub(crate) step: Step,
    pub(crate) undo: bool,
}

/// What goes wrong with one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The agent says no.
    Refuse,
    /// The network between conductor and agent is cut, for this many calls.
    Cut(u32),
    /// The call is carried out and its answer is lost, so that it is made again.
    LostAnswer,
    /// There is no answer, and the call arrives this many effects later.
    Late(u32),
    /// The agent dies just before, and is started anew after this many calls.
    AgentDies(u32),
    /// The agent dies just after it has been asked: its hypervisor may go on.
    AgentDiesAfter,
    /// A user cancels just before.
    Cancel,
    /// What is committed next is, but its answers are lost: the leader changes.
    LeaderChanges,
    /// Nothing is committed for a while: nobody leads.
    NobodyLeads,
    /// The two hypervisors do not reach each other.
    HostsCut,
    /// The host dies just before it is asked, with its guests, and is fenced.
    HostDies,
    /// So does the other host on which the VM has a claim, if there is one.
    OtherHostDies,
    /// Both of them.
    BothHostsDie,
}

/// All of them.
pub(crate) const FAULTS: [Fault; 16] = [
    Fault::Refuse,
    Fault::Cut(1),
    Fault::Cut(9),
    Fault::LostAnswer,
    Fault::Late(2),
    Fault::Late(7),
    Fault::AgentDies(0),
    Fault::AgentDies(5),
    Fault::AgentDiesAfter,
    Fault::Cancel,
    Fault::LeaderChanges,
    Fault::NobodyLeads,
    Fault::HostsCut,
    Fault::HostDies,
    Fault::OtherHostDies,
    Fault::BothHostsDie,
];

/// A fault at the first call of a site.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Script {
    pub(crate) site: Site,
    pub(crate) fault: Fault,
}
