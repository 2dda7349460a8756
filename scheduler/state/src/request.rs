//! The requests that the state remembers, so that a retry gets the first answer again.
//!
//! What is remembered is the outcome: a retry gets it as it was, whatever became of the objects; of a refusal
//! that [is long](Refusal::is_long), what records keep of it. A
//! client that would get an object as it is by then, with its later generation, could overwrite with
//! its next write what others wrote meanwhile. Before cluster version
//! [`ServiceVersion::RECORDED_OUTCOMES`] it is a receipt that names the object, and the retry does
//! get that object as it is by then; such receipts stay until they are forgotten.
//!
//! The window is bounded by count ([`REMEMBERED_MAX`]), and the outcomes by their memory
//! ([`OUTCOMES_BYTES_MAX`]). A request whose outcome is forgotten is still known, and does not run
//! twice: a few large outcomes must not shorten the time in which a retry is recognised.
//!
//! A request whose entry was dropped must not run twice. Ids of UUID version 7 tell when their
//! client made them; the header keeps a mark, and an id that is not younger is refused. A dropped
//! request raises the mark to the time in its id, but not beyond the moment when it was carried out:
//! a client whose clock is ahead must not shut out the others. Its own ids meet the mark later, when
//! requests of that time are dropped. Until then, and for ids of other versions, it cannot be known
//! whether they were dropped, so they run.

use std::sync::Arc;

use berth_domain::allocation::Consumer;
use berth_domain::id::{ConsumerId, OperationId, ProviderId, RequestId, TimeMs};
use berth_domain::name::{
    AggregateName, FlavorName, HostName, PciAliasName, ServerGroupName, ServiceName, VolumeId,
};
use berth_domain::refusal::{Code, Refusal};
use berth_domain::resource::{ResourceClass, Trait};
use berth_domain::version::ServiceVersion;
use uuid::Uuid;

use crate::command::RequestKey;
use crate::reply::Reply;
use crate::state::{Index, State};
use crate::weight;

/// How many requests are remembered, and how much their outcomes may weigh ([`Request::weight`]), in
/// bytes. The oldest outcomes are forgotten first, the newest never.
pub use berth_domain::bound::{OUTCOMES_BYTES_MAX, REMEMBERED_MAX};

/// The reason of a refusal for a request that was decided, and whose outcome is forgotten.
pub const OUTCOME_FORGOTTEN: &str = "OUTCOME_FORGOTTEN";

/// The reason of a refusal of what is from before a recovery of the cluster, and of operations that it
/// ended.
pub const CLUSTER_RESTORED: &str = "CLUSTER_RESTORED";

/// The reason of a refusal of a request whose id was used for another one.
pub const REQUEST_ID_REUSED: &str = "REQUEST_ID_REUSED";

/// What tells one request from all others.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RequestName {
    /// The client's id of the request; first, because it alone decides nearly every comparison.
    pub id: RequestId,
    /// The method.
    pub method: String,
    /// The caller.
    pub principal: String,
}

/// What a remembered request led to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Receipt {
    /// The outcome as it was. The receipts below are from before
    /// [`ServiceVersion::RECORDED_OUTCOMES`].
    Outcome(Arc<Result<Reply, Refusal>>),
    /// It was decided; the outcome is forgotten, as there were too many large ones since.
    Forgotten,
    /// It was done, and there is nothing to show for it.
    None,
    /// A host.
    Host(HostName),
    /// A conductor.
    Service(ServiceName),
    /// A flavor.
    Flavor(FlavorName),
    /// A PCI alias.
    PciAlias(PciAliasName),
    /// A provider.
    Provider(ProviderId),
    /// Consumers.
    Consumers(Vec<ConsumerId>),
    /// Providers and consumers.
    Batch {
        /// The providers.
        providers: Vec<ProviderId>,
        /// The consumers.
        consumers: Vec<ConsumerId>,
    },
    /// A resource class.
    Class {
        /// Its name.
        name: ResourceClass,
        /// Whether it was there before.
        existed: bool,
    },
    /// A trait.
    Trait {
        /// Its name.
        name: Trait,
        /// Whether it was there before.
        existed: bool,
    },
    /// An aggregate of hosts.
    Aggregate(AggregateName),
    /// A server group.
    ServerGroup(ServerGroupName),
    /// The scheduling policy.
    Policy,
    /// An operation.
    Operation(OperationId),
    /// Leases that were held.
    Leases(Vec<OperationId>),
    /// It was refused.
    Refused(Refusal),
    /// A volume.
    Volume(VolumeId),
}

/// A remembered request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Which.
    pub name: Arc<RequestName>,
    /// Its place in the order in which requests are forgotten.
    pub sequence: u64,
    /// When it was carried out, in replicated time.
    pub received_at: TimeMs,
    /// A hash of the request.
    pub payload_hash: u128,
    /// What it led to.
    pub receipt: Receipt,
}

/// What is known of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Recall {
    /// It is to be carried out.
    New,
    /// It was, or it may not be: this is its answer.
    Answered(Result<Reply, Refusal>),
}

impl Request {
    /// Returns what its outcome counts against [`OUTCOMES_BYTES_MAX`]: about the memory that it
    /// needs, in bytes. A receipt from before [`ServiceVersion::RECORDED_OUTCOMES`] counts nothing,
    /// since older members count none.
    #[must_use]
    pub fn weight(&self) -> u64 {
        if let Receipt::Outcome(outcome) = &self.receipt {
            return weight::of_outcome(outcome);
        }
        0
    }
}

impl Receipt {
    /// Returns the receipt of an outcome, as a cluster version has it.
    pub(crate) fn of(outcome: &Result<Reply, Refusal>, cluster: ServiceVersion) -> Self {
        match cluster >= ServiceVersion::RECORDED_OUTCOMES {
            // A refusal that names all it was given, as of traits that do not exist, may be longer than
            // what a member reads back.
            true => Self::Outcome(Arc::new(outcome.clone().map_err(|no| no.as_record(true)))),
            false => Self::by_name(outcome),
        }
    }

    fn by_name(outcome: &Result<Reply, Refusal>) -> Self {
        match outcome {
            Err(refusal) => Self::Refused(refusal.clone()),
            Ok(Reply::None) => Self::None,
            Ok(Reply::Host(host)) => Self::Host(host.name.clone()),
            Ok(Reply::Service(service)) => Self::Service(service.name.clone()),
            Ok(Reply::Flavor(flavor)) => Self::Flavor(flavor.name.clone()),
            Ok(Reply::PciAlias(alias)) => Self::PciAlias(alias.name.clone()),
            // There is none before outcomes are recorded.
            Ok(Reply::Image(_) | Reply::Network(_)) => Self::None,
            Ok(Reply::Provider(provider)) => Self::Provider(provider.id),
            Ok(Reply::Consumers(consumers)) => {
                Self::Consumers(consumers.iter().map(|c| c.id).collect())
            }
            Ok(Reply::Batch {
                providers,
                consumers,
            }) => Self::Batch {
                providers: providers.iter().map(|p| p.id).collect(),
                consumers: consumers.iter().map(|c| c.id).collect(),
            },
            Ok(Reply::Class { class, existed }) => Self::Class {
                name: class.name.clone(),
                existed: *existed,
            },
            Ok(Reply::Trait { custom, existed }) => Self::Trait {
                name: custom.name.clone(),
                existed: *existed,
            },
            Ok(Reply::Aggregate(aggregate)) => Self::Aggregate(aggregate.name.clone()),
            Ok(Reply::ServerGroup(group)) => Self::ServerGroup(group.name.clone()),
            Ok(Reply::Policy(_)) => Self::Policy,
            Ok(Reply::Operation(operation)) => Self::Operation(operation.id),
            Ok(Reply::Leases(operations)) => Self::Leases(operations.clone()),
            Ok(Reply::Volume(volume)) => Self::Volume(volume.id.clone()),
        }
    }
}

impl Index {
    pub(crate) fn put_request(&mut self, request: &Request) {
        let (sequence, weight) = (request.sequence, request.weight());
        self.remembered.insert(sequence, request.name.clone());
        if weight > 0 {
            self.outcomes.insert(sequence);
            self.outcomes_weight += weight;
        }
    }

    pub(crate) fn remove_request(&mut self, request: &Request) {
        self.remembered.remove(&request.sequence);
        self.outcomes.remove(&request.sequence);
        self.outcomes_weight -= request.weight();
    }
}

impl RequestName {
    pub(crate) fn new(principal: &str, key: &RequestKey) -> Self {
        Self {
            id: key.id,
            method: key.method.clone(),
            principal: principal.to_owned(),
        }
    }
}

/// Returns when the id was made, if it tells.
pub(crate) fn made_at(id: Uuid) -> Option<TimeMs> {
    if id.get_version_num() != 7 {
        return None;
    }
    let (seconds, nanos) = id.get_timestamp()?.to_unix();
    let millis = u64::from(nanos) / 1_000_000;
    Some(TimeMs(seconds.saturating_mul(1000).saturating_add(millis)))
}

impl State {
    /// Returns what is known of a request. Deciding on one begins with this.
    #[must_use]
    pub fn recall(&self, principal: &str, key: &RequestKey) -> Recall {
        let name = RequestName::new(principal, key);
        if let Some(request) = self.requests.get(&name) {
            return Recall::Answered(if request.payload_hash == key.payload_hash {
                self.answer_again(&request.receipt)
            } else {
                Err(Refusal::new(
                    Code::InvalidArgument,
                    REQUEST_ID_REUSED,
                    format!(
                        "request id {} was used before for another {}",
                        key.id, key.method
                    ),
                )
                .with_hint("use a new request id for each request"))
            });
        }
        match made_at(key.id.0) {
            Some(made_at) if self.header.recovery.is_some_and(|r| made_at <= r.began_at) => {
                Recall::Answered(Err(Refusal::new(
                    Code::FailedPrecondition,
                    CLUSTER_RESTORED,
                    format!(
                        "request id {} was made before the cluster was restored: it cannot be known whether it was carried out",
                        key.id
                    ),
                )
                .with_hint(
                    "look whether it took effect, and if not, repeat it with a new request id",
                )))
            }
            Some(made_at) if made_at <= self.header.forgotten => Recall::Answered(Err(
                Refusal::new(
                    Code::FailedPrecondition,
                    "REQUEST_ID_FORGOTTEN",
                    format!(
                        "request id {} is older than what is remembered: it cannot be known whether it was carried out",
                        key.id
                    ),
                )
                .with_hint("look whether it took effect, then ask with a new request id; check the client's clock"),
            )),
            Some(_) | None => Recall::New,
        }
    }

    /// Returns why an operation is not known: there is none, or it may be one that a recovery has lost.
    #[must_use]
    pub fn unknown_operation(&self, id: OperationId) -> Refusal {
        let recovery = self.header.recovery;
        let is_older = made_at(id.0)
            .zip(recovery)
            .is_some_and(|(at, r)| at <= r.began_at);
        if !is_older {
            return Refusal::not_found("operation", id);
        }
        Refusal::new(
            // Who follows it ends, as with one that is forgotten.
            Code::NotFound,
            CLUSTER_RESTORED,
            format!(
                "operation {id} is of before the cluster was restored, and not in the restored state: it cannot be \
                 known whether it was carried out"
            ),
        )
        .with_hint("look whether it took effect, as with `berth vm list`, and if not, request it again")
    }

    /// Returns the host that a recorded request with this id returned, if it returned one.
    #[must_use]
    pub fn recorded_host(&self, principal: &str, key: &RequestKey) -> Option<&HostName> {
        match &self
            .requests
            .get(&RequestName::new(principal, key))?
            .receipt
        {
            Receipt::Host(name) => Some(name),
            Receipt::Outcome(outcome) => match &**outcome {
                Ok(Reply::Host(host)) => Some(&host.name),
                Ok(_) | Err(_) => None,
            },
            Receipt::Forgotten
            | Receipt::None
            | Receipt::Service(_)
            | Receipt::Flavor(_)
            | Receipt::PciAlias(_)
            | Receipt::Provider(_)
            | Receipt::Consumers(_)
            | Receipt::Batch { .. }
            | Receipt::Class { .. }
            | Receipt::Trait { .. }
            | Receipt::Aggregate(_)
            | Receipt::ServerGroup(_)
            | Receipt::Volume(_)
            | Receipt::Policy
            | Receipt::Operation(_)
            | Receipt::Leases(_)
            | Receipt::Refused(_) => None,
        }
    }

    fn those_left(&self, consumers: &[ConsumerId]) -> Vec<Arc<Consumer>> {
        let consumers = consumers.iter();
        consumers
            .filter_map(|id| self.consumer(*id).cloned())
            .collect()
    }

    fn answer_again(&self, receipt: &Receipt) -> Result<Reply, Refusal> {
        let record = match receipt {
            Receipt::Outcome(outcome) => return (**outcome).clone(),
            Receipt::Forgotten => return Err(outcome_forgotten()),
            Receipt::Refused(refusal) => return Err(refusal.clone()),
            Receipt::None => Some(Reply::None),
            Receipt::Leases(operations) => Some(Reply::Leases(operations.clone())),
            Receipt::Host(name) => self.host(name).map(|v| Reply::Host(v.host.clone())),
            Receipt::Service(name) => self.service(name).cloned().map(Reply::Service),
            Receipt::Flavor(name) => self.flavor(name).cloned().map(Reply::Flavor),
            Receipt::PciAlias(name) => self.pci_alias(name).cloned().map(Reply::PciAlias),
            Receipt::Provider(id) => self.provider(*id).cloned().map(Reply::Provider),
            Receipt::Class { name, existed } => self.class(name).map(|class| Reply::Class {
                class: class.clone(),
                existed: *existed,
            }),
            Receipt::Trait { name, existed } => {
                self.custom_trait(name).map(|custom| Reply::Trait {
                    custom: custom.clone(),
                    existed: *existed,
                })
            }
            Receipt::Aggregate(name) => self.aggregate(name).cloned().map(Reply::Aggregate),
            Receipt::ServerGroup(name) => self.server_group(name).cloned().map(Reply::ServerGroup),
            Receipt::Volume(id) => self.volume(id).cloned().map(Reply::Volume),
            Receipt::Policy => Some(Reply::Policy(self.policy.clone())),
            Receipt::Operation(id) => self.operation(*id).cloned().map(Reply::Operation),
            Receipt::Consumers(ids) => Some(Reply::Consumers(self.those_left(ids))),
            Receipt::Batch {
                providers,
                consumers,
            } => Some(Reply::Batch {
                providers: providers
                    .iter()
                    .filter_map(|id| self.provider(*id).cloned())
                    .collect(),
                consumers: self.those_left(consumers),
            }),
        };
        record.ok_or_else(|| {
            Refusal::new(
                Code::NotFound,
                "ANSWER_GONE",
                "the request was carried out before, but what it made is gone since",
            )
        })
    }
}

fn outcome_forgotten() -> Refusal {
    Refusal::new(
        Code::FailedPrecondition,
        OUTCOME_FORGOTTEN,
        "the request was decided before, but its outcome is forgotten: there were many large ones since",
    )
    .with_hint("look whether it took effect; it is not executed again under this request id")
}
