//! How the replica's own refusals look on the wire.

use berth_domain::name::HostName;
use berth_domain::refusal::{Code, Refusal};
use berth_proto::convert::Invalid;
use berth_proto::status::{OUTCOME_UNKNOWN, not_leader, to_status};
use berth_replication::runtime::{MembershipError, ProposeError, ReadError};
use berth_store::Member;
use tonic::Status;

use crate::core::membership;

pub(crate) fn of_propose(error: ProposeError) -> Status {
    match error {
        ProposeError::NotLeader { leader } => elsewhere(leader.as_ref()),
        ProposeError::Lost { leader } => to_status(&unavailable(
            OUTCOME_UNKNOWN,
            "the leader changed or stopped while the request was on its way: it may or may not \
             have been carried out",
            leader.as_ref(),
        )),
        ProposeError::Stopped => stopping(),
    }
}

pub(crate) fn of_read(error: ReadError) -> Status {
    match error {
        ReadError::Unconfirmed { leader } => to_status(&unavailable(
            "READ_NOT_CONFIRMED",
            "no majority of the members confirmed the read in time",
            leader.as_ref(),
        )),
        ReadError::NoState => to_status(&unavailable(
            "NO_STATE_YET",
            "this member has not received the state yet",
            None,
        )),
        ReadError::Stopped => stopping(),
    }
}

pub(crate) fn of_membership(error: MembershipError) -> Status {
    let refusal = match error {
        MembershipError::Refused { refused, leader } => match membership::refusal_of(&refused) {
            Some(refusal) => refusal,
            None => return elsewhere(leader.as_ref()),
        },
        MembershipError::Lost { leader } => unavailable(
            OUTCOME_UNKNOWN,
            "the leader changed or stopped while the membership changed: the change may or may \
             not have been made",
            leader.as_ref(),
        ),
        MembershipError::Stopped => return stopping(),
    };
    to_status(&refusal)
}

/// Returns the status that redirects to the leader.
pub(crate) fn elsewhere(leader: Option<&Member>) -> Status {
    to_status(&not_leader(leader.map(url).as_deref()))
}

/// Returns where clients reach a member.
pub(crate) fn url(member: &Member) -> String {
    format!("http://{}", member.address)
}

pub(crate) fn stopping() -> Status {
    to_status(&unavailable("STOPPING", "this member is stopping", None))
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

fn unavailable(reason: &str, message: &str, leader: Option<&Member>) -> Refusal {
    let refusal = Refusal::new(Code::Unavailable, reason, message);
    match leader {
        Some(member) => refusal.with("leader", url(member)),
        None => refusal,
    }
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
