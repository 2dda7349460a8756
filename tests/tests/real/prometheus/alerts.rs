//! Alerts that fire for their cause and clear by what their runbook says.
//!
//! Goal: each alert of the shipped file can fire on programs as they are, with the labels that its runbook
//! needs, and does not go on when the cause is removed. Method: one cluster and one Prometheus
//! ([`World`]); the rules are those of the file in less time ([`shortened`]). Each [`Phase`] is caused,
//! watched, repaired and watched again. What the operator of a phase does is in `docs/alerts.md`.
//!
//! Not here: the values at which an alert fires, which `promtool` compares to the minute (`rules.yml`).
//!
//! Invariant: every alert of the file is in one phase or in [`NOT_CAUSED`], which the document lists.

use std::collections::BTreeSet;
use std::fs;
use std::process::Command;

use berth_tests::processes::eventually;

use super::server::Labels;
use super::world::{ON_DISK, World};
use super::{dashboards, root, shortened};
use crate::harness::{FINISHED, ROLE};

/// The role of the test in a mount namespace of its own.
pub(crate) const CAUSED: &str = "prometheus/alerts";

/// The alerts that no phase causes. The document has the reasons.
const NOT_CAUSED: [&str; 1] = ["BerthMemoryGrows"];

/// An alert, and the labels that it fires with beside its name.
struct Case {
    alert: &'static str,
    labels: fn(&World) -> Vec<(&'static str, String)>,
}

/// What happens to the cluster, which alerts that must fire, and what is done about it.
struct Phase {
    cases: &'static [Case],
    cause: fn(&mut World),
    remedy: fn(&mut World),
}

const WARNING: fn(&World) -> Vec<(&'static str, String)> = |_| severity("warning");
const CRITICAL: fn(&World) -> Vec<(&'static str, String)> = |_| severity("critical");

fn severity(severity: &str) -> Vec<(&'static str, String)> {
    vec![("severity", severity.to_owned())]
}

/// Returns the labels of an alert about the third scheduler.
fn on_disk(world: &World) -> Vec<(&'static str, String)> {
    let watch = world.cluster.schedulers[ON_DISK].watch();
    vec![("instance", watch.to_owned())]
}

/// Returns the labels of an alert about the member that is killed.
fn killed_member(world: &World) -> Vec<(&'static str, String)> {
    vec![("member", world.members()[killed(world)].to_string())]
}

/// Returns which scheduler is killed while the others go on.
fn killed(world: &World) -> usize {
    (world.cluster.leader() + 1) % 3
}

/// The phases, in their order. Those that disturb nothing else share one.
const PHASES: [Phase; 6] = [
    Phase {
        cases: &[
            Case {
                alert: "BerthBackupOld",
                labels: WARNING,
            },
            Case {
                alert: "BerthFailoverLost",
                labels: WARNING,
            },
            Case {
                alert: "BerthErasureFailed",
                labels: WARNING,
            },
            Case {
                alert: "BerthMemoryViolation",
                labels: WARNING,
            },
            Case {
                alert: "BerthDriverDisconnected",
                labels: |world| instance(world.cluster.agents[1].watch(), "berth-agent"),
            },
            Case {
                alert: "BerthDiskNearlyFull",
                labels: on_disk,
            },
            Case {
                alert: "BerthCertificateEnds",
                labels: |world| instance(world.cluster.csi_controllers[0].watch(), "berth-csi"),
            },
            Case {
                alert: "BerthRefusalsRise",
                labels: WARNING,
            },
        ],
        cause: neglect,
        remedy: tidy_up,
    },
    Phase {
        cases: &[
            Case {
                alert: "BerthDiskSilent",
                labels: on_disk,
            },
            Case {
                alert: "BerthLogSyncSlow",
                labels: on_disk,
            },
        ],
        cause: hang_a_disk,
        remedy: |world| world.disk.thaw(),
    },
    Phase {
        cases: &[Case {
            alert: "BerthLeaderChangesOften",
            labels: WARNING,
        }],
        cause: change_leaders,
        remedy: World::end_client,
    },
    Phase {
        cases: &[
            Case {
                alert: "BerthHostDown",
                labels: WARNING,
            },
            Case {
                alert: "BerthUnsettled",
                labels: CRITICAL,
            },
            Case {
                alert: "BerthOperationStuck",
                labels: |_| vec![("kind", "live_migrate".to_owned())],
            },
            Case {
                alert: "BerthOperationsWithoutConductor",
                labels: CRITICAL,
            },
            Case {
                alert: "BerthMemberMissing",
                labels: killed_member,
            },
            Case {
                alert: "BerthMemberBehind",
                labels: killed_member,
            },
            Case {
                alert: "BerthProgramDown",
                labels: |world| instance(world.cluster.conductors[0].watch(), "berth-conductor"),
            },
        ],
        cause: kill_a_part_of_each,
        remedy: start_what_is_stopped,
    },
    Phase {
        cases: &[Case {
            alert: "BerthNoLeader",
            labels: CRITICAL,
        }],
        cause: lose_the_majority,
        remedy: make_a_new_group,
    },
    Phase {
        cases: &[Case {
            alert: "BerthRecovering",
            labels: WARNING,
        }],
        cause: |_| {},
        remedy: end_the_recovery,
    },
];

fn instance(watch: &str, job: &str) -> Vec<(&'static str, String)> {
    vec![("instance", watch.to_owned()), ("job", job.to_owned())]
}

/// Backups that fail, hosts that are full, a device that cannot be erased, a rule that is broken, a
/// hypervisor with errors, a full disk, an old certificate, refused requests.
fn neglect(world: &mut World) {
    world.take_backups_away();
    let cluster = &world.cluster;
    for (vm, host) in [("a", "h1"), ("b", "h2"), ("c", "h2")] {
        let _ = cluster.boot(vm, "three", host);
    }
    cluster.run(
        &[
            &berth_tests::processes::Cluster::create("p", "persistent")[..],
            &["--host", "h1"],
        ]
        .concat(),
    );
    cluster.happens("h1", "refuse erase 1000");
    cluster.run(&["vm", "delete", "p"]);
    cluster.run(&["policy", "set", "memory.mem_node_mib=131072"]);
    world.disk.fill();
    world.shorten_certificate();
    // A line that cannot be read: the simulated hypervisor answers every request with this error.
    cluster.happens("h2", "out of order");
    world.repeat(&[&["vm", "delete", "no-such-vm"]]);
}

fn tidy_up(world: &mut World) {
    // What the runbook reads: the reason of the refusals.
    let reasons = format!("topk(5, rate(berth_refusals_total[{}]))", shortened::RANGE);
    let reasons = world.prometheus.query(&reasons).expect("it is refused");
    let named = reasons
        .iter()
        .any(|series| series["metric"]["reason"] == "VM_NOT_FOUND" && series["value"][1] != "0");
    assert!(named, "{reasons:#?}");
    world.end_client();
    world.bring_backups_back();
    world.rewrite_story("h2", "");
    world.disk.empty();
    world.renew_certificate();
    let shown = world.cluster.json(&["host", "show", "h1"]).to_string();
    assert!(shown.contains("injected fault"), "{shown}");
    // The repaired device: the fault ends with the simulated hypervisor.
    world.rewrite_story("h1", "");
    world.cluster.agent("h1").kill();
    world.start_agent("h1");
    let cluster = &world.cluster;
    cluster.run(&["policy", "set", "memory.mem_node_mib=0"]);
    // Which guest has no place, as the status of `verify` and its answer say.
    let verified = cluster.berth(&["verify"]).with_status(4);
    assert!(
        verified.stdout.contains("if h1 fails, vm a fits on none"),
        "{verified:#?}"
    );
    eventually("the hypervisor of h2 answers", || {
        let answer = cluster.berth(&["vm", "delete", "c"]);
        (answer.status == Some(0))
            .then_some(())
            .ok_or_else(|| format!("{answer:#?}"))
    });
}

/// The disk of a follower hangs while a command is to be written.
fn hang_a_disk(world: &mut World) {
    let members = world.members();
    let other = members[0].to_string();
    eventually("a leader whose disk answers", || {
        match world.cluster.leader() {
            ON_DISK => {
                let transfer = ["cluster", "transfer-leader", &other];
                Err(format!("{:?}", world.cluster.berth(&transfer)))
            }
            _ => Ok(()),
        }
    });
    let log = world.cluster.folder().join("freeze.log");
    world.disk.freeze(8, &log);
    // While it is frozen, and before that: each is an entry of the log.
    for number in 0..4 {
        let name = format!("written-{number}");
        world.cluster.pinned_flavor(&name, 1);
    }
}

/// The first two members take turns as leader.
fn change_leaders(world: &mut World) {
    let members = world.members();
    let [first, second] = [members[0].to_string(), members[1].to_string()];
    world.repeat(&[
        &["cluster", "transfer-leader", &first],
        &["cluster", "transfer-leader", &second],
    ]);
}

/// While a guest is on its way both agents end, then the conductor, then a follower.
fn kill_a_part_of_each(world: &mut World) {
    let cluster = &mut world.cluster;
    cluster.happens("h1", "hold transfer");
    let moving = cluster.begin(&["vm", "migrate", "a", "--host", "h2"]);
    cluster.reaches(&moving, "LiveMigration", "Succeeded");
    for host in ["h1", "h2"] {
        cluster.agent(host).kill();
    }
    world.await_migration("Unsettled");
    world.cluster.conductors[0].kill();
    let follower = killed(world);
    world.cluster.schedulers[follower].kill();
    for number in 0..12 {
        let name = format!("missed-{number}");
        world.cluster.pinned_flavor(&name, 1);
    }
}

fn start_what_is_stopped(world: &mut World) {
    let down = world.cluster.json(&["host", "list"]).to_string();
    assert_eq!(down.matches("\"Down\"").count(), 2, "{down}");
    world.rewrite_story("h1", "");
    let programs = world.cluster.programs.clone();
    let cluster = &mut world.cluster;
    let parts = cluster.schedulers.iter_mut().chain(&mut cluster.conductors);
    for part in parts.chain(&mut cluster.agents) {
        if !part.is_running() {
            part.start(&programs);
        }
    }
}

/// All members but the first are lost; if that one leads, it steps down.
fn lose_the_majority(world: &mut World) {
    for scheduler in &mut world.cluster.schedulers[1..] {
        scheduler.kill();
    }
}

/// The member that is left makes a new group. One host does not run, so that its recovery lasts.
fn make_a_new_group(world: &mut World) {
    world.cluster.agent("h2").kill();
    world.recover();
}

fn end_the_recovery(world: &mut World) {
    eventually("a recovery that waits for h2", || {
        let status = world.recovery()?;
        let waits = status["awaited"].to_string().contains("h2");
        waits.then_some(()).ok_or_else(|| format!("{status:#}"))
    });
    world.start_agent("h2");
}

impl Case {
    /// Returns whether it is among these.
    fn is_among(&self, firing: &[Labels], labels: &[(&str, String)]) -> bool {
        firing.iter().any(|fired| {
            let is = |(name, value): &(&str, String)| fired.get(*name) == Some(value);
            fired
                .get("alertname")
                .is_some_and(|name| name == self.alert)
                && labels.iter().all(is)
        })
    }
}

impl Phase {
    fn play(&self, world: &mut World) {
        let begun = std::time::Instant::now();
        let after = |what: &str| {
            let alerts: Vec<_> = self.cases.iter().map(|case| case.alert).collect();
            println!("{:5.1} s: {alerts:?} {what}", begun.elapsed().as_secs_f64());
        };
        (self.cause)(world);
        after("caused");
        let cases = self.cases.iter().map(|case| (case, (case.labels)(world)));
        let cases: Vec<_> = cases.collect();
        // Not all of them fire at the same moment.
        let mut fired = BTreeSet::new();
        eventually("every alert to fire", || {
            let firing = world.prometheus.firing()?;
            let now = cases
                .iter()
                .filter(|(case, labels)| case.is_among(&firing, labels));
            fired.extend(now.map(|(case, _)| case.alert));
            let missing = cases.iter().map(|(case, labels)| (case.alert, labels));
            let missing: Vec<_> = missing
                .filter(|(alert, _)| !fired.contains(alert))
                .collect();
            let is_complete = missing.is_empty();
            is_complete
                .then_some(())
                .ok_or_else(|| format!("{missing:?} do not fire; firing are {firing:#?}"))
        });
        after("firing");
        (self.remedy)(world);
        after("remedied");
        eventually("every alert to clear", || {
            let firing = world.prometheus.firing()?;
            let mut left = cases
                .iter()
                .filter(|(case, labels)| case.is_among(&firing, labels));
            match left.next() {
                None => Ok(()),
                Some((case, labels)) => Err(format!("{} {labels:?} is firing", case.alert)),
            }
        });
        after("cleared");
    }
}

/// Goal and method: see the top of this file. It mounts, so that it runs in a mount namespace of its own:
/// machines that other tests start copy the mounts that they see.
pub(crate) fn every_alert_fires_for_its_cause_and_clears() {
    let program = std::env::current_exe().expect("this program");
    let output = Command::new("unshare")
        .args(["--mount", "--propagation", "private", "--"])
        .arg(program)
        .env(ROLE, CAUSED)
        .output()
        .expect("unshare starts");
    let text = String::from_utf8_lossy(&output.stdout);
    print!("{text}");
    eprint!("{}", String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{}", output.status);
    assert!(text.lines().any(|line| line == FINISHED));
}

/// Plays all phases.
pub(crate) fn play() {
    let rules = root().join("deploy/prometheus/berth.rules.yml");
    let rules = fs::read_to_string(rules).expect("the rules");
    check_completeness(&rules);
    let mut world = World::start(&rules);
    world.cluster.pinned_flavor("three", 3);
    let persistent = [
        "--vcpus",
        "1",
        "--memory-mib",
        "512",
        "--spec",
        "hw:pmem=SMALL",
    ];
    let create = ["flavor", "create", "persistent"];
    world.cluster.run(&[&create[..], &persistent].concat());
    eventually("all programs to be scraped", || {
        let up = world.prometheus.value("count(up == 1)");
        let up = up.map_err(|why| format!("{why}\n{}", world.prometheus.log()))?;
        (up == "7").then_some(()).ok_or(up)
    });
    eventually("rules that were evaluated, and no alert", || {
        let past = format!("count(up offset {})", shortened::PAST);
        let _ = world.prometheus.value(&past)?;
        let firing = world.prometheus.firing()?;
        firing
            .is_empty()
            .then_some(())
            .ok_or(format!("{firing:#?}"))
    });
    for (number, phase) in PHASES.iter().enumerate() {
        phase.play(&mut world);
        // There is something of everything, and no program is missing.
        if number == 0 {
            dashboards::answered_by(&world.prometheus);
        }
    }
}

/// Asserts that each alert of the file is in one phase or in the list of those that are not caused, and
/// that the document has this list.
fn check_completeness(rules: &str) {
    let caused = PHASES.iter().flat_map(|phase| phase.cases);
    let caused: Vec<&str> = caused.map(|case| case.alert).collect();
    let mut all: Vec<&str> = caused.iter().chain(&NOT_CAUSED).copied().collect();
    all.sort_unstable();
    let mut expected = shortened::names(rules);
    expected.sort_unstable();
    assert_eq!(all, expected, "alerts with a case, and those of the file");
    let document = root().join("docs/alerts.md");
    let document = fs::read_to_string(document).expect("the document");
    let listed = document
        .lines()
        .filter_map(|line| line.strip_prefix("* `")?.split_once("`: "))
        .map(|(alert, _)| alert);
    let listed: Vec<&str> = listed.filter(|alert| alert.starts_with("Berth")).collect();
    assert_eq!(listed, NOT_CAUSED, "what the document says is not caused");
}
