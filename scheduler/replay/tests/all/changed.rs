//! Goal: what a replay says of another policy, flavor or fleet is what a scheduler does that really has
//! it. Method: a second leader takes the same steps in the same order, those that were refused when
//! they were recorded left out, with the change made.

use std::collections::{BTreeMap, BTreeSet};

use berth_codec::admit;
use berth_domain::aggregate::{Aggregate, AggregateChange};
use berth_domain::claim::{ErasureProgress, ErasureReport};
use berth_domain::id::{AggregateId, Generation, ProviderId, TimeMs};
use berth_domain::name::{AggregateName, FlavorName, PmemName};
use berth_domain::pmem::{Label, PmemNamespace};
use berth_domain::policy::Setting;
use berth_domain::topology::CellId;
use berth_replay::{Changes, FlavorChange, Report, WhatIf};
use berth_state::command::Command;
use berth_testkit::state::{flavor, host_name, report, topology, uuid};

use crate::common::{Leader, expect_same, replay_files};
use crate::script::{Request, Step, leader, pack, small_host, steps};

const HOSTS: u32 = 6;

/// What a leader did.
struct Recorded {
    /// The steps that were not refused.
    kept: Vec<Step>,
    /// Boots for which there was no other host: no request of the history says that one is tried.
    failed: BTreeSet<u64>,
}

/// Returns the recorded history, its steps that were not refused, and what a replay says.
fn recorded(seed: u64, changes: &Changes) -> (Recorded, Report, Vec<String>) {
    let mut leader = leader(HOSTS);
    let all = steps(400, seed, HOSTS, false);
    let refused = leader.take(&all);
    let refused: BTreeSet<u64> = refused.into_iter().map(|(number, _)| number).collect();
    let backups = leader.backups();
    let (report, placed) = replay_files(&backups, Some(changes.clone())).expect("they verify");
    assert_eq!(report.check.differences, 0, "{seed}");
    let kept = all.into_iter();
    let kept = kept.filter(|step| !refused.contains(&step.number));
    let recorded = Recorded {
        kept: kept.collect(),
        failed: leader.failed.into_keys().collect(),
    };
    (recorded, report, placed)
}

/// Takes the steps with settings that hold throughout; returns the reasons of refusals.
fn really(leader: &mut Leader, recorded: Recorded, settings: &[Setting]) -> BTreeMap<String, u64> {
    let mut reasons = BTreeMap::new();
    leader.set(settings.to_vec()).expect("the policy is set");
    leader.failing = recorded.failed;
    for step in &recorded.kept {
        for (_, reason) in leader.take(std::slice::from_ref(step)) {
            *reasons.entry(reason).or_default() += 1;
        }
        if let Request::Set(_) = step.request {
            leader.set(settings.to_vec()).expect("the policy is set");
        }
    }
    for reason in leader.failed.values() {
        *reasons.entry(reason.clone()).or_default() += 1;
    }
    reasons
}

/// Compares what a replay says with what a leader did.
fn compare(
    seed: u64,
    leader: &Leader,
    reasons: &BTreeMap<String, u64>,
    said: &(Report, Vec<String>),
) {
    let (report, placed) = said;
    expect_same(placed, &leader.placements());
    let what_if = report.what_if.as_ref().expect("it was requested");
    for (reason, refused) in &what_if.refused {
        let really = reasons.get(reason).copied().unwrap_or_default();
        assert_eq!(refused.count, really, "{seed}: {reason}");
    }
    let no_host = reasons.get("NO_VALID_HOST").copied().unwrap_or_default();
    let said = what_if.refused.get("NO_VALID_HOST");
    assert_eq!(said.map_or(0, |refused| refused.count), no_host, "{seed}");
}

#[test]
fn another_policy_leads_to_what_really_happens() {
    let mut refused = 0;
    for seed in 11..=14 {
        let settings = pack();
        let changes = Changes {
            settings: settings.clone(),
            ..Changes::default()
        };
        let (kept, report, placed) = recorded(seed, &changes);
        let mut second = leader(HOSTS);
        let reasons = really(&mut second, kept, &settings);
        let what_if = report.what_if.as_ref().expect("it was requested");
        assert!(what_if.other_host > 20, "{seed}: {what_if:#?}");
        refused += what_if.refused_in_all();
        compare(seed, &second, &reasons, &(report, placed));
    }
    println!("{refused} refused");
}

/// Goal: more VMs of a larger flavor are refused, by the same reasons as really.
#[test]
fn another_flavor_leads_to_what_really_happens() {
    let name = FlavorName::new("pinned").expect("a good name");
    let change = FlavorChange {
        vcpus: Some(4),
        ..FlavorChange::default()
    };
    let changes = Changes {
        flavors: [(name.clone(), change)].into(),
        ..Changes::default()
    };
    let (kept, report, placed) = recorded(21, &changes);
    let mut second = leader(HOSTS);
    second.plain(Command::DeleteFlavor { flavor: name });
    second.flavor(flavor("pinned", 4, 512, &[("hw:cpu_policy", "dedicated")]));
    let reasons = really(&mut second, kept, &[]);
    let what_if = report.what_if.as_ref().expect("it was requested");
    assert!(what_if.refused_in_all() > 0, "{what_if:#?}");
    let example = what_if.refused["NO_VALID_HOST"].examples.first();
    let example = example.expect("one is described");
    assert!(!example.refusal.hosts.is_empty(), "{example:#?}");
    compare(21, &second, &reasons, &(report, placed));
}

/// Goal: fewer hosts refuse more and more hosts refuse nothing, as a leader with these hosts does.
#[test]
fn another_fleet_leads_to_what_really_happens() {
    let changes = Changes {
        without: [host_name("h6"), host_name("h5")].into(),
        ..Changes::default()
    };
    let (kept, report, placed) = recorded(31, &changes);
    let what_if = report.what_if.as_ref().expect("it was requested");
    assert!(what_if.refused_in_all() > 0, "{what_if:#?}");
    assert_eq!((what_if.usage.hosts, report.recorded.hosts), (4, 6));
    let mut second = leader(HOSTS);
    for host in &changes.without {
        second.plain(Command::SetLiveness {
            host: host.clone(),
            liveness: berth_domain::host::Liveness::Down,
        });
        second.plain(Command::RemoveHost { host: host.clone() });
    }
    let reasons = really(&mut second, kept, &[]);
    compare(31, &second, &reasons, &(report, placed));

    let changes = Changes {
        like: [(host_name("h1"), 6)].into(),
        ..Changes::default()
    };
    let (kept, report, placed) = recorded(31, &changes);
    let mut second = leader(HOSTS);
    for number in 1..=6 {
        second.plain(Command::RegisterHost {
            host: host_name(&format!("h1-like-{number}")),
            provider: ProviderId(uuid(2, 100 + number)),
            report: small_host(),
        });
    }
    let reasons = really(&mut second, kept, &[]);
    let what_if = report.what_if.as_ref().expect("it was requested");
    assert_eq!(what_if.usage.hosts, 12);
    assert!(what_if.other_host > 0);
    compare(31, &second, &reasons, &(report, placed));
}

/// Goal: what is not there is refused with its name.
#[test]
fn changes_of_what_is_not_there_are_refused() {
    let leader = leader(2);
    let refused = |changes: Changes| {
        let what_if = WhatIf::new(leader.state(), changes, admit, 5);
        match what_if.and_then(|what_if| what_if.finish(leader.state())) {
            Ok(report) => panic!("{report:#?}"),
            Err(refusal) => (refusal.reason, refusal.message),
        }
    };
    let (reason, message) = refused(Changes {
        without: [host_name("h9")].into(),
        ..Changes::default()
    });
    assert!(
        reason == "HOST_NOT_FOUND" && message.contains("h9"),
        "{message}"
    );
    let (reason, message) = refused(Changes {
        like: [(host_name("h9"), 1)].into(),
        ..Changes::default()
    });
    assert!(
        reason == "HOST_NOT_FOUND" && message.contains("h9"),
        "{message}"
    );
    let nothing = FlavorName::new("nothing").expect("a good name");
    let (reason, message) = refused(Changes {
        flavors: [(nothing, FlavorChange::default())].into(),
        ..Changes::default()
    });
    assert!(
        reason == "FLAVOR_NOT_FOUND" && message.contains("nothing"),
        "{message}"
    );
    let tiny = FlavorName::new("tiny").expect("a good name");
    let change = FlavorChange {
        vcpus: Some(0),
        ..FlavorChange::default()
    };
    let (reason, _) = refused(Changes {
        flavors: [(tiny, change)].into(),
        ..Changes::default()
    });
    assert_eq!(reason, "INVALID_FLAVOR");
}

/// Goal: a host with VMs in the full backup is cordoned: they stay until they leave, and no other VM
/// comes.
#[test]
fn a_used_host_is_left_out_as_far_as_possible() {
    let mut leader = leader(3);
    let tiny = FlavorName::new("tiny").expect("a good name");
    for number in 1..=6 {
        let operation = leader.schedule(number, &tiny, None).expect("it fits");
        leader.spawn(operation);
    }
    leader.full_backup();
    for number in 7..=12 {
        let operation = leader.schedule(number, &tiny, None).expect("it fits");
        leader.spawn(operation);
    }
    let changes = Changes {
        without: [host_name("h1")].into(),
        ..Changes::default()
    };
    let on_h1 = |placed: &[String]| placed.iter().filter(|vm| vm.contains(": h1 ")).count();
    assert_eq!(on_h1(&leader.placements()), 4);
    let (report, placed) = replay_files(&leader.backups(), Some(changes)).expect("they verify");
    assert_eq!(on_h1(&placed), 2, "{placed:#?}");
    let what_if = report.what_if.expect("it was requested");
    assert_eq!(what_if.cordoned, [host_name("h1")].into());
    assert!(what_if.other_host >= 2, "{what_if:#?}");
    assert_eq!(what_if.refused_in_all(), 0);
}

/// Goal: persistent memory that a VM had on another host than recorded is free again when the recorded one
/// is erased.
#[test]
fn persistent_memory_is_free_again() {
    let namespace = PmemNamespace {
        name: PmemName::new("ns0").expect("a good name"),
        class: Label::parse("SMALL").expect("a good label").class(),
        size_bytes: 1 << 30,
        align_bytes: 2 << 20,
        path: "/dev/ns0".to_owned(),
        cell: Some(CellId(0)),
        region: "region0".to_owned(),
        trouble: String::new(),
    };
    let shape = topology(2, 6, 2).with_pmem(vec![namespace]);
    let machine = report(shape.expect("a good host"));
    let mut leader = Leader::new(2, &machine);
    leader.flavor(flavor("pmem", 1, 256, &[("hw:pmem", "SMALL")]));
    leader.full_backup();
    let pmem = FlavorName::new("pmem").expect("a good name");
    let operation = leader.schedule(1, &pmem, None).expect("it fits");
    leader.spawn(operation);
    let mut claims = leader.state().claims().values();
    let claim = claims.next().cloned().expect("it has one");
    leader.delete(2, &claim.vm).expect("it is deleted");
    leader.plain(Command::NoteErasures {
        host: claim.host.clone(),
        incarnation: machine.incarnation,
        reports: vec![ErasureReport {
            claim: claim.id,
            namespace: claim.assignment.pmem[0].name.clone(),
            progress: ErasureProgress::Erased,
        }],
    });
    let operation = leader.schedule(3, &pmem, None).expect("it fits");
    leader.spawn(operation);
    let changes = Changes {
        without: [claim.host.clone()].into(),
        ..Changes::default()
    };
    let (report, placed) = replay_files(&leader.backups(), Some(changes)).expect("they verify");
    let what_if = report.what_if.expect("it was requested");
    assert_eq!(what_if.refused_in_all(), 0, "{what_if:#?}");
    assert!(what_if.not_followed.is_empty(), "{what_if:#?}");
    assert!(what_if.other_host > 0 && placed.len() == 1, "{what_if:#?}");
}

/// Goal: a host that is left out takes no other host out of an aggregate. Method: each command about an
/// aggregate names both; none is refused.
#[test]
fn other_hosts_stay_in_the_aggregates_of_a_host_that_is_left_out() {
    let mut leader = leader(3);
    leader.full_backup();
    let rack = AggregateName::new("rack").expect("a good name");
    leader.plain(Command::CreateAggregate(Aggregate {
        name: rack.clone(),
        id: AggregateId(uuid(50, 1)),
        hosts: [host_name("h1"), host_name("h2")].into(),
        metadata: BTreeMap::new(),
        generation: Generation(0),
        created_at: TimeMs(0),
    }));
    leader.plain(Command::UpdateAggregate {
        aggregate: rack.clone(),
        change: AggregateChange {
            remove_hosts: [host_name("h1"), host_name("h2")].into(),
            ..AggregateChange::default()
        },
    });
    leader.plain(Command::UpdateAggregate {
        aggregate: rack.clone(),
        change: AggregateChange {
            add_hosts: [host_name("h1"), host_name("h2")].into(),
            set: [("kind".to_owned(), "fast".to_owned())].into(),
            ..AggregateChange::default()
        },
    });
    let changes = Changes {
        without: [host_name("h1")].into(),
        ..Changes::default()
    };
    let (report, _) = replay_files(&leader.backups(), Some(changes)).expect("they verify");
    let what_if = report.what_if.expect("it was requested");
    assert!(what_if.not_followed.is_empty(), "{what_if:#?}");
}
