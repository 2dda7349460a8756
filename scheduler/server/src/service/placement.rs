//! `berth.placement.v1.PlacementService`.

use std::sync::Arc;

use berth_domain::id::{ClaimId, ConsumerId, Generation, ProviderId};
use berth_domain::provider::ResourceProvider;
use berth_domain::refusal::Refusal;
use berth_proto::convert::page::Page;
use berth_proto::convert::placement::{
    DISPLAY_NAME_MAX, fill_defaults, read_inventories, read_traits,
};
use berth_proto::convert::{Invalid, ResourceName as _, field};
use berth_proto::placement::v1;
use berth_proto::placement::v1::placement_service_server::PlacementService;
use berth_proto::status::to_status;
use berth_state::command::Command;
use berth_state::{Reply, State};
use tonic::{Request, Response, Status};
use uuid::Uuid;

use super::context::Context;
use super::keyed::{Caller, open};
use super::{list, refusal};
use crate::core::{Ask, Request as Asked};

/// The most consumers whose allocations are replaced at once.
const CONSUMERS_MAX: usize = 1000;

/// Serves `PlacementService`.
pub(crate) struct PlacementApi(pub(crate) Context);

impl PlacementApi {
    async fn command(&self, caller: Caller, command: Command) -> Result<Reply, Status> {
        let ask = Ask {
            principal: caller.principal,
            key: caller.key,
            validate_only: false,
            request: Asked::Plain(command),
        };
        Ok(self.0.ask(ask).await?.reply)
    }

    async fn provider(
        &self,
        caller: Caller,
        command: Command,
    ) -> Result<Option<v1::ResourceProvider>, Status> {
        let Reply::Provider(provider) = self.command(caller, command).await? else {
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
        let (wire, caller) = open(request).map_err(refusal::of_invalid)?;
        let command = create_provider(wire).map_err(refusal::of_invalid)?;
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
        let id = field::name(&wire.name, "name").map_err(refusal::of_invalid)?;
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
        let page = Page::new(wire.page_size, &wire.page_token).map_err(refusal::of_invalid)?;
        let state = self.0.state(wire.consistency).await?;
        let (providers, next_page_token) = list::page(
            state.providers(),
            &page,
            |text| text.parse().ok(),
            ProviderId::to_string,
            |_| true,
        )
        .map_err(refusal::of_invalid)?;
        Ok(Response::new(v1::ListResourceProvidersResponse {
            resource_providers: providers.iter().map(|p| (&**p).into()).collect(),
            next_page_token,
            revision: state.revision(),
        }))
    }

    async fn delete_resource_provider(
        &self,
        request: Request<v1::DeleteResourceProviderRequest>,
    ) -> Result<Response<v1::DeleteResourceProviderResponse>, Status> {
        let (wire, caller) = open(request).map_err(refusal::of_invalid)?;
        let id = field::name(&wire.name, "name").map_err(refusal::of_invalid)?;
        self.command(caller, Command::DeleteProvider { id }).await?;
        Ok(Response::new(v1::DeleteResourceProviderResponse {}))
    }

    async fn replace_inventories(
        &self,
        request: Request<v1::ReplaceInventoriesRequest>,
    ) -> Result<Response<v1::ReplaceInventoriesResponse>, Status> {
        let (wire, caller) = open(request).map_err(refusal::of_invalid)?;
        let command = replace_inventories(wire).map_err(refusal::of_invalid)?;
        let resource_provider = self.provider(caller, command).await?;
        Ok(Response::new(v1::ReplaceInventoriesResponse {
            resource_provider,
        }))
    }

    async fn replace_traits(
        &self,
        request: Request<v1::ReplaceTraitsRequest>,
    ) -> Result<Response<v1::ReplaceTraitsResponse>, Status> {
        let (wire, caller) = open(request).map_err(refusal::of_invalid)?;
        let provider = field::name(&wire.resource_provider, "resource_provider");
        let command = Command::SetTraits {
            provider: provider.map_err(refusal::of_invalid)?,
            generation: Generation(wire.generation),
            traits: read_traits(wire.traits, "traits").map_err(refusal::of_invalid)?,
        };
        let resource_provider = self.provider(caller, command).await?;
        Ok(Response::new(v1::ReplaceTraitsResponse {
            resource_provider,
        }))
    }

    async fn replace_allocations(
        &self,
        request: Request<v1::ReplaceAllocationsRequest>,
    ) -> Result<Response<v1::ReplaceAllocationsResponse>, Status> {
        let (wire, caller) = open(request).map_err(refusal::of_invalid)?;
        let consumers = field::each(wire.consumers, "consumers", CONSUMERS_MAX);
        let command = Command::SetAllocations {
            consumers: consumers.map_err(refusal::of_invalid)?,
        };
        let Reply::Consumers(consumers) = self.command(caller, command).await? else {
            return Err(refusal::mismatch());
        };
        Ok(Response::new(v1::ReplaceAllocationsResponse {
            consumers: consumers.iter().map(|c| (&**c).into()).collect(),
        }))
    }

    async fn get_allocations(
        &self,
        request: Request<v1::GetAllocationsRequest>,
    ) -> Result<Response<v1::GetAllocationsResponse>, Status> {
        let wire = request.into_inner();
        let id: ConsumerId =
            field::name(&wire.consumer, "consumer").map_err(refusal::of_invalid)?;
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
        let id = field::name(&wire.resource_provider, "resource_provider")
            .map_err(refusal::of_invalid)?;
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
}

fn find(state: &State, id: ProviderId) -> Result<&Arc<ResourceProvider>, Status> {
    let provider = state.provider(id);
    provider.ok_or_else(|| to_status(&Refusal::not_found("provider", id)))
}

fn create_provider(wire: v1::CreateResourceProviderRequest) -> Result<Command, Invalid> {
    let id: Option<ProviderId> = field::optional_name(&wire.name, "name")?;
    Ok(Command::CreateProvider {
        id: id.unwrap_or_else(|| ProviderId(Uuid::new_v4())),
        name: field::required_text(wire.display_name, "display_name", DISPLAY_NAME_MAX)?,
        parent: field::optional_name(&wire.parent, "parent")?,
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
        generation: 0,
        project: String::new(),
        user: String::new(),
        allocations: vec![v1::Allocation {
            resource_provider: provider.resource_name(),
            resources: field::amounts(&claim.resources),
        }],
    })
}
