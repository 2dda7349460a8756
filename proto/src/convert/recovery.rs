//! Recovery of a cluster whose state is older than its hosts.

use berth_domain::recovery::{Cause, Fate, Recovery, ReportedGuest, SettledVm};

use super::ResourceName as _;
use super::field::{self, Invalid, choices};
use crate::agent::v1::domain_status::State;
use crate::cluster::v1;
use crate::host::v1 as host;

choices!(Cause => v1::recovery::Cause { Restored, QuorumLost });
choices!(Fate => v1::settled_vm::State { Active, Stopped, Error, Added, Replaced, Conflict });

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
            keeps_settled: recovery.keeps_settled,
            settled_count: recovery.settled,
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
            keeps_settled: wire.keeps_settled,
            settled: wire.settled_count,
        })
    }
}

impl From<&SettledVm> for v1::SettledVm {
    fn from(settled: &SettledVm) -> Self {
        let name = |name: Option<String>| name.unwrap_or_default();
        Self {
            vm: name(settled.vm.as_ref().map(|vm| vm.resource_name())),
            state: v1::settled_vm::State::from(settled.fate).into(),
            host: name(settled.host.as_ref().map(|host| host.resource_name())),
            message: settled.message.clone(),
            number: settled.number,
        }
    }
}

impl TryFrom<v1::SettledVm> for SettledVm {
    type Error = Invalid;

    fn try_from(wire: v1::SettledVm) -> Result<Self, Invalid> {
        Ok(Self {
            number: wire.number,
            vm: field::optional_name(&wire.vm, "vm")?,
            fate: field::choice::<v1::settled_vm::State, _>(wire.state, "state")?,
            host: field::optional_name(&wire.host, "host")?,
            message: wire.message,
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
