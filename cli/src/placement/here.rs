//! Berth's side: what it holds, and how it is changed, over gRPC.

use berth_domain::allocation::Consumer as Row;
use berth_domain::id::ProviderId;
use berth_domain::import::{ConsumerImport, ProviderImport};
use berth_domain::provider::ResourceProvider;
use berth_domain::refusal::Refusal;
use berth_domain::resource::{ResourceClass, Trait};
use berth_proto::convert::ResourceName as _;
use berth_proto::placement::v1::catalog_service_client::CatalogServiceClient;
use berth_proto::placement::v1::import_service_client::ImportServiceClient;
use berth_proto::placement::v1::placement_service_client::PlacementServiceClient;
use berth_proto::placement::v1::{
    CreateResourceClassRequest, CreateTraitRequest, DeleteResourceProviderRequest,
    ImportConsumersRequest, ImportResourceProvidersRequest, ListConsumersRequest,
    ListResourceClassesRequest, ListResourceProvidersRequest, ListTraitsRequest,
    UpdateResourceProviderRequest,
};

use super::world::{self, Consumer, Here, Provider};
use crate::session::{Session, read_all, request_id};
use crate::{all_pages, call, read};

/// The page size of providers: each may have hundreds of traits.
const PROVIDERS_PAGE: i32 = 100;
/// The page size of small records.
const PAGE: i32 = 1000;

/// Checks that a scheduler answers, before anything that takes long.
///
/// # Errors
///
/// When none does.
pub async fn check_reachable(session: &Session) -> Result<(), Refusal> {
    let request = ListResourceClassesRequest {
        page_size: 1,
        ..Default::default()
    };
    let response = read!(
        session,
        CatalogServiceClient,
        list_resource_classes,
        request
    );
    response.map(drop)
}

/// Reads everything.
///
/// # Errors
///
/// When the scheduler does not answer.
pub async fn read(session: &Session) -> anyhow::Result<Here> {
    let mut here = Here::default();
    let request = ListResourceClassesRequest {
        page_size: PAGE,
        ..Default::default()
    };
    let all = all_pages!(
        session,
        CatalogServiceClient,
        list_resource_classes,
        request,
        resource_classes
    );
    for class in all {
        here.standard_classes
            .insert(ResourceClass::new(&class.name)?);
    }
    here.world.classes = world::custom(&here.standard_classes, ResourceClass::is_custom);
    here.standard_classes.retain(|class| !class.is_custom());
    let request = ListTraitsRequest {
        page_size: PAGE,
        ..Default::default()
    };
    let all = all_pages!(session, CatalogServiceClient, list_traits, request, traits);
    for one in all {
        here.standard_traits.insert(Trait::new(&one.name)?);
    }
    here.world.traits = world::custom(&here.standard_traits, Trait::is_custom);
    here.standard_traits.retain(|one| !one.is_custom());
    read_providers(session, &mut here).await?;
    read_consumers(session, &mut here).await?;
    Ok(here)
}

async fn read_providers(session: &Session, here: &mut Here) -> anyhow::Result<()> {
    let request = ListResourceProvidersRequest {
        page_size: PROVIDERS_PAGE,
        ..Default::default()
    };
    let all = all_pages!(
        session,
        PlacementServiceClient,
        list_resource_providers,
        request,
        resource_providers
    );
    for row in read_all::<_, ResourceProvider>(all)? {
        let id = row.id;
        here.hosts.extend(row.host.map(|host| (id, host)));
        here.provider_origins
            .extend(row.origin.map(|origin| (id, origin)));
        let provider = Provider {
            name: row.name,
            parent: row.parent,
            generation: row.generation,
            inventories: row.inventories,
            traits: row.traits,
            aggregates: row.aggregates,
        };
        here.world.providers.insert(id, provider);
    }
    Ok(())
}

async fn read_consumers(session: &Session, here: &mut Here) -> anyhow::Result<()> {
    let request = ListConsumersRequest {
        page_size: PAGE,
        ..Default::default()
    };
    let all = all_pages!(
        session,
        PlacementServiceClient,
        list_consumers,
        request,
        consumers
    );
    for row in read_all::<_, Row>(all)? {
        let id = row.id;
        here.consumer_origins
            .extend(row.origin.map(|origin| (id, origin)));
        let consumer = Consumer {
            generation: row.generation,
            project: row.project,
            user: row.user,
            consumer_type: row.consumer_type,
            allocations: row.allocations,
        };
        here.world.consumers.insert(id, consumer);
    }
    Ok(())
}

/// Makes a resource class, unless it is there.
///
/// # Errors
///
/// The scheduler's refusal.
pub async fn make_class(session: &Session, class: &ResourceClass) -> Result<(), Refusal> {
    let request = CreateResourceClassRequest {
        name: class.to_string(),
        request_id: request_id(None),
    };
    call!(
        session,
        CatalogServiceClient,
        create_resource_class,
        request
    )
    .map(drop)
}

/// Makes a trait, unless it is there.
///
/// # Errors
///
/// The scheduler's refusal.
pub async fn make_trait(session: &Session, name: &Trait) -> Result<(), Refusal> {
    let request = CreateTraitRequest {
        name: name.to_string(),
        request_id: request_id(None),
    };
    call!(session, CatalogServiceClient, create_trait, request).map(drop)
}

/// Renames a provider.
///
/// # Errors
///
/// The scheduler's refusal.
pub async fn rename(session: &Session, id: ProviderId, name: &str) -> Result<(), Refusal> {
    let request = UpdateResourceProviderRequest {
        name: id.resource_name(),
        display_name: Some(name.to_owned()),
        parent: None,
        request_id: request_id(None),
    };
    call!(
        session,
        PlacementServiceClient,
        update_resource_provider,
        request
    )
    .map(drop)
}

/// Takes a provider away.
///
/// # Errors
///
/// The scheduler's refusal.
pub async fn delete(session: &Session, id: ProviderId) -> Result<(), Refusal> {
    let request = DeleteResourceProviderRequest {
        name: id.resource_name(),
        request_id: request_id(None),
    };
    call!(
        session,
        PlacementServiceClient,
        delete_resource_provider,
        request
    )
    .map(drop)
}

/// Imports providers, all or none.
///
/// # Errors
///
/// The scheduler's refusal.
pub async fn import_providers(
    session: &Session,
    source: &str,
    providers: &[ProviderImport],
) -> Result<(), Refusal> {
    let request = ImportResourceProvidersRequest {
        source: source.to_owned(),
        providers: providers.iter().map(Into::into).collect(),
        request_id: request_id(None),
    };
    call!(
        session,
        ImportServiceClient,
        import_resource_providers,
        request
    )
    .map(drop)
}

/// Imports consumers, all or none.
///
/// # Errors
///
/// The scheduler's refusal.
pub async fn import_consumers(
    session: &Session,
    source: &str,
    consumers: &[ConsumerImport],
) -> Result<(), Refusal> {
    let request = ImportConsumersRequest {
        source: source.to_owned(),
        consumers: consumers.iter().map(Into::into).collect(),
        request_id: request_id(None),
    };
    call!(session, ImportServiceClient, import_consumers, request).map(drop)
}
