//! Networks: created and deleted, never changed. Interfaces of VMs have copies of what hosts need of them.

use berth_domain::name::NetworkName;
use berth_domain::network::{self, NETWORKS_MAX, Network, NetworkLink};
use berth_domain::refusal::{Code, Refusal};
use berth_domain::version::ServiceVersion;
use berth_domain::vm::{Vm, VmSpec};

use crate::refusals::{cluster_too_old, exists, precondition};
use crate::reply::Reply;
use crate::transaction::{Journal, Transaction};

impl<J: Journal> Transaction<'_, J> {
    pub(super) fn create_network(&mut self, network: &Network) -> Result<Reply, Refusal> {
        if !self.may_write(ServiceVersion::NETWORKS) {
            let (present, needed) = (self.state.header.cluster_version, ServiceVersion::NETWORKS);
            return Err(cluster_too_old("a network", present, needed));
        }
        let name = &network.name;
        if self.state.network(name).is_some() {
            return Err(exists("network", name)
                .with_hint("a network never changes: give the new one another name"));
        }
        if self.state.networks.len() >= NETWORKS_MAX {
            let message =
                format!("the cluster has {NETWORKS_MAX} networks, as many as there may be");
            return Err(
                Refusal::new(Code::ResourceExhausted, "TOO_MANY_NETWORKS", message)
                    .with_hint("delete networks that are not used: berth network list")
                    .with("max", NETWORKS_MAX),
            );
        }
        self.examine_left_behind(name, &network.link)?;
        let created_at = self.now();
        Ok(Reply::Network(self.put_network(Network {
            ownership: self.ownership(network.ownership.project.as_ref()),
            created_at,
            ..network.clone()
        })))
    }

    /// Refuses another network than the one that VMs are on which a restored cluster took over, and whose
    /// network its backup did not have.
    fn examine_left_behind(&self, name: &NetworkName, link: &NetworkLink) -> Result<(), Refusal> {
        let vms = self.state.vms_on_network(name);
        let vms = vms.iter().filter_map(|vm| self.state.vm(vm));
        let links = |vm: &Vm| -> Option<NetworkLink> {
            let mut on_it = vm.spec.networks().filter(|one| one.name == *name);
            on_it
                .find(|one| one.link != *link)
                .map(|one| one.link.clone())
        };
        let Some((vm, other)) = vms.filter_map(|vm| Some((vm, links(vm)?))).next() else {
            return Ok(());
        };
        let message = format!(
            "vm {} is on a network {name} already, which is {other}",
            vm.name
        );
        Err(precondition("NETWORK_DIFFERS", message)
            .with_hint("create it as it was, or give the new network another name")
            .with("network", name)
            .with("vm", &vm.name))
    }

    pub(super) fn delete_network(&mut self, name: &NetworkName) -> Result<Reply, Refusal> {
        if self.state.network(name).is_none() {
            return Err(network::not_found(name));
        }
        let vms = self.state.vms_on_network(name);
        if let Some(vm) = vms.get_min() {
            let count = vms.len();
            let are = match count {
                1 => format!("vm {vm} is on it"),
                count => format!("{count} VMs are on it, among them vm {vm}"),
            };
            let message = format!("network {name} is in use: {are}");
            return Err(precondition("NETWORK_IN_USE", message)
                .with_hint("delete its VMs first")
                .with("network", name)
                .with("vm", vm)
                .with("vms", count));
        }
        self.remove_network(name);
        Ok(Reply::None)
    }

    /// Refuses a new VM on a network that the cluster does not have, or has otherwise.
    pub(super) fn examine_networks(&self, spec: &VmSpec) -> Result<(), Refusal> {
        for attachment in spec.networks() {
            let known = self.state.network(&attachment.name);
            if known.is_none_or(|network| network.link != attachment.link) {
                return Err(network::not_found(&attachment.name));
            }
        }
        Ok(())
    }
}
