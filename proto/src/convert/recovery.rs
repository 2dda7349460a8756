//! Recovery of a cluster whose state is older than its hosts.

use berth_domain::recovery::{Cause, Recovery, ReportedGuest};

use super::field::{self, Invalid, choices};
use crate::agent::v1::domain_status::State;
use crate::cluster::v1;
use crate::host::v1 as host;

choices!(Cause => v1::recovery::Cause { Restored, QuorumLost });

impl From<&Recovery> for v1::Recovery {
    fn from(recovery: &Recovery) -> Self {
        Self {
            number: recovery.number,
            cause: v1::recovery::Cause::from(recovery.cause).into(),
            begin_time: Some(field::timestamp(recovery.began_at)),
            last_revision: recovery.last_revision,
            first_revision: recovery.first_revision,
            end_time: recovery.ended_at.map(field::timestamp),
            volumes_follow_guests: recovery.volumes_follow_guests,
        }
    }
}

impl TryFrom<v1::Recovery> for Recovery {
    type Error = Invalid;

    fn try_from(wire: v1::Recovery) -> Result<Self, Invalid> {
        Ok(Self {
            number: wire.number,
            cause: field::choice::<v1::recovery::Cause, _>(wire.cause, "cause")?,
            began_at: field::time(wire.begin_time, "begin_time")?,
            last_revision: wire.last_revision,
            first_revision: wire.first_revision,
            ended_at: field::optional_time(wire.end_time, "end_time")?,
            volumes_follow_guests: wire.volumes_follow_guests,
        })
    }
}

impl From<&ReportedGuest> for host::ReportedGuest {
    fn from(guest: &ReportedGuest) -> Self {
        Self {
            domain: Some((&guest.domain).into()),
            state: State::from(guest.state).into(),
            spec: guest.spec.as_deref().map(Into::into),
        }
    }
}

impl TryFrom<host::ReportedGuest> for ReportedGuest {
    type Error = Invalid;

    fn try_from(wire: host::ReportedGuest) -> Result<Self, Invalid> {
        Ok(Self {
            domain: field::required(wire.domain, "domain")?,
            state: field::choice::<State, _>(wire.state, "state")?,
            spec: field::optional(wire.spec, "spec")?.map(Box::new),
        })
    }
}
