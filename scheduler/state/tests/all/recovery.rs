//! Goal: a state that is older than its hosts comes to hold what they run, whatever was lost, and
//! nothing that the lost commands gave out is taken for its own.
//!
//! Method: a state of the past gets reports of the present, drawn and by hand. `sagas` has each
//! operation, interrupted at each moment.

mod late;
mod left;
mod volumes;

use std::collections::BTreeSet;

use berth_domain::agent::DomainState;
use berth_domain::fence::Method;
use berth_domain::host::Liveness;
use berth_domain::id::{
    ClaimId, ClusterId, Epoch, Generation, Incarnation, OperationId, RequestId, TimeMs,
};
use berth_domain::name::HostName;
use berth_domain::reality::Unknown;
use berth_domain::recovery::{
    Cause, Fate, GENERATION_JUMP, JUMP, ReportedGuest, SETTLED_MAX, SettledVm,
};
use berth_domain::refusal::{Code, Refusal};
use berth_domain::version::ServiceVersion;
use berth_domain::vm::{Metadata, MetadataChange, State as VmState};
use berth_state::apply::RECOVERING;
use berth_state::command::{Command, Envelope, RequestKey};
use berth_state::recovery::{Begin, Conflict, Progress, RecoveryOutcome, Settled};
use berth_state::{Recall, Reply, State};
use berth_testkit::state::draw::{draws, placement_draws, play, power_draws};
use berth_testkit::state::{
    World, by_hand, host_name, pinned, reason, report, request, topology, uuid, vm_name,
};
use proptest::prelude::*;
use uuid::{NoContext, Timestamp, Uuid};

/// A cluster that recovers.
struct Recovering {
    state: State,
}

impl Recovering {
    fn from(state: &State) -> Self {
        let begin = Begin {
            cluster: ClusterId(uuid(9, 9)),
            cause: Cause::Restored,
            at: TimeMs(state.time().0 + 5_000),
            index: state.revision() + 3,
            level: ServiceVersion::CURRENT,
        };
        let state = state.clone().recovered(&begin);
        state.check().expect("a recovering state is sound");
        Self { state }
    }

    fn run(&mut self, command: Command) -> Result<Reply, Refusal> {
        let envelope = Envelope {
            at: self.state.time(),
            principal: "unverified:test".to_owned(),
            request: None,
            audit: None,
            command,
        };
        let applied = self.state.apply(self.state.revision() + 1, &envelope);
        self.state.check().expect("each command keeps it sound");
        applied.outcome
    }

    fn report(&mut self, host: &HostName, guests: Vec<ReportedGuest>) -> Result<Reply, Refusal> {
        let basis = self.state.revision();
        self.report_at(host, basis, guests)
    }

    fn report_at(
        &mut self,
        host: &HostName,
        basis: u64,
        guests: Vec<ReportedGuest>,
    ) -> Result<Reply, Refusal> {
        let incarnation = self.state.hosts()[host].host.report.incarnation;
        self.run(Command::ReportGuests {
            host: host.clone(),
            incarnation,
            basis,
            guests,
        })
    }

    /// Has every host report, twice, what it runs at present.
    fn report_all(&mut self, present: &State) {
        let hosts: Vec<_> = self.state.hosts().keys().cloned().collect();
        for _ in 0..2 {
            let basis = self.state.revision();
            for host in &hosts {
                self.report_at(host, basis, guests_of(present, host))
                    .unwrap();
            }
        }
    }

    /// Ends the recovery, and expects what it settled to be kept.
    fn end(&mut self, accept_conflicts: bool) -> Result<Reply, Refusal> {
        let outcome = self.state.recovery_outcome();
        let ended = self.run(Command::EndRecovery { accept_conflicts })?;
        let outcome = outcome.expect("all have reported");
        let kept: Vec<_> = self.state.settled_vms().cloned().collect();
        let recovery = self.state.header().recovery.expect("the recovery");
        assert_eq!(recovery.settled, outcome.count());
        assert_eq!(kept.len(), outcome.settled.len() + outcome.conflicts.len());
        assert!(kept.is_sorted_by_key(|settled| (settled.fate, settled.number)));
        let conflicts = kept.iter().filter(|kept| kept.fate == Fate::Conflict);
        assert_eq!(conflicts.count(), outcome.conflicts.len());
        for settled in outcome.settled_vms() {
            let same = |kept: &&SettledVm| {
                (&kept.vm, kept.fate, &kept.message)
                    == (&settled.vm, settled.fate, &settled.message)
            };
            assert!(kept.iter().any(|kept| same(&kept)), "{settled:?}: {kept:?}");
        }
        Ok(ended)
    }

    fn progress(&self, host: &str) -> Progress {
        self.state.recovery_progress()[&host_name(host)]
    }
}

/// Returns the guests of a host: those of VMs that may run, on the claims that they have.
fn guests_of(state: &State, host: &HostName) -> Vec<ReportedGuest> {
    let claims = state.claims_of_host(host).filter(|claim| claim.is_active());
    let guests = claims.filter_map(|claim| {
        let vm = state.vm(&claim.vm)?;
        let runs = vm.state.may_run() && vm.claim == Some(claim.id);
        runs.then(|| ReportedGuest {
            domain: Unknown {
                uuid: vm.uid.0,
                name: vm.name.to_string(),
                is_ours: true,
                claim: Some(claim.id),
                held: claim.assignment.clone(),
            },
            state: DomainState::Running,
            spec: Some(Box::new(vm.spec.clone())),
        })
    });
    guests.collect()
}

fn conflicts(recovering: &Recovering) -> Vec<Conflict> {
    recovering
        .state
        .recovery_outcome()
        .expect("all have reported")
        .conflicts
}

proptest! {
    #![proptest_config(ProptestConfig { cases: ProptestConfig::default().cases / 4, failure_persistence: None, ..ProptestConfig::default() })]

    /// Any past of a drawn sequence, with the guests of its end: each guest is its VM's, or is named as
    /// a conflict and keeps what it holds.
    #[test]
    fn the_past_comes_to_hold_what_runs(draws in draws(), past in 0..1000_usize) {
        let (world, played) = play(&draws);
        let mut then = World::with_hosts(3).without_checks();
        for (request, now, command) in played.iter().take(played.len() * past / 1000) {
            then.now = *now;
            let _ = then.run_as(request.clone(), command.clone());
        }
        let mut recovering = Recovering::from(&then.state);
        recovering.report_all(&world.state);
        let found = conflicts(&recovering);
        let ended = recovering.end(false);
        prop_assert_eq!(ended.is_ok(), found.is_empty(), "{:?}", found);
        if ended.is_err() {
            prop_assert_eq!(reason(&ended), "RECOVERY_CONFLICTS");
            recovering.end(true).unwrap();
        }
        let state = &recovering.state;
        prop_assert_eq!(state.running_operations().count(), 0);
        for host in state.hosts().keys() {
            for guest in guests_of(&world.state, host) {
                let claim = state.claim(guest.domain.claim.unwrap());
                let is_own = claim.is_some_and(|claim| {
                    let vm = state.vm(&claim.vm).unwrap();
                    vm.uid.0 == guest.domain.uuid && claim.host == *host && claim.is_active()
                        && claim.assignment == guest.domain.held
                });
                let unknown = &state.host(host).unwrap().host.unknown;
                let is_unknown = unknown.contains(&guest.domain);
                prop_assert!(is_own != is_unknown, "{:?}", guest.domain);
                prop_assert!(!is_unknown || !found.is_empty());
            }
        }
    }
}

/// Returns commands of every kind.
fn every_command() -> Vec<Command> {
    use proptest::strategy::ValueTree;
    use proptest::test_runner::{RngAlgorithm, TestRng, TestRunner};
    let rng = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    let mut runner = TestRunner::new_with_rng(ProptestConfig::default(), rng);
    let mut commands = by_hand::commands();
    commands.push(Command::NoteErasures {
        host: host_name("h1"),
        incarnation: Incarnation(uuid(8, 1)),
        reports: Vec::new(),
    });
    for _ in 0..60 {
        for strategy in [
            draws().boxed(),
            power_draws().boxed(),
            placement_draws().boxed(),
        ] {
            let (_, played) = play(&strategy.new_tree(&mut runner).unwrap().current());
            commands.extend(played.into_iter().map(|(_, _, command)| command));
        }
    }
    commands
}

/// Goal: nothing that starts, moves or deletes a guest is carried out. Method: every command.
#[test]
fn commands_wait_for_the_end_of_the_recovery() {
    let mut world = World::with_hosts(3);
    world.boot("a", &pinned(1), "h1");
    let recovering = Recovering::from(&world.state);
    let mut refused = BTreeSet::new();
    for command in every_command() {
        let name = format!("{command:?}");
        let name = name.split([' ', '(']).next().unwrap().to_owned();
        let mut trial = Recovering {
            state: recovering.state.clone(),
        };
        let before = trial.state.vms().clone();
        let outcome = trial.run(command);
        if let Err(refusal) = &outcome
            && refusal.reason == RECOVERING
        {
            refused.insert(name);
            continue;
        }
        assert_eq!(
            before.keys().count(),
            trial.state.vms().keys().count(),
            "{name}"
        );
        assert_eq!(trial.state.running_operations().count(), 0, "{name}");
    }
    let expected = [
        "Advance",
        "BeginBoot",
        "BeginDelete",
        "BeginDrain",
        "BeginMigration",
        "BeginMove",
        "BeginPower",
        "BeginRevertResize",
        "BeginShelve",
        "BeginUnshelve",
        "CancelOperation",
        "ConfirmResize",
        "CreateNetwork",
        "CreateVolume",
        "DeleteImage",
        "DeleteNetwork",
        "DeleteVolume",
        "ForceComplete",
        "MoveDrained",
        "NoteErasures",
        "NoteReality",
        "OpenConsole",
        "RecordDrained",
        "RemoveHost",
        "TakeLease",
        "WriteOffPmem",
    ];
    let refused: Vec<_> = refused.iter().map(String::as_str).collect();
    assert_eq!(refused, expected);
}

#[test]
fn what_the_lost_commands_gave_out_is_behind() {
    let mut world = World::with_hosts(1);
    world.boot("a", &pinned(1), "h1");
    let key = request(1, 1);
    world
        .run_as(
            Some(key.clone()),
            Command::SetCordon {
                host: host_name("h1"),
                cordoned: true,
            },
        )
        .unwrap();
    let before = &world.state;
    let recovering = Recovering::from(before);
    let after = &recovering.state;
    assert_eq!(after.revision(), JUMP);
    assert_eq!(after.header().epoch, Epoch(JUMP));
    assert_eq!(after.header().grant_keys, [None; 2]);
    assert_eq!(after.remembered(), (0, 0));
    assert!(after.header().forgotten >= before.time());
    let leap = |generation: Generation| Generation(generation.0 + GENERATION_JUMP);
    let (h1, a) = (host_name("h1"), vm_name("a"));
    let hosts = [before, after].map(|state| state.hosts()[&h1].host.generation);
    assert_eq!(hosts[1], leap(hosts[0]));
    let vms = [before, after].map(|state| state.vms()[&a].generation);
    assert_eq!(vms[1], leap(vms[0]));
    let recovery = after.header().recovery.unwrap();
    assert!(recovery.has_lost(before.revision() + 1) && !recovery.has_lost(before.revision()));
    // And once more.
    let again = Recovering::from(after);
    assert_eq!(again.state.revision(), 2 * JUMP);
    assert_eq!(again.state.header().recovery.unwrap().number, 2);
}

/// Goal: a repetition of a request from before is not answered, nor carried out; a later one is.
#[test]
fn requests_from_before_are_refused() {
    let recovering = Recovering::from(&World::with_hosts(1).state);
    let began_at = recovering.state.header().recovery.unwrap().began_at;
    let made_at = |at: TimeMs| {
        let seconds = Timestamp::from_unix(NoContext, at.0 / 1_000, 0);
        RequestKey {
            id: RequestId(Uuid::new_v7(seconds)),
            ..request(1, 1)
        }
    };
    let Recall::Answered(Err(refusal)) = recovering.state.recall("me", &made_at(began_at)) else {
        panic!("it is carried out");
    };
    assert_eq!(refusal.reason, "CLUSTER_RESTORED");
    let later = made_at(TimeMs(began_at.0 + 2_000));
    assert_eq!(recovering.state.recall("me", &later), Recall::New);
    // What is not known of an operation of before is not that it was none.
    for (id, expected) in [
        (made_at(began_at).id.0, "CLUSTER_RESTORED"),
        (later.id.0, "OPERATION_NOT_FOUND"),
        (Uuid::nil(), "OPERATION_NOT_FOUND"),
    ] {
        let why = recovering.state.unknown_operation(OperationId(id));
        assert_eq!(
            (why.code, why.reason.as_str()),
            (Code::NotFound, expected),
            "{id}"
        );
    }
    let never = World::with_hosts(1).state;
    let why = never.unknown_operation(OperationId(made_at(began_at).id.0));
    assert_eq!(why.reason, "OPERATION_NOT_FOUND");
}

/// Goal: a report counts only if it was made when every host was quiet: until then a guest may be on
/// its way to a host that has reported.
#[test]
fn reports_from_before_every_host_was_quiet_do_not_count() {
    let mut recovering = Recovering::from(&World::with_hosts(2).state);
    let (h1, h2) = (host_name("h1"), host_name("h2"));
    assert_eq!(recovering.progress("h1"), Progress::Awaited);
    recovering.report(&h1, Vec::new()).unwrap();
    assert_eq!(recovering.progress("h1"), Progress::Quiet);
    let incomplete = recovering.end(true);
    assert_eq!(reason(&incomplete), "RECOVERY_INCOMPLETE");
    let why = incomplete.unwrap_err().message;
    assert!(why.contains("h2 (1 in all)"), "h1 has reported: {why}");
    let early = recovering.state.revision();
    recovering.report(&h2, Vec::new()).unwrap();
    assert_eq!(recovering.progress("h1"), Progress::Quiet);
    recovering.report_at(&h1, early, Vec::new()).unwrap();
    assert_eq!(recovering.progress("h1"), Progress::Quiet);
    recovering.report(&h1, Vec::new()).unwrap();
    assert_eq!(recovering.progress("h1"), Progress::Compared);
    assert_eq!(recovering.progress("h2"), Progress::Quiet);
    let stale = recovering.report_at(&h1, early, Vec::new());
    assert_eq!(reason(&stale), "STALE_COMPARISON");
    // Another run of the agent is not quiet until it has reported.
    let mut next = report(topology(2, 3, 1));
    next.incarnation = Incarnation(uuid(8, 77));
    let provider = recovering.state.hosts()[&h1].host.provider;
    recovering
        .run(Command::RegisterHost {
            host: h1.clone(),
            provider,
            report: next,
        })
        .unwrap();
    assert_eq!(recovering.progress("h1"), Progress::Awaited);
    for _ in 0..2 {
        for host in [&h1, &h2] {
            recovering.report(host, Vec::new()).unwrap();
        }
    }
    recovering.end(false).unwrap();
    assert_eq!(
        reason(&recovering.report(&h1, Vec::new())),
        "NOT_RECOVERING"
    );
    assert_eq!(reason(&recovering.end(false)), "NOT_RECOVERING");
}

/// Goal: a host that is off does not hold up the recovery once it is fenced; its VMs stay as they are
/// recorded, to be started elsewhere. One that reports after its fence is waited for.
#[test]
fn a_fenced_host_is_not_waited_for() {
    let mut world = World::with_hosts(2);
    world.boot("a", &pinned(1), "h1");
    let mut recovering = Recovering::from(&world.state);
    let h2 = host_name("h2");
    let down = Command::SetLiveness {
        host: host_name("h1"),
        liveness: Liveness::Down,
    };
    recovering.run(down).unwrap();
    let fence = |recovering: &mut Recovering| {
        let incarnation = recovering.state.hosts()[&host_name("h1")]
            .host
            .report
            .incarnation;
        recovering
            .run(Command::FenceHost {
                host: host_name("h1"),
                method: Method::Operator,
                by: "me".to_owned(),
                output: String::new(),
                incarnation,
            })
            .unwrap();
    };
    fence(&mut recovering);
    assert_eq!(recovering.progress("h1"), Progress::Fenced);
    for _ in 0..2 {
        recovering.report(&h2, Vec::new()).unwrap();
    }
    recovering.end(false).unwrap();
    let vm = recovering.state.vm(&vm_name("a")).unwrap();
    assert_eq!(
        (vm.state, vm.host.as_ref()),
        (VmState::Active, Some(&host_name("h1")))
    );
}

/// Returns the guest of a host, on a claim that the state does not know.
fn moved(world: &World, from: &str) -> ReportedGuest {
    let mut guest = guests_of(&world.state, &host_name(from)).remove(0);
    guest.domain.claim = Some(ClaimId(uuid(3, 9_000)));
    guest
}

/// Goal: of two guests of one VM none is chosen; when one is gone, the other is the VM's.
#[test]
fn a_guest_on_two_hosts_is_a_conflict_until_one_is_gone() {
    let mut world = World::with_hosts(2);
    world.boot("a", &pinned(1), "h1");
    let mut recovering = Recovering::from(&world.state);
    let (h1, h2) = (host_name("h1"), host_name("h2"));
    let own = guests_of(&world.state, &h1);
    let other = vec![moved(&world, "h1")];
    for _ in 0..2 {
        recovering.report(&h1, own.clone()).unwrap();
        recovering.report(&h2, other.clone()).unwrap();
    }
    let twice = Conflict::Twice {
        vm: "a".to_owned(),
        hosts: vec![h1.clone(), h2.clone()],
    };
    assert_eq!(conflicts(&recovering), [twice]);
    let mut accepted = Recovering {
        state: recovering.state.clone(),
    };
    accepted.end(true).unwrap();
    let vm = accepted.state.vm(&vm_name("a")).unwrap();
    assert_eq!((vm.state, vm.host.as_ref()), (VmState::Error, Some(&h1)));
    let unknown = &accepted.state.host(&h2).unwrap().host.unknown;
    assert_eq!(unknown.len(), 1, "it keeps its CPUs");
    assert_eq!(
        accepted.state.lost_of(&accepted.state.hosts()[&h2].host),
        [],
        "and is not stopped"
    );
    // The operator stops the one on h1.
    recovering.report(&h1, Vec::new()).unwrap();
    let outcome = recovering.state.recovery_outcome().unwrap();
    assert_eq!(outcome.conflicts, []);
    assert_eq!(
        outcome.settled,
        [Settled::Runs {
            vm: vm_name("a"),
            host: h2.clone()
        }]
    );
    recovering.end(false).unwrap();
    let vm = recovering.state.vm(&vm_name("a")).unwrap();
    assert_eq!((vm.state, vm.host.as_ref()), (VmState::Active, Some(&h2)));
}

/// Goal: what a guest runs with is claimed for its VM, though a VM without a guest has it: that one is
/// in ERROR, and named.
#[test]
fn a_vm_without_a_guest_gives_way() {
    let mut world = World::with_hosts(2);
    world.boot("gone", &pinned(1), "h1");
    let past = world.state.clone();
    world.delete("gone");
    world.boot("new", &pinned(1), "h1");
    assert_eq!(
        past.claims().values().next().unwrap().assignment,
        world.state.claims().values().next().unwrap().assignment
    );
    let mut recovering = Recovering::from(&past);
    recovering.report_all(&world.state);
    recovering.end(false).unwrap();
    let gone = recovering.state.vm(&vm_name("gone")).unwrap();
    assert_eq!((gone.state, gone.claim), (VmState::Error, None));
    assert_eq!(gone.error.as_ref().unwrap().reason, "CLUSTER_RESTORED");
    let new = recovering.state.vm(&vm_name("new")).unwrap();
    assert_eq!(
        (new.state, new.host.as_ref()),
        (VmState::Active, Some(&host_name("h1")))
    );
}

/// Goal: a name that a guest without a record has, and a VM without a guest, is the guest's: that VM was
/// deleted. Of what was written on it the protection alone remains.
#[test]
fn a_name_that_was_used_again_is_the_guests() {
    for protected in [false, true] {
        reuse_name(protected);
    }
}

fn reuse_name(protected: bool) {
    let mut world = World::with_hosts(1);
    world.boot("a", &pinned(1), "h1");
    let write = |protected| Command::UpdateVm {
        vm: vm_name("a"),
        change: MetadataChange {
            set_labels: [("team".to_owned(), "blue".to_owned())].into(),
            protected: Some(protected),
            ..MetadataChange::default()
        },
    };
    world.run(write(protected)).unwrap();
    let past = world.state.clone();
    world.run(write(false)).unwrap();
    world.delete("a");
    world.boot("a", &pinned(1), "h1");
    let mut recovering = Recovering::from(&past);
    recovering.report_all(&world.state);
    let outcome = recovering.state.recovery_outcome().unwrap();
    let [Settled::Added { .. }, Settled::Replaced(replaced)] = &outcome.settled[..] else {
        panic!("{outcome:?}");
    };
    let old = past.vm(&vm_name("a")).unwrap().uid;
    let (h1, is_fenced) = (host_name("h1"), false);
    assert_eq!((replaced.uid, replaced.is_fenced), (old, is_fenced));
    assert_eq!((&replaced.host, &replaced.other), (&Some(h1.clone()), &h1));
    recovering.end(false).unwrap();
    let a = recovering.state.vm(&vm_name("a")).unwrap();
    assert_eq!(a.uid, world.state.vm(&vm_name("a")).unwrap().uid);
    assert_eq!(a.state, VmState::Active);
    let expected = Metadata {
        protected,
        ..Metadata::default()
    };
    assert_eq!(a.metadata, expected);
}

/// Goal: a VM of a fenced host is listed where the guest of another VM has its name, with what to do once
/// the host is back; and its guest is an orphan there then, which is not stopped.
/// Goal: what a recovery settled is kept until the next one begins, those VMs first that need an operator.
#[test]
fn what_was_settled_is_kept_until_the_next_recovery() {
    let outcome = RecoveryOutcome {
        settled: [("a", false), ("b", true), ("c", false)]
            .map(|(vm, failed)| match failed {
                true => Settled::Failed {
                    vm: vm_name(vm),
                    refusal: Box::new(Refusal::not_found("host", "h1")),
                },
                false => Settled::Off { vm: vm_name(vm) },
            })
            .into(),
        conflicts: Vec::new(),
    };
    let kept = outcome.settled_vms();
    let kept = kept
        .iter()
        .map(|kept| (kept.number, kept.vm.as_ref(), kept.fate));
    let expected = [
        ("b", Fate::Error),
        ("a", Fate::Stopped),
        ("c", Fate::Stopped),
    ];
    let names = expected.map(|(vm, _)| vm_name(vm));
    let expected = (0..).zip(&names).zip(expected);
    let expected = expected.map(|((number, vm), (_, fate))| (number, Some(vm), fate));
    assert!(kept.eq(expected));

    let mut world = World::with_hosts(1);
    world.boot("a", &pinned(1), "h1");
    let mut recovering = Recovering::from(&world.state);
    let hosts: Vec<_> = recovering.state.hosts().keys().cloned().collect();
    for _ in 0..2 {
        let basis = recovering.state.revision();
        for host in &hosts {
            recovering.report_at(host, basis, Vec::new()).unwrap();
        }
    }
    recovering.end(false).unwrap();
    let kept = || recovering.state.settled_vms();
    assert_eq!(kept().count(), 1);
    assert!(kept().all(|kept| kept.fate == Fate::Stopped));
    assert_eq!(
        State::from_rows(recovering.state.rows()),
        Ok(recovering.state.clone())
    );
    let again = Recovering::from(&recovering.state);
    assert_eq!(again.state.settled_vms().count(), 0);
}

/// Goal: no more is kept than is bounded, however many VMs differ.
#[test]
fn what_is_kept_is_bounded() {
    let vm = |number| vm_name(&format!("v{number:05}"));
    let outcome = RecoveryOutcome {
        settled: (0..3 * SETTLED_MAX)
            .map(|n| Settled::Off { vm: vm(n) })
            .collect(),
        conflicts: Vec::new(),
    };
    assert_eq!(outcome.count() as usize, 3 * SETTLED_MAX);
    let kept = outcome.settled_vms();
    assert_eq!(kept.len(), SETTLED_MAX);
    assert_eq!(
        kept.last().and_then(|kept| kept.vm.clone()),
        Some(vm(SETTLED_MAX - 1))
    );
}

#[test]
fn a_vm_of_a_fenced_host_whose_name_was_used_again_is_listed() {
    let mut world = World::with_hosts(2);
    world.boot("a", &pinned(1), "h1");
    let past = world.state.clone();
    let lost = guests_of(&past, &host_name("h1"));
    world.delete("a");
    world.boot("a", &pinned(1), "h2");
    let mut after = World::of(past.clone()).recovered();
    late::fence(&mut after, "h1");
    let other = guests_of(&world.state, &host_name("h2"));
    for _ in 0..2 {
        after.report_guests("h2", &other).unwrap();
    }
    let outcome = after.state.recovery_outcome().unwrap();
    let replaced = outcome.settled.iter().filter_map(|settled| match settled {
        Settled::Replaced(replaced) => Some(replaced),
        Settled::Runs { .. }
        | Settled::Added { .. }
        | Settled::Off { .. }
        | Settled::Failed { .. } => None,
    });
    let replaced: Vec<_> = replaced.collect();
    let [one] = &replaced[..] else {
        panic!("{outcome:?}");
    };
    let old = past.vm(&vm_name("a")).unwrap().uid;
    assert_eq!((one.uid, one.is_fenced), (old, true));
    let why = one.describe();
    for part in [
        "host h1, which is fenced",
        "host h2",
        &old.to_string(),
        "orphan",
    ] {
        assert!(why.contains(part), "{part}: {why}");
    }
    let accept_conflicts = false;
    after
        .run(Command::EndRecovery { accept_conflicts })
        .unwrap();
    let (host, liveness) = (host_name("h1"), Liveness::Up);
    after.run(Command::SetLiveness { host, liveness }).unwrap();
    after.report_guests("h1", &lost).unwrap();
    let h1 = &after.view("h1").host;
    assert!(h1.orphans.contains(&old.0), "{:?}", h1.orphans);
    assert_eq!(after.state.lost_of(h1), [], "it is not stopped");
}

/// Goal: a guest whose specification is not reported is a conflict, and keeps its CPUs.
#[test]
fn a_guest_of_which_nothing_is_known_is_a_conflict() {
    let mut world = World::with_hosts(1);
    let past = world.state.clone();
    world.boot("a", &pinned(1), "h1");
    let h1 = host_name("h1");
    let mut guest = guests_of(&world.state, &h1).remove(0);
    guest.spec = None;
    let mut recovering = Recovering::from(&past);
    for _ in 0..2 {
        recovering.report(&h1, vec![guest.clone()]).unwrap();
    }
    let [Conflict::Unrecorded { name, .. }] = &conflicts(&recovering)[..] else {
        panic!("{:?}", conflicts(&recovering));
    };
    assert_eq!(name, "a");
    recovering.end(true).unwrap();
    let host = &recovering.state.hosts()[&h1].host;
    assert_eq!(host.unknown, [guest.domain]);
    assert_eq!(recovering.state.lost_of(host), []);
}

/// Goal: the conflict of a guest whose CPUs another VM has names that VM. Method: two guests on the same
/// CPUs of a host, of which the cluster knows neither.
#[test]
fn a_conflict_names_who_has_the_cpus() {
    let h1 = host_name("h1");
    let past = World::with_hosts(1).state;
    let mut guests = Vec::new();
    for name in ["a", "b"] {
        let mut world = World::with_hosts(1);
        for boots in ["a", "b"].iter().take_while(|boots| **boots != name) {
            // Its claim and UUID are used up, its CPUs are free again.
            world.boot(boots, &pinned(1), "h1");
            world.delete(boots);
        }
        world.boot(name, &pinned(1), "h1");
        guests.extend(guests_of(&world.state, &h1));
    }
    let held = |at: usize| guests[at].domain.held.dedicated();
    assert_eq!(held(0), held(1));
    let mut recovering = Recovering::from(&past);
    for _ in 0..2 {
        recovering.report(&h1, guests.clone()).unwrap();
    }
    let conflicts = conflicts(&recovering);
    let [Conflict::Unrecorded { name, refusal, .. }] = &conflicts[..] else {
        panic!("{conflicts:?}");
    };
    let other = if name == "a" { "b" } else { "a" };
    let holder = format!("CPUs or devices of its guest are claimed by vm {other}");
    assert!(refusal.message.ends_with(&holder), "{}", refusal.message);
}
