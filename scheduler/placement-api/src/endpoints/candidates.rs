//! `/allocation_candidates`: every way to serve a query.

use std::collections::BTreeSet;
use std::sync::Arc;

use berth_domain::allocation::Resources;
use berth_domain::id::{AggregateId, ProviderId};
use berth_domain::provider::ResourceProvider;
use berth_domain::resource::{ResourceClass, Trait};
use berth_selection::candidates::{
    Bounds, Candidate, Failed, Group, GroupPolicy, Order, Query, SearchBound, Suffix,
};
use berth_state::State;
use serde::Serialize;
use serde::ser::{SerializeSeq as _, Serializer};

use super::shared::in_order;
use crate::call::Call;
use crate::fault::Fault;
use crate::groups::{self, CandidateParams};
use crate::names;
use crate::reply::Reply;
use crate::schemas;

pub(super) async fn list(call: &Call<'_>) -> Result<Reply, Fault> {
    call.check_query(schemas::candidate_query(call.version))?;
    let params = CandidateParams::read(&call.query, call.version)?;
    let form = Form::of(call);
    let answer = call.search("allocation candidates", move |state, index| {
        let query = query(state, &params, form.is_nested)?;
        let found = index
            .candidates(&query, Bounds::default())
            .map_err(failed)?;
        form.render(state, &query, &found.candidates)
    });
    Ok(answer.await?.modified(call.now()))
}

/// Returns the query in names that the state knows.
fn query(state: &State, params: &CandidateParams, nested: bool) -> Result<Query, Fault> {
    let groups = params.groups.iter();
    let groups = groups.map(|(suffix, params)| Ok((Suffix::new(suffix), group(state, params)?)));
    let names = |names: &BTreeSet<String>| names::traits(state, names).map_err(Fault::bad_request);
    let subtrees = params.same_subtree.iter();
    let subtrees = subtrees.map(|set| set.iter().map(|suffix| Suffix::new(suffix)).collect());
    Ok(Query {
        groups: groups.collect::<Result<_, Fault>>()?,
        group_policy: params.isolate.map(|isolate| match isolate {
            true => GroupPolicy::Isolate,
            false => GroupPolicy::None,
        }),
        root_required: names(&params.root_required)?,
        root_forbidden: names(&params.root_forbidden)?,
        same_subtree: subtrees.collect(),
        limit: params.limit,
        nested,
        // With a limit others come up each time; without one all come, in an order to rely on.
        order: match params.limit {
            Some(_) => Order::Rotated {
                seed: uuid::Uuid::new_v4().as_u64_pair().0,
            },
            None => Order::Stable,
        },
    })
}

fn group(state: &State, params: &groups::Group) -> Result<Group, Fault> {
    let resources = names::amounts(state, &params.resources).map_err(|why| {
        let detail = format!("Invalid resource class in resources parameter: {why}");
        Fault::bad_request(detail)
    })?;
    let traits = |names: &BTreeSet<String>| names::traits(state, names).map_err(Fault::bad_request);
    let aggregates = |ids: &BTreeSet<uuid::Uuid>| ids.iter().copied().map(AggregateId).collect();
    Ok(Group {
        resources,
        required: params
            .traits
            .required
            .iter()
            .map(traits)
            .collect::<Result<_, _>>()?,
        forbidden: traits(&params.traits.forbidden)?,
        member_of: params.member_of.required.iter().map(aggregates).collect(),
        forbidden_aggregates: aggregates(&params.member_of.forbidden),
        in_tree: params.in_tree.map(ProviderId),
    })
}

fn failed(failed: Failed) -> Fault {
    let detail = match &failed {
        Failed::Bound(bound) => format!("{}: {bound}", SearchBound::REASON),
        Failed::Invalid(invalid) => invalid.to_string(),
    };
    Fault::bad_request(detail)
}

/// How an answer looks in a microversion.
#[derive(Clone, Copy)]
struct Form {
    is_map: bool,
    has_traits: bool,
    has_all_classes: bool,
    is_nested: bool,
    has_mappings: bool,
}

#[derive(Serialize)]
struct Answer<'a> {
    allocation_requests: Requests<'a>,
    provider_summaries: Summaries<'a>,
}

#[derive(Serialize)]
struct Count {
    capacity: u64,
    used: u64,
}

impl Form {
    fn of(call: &Call<'_>) -> Self {
        Self {
            is_map: call.has(12),
            has_traits: call.has(17),
            has_all_classes: call.has(27),
            is_nested: call.has(29),
            has_mappings: call.has(34),
        }
    }

    fn render(
        self,
        state: &State,
        query: &Query,
        candidates: &[Candidate],
    ) -> Result<Reply, Fault> {
        let taken = candidates
            .iter()
            .flat_map(|candidate| candidate.allocations.keys());
        let taken: BTreeSet<ProviderId> = taken.copied().collect();
        let shown: Vec<&Arc<ResourceProvider>> = match self.is_nested {
            false => taken.iter().filter_map(|id| state.provider(*id)).collect(),
            // Whole trees are shown, for what is not taken from says where what is taken is.
            true => {
                let roots = taken
                    .iter()
                    .filter_map(|id| Some(state.provider(*id)?.root));
                let roots: BTreeSet<ProviderId> = roots.collect();
                roots
                    .into_iter()
                    .flat_map(|root| state.tree_of(root))
                    .collect()
            }
        };
        let requested_classes = query
            .groups
            .values()
            .flat_map(|group| group.resources.keys());
        let summaries = Summaries {
            form: self,
            state,
            shown,
            requested_classes: requested_classes.collect(),
        };
        Reply::json(&Answer {
            allocation_requests: Requests {
                form: self,
                candidates,
            },
            provider_summaries: summaries,
        })
    }
}

/// The provider summaries, serialized one by one.
struct Summaries<'a> {
    form: Form,
    state: &'a State,
    shown: Vec<&'a Arc<ResourceProvider>>,
    /// The requested resource classes.
    requested_classes: BTreeSet<&'a ResourceClass>,
}

impl Serialize for Summaries<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let summaries = self.shown.iter().map(|provider| {
            let summary = Summary {
                resources: CountsOf(self, provider),
                traits: self.form.has_traits.then_some(InOrder(&provider.traits)),
                parent_provider_uuid: self.form.is_nested.then_some(provider.parent),
                root_provider_uuid: self.form.is_nested.then_some(provider.root),
            };
            (provider.id, summary)
        });
        serializer.collect_map(summaries)
    }
}

#[derive(Serialize)]
struct Summary<'a> {
    resources: CountsOf<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    traits: Option<InOrder<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    parent_provider_uuid: Option<Option<ProviderId>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    root_provider_uuid: Option<ProviderId>,
}

/// What a provider has and what is taken of it.
struct CountsOf<'a>(&'a Summaries<'a>, &'a ResourceProvider);

impl Serialize for CountsOf<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(summaries, provider) = self;
        let used = summaries.state.used_of_this(provider);
        let is_shown = |class: &ResourceClass| {
            summaries.form.has_all_classes || summaries.requested_classes.contains(class)
        };
        let classes = provider.inventories.iter();
        let counts = classes
            .filter(|(class, _)| is_shown(class))
            .map(|(class, inventory)| {
                let used = used.and_then(|used| used.get(class)).copied();
                let count = Count {
                    capacity: inventory.capacity(),
                    used: used.unwrap_or_default(),
                };
                (class, count)
            });
        serializer.collect_map(counts)
    }
}

/// The traits of a provider.
struct InOrder<'a>(&'a BTreeSet<Trait>);

impl Serialize for InOrder<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(in_order(self.0))
    }
}

/// The candidates, written one by one.
struct Requests<'a> {
    form: Form,
    candidates: &'a [Candidate],
}

impl Serialize for Requests<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut list = serializer.serialize_seq(Some(self.candidates.len()))?;
        for candidate in self.candidates {
            match self.form.is_map {
                true => list.serialize_element(&ByMap::of(self.form, candidate))?,
                false => list.serialize_element(&ByList::of(candidate))?,
            }
        }
        list.end()
    }
}

#[derive(Serialize)]
struct ByMap<'a> {
    allocations: TakenByProvider<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    mappings: Option<Mappings<'a>>,
}

impl<'a> ByMap<'a> {
    fn of(form: Form, candidate: &'a Candidate) -> Self {
        Self {
            allocations: TakenByProvider(candidate),
            mappings: form.has_mappings.then_some(Mappings(candidate)),
        }
    }
}

struct TakenByProvider<'a>(&'a Candidate);

impl Serialize for TakenByProvider<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let taken = self.0.allocations.iter();
        serializer.collect_map(taken.map(|(id, resources)| (id, Taken { resources })))
    }
}

#[derive(Serialize)]
struct Taken<'a> {
    resources: &'a Resources,
}

struct Mappings<'a>(&'a Candidate);

impl Serialize for Mappings<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mappings = self.0.mappings.iter();
        serializer.collect_map(mappings.map(|(suffix, providers)| (suffix.as_str(), providers)))
    }
}

#[derive(Serialize)]
struct ByList<'a> {
    allocations: Vec<TakenOf<'a>>,
}

#[derive(Serialize)]
struct TakenOf<'a> {
    resource_provider: Named<'a>,
    resources: &'a Resources,
}

#[derive(Serialize)]
struct Named<'a> {
    uuid: &'a ProviderId,
}

impl<'a> ByList<'a> {
    fn of(candidate: &'a Candidate) -> Self {
        let allocations = candidate.allocations.iter();
        let allocations = allocations.map(|(uuid, resources)| TakenOf {
            resource_provider: Named { uuid },
            resources,
        });
        Self {
            allocations: allocations.collect(),
        }
    }
}
