//! Who sends what to whom.

use std::collections::BTreeSet;
use std::sync::Arc;

use berth_agent_core::Expectation;
use berth_decide::DecisionRequest;
use berth_domain::agent::{Call, Fence, Reply as AgentReply};
use berth_domain::id::{ClaimId, Incarnation, OperationId, RequestId};
use berth_domain::name::{FlavorName, HostName, ServiceName, VmName};
use berth_domain::operation::{Kind, Operation};
use berth_domain::pmem::PmemDevice;
use berth_domain::refusal::Refusal;
use berth_domain::transfer::TransferOverrides;
use berth_domain::version::ServiceVersion;
use berth_domain::volume::Volume;
use berth_saga::Facts;
use berth_scheduler::membership::Knowledge;
use berth_state::Reply;
use berth_state::command::Command;
use raft::eraftpb::Message;

/// A node of the simulated cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Node {
    /// A member of the scheduler, by the number of its machine.
    Member(u64),
    /// A conductor.
    Conductor(usize),
    /// The agent of a host.
    Agent(usize),
    /// The user.
    User,
    /// A client of the Placement REST API.
    Writer(usize),
    /// One of those who add and remove members.
    Administrator(usize),
}

/// Joins an answer with its question; unique in a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CallNumber(pub u64);

/// What a member states of itself when it begins a stream to another.
#[derive(Clone, Debug)]
pub struct Hello {
    /// The identity of its disk.
    pub disk: Arc<str>,
    /// Its start; each has a stream of its own.
    pub life: u64,
}

/// What is sent.
#[derive(Clone, Debug)]
pub enum Packet {
    /// Between members.
    Raft(Hello, Box<Message>),
    /// A checkpoint for a member that fell behind, with what Raft says about it.
    Snapshot(Hello, Box<Message>, Vec<u8>),
    /// To a member.
    Question(CallNumber, Box<Question>),
    /// From a client that any member serves.
    Write(CallNumber, Box<Command>),
    /// From a member.
    Told(CallNumber, Box<Told>),
    /// To an agent.
    Call(CallNumber, Fence, Box<Call>),
    /// From an agent.
    Answer(CallNumber, Box<Result<AgentReply, Refusal>>),
    /// From the user to a conductor.
    Wish(CallNumber, RequestId, Box<Wish>),
    /// From a conductor to the user: the operation, where one was begun.
    Granted(CallNumber, Box<Result<Option<Operation>, Refusal>>),
}

/// What a member is asked.
#[derive(Clone, Debug)]
#[allow(clippy::large_enum_variant, reason = "always boxed in a packet")]
pub enum Question {
    /// To decide and replicate.
    Decide(DecisionRequest),
    /// For an operation and what is known beside it.
    Facts(OperationId),
    /// For a drain, and which of its moves have ended.
    Drain(OperationId),
    /// For operations whose lease ran out.
    Expired,
    /// For the run of an agent that is registered; stands for the agents' heartbeat.
    Registered(HostName),
    /// For a registered conductor.
    Service(ServiceName),
    /// For what an agent is to expect of its host.
    Expected(HostName),
    /// For the namespaces that an agent is to erase.
    Erasures(HostName),
    /// For the volumes of a host.
    Volumes(HostName),
    /// For the members, or for another membership.
    Members(MembersRequest),
}

/// A request of the service `ClusterService`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MembersRequest {
    /// What the member knows of the membership.
    Status,
    /// Takes in the member that begins at this address on this disk.
    Join(String, String),
    /// Adds the member that will begin at this address, without a vote.
    Add(String),
    /// Gives a learner a vote.
    Promote(u64),
    /// Takes a member out.
    Remove(u64),
    /// Has another member lead.
    Transfer(Option<u64>),
}

/// The response to a request for the members.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MembersResponse {
    /// What the member knows.
    Status(Knowledge),
    /// The number of the member that was added.
    Member(u64),
    /// It is done.
    Done,
    /// It is not done.
    Refused(Refusal),
}

/// What a member answers.
#[derive(Clone, Debug)]
#[allow(clippy::large_enum_variant, reason = "always boxed in a packet")]
pub enum Told {
    /// To a decision.
    Decided(Result<Reply, Refusal>),
    /// To a question for facts; nothing if there is no such operation.
    Facts(Option<(Operation, Facts)>),
    /// To a question for a drain; nothing if there is no such operation.
    Drain(Option<(Operation, BTreeSet<OperationId>)>),
    /// To a question for operations.
    Expired(Vec<OperationId>),
    /// To a question for a registration.
    Registered(Option<Incarnation>),
    /// To a question for a conductor.
    Service(Option<ServiceVersion>),
    /// To a question for what to expect.
    Expected(Box<Expectation>),
    /// To a question for erasures.
    Erasures(Vec<(ClaimId, PmemDevice)>),
    /// To a question for volumes.
    Volumes(Vec<Volume>),
    /// To a request for the members.
    Members(MembersResponse),
    /// Another member leads, perhaps the one on this machine; nothing happened.
    NotLeader(Option<u64>),
    /// It may have happened.
    Lost,
}

/// What the user wants.
#[derive(Clone, Debug)]
pub enum Wish {
    /// A VM of this flavor.
    Boot(VmName, FlavorName, Option<HostName>),
    /// A VM elsewhere.
    Migrate(VmName, Option<HostName>, TransferOverrides),
    /// A VM elsewhere, stopped for it.
    ColdMigrate(VmName, Option<HostName>),
    /// A VM of another flavor, to be verified or not.
    Resize(VmName, FlavorName, bool),
    /// What a resize brought.
    Confirm(VmName),
    /// What was before a resize.
    Revert(VmName),
    /// A VM's host given back.
    Shelve(VmName),
    /// A shelved VM.
    Unshelve(VmName, Option<HostName>),
    /// Something done to a VM where it is.
    Power(VmName, Kind),
    /// A VM gone.
    Delete(VmName),
    /// Every VM of a host elsewhere, also those that have to be stopped for it.
    Drain(HostName, bool),
    /// A host that takes VMs again.
    Uncordon(HostName),
    /// An operation given up.
    Cancel(OperationId),
    /// To have an operation's transfer end soon.
    ForceComplete(OperationId),
}
