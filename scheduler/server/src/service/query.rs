//! The query of `FindAllocationCandidates`, in the form that the search takes.

use std::collections::{BTreeMap, BTreeSet};

use berth_domain::refusal::{Code, Refusal};
use berth_domain::resource::Trait;
use berth_proto::convert::placement::{read_aggregates, read_traits};
use berth_proto::convert::{Invalid, field};
use berth_proto::placement::v1;
use berth_proto::placement::v1::find_allocation_candidates_request as wire;
use berth_selection::candidates::query::CHOICES_MAX;
use berth_selection::candidates::{self, Group, GroupPolicy, Order, Query, Suffix};
use berth_state::State;
use uuid::Uuid;

use super::filter;

/// The most traits and aggregates that a query names: each is looked for in every
/// provider that is looked at.
const NAMES_MAX: usize = 1000;

/// The longest suffix.
const SUFFIX_MAX: usize = 64;

/// Reads a query.
pub(super) fn read(wire: v1::FindAllocationCandidatesRequest) -> Result<Query, Invalid> {
    let group_policy = match wire.group_policy() {
        wire::GroupPolicy::Unspecified => known(wire.group_policy, "group_policy", None)?,
        wire::GroupPolicy::None => Some(GroupPolicy::None),
        wire::GroupPolicy::Isolate => Some(GroupPolicy::Isolate),
    };
    let limit = (wire.limit > 0).then_some(wire.limit);
    let order = order(&wire, limit.is_some())?;
    let groups = groups(wire.groups)?;
    let root_required = read_traits(wire.root_required_traits, "root_required_traits")?;
    let root_forbidden = read_traits(wire.root_forbidden_traits, "root_forbidden_traits")?;
    let names: usize = groups.values().map(names).sum();
    let names = names + root_required.len() + root_forbidden.len();
    if names > NAMES_MAX {
        let rule = format!("name {names} traits and aggregates; at most {NAMES_MAX} are allowed");
        return Err(Invalid::new("groups", rule));
    }
    Ok(Query {
        groups,
        group_policy,
        root_required,
        root_forbidden,
        same_subtree: field::each_by(wire.same_subtree, "same_subtree", CHOICES_MAX, |set| {
            let suffixes = field::each_by(set.suffixes, "suffixes", CHOICES_MAX, suffix)?;
            Ok(BTreeSet::from_iter(suffixes))
        })?,
        limit,
        nested: !wire.flat,
        order,
    })
}

/// Returns what stands for an absent choice; a number that this build does not know is none.
fn known<T>(number: i32, field: &str, absent: T) -> Result<T, Invalid> {
    match number {
        0 => Ok(absent),
        _ => Err(Invalid::new(field, "must be one of the named values")),
    }
}

fn order(wire: &v1::FindAllocationCandidatesRequest, limited: bool) -> Result<Order, Invalid> {
    let rotated = || Order::Rotated {
        seed: wire.seed.unwrap_or_else(|| Uuid::new_v4().as_u64_pair().0),
    };
    Ok(match wire.order() {
        wire::Order::Stable => Order::Stable,
        wire::Order::Rotated => rotated(),
        // With a limit others come up each time; without one all come, in an order to rely on.
        wire::Order::Unspecified => known(wire.order, "order", ())
            .map(|()| if limited { rotated() } else { Order::Stable })?,
    })
}

fn groups(wire: Vec<v1::CandidateGroup>) -> Result<BTreeMap<Suffix, Group>, Invalid> {
    let count = wire.len();
    let groups = field::each_by(wire, "groups", CHOICES_MAX, group)?;
    let groups: BTreeMap<Suffix, Group> = groups.into_iter().collect();
    match groups.len() == count {
        true => Ok(groups),
        false => Err(Invalid::new("groups", "must have each suffix once")),
    }
}

fn group(wire: v1::CandidateGroup) -> Result<(Suffix, Group), Invalid> {
    let group = Group {
        resources: filter::amounts(wire.resources)?,
        required: filter::any_traits(wire.required_traits)?,
        forbidden: read_traits(wire.forbidden_traits, "forbidden_traits")?,
        member_of: filter::any_aggregates(wire.member_of)?,
        forbidden_aggregates: read_aggregates(wire.forbidden_aggregates, "forbidden_aggregates")?,
        in_tree: field::optional_name(&wire.in_tree, "in_tree")?,
    };
    let suffix = match &*wire.suffix {
        "" => Suffix::new(""),
        _ => suffix(wire.suffix).map_err(|e| e.within("suffix"))?,
    };
    Ok((suffix, group))
}

fn suffix(text: String) -> Result<Suffix, Invalid> {
    let plain = |c: u8| c.is_ascii_alphanumeric() || c == b'_' || c == b'-';
    match (1..=SUFFIX_MAX).contains(&text.len()) && text.bytes().all(plain) {
        true => Ok(Suffix::new(&text)),
        false => Err(Invalid::here(format!(
            "must be 1 to {SUFFIX_MAX} letters, digits, `_` or `-`"
        ))),
    }
}

fn names(group: &Group) -> usize {
    let traits: usize = group.required.iter().map(BTreeSet::len).sum();
    let aggregates: usize = group.member_of.iter().map(BTreeSet::len).sum();
    traits + aggregates + group.forbidden.len() + group.forbidden_aggregates.len()
}

/// Checks that a query can be answered, and that the state knows what it names.
pub(super) fn check(query: &Query, state: &State) -> Result<(), Refusal> {
    query.validate().map_err(|invalid| refuse(&invalid))?;
    let groups = || query.groups.values();
    filter::check_classes(groups().flat_map(|group| group.resources.keys()), state)?;
    let root = query.root_required.iter().chain(&query.root_forbidden);
    let required = groups().flat_map(|group| group.required.iter().flatten());
    let forbidden = groups().flat_map(|group| &group.forbidden);
    let traits: Vec<&Trait> = root.chain(required).chain(forbidden).collect();
    filter::check_traits(traits, state)
}

/// Says why a query cannot be answered.
pub(super) fn refuse(invalid: &candidates::Invalid) -> Refusal {
    Refusal::new(Code::InvalidArgument, "INVALID_QUERY", invalid.to_string())
}
