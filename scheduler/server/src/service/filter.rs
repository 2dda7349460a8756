//! Which providers `ListResourceProviders` lists.

use std::collections::BTreeSet;

use berth_domain::allocation::Resources;
use berth_domain::id::AggregateId;
use berth_domain::refusal::{Code, Refusal};
use berth_domain::resource::Trait;
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
        resources: amounts(wire)?,
        required: field::each_by(
            wire.required_traits.clone(),
            "required_traits",
            SETS_MAX,
            any_trait,
        )?,
        forbidden: read_traits(wire.forbidden_traits.clone(), "forbidden_traits")?,
        member_of: field::each_by(wire.member_of.clone(), "member_of", SETS_MAX, any_aggregate)?,
        forbidden_aggregates: read_aggregates(
            wire.forbidden_aggregates.clone(),
            "forbidden_aggregates",
        )?,
        in_tree: field::optional_name(&wire.in_tree, "in_tree")?,
    })
}

fn amounts(wire: &v1::ListResourceProvidersRequest) -> Result<Resources, Invalid> {
    let resources = field::resources(wire.resources.clone(), "resources")?;
    match resources.iter().find(|(_, amount)| **amount == 0) {
        None => Ok(resources),
        Some((class, _)) => {
            let field = format!("resources[\"{class}\"]");
            Err(Invalid::new(field, "must be at least 1"))
        }
    }
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
    let mut classes = filter.resources.keys();
    if let Some(unknown) = classes.find(|class| !state.knows_class(class)) {
        let message = format!("resource class {unknown} does not exist");
        let refusal = Refusal::new(Code::InvalidArgument, "UNKNOWN_RESOURCE_CLASS", message);
        let refusal = refusal.with_hint("ListResourceClasses names those that exist");
        return Err(refusal.with("class", unknown));
    }
    let mut traits = filter.required.iter().flatten().chain(&filter.forbidden);
    if let Some(unknown) = traits.find(|name| !state.knows_trait(name)) {
        let message = format!("trait {unknown} does not exist");
        let refusal = Refusal::new(Code::InvalidArgument, "UNKNOWN_TRAIT", message);
        let refusal = refusal.with_hint("ListTraits names those that exist");
        return Err(refusal.with("traits", unknown));
    }
    Ok(())
}
