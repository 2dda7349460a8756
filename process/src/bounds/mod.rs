//! How much of a server one caller may hold: connections, requests, watches, plans, bytes.
//!
//! ```text
//!   connection ─▶ Caller (certificate or address) ─▶ request ─▶ body, by the frame ─▶ the method
//!                 Connections                        Requests, Watches,  BodyBytes     Held, as long
//!                                                    Plans, Searches                   as it works
//! ```
//!
//! | module | what |
//! |---|---|
//! | [`table`] | role x resource: how much |
//! | [`methods`] | which method takes what |
//! | [`layer`] | in front of the methods |
//! | `request_body` | what of a request holds a permit, and until when |
//! | [`refusal`] | the refusal, as a status and in the log |
//! | [`open_files`] | how many connections the process may have |
//!
//! Not here: which role may call what ([`crate::access`]); handshakes (`berth_tls::server`).
//!
//! Invariant: what is counted is given back when its [`Permit`] is dropped, and by nothing else; of a
//! caller that holds nothing, nothing is stored.

pub mod layer;
pub mod methods;
pub mod open_files;
pub mod refusal;
mod request_body;
pub mod table;

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use berth_tls::{Peer, Role};
use tonic::Status;

pub use layer::Held;
pub use open_files::OpenFiles;
pub use refusal::{Refused, Scope};
pub use table::{Class, Limits, Resource, Tier, Times};

/// How many different resources there are.
const RESOURCES: usize = Resource::ALL.len();

/// Who is counted as one caller.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Key {
    /// A role and a name: all certificates with them.
    Identity(Role, String),
    /// An address, or a network of IPv6.
    Address(IpAddr),
    /// The clients of a socket of this machine.
    Local,
}

impl Key {
    /// Returns that of a peer.
    #[must_use]
    pub fn of(peer: &Peer) -> Self {
        match (&peer.identity, peer.address) {
            (Some(identity), _) => Self::Identity(identity.role, identity.name.clone()),
            (None, Some(address)) => Self::Address(berth_tls::source(address.ip())),
            (None, None) => Self::Local,
        }
    }

    /// Returns its class.
    #[must_use]
    pub fn class(&self) -> Class {
        match self {
            Self::Identity(role, _) => Class::Role(*role),
            Self::Address(_) => Class::Address,
            Self::Local => Class::Local,
        }
    }

    /// Returns how it is named in refusals, as `reader:bob`.
    #[must_use]
    pub fn name(&self) -> String {
        match self {
            Self::Identity(role, name) => format!("{role}:{name}"),
            Self::Address(address) => format!("address {address}"),
            Self::Local => "the local socket".to_owned(),
        }
    }
}

/// What is held, by resource.
type Amounts = [u64; RESOURCES];

#[derive(Debug, Default)]
struct Amount {
    callers: HashMap<Key, Amounts>,
    /// Of each tier and those after it.
    tiers: [Amounts; Tier::ALL.len()],
}

/// What the callers of one server hold.
#[derive(Debug)]
pub struct Bounds {
    limits: Limits,
    held: Mutex<Amount>,
    log: refusal::RefusalLog,
}

impl Bounds {
    /// Returns those of a server of which nothing is held yet.
    #[must_use]
    pub fn new(limits: Limits) -> Arc<Self> {
        Arc::new(Self {
            limits,
            held: Mutex::default(),
            log: refusal::RefusalLog::default(),
        })
    }

    /// Returns the limits.
    #[must_use]
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Returns a caller.
    #[must_use]
    pub fn caller(self: &Arc<Self>, key: Key) -> Caller {
        Caller(Arc::new(Counted {
            class: key.class(),
            name: key.name(),
            key,
            bounds: self.clone(),
        }))
    }

    /// Returns how much of a resource all callers hold together.
    #[must_use]
    pub fn held(&self, resource: Resource) -> u64 {
        self.lock().tiers[0][resource as usize]
    }

    /// Returns how many callers hold anything.
    #[must_use]
    pub fn callers(&self) -> usize {
        self.lock().callers.len()
    }

    fn lock(&self) -> MutexGuard<'_, Amount> {
        // All counts of one permit are changed together, and nothing in between can fail.
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Debug)]
struct Counted {
    key: Key,
    class: Class,
    name: String,
    bounds: Arc<Bounds>,
}

/// A caller of a server. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Caller(Arc<Counted>);

impl Caller {
    /// Returns its class.
    #[must_use]
    pub fn class(&self) -> Class {
        self.0.class
    }

    /// Returns the bounds that it is counted in.
    #[must_use]
    pub fn bounds(&self) -> &Arc<Bounds> {
        &self.0.bounds
    }

    /// Returns how much of a resource it may hold.
    #[must_use]
    pub fn max(&self, resource: Resource) -> u64 {
        self.0.bounds.limits.each(self.0.class, resource)
    }

    /// Takes so much of a resource until the permit is dropped.
    ///
    /// # Errors
    ///
    /// When it, or all of its tier, would hold more than they may.
    pub fn acquire(&self, resource: Resource, amount: u64) -> Result<Permit, Refused> {
        let counted = &*self.0;
        let refused = |scope, bound| Refused {
            resource,
            scope,
            caller: counted.name.clone(),
            bound,
        };
        let index = resource as usize;
        let mut held = counted.bounds.lock();
        let own = held.callers.get(&counted.key).map_or(0, |own| own[index]);
        let max = self.max(resource);
        if own.saturating_add(amount) > max {
            return Err(refused(Scope::Caller, max));
        }
        let total = counted.bounds.limits.of(resource);
        for tier in tiers_of(counted.class) {
            let share = tier.share(total);
            if held.tiers[tier as usize][index].saturating_add(amount) > share {
                return Err(refused(Scope::Tier(tier), share));
            }
        }
        held.callers.entry(counted.key.clone()).or_default()[index] += amount;
        for tier in tiers_of(counted.class) {
            held.tiers[tier as usize][index] += amount;
        }
        drop(held);
        Ok(Permit {
            caller: self.clone(),
            resource,
            amount,
        })
    }

    /// Records a refusal in the log.
    pub fn log(&self, status: &Status) {
        self.0.bounds.log.record(&self.0.name, status);
    }
}

/// Returns the tiers that a caller of a class is counted in, the narrowest first.
fn tiers_of(class: Class) -> impl Iterator<Item = Tier> {
    let own = class.tier();
    Tier::ALL.into_iter().rev().filter(move |tier| *tier <= own)
}

/// So much of a resource, until it is dropped.
#[derive(Debug)]
pub struct Permit {
    caller: Caller,
    resource: Resource,
    amount: u64,
}

impl Drop for Permit {
    fn drop(&mut self) {
        let counted = &*self.caller.0;
        let index = self.resource as usize;
        let mut held = counted.bounds.lock();
        for tier in tiers_of(counted.class) {
            held.tiers[tier as usize][index] -= self.amount;
        }
        if let Some(own) = held.callers.get_mut(&counted.key) {
            own[index] -= self.amount;
            if own.iter().all(|amount| *amount == 0) {
                held.callers.remove(&counted.key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(role: Role, name: &str) -> Key {
        Key::Identity(role, name.to_owned())
    }

    /// Goal: of every resource, whatever readers, operators and agents take, a member, a conductor and
    /// an agent get some; and nothing is left behind. Method: each class takes all it gets, by many
    /// callers, in the order from the least privileged one.
    #[test]
    fn a_reserve_is_left() {
        let bounds = Bounds::new(Limits::new(400));
        for resource in Resource::ALL {
            if resource == Resource::Streams {
                continue;
            }
            let mut permits = Vec::new();
            for role in [Role::Reader, Role::Operator] {
                let is_bytes = resource == Resource::BodyBytes;
                let amount = if is_bytes { 1 << 20 } else { 1 };
                for number in 0..2_000 {
                    let caller = bounds.caller(key(role, &format!("n{number}")));
                    let refused = loop {
                        match caller.acquire(resource, amount) {
                            Ok(permit) => permits.push(permit),
                            Err(refused) => break refused,
                        }
                    };
                    if number == 0 && role == Role::Reader {
                        assert_eq!(refused.scope, Scope::Caller, "{refused:?}");
                    }
                    if matches!(refused.scope, Scope::Tier(_)) {
                        break;
                    }
                }
                let others = [
                    Role::Scheduler,
                    Role::Conductor,
                    Role::Agent,
                    Role::CsiController,
                ];
                for other in others {
                    let other = bounds.caller(key(other, "x"));
                    assert!(
                        other.acquire(resource, amount).is_ok(),
                        "{role} {resource:?}"
                    );
                }
            }
            drop(permits);
            assert_eq!((bounds.held(resource), bounds.callers()), (0, 0));
        }
    }

    /// Goal: one caller leaves some of everything to another one of its class.
    #[test]
    fn one_leaves_some_to_another() {
        let bounds = Bounds::new(Limits::new(400));
        for class in Class::ALL {
            let keys = match class {
                Class::Role(role) => [key(role, "a"), key(role, "b")],
                Class::Address => [1, 2].map(|n| Key::Address([10, 0, 0, n].into())),
                Class::Local => continue,
            };
            for resource in Resource::ALL {
                let [one, other] = keys.clone().map(|key| bounds.caller(key));
                // Members are counted so that their faults are seen, and hold no bodies of users.
                let all = matches!(class, Class::Role(Role::Scheduler))
                    && resource == Resource::BodyBytes;
                if resource == Resource::Streams || all {
                    continue;
                }
                let max = one.max(resource);
                let permit = one.acquire(resource, max).unwrap();
                let refused = one.acquire(resource, 1).unwrap_err();
                assert_eq!((refused.scope, refused.bound), (Scope::Caller, max));
                assert!(other.acquire(resource, 1).is_ok(), "{class:?} {resource:?}");
                drop(permit);
            }
        }
    }

    #[test]
    fn a_refusal_states_what_and_whose() {
        let bounds = Bounds::new(Limits::new(400));
        let bob = bounds.caller(key(Role::Reader, "bob"));
        let refused = bob.acquire(Resource::Watches, 65).unwrap_err();
        let status = refused.to_status();
        assert_eq!(
            status.message(),
            "too many watches: 64 of reader:bob at most"
        );
        let info = tonic_types::StatusExt::get_details_error_info(&status).unwrap();
        assert_eq!(info.reason, "TOO_MANY_WATCHES");
        let value = |key: &str| info.metadata[key].as_str();
        assert_eq!(
            (value("bound"), value("of"), value("max")),
            ("watches", "reader:bob", "64")
        );
        assert!(!value("hint").is_empty());
    }
}
