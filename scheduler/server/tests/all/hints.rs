//! Goal: a hint is a claim. After the change that it names, and nothing else, the very request
//! succeeds; and a cluster that is not full seldom refuses without one.
//!
//! Method: clusters from a seed, with pins, NUMA nodes, huge pages, PCI functions, persistent
//! memory, server groups, zones, aggregates, traits, cordons, dead agents and memory ratios, filled
//! by boots, moves, stops, resizes and deletions. Every refusal of a boot, a migration or a resize
//! is answered with its hint; the hint is executed by commands of the state (a VM moved to the end,
//! a pool in a new report, a namespace erased, …), and the same request is decided again.
//!
//!   BERTH_HINT_REFUSALS   how many refusals (default 4,000)
//!   BERTH_HINT_SEED       the seed (default 1)
//!   BERTH_HINT_SHOW       set: requests without a hint are printed

mod cluster;
mod dice;
mod execute;
mod recipes;
mod report;
mod states;

use std::collections::BTreeMap;

use berth_decide::Action;
use berth_domain::hint::Hint;
use berth_domain::host::Liveness;
use berth_domain::resource::ResourceClass;

use cluster::World;
use dice::Dice;

/// Requests that are made of one cluster.
const REQUESTS: u64 = 24;
/// A cluster is full where less than this part of its dedicated CPUs or memory is free.
const FREE_MIN: f64 = 0.1;

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().unwrap())
}

/// What became of the refusals.
#[derive(Default)]
struct Tally {
    refusals: u64,
    /// Of VMs on hosts that are DOWN: no change elsewhere moves them.
    dead_hosts: u64,
    not_full: u64,
    not_full_with_hint: u64,
    kinds: BTreeMap<String, u64>,
    without: BTreeMap<String, u64>,
}

#[test]
fn every_hint_holds() {
    let seed = number("BERTH_HINT_SEED", 1);
    let refusals = number("BERTH_HINT_REFUSALS", 4_000);
    let mut tally = Tally::default();
    let mut number = 0;
    while tally.refusals < refusals {
        number += 1;
        let mut dice = Dice::new(seed.wrapping_mul(0x1_0000_0000).wrapping_add(number));
        let mut world = World::draw(&mut dice);
        for turn in 0..REQUESTS {
            let request = world.request(&mut dice);
            let place = format!("seed {seed}, cluster {number}, request {turn}: {request:?}");
            match world.decide(&request) {
                Ok(proposal) => world.carry_out(&proposal),
                Err(refusal) if refusal.causes.is_empty() => {}
                Err(refusal) => judge(&world, &request, &refusal, &mut tally, &place),
            }
            world.age(&mut dice);
        }
    }
    println!("{} refusals in {number} clusters", tally.refusals);
    println!("of VMs on hosts that are DOWN: {}", tally.dead_hosts);
    println!("hints: {:#?}", tally.kinds);
    println!("without: {:#?}", tally.without);
    println!(
        "not full: {} refusals, {} with a hint",
        tally.not_full, tally.not_full_with_hint
    );
    // A comparison in which only one kind of hint appears would show little.
    assert!(
        tally.kinds.len() >= 12 || refusals < 2_000,
        "{:?}",
        tally.kinds
    );
    assert!(
        tally.not_full * 4 >= tally.refusals,
        "most clusters are full"
    );
    assert!(tally.not_full_with_hint * 10 >= tally.not_full * 9);
    assert!(tally.dead_hosts > 0 || refusals < 2_000);
}

/// Executes the hint of a refusal and makes the request again.
fn judge(
    world: &World,
    request: &Action,
    refusal: &berth_domain::refusal::Refusal,
    tally: &mut Tally,
    place: &str,
) {
    tally.refusals += 1;
    if is_on_a_dead_host(world, request) {
        assert_eq!(refusal.hint, None, "{place}");
        tally.dead_hosts += 1;
        return;
    }
    let is_full = is_full(world);
    tally.not_full += u64::from(!is_full);
    let Some(change) = &refusal.change else {
        assert_eq!(refusal.hint, None, "{place}");
        let causes = refusal.causes.keys().cloned().collect::<Vec<_>>().join(" ");
        if std::env::var_os("BERTH_HINT_SHOW").is_some() {
            println!("without a hint: {causes}, {place}");
        }
        *tally.without.entry(causes).or_default() += 1;
        return;
    };
    tally.not_full_with_hint += u64::from(!is_full);
    assert_eq!(
        refusal.hint.as_deref(),
        Some(&*change.describe()),
        "{place}"
    );
    *tally.kinds.entry(name(change)).or_default() += 1;
    let mut after = world.clone();
    let request = after.execute(change, request, place);
    let again = after.decide(&request);
    assert!(
        again.is_ok(),
        "{change:#?}\n{:?}\n{refusal:#?}\n{place}",
        again.err()
    );
}

/// Returns whether a VM is to be moved from a host that is DOWN.
fn is_on_a_dead_host(world: &World, request: &Action) -> bool {
    let vm = match request {
        Action::ScheduleMigration(params) => &params.vm,
        Action::ScheduleMove(params) => &params.vm,
        Action::ScheduleVm(_)
        | Action::ScheduleUnshelve(_)
        | Action::MoveDrained(_)
        | Action::ScheduleNext { .. }
        | Action::SetPolicy { .. }
        | Action::CreateVolume(_)
        | Action::Plain(_) => return false,
    };
    let host = world.state.vm(vm).and_then(|vm| vm.host.as_ref());
    let view = host.and_then(|host| world.state.host(host));
    view.is_some_and(|view| view.host.liveness == Liveness::Down)
}

fn name(hint: &Hint) -> String {
    match hint {
        Hint::ChangeRequest(change) => format!("{} {}", hint.kind(), change.as_str()),
        Hint::OpenHost { steps, .. } => {
            let steps: Vec<&str> = steps.iter().map(|step| step.as_str()).collect();
            format!("{} {}", hint.kind(), steps.join(" "))
        }
        Hint::Vacate { vms, .. } => {
            let count = vms.len().min(3);
            let all = vms.iter().all(|vm| vm.action.preserves());
            let means = if all { "preserving" } else { "ending" };
            format!("{} {count} {means}", hint.kind())
        }
        Hint::AnyHostAnd(hint) => format!("ANY_HOST_AND {}", name(hint)),
        Hint::WaitForErasure { .. }
        | Hint::AddShape(_)
        | Hint::UpgradeAgents { .. }
        | Hint::ResizePools { .. }
        | Hint::AddTraits { .. }
        | Hint::AddBridges { .. }
        | Hint::AddHost { .. } => hint.kind().to_owned(),
    }
}

/// Returns whether little of the open hosts is left, of dedicated CPUs or of memory.
fn is_full(world: &World) -> bool {
    let views: Vec<_> = world
        .state
        .hosts()
        .values()
        .filter(|v| v.host.is_open())
        .collect();
    [ResourceClass::pcpu(), ResourceClass::memory_mb()]
        .iter()
        .any(|class| {
            let all = views.iter().filter_map(|view| view.inventories.get(class));
            let all: u64 = all.map(|inventory| inventory.capacity()).sum();
            let used: u64 = views.iter().map(|view| view.used_of(class)).sum();
            (all.saturating_sub(used)) as f64 <= all as f64 * FREE_MIN
        })
}
