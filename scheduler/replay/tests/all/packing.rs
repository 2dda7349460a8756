//! The mix of guests of `docs/packing.md`: they come and go, and every choice is made again.
//!
//! Small in every run. The large one is described in `tests/long/README.md`: the environment says how
//! many decisions and hosts it has, and where its backups are kept.

use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::path::Path;

use berth_domain::flavor::Flavor;
use berth_domain::name::VmName;
use berth_domain::policy::Setting;
use berth_replay::{Changes, Usage};
use berth_state::command::Command;
use berth_testkit::selection::mix;
use berth_testkit::state::{report, vm_name};

use crate::common::{Leader, replay_files};
use crate::script::{Dice, pack};

/// Of so many guests one stays for long.
const LONG_OF: u64 = 8;
/// How many arrivals a short guest stays for in the mean, for each host.
const STAY_PER_HOST: u64 = 12;

fn number(name: &str, default: u64) -> u64 {
    let set = env::var(name).ok();
    set.map_or(default, |text| text.parse().expect("a number"))
}

/// Records so many decisions; arrivals that are refused come on top.
fn record(decisions: u64, hosts: u32) -> (Leader, u64) {
    let mut machine = report(mix::machine());
    machine.memory_reserved_mib = 0;
    let mut leader = Leader::new(hosts, &machine);
    for alias in mix::aliases().into_values() {
        leader.plain(Command::CreatePciAlias(alias));
    }
    let flavors = mix::flavors();
    for (_, flavor) in &flavors {
        leader.flavor(flavor.clone());
    }
    leader.full_backup();
    let mut dice = Dice(7);
    let mut departures: BTreeMap<u64, Vec<VmName>> = BTreeMap::new();
    let (mut taken, mut refused, mut arrived) = (0, 0, 0);
    let stay = STAY_PER_HOST * u64::from(hosts);
    while taken < decisions {
        arrived += 1;
        for vm in departures.remove(&arrived).unwrap_or_default() {
            let gone = leader.delete((1 << 40) + arrived * 1_000 + taken % 1_000, &vm);
            gone.expect("it is deleted");
        }
        let flavor = draw(&mut dice, &flavors);
        match leader.schedule(arrived, &flavor.name, None) {
            Ok(operation) => {
                leader.spawn(operation);
                taken += 1;
                let stays = 1 + dice.below(2 * stay);
                let is_long = dice.below(LONG_OF) == 0;
                let at = arrived + stays * if is_long { 4 } else { 1 };
                let leaving = departures.entry(at).or_default();
                // One at a time: the number of a deletion is made of that of the arrival.
                if leaving.is_empty() {
                    leaving.push(vm_name(&format!("vm{arrived}")));
                } else {
                    let free = (at..).find(|at| !departures.contains_key(at));
                    let free = free.expect("there is a time");
                    departures.insert(free, vec![vm_name(&format!("vm{arrived}"))]);
                }
            }
            Err(_) => refused += 1,
        }
    }
    (leader, refused)
}

fn draw<'f>(dice: &mut Dice, flavors: &'f [(u32, Flavor)]) -> &'f Flavor {
    let weights: u32 = flavors.iter().map(|(weight, _)| weight).sum();
    let mut at = dice.below(weights.into()) as u32;
    for (weight, flavor) in flavors {
        if at < *weight {
            return flavor;
        }
        at -= weight;
    }
    panic!("the weights add up");
}

fn keep(backups: &[Vec<u8>; 2]) {
    let Ok(folder) = env::var("BERTH_REPLAY_KEEP") else {
        return;
    };
    for (name, bytes) in ["full.backup", "increment.backup"].iter().zip(backups) {
        fs::write(Path::new(&folder).join(name), bytes).expect("a file");
    }
}

fn shown(usage: &Usage) -> String {
    let class = |name: &str| {
        let mut classes = usage.classes.iter();
        let level = classes.find(|(class, _)| class.as_str() == name);
        level.map_or_else(String::new, |(_, level)| {
            format!(
                "{name} {}, at most {} of {}",
                level.used, level.peak, level.capacity
            )
        })
    };
    let stranded = format!("{} of {}", usage.stranded_cpus, usage.dedicated_cpus);
    format!("{}; stranded CPUs {stranded}", class("PCPU"))
}

/// Goal: no recorded choice differs, and the better policy of `docs/packing.md` refuses fewer of the
/// large guests that the recorded one accepted than it accepts.
#[test]
fn the_mix_of_guests_is_placed_again() {
    let decisions = number("BERTH_REPLAY_DECISIONS", 2_000);
    let hosts = number("BERTH_REPLAY_HOSTS", 20) as u32;
    let (leader, refused) = record(decisions, hosts);
    println!("recorded {decisions} decisions on {hosts} hosts, {refused} refused");
    let backups = leader.backups();
    keep(&backups);
    let mut settings = pack();
    settings.push(Setting::parse("flavor.mem_page_size", "any").expect("a good setting"));
    let changes = Changes {
        settings,
        ..Changes::default()
    };
    let (report, _) = replay_files(&backups, Some(changes)).expect("they verify");
    let check = &report.check;
    assert_eq!(check.decisions, decisions);
    assert_eq!(check.differences, 0, "{:#?}", check.examples);
    let what_if = report.what_if.expect("it was requested");
    let refused_now = what_if.refused_in_all();
    println!("recorded: {}", shown(&report.recorded));
    println!(
        "pack, any pages: {}, {refused_now} refused",
        shown(&what_if.usage)
    );
    assert_eq!(what_if.decisions, decisions);
    assert_eq!(
        what_if.same_host + what_if.other_host + refused_now,
        decisions
    );
    assert!(what_if.other_host > decisions / 2);
    assert!(what_if.usage.stranded_cpus < report.recorded.stranded_cpus);
}
