//! A query for candidates as OpenStack's clients write it, as the gRPC message of the same meaning.
//!
//! What the REST API would refuse is refused in the same words; whether names exist, the scheduler
//! that serves it knows.

use std::collections::BTreeSet;

use berth_domain::id::{AggregateId, ProviderId};
use berth_proto::convert::ResourceName as _;
use berth_proto::placement::v1;
use berth_proto::placement::v1::find_allocation_candidates_request::GroupPolicy;

use super::fault::Fault;
use super::groups::{CandidateParams, Group};
use super::microversion::Microversion;
use super::query::Query;
use super::schemas;

/// Reads the query of `GET /allocation_candidates` at the newest microversion.
///
/// # Errors
///
/// What the REST API would answer.
pub fn candidates_request(query: &str) -> Result<v1::FindAllocationCandidatesRequest, String> {
    let params = read(query.trim().trim_start_matches('?'));
    params.map(request).map_err(|fault| fault.detail)
}

fn read(query: &str) -> Result<CandidateParams, Fault> {
    let query = Query::parse(Some(query))?;
    schemas::check_query(&query, schemas::candidate_query(Microversion::MAX))?;
    CandidateParams::read(&query, Microversion::MAX)
}

fn request(params: CandidateParams) -> v1::FindAllocationCandidatesRequest {
    let subtrees = params.same_subtree.into_iter();
    let policy = match params.isolate {
        None => GroupPolicy::Unspecified,
        Some(false) => GroupPolicy::None,
        Some(true) => GroupPolicy::Isolate,
    };
    v1::FindAllocationCandidatesRequest {
        groups: params.groups.into_iter().map(group).collect(),
        group_policy: policy.into(),
        root_required_traits: params.root_required.into_iter().collect(),
        root_forbidden_traits: params.root_forbidden.into_iter().collect(),
        same_subtree: subtrees
            .map(|set| v1::SameSubtree {
                suffixes: set.into_iter().collect(),
            })
            .collect(),
        limit: params.limit.unwrap_or_default(),
        ..v1::FindAllocationCandidatesRequest::default()
    }
}

fn group((suffix, group): (String, Group)) -> v1::CandidateGroup {
    let any_trait = |set: BTreeSet<String>| v1::AnyTrait {
        traits: set.into_iter().collect(),
    };
    let text = |id: uuid::Uuid| AggregateId(id).to_string();
    let any_aggregate = |set: BTreeSet<uuid::Uuid>| v1::AnyAggregate {
        aggregates: set.into_iter().map(text).collect(),
    };
    let in_tree = group.in_tree.map(|id| ProviderId(id).resource_name());
    v1::CandidateGroup {
        suffix,
        resources: group.resources,
        required_traits: group.traits.required.into_iter().map(any_trait).collect(),
        forbidden_traits: group.traits.forbidden.into_iter().collect(),
        member_of: group
            .member_of
            .required
            .into_iter()
            .map(any_aggregate)
            .collect(),
        forbidden_aggregates: group.member_of.forbidden.into_iter().map(text).collect(),
        in_tree: in_tree.unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: every kind of parameter arrives. Method: one query with all of them.
    #[test]
    fn every_parameter_arrives() {
        let id = "b4c1f8e2-5d3a-4f6b-9c7d-1e2f3a4b5c6d";
        let query = format!(
            "?resources=VCPU:1&resources_A=VF:2&required_A=T,!U&required_A=in:V,W&in_tree_A={id}\
             &member_of_A=in:{id},{id}&member_of_A=!{id}&group_policy=isolate&limit=3\
             &root_required=R,!S&same_subtree=_A"
        );
        let request = candidates_request(&query).unwrap();
        assert_eq!(request.group_policy(), GroupPolicy::Isolate);
        assert_eq!(
            (request.limit, &*request.same_subtree[0].suffixes[0]),
            (3, "_A")
        );
        assert_eq!(
            (
                &*request.root_required_traits[0],
                &*request.root_forbidden_traits[0]
            ),
            ("R", "S")
        );
        let [plain, group] = &request.groups[..] else {
            panic!("{request:?}");
        };
        assert_eq!((&*plain.suffix, plain.resources["VCPU"]), ("", 1));
        assert_eq!((&*group.suffix, group.resources["VF"]), ("_A", 2));
        let sets: Vec<_> = group
            .required_traits
            .iter()
            .map(|any| any.traits.join("|"))
            .collect();
        assert_eq!(sets, ["T", "V|W"]);
        assert_eq!(group.forbidden_traits, ["U"]);
        assert_eq!(group.member_of[0].aggregates, [id]);
        assert_eq!(group.forbidden_aggregates, [id]);
        assert_eq!(group.in_tree, format!("resourceProviders/{id}"));
    }

    #[test]
    fn what_the_rest_api_refuses_is_refused() {
        for (query, part) in [
            ("", "at least one resources"),
            ("resources=VCPU", "Badly formed resources parameter"),
            (
                "resources=VCPU:1&bogus=1",
                "does not match any of the regexes",
            ),
            (
                "resources1=A:1&resources2=A:1",
                "\"group_policy\" parameter is required",
            ),
        ] {
            let error = candidates_request(query).unwrap_err();
            assert!(error.contains(part), "{query}: {error}");
        }
    }
}
