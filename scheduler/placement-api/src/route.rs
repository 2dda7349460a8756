//! Which resource a path names, and what may be done with it from which microversion on.

use percent_encoding::percent_decode_str;

use super::policy::Who;

/// A resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Route {
    /// `/`
    Root,
    /// `/resource_classes`
    Classes,
    /// `/resource_classes/{name}`
    Class(String),
    /// `/resource_providers`
    Providers,
    /// `/resource_providers/{uuid}`
    Provider(String),
    /// `/resource_providers/{uuid}/inventories`
    Inventories(String),
    /// `/resource_providers/{uuid}/inventories/{class}`
    Inventory(String, String),
    /// `/resource_providers/{uuid}/usages`
    ProviderUsages(String),
    /// `/resource_providers/{uuid}/aggregates`
    Aggregates(String),
    /// `/resource_providers/{uuid}/allocations`
    ProviderAllocations(String),
    /// `/resource_providers/{uuid}/traits`
    ProviderTraits(String),
    /// `/allocations`
    AllAllocations,
    /// `/allocations/{consumer}`
    Allocations(String),
    /// `/allocation_candidates`
    Candidates,
    /// `/traits`
    Traits,
    /// `/traits/{name}`
    Trait(String),
    /// `/usages`
    Usages,
    /// `/reshaper`
    Reshaper,
}

/// The bodies of a request and its response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Carries {
    /// The answer has a JSON body, which the client must take.
    Answer,
    /// The request has a JSON body.
    Body,
    /// Neither matters.
    Nothing,
}

/// What may be done with a resource.
#[derive(Debug)]
pub(super) struct Endpoint {
    pub(super) method: &'static str,
    /// The minor number of the first microversion that has it.
    pub(super) since: u64,
    pub(super) who: Who,
    /// OpenStack's name of the policy rule, without the prefix `placement:`.
    pub(super) rule: &'static str,
    pub(super) carries: Carries,
}

/// The longest part of a path that is looked at; no name is longer.
const PART_MAX: usize = 1024;

impl Route {
    /// Returns what a path names, if anything.
    pub(super) fn parse(path: &str) -> Option<Self> {
        if path.is_empty() || path == "/" {
            return Some(Self::Root);
        }
        let parts = path.strip_prefix('/')?.split('/').take(5).map(|part| {
            let named = !part.is_empty() && part.len() <= PART_MAX;
            named.then(|| percent_decode_str(part).decode_utf8_lossy().into_owned())
        });
        let parts: Option<Vec<String>> = parts.collect();
        let parts = parts?;
        let parts: Vec<&str> = parts.iter().map(|part| &**part).collect();
        let own = |name: &str| name.to_owned();
        Some(match parts[..] {
            ["resource_classes"] => Self::Classes,
            ["resource_classes", name] => Self::Class(own(name)),
            ["resource_providers"] => Self::Providers,
            ["resource_providers", id] => Self::Provider(own(id)),
            ["resource_providers", id, "inventories"] => Self::Inventories(own(id)),
            ["resource_providers", id, "inventories", class] => {
                Self::Inventory(own(id), own(class))
            }
            ["resource_providers", id, "usages"] => Self::ProviderUsages(own(id)),
            ["resource_providers", id, "aggregates"] => Self::Aggregates(own(id)),
            ["resource_providers", id, "allocations"] => Self::ProviderAllocations(own(id)),
            ["resource_providers", id, "traits"] => Self::ProviderTraits(own(id)),
            ["allocations"] => Self::AllAllocations,
            ["allocations", consumer] => Self::Allocations(own(consumer)),
            ["allocation_candidates"] => Self::Candidates,
            ["traits"] => Self::Traits,
            ["traits", name] => Self::Trait(own(name)),
            ["usages"] => Self::Usages,
            ["reshaper"] => Self::Reshaper,
            _ => return None,
        })
    }

    /// Returns what may be done with it.
    pub(super) fn endpoints(&self) -> &'static [Endpoint] {
        match self {
            Self::Root => ROOT,
            Self::Classes => CLASSES,
            Self::Class(_) => CLASS,
            Self::Providers => PROVIDERS,
            Self::Provider(_) => PROVIDER,
            Self::Inventories(_) => INVENTORIES,
            Self::Inventory(..) => INVENTORY,
            Self::ProviderUsages(_) => PROVIDER_USAGES,
            Self::Aggregates(_) => AGGREGATES,
            Self::ProviderAllocations(_) => PROVIDER_ALLOCATIONS,
            Self::ProviderTraits(_) => PROVIDER_TRAITS,
            Self::AllAllocations => ALL_ALLOCATIONS,
            Self::Allocations(_) => ALLOCATIONS,
            Self::Candidates => CANDIDATES,
            Self::Traits => TRAITS,
            Self::Trait(_) => TRAIT,
            Self::Usages => USAGES,
            Self::Reshaper => RESHAPER,
        }
    }
}

const ROOT: &[Endpoint] = &[Endpoint {
    who: Who::Anybody,
    ..plain("GET", 0, "")
}];
const CLASSES: &[Endpoint] = &[
    show(2, "resource_classes:list"),
    take("POST", 2, "resource_classes:create"),
];
const CLASS: &[Endpoint] = &[
    show(2, "resource_classes:show"),
    // It has a body before 1.7 only; who reads it looks at its type.
    plain("PUT", 2, "resource_classes:update"),
    plain("DELETE", 2, "resource_classes:delete"),
];
const PROVIDERS: &[Endpoint] = &[
    show(0, "resource_providers:list"),
    take("POST", 0, "resource_providers:create"),
];
const PROVIDER: &[Endpoint] = &[
    show(0, "resource_providers:show"),
    take("PUT", 0, "resource_providers:update"),
    plain("DELETE", 0, "resource_providers:delete"),
];
const INVENTORIES: &[Endpoint] = &[
    show(0, "resource_providers:inventories:list"),
    take("POST", 0, "resource_providers:inventories:create"),
    take("PUT", 0, "resource_providers:inventories:update"),
    plain("DELETE", 5, "resource_providers:inventories:delete"),
];
const INVENTORY: &[Endpoint] = &[
    show(0, "resource_providers:inventories:show"),
    take("PUT", 0, "resource_providers:inventories:update"),
    plain("DELETE", 0, "resource_providers:inventories:delete"),
];
const PROVIDER_USAGES: &[Endpoint] = &[show(0, "resource_providers:usages")];
const AGGREGATES: &[Endpoint] = &[
    show(1, "resource_providers:aggregates:list"),
    take("PUT", 1, "resource_providers:aggregates:update"),
];
const PROVIDER_ALLOCATIONS: &[Endpoint] = &[show(0, "resource_providers:allocations:list")];
const PROVIDER_TRAITS: &[Endpoint] = &[
    show(6, "resource_providers:traits:list"),
    take("PUT", 6, "resource_providers:traits:update"),
    plain("DELETE", 6, "resource_providers:traits:delete"),
];
const ALL_ALLOCATIONS: &[Endpoint] = &[take("POST", 13, "allocations:manage")];
const ALLOCATIONS: &[Endpoint] = &[
    show(0, "allocations:list"),
    take("PUT", 0, "allocations:update"),
    plain("DELETE", 0, "allocations:delete"),
];
const CANDIDATES: &[Endpoint] = &[show(10, "allocation_candidates:list")];
const TRAITS: &[Endpoint] = &[show(6, "traits:list")];
const TRAIT: &[Endpoint] = &[
    plain("GET", 6, "traits:show"),
    plain("PUT", 6, "traits:update"),
    plain("DELETE", 6, "traits:delete"),
];
const USAGES: &[Endpoint] = &[Endpoint {
    who: Who::AdminServiceOrReader,
    ..show(9, "usages")
}];
const RESHAPER: &[Endpoint] = &[Endpoint {
    who: Who::Service,
    ..take("POST", 30, "reshaper:reshape")
}];

const fn endpoint(
    method: &'static str,
    since: u64,
    rule: &'static str,
    carries: Carries,
) -> Endpoint {
    Endpoint {
        method,
        since,
        who: Who::AdminOrService,
        rule,
        carries,
    }
}

const fn show(since: u64, rule: &'static str) -> Endpoint {
    endpoint("GET", since, rule, Carries::Answer)
}

const fn take(method: &'static str, since: u64, rule: &'static str) -> Endpoint {
    endpoint(method, since, rule, Carries::Body)
}

const fn plain(method: &'static str, since: u64, rule: &'static str) -> Endpoint {
    endpoint(method, since, rule, Carries::Nothing)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_name_resources() {
        let id = || "x".to_owned();
        for (path, route) in [
            ("", Some(Route::Root)),
            ("/", Some(Route::Root)),
            ("/resource_providers", Some(Route::Providers)),
            ("/resource_providers/x", Some(Route::Provider(id()))),
            (
                "/resource_providers/x/inventories/A",
                Some(Route::Inventory(id(), "A".into())),
            ),
            ("/traits/%41", Some(Route::Trait("A".into()))),
            ("/resource_providers/", None),
            ("/resource_providers/x/cows", None),
            ("/resource_providers/x/inventories/A/b", None),
            ("/resource_providers/x/inventories/A/b/c/d/e", None),
            ("//", None),
            ("resource_providers", None),
        ] {
            assert_eq!(Route::parse(path), route, "{path}");
        }
        assert_eq!(Route::parse(&format!("/traits/{}", "x".repeat(5000))), None);
    }
}
