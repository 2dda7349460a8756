//! Which providers `GET /resource_providers` lists.

use std::collections::BTreeSet;

use berth_domain::id::{AggregateId, ProviderId};
use berth_selection::candidates;
use berth_state::State;
use uuid::Uuid;

use super::fault::Fault;
use super::forms::{self, Amounts, MemberOf, Traits};
use super::microversion::Microversion;
use super::names;
use super::query::Query;
use super::uuids;

/// What a listed provider must have; names of classes and traits may be unknown.
#[derive(Debug)]
pub(super) struct Filter {
    name: Option<String>,
    id: Option<ProviderId>,
    in_tree: Option<ProviderId>,
    member_of: MemberOf,
    traits: Traits,
    resources: Amounts,
}

impl Filter {
    /// Reads a query that the schema has let through.
    pub(super) fn read(query: &Query, version: Microversion) -> Result<Self, Fault> {
        let id = |key| query.get(key).and_then(uuids::parse).map(ProviderId);
        Ok(Self {
            // An empty name is no name to look for.
            name: query
                .get("name")
                .filter(|name| !name.is_empty())
                .map(str::to_owned),
            id: id("uuid"),
            in_tree: id("in_tree"),
            member_of: forms::member_of(query.all("member_of"), "", version)?,
            traits: forms::required(query.all("required"), version)?,
            resources: match query.get("resources") {
                Some(text) => forms::resources(text)?,
                None => Amounts::new(),
            },
        })
    }

    /// Returns the same in names that the state knows.
    ///
    /// # Errors
    ///
    /// Which names it does not know.
    pub(super) fn known(self, state: &State) -> Result<candidates::Filter, Fault> {
        let bad_trait = |why: String| {
            Fault::bad_request(format!("Invalid trait(s) in \"required\" parameter: {why}"))
        };
        let bad_class = |why: String| {
            Fault::bad_request(format!(
                "Invalid resource class in resources parameter: {why}"
            ))
        };
        let required = self.traits.required.iter();
        let required = required.map(|any| names::traits(state, any));
        let aggregates = |ids: BTreeSet<Uuid>| ids.into_iter().map(AggregateId).collect();
        let member_of = self.member_of;
        Ok(candidates::Filter {
            required: required.collect::<Result<_, _>>().map_err(bad_trait)?,
            forbidden: names::traits(state, &self.traits.forbidden).map_err(bad_trait)?,
            resources: names::amounts(state, &self.resources).map_err(bad_class)?,
            member_of: member_of.required.into_iter().map(aggregates).collect(),
            forbidden_aggregates: aggregates(member_of.forbidden),
            in_tree: self.in_tree,
            id: self.id,
            name: self.name,
        })
    }
}
