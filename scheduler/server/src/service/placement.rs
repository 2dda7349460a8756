//! `berth.placement.v1.PlacementService`.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;

use berth_domain::allocation::Consumer;
use berth_domain::id::{ClaimId, ConsumerId, Generation, ProviderId};
use berth_domain::provider::ResourceProvider;
use berth_domain::refusal::Refusal;
use berth_proto::convert::page::Page;
use berth_proto::convert::placement::{
    fill_defaults, read_aggregates, read_class, read_display_name, read_inventories, read_traits,
};
use berth_proto::convert::{Invalid, ResourceName as _, field};
use berth_proto::placement::v1;
use berth_proto::placement::v1::placement_service_server::PlacementService;
use berth_proto::status::to_status;
use berth_selection::candidates::Filter;
use berth_state::command::{Command, ProviderInventories};
use berth_state::placement::ConsumerTypes;
use berth_state::{Reply, State};
use imbl::OrdMap;
use tokio_stream::Stream;
use tonic::{Request, Response, Status};
use uuid::Uuid;

use super::context::Context;
use super::keyed::{Caller, open};
use super::{candidates, filter, list, refusal};

/// The most consumers whose allocations, or providers whose inventories, are replaced at once.
const CONSUMERS_MAX: usize = 1000;

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
        let command = create_provider(wire)?;
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
            let all = state.providers();
            return Ok(Response::new(providers(all, &page, state.revision())?));
        }
        filter::check(&filter, &state).map_err(|refusal| to_status(&refusal))?;
        let found = self.0.search(state, move |state, index| {
            let found = index.list(&filter).into_iter();
            let found = found.filter_map(|id| Some((id, state.provider(id)?.clone())));
            providers(&found.collect(), &page, state.revision())
        });
        let found = found.await.map_err(|_| refusal::search_failed())?;
        Ok(Response::new(found?))
    }

    async fn update_resource_provider(
        &self,
        request: Request<v1::UpdateResourceProviderRequest>,
    ) -> Result<Response<v1::UpdateResourceProviderResponse>, Status> {
        let (wire, caller) = open(request)?;
        let command = update_provider(wire)?;
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
        let id = field::name(&wire.name, "name")?;
        self.0
            .command(caller, Command::DeleteProvider { id })
            .await?;
        Ok(Response::new(v1::DeleteResourceProviderResponse {}))
    }

    async fn replace_inventories(
        &self,
        request: Request<v1::ReplaceInventoriesRequest>,
    ) -> Result<Response<v1::ReplaceInventoriesResponse>, Status> {
        let (wire, caller) = open(request)?;
        let command = replace_inventories(wire)?;
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
        let command = put_inventory(wire)?;
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
        let provider = field::name(&wire.resource_provider, "resource_provider");
        let class = read_class(&wire.resource_class, "resource_class");
        let command = Command::DeleteInventory {
            provider: provider?,
            class: class?,
        };
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
        let provider = field::name(&wire.resource_provider, "resource_provider");
        let command = Command::SetTraits {
            provider: provider?,
            generation: Generation(wire.generation),
            traits: read_traits(wire.traits, "traits")?,
        };
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
        let provider = field::name(&wire.resource_provider, "resource_provider");
        let aggregates = read_aggregates(wire.aggregates, "aggregates");
        let command = Command::SetAggregates {
            provider: provider?,
            generation: wire.generation.map(Generation),
            aggregates: aggregates?,
        };
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
        let consumers = field::each(wire.consumers, "consumers", CONSUMERS_MAX);
        let command = Command::SetAllocations {
            consumers: consumers?,
        };
        let consumers = self.consumers(caller, command).await?;
        Ok(Response::new(v1::ReplaceAllocationsResponse { consumers }))
    }

    async fn delete_allocations(
        &self,
        request: Request<v1::DeleteAllocationsRequest>,
    ) -> Result<Response<v1::DeleteAllocationsResponse>, Status> {
        let (wire, caller) = open(request)?;
        let consumer = field::name(&wire.consumer, "consumer")?;
        let command = Command::DeleteAllocations { consumer };
        self.0.command(caller, command).await?;
        Ok(Response::new(v1::DeleteAllocationsResponse {}))
    }

    async fn reshape(
        &self,
        request: Request<v1::ReshapeRequest>,
    ) -> Result<Response<v1::ReshapeResponse>, Status> {
        let (wire, caller) = open(request)?;
        let command = reshape(wire)?;
        let consumers = self.consumers(caller, command).await?;
        Ok(Response::new(v1::ReshapeResponse { consumers }))
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

/// Returns a page of these providers, in order of their ids.
fn providers(
    all: &OrdMap<ProviderId, Arc<ResourceProvider>>,
    page: &Page,
    revision: u64,
) -> Result<v1::ListResourceProvidersResponse, Invalid> {
    let parse = |text: &str| text.parse().ok();
    let (providers, next_page_token) =
        list::page(all, page, parse, ProviderId::to_string, |_| true)?;
    Ok(v1::ListResourceProvidersResponse {
        resource_providers: providers.iter().map(|p| (&**p).into()).collect(),
        next_page_token,
        revision,
    })
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

fn create_provider(wire: v1::CreateResourceProviderRequest) -> Result<Command, Invalid> {
    let id: Option<ProviderId> = field::optional_name(&wire.name, "name")?;
    Ok(Command::CreateProvider {
        id: id.unwrap_or_else(|| ProviderId(Uuid::new_v4())),
        name: read_display_name(wire.display_name)?,
        parent: field::optional_name(&wire.parent, "parent")?,
    })
}

fn update_provider(wire: v1::UpdateResourceProviderRequest) -> Result<Command, Invalid> {
    let parent = wire.parent.as_deref();
    Ok(Command::UpdateProvider {
        id: field::name(&wire.name, "name")?,
        name: wire.display_name.map(read_display_name).transpose()?,
        parent: parent
            .map(|parent| field::optional_name(parent, "parent"))
            .transpose()?,
        reparent: true,
    })
}

fn put_inventory(mut wire: v1::PutInventoryRequest) -> Result<Command, Invalid> {
    wire.inventory.iter_mut().for_each(fill_defaults);
    Ok(Command::PutInventory {
        provider: field::name(&wire.resource_provider, "resource_provider")?,
        generation: wire.generation.map(Generation),
        class: read_class(&wire.resource_class, "resource_class")?,
        inventory: field::required(wire.inventory, "inventory")?,
        create: wire.create,
    })
}

fn reshape(wire: v1::ReshapeRequest) -> Result<Command, Invalid> {
    let count = wire.providers.len();
    if count == 0 {
        return Err(Invalid::new("providers", "must name at least one"));
    }
    let read = |mut one: v1::ProviderInventories| {
        one.inventories.values_mut().for_each(fill_defaults);
        let after = ProviderInventories {
            generation: Generation(one.generation),
            inventories: read_inventories(one.inventories, "inventories")?,
        };
        let provider: ProviderId = field::name(&one.resource_provider, "resource_provider")?;
        Ok((provider, after))
    };
    let providers = field::each_by(wire.providers, "providers", CONSUMERS_MAX, read)?;
    let inventories: BTreeMap<_, _> = providers.into_iter().collect();
    if inventories.len() < count {
        return Err(Invalid::new("providers", "must name each provider once"));
    }
    Ok(Command::Reshape {
        inventories,
        consumers: field::each(wire.consumers, "consumers", CONSUMERS_MAX)?,
    })
}

fn replace_inventories(mut wire: v1::ReplaceInventoriesRequest) -> Result<Command, Invalid> {
    wire.inventories.values_mut().for_each(fill_defaults);
    Ok(Command::SetInventories {
        provider: field::name(&wire.resource_provider, "resource_provider")?,
        generation: Generation(wire.generation),
        inventories: read_inventories(wire.inventories, "inventories")?,
    })
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
