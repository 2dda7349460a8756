//! `berth aggregate` and `berth availability-zone`: hosts with something in common.

use std::collections::BTreeMap;

use berth_domain::aggregate::{Aggregate, ZONE_KEY};
use berth_proto::policy::v1::aggregate_service_client::AggregateServiceClient;
use berth_proto::policy::v1::{
    Aggregate as Wire, CreateAggregateRequest, DeleteAggregateRequest, GetAggregateRequest,
    ListAggregatesRequest, ListAvailabilityZonesRequest, UpdateAggregateRequest,
};
use serde_json::json;

use crate::arguments::{Aggregate as Verb, AvailabilityZone, Selection};
use crate::output::Columns;
use crate::selection::Selector;
use crate::session::{Session, read_all, request_id, resource, short};
use crate::{all_pages, call, output, read};

/// The columns of the list.
pub(crate) const COLUMNS: Columns<4, 2> = Columns {
    usual: ["aggregate", "zone", "hosts", "metadata"],
    wide: ["uuid", "generation"],
};

/// The columns of the list of availability zones.
pub(crate) const ZONES: Columns<3, 0> = Columns {
    usual: ["zone", "count", "hosts"],
    wide: [],
};

/// Runs the command.
///
/// # Errors
///
/// The scheduler's refusal.
pub async fn run(session: &Session, verb: Verb) -> anyhow::Result<()> {
    match verb {
        Verb::Create {
            aggregate,
            zone,
            metadata,
        } => {
            let mut metadata: BTreeMap<String, String> = metadata.into_iter().collect();
            metadata.extend(zone.map(|zone| (ZONE_KEY.to_owned(), zone)));
            let aggregate = Wire {
                name: resource("aggregates", &aggregate),
                metadata,
                ..Wire::default()
            };
            let request = CreateAggregateRequest {
                aggregate: Some(aggregate),
                request_id: request_id(None),
            };
            let response = call!(session, AggregateServiceClient, create_aggregate, request)?;
            show(session, response.aggregate)
        }
        Verb::List(selection) => list(session, &selection).await,
        Verb::Show { aggregate } => {
            let request = GetAggregateRequest {
                name: resource("aggregates", &aggregate),
                ..Default::default()
            };
            let response = read!(session, AggregateServiceClient, get_aggregate, request)?;
            show(session, response.aggregate)
        }
        Verb::Delete { aggregate } => {
            let request = DeleteAggregateRequest {
                name: resource("aggregates", &aggregate),
                request_id: request_id(None),
            };
            call!(session, AggregateServiceClient, delete_aggregate, request)?;
            let name = resource("aggregates", &aggregate);
            session.done(
                &name,
                "deleted",
                format!("aggregate {aggregate} is deleted"),
            )
        }
        Verb::AddHost { aggregate, hosts } => {
            let mut change = change(&aggregate);
            change.add_hosts = names(&hosts);
            update(session, change).await
        }
        Verb::RemoveHost { aggregate, hosts } => {
            let mut change = change(&aggregate);
            change.remove_hosts = names(&hosts);
            update(session, change).await
        }
        Verb::Set {
            aggregate,
            metadata,
            zone,
            unset,
            generation,
        } => {
            let mut change = change(&aggregate);
            change.set_metadata = metadata.into_iter().collect();
            let zone = zone.map(|zone| (ZONE_KEY.to_owned(), zone));
            change.set_metadata.extend(zone);
            change.unset_metadata = unset;
            change.generation = generation;
            update(session, change).await
        }
    }
}

/// Shows the availability zones.
///
/// # Errors
///
/// The scheduler's refusal.
pub async fn zones(session: &Session, verb: AvailabilityZone) -> anyhow::Result<()> {
    let AvailabilityZone::List = verb;
    let request = ListAvailabilityZonesRequest::default();
    let zones = all_pages!(
        session,
        AggregateServiceClient,
        list_availability_zones,
        request,
        availability_zones
    );
    let zones = zones.into_iter().map(|zone| {
        let hosts = zone.hosts.iter().map(|host| short(host).to_owned());
        (zone.zone, hosts.collect::<Vec<String>>())
    });
    let zones: Vec<(String, Vec<String>)> = zones.collect();
    if session.for_programs() {
        let zones = zones.iter();
        let zones = zones.map(|(zone, hosts)| json!({"zone": zone, "hosts": hosts}));
        return output::value(&zones.collect::<Vec<_>>());
    }
    let rows = zones
        .into_iter()
        .map(|(zone, hosts)| ([zone, hosts.len().to_string(), few(hosts.iter())], []))
        .collect();
    output::list(
        &ZONES,
        rows,
        "there is no availability zone: make one with `berth aggregate create NAME --zone ZONE`",
    )
}

fn change(aggregate: &str) -> UpdateAggregateRequest {
    UpdateAggregateRequest {
        name: resource("aggregates", aggregate),
        request_id: request_id(None),
        ..UpdateAggregateRequest::default()
    }
}

fn names(hosts: &[String]) -> Vec<String> {
    hosts.iter().map(|host| resource("hosts", host)).collect()
}

async fn update(session: &Session, request: UpdateAggregateRequest) -> anyhow::Result<()> {
    let response = call!(session, AggregateServiceClient, update_aggregate, request)?;
    show(session, response.aggregate)
}

async fn list(session: &Session, selection: &Selection) -> anyhow::Result<()> {
    let selector = Selector::new::<Wire>(selection)?;
    let request = ListAggregatesRequest::default();
    let aggregates = all_pages!(
        session,
        AggregateServiceClient,
        list_aggregates,
        request,
        aggregates,
        &selector
    );
    let aggregates: Vec<Aggregate> = read_all(aggregates)?;
    if session.for_programs() {
        return output::value(&aggregates);
    }
    let rows = aggregates
        .iter()
        .map(|aggregate| {
            let usual = [
                aggregate.name.to_string(),
                output::or_dash(aggregate.zone()),
                few(aggregate.hosts.iter()),
                metadata(aggregate),
            ];
            let wide = [aggregate.id.to_string(), aggregate.generation.to_string()];
            (usual, wide)
        })
        .collect();
    output::list(&COLUMNS, rows, selection.none("there is no aggregate"))
}

fn show(session: &Session, wire: Option<Wire>) -> anyhow::Result<()> {
    let aggregate: Aggregate = wire.unwrap_or_default().try_into()?;
    if session.for_programs() {
        return output::value(&aggregate);
    }
    let hosts: Vec<&str> = aggregate.hosts.iter().map(|host| host.as_str()).collect();
    output::fields(&[
        ("aggregate", aggregate.name.to_string()),
        ("uuid", aggregate.id.to_string()),
        (
            "hosts",
            if hosts.is_empty() {
                "-".to_owned()
            } else {
                hosts.join(" ")
            },
        ),
        ("metadata", metadata(&aggregate)),
        ("generation", aggregate.generation.to_string()),
    ]);
    Ok(())
}

fn metadata(aggregate: &Aggregate) -> String {
    let entries = aggregate.metadata.iter();
    let entries: Vec<String> = entries.map(|(k, v)| format!("{k}={v}")).collect();
    if entries.is_empty() {
        "-".to_owned()
    } else {
        entries.join(" ")
    }
}

/// Returns names, of many only the first.
fn few(names: impl ExactSizeIterator<Item = impl ToString>) -> String {
    const SHOWN_MAX: usize = 8;
    let more = names.len().saturating_sub(SHOWN_MAX);
    let mut shown: Vec<String> = names.take(SHOWN_MAX).map(|name| name.to_string()).collect();
    if more > 0 {
        shown.push(format!("and {more} more"));
    }
    if shown.is_empty() {
        shown.push("-".to_owned());
    }
    shown.join(" ")
}
