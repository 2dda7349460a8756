//! The requests of OpenStack Placement's API, one by one.
//!
//! Not the order in which they are sent, and not whether the responses are consistent: see
//! [`super::reading`].

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use berth_domain::allocation::Resources;
use berth_domain::id::{AggregateId, ConsumerId, Generation, ProviderId};
use berth_domain::inventory::Inventory;
use berth_domain::overcommit::AllocationRatio;
use berth_domain::refusal::{Code, Refusal};
use berth_domain::resource::{ConsumerType, ResourceClass, Trait};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::http::{Http, invalid_response};
use super::world::Consumer;

/// The newest microversion that is requested.
const NEWEST: Version = Version {
    major: 1,
    minor: 39,
};
/// The oldest that returns consumers' generations.
const OLDEST: Version = Version {
    major: 1,
    minor: 28,
};
/// The oldest that returns consumers' types.
const WITH_TYPES: Version = Version {
    major: 1,
    minor: 38,
};

/// Placement's type of a consumer whose type was never set.
const TYPE_UNKNOWN: &str = "unknown";

/// A microversion.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Version {
    major: u32,
    minor: u32,
}

impl Version {
    fn read(text: &str) -> Option<Self> {
        let (major, minor) = text.split_once('.')?;
        Some(Self {
            major: major.parse().ok()?,
            minor: minor.parse().ok()?,
        })
    }
}

impl std::fmt::Display for Version {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// Another Placement. Cheap to clone.
#[derive(Clone)]
pub struct Source {
    http: Arc<Http>,
    version: Version,
}

/// A provider as the list of providers shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProviderRecord {
    /// The display name.
    pub name: String,
    /// The provider above it.
    pub parent: Option<ProviderId>,
    /// Its generation.
    pub generation: Generation,
}

/// Something of a provider, and the generation at which that was so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AtGeneration<T> {
    /// The provider's generation.
    pub generation: Generation,
    /// The value.
    pub value: T,
}

/// What a consumer takes from one provider.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConsumerAllocation {
    /// The consumer's generation.
    pub generation: Generation,
    /// What it takes.
    pub resources: Resources,
}

impl Source {
    /// Agrees with the server on a microversion.
    ///
    /// # Errors
    ///
    /// When no server answers, when it is not Placement, or when it is too old.
    pub async fn open(http: Http) -> Result<Self, Refusal> {
        #[derive(Deserialize)]
        struct Entry {
            max_version: String,
        }
        #[derive(Deserialize)]
        struct Root {
            versions: Vec<Entry>,
        }
        let url = format!("{}/", http.base());
        let root: Option<Root> = http.get("/", None).await?;
        let root = root.ok_or_else(|| invalid_response(&url, "404, there is nothing"))?;
        let newest = root.versions.first();
        let newest = newest.and_then(|entry| Version::read(&entry.max_version));
        let newest = newest.ok_or_else(|| invalid_response(&url, "it names no max_version"))?;
        if newest < OLDEST {
            return Err(Refusal::new(
                Code::FailedPrecondition,
                "SOURCE_TOO_OLD",
                format!("{url} speaks microversions up to {newest}; {OLDEST} is needed"),
            )
            .with_hint(format!(
                "upgrade it first, to OpenStack Rocky or newer: before {OLDEST} the generations of \
                 consumers cannot be read"
            )));
        }
        Ok(Self {
            http: Arc::new(http),
            version: newest.min(NEWEST),
        })
    }

    /// Returns the microversion that is spoken.
    #[must_use]
    pub fn version(&self) -> String {
        self.version.to_string()
    }

    /// Returns whether consumers' types can be read.
    #[must_use]
    pub fn has_types(&self) -> bool {
        self.version >= WITH_TYPES
    }

    /// Returns the resource classes.
    ///
    /// # Errors
    ///
    /// When they cannot be read.
    pub async fn classes(&self) -> Result<BTreeSet<ResourceClass>, Refusal> {
        #[derive(Deserialize)]
        struct Class {
            name: String,
        }
        #[derive(Deserialize)]
        struct Classes {
            resource_classes: Vec<Class>,
        }
        let path = "/resource_classes";
        let all: Classes = self.get_required(path).await?;
        let names = all.resource_classes.into_iter();
        names
            .map(|c| self.name(path, ResourceClass::new(&c.name)))
            .collect()
    }

    /// Returns the traits.
    ///
    /// # Errors
    ///
    /// When they cannot be read.
    pub async fn traits(&self) -> Result<BTreeSet<Trait>, Refusal> {
        #[derive(Deserialize)]
        struct Traits {
            traits: Vec<String>,
        }
        let path = "/traits";
        let all: Traits = self.get_required(path).await?;
        let names = all.traits.into_iter();
        names
            .map(|name| self.name(path, Trait::new(&name)))
            .collect()
    }

    /// Returns the providers.
    ///
    /// # Errors
    ///
    /// When they cannot be read.
    pub async fn providers(&self) -> Result<BTreeMap<ProviderId, ProviderRecord>, Refusal> {
        #[derive(Deserialize)]
        struct Provider {
            uuid: ProviderId,
            name: String,
            generation: u64,
            parent_provider_uuid: Option<ProviderId>,
        }
        #[derive(Deserialize)]
        struct Providers {
            resource_providers: Vec<Provider>,
        }
        let all: Providers = self.get_required("/resource_providers").await?;
        let listed = |p: Provider| {
            let listed = ProviderRecord {
                name: p.name,
                parent: p.parent_provider_uuid,
                generation: Generation(p.generation),
            };
            (p.uuid, listed)
        };
        Ok(all.resource_providers.into_iter().map(listed).collect())
    }

    /// Returns what a provider has; nothing if it does not exist.
    ///
    /// # Errors
    ///
    /// When it cannot be read.
    pub async fn inventories(
        &self,
        id: ProviderId,
    ) -> Result<Option<AtGeneration<BTreeMap<ResourceClass, Inventory>>>, Refusal> {
        #[derive(Deserialize)]
        struct Record {
            total: u64,
            reserved: u64,
            min_unit: u64,
            max_unit: u64,
            step_size: u64,
            allocation_ratio: f64,
        }
        #[derive(Deserialize)]
        struct Inventories {
            resource_provider_generation: u64,
            inventories: BTreeMap<String, Record>,
        }
        let path = of(id, "/inventories");
        let Some(all): Option<Inventories> = self.get(&path).await? else {
            return Ok(None);
        };
        let read = |(class, record): (String, Record)| {
            let ratio = AllocationRatio::new(record.allocation_ratio);
            let inventory = Inventory {
                total: record.total,
                reserved: record.reserved,
                min_unit: record.min_unit,
                max_unit: record.max_unit,
                step_size: record.step_size,
                allocation_ratio: self.name(&path, ratio)?,
            };
            Ok((self.name(&path, ResourceClass::new(&class))?, inventory))
        };
        Ok(Some(AtGeneration {
            generation: Generation(all.resource_provider_generation),
            value: all
                .inventories
                .into_iter()
                .map(read)
                .collect::<Result<_, Refusal>>()?,
        }))
    }

    /// Returns which traits a provider has; nothing if it does not exist.
    ///
    /// # Errors
    ///
    /// When it cannot be read.
    pub async fn traits_of(
        &self,
        id: ProviderId,
    ) -> Result<Option<AtGeneration<BTreeSet<Trait>>>, Refusal> {
        #[derive(Deserialize)]
        struct Traits {
            resource_provider_generation: u64,
            traits: Vec<String>,
        }
        let path = of(id, "/traits");
        let Some(all): Option<Traits> = self.get(&path).await? else {
            return Ok(None);
        };
        let names = all.traits.into_iter();
        let names = names.map(|name| self.name(&path, Trait::new(&name)));
        Ok(Some(AtGeneration {
            generation: Generation(all.resource_provider_generation),
            value: names.collect::<Result<_, Refusal>>()?,
        }))
    }

    /// Returns to which aggregates a provider belongs; nothing if it does not exist.
    ///
    /// # Errors
    ///
    /// When it cannot be read.
    pub async fn aggregates(
        &self,
        id: ProviderId,
    ) -> Result<Option<AtGeneration<BTreeSet<AggregateId>>>, Refusal> {
        #[derive(Deserialize)]
        struct Aggregates {
            resource_provider_generation: u64,
            aggregates: BTreeSet<AggregateId>,
        }
        let all: Option<Aggregates> = self.get(&of(id, "/aggregates")).await?;
        Ok(all.map(|all| AtGeneration {
            generation: Generation(all.resource_provider_generation),
            value: all.aggregates,
        }))
    }

    /// Returns the allocations from a provider; nothing if it does not exist.
    ///
    /// # Errors
    ///
    /// When it cannot be read.
    pub async fn allocations_of(
        &self,
        id: ProviderId,
    ) -> Result<Option<AtGeneration<BTreeMap<ConsumerId, ConsumerAllocation>>>, Refusal> {
        #[derive(Deserialize)]
        struct Allocation {
            resources: BTreeMap<String, u64>,
            consumer_generation: u64,
        }
        #[derive(Deserialize)]
        struct Allocations {
            resource_provider_generation: u64,
            allocations: BTreeMap<ConsumerId, Allocation>,
        }
        let path = of(id, "/allocations");
        let Some(all): Option<Allocations> = self.get(&path).await? else {
            return Ok(None);
        };
        let read = |(consumer, taken): (ConsumerId, Allocation)| {
            let taken = ConsumerAllocation {
                generation: Generation(taken.consumer_generation),
                resources: self.resources(&path, taken.resources)?,
            };
            Ok((consumer, taken))
        };
        Ok(Some(AtGeneration {
            generation: Generation(all.resource_provider_generation),
            value: all
                .allocations
                .into_iter()
                .map(read)
                .collect::<Result<_, Refusal>>()?,
        }))
    }

    /// Returns a consumer; nothing if it takes nothing.
    ///
    /// # Errors
    ///
    /// When it cannot be read.
    pub async fn consumer(&self, id: ConsumerId) -> Result<Option<Consumer>, Refusal> {
        #[derive(Deserialize)]
        struct Allocation {
            resources: BTreeMap<String, u64>,
        }
        #[derive(Deserialize)]
        struct Allocations {
            allocations: BTreeMap<ProviderId, Allocation>,
            project_id: Option<String>,
            user_id: Option<String>,
            consumer_generation: Option<u64>,
            consumer_type: Option<String>,
        }
        let path = format!("/allocations/{id}");
        let all: Allocations = self.get_required(&path).await?;
        if all.allocations.is_empty() {
            return Ok(None);
        }
        let (Some(project), Some(user), Some(generation)) =
            (all.project_id, all.user_id, all.consumer_generation)
        else {
            let why = "it names no project, user or consumer_generation";
            return Err(invalid_response(&self.url(&path), why));
        };
        let given = all.consumer_type.filter(|text| text != TYPE_UNKNOWN);
        let given = given.map(|text| self.name(&path, ConsumerType::new(&text)));
        let read = |(provider, allocation): (ProviderId, Allocation)| {
            Ok((provider, self.resources(&path, allocation.resources)?))
        };
        Ok(Some(Consumer {
            generation: Generation(generation),
            project,
            user,
            consumer_type: given.transpose()?,
            allocations: all
                .allocations
                .into_iter()
                .map(read)
                .collect::<Result<_, Refusal>>()?,
        }))
    }

    fn url(&self, path: &str) -> String {
        format!("{}{path}", self.http.base())
    }

    async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<Option<T>, Refusal> {
        self.http.get(path, Some(&self.version.to_string())).await
    }

    /// Reads a resource that always exists.
    async fn get_required<T: DeserializeOwned>(&self, path: &str) -> Result<T, Refusal> {
        let body = self.get(path).await?;
        body.ok_or_else(|| invalid_response(&self.url(path), "there is nothing"))
    }

    /// Passes a parsed value on, or names the URL that returned an invalid one.
    fn name<T>(&self, path: &str, read: Result<T, impl std::fmt::Display>) -> Result<T, Refusal> {
        read.map_err(|error| invalid_response(&self.url(path), &error.to_string()))
    }

    fn resources(&self, path: &str, amounts: BTreeMap<String, u64>) -> Result<Resources, Refusal> {
        let read = |(class, amount): (String, u64)| {
            Ok((self.name(path, ResourceClass::new(&class))?, amount))
        };
        amounts.into_iter().map(read).collect()
    }
}

fn of(id: ProviderId, part: &str) -> String {
    format!("/resource_providers/{id}{part}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_numbers_and_not_decimals() {
        let read = |text| Version::read(text).unwrap();
        assert!(read("1.9") < OLDEST && read("1.28") >= OLDEST && read("1.100") > NEWEST);
        assert_eq!(Version::read("1"), None);
    }
}
