//! The query of `GET /allocation_candidates`: groups of requirements, each with its suffix.
//!
//! Names of classes and traits are taken as they are; whether they exist, the state knows.

use std::collections::{BTreeMap, BTreeSet};

use uuid::Uuid;

use super::fault::{Fault, code, quoted};
use super::forms::{self, Amounts, MemberOf, Traits};
use super::microversion::Microversion;
use super::query::Query;
use super::schemas::{is_number, is_suffix};

/// What the providers of one group must have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Group {
    pub(super) resources: Amounts,
    pub(super) traits: Traits,
    pub(super) member_of: MemberOf,
    pub(super) in_tree: Option<Uuid>,
}

/// The parameters of a query for candidates.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct CandidateParams {
    /// By suffix; the group without one has the empty suffix.
    pub(super) groups: BTreeMap<String, Group>,
    /// Whether the groups with a suffix must be on different providers, if given.
    pub(super) isolate: Option<bool>,
    pub(super) root_required: BTreeSet<String>,
    pub(super) root_forbidden: BTreeSet<String>,
    pub(super) same_subtree: Vec<BTreeSet<String>>,
    pub(super) limit: Option<u32>,
}

impl CandidateParams {
    /// Reads a query that the schema has let through.
    pub(super) fn read(query: &Query, version: Microversion) -> Result<Self, Fault> {
        let (root_required, root_forbidden) = root(query)?;
        let params = Self {
            groups: groups(query, version)?,
            isolate: isolate(query)?,
            root_required,
            root_forbidden,
            same_subtree: same_subtree(query)?,
            limit: limit(query)?,
        };
        params.check(version)?;
        Ok(params)
    }

    fn check(&self, version: Microversion) -> Result<(), Fault> {
        match version.has(36) {
            true => self.check_subtrees()?,
            false => self.check_orphans()?,
        }
        if version.has(22) {
            self.check_forbidden()?;
        }
        let suffixed = self.groups.keys().filter(|suffix| !suffix.is_empty());
        if self.isolate.is_none() && suffixed.count() > 1 {
            return Err(Fault::bad_request(
                "The \"group_policy\" parameter is required when specifying more than one \
                 \"resources{N}\" parameter.",
            ));
        }
        Ok(())
    }

    /// A group without resources only restricts the providers of others.
    fn check_subtrees(&self) -> Result<(), Fault> {
        let bare = |group: &Group| group.resources.is_empty();
        if self.groups.values().all(bare) {
            let detail = "There must be at least one resources or resources[$S] parameter.";
            return Err(Fault::bad_request(detail).with_code(code::MISSING_VALUE));
        }
        let named: BTreeSet<&String> = self.same_subtree.iter().flatten().collect();
        let bare = self.groups.iter().filter(|(_, group)| bare(group));
        let unnamed = bare.filter(|(suffix, _)| !named.contains(suffix));
        let unnamed: Vec<&str> = unnamed.map(|(suffix, _)| &**suffix).collect();
        if !unnamed.is_empty() {
            let detail = format!(
                "Resourceless suffixed group request should be specified in `same_subtree` query \
                 param: bad group(s) - {}.",
                some(&unnamed)
            );
            return Err(Fault::bad_request(detail).with_code(code::BAD_VALUE));
        }
        let unreal = named
            .iter()
            .filter(|suffix| !self.groups.contains_key(**suffix));
        let unreal: Vec<&str> = unreal.map(|suffix| &***suffix).collect();
        if !unreal.is_empty() {
            let real: Vec<&str> = self.groups.keys().map(|suffix| &**suffix).collect();
            let detail = format!(
                "Real suffixes should be specified in `same_subtree`: {} not found in {}.",
                some(&unreal),
                some(&real)
            );
            return Err(Fault::bad_request(detail).with_code(code::BAD_VALUE));
        }
        Ok(())
    }

    /// Every group must request resources.
    fn check_orphans(&self) -> Result<(), Fault> {
        let orphans = |key: &str, has: fn(&Group) -> bool| {
            let bare = self
                .groups
                .iter()
                .filter(|(_, group)| group.resources.is_empty());
            let orphans = bare.filter(|(_, group)| has(group));
            let keys: Vec<String> = orphans
                .map(|(suffix, _)| format!("{key}{suffix}"))
                .collect();
            let keys: Vec<&str> = keys.iter().map(|key| &**key).collect();
            some(&keys)
        };
        let traits = orphans("required", |group| !group.traits.required.is_empty());
        if !traits.is_empty() {
            return Err(Fault::bad_request(format!(
                "All traits parameters must be associated with resources. Found the following \
                 orphaned traits keys: {traits}"
            )));
        }
        let aggregates = orphans("member_of", |group| group.member_of != MemberOf::default());
        if !aggregates.is_empty() {
            return Err(Fault::bad_request(format!(
                "All member_of parameters must be associated with resources. Found the following \
                 orphaned member_of keys: {aggregates}"
            )));
        }
        if self.groups.values().any(|group| group.resources.is_empty()) {
            return Err(Fault::bad_request(
                "All request groups must specify resources.",
            ));
        }
        if self.groups.is_empty() {
            return Err(Fault::bad_request(
                "At least one request group (`resources` or `resources{$S}`) is required.",
            ));
        }
        Ok(())
    }

    fn check_forbidden(&self) -> Result<(), Fault> {
        let mut conflicts = Vec::new();
        for (suffix, group) in &self.groups {
            for any in &group.traits.required {
                if any.is_subset(&group.traits.forbidden) {
                    let names: Vec<&str> = any.iter().map(|name| &**name).collect();
                    conflicts.push(format!("required{suffix}: ({})", some(&names)));
                }
            }
        }
        if conflicts.is_empty() {
            return Ok(());
        }
        conflicts.sort_unstable();
        Err(Fault::bad_request(format!(
            "Conflicting required and forbidden traits found in the following traits keys: {}",
            some(&conflicts.iter().map(|text| &**text).collect::<Vec<_>>())
        )))
    }
}

/// Names some of what may be many and long.
fn some(names: &[&str]) -> String {
    const SHOWN: usize = 16;
    let shown: Vec<String> = names.iter().take(SHOWN).map(|name| quoted(name)).collect();
    let mut text = shown.join(", ");
    if names.len() > SHOWN {
        text.push_str(", ...");
    }
    text
}

/// Takes a key apart, as `required_A`, into its kind and suffix.
fn kind(key: &str, version: Microversion) -> Option<(&'static str, &str)> {
    let kinds = ["resources", "required", "member_of", "in_tree"];
    kinds.into_iter().find_map(|kind| {
        let suffix = key.strip_prefix(kind)?;
        let known = match version.has(33) {
            true => is_suffix(suffix),
            false => is_number(suffix),
        };
        (suffix.is_empty() || known).then_some((kind, suffix))
    })
}

fn groups(query: &Query, version: Microversion) -> Result<BTreeMap<String, Group>, Fault> {
    // By kind and suffix, so that a long query is gone through once.
    let mut values: BTreeMap<(&str, &str), Vec<&str>> = BTreeMap::new();
    for (key, value) in query.pairs() {
        if let Some(kind) = kind(key, version) {
            values.entry(kind).or_default().push(value);
        }
    }
    let mut groups: BTreeMap<String, Group> = BTreeMap::new();
    for ((kind, suffix), values) in values {
        let group = groups.entry(suffix.to_owned()).or_default();
        let all = values.iter().copied();
        match kind {
            "required" => group.traits = forms::required(all, version)?,
            "member_of" => group.member_of = forms::member_of(all, suffix, version)?,
            "in_tree" => {
                for value in all {
                    group.in_tree = Some(forms::in_tree(value)?);
                }
            }
            _ => {
                for value in all {
                    group.resources = forms::resources(value)?;
                }
            }
        }
    }
    Ok(groups)
}

// Of these two the first value counts, where they are repeated. The schema has validated the last.

fn isolate(query: &Query) -> Result<Option<bool>, Fault> {
    match query.all("group_policy").next() {
        None => Ok(None),
        Some("none") => Ok(Some(false)),
        Some("isolate") => Ok(Some(true)),
        Some(other) => Err(not_first("group_policy", other)),
    }
}

fn limit(query: &Query) -> Result<Option<u32>, Fault> {
    match query.all("limit").next() {
        None => Ok(None),
        // More than can be counted is as good as all of them.
        Some(text) if is_number(text) => Ok(Some(text.parse().unwrap_or(u32::MAX))),
        Some(other) => Err(not_first("limit", other)),
    }
}

fn not_first(key: &str, value: &str) -> Fault {
    let value = quoted(value);
    let detail = format!("Invalid query string parameters: the first {key}, '{value}', is wrong");
    Fault::bad_request(detail).with_code(code::BAD_VALUE)
}

type Names = BTreeSet<String>;

fn root(query: &Query) -> Result<(Names, Names), Fault> {
    let mut values = query.all("root_required");
    let Some(value) = values.next() else {
        return Ok(Default::default());
    };
    if values.next().is_some() {
        let detail = "Query parameter 'root_required' may be specified only once.";
        return Err(Fault::bad_request(detail).with_code(code::DUPLICATE_KEY));
    }
    // Without the form `in:`, which came after it.
    let traits = forms::required([value].into_iter(), Microversion::BEFORE_ANY_OF)?;
    let required: Names = traits.required.into_iter().flatten().collect();
    let both: Vec<&str> = required
        .intersection(&traits.forbidden)
        .map(|name| &**name)
        .collect();
    if !both.is_empty() {
        let both = some(&both);
        let detail =
            format!("Conflicting required and forbidden traits found in root_required: {both}");
        return Err(Fault::bad_request(detail).with_code(code::BAD_VALUE));
    }
    Ok((required, traits.forbidden))
}

fn same_subtree(query: &Query) -> Result<Vec<Names>, Fault> {
    let subtrees = query.all("same_subtree").map(|value| {
        let suffixes: Names = value
            .split(',')
            .map(|text| text.trim().to_owned())
            .collect();
        if suffixes.contains("") {
            let detail = "Empty string (unsuffixed group) can not be specified in `same_subtree`";
            return Err(Fault::bad_request(detail).with_code(code::BAD_VALUE));
        }
        Ok(suffixes)
    });
    subtrees.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(query: &str) -> Result<CandidateParams, String> {
        let query = Query::parse(Some(query)).unwrap();
        let params = CandidateParams::read(&query, Microversion::MAX);
        params.map_err(|fault| format!("{fault:?}"))
    }

    #[test]
    fn groups_are_distinguished_by_their_suffix() {
        let params = read(
            "resources=VCPU:1&resources_A=VF:2&required_A=T,!U&required_A=in:V,W&in_tree_A=\
             b4c1f8e2-5d3a-4f6b-9c7d-1e2f3a4b5c6d&resourcesB=VF:1&group_policy=isolate&limit=3\
             &root_required=R,!S&same_subtree=_A,B",
        )
        .unwrap();
        assert_eq!(params.groups.keys().collect::<Vec<_>>(), ["", "B", "_A"]);
        let group = &params.groups["_A"];
        assert_eq!(group.resources["VF"], 2);
        assert_eq!(
            (group.traits.required.len(), group.traits.forbidden.len()),
            (2, 1)
        );
        assert!(group.in_tree.is_some());
        assert_eq!((params.isolate, params.limit), (Some(true), Some(3)));
        assert!(params.root_required.contains("R") && params.root_forbidden.contains("S"));
        assert_eq!(params.same_subtree.len(), 1);
    }

    #[test]
    fn contradictions_are_reported() {
        for (query, part) in [
            (
                "resources1=A:1&resources2=A:1",
                "\\\"group_policy\\\" parameter is required",
            ),
            ("required=T", "at least one resources"),
            ("resources=A:1&required1=T", "Resourceless suffixed group"),
            ("resources=A:1&same_subtree=_X", "Real suffixes"),
            (
                "resources=A:1&same_subtree=",
                "Empty string (unsuffixed group)",
            ),
            (
                "resources=A:1&root_required=T,!T",
                "found in root_required: T",
            ),
            ("resources=A:1&root_required=T&root_required=U", "only once"),
            ("resources=A:1&required=T,!T", "traits keys: required: (T)"),
            (
                "resources=A:1&root_required=in:T",
                "since microversion 1.39",
            ),
        ] {
            let error = read(query).unwrap_err();
            assert!(error.contains(part), "{query}: {error}");
        }
    }
}
