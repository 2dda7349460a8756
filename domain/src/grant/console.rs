//! The grant to type on the console of a guest.
//!
//! It is apart from the grant of a lease: who may stop a guest may not type in it by that, and the other
//! way round. It names no host, since a session goes where its guest goes.

use super::{LIFETIME_MS, Times, Words};
use crate::id::{ClusterId, TimeMs, VmUid};
use crate::name::ServiceName;
use crate::refusal::Refusal;

const WORDS: Words<'static> = Words {
    grant: "the grant for the console",
    renewal: "open the console again",
};

/// That a conductor may type on the console of a guest for a user.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ConsoleGrant {
    /// The cluster.
    pub cluster: ClusterId,
    /// The VM.
    pub vm: VmUid,
    /// Who types.
    pub conductor: ServiceName,
    /// The principal of the user for whom it does.
    pub user: String,
    /// When it was made.
    pub issued_at: TimeMs,
    /// Until when it is valid.
    pub expires_at: TimeMs,
}

/// What a [`ConsoleGrant`] is compared with.
#[derive(Clone, Copy, Debug)]
pub struct PresentedConsole<'a> {
    /// The agent's cluster.
    pub cluster: ClusterId,
    /// The VM of the call.
    pub vm: VmUid,
    /// The name in the caller's certificate; absent where callers have none.
    pub caller: Option<&'a str>,
    /// The time of the cluster, as the agent knows it.
    pub now: TimeMs,
    /// When the scheduler stopped to use the key, if it did.
    pub key_retired_at: Option<TimeMs>,
}

impl ConsoleGrant {
    /// What the signed bytes begin with, before the encoded grant: so they are those of no other message.
    pub const PREFIX: &[u8] = b"berth.operation.v1.ConsoleGrant\0";

    /// Returns a grant that is made now.
    #[must_use]
    pub fn new(
        cluster: ClusterId,
        vm: VmUid,
        conductor: ServiceName,
        user: String,
        now: TimeMs,
    ) -> Self {
        Self {
            cluster,
            vm,
            conductor,
            user,
            issued_at: now,
            expires_at: TimeMs(now.0.saturating_add(LIFETIME_MS)),
        }
    }

    /// Checks that the grant is for this call.
    ///
    /// # Errors
    ///
    /// What differs.
    pub fn check(&self, call: &PresentedConsole<'_>) -> Result<(), Refusal> {
        let times = Times {
            issued_at: self.issued_at,
            expires_at: self.expires_at,
        };
        times.check(call.now, call.key_retired_at, &WORDS)?;
        WORDS.same("cluster", &self.cluster, &call.cluster)?;
        WORDS.same("VM", &self.vm, &call.vm)?;
        call.caller.map_or(Ok(()), |caller| {
            WORDS.same("conductor", &self.conductor.as_str(), &caller)
        })
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;
    use crate::grant::{EXPIRED, INVALID, OF_ANOTHER, SKEW_MS};

    /// Goal: a grant is for what it names and for nothing else. Method: each field of the call changed
    /// alone.
    #[test]
    fn each_difference_is_refused() {
        let uuid = |n: u128| Uuid::from_u128(n);
        let conductor = ServiceName::new("conductor-1").unwrap();
        let at = TimeMs(1_000_000_000);
        let grant = ConsoleGrant::new(
            ClusterId(uuid(1)),
            VmUid(uuid(2)),
            conductor,
            "operator:alice".to_owned(),
            at,
        );
        let call = PresentedConsole {
            cluster: ClusterId(uuid(1)),
            vm: VmUid(uuid(2)),
            caller: Some("conductor-1"),
            now: at,
            key_retired_at: None,
        };
        let nameless = PresentedConsole {
            caller: None,
            ..call
        };
        let last = PresentedConsole {
            now: TimeMs(at.0 + LIFETIME_MS + SKEW_MS),
            ..call
        };
        for good in [call, nameless, last] {
            assert_eq!(grant.check(&good), Ok(()));
        }
        let cases = [
            (
                PresentedConsole {
                    cluster: ClusterId(uuid(9)),
                    ..call
                },
                OF_ANOTHER,
            ),
            (
                PresentedConsole {
                    vm: VmUid(uuid(9)),
                    ..call
                },
                OF_ANOTHER,
            ),
            (
                PresentedConsole {
                    caller: Some("conductor-2"),
                    ..call
                },
                OF_ANOTHER,
            ),
            (
                PresentedConsole {
                    now: TimeMs(last.now.0 + 1),
                    ..call
                },
                EXPIRED,
            ),
            (
                PresentedConsole {
                    now: TimeMs(at.0 - SKEW_MS - 1),
                    ..call
                },
                INVALID,
            ),
            (
                PresentedConsole {
                    key_retired_at: Some(TimeMs(at.0 - SKEW_MS - 1)),
                    ..call
                },
                INVALID,
            ),
        ];
        for (bad, reason) in cases {
            assert_eq!(grant.check(&bad).unwrap_err().reason, reason, "{bad:?}");
        }
        let forever = ConsoleGrant {
            expires_at: TimeMs(at.0 + LIFETIME_MS + 1),
            ..grant
        };
        assert_eq!(forever.check(&call).unwrap_err().reason, INVALID);
    }
}
