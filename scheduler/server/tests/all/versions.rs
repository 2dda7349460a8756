//! Goal: no command stops a member that the cluster version allows.
//!
//! Method: every kind of command (drawn sequences, and those made by hand) on a state at every
//! cluster version. What is admitted is read by a member at every service version that may be in the
//! cluster then, and so are the rows that come of it. For plans to raise the cluster version: all
//! members' versions, all conductors' versions, all targets.

use std::collections::BTreeSet;

use berth_codec as codec;
use berth_codec::admit;
use berth_decide::upgrade::{MemberVersion, plan_finalize};
use berth_domain::id::TimeMs;
use berth_domain::service::Service;
use berth_domain::version::{CLUSTER_TOO_OLD, ServiceVersion};
use berth_replication::Machine as _;
use berth_scheduler::machine::{Level, Machine};
use berth_state::State;
use berth_state::command::{Command, Envelope};
use berth_testkit::state::draw::{can_be_requested, draws, placement_draws, play, power_draws};
use berth_testkit::state::{World, by_hand, conductor, request};
use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::{RngAlgorithm, TestRng, TestRunner};

/// How many sequences are drawn of each sort.
const SEQUENCES: usize = 30;

fn versions() -> impl Iterator<Item = ServiceVersion> + Clone {
    (ServiceVersion::OLDEST.0..=ServiceVersion::CURRENT.0).map(ServiceVersion)
}

fn envelope(command: Command) -> Envelope {
    Envelope {
        at: TimeMs(2_000_000),
        principal: "operator".to_owned(),
        audit: None,
        request: None,
        command,
    }
}

fn finalize(version: ServiceVersion, gone: &[&str]) -> Command {
    Command::FinalizeUpgrade {
        version,
        gone: gone.iter().map(|name| conductor(name)).collect(),
    }
}

/// Returns a state with hosts at a cluster version.
fn state_at(version: ServiceVersion) -> State {
    let mut state = World::before_upgrades(3).state;
    let raised = state.apply(100, &envelope(finalize(version, &[])));
    assert!(raised.outcome.is_ok(), "{:?}", raised.outcome);
    state
}

/// Returns a member at a service version, with this state.
fn member(level: ServiceVersion, state: &State) -> Machine {
    let rows = state.rows().map(|row| codec::encode_row(&row));
    Machine::from_rows(Level(level), rows, state.revision()).expect("its state can be read")
}

/// Sequences of commands that hold every kind between them.
fn sequences() -> Vec<Vec<Command>> {
    let rng = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    let mut runner = TestRunner::new_with_rng(ProptestConfig::default(), rng);
    let sorts = [
        draws().boxed(),
        placement_draws().boxed(),
        power_draws().boxed(),
    ];
    // The version is raised by sequences of its own, below: what follows would be at the newest.
    let is_raise = |command: &Command| matches!(command, Command::FinalizeUpgrade { .. });
    let mut by_hand = by_hand::commands();
    by_hand.retain(|command| !is_raise(command));
    let mut sequences = vec![by_hand];
    for sort in sorts {
        for _ in 0..SEQUENCES {
            let drawn = sort.new_tree(&mut runner).expect("a sequence").current();
            let (_, played) = play(&drawn);
            let commands = played.into_iter().map(|(_, _, command)| command);
            sequences.push(commands.filter(can_be_requested).collect());
        }
    }
    let raises = versions().flat_map(|version| [finalize(version, &[]), finalize(version, &["c"])]);
    sequences.extend(raises.map(|command| vec![command]));
    sequences
}

fn kind(command: &Command) -> String {
    let text = format!("{command:?}");
    let end = text.find([' ', '(', '{']).unwrap_or(text.len());
    text[..end].to_owned()
}

/// Plays a sequence at a cluster version; returns the kinds of what was admitted and of what was
/// refused for the version.
fn play_at(cluster: ServiceVersion, sequence: &[Command]) -> (BTreeSet<String>, BTreeSet<String>) {
    let mut state = state_at(cluster);
    let readers: Vec<Machine> = versions()
        .map(|level| Machine::from_rows(Level(level), std::iter::empty(), 0))
        .map(|machine| machine.expect("nothing can be read"))
        .collect();
    let (mut admitted, mut refused) = (BTreeSet::new(), BTreeSet::new());
    for command in sequence {
        let mut oldest = state.header().cluster_version;
        if let Command::FinalizeUpgrade { version, .. } = command {
            oldest = oldest.max(*version);
        }
        // Under a request id, so that what is stored of requests is read too.
        let mut envelope = envelope(command.clone());
        envelope.request = Some(request(state.revision(), 1));
        let envelope = match admit(&state, envelope) {
            Ok(envelope) => envelope,
            Err(refusal) => {
                assert_eq!(refusal.reason, CLUSTER_TOO_OLD, "{refusal}");
                refused.insert(kind(command));
                continue;
            }
        };
        let bytes = codec::encode_command(&envelope);
        for (level, reader) in versions()
            .zip(&readers)
            .filter(|(level, _)| *level >= oldest)
        {
            let read = reader.decode(&bytes);
            let what = format!("at {cluster}, a member at {level}: {command:?}");
            assert_eq!(read.expect(&what), envelope, "{what}");
        }
        admitted.insert(kind(command));
        let _ = state.apply(state.revision() + 1, &envelope);
    }
    let oldest = state.header().cluster_version;
    for level in versions().filter(|level| *level >= oldest) {
        drop(member(level, &state));
    }
    (admitted, refused)
}

#[test]
fn what_is_admitted_is_read_by_every_member_that_may_be_there() {
    let sequences = sequences();
    let kinds: BTreeSet<String> = sequences.iter().flatten().map(kind).collect();
    for cluster in versions() {
        let (mut admitted, mut refused) = (BTreeSet::new(), BTreeSet::new());
        for sequence in &sequences {
            let (yes, no) = play_at(cluster, sequence);
            admitted.extend(yes);
            refused.extend(no);
        }
        println!(
            "cluster version {cluster}: {} of {} kinds admitted, {} refused at least once",
            admitted.len(),
            kinds.len(),
            refused.len()
        );
        assert!(kinds.len() >= 58, "{kinds:#?}");
        // Of what a command needs only these came later.
        if cluster >= ServiceVersion::VOLUMES {
            let came_later = [
                "ReplaceGrantKey",
                "RevokeCertificate",
                "ReinstateCertificate",
                "BeginDrain",
                "MoveDrained",
                "RecordDrained",
                "SetRestartPolicy",
                "OpenConsole",
                "UpdateVm",
                "CreateImage",
                "CompleteImage",
                "SetImageCopy",
                "DeleteImage",
                "CreateNetwork",
                "DeleteNetwork",
                "ReportGuests",
                "EndRecovery",
            ];
            let is_later = |kind: &&String| came_later.contains(&kind.as_str());
            let later = kinds.iter().filter(is_later).cloned();
            let later: BTreeSet<_> = later.filter(|_| cluster < ServiceVersion::GRANTS).collect();
            assert_eq!(admitted, &kinds - &later);
            // Of boots those that name a project, a restart policy or metadata, of policies those that set
            // shared CPUs, of starts those by policy, of findings that a guest shut itself down, of
            // resizes those of a VM with a seed.
            let some = [
                ("BeginBoot", ServiceVersion::OWNERSHIP),
                ("BeginMove", ServiceVersion::FIRST_BOOT),
                ("SetPolicy", ServiceVersion::CPU_POLICY),
                ("BeginPower", ServiceVersion::RESTART_POLICY),
                ("NoteReality", ServiceVersion::RESTART_POLICY),
            ];
            let some = some.into_iter().filter(|(_, needed)| cluster < *needed);
            let some = some.map(|(kind, _)| kind.to_owned());
            assert_eq!(refused, later.into_iter().chain(some).collect());
        } else {
            assert!(refused.contains("CreateVolume") && admitted.contains("BeginBoot"));
        }
    }
}

/// Goal: a plan to raise the cluster version stops no member and no conductor, and what its refusal
/// advises can be done.
#[test]
fn a_plan_to_raise_the_version_is_read_by_every_member() {
    let mut planned = 0;
    // None is at 2: what raises it is read by members at 3 and newer alone.
    let is_reached =
        |v: &ServiceVersion| *v == ServiceVersion::OLDEST || *v >= ServiceVersion::FINALIZE_UPGRADE;
    for cluster in versions().filter(is_reached) {
        // A member that is older than the cluster version does not start.
        let known = || {
            versions()
                .map(Some)
                .chain([None])
                .filter(|v| v.is_none_or(|v| v >= cluster))
        };
        for (one, other) in known().flat_map(|one| known().map(move |other| (one, other))) {
            for conductor in versions().map(Some).chain([None]) {
                let state = with_conductor(state_at(cluster), conductor);
                for target in 0..=ServiceVersion::CURRENT.0 + 1 {
                    let members =
                        [(1, one), (2, other)].map(|(id, version)| MemberVersion { id, version });
                    planned += usize::from(is_planned(&state, &members, ServiceVersion(target)));
                }
            }
        }
    }
    assert!(planned > 0);
}

fn with_conductor(mut state: State, version: Option<ServiceVersion>) -> State {
    if let Some(version) = version {
        // One that registered when the cluster version was older.
        let service = Service {
            name: conductor("c"),
            address: "http://127.0.0.1:7200".to_owned(),
            version,
            registered_at: TimeMs(1),
        };
        let _ = state.apply(101, &envelope(Command::RegisterService(service)));
    }
    state
}

fn is_planned(state: &State, members: &[MemberVersion], target: ServiceVersion) -> bool {
    let cluster = state.header().cluster_version;
    let command = match plan_finalize(state, members, target, BTreeSet::new()) {
        Ok(None) => {
            assert_eq!(target, cluster);
            return false;
        }
        Ok(Some(command)) => command,
        Err(refusal) => {
            assert!(!refusal.message.is_empty());
            assert!(target != ServiceVersion::CURRENT || refusal.reason == "UPGRADE_INCOMPLETE");
            return false;
        }
    };
    let Ok(envelope) = admit(state, envelope(command)) else {
        panic!("{target} was planned at {cluster}, and is not admitted");
    };
    let bytes = codec::encode_command(&envelope);
    for MemberVersion { id, version } in members {
        let level = version.expect("a member that does not respond is behind");
        let reader = Machine::from_rows(Level(level), std::iter::empty(), 0).expect("it is empty");
        assert!(
            reader.decode(&bytes).is_ok(),
            "member {id} at {level} reads {target}"
        );
    }
    true
}
