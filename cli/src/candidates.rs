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

use crate::arguments::{Candidates, Group, GroupPolicy, Order, ProviderFilter};
use crate::output::Lines;
use crate::session::{Session, resource, short};
use crate::{draw, output, read};

/// The most requirements that are shown to people, so that the reason fits on a screen.
const REMOVALS_SHOWN: usize = 16;

/// There are no candidates, which was printed.
#[derive(Debug, thiserror::Error)]
#[error("there are no allocation candidates")]
pub struct NoCandidates;

/// The candidates of a request.
#[derive(Default)]
struct SearchResult {
    candidates: Vec<AllocationCandidate>,
    providers: BTreeMap<String, ProviderSummary>,
    revision: u64,
    stopped: bool,
    explanation: Option<CandidateExplanation>,
}

/// Runs the command.
///
/// # Errors
///
/// The scheduler's refusal, and [`NoCandidates`].
pub async fn run(session: &Session, args: Candidates) -> anyhow::Result<()> {
    let request = request(args)?;
    let result = find(session, request).await?;
    if session.for_programs() {
        output::value(&to_json(&result))?;
    } else if let Some(explanation) = &result.explanation {
        output::message(explain(explanation));
    } else {
        show(&result);
    }
    match result.explanation {
        Some(_) => Err(NoCandidates.into()),
        None => Ok(()),
    }
}

async fn find(
    session: &Session,
    request: FindAllocationCandidatesRequest,
) -> Result<SearchResult, Refusal> {
    let mut stream = read!(
        session,
        PlacementServiceClient,
        find_allocation_candidates,
        request
    )?;
    let mut result = SearchResult::default();
    while let Some(message) = stream.message().await.map_err(|s| from_status(&s))? {
        let summaries = message.summaries.into_iter();
        let summaries = summaries.map(|s| (s.resource_provider.clone(), s));
        result.providers.extend(summaries);
        result.candidates.extend(message.candidates);
        result.revision = message.revision;
        result.stopped = message.stopped;
        result.explanation = message.explanation;
    }
    Ok(result)
}

fn request(args: Candidates) -> anyhow::Result<FindAllocationCandidatesRequest> {
    let mut request = match &args.query {
        Some(query) => {
            let read = berth_scheduler::candidates_request(query);
            read.map_err(|why| anyhow::anyhow!("the query is wrong: {why}"))?
        }
        None => request_from_flags(&args)?,
    };
    if request.limit == 0 {
        request.limit = args.limit;
    }
    if let Some(order) = args.order {
        request.set_order(match order {
            Order::Stable => wire::Order::Stable,
            Order::Rotated => wire::Order::Rotated,
        });
    }
    request.flat = args.flat;
    Ok(request)
}

fn request_from_flags(args: &Candidates) -> anyhow::Result<FindAllocationCandidatesRequest> {
    let mut groups = Vec::new();
    if !args.resources.is_empty() {
        groups.push(group("", &args.resources, &args.filter)?);
    } else if args.filter != ProviderFilter::default() {
        bail!("--required and the like are about --resources, which is missing");
    }
    for Group {
        name,
        resources,
        filter,
    } in &args.groups
    {
        groups.push(group(name, resources, filter)?);
    }
    let policy = match args.group_policy {
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
        root_required_traits: args.root_required.clone(),
        root_forbidden_traits: args.root_forbidden.clone(),
        same_subtree: args.same_subtree.iter().map(subtree).collect(),
        ..Default::default()
    })
}

fn group(
    suffix: &str,
    resources: &[(String, u64)],
    filter: &ProviderFilter,
) -> anyhow::Result<CandidateGroup> {
    Ok(CandidateGroup {
        suffix: suffix.to_owned(),
        resources: amounts(resources.to_vec())?,
        required_traits: any_traits(&filter.required),
        forbidden_traits: filter.forbidden.clone(),
        member_of: any_aggregates(&filter.member_of),
        forbidden_aggregates: filter.not_member_of.clone(),
        in_tree: provider_or_empty(filter.in_tree.clone()),
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
            bail!("{class} is requested twice");
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

fn show(result: &SearchResult) {
    let mut rows = Vec::new();
    for (at, candidate) in result.candidates.iter().enumerate() {
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
                rows.push(row(result, at, &allocation.resource_provider, taken));
            }
        }
        let none = || ("-", "-".to_owned());
        rows.extend(
            without
                .into_iter()
                .map(|name| row(result, at, name, none())),
        );
    }
    let head = ["candidate", "provider", "name", "class", "amount", "group"];
    output::table(head, rows, "there is no candidate");
    if result.stopped {
        output::message("the search was stopped by its bounds: there may be others");
    }
}

fn row(
    result: &SearchResult,
    at: usize,
    provider: &str,
    (class, amount): (&str, String),
) -> [String; 6] {
    let serves = |suffix: &str| match suffix {
        "" => "-".to_owned(),
        _ => suffix.to_owned(),
    };
    let mappings = result.candidates[at].mappings.iter();
    let groups = mappings.filter(|m| m.resource_providers.iter().any(|name| name == provider));
    let groups: Vec<String> = groups.map(|m| serves(&m.suffix)).collect();
    let name = result
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

/// Explains why there are none: how many each requirement removed, and the nearest miss.
fn explain(explanation: &CandidateExplanation) -> Lines {
    if explanation.removals.is_empty() {
        return explanation.text.as_str().into();
    }
    let mut lines = Lines::new();
    writeln!(
        lines,
        "no allocation candidates among {} in {}",
        draw::count(whole(explanation.providers), "provider"),
        draw::count(whole(explanation.trees), "tree")
    );
    lines.push("");
    let shown = explanation.removals.iter().take(REMOVALS_SHOWN);
    let rows = shown.map(|removal| {
        let of = match removal.suffix {
            Some(_) => "provider",
            None => "tree",
        };
        [
            group_of(removal),
            words(removal.requirement.as_ref()),
            removal.removed.to_string(),
            draw::count(whole(removal.left), of),
        ]
    });
    let head = ["group", "requirement", "removed", "left"];
    lines.extend(output::rendered(head, rows.collect()));
    match explanation.removals.len().saturating_sub(REMOVALS_SHOWN) {
        0 => {}
        more => writeln!(lines, "and {more} more, which --output json shows"),
    }
    if let Some(nearest) = &explanation.nearest {
        lines.push("");
        lines.extend(nearest_miss(nearest));
    }
    lines
}

fn whole(count: u64) -> usize {
    usize::try_from(count).unwrap_or(usize::MAX)
}

fn group_of(removal: &CandidateRemoval) -> String {
    match removal.suffix.as_deref() {
        None => "any tree".to_owned(),
        Some("") => format!("- ({})", removal.resource_class),
        Some(suffix) => suffix.to_owned(),
    }
}

fn words(requirement: Option<&CandidateRequirement>) -> String {
    requirement
        .map(|requirement| requirement.text.clone())
        .unwrap_or_default()
}

fn nearest_miss(nearest: &NearestTree) -> Lines {
    let lacks = words(nearest.requirement.as_ref());
    let root = format!("{} ({})", nearest.root_display_name, short(&nearest.root));
    let Some(suffix) = &nearest.suffix else {
        let why = "could serve each group, but not all: it lacks";
        return format!("nearest: the tree of {root} {why} {lacks}").into();
    };
    let group = match suffix.as_str() {
        "" => "the group without name",
        suffix => &format!("group {suffix}"),
    };
    let provider = match nearest.resource_provider == nearest.root {
        true => root,
        false => format!(
            "{} ({}) in the tree of {root}",
            nearest.display_name,
            short(&nearest.resource_provider)
        ),
    };
    let mut lines = Lines::new();
    writeln!(lines, "nearest: {provider}, for {group}");
    writeln!(lines, "         lacks: {lacks}");
    if let Some(missing) = &nearest.missing {
        writeln!(
            lines,
            "         requested {} {}, has {}",
            missing.requested, missing.resource, missing.available
        );
    }
    lines
}

/// Returns the candidates as JSON.
fn to_json(result: &SearchResult) -> Value {
    let candidates = result.candidates.iter().map(|candidate| {
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
    let providers = result.providers.values().map(|summary| {
        let resources = summary.resources.iter();
        let resources: BTreeMap<_, _> = resources
            .map(|(class, of)| (class, json!({"capacity": of.capacity, "used": of.used})))
            .collect();
        let value = json!({
            "name": summary.display_name,
            "parent": id_or_null(&summary.parent),
            "root": short(&summary.root),
            "resources": resources,
            "traits": summary.traits,
        });
        (short(&summary.resource_provider), value)
    });
    json!({
        "candidates": candidates.collect::<Vec<_>>(),
        "providers": providers.collect::<BTreeMap<_, _>>(),
        "revision": result.revision,
        "stopped": result.stopped,
        "explanation": result.explanation.as_ref().map(explanation_json),
    })
}

fn explanation_json(explanation: &CandidateExplanation) -> Value {
    let removals = explanation.removals.iter().map(|removal| {
        json!({
            "group": removal.suffix,
            "class": (!removal.resource_class.is_empty()).then_some(&removal.resource_class),
            "requirement": requirement_json(removal.requirement.as_ref()),
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
            "requirement": requirement_json(nearest.requirement.as_ref()),
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
fn requirement_json(requirement: Option<&CandidateRequirement>) -> Value {
    let Some(requirement) = requirement else {
        return Value::Null;
    };
    let kind = requirement.kind().as_str_name().trim_start_matches("KIND_");
    let mut value = json!({"kind": kind, "text": requirement.text});
    if !requirement.resource_class.is_empty() {
        value["class"] = json!(requirement.resource_class);
    }
    if requirement.amount > 0 {
        value["amount"] = json!(requirement.amount);
    }
    if !requirement.traits.is_empty() {
        value["traits"] = json!(requirement.traits);
    }
    if !requirement.aggregates.is_empty() {
        value["aggregates"] = json!(requirement.aggregates);
    }
    if !requirement.in_tree.is_empty() {
        value["in_tree"] = json!(short(&requirement.in_tree));
    }
    value
}

fn id_or_null(name: &str) -> Option<&str> {
    (!name.is_empty()).then(|| short(name))
}
