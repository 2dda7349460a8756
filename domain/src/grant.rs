//! Grants: what a conductor may do at agents under one lease.
//!
//! The scheduler makes a grant with the lease and signs it; an agent checks it without a call to
//! anyone, so that settling goes on while there is no leader. Not here: the signature, which the
//! scheduler makes and the agent checks over the encoded bytes.
//!
//! Invariant: a grant is for one lease of one operation on one VM, for one conductor and for the
//! hosts that the operation is about; whatever differs is refused with its own sentence.

mod console;
mod image;

use std::collections::BTreeSet;
use std::fmt;

use crate::agent::Fence;
use crate::id::{ClusterId, Epoch, OperationId, TimeMs, VmUid};
use crate::name::{HostName, ServiceName};
use crate::refusal::{Code, Refusal};

pub use console::{ConsoleGrant, PresentedConsole};
pub use image::{ImageGrant, PresentedImage};

/// How long a grant is valid. Long, as no grant can be renewed while there is no leader.
pub const LIFETIME_MS: u64 = 24 * 60 * 60 * 1000;

/// By how much the time of the cluster as an agent knows it may differ from the time of the one that made a
/// grant.
pub const SKEW_MS: u64 = 5 * 60 * 1000;

/// How many keys are valid at a time: the present one and the one before it.
pub const KEYS_MAX: usize = 2;

/// Reason: the call carries no grant.
pub const MISSING: &str = "GRANT_MISSING";
/// Reason: the grant has expired.
pub const EXPIRED: &str = "GRANT_EXPIRED";
/// Reason: the grant is none that the scheduler of this cluster made with a valid key.
pub const INVALID: &str = "GRANT_INVALID";
/// Reason: the grant is for another lease, VM, host or caller.
pub const OF_ANOTHER: &str = "GRANT_OF_ANOTHER";

/// What to do about a call that its grant is not for.
const CALL_ITS_HOSTS: &str = "call the hosts of the operation's claims, under its present lease";

/// Returns whether a refusal means that the call may be repeated with a newer grant.
#[must_use]
pub fn is_renewable(refusal: &Refusal) -> bool {
    matches!(refusal.reason.as_str(), MISSING | EXPIRED | INVALID)
}

/// The secret from which a key pair is derived.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct GrantSeed(pub [u8; 32]);

impl fmt::Debug for GrantSeed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("GrantSeed(…)")
    }
}

/// A key with which the scheduler signs grants; of the replicated state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct GrantKey {
    /// Counts the keys of the cluster from 1.
    pub number: u32,
    /// The secret.
    pub seed: GrantSeed,
    /// When it was made, in replicated time.
    pub created_at: TimeMs,
}

/// The keys of a cluster, the present one first.
pub type GrantKeys = [Option<GrantKey>; KEYS_MAX];

/// What a conductor may do at agents.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Grant {
    /// The cluster.
    pub cluster: ClusterId,
    /// The operation.
    pub operation: OperationId,
    /// The VM that it works on.
    pub vm: VmUid,
    /// The lease.
    pub epoch: Epoch,
    /// Who holds it.
    pub conductor: ServiceName,
    /// The hosts that the operation is about when the grant is made.
    pub hosts: BTreeSet<HostName>,
    /// The host that the VM leaves, where it moves.
    pub source: Option<HostName>,
    /// The host that it comes to, where it moves.
    pub destination: Option<HostName>,
    /// When it was made.
    pub issued_at: TimeMs,
    /// Until when it is valid.
    pub expires_at: TimeMs,
}

/// What a grant is compared with.
#[derive(Clone, Copy, Debug)]
pub struct Presented<'a> {
    /// The agent's cluster.
    pub cluster: ClusterId,
    /// The agent's host.
    pub host: &'a HostName,
    /// The fence of the call.
    pub fence: &'a Fence,
    /// The time of the cluster, as the agent knows it.
    pub now: TimeMs,
    /// When the scheduler stopped to use the key, if it did.
    pub key_retired_at: Option<TimeMs>,
}

impl Grant {
    /// Checks that the grant is for this call; who the caller is, is checked apart.
    ///
    /// # Errors
    ///
    /// What differs.
    pub fn check(&self, call: &Presented<'_>) -> Result<(), Refusal> {
        self.check_time(call)?;
        let Fence {
            vm,
            operation,
            epoch,
            incarnation: _,
            attempt: _,
        } = call.fence;
        self.same("cluster", &self.cluster, &call.cluster)?;
        self.same("VM", &self.vm, vm)?;
        self.same("operation", &self.operation, operation)?;
        self.same("epoch", &self.epoch, epoch)?;
        if self.hosts.contains(call.host) {
            return Ok(());
        }
        Err(of_another(format!(
            "the grant of operation {} is not for host {}",
            self.operation, call.host
        )))
    }

    /// Checks that the caller is the conductor of the grant; `None` where callers have no names.
    ///
    /// # Errors
    ///
    /// When it is another one.
    pub fn check_conductor(&self, caller: Option<&str>) -> Result<(), Refusal> {
        caller.map_or(Ok(()), |caller| {
            self.same("conductor", &self.conductor.as_str(), &caller)
        })
    }

    /// Checks that this host is the source of the move, and the caller (`None` where callers have no
    /// names) the agent of its destination.
    ///
    /// # Errors
    ///
    /// When the grant is for another move.
    pub fn check_reader(
        &self,
        host: &HostName,
        is_agent_of: Option<&dyn Fn(&HostName) -> bool>,
    ) -> Result<(), Refusal> {
        let is_source = self.source.as_ref() == Some(host);
        let (Some(destination), true) = (&self.destination, is_source) else {
            return Err(of_another(format!(
                "the grant of operation {} is for no move away from host {host}",
                self.operation
            )));
        };
        match is_agent_of.is_none_or(|is_agent_of| is_agent_of(destination)) {
            true => Ok(()),
            false => Err(of_another(format!(
                "the grant of operation {} lets the agent of host {destination} read disks, and not \
                 the caller",
                self.operation
            ))),
        }
    }

    fn check_time(&self, call: &Presented<'_>) -> Result<(), Refusal> {
        let times = Times {
            issued_at: self.issued_at,
            expires_at: self.expires_at,
        };
        let grant = format!("the grant of operation {}", self.operation);
        let words = Words {
            grant: &grant,
            renewal: "renew the lease of the operation, and repeat the call",
        };
        times.check(call.now, call.key_retired_at, &words)
    }

    fn same<T: PartialEq + fmt::Display>(
        &self,
        what: &str,
        granted: &T,
        called: &T,
    ) -> Result<(), Refusal> {
        let grant = format!("the grant of operation {}", self.operation);
        let words = Words {
            grant: &grant,
            renewal: CALL_ITS_HOSTS,
        };
        words.same(what, granted, called)
    }
}

/// What refusals say of a grant.
#[derive(Clone, Copy, Debug)]
struct Words<'a> {
    /// What it is.
    grant: &'a str,
    /// How to get another one.
    renewal: &'a str,
}

impl Words<'_> {
    /// Checks that a call is for what is granted.
    fn same<T: PartialEq + fmt::Display>(
        &self,
        what: &str,
        granted: &T,
        called: &T,
    ) -> Result<(), Refusal> {
        if granted == called {
            return Ok(());
        }
        let message = format!("{} is for another {what} than {called}", self.grant);
        Err(refusal(OF_ANOTHER, message).with_hint(self.renewal))
    }
}

/// When a grant was made, and until when it is valid.
#[derive(Clone, Copy, Debug)]
struct Times {
    issued_at: TimeMs,
    expires_at: TimeMs,
}

impl Times {
    /// Checks them against the time of the cluster, and against when its key ceased to be used.
    fn check(
        self,
        now: TimeMs,
        key_retired_at: Option<TimeMs>,
        words: &Words<'_>,
    ) -> Result<(), Refusal> {
        let Self {
            issued_at,
            expires_at,
        } = self;
        let lifetime_ms = expires_at.0.checked_sub(issued_at.0);
        if lifetime_ms.is_none_or(|lifetime_ms| lifetime_ms > LIFETIME_MS) {
            return Err(invalid("its times are none that a scheduler gives"));
        }
        if issued_at.0 > now.0.saturating_add(SKEW_MS) {
            return Err(invalid("it was made in the future").with_hint(
                "repeat the call after the next heartbeat of the agent; if that fails too, and the \
                 schedulers are older than the agent, compare the clocks",
            ));
        }
        let is_late = |retired: TimeMs| issued_at.0 > retired.0.saturating_add(SKEW_MS);
        if key_retired_at.is_some_and(is_late) {
            return Err(invalid("it was made with a key that was replaced before"));
        }
        if now.0 > expires_at.0.saturating_add(SKEW_MS) {
            return Err(refusal(EXPIRED, format!("{} has expired", words.grant))
                .with("expired_ms", now.0 - expires_at.0)
                .with_hint(words.renewal));
        }
        Ok(())
    }
}

fn refusal(reason: &str, message: impl Into<String>) -> Refusal {
    Refusal::new(Code::PermissionDenied, reason, message)
}

/// Returns the refusal of a call without a grant.
#[must_use]
pub fn missing() -> Refusal {
    refusal(MISSING, "the call carries no grant of the scheduler").with_hint(
        "an agent of a cluster at version 4 is called by the conductor that holds the lease of an \
         operation; take the lease first",
    )
}

/// Returns the refusal of a grant that no scheduler of the cluster made.
#[must_use]
pub fn invalid(why: &str) -> Refusal {
    refusal(INVALID, format!("the grant is not valid: {why}"))
}

fn of_another(message: String) -> Refusal {
    refusal(OF_ANOTHER, message).with_hint(CALL_ITS_HOSTS)
}

#[cfg(test)]
mod tests;
