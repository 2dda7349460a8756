//! What must hold of guests and claims, read from outside the product: from the kernel, from
//! libvirt, and from what the guests write on their consoles.

use std::collections::{BTreeMap, BTreeSet};

use berth_domain::claim::{self, Claim};
use berth_domain::host::Host;
use berth_domain::vm;
use berth_driver::libvirt::Connection;

use super::cluster::{PATIENCE, System, list, parse};

/// How many numbers may be missing between two lines of a console: what was on its way through
/// the serial line when the guest moved.
const LOST_MAX: u64 = 2;

/// Checks that a VM runs on a host and nowhere else, on the CPU of its only claim, and goes on
/// counting without ever having been started again. Returns that CPU.
#[track_caller]
pub(crate) fn runs_on(system: &System, vm: &str, host: &str) -> u32 {
    let shown = system.vm(vm);
    assert_eq!(shown.vm.state, vm::State::Active, "{shown:?}");
    assert_eq!(shown.vm.host.as_ref().map(|h| h.as_str()), Some(host));
    let [claim] = &shown.claims[..] else {
        panic!("not one claim: {shown:?}");
    };
    assert_eq!(claim.state, claim::State::Active, "{claim:?}");
    assert_eq!(claim.host.as_str(), host, "{claim:?}");
    assert_eq!(shown.vm.claim, Some(claim.id), "{shown:?}");

    let (here, elsewhere): (Vec<_>, Vec<_>) = ["host-a", "host-b"]
        .into_iter()
        .partition(|name| domains(system, name).contains(vm));
    assert_eq!(
        (&here[..], elsewhere.len()),
        (&[host][..], 1),
        "where {vm} runs"
    );

    let cpu = one_cpu(claim);
    let machine = system.machine(host);
    let vcpus = machine.vcpu_affinity(vm).unwrap();
    assert_eq!(
        vcpus,
        BTreeMap::from([(0, BTreeSet::from([cpu]))]),
        "vCPUs of {vm}"
    );
    for thread in machine.qemu_threads(vm).unwrap() {
        assert_eq!(thread.cpus, BTreeSet::from([cpu]), "{thread:?} of {vm}");
    }
    counts_on(system, vm);
    cpu
}

/// Returns the only CPU that a claim takes, for its only vCPU.
#[track_caller]
fn one_cpu(claim: &Claim) -> u32 {
    let pins: Vec<_> = claim.assignment.pins().into_iter().collect();
    let [(vcpu, cpu)] = pins[..] else {
        panic!("not one pin: {claim:?}");
    };
    assert_eq!(vcpu.0, 0, "{claim:?}");
    assert_eq!(claim.assignment.dedicated().len(), 1, "{claim:?}");
    cpu.0
}

/// Returns the names of the guests on a host, as libvirt says.
pub(crate) fn domains(system: &System, host: &str) -> BTreeSet<String> {
    let connection = Connection::open(&system.machine(host).libvirt_uri()).unwrap();
    let domains = connection.domains().unwrap();
    domains
        .iter()
        .map(|domain| domain.name().to_owned())
        .collect()
}

/// Returns whether memory of a guest has gone to another host, as libvirt says; why not, otherwise.
pub(crate) fn is_sending(system: &System, vm: &str, host: &str) -> Result<(), String> {
    let connection = Connection::open(&system.machine(host).libvirt_uri()).unwrap();
    let domain = connection.domain_by_name(vm);
    let job = domain.and_then(|domain| domain.job());
    let job = job.map_err(|error| error.to_string())?;
    (job.processed_bytes > 0)
        .then_some(())
        .ok_or_else(|| format!("{job:?}"))
}

/// Checks that the counter of a guest goes on, from one line to the next over its whole life.
#[track_caller]
fn counts_on(system: &System, vm: &str) {
    let console = system.console(vm);
    let before = console.count().unwrap_or(0);
    console.wait_for_count_above(before + 1, PATIENCE).unwrap();
    let lines = console.lines();
    let starts = lines.iter().filter(|line| line.starts_with("up ")).count();
    assert_eq!(starts, 1, "{vm} was started again: {lines:?}");
    let counts: Vec<u64> = lines
        .iter()
        .filter_map(|line| line.strip_prefix("count ")?.parse().ok())
        .collect();
    for pair in counts.windows(2) {
        let next = pair[0] + 1..=pair[0] + 1 + LOST_MAX;
        assert!(next.contains(&pair[1]), "{vm} counts {pair:?}");
    }
}

/// Checks both hosts: what is counted is the sum of the claims, each CPU is given once, and the
/// guests that run are those that claims are ACTIVE for.
#[track_caller]
pub(crate) fn hosts_agree(system: &System) {
    for summary in list(&system.json(&["host", "list"])) {
        let host: Host = parse(summary["host"].clone());
        let name = host.name.as_str();
        let claims = system.claims(name);
        let mut counted: BTreeMap<String, u64> = BTreeMap::new();
        let mut taken = BTreeSet::new();
        let mut guests = BTreeSet::new();
        for claim in &claims {
            assert_eq!(claim.state, claim::State::Active, "{claim:?}");
            assert!(taken.insert(one_cpu(claim)), "a CPU twice: {claims:?}");
            assert!(
                guests.insert(claim.vm.to_string()),
                "a VM twice: {claims:?}"
            );
            let wire = serde_json::to_value(&claim.resources).expect("plain data");
            let amounts: BTreeMap<String, u64> = parse(wire);
            for (class, amount) in amounts {
                *counted.entry(class).or_default() += amount;
            }
        }
        let provider = system.json(&["provider", "show", &host.provider.to_string()]);
        for used in [&summary["used"], &provider["used"]] {
            let mut used: BTreeMap<String, u64> = parse(used.clone());
            used.retain(|_, amount| *amount > 0);
            counted.retain(|_, amount| *amount > 0);
            assert_eq!(used, counted, "counted and claimed differ on {name}");
        }
        let pcpus = counted.get("PCPU").copied().unwrap_or(0);
        assert_eq!(
            pcpus,
            taken.len() as u64,
            "counted and exact differ on {name}"
        );
        assert_eq!(domains(system, name), guests, "guests of {name}");
    }
}
