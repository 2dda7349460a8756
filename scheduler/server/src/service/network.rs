//! Reads of networks, with the VMs that are on them and the hosts that can give them.
//!
//! Invariant: the hosts are gone through once for a page, however many networks are on it.

use std::collections::BTreeMap;

use berth_domain::name::{HostName, NetworkName};
use berth_domain::network::{self, HostNetwork, Network, NetworkLink};
use berth_proto::convert::page::Page;
use berth_proto::convert::{ResourceName as _, field};
use berth_proto::scheduler::v1;
use berth_proto::status::to_status;
use berth_proto::types::v1 as types;
use berth_state::state::State;
use tonic::{Response, Status};

use super::context::Context;
use super::list;

type Answer<T> = Result<Response<T>, Status>;

/// The most hosts of a network that are named.
const HOSTS_MAX: usize = 1000;

pub(super) async fn get(
    context: &Context,
    wire: v1::GetNetworkRequest,
) -> Answer<v1::GetNetworkResponse> {
    let name: NetworkName = field::name(&wire.name, "name")?;
    let state = context.state(wire.consistency).await?;
    let network = state.network(&name);
    let network = network.ok_or_else(|| to_status(&network::not_found(&name)))?;
    let hosts: Vec<&HostName> = hosts_of(&state, network).collect();
    let shown = hosts.iter().take(HOSTS_MAX);
    Ok(Response::new(v1::GetNetworkResponse {
        network: Some(write(&state, network, count(hosts.len()))),
        revision: state.revision(),
        hosts: shown.map(|host| host.resource_name()).collect(),
    }))
}

pub(super) async fn list(
    context: &Context,
    wire: v1::ListNetworksRequest,
) -> Answer<v1::ListNetworksResponse> {
    let page = Page::new(wire.page_size, &wire.page_token)?;
    let state = context.state(wire.consistency).await?;
    let (networks, next_page_token) = list::page(
        state.networks(),
        &page,
        |text| NetworkName::new(text).ok(),
        NetworkName::to_string,
        |_| true,
    )?;
    let bridges = Bridges::of(&state);
    let written = networks
        .iter()
        .map(|network| write(&state, network, bridges.count(&network.link)));
    Ok(Response::new(v1::ListNetworksResponse {
        networks: written.collect(),
        next_page_token,
        revision: state.revision(),
    }))
}

fn write(state: &State, network: &Network, host_count: u32) -> types::Network {
    types::Network {
        vm_count: count(state.vms_on_network(&network.name).len()),
        host_count,
        ..network.into()
    }
}

/// Returns the hosts that can give a network.
fn hosts_of<'s>(state: &'s State, network: &Network) -> impl Iterator<Item = &'s HostName> {
    let attachment = network.attachment();
    let hosts = state.hosts().iter();
    hosts
        .filter(move |(_, view)| network::check(&view.host.report.networks, &attachment).is_ok())
        .map(|(name, _)| name)
}

/// How many hosts reach a physical network alike: what they can do with it, and their number.
#[derive(Default)]
struct Bridges(BTreeMap<HostNetwork, u32>);

impl Bridges {
    fn of(state: &State) -> Self {
        let mut counts = BTreeMap::new();
        for reached in state.hosts().values().flat_map(|v| &v.host.report.networks) {
            *counts.entry(reached.clone()).or_default() += 1;
        }
        Self(counts)
    }

    /// Returns how many hosts can give what is linked so. A host reaches a physical network once.
    fn count(&self, link: &NetworkLink) -> u32 {
        self.0
            .iter()
            .filter(|(reached, _)| link.obstacle(reached).is_none())
            .map(|(_, hosts)| hosts)
            .sum()
    }
}

fn count(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}
