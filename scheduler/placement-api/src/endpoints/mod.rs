//! One resource per file: parse the request, execute it, render the response.

mod aggregate;
mod allocation;
mod candidates;
mod class;
mod inventory;
mod provider;
mod reshape;
mod root;
mod shared;
mod trait_name;
mod usage;

use super::call::Call;
use super::fault::Fault;
use super::reply::Reply;
use super::route::Route;

/// Answers a call that may be made.
pub(super) async fn answer(
    call: &Call<'_>,
    route: &Route,
    method: &'static str,
) -> Result<Reply, Fault> {
    match (route, method) {
        (Route::Root, _) => root::show(call),
        (Route::Providers, "GET") => provider::list(call).await,
        (Route::Providers, _) => provider::create(call).await,
        (Route::Provider(id), "GET") => provider::show(call, id).await,
        (Route::Provider(id), "PUT") => provider::update(call, id).await,
        (Route::Provider(id), _) => provider::delete(call, id).await,
        (Route::Inventories(id), "GET") => inventory::list(call, id).await,
        (Route::Inventories(id), "POST") => inventory::create(call, id).await,
        (Route::Inventories(id), "PUT") => inventory::replace(call, id).await,
        (Route::Inventories(id), _) => inventory::delete_all(call, id).await,
        (Route::Inventory(id, class), "GET") => inventory::show(call, id, class).await,
        (Route::Inventory(id, class), "PUT") => inventory::update(call, id, class).await,
        (Route::Inventory(id, class), _) => inventory::delete(call, id, class).await,
        (Route::ProviderUsages(id), _) => usage::of_provider(call, id).await,
        (Route::Aggregates(id), "GET") => aggregate::show(call, id).await,
        (Route::Aggregates(id), _) => aggregate::replace(call, id).await,
        (Route::ProviderAllocations(id), _) => allocation::of_provider(call, id).await,
        (Route::ProviderTraits(id), "GET") => trait_name::of_provider(call, id).await,
        (Route::ProviderTraits(id), "PUT") => trait_name::replace(call, id).await,
        (Route::ProviderTraits(id), _) => trait_name::clear(call, id).await,
        (Route::AllAllocations, _) => allocation::replace_all(call).await,
        (Route::Allocations(consumer), "GET") => allocation::show(call, consumer).await,
        (Route::Allocations(consumer), "PUT") => allocation::replace(call, consumer).await,
        (Route::Allocations(consumer), _) => allocation::delete(call, consumer).await,
        (Route::Candidates, _) => candidates::list(call).await,
        (Route::Classes, "GET") => class::list(call).await,
        (Route::Classes, _) => class::create(call).await,
        (Route::Class(name), "GET") => class::show(call, name).await,
        (Route::Class(name), "PUT") => class::update(call, name).await,
        (Route::Class(name), _) => class::delete(call, name).await,
        (Route::Traits, _) => trait_name::list(call).await,
        (Route::Trait(name), "GET") => trait_name::show(call, name).await,
        (Route::Trait(name), "PUT") => trait_name::create(call, name).await,
        (Route::Trait(name), _) => trait_name::delete(call, name).await,
        (Route::Usages, _) => usage::total(call).await,
        (Route::Reshaper, _) => reshape::reshape(call).await,
    }
}
