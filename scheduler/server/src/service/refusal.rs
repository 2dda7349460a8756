//! How the replica's own refusals look on the wire.

use berth_domain::name::HostName;
use berth_domain::refusal::{Code, Refusal};
use berth_proto::convert::Invalid;
use berth_proto::status::{OUTCOME_UNKNOWN, not_leader, to_status};
use berth_replication::runtime::{MembershipError, ProposeError, ReadError};
use berth_store::Member;
use tonic::Status;

use crate::membership;

/// How a member's address is written for clients: the scheme says whether its connections are encrypted,
/// as those of all members are or are not.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Urls {
    scheme: &'static str,
}

impl Urls {
    pub(crate) fn new(is_encrypted: bool) -> Self {
        let scheme = if is_encrypted { "https" } else { "http" };
        Self { scheme }
    }

    /// Returns where clients reach a member.
    pub(crate) fn of(self, member: &Member) -> String {
        format!("{}://{}", self.scheme, member.address)
    }

    /// Returns the status that redirects to the leader.
    pub(crate) fn elsewhere(self, leader: Option<&Member>) -> Status {
        let leader = leader.map(|member| self.of(member));
        to_status(&not_leader(leader.as_deref()))
    }

    pub(crate) fn of_propose(self, error: ProposeError) -> Status {
        match error {
            ProposeError::NotLeader { leader } => self.elsewhere(leader.as_ref()),
            ProposeError::Lost { leader } => to_status(&self.unavailable(
                OUTCOME_UNKNOWN,
                "the leader changed or stopped while the request was on its way: it may or may not \
                 have been carried out",
                leader.as_ref(),
            )),
            ProposeError::Stopped => stopping(),
        }
    }

    pub(crate) fn of_read(self, error: ReadError) -> Status {
        match error {
            ReadError::Unconfirmed { leader } => to_status(&self.unavailable(
                "READ_NOT_CONFIRMED",
                "no majority of the members confirmed the read in time",
                leader.as_ref(),
            )),
            ReadError::NoState => to_status(&self.unavailable(
                "NO_STATE_YET",
                "this member has not received the state yet",
                None,
            )),
            ReadError::Stopped => stopping(),
        }
    }

    pub(crate) fn of_membership(self, error: MembershipError) -> Status {
        let refusal = match error {
            MembershipError::Refused { refused, leader } => {
                match membership::refusal_of(&refused) {
                    Some(refusal) => refusal,
                    None => return self.elsewhere(leader.as_ref()),
                }
            }
            MembershipError::Lost { leader } => self.unavailable(
                OUTCOME_UNKNOWN,
                "the leader changed or stopped while the membership changed: the change may or may \
                 not have been made",
                leader.as_ref(),
            ),
            MembershipError::Stopped => return stopping(),
        };
        to_status(&refusal)
    }

    fn unavailable(self, reason: &str, message: &str, leader: Option<&Member>) -> Refusal {
        let refusal = unavailable(reason, message);
        match leader {
            Some(member) => refusal.with("leader", self.of(member)),
            None => refusal,
        }
    }
}

pub(crate) fn stopping() -> Status {
    to_status(&unavailable("STOPPING", "this member is stopping"))
}

pub(crate) fn timed_out() -> Status {
    to_status(
        &Refusal::new(
            Code::DeadlineExceeded,
            OUTCOME_UNKNOWN,
            "the request was not answered in time: it may or may not be carried out",
        )
        .with_hint("repeat it with the same request id"),
    )
}

pub(crate) fn invalid(field: &str, rule: &str) -> Status {
    Invalid::new(field, rule).into()
}

/// Checks the address under which a program registers.
pub(crate) fn check_server_url(field: &str, address: &str) -> Result<(), Status> {
    match berth_process::listening::is_server_url(address) {
        true => Ok(()),
        false => Err(invalid(
            field,
            "must be of the form http://host:port or https://host:port",
        )),
    }
}

/// A reply of another kind than the command gives: a fault in the program.
pub(crate) fn mismatch() -> Status {
    to_status(&Refusal::new(
        Code::Internal,
        "REPLY_MISMATCH",
        "the state returned a reply of another kind than requested",
    ))
}

/// A search that panicked: a fault in the program.
pub(crate) fn search_failed() -> Status {
    to_status(&Refusal::new(
        Code::Internal,
        "SEARCH_FAILED",
        "the search among the resource providers failed",
    ))
}

fn unavailable(reason: &str, message: &str) -> Refusal {
    Refusal::new(Code::Unavailable, reason, message)
}

/// A cluster knows its own hosts only.
pub(crate) fn no_host(name: &HostName) -> Refusal {
    Refusal::new(
        Code::NotFound,
        "HOST_NOT_FOUND",
        format!("host {name} is not part of this cluster"),
    )
    .with("host", name)
}
