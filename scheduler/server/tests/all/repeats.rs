//! Goal: a repeated request gets the outcome of its one execution, byte for byte, and changes
//! nothing, whatever became of the objects meanwhile.
//!
//! Method: sequences of commands that hold every kind between them, each command under a request id
//! of its own. The model is a list of what each command gave. After a sequence the objects are
//! changed and deleted by other requests. Then every request is repeated: at the leader, which
//! decides without a command; as a command that is in the log twice; and both on a member that was
//! made of the stored rows. The compiler enumerates the kinds: each has to be accepted, and if its
//! outcome has an object, with one that was changed or deleted before the repeat. The same at the
//! cluster version before outcomes were recorded shows that the method sees the difference.

mod script;

use std::collections::{BTreeMap, BTreeSet};

use berth_codec::{self as codec, encode_outcome};
use berth_decide::{Action, Decision, DecisionRequest};
use berth_domain::host::Liveness;
use berth_domain::id::TimeMs;
use berth_domain::policy::Setting;
use berth_domain::refusal::Refusal;
use berth_domain::version::ServiceVersion;
use berth_replication::Machine as _;
use berth_scheduler::machine::{Level, Machine};
use berth_state::command::{Command, Envelope};
use berth_state::{Key, Reply, Row, State};
use berth_testkit::state::draw::{can_be_requested, draws, placement_draws, play, power_draws};
use berth_testkit::state::{World, by_hand, request};
use bytes::Bytes;
use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::{RngAlgorithm, TestRng, TestRunner};

/// How many sequences are drawn of each sort.
const SEQUENCES: usize = 30;

macro_rules! kinds {
    ($($kind:ident)*) => {
        /// Every kind of command: the match below does not compile without one of them.
        pub(crate) const KINDS: &[&str] = &[$(stringify!($kind)),*];

        /// Returns the kind of a command.
        pub(crate) fn kind(command: &Command) -> &'static str {
            match command {
                $(Command::$kind { .. } => stringify!($kind),)*
            }
        }
    };
}

kinds! {
    Bootstrap RegisterHost SetLiveness SetCordon RemoveHost RegisterService CreateFlavor
    DeleteFlavor CreateAggregate UpdateAggregate DeleteAggregate CreateServerGroup
    DeleteServerGroup SetPolicy CreatePciAlias DeletePciAlias CreateImage CompleteImage SetImageCopy
    DeleteImage CreateNetwork DeleteNetwork CreateProvider UpdateProvider
    DeleteProvider SetInventories PutInventory DeleteInventory DeleteInventories SetTraits
    DeleteTraits SetAggregates SetAllocations DeleteAllocations Reshape Batch CreateClass
    RenameClass DeleteClass CreateTrait DeleteTrait ImportProviders ImportConsumers BeginBoot
    BeginMigration BeginDelete BeginMove ConfirmResize BeginRevertResize BeginShelve BeginUnshelve
    BeginPower SetRestartPolicy OpenConsole UpdateVm BeginDrain MoveDrained RecordDrained TakeLease RenewLeases CancelOperation Advance FenceHost ForceComplete NoteReality
    ReportGuests EndRecovery NoteErasures WriteOffPmem CreateVolume DeleteVolume NoteVolumes FinalizeUpgrade
    ReplaceGrantKey RevokeCertificate ReinstateCertificate UnregisterService
}

type Outcome = Result<Reply, Refusal>;

/// A request and what it gave.
struct Done {
    envelope: Envelope,
    outcome: Outcome,
    bytes: Bytes,
}

/// A member that applies commands as they are in the log.
struct Member {
    machine: Machine,
    index: u64,
}

impl Member {
    fn new(state: &State) -> Self {
        let rows = state.rows().map(|row| codec::encode_row(&row));
        let machine = Machine::from_rows(Level::default(), rows, state.revision());
        Self {
            machine: machine.expect("its rows can be read"),
            index: state.revision(),
        }
    }

    /// Returns a member that is made of this one's rows, as of a checkpoint.
    fn rebuilt(&self) -> Self {
        Self::new(self.machine.state())
    }

    fn apply(&mut self, envelope: &Envelope) -> Outcome {
        let bytes = codec::encode_command(envelope);
        let read = self.machine.decode(&bytes).expect("it can be read");
        self.index += 1;
        let foretold = self.machine.clone().speculate(self.index, &read);
        let outcome = self.machine.apply(self.index, &read).outcome;
        assert_eq!(outcome, foretold);
        outcome
    }

    /// Returns what the leader answers without a command, if it does.
    fn decide(&self, envelope: &Envelope) -> Option<Outcome> {
        let request = DecisionRequest {
            principal: envelope.principal.clone(),
            key: envelope.request.clone(),
            validate_only: false,
            action: Action::Plain(envelope.command.clone()),
        };
        match self.machine.decide(envelope.at, &request) {
            Decision::Answer(answer) => Some(Ok(answer.reply)),
            Decision::Refuse(refusal) => Some(Err(*refusal)),
            Decision::Command(_) | Decision::Explain(_) => None,
        }
    }

    /// Returns every row but the header, which has the revision.
    fn rows(&self) -> BTreeMap<Key, Row> {
        let rows = self.machine.state().rows();
        let rows = rows.filter(|row| !matches!(row, Row::Header(_)));
        rows.map(|row| (row.key(), row)).collect()
    }
}

fn envelope(number: u64, at: u64, command: Command) -> Envelope {
    Envelope {
        at: TimeMs(at),
        principal: "operator".to_owned(),
        audit: None,
        request: Some(request(number, 7)),
        command,
    }
}

/// Sequences of commands with their times, for a cluster with three hosts. They hold every kind
/// between them.
pub(crate) fn sequences() -> Vec<Vec<(u64, Command)>> {
    let rng = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    let mut runner = TestRunner::new_with_rng(ProptestConfig::default(), rng);
    let sorts = [
        draws().boxed(),
        placement_draws().boxed(),
        power_draws().boxed(),
    ];
    let by_hand = by_hand::commands().into_iter();
    let mut sequences = vec![by_hand.map(|command| (1_000_000, command)).collect()];
    sequences.push(script::commands());
    for sort in sorts {
        for _ in 0..SEQUENCES {
            let drawn = sort.new_tree(&mut runner).expect("a sequence").current();
            let (_, played) = play(&drawn);
            let commands = played.into_iter().map(|(_, at, command)| (at, command));
            sequences.push(commands.filter(|(_, c)| can_be_requested(c)).collect());
        }
    }
    sequences
}

/// Commands that change and then delete what there is, as far as the state allows it.
fn churn(state: &State) -> Vec<Command> {
    let mut commands = Vec::new();
    for view in state.hosts().values() {
        let host = view.host.name.clone();
        let cordoned = !view.host.cordoned;
        commands.push(Command::SetCordon { host, cordoned });
    }
    for operation in state.running_operations().map(|o| o.id) {
        commands.push(Command::CancelOperation { operation });
    }
    let mut policy = (**state.policy()).clone();
    policy.set(Setting::parse("scheduling.hosts", "pack").expect("a setting"));
    policy.weights.numa = policy.weights.numa % 100 + 1;
    commands.push(Command::SetPolicy(policy));
    let consumers = state.consumers().keys().copied();
    commands.extend(consumers.map(|consumer| Command::DeleteAllocations { consumer }));
    for id in state.providers().keys().copied() {
        let name = Some(format!("renamed {id}"));
        commands.push(Command::UpdateProvider {
            id,
            name,
            parent: None,
            reparent: false,
        });
        commands.push(Command::DeleteProvider { id });
    }
    let flavors = state.flavors().keys().cloned();
    commands.extend(flavors.map(|flavor| Command::DeleteFlavor { flavor }));
    let networks = state.networks().keys().cloned();
    commands.extend(networks.map(|network| Command::DeleteNetwork { network }));
    let aliases = state.pci_aliases().keys().cloned();
    commands.extend(aliases.map(|alias| Command::DeletePciAlias { alias }));
    let groups = state.server_groups().keys().cloned();
    commands.extend(groups.map(|group| Command::DeleteServerGroup { group }));
    let aggregates = state.aggregates().keys().cloned();
    commands.extend(aggregates.map(|aggregate| Command::DeleteAggregate { aggregate }));
    let classes = state.classes().keys().cloned();
    commands.extend(classes.map(|class| Command::DeleteClass { class }));
    let traits = state.custom_traits().keys().cloned();
    commands.extend(traits.map(|name| Command::DeleteTrait { name }));
    let services = state.services().keys().cloned();
    commands.extend(services.map(|service| Command::UnregisterService { service }));
    for (volume, generation) in state
        .volumes()
        .values()
        .map(|v| (v.id.clone(), v.generation))
    {
        let generation = Some(generation);
        commands.push(Command::DeleteVolume {
            volume,
            generation,
            forget: false,
        });
    }
    for host in state.hosts().keys().cloned() {
        let liveness = Liveness::Down;
        commands.push(Command::SetLiveness {
            host: host.clone(),
            liveness,
        });
        commands.push(Command::RemoveHost { host });
    }
    commands
}

/// Returns whether the objects of a reply are not any more what they were.
fn has_changed(state: &State, reply: &Reply) -> bool {
    match reply {
        Reply::None | Reply::Leases(_) => false,
        Reply::Host(then) => state.host(&then.name).map(|view| &view.host) != Some(then),
        Reply::Service(then) => state.service(&then.name) != Some(then),
        Reply::Flavor(then) => state.flavor(&then.name) != Some(then),
        Reply::Network(then) => state.network(&then.name) != Some(then),
        Reply::Image(then) => state.image(&then.name) != Some(then),
        Reply::PciAlias(then) => state.pci_alias(&then.name) != Some(then),
        Reply::Provider(then) => state.provider(then.id) != Some(then),
        Reply::Consumers(then) => then.iter().any(|c| state.consumer(c.id) != Some(c)),
        Reply::Batch {
            providers,
            consumers,
        } => {
            providers.iter().any(|p| state.provider(p.id) != Some(p))
                || consumers.iter().any(|c| state.consumer(c.id) != Some(c))
        }
        Reply::Class { class, .. } => state.class(&class.name) != Some(class),
        Reply::Trait { custom, .. } => state.custom_trait(&custom.name) != Some(custom),
        Reply::Aggregate(then) => state.aggregate(&then.name) != Some(then),
        Reply::ServerGroup(then) => state.server_group(&then.name) != Some(then),
        Reply::Policy(then) => state.policy() != then,
        Reply::Operation(then) => state.operation(then.id) != Some(then),
        Reply::Volume(then) => state.volume(&then.id) != Some(then),
    }
}

/// What was seen of the kinds.
#[derive(Default)]
struct Seen {
    accepted: BTreeSet<&'static str>,
    /// Accepted, with an object that was changed or deleted before the request was repeated.
    changed: BTreeSet<&'static str>,
    /// Accepted with an object.
    with_object: BTreeSet<&'static str>,
    refused: BTreeSet<&'static str>,
    repeats: usize,
    /// Repeats with another outcome than the first, by kind.
    wrong: BTreeMap<&'static str, usize>,
}

impl Seen {
    /// Repeats everything on one member.
    fn repeat(&mut self, member: &mut Member, done: &[Done]) {
        let before = member.rows();
        for done in done {
            let kind = kind(&done.envelope.command);
            self.record(member.machine.state(), kind, &done.outcome);
            let decided = member.decide(&done.envelope);
            let applied = member.apply(&done.envelope);
            for again in [decided, Some(applied)] {
                self.repeats += 1;
                if again.map(|outcome| encode_outcome(&outcome)) != Some(done.bytes.clone()) {
                    *self.wrong.entry(kind).or_default() += 1;
                }
            }
        }
        assert!(member.rows() == before, "a repeat changed the state");
        member.machine.check().expect("the state is sound");
    }

    fn record(&mut self, state: &State, kind: &'static str, outcome: &Outcome) {
        let Ok(reply) = outcome else {
            self.refused.insert(kind);
            return;
        };
        self.accepted.insert(kind);
        if !matches!(reply, Reply::None | Reply::Leases(_)) {
            self.with_object.insert(kind);
        }
        if has_changed(state, reply) {
            self.changed.insert(kind);
        }
    }
}

/// Plays all sequences at a cluster version; returns what was seen when everything was repeated.
fn play_at(cluster: ServiceVersion) -> Seen {
    let mut seen = Seen::default();
    for sequence in sequences() {
        let mut member = Member::new(&World::at_version(cluster, 3).state);
        let mut done = Vec::new();
        let mut number = 0;
        let mut execute = |member: &mut Member, at, command| {
            let raises = matches!(command, Command::FinalizeUpgrade { .. });
            if raises && cluster < ServiceVersion::CURRENT {
                return;
            }
            number += 1;
            let envelope = envelope(number, at, command);
            // What an older member could not read is in no log, or left out of it.
            let Ok(envelope) = codec::admit(member.machine.state(), envelope) else {
                return;
            };
            let outcome = member.apply(&envelope);
            done.push(Done {
                bytes: encode_outcome(&outcome),
                envelope,
                outcome,
            });
        };
        for (at, command) in sequence {
            execute(&mut member, at, command);
        }
        for command in churn(member.machine.state()) {
            execute(&mut member, 3_000_000, command);
        }
        let mut rebuilt = member.rebuilt();
        seen.repeat(&mut member, &done);
        seen.repeat(&mut rebuilt, &done);
        assert!(member.machine.state() == rebuilt.machine.state());
    }
    seen
}

#[test]
fn a_repeated_request_gets_the_outcome_of_its_execution() {
    let seen = play_at(ServiceVersion::CURRENT);
    println!(
        "{} repeats of {} kinds of commands: {} accepted, {} refused at least once; {} with an \
         object, all of them changed or deleted before a repeat",
        seen.repeats,
        KINDS.len(),
        seen.accepted.len(),
        seen.refused.len(),
        seen.with_object.len(),
    );
    assert_eq!(seen.wrong, BTreeMap::new(), "with another outcome");
    // Those are accepted while a cluster recovers; the tests of the state have them.
    let of_recovery = ["ReportGuests", "EndRecovery"];
    let kinds = KINDS.iter().copied();
    let kinds: BTreeSet<_> = kinds.filter(|kind| !of_recovery.contains(kind)).collect();
    assert_eq!(seen.accepted, kinds, "each is accepted at least once");
    assert_eq!(seen.changed, seen.with_object);
    assert!(seen.refused.len() > kinds.len() / 2);

    let before = play_at(ServiceVersion(ServiceVersion::RECORDED_OUTCOMES.0 - 1));
    let wrong: BTreeSet<_> = before.wrong.keys().copied().collect();
    let total: usize = before.wrong.values().sum();
    println!("before: {total} of {} repeats differ", before.repeats);
    assert_eq!(wrong, before.changed, "each would be seen");
}
