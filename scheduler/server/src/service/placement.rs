//! `berth.placement.v1.PlacementService`.

use std::pin::Pin;
use std::sync::Arc;

use berth_decide::Action;
use berth_domain::allocation::Consumer;
use berth_domain::id::{ClaimId, ConsumerId, ProviderId};
use berth_domain::provider::ResourceProvider;
use berth_domain::refusal::Refusal;
use berth_proto::convert::page::Page;
use berth_proto::convert::{Invalid, ResourceName as _, field};
use berth_proto::placement::v1;
use berth_proto::placement::v1::placement_service_server::PlacementService;
use berth_proto::status::to_status;
use berth_proto::types::v1::ReadConsistency;
use berth_selection::candidates::{Filter, Part};
use berth_state::command::Command;
use berth_state::placement::ConsumerTypes;
use berth_state::{Reply, State};
use tokio_stream::Stream;
use tonic::{Request, Response, Status};

use super::context::Context;
use super::keyed::{Caller, open};
use super::{candidates, filter, list, refusal, watch_providers, write};

/// Serves `PlacementService`.
pub(crate) struct PlacementApi(pub(crate) Context);

impl PlacementApi {
    async fn consumers(
        &self,
        caller: Caller,
        command: Command,
    ) -> Result<Vec<v1::Consumer>, Status> {
        let Reply::Consumers(consumers) = self.0.command(caller, command).await? else {
            return Err(refusal::mismatch());
        };
        Ok(consumers.iter().map(|c| (&**c).into()).collect())
    }

    async fn provider(
        &self,
        caller: Caller,
        command: Command,
    ) -> Result<Option<v1::ResourceProvider>, Status> {
        let Reply::Provider(provider) = self.0.command(caller, command).await? else {
            return Err(refusal::mismatch());
        };
        Ok(Some((&*provider).into()))
    }
}

#[tonic::async_trait]
impl PlacementService for PlacementApi {
    async fn create_resource_provider(
        &self,
        request: Request<v1::CreateResourceProviderRequest>,
    ) -> Result<Response<v1::CreateResourceProviderResponse>, Status> {
        let (wire, caller) = open(request)?;
        let command = write::create_provider(wire)?;
        let resource_provider = self.provider(caller, command).await?;
        Ok(Response::new(v1::CreateResourceProviderResponse {
            resource_provider,
        }))
    }

    async fn get_resource_provider(
        &self,
        request: Request<v1::GetResourceProviderRequest>,
    ) -> Result<Response<v1::GetResourceProviderResponse>, Status> {
        let wire = request.into_inner();
        let id = field::name(&wire.name, "name")?;
        let state = self.0.state(wire.consistency).await?;
        let provider = find(&state, id)?;
        Ok(Response::new(v1::GetResourceProviderResponse {
            resource_provider: Some((&**provider).into()),
            revision: state.revision(),
        }))
    }

    async fn list_resource_providers(
        &self,
        request: Request<v1::ListResourceProvidersRequest>,
    ) -> Result<Response<v1::ListResourceProvidersResponse>, Status> {
        let wire = request.into_inner();
        let page = Page::new(wire.page_size, &wire.page_token)?;
        let filter = filter::read(&wire)?;
        let state = self.0.state(wire.consistency).await?;
        if filter == Filter::default() {
            let parse = |text: &str| text.parse().ok();
            let all = state.providers();
            let (all, next) = list::page(all, &page, parse, ProviderId::to_string, |_| true)?;
            return Ok(Response::new(page_of(&all, next, state.revision())));
        }
        filter::check(&filter, &state).map_err(|refusal| to_status(&refusal))?;
        let part = Part {
            after: list::after(&page, |text| text.parse().ok())?,
            // One more row shows whether there is another page.
            most: page.size + 1,
        };
        let found = self.0.search(state, move |state, index| {
            let found = index.list_part(&filter, part).into_iter();
            let found = found.filter_map(|id| state.provider(id).cloned());
            let (found, next_page_token) = page.cut(found, |provider| provider.id.to_string());
            page_of(&found, next_page_token, state.revision())
        });
        let found = found.await.map_err(|_| refusal::search_failed())?;
        Ok(Response::new(found))
    }

    async fn update_resource_provider(
        &self,
        request: Request<v1::UpdateResourceProviderRequest>,
    ) -> Result<Response<v1::UpdateResourceProviderResponse>, Status> {
        let (wire, caller) = open(request)?;
        let command = write::update_provider(wire)?;
        let resource_provider = self.provider(caller, command).await?;
        Ok(Response::new(v1::UpdateResourceProviderResponse {
            resource_provider,
        }))
    }

    async fn delete_resource_provider(
        &self,
        request: Request<v1::DeleteResourceProviderRequest>,
    ) -> Result<Response<v1::DeleteResourceProviderResponse>, Status> {
        let (wire, caller) = open(request)?;
        self.0
            .command(caller, write::delete_provider(wire)?)
            .await?;
        Ok(Response::new(v1::DeleteResourceProviderResponse {}))
    }

    async fn replace_inventories(
        &self,
        request: Request<v1::ReplaceInventoriesRequest>,
    ) -> Result<Response<v1::ReplaceInventoriesResponse>, Status> {
        let (wire, caller) = open(request)?;
        let command = write::replace_inventories(wire)?;
        let resource_provider = self.provider(caller, command).await?;
        Ok(Response::new(v1::ReplaceInventoriesResponse {
            resource_provider,
        }))
    }

    async fn put_inventory(
        &self,
        request: Request<v1::PutInventoryRequest>,
    ) -> Result<Response<v1::PutInventoryResponse>, Status> {
        let (wire, caller) = open(request)?;
        let command = write::put_inventory(wire)?;
        let resource_provider = self.provider(caller, command).await?;
        Ok(Response::new(v1::PutInventoryResponse {
            resource_provider,
        }))
    }

    async fn delete_inventory(
        &self,
        request: Request<v1::DeleteInventoryRequest>,
    ) -> Result<Response<v1::DeleteInventoryResponse>, Status> {
        let (wire, caller) = open(request)?;
        let command = write::delete_inventory(wire)?;
        let resource_provider = self.provider(caller, command).await?;
        Ok(Response::new(v1::DeleteInventoryResponse {
            resource_provider,
        }))
    }

    async fn replace_traits(
        &self,
        request: Request<v1::ReplaceTraitsRequest>,
    ) -> Result<Response<v1::ReplaceTraitsResponse>, Status> {
        let (wire, caller) = open(request)?;
        let command = write::replace_traits(wire)?;
        let resource_provider = self.provider(caller, command).await?;
        Ok(Response::new(v1::ReplaceTraitsResponse {
            resource_provider,
        }))
    }

    async fn replace_aggregates(
        &self,
        request: Request<v1::ReplaceAggregatesRequest>,
    ) -> Result<Response<v1::ReplaceAggregatesResponse>, Status> {
        let (wire, caller) = open(request)?;
        let command = write::replace_aggregates(wire)?;
        let resource_provider = self.provider(caller, command).await?;
        Ok(Response::new(v1::ReplaceAggregatesResponse {
            resource_provider,
        }))
    }

    async fn replace_allocations(
        &self,
        request: Request<v1::ReplaceAllocationsRequest>,
    ) -> Result<Response<v1::ReplaceAllocationsResponse>, Status> {
        let (wire, caller) = open(request)?;
        let command = write::replace_allocations(wire)?;
        let consumers = self.consumers(caller, command).await?;
        Ok(Response::new(v1::ReplaceAllocationsResponse { consumers }))
    }

    async fn delete_allocations(
        &self,
        request: Request<v1::DeleteAllocationsRequest>,
    ) -> Result<Response<v1::DeleteAllocationsResponse>, Status> {
        let (wire, caller) = open(request)?;
        let command = write::delete_allocations(wire)?;
        self.0.command(caller, command).await?;
        Ok(Response::new(v1::DeleteAllocationsResponse {}))
    }

    async fn reshape(
        &self,
        request: Request<v1::ReshapeRequest>,
    ) -> Result<Response<v1::ReshapeResponse>, Status> {
        let (wire, caller) = open(request)?;
        let command = write::reshape(wire)?;
        let consumers = self.consumers(caller, command).await?;
        Ok(Response::new(v1::ReshapeResponse { consumers }))
    }

    async fn batch_write(
        &self,
        request: Request<v1::BatchWriteRequest>,
    ) -> Result<Response<v1::BatchWriteResponse>, Status> {
        let (wire, caller) = open(request)?;
        let validate_only = wire.validate_only;
        let command = write::batch(wire)?;
        let request = caller.into_request(validate_only, Action::Plain(command));
        let Reply::Batch {
            providers,
            consumers,
        } = self.0.submit(request).await?.reply
        else {
            return Err(refusal::mismatch());
        };
        Ok(Response::new(v1::BatchWriteResponse {
            resource_providers: providers.iter().map(|p| (&**p).into()).collect(),
            consumers: consumers.iter().map(|c| (&**c).into()).collect(),
        }))
    }

    async fn get_allocations(
        &self,
        request: Request<v1::GetAllocationsRequest>,
    ) -> Result<Response<v1::GetAllocationsResponse>, Status> {
        let wire = request.into_inner();
        let id: ConsumerId = field::name(&wire.consumer, "consumer")?;
        let state = self.0.state(wire.consistency).await?;
        let revision = state.revision();
        if let Some(consumer) = state.consumer(id) {
            return Ok(Response::new(v1::GetAllocationsResponse {
                consumer: Some((&**consumer).into()),
                claim: String::new(),
                revision,
            }));
        }
        let claim = ClaimId(id.0);
        let Some(consumer) = claim_as_consumer(&state, claim) else {
            return Err(to_status(&Refusal::not_found("consumer", id)));
        };
        Ok(Response::new(v1::GetAllocationsResponse {
            consumer: Some(consumer),
            claim: claim.resource_name(),
            revision,
        }))
    }

    async fn get_usage(
        &self,
        request: Request<v1::GetUsageRequest>,
    ) -> Result<Response<v1::GetUsageResponse>, Status> {
        let wire = request.into_inner();
        let id = field::name(&wire.resource_provider, "resource_provider")?;
        let state = self.0.state(wire.consistency).await?;
        let provider = find(&state, id)?;
        let taken = state.used_of(id);
        let classes = provider.inventories.iter();
        Ok(Response::new(v1::GetUsageResponse {
            used: provider
                .inventories
                .keys()
                .map(|class| (class.to_string(), taken.get(class).copied().unwrap_or(0)))
                .collect(),
            capacity: classes
                .map(|(class, inventory)| (class.to_string(), inventory.capacity()))
                .collect(),
            generation: provider.generation.0,
            revision: state.revision(),
        }))
    }

    async fn list_consumers(
        &self,
        request: Request<v1::ListConsumersRequest>,
    ) -> Result<Response<v1::ListConsumersResponse>, Status> {
        let wire = request.into_inner();
        let page = Page::new(wire.page_size, &wire.page_token)?;
        let provider = field::optional_name(&wire.resource_provider, "resource_provider")?;
        let project = (!wire.project.is_empty()).then_some(&*wire.project);
        let state = self.0.state(wire.consistency).await?;
        let (consumers, next_page_token) = consumers(&state, &page, provider, project)?;
        Ok(Response::new(v1::ListConsumersResponse {
            consumers: consumers.iter().map(|c| (&**c).into()).collect(),
            next_page_token,
            revision: state.revision(),
        }))
    }

    async fn get_project_usage(
        &self,
        request: Request<v1::GetProjectUsageRequest>,
    ) -> Result<Response<v1::GetProjectUsageResponse>, Status> {
        let wire = request.into_inner();
        let state = self.0.state(wire.consistency).await?;
        let user = (!wire.user.is_empty()).then_some(&*wire.user);
        let usages = state.usages(&wire.project, user, &ConsumerTypes::Every);
        let usages = usages.into_iter().map(|(of, usage)| v1::TypeUsage {
            consumer_type: of.map(|of| of.to_string()).unwrap_or_default(),
            consumers: usage.consumers,
            used: field::amounts(&usage.resources),
        });
        Ok(Response::new(v1::GetProjectUsageResponse {
            usages: usages.collect(),
            revision: state.revision(),
        }))
    }

    type WatchResourceProvidersStream =
        Pin<Box<dyn Stream<Item = Result<v1::WatchResourceProvidersResponse, Status>> + Send>>;

    async fn watch_resource_providers(
        &self,
        request: Request<v1::WatchResourceProvidersRequest>,
    ) -> Result<Response<Self::WatchResourceProvidersStream>, Status> {
        let wire = request.into_inner();
        let only = field::optional_name(&wire.resource_provider, "resource_provider")?;
        let from = match wire.revision {
            0 => {
                let now = ReadConsistency::Linearizable.into();
                watch_providers::From::Snapshot(Box::new(self.0.state(now).await?))
            }
            revision => watch_providers::From::After(revision),
        };
        let stream = watch_providers::watch(self.0.clone(), from, only);
        Ok(Response::new(Box::pin(stream)))
    }

    type FindAllocationCandidatesStream =
        Pin<Box<dyn Stream<Item = Result<v1::FindAllocationCandidatesResponse, Status>> + Send>>;

    async fn find_allocation_candidates(
        &self,
        request: Request<v1::FindAllocationCandidatesRequest>,
    ) -> Result<Response<Self::FindAllocationCandidatesStream>, Status> {
        let stream = candidates::find(self.0.clone(), request.into_inner()).await?;
        Ok(Response::new(Box::pin(stream)))
    }
}

fn page_of(
    providers: &[Arc<ResourceProvider>],
    next_page_token: String,
    revision: u64,
) -> v1::ListResourceProvidersResponse {
    v1::ListResourceProvidersResponse {
        resource_providers: providers.iter().map(|p| (&**p).into()).collect(),
        next_page_token,
        revision,
    }
}

/// Returns a page of consumers, in order of their ids. Those of a provider or a project are found
/// by index, so that the cost follows their number.
fn consumers(
    state: &State,
    page: &Page,
    provider: Option<ProviderId>,
    project: Option<&str>,
) -> Result<(Vec<Arc<Consumer>>, String), Invalid> {
    let parse = |text: &str| text.parse().ok();
    let in_project = |c: &Consumer| project.is_none_or(|project| c.project == project);
    let found: Vec<&Arc<Consumer>> = match (provider, project) {
        (Some(provider), _) => state.consumers_of(provider).collect(),
        (None, Some(project)) => state.consumers_of_project(project).collect(),
        (None, None) => {
            let all = state.consumers();
            return list::page(all, page, parse, ConsumerId::to_string, |_| true);
        }
    };
    let found = found.into_iter().filter(|c| in_project(c));
    let found = found.map(|c| (c.id, c.clone())).collect();
    list::page(&found, page, parse, ConsumerId::to_string, |_| true)
}

fn find(state: &State, id: ProviderId) -> Result<&Arc<ResourceProvider>, Status> {
    let provider = state.provider(id);
    provider.ok_or_else(|| to_status(&Refusal::not_found("provider", id)))
}

/// Returns a claim as the consumer that it is to clients of counted resources.
fn claim_as_consumer(state: &State, id: ClaimId) -> Option<v1::Consumer> {
    let claim = state.claim(id)?;
    let provider = state.host(&claim.host)?.host.provider;
    Some(v1::Consumer {
        name: ConsumerId(id.0).resource_name(),
        allocations: vec![v1::Allocation {
            resource_provider: provider.resource_name(),
            resources: field::amounts(&claim.resources),
        }],
        ..v1::Consumer::default()
    })
}
