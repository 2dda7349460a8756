//! Goal: the same policy leads to every recorded decision, and what was altered is noticed. Method:
//! histories with every kind of decision, in backups; a copy of which one command is altered.

use berth_decide::{Action, Preferred, ScheduleMove};
use berth_domain::id::{ClaimId, MigrationId, OperationId};
use berth_domain::name::{FlavorName, HostName};
use berth_domain::policy::Setting;
use berth_replay::Changes;
use berth_replay::decision::Kind;
use berth_replay::report::{Cause, Replayed};
use berth_state::command::Command;
use berth_testkit::state::{host_name, uuid, vm_name};

use crate::common::{Leader, expect_same, replay, replay_files};
use crate::script::{leader, steps};

fn recorded(seed: u64) -> (Leader, Vec<(u64, String)>) {
    let mut leader = leader(6);
    let refused = leader.take(&steps(600, seed, 6, true));
    (leader, refused)
}

/// Goal: no decision differs, of any kind; with a state of its own and no change neither.
#[test]
fn recorded_decisions_are_made_again() {
    let mut kinds = std::collections::BTreeMap::<Kind, u64>::new();
    for seed in 1..=4 {
        let (leader, refused) = recorded(seed);
        assert!(refused.len() > 20, "{seed}: some are refused: {refused:?}");
        let backups = leader.backups();
        let unchanged = Changes::default();
        let (report, placed) = replay_files(&backups, Some(unchanged)).expect("they verify");
        let check = &report.check;
        assert_eq!(check.differences, 0, "{seed}: {:#?}", check.examples);
        assert!(
            check.decisions > 200 && check.named > 0,
            "{seed}: {check:#?}"
        );
        for (kind, count) in &check.by_kind {
            *kinds.entry(*kind).or_default() += count;
        }
        let what_if = report.what_if.expect("it was requested");
        let seen = format!("{seed}: {what_if:#?}");
        assert_eq!(what_if.other_host + what_if.refused_in_all(), 0, "{seen}");
        assert_eq!(what_if.same_host, check.decisions + check.named, "{seen}");
        assert!(what_if.not_followed.is_empty(), "{seen}");
        assert!(what_if.left_out.is_empty(), "{seen}");
        assert_eq!((what_if.followers, what_if.vms_elsewhere), (0, 0), "{seen}");
        expect_same(&placed, &leader.placements());
        assert_eq!(what_if.usage, report.recorded, "{seed}");
    }
    println!("{kinds:?}");
    let all = [
        Kind::Boot,
        Kind::LiveMigration,
        Kind::ColdMigration,
        Kind::Resize,
        Kind::Evacuation,
        Kind::Unshelve,
        Kind::NextHost,
    ];
    for kind in all {
        assert!(kinds.contains_key(&kind), "{kind:?} of {kinds:?}");
    }
}

/// Goal: a command that names another host than was chosen is a difference without a known cause, and
/// one that takes other CPUs of the same host is as well.
#[test]
fn an_altered_command_is_a_difference() {
    let mut leader = leader(6);
    let _ = leader.take(&steps(40, 1, 6, false));
    assert_eq!(replay(&leader, &leader.entries).check.differences, 0);
    let boots = leader.entries.iter().enumerate();
    let mut boots = boots.filter(|(_, (_, envelope))| {
        matches!(
            &envelope.command,
            Command::BeginBoot { spec, requested_host: None, .. } if spec.flavor.name.as_str() == "pinned"
        )
    });
    let (at, _) = boots.next_back().expect("a VM was booted");

    let mut entries = leader.entries.clone();
    let Command::BeginBoot { claim, vm, .. } = &mut entries[at].1.command else {
        panic!("a boot");
    };
    let before: HostName = claim.host.clone();
    let other = if before.as_str() == "h1" { "h2" } else { "h1" };
    claim.host = host_name(other);
    let (vm, other) = (vm.clone(), claim.host.clone());
    let check = replay(&leader, &entries).check;
    let first = &check.examples[0];
    assert_eq!((first.index, &first.vm), (entries[at].0, &vm));
    assert_eq!(first.recorded, other);
    assert_eq!(first.replayed, Replayed::OtherHost(before));
    assert_eq!(first.cause, Cause::Unexplained);
    assert!(check.unexplained() > 0);

    let mut entries = leader.entries.clone();
    let Command::BeginBoot { claim, .. } = &mut entries[at].1.command else {
        panic!("a boot");
    };
    claim.resources.clear();
    let check = replay(&leader, &entries).check;
    assert_eq!(check.examples[0].replayed, Replayed::OtherClaim);
}

/// Goal: a leader that claimed on another host than it chose is noticed in backups that verify.
#[test]
fn a_misplaced_vm_is_a_difference_in_sound_backups() {
    let mut leader = leader(3);
    let tiny = FlavorName::new("tiny").expect("a good name");
    for number in 1..=6 {
        leader.misplaced = (number == 5).then(|| host_name("h1"));
        let operation = leader.schedule(number, &tiny, None).expect("it fits");
        leader.spawn(operation);
    }
    let placed = leader.state().vm(&vm_name("vm5"));
    let placed = placed.and_then(|vm| vm.host.clone());
    assert_eq!(placed, Some(host_name("h1")));
    let (report, _) = replay_files(&leader.backups(), None).expect("they verify");
    let check = report.check;
    assert_eq!((check.decisions, check.unexplained()), (6, 1), "{check:#?}");
    let first = &check.examples[0];
    assert_eq!(
        (&first.vm, &first.recorded),
        (&vm_name("vm5"), &host_name("h1"))
    );
    assert!(
        matches!(first.replayed, Replayed::OtherHost(_)),
        "{first:?}"
    );
}

/// Goal: with admission control, whose cached proofs are not in the log, no decision differs without a
/// known cause.
#[test]
fn admission_control_explains_what_differs() {
    for (seed, value) in [(5, "warn"), (6, "refuse"), (7, "refuse")] {
        let mut leader = leader(6);
        let setting = Setting::parse("failover.admission", value).expect("a good setting");
        leader.set(vec![setting]).expect("the policy is set");
        let refused = leader.take(&steps(400, seed, 6, false));
        let by_admission = refused
            .iter()
            .filter(|(_, reason)| reason.starts_with("FAILOVER"));
        assert_eq!(by_admission.count() > 0, value == "refuse", "{refused:?}");
        let (report, _) = replay_files(&leader.backups(), None).expect("they verify");
        let check = report.check;
        println!(
            "{value}: {} of {} differ",
            check.differences, check.decisions
        );
        assert_eq!(check.unexplained(), 0, "{:#?}", check.examples);
        assert!(check.decisions > 100, "{check:#?}");
    }
}

/// Goal: a destination that a conductor planned, which no command records, is the known cause of a
/// difference.
#[test]
fn a_planned_destination_is_a_known_cause() {
    let mut leader = leader(3);
    let tiny = FlavorName::new("tiny").expect("a good name");
    for (number, host) in [(1, "h1"), (2, "h3")] {
        let host = Some(host_name(host));
        let operation = leader.schedule(number, &tiny, host).expect("it fits");
        leader.spawn(operation);
    }
    leader.fence(&host_name("h1"));
    let preferred = Preferred {
        host: host_name("h3"),
        assignment: None,
    };
    let moved = leader.submit(Action::ScheduleMove(ScheduleMove {
        operation: OperationId(uuid(1, 3)),
        migration: MigrationId(uuid(5, 3)),
        vm: vm_name("vm1"),
        claim: ClaimId(uuid(3, 3)),
        flavor: None,
        host: None,
        preferred: Some(preferred),
        verify: false,
        evacuate: true,
        lease: leader.lease(),
    }));
    let _ = moved.expect("it fits");
    let (report, _) = replay_files(&leader.backups(), None).expect("they verify");
    let check = report.check;
    let causes = [(Cause::UnrecordedPlan, 1)].into();
    assert_eq!(
        (check.differences, &check.by_cause),
        (1, &causes),
        "{check:#?}"
    );
}
