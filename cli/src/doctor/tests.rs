//! Every fault that a check knows, alone, beside a cluster in which nothing is wrong.

use std::time::Duration;

use berth_domain::host_check::CheckOutcome;
use berth_domain::refusal::{Code, Refusal};
use berth_domain::version::ServiceVersion;
use berth_proto::cluster::v1::{
    GetClusterStatusResponse, Member, Recovery, ScheduledBackups, member,
};
use berth_proto::host::v1::host::Liveness;
use berth_proto::host::v1::{Host, UnknownDomain};
use berth_proto::scheduler::v1::Vm;
use berth_tls::{Identity, Role};

use super::cluster::{hosts, vms};
use super::finding::Finding;
use super::own::certificate;
use super::schedulers::{Answer, Own, leading, together};
use crate::output::some;

/// A cluster of three, as its leader states it.
fn leader() -> GetClusterStatusResponse {
    let version = ServiceVersion::CURRENT.0;
    let members = (1..=3).map(|id| Member {
        id,
        address: format!("m{id}:7100"),
        role: member::Role::Voter.into(),
        leader: id == 1,
        matched_index: 100,
        recently_active: true,
        service_version: version,
        ..Member::default()
    });
    GetClusterStatusResponse {
        cluster_id: "c".to_owned(),
        member_id: 1,
        leader_id: 1,
        term: 4,
        commit_index: 100,
        applied_index: 100,
        state_hash: "00".to_owned(),
        members: members.collect(),
        backups: Some(ScheduledBackups::default()),
        cluster_version: version,
        service_version: version,
        failures_tolerated: Some(1),
        ..GetClusterStatusResponse::default()
    }
}

/// What each of the three answers.
fn answers() -> Vec<Answer> {
    let answer = |id: u64| Answer {
        address: format!("m{id}:7100"),
        outcome: Ok(Own {
            status: GetClusterStatusResponse {
                member_id: id,
                failures_tolerated: None,
                ..leader()
            },
            ahead_s: Some(0),
            took: Duration::from_millis(2),
        }),
    };
    (1..=3).map(answer).collect()
}

fn own(answer: &mut Answer) -> &mut Own {
    answer.outcome.as_mut().expect("it answers")
}

/// Returns the findings that are not OK, as `check OUTCOME message`.
fn wrong(findings: &[Finding]) -> Vec<String> {
    let wrong = findings.iter().filter(|f| f.outcome != CheckOutcome::Ok);
    let wrong = wrong.map(|f| format!("{} {} {}", f.check, f.outcome, f.message));
    wrong.collect()
}

/// A change of what the three and their leader state.
type Change = fn(&mut Vec<Answer>, &mut GetClusterStatusResponse);

#[test]
fn a_cluster_without_a_fault_has_no_finding() {
    let findings = together(&answers(), Some(&leader()));
    assert_eq!(wrong(&findings), Vec::<String>::new());
    let checks: Vec<_> = findings.iter().map(|f| f.check).collect();
    let all = [
        "clock", "cluster", "leader", "members", "quorum", "version", "backup",
    ];
    assert_eq!(checks, all);
}

#[test]
fn each_fault_of_schedulers_is_found_alone() {
    let cases: [(Change, &str); 18] = [
        (
            |answers, _| own(&mut answers[1]).ahead_s = Some(9),
            "clock WARNING compared with this machine's, that of m2:7100 is 9 s ahead",
        ),
        (
            |answers, _| own(&mut answers[1]).ahead_s = Some(-3),
            "clock WARNING compared with this machine's, that of m2:7100 is 3 s behind",
        ),
        (
            |answers, _| answers.iter_mut().for_each(|a| own(a).ahead_s = None),
            "clock UNKNOWN no scheduler states its time",
        ),
        (
            |answers, _| own(&mut answers[2]).status.cluster_id = "d".to_owned(),
            "cluster FAILED the schedulers are of several clusters: m1:7100, m2:7100 of c; m3:7100 of d",
        ),
        (
            |answers, _| {
                let again = own(&mut answers[0]).clone();
                answers.push(Answer {
                    address: "m1.example:7100".to_owned(),
                    outcome: Ok(again),
                });
            },
            "addresses WARNING m1:7100, m1.example:7100 are all of member 1",
        ),
        (
            |_, leader| leader.members[2].recently_active = false,
            "members FAILED the leader has not heard lately from 3 (m3:7100)",
        ),
        (
            |_, leader| {
                leader.commit_index = 20_000;
                leader.members[1].matched_index = 20_000;
            },
            "members WARNING 3 (m3:7100) is 19900 entries behind",
        ),
        (
            |_, leader| leader.failures_tolerated = Some(0),
            "quorum WARNING the failure of one more scheduler stops the cluster",
        ),
        (
            |_, leader| leader.failures_tolerated = None,
            "quorum UNKNOWN the leader does not know it yet",
        ),
        (
            |answers, _| drop(answers.pop()),
            "addresses WARNING the cluster has members that the command is not given: m3:7100",
        ),
        (
            |_, leader| leader.members[1].service_version -= 1,
            "version WARNING members run several versions, the newest is 4",
        ),
        (
            |_, leader| leader.cluster_version -= 1,
            "version WARNING the cluster version is 3, and its members support 4",
        ),
        (
            |_, leader| {
                leader.cluster_version += 1;
                leader
                    .members
                    .iter_mut()
                    .for_each(|m| m.service_version += 1);
            },
            "version WARNING this command supports 4, and the cluster version is 5",
        ),
        (
            |answers, _| own(&mut answers[1]).status.state_hash = "01".to_owned(),
            "state FAILED members 1, 2 have different states at index 100",
        ),
        (
            |answers, _| {
                answers
                    .iter_mut()
                    .for_each(|a| own(a).status.backups = None)
            },
            "backup WARNING no scheduler that answers makes backups by itself",
        ),
        (
            |answers, _| {
                let backups = ScheduledBackups {
                    failure: "the disk is full".to_owned(),
                    ..ScheduledBackups::default()
                };
                own(&mut answers[1]).status.backups = Some(backups);
            },
            "backup FAILED member 2: the disk is full",
        ),
        (
            |answers, _| own(&mut answers[1]).status.recovery = Some(Recovery::default()),
            "recovery WARNING the cluster recovers: hosts that have not reported yet get no new guest",
        ),
        (
            |answers, leader| {
                answers.truncate(1);
                leader.members.truncate(1);
                leader.failures_tolerated = Some(0);
            },
            "quorum WARNING the failure of a scheduler stops the cluster: 1 member votes",
        ),
    ];
    for (change, expected) in cases {
        let (mut answers, mut leader) = (answers(), leader());
        change(&mut answers, &mut leader);
        let findings = together(&answers, Some(&leader));
        assert_eq!(wrong(&findings), [expected]);
        let has_hint = |f: &Finding| f.hint.is_some() || f.outcome == CheckOutcome::Unknown;
        let mut all = findings.iter().filter(|f| f.outcome != CheckOutcome::Ok);
        assert!(all.all(has_hint), "{expected}");
    }
}

/// Members with the same state at different indexes, or of another cluster, are none that differ.
#[test]
fn only_states_of_one_index_are_compared() {
    let mut answers = answers();
    let status = &mut own(&mut answers[1]).status;
    status.state_hash = "01".to_owned();
    status.applied_index = 99;
    assert_eq!(
        wrong(&together(&answers, Some(&leader()))),
        Vec::<String>::new()
    );
}

#[test]
fn without_a_leader_what_it_knows_is_not_judged() {
    let mut answers = answers();
    for answer in &mut answers {
        own(answer).status.leader_id = 0;
    }
    let refusal = Refusal::new(Code::Unavailable, "UNREACHABLE", "it is silent");
    answers[2].outcome = Err(refusal);
    let findings = together(&answers, None);
    let expected = "leader FAILED none answers; 2 members of 3 that vote answer this command";
    assert_eq!(wrong(&findings), [expected]);
    let checks: Vec<_> = findings.iter().map(|f| f.check).collect();
    assert_eq!(checks, ["clock", "cluster", "leader", "backup"]);
}

/// Goal: two programs that have joined no cluster yet are neither leaders nor one and the same. Method: they answer
/// before the members.
#[test]
fn what_has_not_joined_is_no_leader() {
    let mut answers = answers();
    for address in ["m4:7100", "m5:7100"] {
        let own = Own {
            status: GetClusterStatusResponse::default(),
            ahead_s: Some(0),
            took: Duration::ZERO,
        };
        let address = address.to_owned();
        answers.insert(
            0,
            Answer {
                address,
                outcome: Ok(own),
            },
        );
    }
    assert_eq!(leading(&answers).map(|own| own.status.member_id), Some(1));
    assert_eq!(
        wrong(&together(&answers, Some(&leader()))),
        Vec::<String>::new()
    );
    answers.truncate(2);
    assert!(leading(&answers).is_none());
}

#[test]
fn each_fault_of_hosts_is_found() {
    let host = |name: &str| Host {
        name: format!("hosts/{name}"),
        liveness: Liveness::Up.into(),
        ..Host::default()
    };
    let found = |hosts_of: &[Host], knows| wrong(&hosts(hosts_of, knows));
    assert_eq!(found(&[host("a"), host("b")], true), Vec::<String>::new());
    assert_eq!(found(&[], true), ["hosts WARNING none has registered"]);
    let down = Host {
        liveness: Liveness::Down.into(),
        ..host("b")
    };
    assert_eq!(
        found(&[host("a"), down.clone()], true),
        ["hosts FAILED no report from b"]
    );
    let unknown = "hosts UNKNOWN 2 hosts; without a leader it is not known which are up";
    assert_eq!(found(&[host("a"), down], false), [unknown]);
    let refused = Host {
        shape_refused: "x".to_owned(),
        ..host("b")
    };
    let expected = "hosts FAILED VMs do not fit the shape that these hosts report: b";
    assert_eq!(found(&[refused], true), [expected]);
    let unreported = Host {
        unreported: true,
        ..host("b")
    };
    let expected = "hosts WARNING not heard of since the cluster recovered: b";
    assert_eq!(found(&[unreported], true), [expected]);
    let with_unknown = Host {
        unknown_domains: vec![UnknownDomain {
            made_by_berth: true,
            ..UnknownDomain::default()
        }],
        ..host("b")
    };
    let expected = "hosts WARNING guests that no claim is for run on b";
    assert_eq!(found(&[with_unknown], true), [expected]);
    let cordoned = Host {
        cordoned: true,
        ..host("b")
    };
    let all = hosts(&[host("a"), cordoned], true);
    assert_eq!(all[0].message, "2 of 2 UP, 1 cordoned");
}

#[test]
fn vms_with_a_fault_are_named() {
    assert_eq!(vms(&[]).outcome, CheckOutcome::Ok);
    let failed: Vec<Vm> = (0..10)
        .map(|number| Vm {
            name: format!("vms/v{number}"),
            ..Vm::default()
        })
        .collect();
    let finding = vms(&failed);
    assert_eq!(
        wrong(&[finding]),
        [
            "vms WARNING 10 VMs in ERROR or with a faulty guest: v0, v1, v2, v3, v4, v5, v6, v7 and 2 more"
        ]
    );
    assert_eq!(some(&["a".to_owned()]), "a");
}

#[test]
fn a_certificate_is_judged_by_its_role_and_its_end() {
    const DAY: i64 = 24 * 60 * 60;
    let of = |role, days: i64| Identity {
        role,
        name: "ann".to_owned(),
        dns: Vec::new(),
        ips: Vec::new(),
        not_before: 0,
        not_after: days * DAY,
        fingerprint: String::new(),
    };
    let judged = |identity: Option<&Identity>, address: &str| {
        let finding = certificate(identity, &[address.to_owned()], 0);
        format!("{} {}", finding.outcome, finding.message)
    };
    for (role, days, expected) in [
        (Role::Operator, 14, "OK operator:ann, valid for 14 days"),
        (Role::Reader, 365, "OK reader:ann, valid for 365 days"),
        (
            Role::Operator,
            13,
            "WARNING operator:ann, valid for 13 days",
        ),
        (
            Role::Agent,
            365,
            "WARNING agent:ann: it is that of a program, which may call little",
        ),
    ] {
        assert_eq!(judged(Some(&of(role, days)), "m1"), expected);
    }
    let within = "OK none: connections are within this machine";
    assert_eq!(judged(None, "127.0.0.1:7100"), within);
    let open =
        "WARNING none: connections to other machines are neither encrypted nor authenticated";
    assert_eq!(judged(None, "m1:7100"), open);
}
