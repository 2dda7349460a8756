//! Where the members of each server group are in a speculative fleet.

use std::collections::BTreeMap;

use berth_domain::name::{HostName, ServerGroupName};
use imbl::OrdMap;

use super::FleetGuest;

/// How many claims the members of each group have on each host; hosts and groups without any are
/// left out.
#[derive(Clone, Debug, Default)]
pub(super) struct Members(OrdMap<ServerGroupName, OrdMap<HostName, u32>>);

impl Members {
    /// Counts the claims of a guest: where it is, and beside that.
    pub(super) fn add(&mut self, guest: &FleetGuest) {
        let also = guest.also_on.iter();
        for host in also.chain([&guest.claim.host]) {
            self.add_at(guest, host);
        }
    }

    /// Counts one claim.
    pub(super) fn add_at(&mut self, guest: &FleetGuest, host: &HostName) {
        if let Some(group) = guest.group() {
            let hosts = self.0.entry(group.name.clone()).or_default();
            *hosts.entry(host.clone()).or_default() += 1;
        }
    }

    /// Counts one claim no more.
    pub(super) fn remove_at(&mut self, guest: &FleetGuest, host: &HostName) {
        let Some(group) = guest.group() else {
            return;
        };
        let hosts = self.0.get_mut(&group.name);
        let hosts = hosts.expect("the claim was counted before");
        let count = hosts.get_mut(host).expect("the claim was counted before");
        *count -= 1;
        if *count == 0 {
            hosts.remove(host);
        }
        if hosts.is_empty() {
            self.0.remove(&group.name);
        }
    }

    /// Returns how many claims members of the group have on each host.
    pub(super) fn of(&self, group: &ServerGroupName) -> impl Iterator<Item = (&HostName, u32)> {
        let hosts = self.0.get(group).into_iter().flatten();
        hosts.map(|(host, count)| (host, *count))
    }

    /// Returns where members other than this guest are, without hosts that failed.
    pub(super) fn others(
        &self,
        guest: &FleetGuest,
        own: Option<&HostName>,
        has_failed: impl Fn(&HostName) -> bool,
    ) -> BTreeMap<HostName, u32> {
        let Some(group) = guest.group() else {
            return BTreeMap::new();
        };
        let all = self.of(&group.name).filter(|(host, _)| !has_failed(host));
        let mut others: BTreeMap<HostName, u32> =
            all.map(|(host, count)| (host.clone(), count)).collect();
        for host in guest.also_on.iter().chain(own) {
            if let Some(count) = others.get_mut(host) {
                *count -= 1;
            }
        }
        others.retain(|_, count| *count > 0);
        others
    }
}
