//! `berth.policy.v1.AggregateService`.

use std::collections::{BTreeMap, BTreeSet};

use berth_domain::aggregate::Aggregate;
use berth_domain::id::AggregateId;
use berth_domain::name::{AggregateName, ZoneName};
use berth_domain::refusal::Refusal;
use berth_proto::convert::aggregate::read_change;
use berth_proto::convert::page::Page;
use berth_proto::convert::{ResourceName as _, field};
use berth_proto::filter::Filter;
use berth_proto::policy::v1;
use berth_proto::policy::v1::aggregate_service_server::AggregateService;
use berth_proto::status::to_status;
use berth_state::Reply;
use berth_state::command::Command;
use tonic::{Request, Response, Status};
use uuid::Uuid;

use super::context::Context;
use super::keyed::{Caller, open};
use super::{list, refusal};

/// Serves `AggregateService`.
pub(crate) struct AggregateApi(pub(crate) Context);

impl AggregateApi {
    async fn aggregate(
        &self,
        caller: Caller,
        command: Command,
    ) -> Result<Option<v1::Aggregate>, Status> {
        let Reply::Aggregate(aggregate) = self.0.command(caller, command).await? else {
            return Err(refusal::mismatch());
        };
        Ok(Some((&*aggregate).into()))
    }
}

#[tonic::async_trait]
impl AggregateService for AggregateApi {
    async fn create_aggregate(
        &self,
        request: Request<v1::CreateAggregateRequest>,
    ) -> Result<Response<v1::CreateAggregateResponse>, Status> {
        let (wire, caller) = open(request)?;
        let aggregate: Aggregate = field::required(wire.aggregate, "aggregate")?;
        let command = Command::CreateAggregate(Aggregate {
            id: AggregateId(Uuid::new_v4()),
            ..aggregate
        });
        let aggregate = self.aggregate(caller, command).await?;
        Ok(Response::new(v1::CreateAggregateResponse { aggregate }))
    }

    async fn get_aggregate(
        &self,
        request: Request<v1::GetAggregateRequest>,
    ) -> Result<Response<v1::GetAggregateResponse>, Status> {
        let wire = request.into_inner();
        let name: AggregateName = field::name(&wire.name, "name")?;
        let state = self.0.state(wire.consistency).await?;
        let aggregate = state.aggregate(&name);
        let missing = || to_status(&Refusal::not_found("aggregate", &name));
        Ok(Response::new(v1::GetAggregateResponse {
            aggregate: Some((&**aggregate.ok_or_else(missing)?).into()),
            revision: state.revision(),
        }))
    }

    async fn list_aggregates(
        &self,
        request: Request<v1::ListAggregatesRequest>,
    ) -> Result<Response<v1::ListAggregatesResponse>, Status> {
        let wire = request.into_inner();
        let page = Page::filtered(wire.page_size, &wire.page_token, &wire.filter)?;
        let filter = Filter::new::<v1::Aggregate>(&wire.filter)?;
        let state = self.0.state(wire.consistency).await?;
        let listed = list::filtered(&self.0, filter, move |filter| {
            let (aggregates, next_page_token) = list::page(
                state.aggregates(),
                &page,
                |text| AggregateName::new(text).ok(),
                AggregateName::to_string,
                |aggregate: &Aggregate| filter.matches_with(|| v1::Aggregate::from(aggregate)),
            )?;
            Ok(v1::ListAggregatesResponse {
                aggregates: aggregates
                    .iter()
                    .map(|aggregate| (&**aggregate).into())
                    .collect(),
                next_page_token,
                revision: state.revision(),
            })
        });
        listed.await.map(Response::new)
    }

    async fn update_aggregate(
        &self,
        request: Request<v1::UpdateAggregateRequest>,
    ) -> Result<Response<v1::UpdateAggregateResponse>, Status> {
        let (wire, caller) = open(request)?;
        let (name, change) = read_change(wire)?;
        let command = Command::UpdateAggregate {
            aggregate: name,
            change,
        };
        let aggregate = self.aggregate(caller, command).await?;
        Ok(Response::new(v1::UpdateAggregateResponse { aggregate }))
    }

    async fn delete_aggregate(
        &self,
        request: Request<v1::DeleteAggregateRequest>,
    ) -> Result<Response<v1::DeleteAggregateResponse>, Status> {
        let (wire, caller) = open(request)?;
        let aggregate = field::name(&wire.name, "name")?;
        let command = Command::DeleteAggregate { aggregate };
        self.0.command(caller, command).await?;
        Ok(Response::new(v1::DeleteAggregateResponse {}))
    }

    async fn list_availability_zones(
        &self,
        request: Request<v1::ListAvailabilityZonesRequest>,
    ) -> Result<Response<v1::ListAvailabilityZonesResponse>, Status> {
        let wire = request.into_inner();
        let page = Page::new(wire.page_size, &wire.page_token)?;
        let after = list::after(&page, |text| ZoneName::new(text).ok())?;
        let state = self.0.state(wire.consistency).await?;
        // Aggregates are few; the hosts, which are not, are those of the page alone.
        let mut zones: BTreeMap<ZoneName, Vec<&Aggregate>> = BTreeMap::new();
        for aggregate in state.aggregates().values() {
            let zone = aggregate.zone();
            let is_after = |zone: &ZoneName| after.as_ref().is_none_or(|after| zone > after);
            if let Some(zone) = zone.filter(is_after) {
                zones.entry(zone).or_default().push(aggregate);
            }
        }
        let (zones, next_page_token) = page.cut(zones, |(zone, _)| zone.to_string());
        let zones = zones.into_iter().map(|(zone, aggregates)| {
            let hosts = aggregates
                .into_iter()
                .flat_map(|aggregate| &aggregate.hosts);
            let hosts: BTreeSet<String> = hosts.map(|host| host.resource_name()).collect();
            v1::AvailabilityZone {
                zone: zone.to_string(),
                hosts: hosts.into_iter().collect(),
            }
        });
        Ok(Response::new(v1::ListAvailabilityZonesResponse {
            availability_zones: zones.collect(),
            next_page_token,
            revision: state.revision(),
        }))
    }
}
