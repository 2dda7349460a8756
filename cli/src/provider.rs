//! `berth provider`: makes and looks at resource providers.

mod watch;

use berth_domain::inventory::Inventory;
use berth_domain::provider::ResourceProvider;
use berth_domain::refusal::{Code, Refusal};

use berth_proto::placement::v1::placement_service_client::PlacementServiceClient;
use berth_proto::placement::v1::{
    CreateResourceProviderRequest, DeleteResourceProviderRequest, GetResourceProviderRequest,
    GetUsageRequest, ListResourceProvidersRequest, ReplaceAggregatesRequest,
    ReplaceInventoriesRequest, ReplaceTraitsRequest, UpdateResourceProviderRequest,
};
use serde_json::json;

use crate::arguments::{Provider as Verb, ProviderList};
use crate::output::Columns;
use crate::session::{Session, request_id, resource, short};
use crate::{all_pages, call, candidates, output, read};

/// The columns of the list.
pub(crate) const COLUMNS: Columns<5, 2> = Columns {
    usual: ["provider", "name", "parent", "owner", "generation"],
    wide: ["root", "inventories"],
};

/// Runs the command.
///
/// # Errors
///
/// The scheduler's refusal.
pub async fn run(session: &Session, verb: Verb) -> anyhow::Result<()> {
    match verb {
        Verb::List(args) => list(session, args).await,
        Verb::Watch { provider, after } => {
            let provider = match provider {
                Some(provider) => Some(id_of(session, &provider).await?),
                None => None,
            };
            watch::run(session, provider, after).await
        }
        Verb::Show { provider } => show(session, &id_of(session, &provider).await?).await,
        Verb::Create {
            display_name,
            parent,
        } => {
            let id = uuid::Uuid::new_v4().to_string();
            let parent = named(session, parent).await?;
            let request = CreateResourceProviderRequest {
                name: resource("resourceProviders", &id),
                display_name,
                parent: parent.unwrap_or_default(),
                request_id: request_id(None),
            };
            call!(
                session,
                PlacementServiceClient,
                create_resource_provider,
                request
            )?;
            show(session, &id).await
        }
        Verb::Update {
            provider,
            display_name,
            parent,
            root,
        } => {
            let provider = id_of(session, &provider).await?;
            let below = named(session, parent).await?;
            let request = UpdateResourceProviderRequest {
                name: resource("resourceProviders", &provider),
                display_name,
                parent: below.or_else(|| root.then(String::new)),
                request_id: request_id(None),
            };
            call!(
                session,
                PlacementServiceClient,
                update_resource_provider,
                request
            )?;
            show(session, &provider).await
        }
        Verb::SetInventories {
            provider,
            inventories,
        } => {
            let provider = id_of(session, &provider).await?;
            let inventories = inventories
                .into_iter()
                .map(|(class, total)| (class, (&Inventory::exact(total)).into()))
                .collect();
            let request = ReplaceInventoriesRequest {
                resource_provider: resource("resourceProviders", &provider),
                generation: get(session, &provider).await?.generation.0,
                inventories,
                request_id: request_id(None),
            };
            call!(
                session,
                PlacementServiceClient,
                replace_inventories,
                request
            )?;
            show(session, &provider).await
        }
        Verb::SetTraits { provider, traits } => {
            let provider = id_of(session, &provider).await?;
            let request = ReplaceTraitsRequest {
                resource_provider: resource("resourceProviders", &provider),
                generation: get(session, &provider).await?.generation.0,
                traits,
                request_id: request_id(None),
            };
            call!(session, PlacementServiceClient, replace_traits, request)?;
            show(session, &provider).await
        }
        Verb::SetAggregates {
            provider,
            aggregates,
        } => {
            let provider = id_of(session, &provider).await?;
            let request = ReplaceAggregatesRequest {
                resource_provider: resource("resourceProviders", &provider),
                generation: Some(get(session, &provider).await?.generation.0),
                aggregates,
                request_id: request_id(None),
            };
            call!(session, PlacementServiceClient, replace_aggregates, request)?;
            show(session, &provider).await
        }
        Verb::Delete { provider } => {
            let provider = id_of(session, &provider).await?;
            let request = DeleteResourceProviderRequest {
                name: resource("resourceProviders", &provider),
                request_id: request_id(None),
            };
            call!(
                session,
                PlacementServiceClient,
                delete_resource_provider,
                request
            )?;
            let name = resource("resourceProviders", &provider);
            session.done(&name, "deleted", format!("provider {provider} is deleted"))
        }
    }
}

/// Returns the resource name of a provider, if one is given.
async fn named(session: &Session, provider: Option<String>) -> anyhow::Result<Option<String>> {
    Ok(match provider {
        Some(provider) => Some(resource(
            "resourceProviders",
            &id_of(session, &provider).await?,
        )),
        None => None,
    })
}

/// Returns the id of a provider, which may be given by its name.
async fn id_of(session: &Session, provider: &str) -> anyhow::Result<String> {
    let collection = "resourceProviders/";
    let name = provider.strip_prefix(collection).unwrap_or(provider);
    // An empty one would stand for all of them in a list.
    if name.is_empty() || name.parse::<uuid::Uuid>().is_ok() {
        return Ok(name.to_owned());
    }
    let request = ListResourceProvidersRequest {
        display_name: name.to_owned(),
        ..Default::default()
    };
    let all = all_pages!(
        session,
        PlacementServiceClient,
        list_resource_providers,
        request,
        resource_providers
    );
    // Names are unique.
    match all.first() {
        Some(found) => Ok(short(&found.name).to_owned()),
        None => Err(Refusal::new(
            Code::NotFound,
            "RESOURCE_PROVIDER_NOT_FOUND",
            format!("no resource provider has the name {provider}"),
        )
        .with_hint("`berth provider list` shows which there are")
        .into()),
    }
}

async fn get(session: &Session, provider: &str) -> anyhow::Result<ResourceProvider> {
    let request = GetResourceProviderRequest {
        name: resource("resourceProviders", provider),
        ..Default::default()
    };
    let response = read!(
        session,
        PlacementServiceClient,
        get_resource_provider,
        request
    )?;
    Ok(response.resource_provider.unwrap_or_default().try_into()?)
}

fn taken_over(record: &ResourceProvider) -> String {
    let origin = record.origin.as_ref();
    origin.map_or("-".to_owned(), |origin| {
        format!("{}, at generation {}", origin.source, origin.generation)
    })
}

async fn list(session: &Session, args: ProviderList) -> anyhow::Result<()> {
    let none = match args == ProviderList::default() {
        true => "there is no resource provider",
        false => "no resource provider is like that",
    };
    let filter = args.filter;
    let request = ListResourceProvidersRequest {
        display_name: args.name.unwrap_or_default(),
        resources: candidates::amounts(args.resources)?,
        required_traits: candidates::any_traits(&filter.required),
        forbidden_traits: filter.forbidden,
        member_of: candidates::any_aggregates(&filter.member_of),
        forbidden_aggregates: filter.not_member_of,
        in_tree: candidates::provider_or_empty(filter.in_tree),
        ..Default::default()
    };
    let all = all_pages!(
        session,
        PlacementServiceClient,
        list_resource_providers,
        request,
        resource_providers
    );
    let all = all
        .into_iter()
        .map(TryInto::try_into)
        .collect::<Result<Vec<ResourceProvider>, _>>()?;
    if session.for_programs() {
        return output::value(&all);
    }
    let rows = all
        .iter()
        .map(|p| {
            let usual = [
                p.id.to_string(),
                p.name.clone(),
                output::or_dash(p.parent),
                p.host.as_ref().map_or("client", |_| "host").to_owned(),
                p.generation.to_string(),
            ];
            let totals = p.inventories.iter();
            let totals = totals.map(|(class, inventory)| format!("{class}={}", inventory.total));
            let totals: Vec<String> = totals.collect();
            let totals = Some(totals.join(" ")).filter(|totals| !totals.is_empty());
            (usual, [p.root.to_string(), output::or_dash(totals)])
        })
        .collect();
    output::list(&COLUMNS, rows, none)
}

async fn show(session: &Session, provider: &str) -> anyhow::Result<()> {
    let record = get(session, provider).await?;
    let request = GetUsageRequest {
        resource_provider: resource("resourceProviders", provider),
        ..Default::default()
    };
    let usage = read!(session, PlacementServiceClient, get_usage, request)?;
    if session.for_programs() {
        return output::value(
            &json!({"provider": record, "used": usage.used, "capacity": usage.capacity}),
        );
    }
    let traits: Vec<String> = record.traits.iter().map(ToString::to_string).collect();
    let aggregates: Vec<String> = record.aggregates.iter().map(ToString::to_string).collect();
    let joined = |all: Vec<String>| {
        if all.is_empty() {
            return "-".to_owned();
        }
        all.join(" ")
    };
    let above = record.parent.map_or("-".to_owned(), |id| id.to_string());
    output::fields(&[
        ("provider", record.id.to_string()),
        ("name", record.name.clone()),
        ("generation", record.generation.to_string()),
        (
            "host",
            record
                .host
                .as_ref()
                .map_or("-".to_owned(), ToString::to_string),
        ),
        ("parent", above),
        ("root", record.root.to_string()),
        ("traits", joined(traits)),
        ("aggregates", joined(aggregates)),
        ("taken over from", taken_over(&record)),
    ]);
    let rows = record
        .inventories
        .iter()
        .map(|(class, inventory)| {
            [
                class.to_string(),
                inventory.total.to_string(),
                inventory.reserved.to_string(),
                inventory.allocation_ratio.to_string(),
                inventory.capacity().to_string(),
                usage
                    .used
                    .get(class.as_str())
                    .copied()
                    .unwrap_or(0)
                    .to_string(),
                inventory.min_unit.to_string(),
                inventory.max_unit.to_string(),
                inventory.step_size.to_string(),
            ]
        })
        .collect();
    output::table(
        [
            "class", "total", "reserved", "ratio", "capacity", "used", "min", "max", "step",
        ],
        rows,
        "it has no inventory",
    );
    Ok(())
}
