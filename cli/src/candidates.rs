//! `berth candidates`: ways to take resources from providers, or why there is none.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::bail;
use berth_domain::refusal::Refusal;
use berth_proto::placement::v1::find_allocation_candidates_request as wire;
use berth_proto::placement::v1::placement_service_client::PlacementServiceClient;
use berth_proto::placement::v1::{
    AllocationCandidate, AnyAggregate, AnyTrait, CandidateExplanation, CandidateGroup,
    CandidateRemoval, CandidateRequirement, FindAllocationCandidatesRequest, NearestTree,
    ProviderSummary, SameSubtree,
};
use berth_proto::status::from_status;
use serde_json::{Value, json};

use crate::arguments::{Candidates, Group, GroupPolicy, Order, Qualities};
use crate::session::{Session, resource, short};
use crate::{ask, draw, output};

/// The most requirements that are shown to people, so that the reason fits on a screen.
const REMOVALS_SHOWN: usize = 16;

/// There are no candidates, which was told.
#[derive(Debug, thiserror::Error)]
#[error("there are no allocation candidates")]
pub struct NoneFound;

/// What was found.
#[derive(Default)]
struct Found {
    candidates: Vec<AllocationCandidate>,
    providers: BTreeMap<String, ProviderSummary>,
    revision: u64,
    stopped: bool,
    explanation: Option<CandidateExplanation>,
}

/// Does what was typed.
///
/// # Errors
///
/// What the scheduler refused, and [`NoneFound`].
pub async fn run(session: &Session, asked: Candidates) -> anyhow::Result<()> {
    let request = request(asked)?;
    let found = find(session, request).await?;
    if session.json() {
        output::json(&told(&found))?;
    } else if let Some(explanation) = &found.explanation {
        output::tell(&explain(explanation));
    } else {
        show(&found);
    }
    match found.explanation {
        Some(_) => Err(NoneFound.into()),
        None => Ok(()),
    }
}

async fn find(
    session: &Session,
    request: FindAllocationCandidatesRequest,
) -> Result<Found, Refusal> {
    let mut stream = ask!(
        session,
        PlacementServiceClient,
        find_allocation_candidates,
        request
    )?;
    let mut found = Found::default();
    while let Some(message) = stream.message().await.map_err(|s| from_status(&s))? {
        let summaries = message.summaries.into_iter();
        let summaries = summaries.map(|s| (s.resource_provider.clone(), s));
        found.providers.extend(summaries);
        found.candidates.extend(message.candidates);
        found.revision = message.revision;
        found.stopped = message.stopped;
        found.explanation = message.explanation;
    }
    Ok(found)
}

fn request(asked: Candidates) -> anyhow::Result<FindAllocationCandidatesRequest> {
    let mut request = match &asked.query {
        Some(query) => {
            let read = berth_scheduler::candidates_request(query);
            read.map_err(|why| anyhow::anyhow!("the query is wrong: {why}"))?
        }
        None => of_flags(&asked)?,
    };
    if request.limit == 0 {
        request.limit = asked.limit;
    }
    if let Some(order) = asked.order {
        request.set_order(match order {
            Order::Stable => wire::Order::Stable,
            Order::Rotated => wire::Order::Rotated,
        });
    }
    request.flat = asked.flat;
    Ok(request)
}

fn of_flags(asked: &Candidates) -> anyhow::Result<FindAllocationCandidatesRequest> {
    let mut groups = Vec::new();
    if !asked.resources.is_empty() {
        groups.push(group("", &asked.resources, &asked.qualities)?);
    } else if asked.qualities != Qualities::default() {
        bail!("--required and the like are about --resources, which is missing");
    }
    for Group {
        name,
        resources,
        qualities,
    } in &asked.groups
    {
        groups.push(group(name, resources, qualities)?);
    }
    let policy = match asked.group_policy {
        None => wire::GroupPolicy::Unspecified,
        Some(GroupPolicy::None) => wire::GroupPolicy::None,
        Some(GroupPolicy::Isolate) => wire::GroupPolicy::Isolate,
    };
    let subtree = |names: &String| SameSubtree {
        suffixes: names
            .split(',')
            .map(|name| name.trim().to_owned())
            .collect(),
    };
    Ok(FindAllocationCandidatesRequest {
        groups,
        group_policy: policy.into(),
        root_required_traits: asked.root_required.clone(),
        root_forbidden_traits: asked.root_forbidden.clone(),
        same_subtree: asked.same_subtree.iter().map(subtree).collect(),
        ..Default::default()
    })
}

fn group(
    suffix: &str,
    resources: &[(String, u64)],
    qualities: &Qualities,
) -> anyhow::Result<CandidateGroup> {
    Ok(CandidateGroup {
        suffix: suffix.to_owned(),
        resources: amounts(resources.to_vec())?,
        required_traits: any_traits(&qualities.required),
        forbidden_traits: qualities.forbidden.clone(),
        member_of: any_aggregates(&qualities.member_of),
        forbidden_aggregates: qualities.not_member_of.clone(),
        in_tree: provider_or_empty(qualities.in_tree.clone()),
    })
}

/// Returns amounts by class.
///
/// # Errors
///
/// When a class is named twice.
pub(crate) fn amounts(all: Vec<(String, u64)>) -> anyhow::Result<BTreeMap<String, u64>> {
    let mut amounts = BTreeMap::new();
    for (class, amount) in all {
        if amounts.insert(class.clone(), amount).is_some() {
            bail!("{class} is asked for twice");
        }
    }
    Ok(amounts)
}

/// Returns what of each text separates by `|`.
pub(crate) fn any_traits(all: &[String]) -> Vec<AnyTrait> {
    let any = all.iter().map(|text| AnyTrait {
        traits: text.split('|').map(ToOwned::to_owned).collect(),
    });
    any.collect()
}

/// Returns what of each text separates by `|`.
pub(crate) fn any_aggregates(all: &[String]) -> Vec<AnyAggregate> {
    let any = all.iter().map(|text| AnyAggregate {
        aggregates: text.split('|').map(ToOwned::to_owned).collect(),
    });
    any.collect()
}

/// Returns the name of a provider that may be absent.
pub(crate) fn provider_or_empty(id: Option<String>) -> String {
    id.map(|id| resource("resourceProviders", &id))
        .unwrap_or_default()
}

fn show(found: &Found) {
    let mut rows = Vec::new();
    for (at, candidate) in found.candidates.iter().enumerate() {
        // A provider of a group without resources is named without an amount.
        let mut without: BTreeSet<&String> = BTreeSet::new();
        without.extend(
            candidate
                .mappings
                .iter()
                .flat_map(|m| &m.resource_providers),
        );
        for allocation in &candidate.allocations {
            without.remove(&allocation.resource_provider);
            for (class, amount) in &allocation.resources {
                let taken = (class.as_str(), amount.to_string());
                rows.push(row(found, at, &allocation.resource_provider, taken));
            }
        }
        let none = || ("-", "-".to_owned());
        rows.extend(without.into_iter().map(|name| row(found, at, name, none())));
    }
    let head = ["candidate", "provider", "name", "class", "amount", "group"];
    output::table(head, rows, "there is no candidate");
    if found.stopped {
        output::tell("the search was stopped by its bounds: there may be others");
    }
}

fn row(found: &Found, at: usize, provider: &str, (class, amount): (&str, String)) -> [String; 6] {
    let serves = |suffix: &str| match suffix {
        "" => "-".to_owned(),
        _ => suffix.to_owned(),
    };
    let mappings = found.candidates[at].mappings.iter();
    let groups = mappings.filter(|m| m.resource_providers.iter().any(|name| name == provider));
    let groups: Vec<String> = groups.map(|m| serves(&m.suffix)).collect();
    let name = found
        .providers
        .get(provider)
        .map(|summary| summary.display_name.clone());
    [
        (at + 1).to_string(),
        short(provider).to_owned(),
        name.unwrap_or_default(),
        class.to_owned(),
        amount,
        groups.join(","),
    ]
}

/// Returns why there are none, for people: what removed how many, and what came nearest.
fn explain(explanation: &CandidateExplanation) -> String {
    if explanation.removals.is_empty() {
        return explanation.text.clone();
    }
    let mut text = format!(
        "no allocation candidates among {} in {}\n\n",
        draw::count(whole(explanation.providers), "provider"),
        draw::count(whole(explanation.trees), "tree")
    );
    let shown = explanation.removals.iter().take(REMOVALS_SHOWN);
    let rows = shown.map(|removal| {
        let of = match removal.suffix {
            Some(_) => "provider",
            None => "tree",
        };
        [
            asks(removal),
            words(removal.requirement.as_ref()),
            removal.removed.to_string(),
            draw::count(whole(removal.left), of),
        ]
    });
    text += &output::rendered(["group", "requirement", "removed", "left"], rows.collect());
    match explanation.removals.len().saturating_sub(REMOVALS_SHOWN) {
        0 => {}
        more => text += &format!("and {more} more, which --output json shows\n"),
    }
    if let Some(nearest) = &explanation.nearest {
        text += &format!("\nnearest: {}", nearest_miss(nearest));
    }
    text
}

fn whole(count: u64) -> usize {
    usize::try_from(count).unwrap_or(usize::MAX)
}

fn asks(removal: &CandidateRemoval) -> String {
    match removal.suffix.as_deref() {
        None => "any tree".to_owned(),
        Some("") => format!("- ({})", removal.resource_class),
        Some(suffix) => suffix.to_owned(),
    }
}

fn words(requirement: Option<&CandidateRequirement>) -> String {
    requirement
        .map(|asked| asked.text.clone())
        .unwrap_or_default()
}

fn nearest_miss(nearest: &NearestTree) -> String {
    let lacks = words(nearest.requirement.as_ref());
    let root = format!("{} ({})", nearest.root_display_name, short(&nearest.root));
    let Some(suffix) = &nearest.suffix else {
        return format!("the tree of {root} could serve each group, but not all: it lacks {lacks}");
    };
    let group = match suffix.as_str() {
        "" => "the group without name",
        suffix => &format!("group {suffix}"),
    };
    let who = match nearest.resource_provider == nearest.root {
        true => root,
        false => format!(
            "{} ({}) in the tree of {root}",
            nearest.display_name,
            short(&nearest.resource_provider)
        ),
    };
    let mut text = format!("{who}, for {group}\n         lacks: {lacks}");
    if let Some(missing) = &nearest.missing {
        text += &format!(
            "\n         asked for {} {}, has {}",
            missing.requested, missing.resource, missing.available
        );
    }
    text
}

/// Returns what was found, for programs.
fn told(found: &Found) -> Value {
    let candidates = found.candidates.iter().map(|candidate| {
        let allocations = candidate.allocations.iter();
        let allocations: BTreeMap<_, _> = allocations
            .map(|a| (short(&a.resource_provider), &a.resources))
            .collect();
        let mappings = candidate.mappings.iter();
        let mappings: BTreeMap<&str, Vec<&str>> = mappings
            .map(|m| {
                (
                    &*m.suffix,
                    m.resource_providers.iter().map(|n| short(n)).collect(),
                )
            })
            .collect();
        json!({"allocations": allocations, "mappings": mappings})
    });
    let providers = found.providers.values().map(|summary| {
        let resources = summary.resources.iter();
        let resources: BTreeMap<_, _> = resources
            .map(|(class, of)| (class, json!({"capacity": of.capacity, "used": of.used})))
            .collect();
        let told = json!({
            "name": summary.display_name,
            "parent": id_or_null(&summary.parent),
            "root": short(&summary.root),
            "resources": resources,
            "traits": summary.traits,
        });
        (short(&summary.resource_provider), told)
    });
    json!({
        "candidates": candidates.collect::<Vec<_>>(),
        "providers": providers.collect::<BTreeMap<_, _>>(),
        "revision": found.revision,
        "stopped": found.stopped,
        "explanation": found.explanation.as_ref().map(told_explanation),
    })
}

fn told_explanation(explanation: &CandidateExplanation) -> Value {
    let removals = explanation.removals.iter().map(|removal| {
        json!({
            "group": removal.suffix,
            "class": (!removal.resource_class.is_empty()).then_some(&removal.resource_class),
            "requirement": told_requirement(removal.requirement.as_ref()),
            "removed": removal.removed,
            "left": removal.left,
        })
    });
    let nearest = explanation.nearest.as_ref().map(|nearest| {
        json!({
            "root": short(&nearest.root),
            "root_name": nearest.root_display_name,
            "provider": id_or_null(&nearest.resource_provider),
            "name": nearest.suffix.as_ref().map(|_| &nearest.display_name),
            "group": nearest.suffix,
            "requirement": told_requirement(nearest.requirement.as_ref()),
            "missing": nearest.missing.as_ref().map(|missing| json!({
                "resource": missing.resource,
                "requested": missing.requested,
                "available": missing.available,
            })),
        })
    });
    json!({
        "providers": explanation.providers,
        "trees": explanation.trees,
        "removals": removals.collect::<Vec<_>>(),
        "nearest": nearest,
        "text": explanation.text,
    })
}

/// Returns a requirement with what its kind has.
fn told_requirement(requirement: Option<&CandidateRequirement>) -> Value {
    let Some(asked) = requirement else {
        return Value::Null;
    };
    let kind = asked.kind().as_str_name().trim_start_matches("KIND_");
    let mut told = json!({"kind": kind, "text": asked.text});
    if !asked.resource_class.is_empty() {
        told["class"] = json!(asked.resource_class);
    }
    if asked.amount > 0 {
        told["amount"] = json!(asked.amount);
    }
    if !asked.traits.is_empty() {
        told["traits"] = json!(asked.traits);
    }
    if !asked.aggregates.is_empty() {
        told["aggregates"] = json!(asked.aggregates);
    }
    if !asked.in_tree.is_empty() {
        told["in_tree"] = json!(short(&asked.in_tree));
    }
    told
}

fn id_or_null(name: &str) -> Option<&str> {
    (!name.is_empty()).then(|| short(name))
}
