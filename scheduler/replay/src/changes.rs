//! What is changed before recorded requests are decided again: policy, flavors, hosts.
//!
//! Hosts are removed and added with the commands of the state, so what it refuses of a real operator is
//! refused here. A host that holds claims when the history begins cannot be removed: it is cordoned,
//! and its VMs stay until they leave.

use std::collections::{BTreeMap, BTreeSet};

use berth_domain::aggregate::AggregateChange;
use berth_domain::fault::{self, Fault};
use berth_domain::flavor::Flavor;
use berth_domain::host::HostReport;
use berth_domain::id::ProviderId;
use berth_domain::name::{FlavorName, HostName};
use berth_domain::policy::{SchedulingPolicy, Setting};
use berth_domain::refusal::{Code, Refusal};
use berth_state::State;
use berth_state::command::{Command, Envelope};
use uuid::Uuid;

/// How many hosts like one are added at most.
pub const LIKE_MAX: u32 = 10_000;

/// What is changed. Without any change the recorded decisions result again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// Settings of the policy for the cluster, which hold whatever the history sets for it.
    pub settings: Vec<Setting>,
    /// Changes of flavors.
    pub flavors: BTreeMap<FlavorName, FlavorChange>,
    /// Hosts that are not there.
    pub without: BTreeSet<HostName>,
    /// How many hosts like one are added.
    pub like: BTreeMap<HostName, u32>,
}

/// A change of a flavor; what is unset stays.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FlavorChange {
    /// The number of virtual CPUs.
    pub vcpus: Option<u32>,
    /// Memory in MiB.
    pub memory_mib: Option<u64>,
    /// Disk space in GiB.
    pub disk_gib: Option<u64>,
    /// Extra specs; an empty value removes one.
    pub extra_specs: BTreeMap<String, String>,
}

impl FlavorChange {
    /// Returns the changed flavor.
    #[must_use]
    pub fn apply(&self, flavor: &Flavor) -> Flavor {
        let mut changed = flavor.clone();
        changed.vcpus = self.vcpus.unwrap_or(flavor.vcpus);
        changed.memory_mib = self.memory_mib.unwrap_or(flavor.memory_mib);
        changed.disk_gib = self.disk_gib.unwrap_or(flavor.disk_gib);
        for (key, value) in &self.extra_specs {
            match value.is_empty() {
                true => drop(changed.extra_specs.remove(key)),
                false => drop(changed.extra_specs.insert(key.clone(), value.clone())),
            }
        }
        changed
    }
}

impl Changes {
    /// Returns a policy with the changed settings.
    #[must_use]
    pub fn policy(&self, policy: &SchedulingPolicy) -> SchedulingPolicy {
        let mut changed = policy.clone();
        for setting in &self.settings {
            changed.set(*setting);
        }
        changed
    }

    /// Returns a flavor as it is with the changes.
    #[must_use]
    pub fn flavor(&self, flavor: &Flavor) -> Flavor {
        match self.flavors.get(&flavor.name) {
            Some(change) => change.apply(flavor),
            None => flavor.clone(),
        }
    }

    /// Makes the changes to the state with which a history begins, and returns how many commands that
    /// took, and the hosts that could only be cordoned.
    ///
    /// # Errors
    ///
    /// A named host or flavor is not there, or the state refuses a change.
    pub fn make(&self, state: &mut State) -> Result<Made, Refusal> {
        let mut made = Made::default();
        let policy = self.policy(state.policy());
        let faults = policy.migration.faults();
        if !faults.is_empty() {
            return Err(fault::refusal("policy", &faults));
        }
        if policy != **state.policy() {
            made.run(state, Command::SetPolicy(policy))?;
        }
        for (name, change) in &self.flavors {
            let Some(flavor) = state.flavor(name).cloned() else {
                // It may be created on the way: see what_if, which reports one that never is.
                continue;
            };
            let changed = change.apply(&flavor);
            let valid = changed.validate();
            valid.map_err(|faults| fault::refusal("flavor", &faults))?;
            let flavor = name.clone();
            made.run(state, Command::DeleteFlavor { flavor })?;
            made.run(state, Command::CreateFlavor(changed))?;
        }
        // First, as a host may be replaced by others of its shape.
        for (host, count) in &self.like {
            add_like(state, &mut made, host, *count)?;
        }
        for host in &self.without {
            self.remove(state, &mut made, host)?;
        }
        Ok(made)
    }

    fn remove(&self, state: &mut State, made: &mut Made, host: &HostName) -> Result<(), Refusal> {
        if state.host(host).is_none() {
            return Err(no_host(host));
        }
        let cordoned = true;
        let cordon = Command::SetCordon {
            host: host.clone(),
            cordoned,
        };
        made.run(state, cordon)?;
        let host = host.clone();
        if state.claims_of_host(&host).next().is_some() {
            made.cordoned.insert(host);
            return Ok(());
        }
        made.run(state, Command::RemoveHost { host })
    }
}

/// What making the changes took.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Made {
    /// Commands.
    pub commands: u64,
    /// Hosts that hold claims, and so were only cordoned.
    pub cordoned: BTreeSet<HostName>,
}

impl Made {
    fn run(&mut self, state: &mut State, command: Command) -> Result<(), Refusal> {
        self.commands += 1;
        let envelope = Envelope {
            at: state.time(),
            principal: "replay".to_owned(),
            request: None,
            audit: None,
            command,
        };
        state.speculate(state.revision() + 1, &envelope).map(drop)
    }
}

/// Returns the name of an added host, numbered from 1.
///
/// # Errors
///
/// The name is too long.
pub fn name_like(host: &HostName, number: u32) -> Result<HostName, Refusal> {
    let name = format!("{host}-like-{number}");
    HostName::new(&name).map_err(|_| {
        let fault = Fault::new("add-like", name, "is no name for an added host");
        fault::refusal("replay", &[fault])
    })
}

/// Returns the command that adds a host like one that reports this.
pub(crate) fn registration(
    host: &HostName,
    number: u32,
    report: &HostReport,
) -> Result<Command, Refusal> {
    let name = name_like(host, number)?;
    // Names are distinct, and so are the ids made of them; no registered host has such an id.
    let hash = name.as_str().bytes().fold(0_u128, |hash, byte| {
        hash.wrapping_mul(0x0100_0000_01b3) ^ u128::from(byte)
    });
    Ok(Command::RegisterHost {
        host: name,
        provider: ProviderId(Uuid::from_u128(hash)),
        report: report.clone(),
    })
}

fn add_like(
    state: &mut State,
    made: &mut Made,
    host: &HostName,
    count: u32,
) -> Result<(), Refusal> {
    let Some(view) = state.host(host).cloned() else {
        return Err(no_host(host));
    };
    let aggregates = state.aggregates_of(host);
    let aggregates: Vec<_> = aggregates.map(|known| known.name.clone()).collect();
    for number in 1..=count {
        made.run(state, registration(host, number, &view.host.report)?)?;
        for aggregate in &aggregates {
            let change = AggregateChange {
                add_hosts: [name_like(host, number)?].into(),
                ..AggregateChange::default()
            };
            let aggregate = aggregate.clone();
            made.run(state, Command::UpdateAggregate { aggregate, change })?;
        }
    }
    Ok(())
}

fn no_host(host: &HostName) -> Refusal {
    Refusal::new(
        Code::NotFound,
        "HOST_NOT_FOUND",
        format!("host {host} is not in the full backup"),
    )
    .with("host", host)
    .with_hint("name a host that the cluster had when the full backup was made")
}
