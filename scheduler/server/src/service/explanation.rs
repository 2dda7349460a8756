//! Why a query has no candidates, in its wire form.
//!
//! Invariant: bounded, whatever the query: so many requirements, so many names of each, and a
//! sentence that people can read.

use berth_proto::convert::ResourceName as _;
use berth_proto::placement::v1;
use berth_proto::placement::v1::candidate_requirement::Kind;
use berth_selection::candidates::explain::{
    Explanation, NAMES_SHOWN, Nearest, Removed, Requirement,
};
use berth_selection::candidates::{Index, Query};
use berth_state::State;

/// What an explanation may cost, in providers that are looked at, each as often as something is
/// checked on it: some seconds of the CPU.
const STEPS_MAX: u64 = 500_000_000;

/// Maximum number of requirements in a response.
const REMOVALS_MAX: usize = 256;

/// The longest sentence, in bytes.
const TEXT_MAX: usize = 4096;

/// Says why a query has no candidates.
pub(super) fn explain(state: &State, index: &Index, query: &Query) -> v1::CandidateExplanation {
    if index.explaining_takes(query) > STEPS_MAX {
        let text = format!(
            "no allocation candidates among {} providers: the query asks too much for it to be \
             counted what each requirement removed",
            index.len()
        );
        return v1::CandidateExplanation {
            providers: index.len() as u64,
            trees: index.trees() as u64,
            text,
            ..v1::CandidateExplanation::default()
        };
    }
    write(state, &index.explain(query))
}

fn write(state: &State, explanation: &Explanation) -> v1::CandidateExplanation {
    let removed = explanation.removed.iter().filter(|r| r.removed > 0);
    let mut text = explanation.to_string();
    if let Some(end) = (0..=TEXT_MAX).rev().find(|at| text.is_char_boundary(*at))
        && end < text.len()
    {
        text.truncate(end);
        text.push_str(" …");
    }
    v1::CandidateExplanation {
        providers: explanation.providers,
        trees: explanation.trees,
        removals: removed.take(REMOVALS_MAX).map(removal).collect(),
        nearest: explanation.nearest.as_ref().map(|n| nearest(state, n)),
        text,
    }
}

fn removal(removed: &Removed) -> v1::CandidateRemoval {
    let (suffix, class) = match &removed.group {
        None => (None, None),
        Some((suffix, class)) => (Some(suffix.to_string()), class.as_ref()),
    };
    v1::CandidateRemoval {
        suffix,
        resource_class: class.map(ToString::to_string).unwrap_or_default(),
        requirement: Some(requirement(&removed.requirement)),
        removed: removed.removed,
        left: removed.left,
    }
}

fn nearest(state: &State, nearest: &Nearest) -> v1::NearestTree {
    let display_name = |id| state.provider(id).map(|provider| provider.name.clone());
    let provider = nearest.provider.zip(nearest.suffix.as_ref());
    v1::NearestTree {
        root: nearest.root.resource_name(),
        root_display_name: display_name(nearest.root).unwrap_or_default(),
        resource_provider: provider
            .map(|(id, _)| id.resource_name())
            .unwrap_or_default(),
        display_name: provider
            .and_then(|(id, _)| display_name(id))
            .unwrap_or_default(),
        suffix: provider.map(|(_, suffix)| suffix.to_string()),
        requirement: Some(requirement(&nearest.requirement)),
        missing: nearest.missing.as_ref().map(Into::into),
    }
}

fn requirement(requirement: &Requirement) -> v1::CandidateRequirement {
    let mut wire = v1::CandidateRequirement {
        text: requirement.to_string(),
        ..v1::CandidateRequirement::default()
    };
    let kind = match requirement {
        Requirement::InTree(id) => {
            wire.in_tree = id.resource_name();
            Kind::InTree
        }
        Requirement::Class(class) => {
            wire.resource_class = class.to_string();
            Kind::ResourceClass
        }
        Requirement::Unit(class, amount) => {
            (wire.resource_class, wire.amount) = (class.to_string(), *amount);
            Kind::Unit
        }
        Requirement::Free(class, amount) => {
            (wire.resource_class, wire.amount) = (class.to_string(), *amount);
            Kind::Free
        }
        Requirement::Traits(names) => {
            wire.traits = some(names);
            Kind::Traits
        }
        Requirement::NoTraits(names) => {
            wire.traits = some(names);
            Kind::ForbiddenTraits
        }
        Requirement::Aggregates(ids) => {
            wire.aggregates = some(ids);
            Kind::MemberOf
        }
        Requirement::NoAggregates(ids) => {
            wire.aggregates = some(ids);
            Kind::ForbiddenAggregates
        }
        Requirement::RootTraits(names) => {
            wire.traits = some(names);
            Kind::RootTraits
        }
        Requirement::NoRootTraits(names) => {
            wire.traits = some(names);
            Kind::RootForbiddenTraits
        }
        Requirement::NoRootAggregates(ids) => {
            wire.aggregates = some(ids);
            Kind::RootForbiddenAggregates
        }
        Requirement::EachGroup => Kind::EachGroup,
        Requirement::Isolate => Kind::Isolate,
        Requirement::SameSubtree => Kind::SameSubtree,
        Requirement::TraitsTogether => Kind::TraitsTogether,
        Requirement::Flat => Kind::Flat,
        Requirement::Beside => Kind::Beside,
    };
    wire.set_kind(kind);
    wire
}

/// Names the first of what may be many.
fn some<'n, T: ToString + 'n>(names: impl IntoIterator<Item = &'n T>) -> Vec<String> {
    let names = names.into_iter().take(NAMES_SHOWN);
    names.map(ToString::to_string).collect()
}
