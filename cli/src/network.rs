//! `berth network`: networks that interfaces of VMs are plugged into.

use berth_domain::network::{Network, NetworkLink};
use berth_proto::scheduler::v1::scheduler_service_client::SchedulerServiceClient;
use berth_proto::scheduler::v1::{
    CreateNetworkRequest, DeleteNetworkRequest, GetNetworkRequest, ListNetworksRequest,
};
use berth_proto::types::v1 as wire;
use serde_json::{Value, json};

use crate::arguments::{Network as Verb, NetworkCreate};
use crate::output::Columns;
use crate::session::{Session, creator, request_id, resource, short};
use crate::{all_pages, call, migration, output, read};

/// The columns of the list.
pub(crate) const COLUMNS: Columns<6, 2> = Columns {
    usual: ["network", "physical network", "vlan", "mtu", "hosts", "vms"],
    wide: ["project", "description"],
};

/// Runs the command.
///
/// # Errors
///
/// The scheduler's refusal.
pub async fn run(session: &Session, verb: Verb) -> anyhow::Result<()> {
    match verb {
        Verb::Create(options) => {
            let request = CreateNetworkRequest {
                network: Some(requested(&options)),
                request_id: request_id(None),
            };
            call!(session, SchedulerServiceClient, create_network, request)?;
            // What it returns does not say which hosts can give it.
            show(session, &options.network).await
        }
        Verb::List => list(session).await,
        Verb::Show { network } => show(session, &network).await,
        Verb::Delete { network } => {
            let request = DeleteNetworkRequest {
                name: resource("networks", &network),
                request_id: request_id(None),
            };
            call!(session, SchedulerServiceClient, delete_network, request)?;
            let sentence = format!("network {network} is deleted");
            session.done(&resource("networks", &network), "deleted", sentence)
        }
    }
}

fn requested(options: &NetworkCreate) -> wire::Network {
    wire::Network {
        name: resource("networks", &options.network),
        physical_network: options.physical_network.clone(),
        vlan: options.vlan,
        mtu: options.mtu,
        description: options.description.clone(),
        project: options.project.to_wire(),
        ..Default::default()
    }
}

async fn list(session: &Session) -> anyhow::Result<()> {
    let request = ListNetworksRequest::default();
    let networks = all_pages!(
        session,
        SchedulerServiceClient,
        list_networks,
        request,
        networks
    );
    if session.for_programs() {
        let values: Vec<Value> = networks
            .into_iter()
            .map(value)
            .collect::<anyhow::Result<_>>()?;
        return output::value(&values);
    }
    let mut rows = Vec::new();
    for wire in networks {
        let (hosts, vms) = (wire.host_count, wire.vm_count);
        let network = Network::try_from(wire)?;
        let usual = [
            network.name.to_string(),
            network.link.physical_network.to_string(),
            output::or_dash(network.link.vlan),
            output::or_dash(network.link.mtu),
            hosts.to_string(),
            vms.to_string(),
        ];
        let wide = [
            network.ownership.project_name().to_owned(),
            network.description,
        ];
        rows.push((usual, wide));
    }
    output::list(&COLUMNS, rows, "there is no network")
}

async fn show(session: &Session, name: &str) -> anyhow::Result<()> {
    let request = GetNetworkRequest {
        name: resource("networks", name),
        ..Default::default()
    };
    let response = read!(session, SchedulerServiceClient, get_network, request)?;
    let wire = response.network.unwrap_or_default();
    let hosts: Vec<&str> = response.hosts.iter().map(|host| short(host)).collect();
    if session.for_programs() {
        let mut value = value(wire)?;
        value["hosts"] = json!(hosts);
        return output::value(&value);
    }
    let (count, vms) = (wire.host_count, wire.vm_count);
    let network = Network::try_from(wire)?;
    let left_out = (count as usize).saturating_sub(hosts.len());
    let hosts = match (hosts.as_slice(), left_out) {
        ([], _) => format!("none {}", reached_by(&network.link)),
        (hosts, 0) => hosts.join(" "),
        (hosts, more) => format!("{} and {more} more", hosts.join(" ")),
    };
    output::fields(&[
        ("network", network.name.to_string()),
        (
            "physical network",
            network.link.physical_network.to_string(),
        ),
        ("vlan", output::or_dash(network.link.vlan)),
        ("mtu", output::or_dash(network.link.mtu)),
        ("description", or_dash(&network.description)),
        ("hosts", hosts),
        ("VMs", vms.to_string()),
        ("project", network.ownership.project_name().to_owned()),
        ("creator", creator(&network.ownership)),
        ("created", migration::time(network.created_at)),
    ]);
    Ok(())
}

/// Says what hosts without the network lack.
fn reached_by(link: &NetworkLink) -> String {
    let physical = &link.physical_network;
    format!(
        "reaches physical network {physical} as it needs: see physical_networks of their agents"
    )
}

fn or_dash(text: &str) -> String {
    output::or_dash(Some(text).filter(|text| !text.is_empty()))
}

/// Returns a network as programs read it.
pub(crate) fn value(wire: wire::Network) -> anyhow::Result<Value> {
    let (host_count, vm_count) = (wire.host_count, wire.vm_count);
    let network = Network::try_from(wire)?;
    Ok(json!({
        "name": network.name,
        "physical_network": network.link.physical_network,
        "vlan": network.link.vlan,
        "mtu": network.link.mtu,
        "description": network.description,
        "host_count": host_count,
        "vm_count": vm_count,
        "project": network.ownership.project_name(),
        "creator": network.ownership.creator,
        "created_at": network.created_at,
    }))
}
