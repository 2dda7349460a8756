//! Counts of everything in the state: hosts, VMs, claims, operations and migrations by their states, and
//! what is there and taken of each resource class.
//!
//! ```text
//!   every second or later ─▶ clone of the state ─▶ a thread counts ─▶ Census ─▶ scrapes
//! ```
//!
//! Counts beside the state would have to be kept in every command; a scan is right by construction, and
//! a persistent state is frozen with a few pointers. A scan of 340,000 VMs takes a fraction of a second,
//! so it rests a hundred times as long.
//!
//! Invariant: a scrape waits for no scan. The age of the counts is among the metrics.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use berth_domain::host::{Host, Liveness};
use berth_domain::id::TimeMs;
use berth_domain::operation::table::KINDS;
use berth_domain::operation::{Operation, Outcome};
use berth_domain::{claim, migration, vm};
use berth_page::cluster::{self, Counts};
use berth_process::metrics::{Definition, Exposition, Label};
use berth_replication::Retained;
use berth_replication::runtime::in_background;
use berth_state::State;
use tokio::task::spawn_blocking;

use crate::service::{Context, retained_of_state};

static AGE: Definition = Definition::gauge(
    "berth_census_age_seconds",
    &[],
    "Time since the objects of the state were counted.",
);
static TOOK: Definition = Definition::gauge(
    "berth_census_duration_seconds",
    &[],
    "Time that the latest count of the objects of the state took.",
);
static REVISION: Definition = Definition::gauge(
    "berth_census_revision",
    &[],
    "The revision of the state whose objects were counted.",
);
static HOSTS: Definition = Definition::gauge(
    "berth_hosts",
    &["state"],
    "Hosts by the first state that applies.",
);
static HOSTS_UNKNOWN_GUESTS: Definition = Definition::gauge(
    "berth_unknown_guests",
    &[],
    "Guests of hosts for which there is no claim.",
);
static VMS: Definition = Definition::gauge("berth_vms", &["state"], "VMs by state.");
static CLAIMS: Definition = Definition::gauge("berth_claims", &["state"], "Claims by state.");
static OPERATIONS: Definition = Definition::gauge(
    "berth_operations",
    &["kind", "state"],
    "Operations that the state remembers, by kind and state.",
);
static OLDEST: Definition = Definition::gauge(
    "berth_operation_oldest_seconds",
    &["kind"],
    "Age of the oldest operation that is in progress, in replicated time; 0 without any.",
);
static MIGRATIONS: Definition = Definition::gauge(
    "berth_migrations",
    &["state"],
    "Migrations that the state remembers, by state.",
);
static LEASES: Definition = Definition::gauge(
    "berth_operation_leases",
    &["state"],
    "Operations in progress by whether a conductor has a lease that is valid.",
);
static ERASURES_FAILED: Definition = Definition::gauge(
    "berth_erasures_failed",
    &[],
    "Namespaces of persistent memory whose latest erasure failed.",
);
static CAPACITY: Definition = Definition::gauge(
    "berth_capacity",
    &["resource_class"],
    "Capacity of all hosts under their allocation ratios, in the unit of the resource class.",
);
static USED: Definition = Definition::gauge(
    "berth_used",
    &["resource_class"],
    "What is taken of all hosts, in the unit of the resource class.",
);
static MEMORY_VIOLATIONS: Definition = Definition::gauge(
    "berth_memory_violations",
    &[],
    "Hosts that hold more memory than their over-commitment rule allows.",
);
static RECOVERING: Definition = Definition::gauge(
    "berth_recovering",
    &[],
    "Whether the cluster recovers after its state was made of a backup or of a lone member.",
);
static CLUSTER_VERSION: Definition =
    Definition::gauge("berth_cluster_version", &[], "The cluster version.");
static TROUBLED: Definition = Definition::gauge(
    "berth_vms_troubled",
    &[],
    "VMs with an error, or whose guests do not run although they should.",
);
static OTHERS: Definition = Definition::gauge(
    "berth_objects",
    &["kind"],
    "Other objects of the state, by kind.",
);

/// The shortest pause between two counts, and by how many times their duration they are apart.
const INTERVAL: Duration = Duration::from_secs(1);
const REST_FACTOR: u32 = 100;
/// How many resource classes are distinguished; the rest are counted as one.
const CLASSES_MAX: usize = 64;
const OTHER_CLASSES: &str = "OTHER";

berth_process::label! {
    /// The state of a host: the first that applies.
    enum HostState {
        Fenced = "fenced",
        Down = "down",
        Unreported = "unreported",
        ShapeRefused = "shape_refused",
        Cordoned = "cordoned",
        Up = "up",
    }
}

berth_process::label! {
    enum VmState {
        Building = "building",
        Active = "active",
        Migrating = "migrating",
        Deleting = "deleting",
        Error = "error",
        Stopped = "stopped",
        Resized = "resized",
        Shelved = "shelved",
    }
}

berth_process::label! {
    enum ClaimState { Held = "held", Active = "active", Releasing = "releasing" }
}

berth_process::label! {
    enum MigrationState {
        Preparing = "preparing",
        Running = "running",
        Unsettled = "unsettled",
        Completed = "completed",
        Failed = "failed",
        Verifying = "verifying",
        Reverted = "reverted",
    }
}

berth_process::label! {
    enum OperationState {
        Running = "running",
        Cancelling = "cancelling",
        Succeeded = "succeeded",
        Failed = "failed",
    }
}

berth_process::label! {
    enum LeaseState { Valid = "valid", Expired = "expired" }
}

impl From<&Host> for HostState {
    fn from(host: &Host) -> Self {
        if host.fenced.is_some() {
            Self::Fenced
        } else if host.liveness == Liveness::Down {
            Self::Down
        } else if host.unreported {
            Self::Unreported
        } else if host.shape_refused.is_some() {
            Self::ShapeRefused
        } else if host.cordoned {
            Self::Cordoned
        } else {
            Self::Up
        }
    }
}

impl From<vm::State> for VmState {
    fn from(state: vm::State) -> Self {
        match state {
            vm::State::Building => Self::Building,
            vm::State::Active => Self::Active,
            vm::State::Migrating => Self::Migrating,
            vm::State::Deleting => Self::Deleting,
            vm::State::Error => Self::Error,
            vm::State::Stopped => Self::Stopped,
            vm::State::Resized => Self::Resized,
            vm::State::Shelved => Self::Shelved,
        }
    }
}

impl From<claim::State> for ClaimState {
    fn from(state: claim::State) -> Self {
        match state {
            claim::State::Held => Self::Held,
            claim::State::Active => Self::Active,
            claim::State::Releasing => Self::Releasing,
        }
    }
}

impl From<migration::State> for MigrationState {
    fn from(state: migration::State) -> Self {
        match state {
            migration::State::Preparing => Self::Preparing,
            migration::State::Running => Self::Running,
            migration::State::Unsettled => Self::Unsettled,
            migration::State::Completed => Self::Completed,
            migration::State::Failed => Self::Failed,
            migration::State::Verifying => Self::Verifying,
            migration::State::Reverted => Self::Reverted,
        }
    }
}

impl From<&Operation> for OperationState {
    fn from(operation: &Operation) -> Self {
        match (&operation.outcome, operation.cancelled) {
            (Some(Outcome::Succeeded), _) => Self::Succeeded,
            (Some(Outcome::Failed(_)), _) => Self::Failed,
            (None, true) => Self::Cancelling,
            (None, false) => Self::Running,
        }
    }
}

/// How many there are of each value of a label.
#[derive(Debug)]
struct Tally<A> {
    counts: Vec<u64>,
    label: std::marker::PhantomData<A>,
}

impl<A: Label> Default for Tally<A> {
    fn default() -> Self {
        Self {
            counts: vec![0; A::ALL.len()],
            label: std::marker::PhantomData,
        }
    }
}

impl<A: Label> Tally<A> {
    fn count(&mut self, value: A) {
        self.counts[value.index()] += 1;
    }

    fn listed(&self) -> impl Iterator<Item = (&'static str, u64)> {
        A::ALL
            .iter()
            .map(|value| value.as_str())
            .zip(self.counts.iter().copied())
    }

    fn expose(&self, definition: &'static Definition, out: &mut Exposition) {
        for (value, count) in self.listed() {
            out.add(definition, [value], count);
        }
    }
}

/// What there is of a resource class.
#[derive(Clone, Copy, Debug, Default)]
struct Amount {
    capacity: u64,
    used: u64,
}

/// Counts of a state.
#[derive(Debug, Default)]
pub(crate) struct Census {
    revision: u64,
    cluster_version: u32,
    is_recovering: bool,
    hosts: Tally<HostState>,
    unknown_guests: u64,
    memory_violations: u64,
    amounts: BTreeMap<String, Amount>,
    vms: Tally<VmState>,
    troubled: u64,
    claims: Tally<ClaimState>,
    erasures_failed: u64,
    /// By the label of the kind and the state.
    operations: BTreeMap<(&'static str, usize), u64>,
    oldest_ms: BTreeMap<&'static str, u64>,
    leases: Tally<LeaseState>,
    migrations: Tally<MigrationState>,
    others: Vec<(&'static str, u64)>,
    retained: Vec<Retained>,
}

impl Census {
    /// Counts the objects of a state, at this replicated time.
    pub(crate) fn of(state: &State, now: TimeMs) -> Self {
        let header = state.header();
        let mut census = Self {
            revision: state.revision(),
            cluster_version: header.cluster_version.0,
            is_recovering: header
                .recovery
                .is_some_and(|recovery| recovery.is_running()),
            retained: retained_of_state(state),
            ..Self::default()
        };
        census.count_hosts(state);
        census.count_guests(state);
        census.count_operations(state, now);
        census.others = vec![
            ("aggregate", state.aggregates().len() as u64),
            ("conductor", state.services().len() as u64),
            ("consumer", state.consumers().len() as u64),
            ("flavor", state.flavors().len() as u64),
            ("resource_provider", state.providers().len() as u64),
            ("server_group", state.server_groups().len() as u64),
            ("volume", state.volumes().len() as u64),
        ];
        census
    }

    fn count_hosts(&mut self, state: &State) {
        let mut amounts: BTreeMap<_, Amount> = BTreeMap::new();
        for view in state.hosts().values() {
            self.hosts.count((&*view.host).into());
            self.unknown_guests += view.host.unknown.len() as u64;
            self.memory_violations += u64::from(!view.books().holds());
            for (class, inventory) in view.inventories.iter() {
                let used = view.used.get(class).copied().unwrap_or(0);
                let capacity = inventory.capacity();
                match amounts.get_mut(class) {
                    Some(amount) => {
                        amount.capacity += capacity;
                        amount.used += used;
                    }
                    None => drop(amounts.insert(class.clone(), Amount { capacity, used })),
                }
            }
        }
        for (number, (class, amount)) in amounts.into_iter().enumerate() {
            let name = match number < CLASSES_MAX {
                true => class.to_string(),
                false => OTHER_CLASSES.to_owned(),
            };
            let all = self.amounts.entry(name).or_default();
            all.capacity += amount.capacity;
            all.used += amount.used;
        }
    }

    fn count_guests(&mut self, state: &State) {
        for vm in state.vms().values() {
            self.vms.count(vm.state.into());
            self.troubled += u64::from(vm.error.is_some() || vm.trouble.is_some());
        }
        for claim in state.claims().values() {
            self.claims.count(claim.state.into());
            let failed = claim.erasures.values();
            let failed = failed.filter(|e| !e.failure.is_empty() && !e.written_off);
            self.erasures_failed += failed.count() as u64;
        }
        for migration in state.migrations().values() {
            self.migrations.count(migration.state.into());
        }
    }

    fn count_operations(&mut self, state: &State, now: TimeMs) {
        for operation in state.operations().values() {
            let kind = operation.kind.plan().label;
            let is = OperationState::from(&**operation).index();
            *self.operations.entry((kind, is)).or_default() += 1;
            if operation.is_done() {
                continue;
            }
            let age_ms = now.0.saturating_sub(operation.created_at.0);
            let oldest = self.oldest_ms.entry(kind).or_default();
            *oldest = age_ms.max(*oldest);
            let lease = operation.lease.as_ref();
            self.leases
                .count(match lease.is_some_and(|lease| lease.expires_at > now) {
                    true => LeaseState::Valid,
                    false => LeaseState::Expired,
                });
        }
    }

    /// Returns what of it the page shows.
    pub(crate) fn to_counts(&self) -> Counts {
        let amounts = self.amounts.iter();
        Counts {
            hosts: self.hosts.listed().collect(),
            vms: self.vms.listed().collect(),
            migrations: self.migrations.listed().collect(),
            troubled_vms: self.troubled,
            unknown_guests: self.unknown_guests,
            failed_erasures: self.erasures_failed,
            amounts: amounts
                .map(|(class, amount)| cluster::Amount {
                    class: class.clone(),
                    used: amount.used,
                    capacity: amount.capacity,
                })
                .collect(),
            violations: Vec::new(),
            violation_count: self.memory_violations,
        }
    }

    /// Returns what the state retains of what was done.
    pub(super) fn retained(&self) -> &[Retained] {
        &self.retained
    }

    fn expose(&self, out: &mut Exposition) {
        out.set(&REVISION, self.revision);
        out.set(&CLUSTER_VERSION, self.cluster_version);
        out.set(&RECOVERING, self.is_recovering);
        self.hosts.expose(&HOSTS, out);
        out.set(&HOSTS_UNKNOWN_GUESTS, self.unknown_guests);
        out.set(&MEMORY_VIOLATIONS, self.memory_violations);
        for (class, amount) in &self.amounts {
            out.add_named(&CAPACITY, [class.clone().into()], amount.capacity);
        }
        for (class, amount) in &self.amounts {
            out.add_named(&USED, [class.clone().into()], amount.used);
        }
        self.vms.expose(&VMS, out);
        out.set(&TROUBLED, self.troubled);
        self.claims.expose(&CLAIMS, out);
        out.set(&ERASURES_FAILED, self.erasures_failed);
        for kind in KINDS.map(|plan| plan.label) {
            for is in OperationState::ALL {
                let count = self.operations.get(&(kind, is.index()));
                out.add(
                    &OPERATIONS,
                    [kind, is.as_str()],
                    count.copied().unwrap_or(0),
                );
            }
        }
        for kind in KINDS.map(|plan| plan.label) {
            let age_ms = self.oldest_ms.get(kind).copied().unwrap_or(0);
            out.add(&OLDEST, [kind], Duration::from_millis(age_ms));
        }
        self.leases.expose(&LEASES, out);
        self.migrations.expose(&MIGRATIONS, out);
        for (kind, count) in &self.others {
            out.add(&OTHERS, [kind], *count);
        }
    }
}

/// A census, when its state was frozen, and how long it took.
#[derive(Debug)]
struct Taken {
    census: Census,
    at: Instant,
    took: Duration,
}

/// The latest census.
#[derive(Clone, Debug, Default)]
pub(crate) struct Latest(Arc<Mutex<Option<Arc<Taken>>>>);

impl Latest {
    /// Counts until `context` stops.
    pub(crate) async fn run(self, context: Context) {
        let stopping = context.stopping().clone();
        let counting = async {
            loop {
                let rest = match self.count(&context).await {
                    Some(took) => INTERVAL.max(took * REST_FACTOR),
                    None => INTERVAL,
                };
                tokio::time::sleep(rest).await;
            }
        };
        tokio::select! {
            () = stopping.cancelled() => {}
            () = counting => {}
        }
    }

    /// Counts once; returns how long it took, if there was a state.
    async fn count(&self, context: &Context) -> Option<Duration> {
        let state = context.stale(Clone::clone).await.ok()?;
        let now = context.time_by_now(&state);
        let at = Instant::now();
        let counted = spawn_blocking(move || in_background(|| Census::of(&state, now)));
        // A panic is in the log; the next count may not have it.
        let census = counted.await.ok()?;
        let took = at.elapsed();
        let taken = Arc::new(Taken { census, at, took });
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(taken);
        Some(took)
    }

    fn get(&self) -> Option<Arc<Taken>> {
        // It is replaced as a whole.
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Adds it to the exposition, and returns what the state retains.
    pub(super) fn expose(&self, out: &mut Exposition) -> Vec<Retained> {
        for definition in [
            &AGE,
            &TOOK,
            &REVISION,
            &CLUSTER_VERSION,
            &RECOVERING,
            &HOSTS,
            &HOSTS_UNKNOWN_GUESTS,
            &MEMORY_VIOLATIONS,
            &CAPACITY,
            &USED,
            &VMS,
            &TROUBLED,
            &CLAIMS,
            &ERASURES_FAILED,
            &OPERATIONS,
            &OLDEST,
            &LEASES,
            &MIGRATIONS,
            &OTHERS,
        ] {
            out.declare(definition);
        }
        let Some(taken) = self.get() else {
            return Vec::new();
        };
        out.set(&AGE, taken.at.elapsed());
        out.set(&TOOK, taken.took);
        taken.census.expose(out);
        taken.census.retained().to_vec()
    }
}

#[cfg(test)]
mod tests {
    use berth_domain::version::ServiceVersion;
    use berth_testkit::state::scale::{self, Size};

    use super::*;

    /// Goal: the counts are those of the state. Method: each sum is compared with the number of objects.
    #[test]
    fn a_census_counts_every_object_once() {
        let state = scale::state(Size {
            hosts: 12,
            vms_per_host: 10,
            seed: 1,
            version: ServiceVersion::CURRENT,
        });
        let census = Census::of(&state, state.time());
        let sum = |counts: &[u64]| counts.iter().sum::<u64>();
        assert_eq!(sum(&census.hosts.counts), state.hosts().len() as u64);
        assert_eq!(sum(&census.vms.counts), state.vms().len() as u64);
        assert_eq!(sum(&census.claims.counts), state.claims().len() as u64);
        let migrations = state.migrations().len() as u64;
        assert_eq!(sum(&census.migrations.counts), migrations);
        let operations = census.operations.values().sum::<u64>();
        assert_eq!(operations, state.operations().len() as u64);
        let running = state.running_operations().count() as u64;
        assert!(running > 0, "the state has work in progress");
        assert_eq!(sum(&census.leases.counts), running);
        let vcpus = census.amounts["VCPU"];
        let used = state.hosts().values().map(|view| {
            let taken = view.used.iter();
            taken
                .filter(|(class, _)| class.to_string() == "VCPU")
                .map(|(_, amount)| amount)
                .sum::<u64>()
        });
        assert_eq!(vcpus.used, used.sum::<u64>());
        assert!(vcpus.capacity >= vcpus.used && vcpus.used > 0, "{vcpus:?}");
        let mut out = Exposition::default();
        census.expose(&mut out);
        let series = out.series();
        assert!(series < 250, "{series}");
        let text = out.to_open_metrics();
        assert!(text.contains("berth_vms{state=\"active\"} "), "{text}");
    }
}
