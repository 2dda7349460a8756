//! Which providers `ListResourceProviders` lists, and what it shares with the query of candidates.

use std::collections::{BTreeMap, BTreeSet};

use berth_domain::allocation::Resources;
use berth_domain::id::AggregateId;
use berth_domain::refusal::{Code, Refusal};
use berth_domain::resource::{ResourceClass, Trait};
use berth_proto::convert::placement::{read_aggregates, read_traits};
use berth_proto::convert::{Invalid, field};
use berth_proto::placement::v1;
use berth_selection::candidates::Filter;
use berth_state::State;

/// The most sets of which one member is enough.
const SETS_MAX: usize = 100;

/// Reads the filters of a request.
pub(crate) fn read(wire: &v1::ListResourceProvidersRequest) -> Result<Filter, Invalid> {
    let display_name = &wire.display_name;
    Ok(Filter {
        id: None,
        name: (!display_name.is_empty()).then(|| display_name.clone()),
        resources: amounts(wire.resources.clone())?,
        required: any_traits(wire.required_traits.clone())?,
        forbidden: read_traits(wire.forbidden_traits.clone(), "forbidden_traits")?,
        member_of: any_aggregates(wire.member_of.clone())?,
        forbidden_aggregates: read_aggregates(
            wire.forbidden_aggregates.clone(),
            "forbidden_aggregates",
        )?,
        in_tree: field::optional_name(&wire.in_tree, "in_tree")?,
    })
}

/// Reads amounts that are at least 1.
pub(super) fn amounts(wire: BTreeMap<String, u64>) -> Result<Resources, Invalid> {
    let resources = field::resources(wire, "resources")?;
    match resources.iter().find(|(_, amount)| **amount == 0) {
        None => Ok(resources),
        Some((class, _)) => {
            let field = format!("resources[\"{class}\"]");
            Err(Invalid::new(field, "must be at least 1"))
        }
    }
}

/// Reads sets of traits of each of which one is enough.
pub(super) fn any_traits(wire: Vec<v1::AnyTrait>) -> Result<Vec<BTreeSet<Trait>>, Invalid> {
    field::each_by(wire, "required_traits", SETS_MAX, any_trait)
}

/// Reads sets of aggregates of each of which one is enough.
pub(super) fn any_aggregates(
    wire: Vec<v1::AnyAggregate>,
) -> Result<Vec<BTreeSet<AggregateId>>, Invalid> {
    field::each_by(wire, "member_of", SETS_MAX, any_aggregate)
}

fn any_trait(wire: v1::AnyTrait) -> Result<BTreeSet<Trait>, Invalid> {
    some(read_traits(wire.traits, "traits")?, "traits")
}

fn any_aggregate(wire: v1::AnyAggregate) -> Result<BTreeSet<AggregateId>, Invalid> {
    some(
        read_aggregates(wire.aggregates, "aggregates")?,
        "aggregates",
    )
}

fn some<T>(set: BTreeSet<T>, field: &str) -> Result<BTreeSet<T>, Invalid> {
    match set.is_empty() {
        true => Err(Invalid::new(field, "must name at least one")),
        false => Ok(set),
    }
}

/// Checks that the state knows what a filter names: a misspelt name would find nothing.
pub(crate) fn check(filter: &Filter, state: &State) -> Result<(), Refusal> {
    check_classes(filter.resources.keys(), state)?;
    let required = filter.required.iter().flatten();
    check_traits(required.chain(&filter.forbidden), state)
}

/// Checks that the state knows these resource classes.
pub(super) fn check_classes<'n>(
    classes: impl IntoIterator<Item = &'n ResourceClass>,
    state: &State,
) -> Result<(), Refusal> {
    let unknown = classes.into_iter().find(|class| !state.knows_class(class));
    let Some(unknown) = unknown else {
        return Ok(());
    };
    let message = format!("resource class {unknown} does not exist");
    let refusal = Refusal::new(Code::InvalidArgument, "UNKNOWN_RESOURCE_CLASS", message);
    let refusal =
        refusal.with_hint("ListResourceClasses (berth class list) names those that exist");
    Err(refusal.with("class", unknown))
}

/// Checks that the state knows these traits.
pub(super) fn check_traits<'n>(
    traits: impl IntoIterator<Item = &'n Trait>,
    state: &State,
) -> Result<(), Refusal> {
    let unknown = traits.into_iter().find(|name| !state.knows_trait(name));
    let Some(unknown) = unknown else {
        return Ok(());
    };
    let message = format!("trait {unknown} does not exist");
    let refusal = Refusal::new(Code::InvalidArgument, "UNKNOWN_TRAIT", message);
    let refusal = refusal.with_hint("ListTraits (berth trait list) names those that exist");
    Err(refusal.with("traits", unknown))
}
