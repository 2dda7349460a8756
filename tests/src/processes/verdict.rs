//! What must hold of every cluster at any time, read through the API as an operator could.
//!
//! Not the invariants of the replicated state as it checks them itself: those are the
//! simulation's. Here the same is concluded from what the processes say and from what the
//! simulated hypervisors execute.

use std::collections::{BTreeMap, BTreeSet};

use berth_domain::claim::{self, Claim};
use berth_domain::host::Host;
use berth_domain::name::VmName;
use berth_domain::vm::{State, Vm};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::commands::{list, text};
use super::{Cluster, eventually};

/// Checks all that must hold at any time: no CPU is given twice, counted allocations agree with
/// the exact ones, every claim belongs to a VM, every running VM has its claim.
///
/// The lists are read one after the other: nothing may be under way.
///
/// # Panics
///
/// When something does not hold.
#[track_caller]
pub fn holds(cluster: &Cluster) {
    let vms: Vec<Vm> = parse(&cluster.json(&["vm", "list"]));
    let vms: BTreeMap<VmName, Vm> = vms.into_iter().map(|vm| (vm.name.clone(), vm)).collect();
    let mut claimed = BTreeSet::new();
    for summary in list(&cluster.json(&["host", "list"])) {
        let host: Host = parse(&summary["host"]);
        let shown = cluster.json(&["host", "show", host.name.as_str()]);
        let claims: Vec<Claim> = parse(&shown["claims"]);
        host_holds(&host, &claims, &summary["used"]);
        for claim in &claims {
            let vm = vms
                .get(&claim.vm)
                .unwrap_or_else(|| panic!("no VM owns {claim:?}"));
            if claim.state == claim::State::Active {
                assert_eq!(vm.claim, Some(claim.id), "{vm:?} {claim:?}");
                assert_eq!(vm.host.as_ref(), Some(&claim.host), "{vm:?} {claim:?}");
            }
            claimed.insert(claim.id);
        }
    }
    for vm in vms.values() {
        let has_claim = vm.claim.is_some_and(|claim| claimed.contains(&claim));
        let needs_claim = matches!(vm.state, State::Active | State::Migrating);
        assert!(has_claim || !needs_claim, "{vm:?} has no claim");
    }
}

/// Checks one host: each CPU of a claim is the host's and no other claim's, and what is counted is
/// the sum of what is claimed.
#[track_caller]
fn host_holds(host: &Host, claims: &[Claim], used: &Value) {
    let mut taken = BTreeSet::new();
    let mut counted: BTreeMap<String, u64> = BTreeMap::new();
    let dedicated = host.report.topology.dedicated();
    for claim in claims {
        let cpus = claim.assignment.dedicated();
        for cpu in cpus.iter() {
            assert!(
                taken.insert(cpu),
                "CPU {cpu} of {} twice: {claims:#?}",
                host.name
            );
            assert!(
                dedicated.contains(cpu),
                "CPU {cpu} is not for guests: {claim:?}"
            );
        }
        let pcpus = amounts(claim).remove("PCPU").unwrap_or(0);
        assert_eq!(
            pcpus,
            cpus.len() as u64,
            "counted and exact differ: {claim:?}"
        );
        for (class, amount) in amounts(claim) {
            *counted.entry(class).or_default() += amount;
        }
    }
    let used: BTreeMap<String, u64> = parse(used);
    let used: BTreeMap<_, _> = used.into_iter().filter(|(_, amount)| *amount > 0).collect();
    assert_eq!(used, counted, "of {}", host.name);
}

fn amounts(claim: &Claim) -> BTreeMap<String, u64> {
    let wire = serde_json::to_value(&claim.resources).expect("plain data");
    let mut amounts: BTreeMap<String, u64> = parse(&wire);
    amounts.retain(|_, amount| *amount > 0);
    amounts
}

/// Checks that the simulated hypervisors execute exactly the ACTIVE VMs, each once, on the CPUs
/// of its claim.
///
/// # Panics
///
/// When they do not.
#[track_caller]
pub fn runs_what_is_claimed(cluster: &Cluster) {
    let mut executed: BTreeMap<String, (String, Vec<u64>)> = BTreeMap::new();
    for agent in &cluster.agents {
        let file = cluster.guests_file(&agent.name);
        // There is no file before there is a guest.
        let Ok(guests) = std::fs::read(&file) else {
            continue;
        };
        let guests: Value = serde_json::from_slice(&guests).expect("the file of guests is JSON");
        // A guest that is being sent runs; after a restart of its hypervisor it may still be
        // written down as such.
        let runs = |guest: &&Value| guest["phase"] == "Running" || guest["phase"] == "Sending";
        for guest in list(&guests).iter().filter(runs) {
            let vm = text(&guest["spec"]["vm"]);
            let here = (agent.name.clone(), super::commands::pins(&guest["spec"]));
            let before = executed.insert(vm.clone(), here);
            assert_eq!(before, None, "{vm} is executed twice: {guest:#}");
        }
    }
    for vm in list(&cluster.json(&["vm", "list"])) {
        let name = text(&vm["name"]);
        let place = executed.remove(&name);
        if vm["state"] == "Active" {
            let (host, cpus) = place.unwrap_or_else(|| panic!("{name} is executed nowhere"));
            assert_eq!(vm["host"], host.as_str(), "{name} is executed elsewhere");
            assert_eq!(cpus, cluster.pins_on(&name, &host), "{name} has other CPUs");
        }
    }
    assert!(executed.is_empty(), "no request led to these: {executed:?}");
}

/// Waits until all schedulers that run are at the same index, and checks that their states have
/// the same hash there.
///
/// # Panics
///
/// When they do not come to the same index, or their states differ.
#[track_caller]
pub fn members_agree(cluster: &mut Cluster) {
    let running = cluster.schedulers.iter_mut();
    let running: Vec<String> = running
        .filter_map(|s| s.is_running().then(|| s.address.clone()))
        .collect();
    let hashes = eventually("members at the same index", || {
        let mut hashes = BTreeMap::new();
        let mut indexes = BTreeSet::new();
        for address in &running {
            let status = cluster.berth_at(address, &["cluster", "status"]).json()?;
            indexes.insert(status["applied_index"].as_u64());
            hashes.insert(address.clone(), text(&status["state_hash"]));
        }
        // Agents and conductors go on writing now and then: another look may be needed.
        (indexes.len() == 1)
            .then_some(hashes)
            .ok_or_else(|| format!("{indexes:?}"))
    });
    let distinct: BTreeSet<_> = hashes.values().collect();
    assert_eq!(
        distinct.len(),
        1,
        "states differ at the same index: {hashes:?}"
    );
}

#[track_caller]
fn parse<T: DeserializeOwned>(value: &Value) -> T {
    let parsed = serde_json::from_value(value.clone());
    parsed.unwrap_or_else(|error| panic!("{error}: {value:#}"))
}
