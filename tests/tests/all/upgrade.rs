//! Rolling upgrades with real processes: three schedulers, two conductors and six agents go from
//! one service version to the next, one process at a time, while users boot, move and delete.
//!
//! Method: one binary, told to behave like an older version (`--service-version`). Each process is
//! killed and started again as what it can do. An agent is exchanged while nothing is under way on
//! its host, as an operator would; everything else in the middle of the work.

use std::collections::BTreeSet;

use berth_domain::version::ServiceVersion;
use berth_tests::processes::{Cluster, Ended, Host, Traffic, eventually, verdict};
use serde_json::Value;

const TOO_OLD: &str = "SERVICE_VERSION_TOO_OLD";

/// The version of the programs where none is configured.
const NEWEST: u64 = ServiceVersion::CURRENT.0 as u64;

/// Which process is exchanged.
#[derive(Clone, Copy, Debug)]
enum Which {
    Scheduler(usize),
    Conductor(usize),
    Agent(usize),
}

use Which::{Agent, Conductor, Scheduler};

use crate::PROGRAMS;

const SCHEDULERS: [Which; 3] = [Scheduler(0), Scheduler(1), Scheduler(2)];
const CONDUCTORS: [Which; 2] = [Conductor(0), Conductor(1)];
const AGENTS: [Which; 6] = [Agent(0), Agent(1), Agent(2), Agent(3), Agent(4), Agent(5)];

/// Goal: schedulers first, as the manual says, from 2 to the newest: nothing is refused to users.
/// Before finalizing all of them go back to 2 and forth again, and read what each other wrote.
#[test]
fn schedulers_first_and_back_and_forth() {
    let mut cluster = start(2);
    let traffic = Traffic::start(&cluster, "pinned");
    for which in SCHEDULERS {
        exchange(&mut cluster, &traffic, which, None);
    }
    refused_before(&cluster, "conductor conductor-1 (2)");
    for which in SCHEDULERS {
        exchange(&mut cluster, &traffic, which, Some("2"));
    }
    traffic.rounds(1);
    // While users write, no two members are asked at the same index.
    traffic.while_all_halted(|| verdict::members_agree(&mut cluster));
    for which in SCHEDULERS.into_iter().chain(CONDUCTORS).chain(AGENTS) {
        exchange(&mut cluster, &traffic, which, None);
    }
    traffic.rounds(1);
    finalize(&mut cluster, &traffic);
    let refused = self::refused(traffic);
    assert_eq!(refused, [], "nothing is gated from 2 on");
    rest(&mut cluster);
}

/// Goal: agents first, from 1 to the newest: guests with pinned CPUs are not moved between old agents
/// or by old conductors, for that reason, and move in the end; nothing else is refused.
#[test]
fn agents_first_from_the_oldest() {
    let mut cluster = start(1);
    let traffic = Traffic::start(&cluster, "pinned");
    traffic.rounds(1);
    for which in AGENTS.into_iter().chain(CONDUCTORS) {
        exchange(&mut cluster, &traffic, which, None);
    }
    let gated = traffic.counts();
    for which in SCHEDULERS {
        exchange(&mut cluster, &traffic, which, None);
    }
    finalize(&mut cluster, &traffic);
    assert!(
        gated.contains_key(&("migrate", TOO_OLD.to_owned())),
        "{gated:?}"
    );
    let moved = |counts: &std::collections::BTreeMap<(&'static str, String), usize>| {
        counts
            .get(&("migrate", String::new()))
            .copied()
            .unwrap_or_default()
    };
    assert!(moved(&traffic.counts()) > 0);
    let kinds: BTreeSet<_> = refused(traffic)
        .into_iter()
        .map(|ended| {
            let (reason, said) = ended.refused.expect("a refusal");
            assert_eq!((ended.what, &*reason), ("migrate", TOO_OLD), "{said}");
            reason
        })
        .collect();
    assert_eq!(kinds.len(), 1);
    rest(&mut cluster);
}

/// Goal: mixed, from 2 to the newest: the order does not matter. The last member is a scheduler, and
/// an older one does not come back after finalizing.
#[test]
fn mixed() {
    let mut cluster = start(2);
    let traffic = Traffic::start(&cluster, "pinned");
    let order = [
        Agent(3),
        Scheduler(1),
        Conductor(1),
        Agent(0),
        Agent(5),
        Scheduler(2),
        Agent(1),
        Conductor(0),
        Agent(4),
        Agent(2),
    ];
    for which in order {
        exchange(&mut cluster, &traffic, which, None);
    }
    refused_before(&cluster, "member 1 (2)");
    exchange(&mut cluster, &traffic, Scheduler(0), None);
    finalize(&mut cluster, &traffic);
    let refused = self::refused(traffic);
    assert_eq!(refused, [], "nothing is gated from 2 on");
    an_older_member_stays_out(&mut cluster);
    rest(&mut cluster);
}

/// Goal: no attempt to raise the cluster version ends a member, whatever the versions and the
/// leader; what `upgrade status` advises can be done. Method: one member after the other goes
/// from 1 to 2 to the newest; in between, each member leads and gets a request for each version.
#[test]
fn no_finalize_ends_a_member() {
    let builder = Cluster::builder(PROGRAMS).schedulers(3).conductors(0);
    let mut cluster = builder.at_version(1).start();
    let mut tried = 0;
    for (number, version) in [(0, 2), (1, 2), (2, 2), (0, NEWEST), (1, NEWEST)] {
        tried += every_finalize(&mut cluster, 1, &format!("before-{number}-{version}"));
        let member = &mut cluster.schedulers[number];
        member.kill();
        member.start_with(
            &cluster.programs,
            &["--service-version", &version.to_string()],
        );
        is_known(&cluster, Scheduler(number), version);
    }
    tried += every_finalize(&mut cluster, 1, "one-behind");
    cluster.schedulers[2].kill();
    cluster.schedulers[2].start(&cluster.programs);
    is_known(&cluster, Scheduler(2), NEWEST);
    let status = cluster.json(&["cluster", "upgrade", "status"]);
    assert_eq!(
        status["next"],
        format!("raise it to {NEWEST}: berth cluster upgrade finalize")
    );
    cluster.run(&["cluster", "upgrade", "finalize"]);
    tried += every_finalize(&mut cluster, NEWEST, "raised");
    println!("{tried} attempts");
    verdict::members_agree(&mut cluster);
}

/// Has each member lead, and tries each version at it; returns the number of attempts. Each is
/// refused or changes nothing, all members go on, and a write is acknowledged.
#[track_caller]
fn every_finalize(cluster: &mut Cluster, version: u64, flavor: &str) -> usize {
    let mut tried = 0;
    for leader in 0..3 {
        if cluster.leader() != leader {
            let id = member_id(cluster, leader).expect("a member").to_string();
            cluster.run(&["cluster", "transfer-leader", &id]);
        }
        let targets = (1..=NEWEST).map(|to| to.to_string());
        for to in std::iter::once(None).chain(targets.map(Some)) {
            let option = to.iter().flat_map(|to| ["--to", to]);
            let finalize: Vec<&str> = ["cluster", "upgrade", "finalize"]
                .into_iter()
                .chain(option)
                .collect();
            let answer = cluster.berth(&finalize);
            let status = cluster.json(&["cluster", "upgrade", "status"]);
            assert_eq!(
                status["cluster_version"], version,
                "after {finalize:?}: {answer:?}"
            );
            assert!(
                !status["next"].to_string().contains("finalize"),
                "what cannot be done is advised: {status:#}"
            );
            tried += 1;
        }
    }
    let flavor = ["flavor", "create", flavor, "--vcpus", "1"];
    cluster.run(&[&flavor[..], &["--memory-mib", "64"]].concat());
    for member in &mut cluster.schedulers {
        assert!(member.is_running(), "{}", member.said());
    }
    tried
}

/// Returns what was refused or failed, but migrations that a killed conductor had asked nobody to
/// begin: whoever takes over cannot know, lets the guest stay, and says so. That is the kill's doing.
fn refused(traffic: Traffic) -> Vec<Ended> {
    let never_begun = |ended: &Ended| {
        let said = ended.refused.as_ref();
        said.is_some_and(|(reason, said)| {
            reason == "MIGRATION_FAILED" && said.contains("its transfer was never begun")
        })
    };
    let mut refused = traffic.finish();
    refused.retain(|ended| !never_begun(ended));
    refused
}

fn start(version: u32) -> Cluster {
    let hosts = (1..=6).map(|number| Host::new(&format!("h{number}")));
    let builder = Cluster::builder(PROGRAMS).conductors(2).lease_ttl_ms(1_000);
    let builder = builder.transfer_ms(100).at_version(version);
    let cluster = hosts
        .fold(builder, |builder, host| builder.host(host))
        .start();
    cluster.pinned_flavor("pinned", 2);
    let status = cluster.json(&["cluster", "upgrade", "status"]);
    assert_eq!(status["cluster_version"], 1, "{status:#}");
    cluster
}

/// Kills a process and starts it again, at the version that its program has or an older one, and
/// waits until the cluster knows.
#[track_caller]
fn exchange(cluster: &mut Cluster, traffic: &Traffic, which: Which, version: Option<&str>) {
    let more: Vec<&str> = version
        .iter()
        .flat_map(|v| ["--service-version", v])
        .collect();
    let expected: u64 = version.map_or(NEWEST, |text| text.parse().expect("a number"));
    match which {
        Scheduler(number) => {
            cluster.schedulers[number].kill();
            cluster.schedulers[number].start_with(&cluster.programs, &more);
        }
        Conductor(number) => {
            cluster.conductors[number].kill();
            cluster.conductors[number].start_with(&cluster.programs, &more);
        }
        Agent(number) => {
            traffic.while_halted(number / 2, || {
                cluster.agents[number].kill();
                cluster.agents[number].start_with(&cluster.programs, &more);
                is_known(cluster, which, expected);
            });
        }
    }
    is_known(cluster, which, expected);
}

#[track_caller]
fn is_known(cluster: &Cluster, which: Which, expected: u64) {
    eventually(&format!("{which:?} at version {expected}"), || {
        let status = cluster.ask(&["cluster", "upgrade", "status"])?;
        let found = match which {
            Scheduler(number) => {
                let id = member_id(cluster, number)?;
                let members = status["members"].as_array();
                let mut members = members.into_iter().flatten();
                members.find(|m| m["id"] == id).unwrap_or(&Value::Null)
            }
            Conductor(number) => &status["conductors"][number],
            Agent(number) => &status["hosts"][number],
        };
        let is_up = match which {
            Agent(number) => {
                let host = cluster.ask(&["host", "show", &cluster.agents[number].name])?;
                host["host"]["liveness"] == "Up"
            }
            Scheduler(_) => {
                let status = cluster.ask(&["cluster", "status"])?;
                let members = status["members"].as_array().cloned().unwrap_or_default();
                members.iter().all(|m| m["recently_active"] == true)
            }
            Conductor(_) => true,
        };
        let known = found["service_version"] == expected && is_up;
        known.then_some(()).ok_or_else(|| format!("{status:#}"))
    });
}

/// Returns the id of a scheduler: they join at the same time, so it does not follow from its number.
fn member_id(cluster: &Cluster, number: usize) -> Result<Value, String> {
    let status = cluster.ask(&["cluster", "status"])?;
    let address = &cluster.schedulers[number].address;
    let members = status["members"].as_array();
    let mut members = members.into_iter().flatten();
    let own = |m: &&Value| m["address"].as_str().is_some_and(|a| a.ends_with(address));
    let member = members.find(own).map(|m| m["id"].clone());
    member.ok_or_else(|| format!("no member at {address}: {status:#}"))
}

/// Checks what must be refused as long as somebody is behind: raising the version, and what only
/// the newer one knows.
#[track_caller]
fn refused_before(cluster: &Cluster, behind: &str) {
    let newest = NEWEST.to_string();
    let finalize = ["cluster", "upgrade", "finalize", "--to", &newest];
    let refused = cluster.berth(&finalize).refused(1);
    let _ = refused.saying(&["UPGRADE_INCOMPLETE", behind]);
    let remove = ["cluster", "remove-conductor", "conductor-9"];
    let refused = cluster.berth(&remove).refused(1);
    let _ = refused.saying(&["CLUSTER_VERSION_TOO_OLD", behind, "upgrade finalize"]);
}

/// Finishes the upgrade, and checks that what it brought works while users go on.
#[track_caller]
fn finalize(cluster: &mut Cluster, traffic: &Traffic) {
    let remove = ["cluster", "remove-conductor", "conductor-9"];
    let refused = cluster.berth(&remove).refused(1);
    let _ = refused.saying(&["CLUSTER_VERSION_TOO_OLD", "the upgrade is not finalized"]);
    cluster.run(&["cluster", "upgrade", "finalize"]);
    let status = cluster.json(&["cluster", "upgrade", "status"]);
    assert_eq!(status["cluster_version"], NEWEST, "{status:#}");
    assert_eq!(status["behind"], Value::Array(Vec::new()), "{status:#}");
    let refused = cluster.berth(&remove).refused(1);
    let _ = refused.saying(&["SERVICE_NOT_FOUND"]);
    // What an agent said that had no place before is asked again.
    eventually("hosts that registered again", || {
        let hosts = cluster.ask(&["host", "list"])?;
        let hosts = hosts.as_array().cloned().unwrap_or_default();
        let again = |h: &Value| h["host"]["registered_version"] == NEWEST;
        let all = hosts.len() == 6 && hosts.iter().all(again);
        all.then_some(()).ok_or_else(|| format!("{hosts:#?}"))
    });
    traffic.rounds(2);
}

/// A member that is older than the cluster version does not start, whatever it has on its disk.
#[track_caller]
fn an_older_member_stays_out(cluster: &mut Cluster) {
    let programs = &cluster.programs;
    let member = &mut cluster.schedulers[2];
    member.kill();
    member.start_with(programs, &["--service-version", "2"]);
    assert_eq!(member.process().wait(), 1, "{}", member.said());
    let said = member.said();
    assert!(said.contains("service version 2"), "{said}");
    member.kill();
    member.start(programs);
    cluster.wait();
}

#[track_caller]
fn rest(cluster: &mut Cluster) {
    cluster.wait();
    verdict::holds(cluster);
    verdict::runs_what_is_claimed(cluster);
    verdict::members_agree(cluster);
}
