//! Goal: every command, outcome and row is read back as it was written, and what cannot be read is
//! refused.
//!
//! Method: the sequences of commands with which the state is tested, their rows and changes; and
//! that these sequences, with a few hand-made ones, hold every kind of command, row and receipt.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use berth_codec::{
    CodecError, decode_command, decode_outcome, decode_row, encode_change, encode_command,
    encode_outcome, encode_row, table_name,
};
use berth_domain::aggregate::{Aggregate, AggregateChange, METADATA_MAX};
use berth_domain::audit::{Chosen, Points, Ranked, RequestSummary};
use berth_domain::claim::Owner;
use berth_domain::host_rule::HostRule;
use berth_domain::id::{AggregateId, ClusterId, Generation, TimeMs, VmUid};
use berth_domain::memory::MemoryRule;
use berth_domain::name::AggregateName;
use berth_domain::policy::{SchedulingPolicy, Setting, Source};
use berth_domain::recovery::{Cause, Fate, SettledVm};
use berth_domain::refusal::Refusal;
use berth_domain::resource::ResourceClass;
use berth_domain::version::ServiceVersion;
use berth_domain::vm::{LABELS_MAX, Labels, Metadata, MetadataChange, RestartPolicy};
use berth_proto::convert::field::MESSAGE_MAX;
use berth_state::command::{Command, Envelope};
use berth_state::recovery::Begin;
use berth_state::request::{Receipt, Request};
use berth_state::{Change, Reply, Row, State};
use berth_testkit::state::draw::{can_be_requested, draws, placement_draws, play};
use berth_testkit::state::*;
use bytes::Bytes;
use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::{RngAlgorithm, TestRng, TestRunner};

/// The last cluster version whose requests are stored with a receipt that is not their outcome.
const BEFORE_OUTCOMES: ServiceVersion = ServiceVersion(ServiceVersion::RECORDED_OUTCOMES.0 - 1);

/// What the audit notes, in as many forms as there are requests.
fn noted(key: &berth_state::command::RequestKey) -> RequestSummary {
    let odd = key.id.0.as_u128() % 2 == 1;
    let ranked = |host: &str| Ranked {
        host: host_name(host),
        points: vec![Points {
            weigher: "load".into(),
            points: 65_535,
        }],
    };
    RequestSummary {
        method: key.method.clone(),
        request_id: odd.then_some(key.id),
        vm: odd.then(|| vm_name("a")),
        host: (!odd).then(|| host_name("h1")),
        summary: "flavor=small".to_owned(),
        choice: odd.then(|| {
            Arc::new(Chosen {
                host: host_name("h2"),
                hosts: 9,
                passed: 3,
                tried: 1,
                ranking: vec![ranked("h2"), ranked("h1")],
            })
        }),
    }
}

fn envelope(
    at: u64,
    request: Option<berth_state::command::RequestKey>,
    command: Command,
) -> Envelope {
    Envelope {
        at: TimeMs(at),
        principal: "unverified:test".to_owned(),
        audit: request.as_ref().map(|key| Box::new(noted(key))),
        request,
        command,
    }
}

/// Applies commands through bytes alone, as a member does: read, apply, store.
fn store(commands: &[Envelope], cluster: ServiceVersion) -> (State, BTreeMap<Bytes, Bytes>) {
    let mut state = World::at_version(cluster, 3).state;
    let mut stored: BTreeMap<Bytes, Bytes> = BTreeMap::new();
    for row in state.rows() {
        let row = encode_row(&row);
        assert!(
            stored.insert(row.key, row.value).is_none(),
            "two rows with one key"
        );
    }
    for envelope in commands {
        // In an older cluster the version stays as it is.
        let raises = matches!(envelope.command, Command::FinalizeUpgrade { .. });
        if !can_be_requested(&envelope.command) || (raises && cluster < ServiceVersion::CURRENT) {
            continue;
        }
        let bytes = encode_command(envelope);
        assert!(!bytes.is_empty());
        let read = decode_command(&bytes).unwrap();
        assert_eq!(read, *envelope);
        assert_eq!(
            encode_command(&read),
            bytes,
            "equal commands have equal bytes"
        );
        let applied = state.apply(1, &read);
        let bytes = encode_outcome(&applied.outcome);
        assert_eq!(decode_outcome(&bytes).unwrap(), applied.outcome);
        for request in applied.changes.iter().filter_map(recorded) {
            let (weight, length) = (request.weight(), bytes.len() as u64);
            // An outcome without a record is a few bytes of its request.
            assert!(
                weight + 16 >= length,
                "{weight} for {length} bytes: {request:?}"
            );
        }
        for change in applied.changes {
            let change = encode_change(&change);
            assert_eq!(stored.get(&change.key), change.old.as_ref());
            match change.new {
                Some(value) => drop(stored.insert(change.key, value)),
                None => drop(stored.remove(&change.key)),
            }
        }
    }
    (state, stored)
}

/// Returns the request that a change stores with its outcome.
fn recorded(change: &Change) -> Option<&Request> {
    let Some(Row::Request(request)) = &change.new else {
        return None;
    };
    matches!(request.receipt, Receipt::Outcome(_)).then_some(request)
}

fn read_back(stored: &BTreeMap<Bytes, Bytes>) -> Vec<Row> {
    let rows = stored.iter().map(|(key, value)| berth_store::Row {
        key: key.clone(),
        value: value.clone(),
    });
    rows.map(|row| decode_row(&row).unwrap()).collect()
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: ProptestConfig::default().cases / 4,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn a_state_lives_on_in_its_bytes(draws in prop_oneof![draws().boxed(), placement_draws().boxed()]) {
        let (_, played) = play(&draws);
        let commands: Vec<_> = played.into_iter().map(|(r, at, c)| envelope(at, r, c)).collect();
        let (state, stored) = store(&commands, ServiceVersion::CURRENT);
        let rebuilt = State::from_rows(read_back(&stored)).unwrap();
        prop_assert!(rebuilt == state);
        let again: BTreeMap<_, _> = rebuilt.rows().map(|row| {
            let row = encode_row(&row);
            (row.key, row.value)
        }).collect();
        prop_assert_eq!(again, stored);
    }

    #[test]
    fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = decode_command(&bytes);
        let _ = decode_outcome(&bytes);
        let value = Bytes::from(bytes);
        let _ = decode_row(&berth_store::Row { key: Bytes::from_static(&[0]), value });
    }
}

/// Returns the name of a variant, as its debug form begins.
fn variant(value: &impl std::fmt::Debug) -> String {
    let text = format!("{value:?}");
    let end = text.find([' ', '(', '{']).unwrap_or(text.len());
    text[..end].to_owned()
}

fn kind_of_command(command: &Command) -> String {
    let kind = variant(command);
    if let Command::Advance { effect, .. } = command {
        return format!("{kind} {}", variant(effect));
    }
    kind
}

fn kind_of_row(row: &Row) -> String {
    let kind = variant(row);
    if let Row::Request(request) = row {
        return format!("{kind} {}", variant(&request.receipt));
    }
    kind
}

/// Returns what came of each command.
fn outcomes(commands: &[Envelope]) -> Vec<Result<Reply, Refusal>> {
    let mut state = World::with_hosts(3).state;
    let outcomes = commands
        .iter()
        .map(|command| state.apply(1, command).outcome);
    outcomes.collect()
}

fn kind_of_outcome(outcome: &Result<Reply, Refusal>) -> String {
    outcome.as_ref().map_or("Refused".to_owned(), variant)
}

/// The commands that the drawn sequences never hold, each under a request of its own.
fn by_hand() -> Vec<Envelope> {
    let numbered = (1_000..).zip(berth_testkit::state::by_hand::commands());
    numbered
        .map(|(number, command)| envelope(5, Some(request(number, u128::MAX)), command))
        .collect()
}

#[test]
fn every_kind_is_among_them() {
    let rng = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    let mut runner = TestRunner::new_with_rng(ProptestConfig::default(), rng);
    let mut commands = BTreeSet::new();
    let mut rows = BTreeSet::new();
    let mut answers = BTreeSet::new();
    let mut tables = BTreeSet::new();
    for _ in 0..60 {
        let mut both = draws().new_tree(&mut runner).unwrap().current();
        both.extend(placement_draws().new_tree(&mut runner).unwrap().current());
        let (_, played) = play(&both);
        let mut played: Vec<_> = played
            .into_iter()
            .map(|(r, at, c)| envelope(at, r, c))
            .collect();
        played.extend(by_hand());
        commands.extend(played.iter().map(|e| kind_of_command(&e.command)));
        answers.extend(outcomes(&played).iter().map(kind_of_outcome));
        for cluster in [BEFORE_OUTCOMES, ServiceVersion::CURRENT] {
            let (_, stored) = store(&played, cluster);
            rows.extend(read_back(&stored).iter().map(kind_of_row));
            tables.extend(
                stored
                    .keys()
                    .map(|key| table_name(key).expect("it has a name")),
            );
        }
    }
    // 76 commands, of which one with each of 18 effects.
    assert_eq!(commands.len(), 75 + 18, "{commands:#?}");
    // 22 tables, of which requests with each of 17 older receipts and with their outcome; hosts report
    // into one more while a cluster recovers.
    assert_eq!(rows.len(), 21 + 17 + 1, "{rows:#?}");
    assert_eq!(tables.len(), 22, "{tables:#?}");
    // Seventeen kinds of replies beside none, and the refusal.
    assert_eq!(answers.len(), 19, "{answers:#?}");
}

/// Goal: a refusal that is stored with the id of its request can be read back, however much is wrong with what
/// is written on a VM or an aggregate, and however many traits do not exist. Method: as many entries as a
/// request may have, each as long as it may be and of characters that are written as their code points.
#[test]
fn the_longest_refusals_are_read_back() {
    let key = |number: usize| format!("{number:02}{}", "\u{10ffff}".repeat(255));
    let keys: Vec<String> = (0..LABELS_MAX).map(key).collect();
    let labels: Labels = keys.iter().map(|key| (key.clone(), key.clone())).collect();
    let description = "\u{1b}".repeat(MESSAGE_MAX);
    let mut world = World::with_hosts(1);
    world.boot("a", &pinned(1), "h1");
    let spec = pinned(1);
    let begin = Command::BeginBoot {
        operation: operation_id(world.fresh()),
        vm: vm_name("b"),
        uid: VmUid(uuid(4, world.fresh())),
        spec: Box::new(spec.clone()),
        requested_host: None,
        claim: world.claim("b", &spec, "h1", Owner::Vm),
        lease: world.lease(),
        project: None,
        restart: RestartPolicy::default(),
        first_boot: None,
        metadata: Metadata {
            labels: labels.clone(),
            description: description.clone(),
            protected: true,
        },
    };
    let update = Command::UpdateVm {
        vm: vm_name("a"),
        change: MetadataChange {
            set_labels: labels,
            remove_labels: keys.into_iter().collect(),
            description: Some(description),
            protected: None,
        },
    };
    for command in [begin, update] {
        let key = request(world.fresh(), 0);
        let refusal = world.run_as(Some(key), command).unwrap_err();
        assert_eq!(refusal.reason, "INVALID_VM");
        assert!(refusal.bytes() < MESSAGE_MAX / 2, "{}", refusal.bytes());
    }
    let name = AggregateName::new("fast").unwrap();
    let aggregate = Aggregate {
        name: name.clone(),
        id: AggregateId(uuid(6, 1)),
        hosts: BTreeSet::new(),
        metadata: BTreeMap::new(),
        generation: Generation(1),
        created_at: TimeMs(0),
    };
    world
        .run(Command::CreateAggregate(aggregate.clone()))
        .unwrap();
    let metadata: BTreeMap<_, _> = (0..METADATA_MAX).map(|n| (key(n), key(n))).collect();
    let other = Aggregate {
        name: AggregateName::new("slow").unwrap(),
        id: AggregateId(uuid(6, 2)),
        metadata: metadata.clone(),
        ..aggregate
    };
    let change = AggregateChange {
        set: metadata,
        ..AggregateChange::default()
    };
    for command in [
        Command::CreateAggregate(other),
        Command::UpdateAggregate {
            aggregate: name,
            change,
        },
    ] {
        let key = request(world.fresh(), 0);
        let refusal = world.run_as(Some(key), command).unwrap_err();
        assert_eq!(refusal.reason, "INVALID_AGGREGATE");
    }
    let provider = placement::create(1, None);
    world.run(provider).unwrap();
    let names: Vec<String> = (0..9_000).map(|n| format!("CUSTOM_{n}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let key = request(world.fresh(), 0);
    let outcome = world.run_as(Some(key.clone()), placement::traits(1, 0, &names));
    let refusal = outcome.unwrap_err();
    assert!(refusal.message.len() > MESSAGE_MAX, "the answer names all");
    let again = world.run_as(Some(key), placement::traits(1, 0, &names));
    assert_eq!(again, Err(refusal.as_record(true)));
    let stored: Vec<_> = world.state.rows().map(|row| encode_row(&row)).collect();
    let rows = stored.iter().map(|row| decode_row(row).unwrap());
    assert!(State::from_rows(rows).unwrap() == world.state);
}

/// A cluster that recovers has a table of its own.
#[test]
fn a_recovering_state_is_read_back() {
    let world = World::with_hosts(1);
    let mut state = world.state.clone().recovered(&Begin {
        cluster: ClusterId(uuid(9, 1)),
        cause: Cause::QuorumLost,
        at: TimeMs(7),
        index: 12,
        level: ServiceVersion::CURRENT,
    });
    let basis = state.revision();
    let report = Command::ReportGuests {
        host: host_name("h1"),
        incarnation: state.hosts()[&host_name("h1")].host.report.incarnation,
        basis,
        guests: vec![by_hand::guest(1), by_hand::guest(2)],
    };
    let applied = state.apply(basis + 1, &envelope(9, None, report));
    applied.outcome.unwrap();
    let stored: Vec<_> = state.rows().map(|row| encode_row(&row)).collect();
    let tables: BTreeSet<_> = stored
        .iter()
        .filter_map(|row| table_name(&row.key))
        .collect();
    assert!(tables.contains("recovered_hosts"), "{tables:?}");
    let rows = stored.iter().map(|row| decode_row(row).unwrap());
    assert!(State::from_rows(rows).unwrap() == state);
}

/// So has one that has recovered, of what became of its VMs.
#[test]
fn what_a_recovery_settled_is_read_back() {
    let fates = [
        Fate::Replaced,
        Fate::Conflict,
        Fate::Error,
        Fate::Added,
        Fate::Active,
        Fate::Stopped,
    ];
    for (number, fate) in (0..).zip(fates) {
        let vm = (fate != Fate::Conflict).then(|| vm_name("a"));
        let host = (fate != Fate::Stopped).then(|| host_name("h1"));
        let row = Row::SettledVm(Arc::new(SettledVm {
            number,
            vm,
            fate,
            host,
            message: "why".to_owned(),
        }));
        let stored = encode_row(&row);
        assert_eq!(table_name(&stored.key), Some("settled_vms"));
        assert_eq!(decode_row(&stored).unwrap(), row);
    }
}

/// The drawn sequences hold no outcomes that are large enough to be forgotten.
#[test]
fn a_forgotten_outcome_is_read_back() {
    let mut world = World::with_hosts(0);
    let create = Command::CreateFlavor(flavor("small", 1, 64, &[]));
    world.run_as(Some(request(1, 7)), create).unwrap();
    let mut rows = world.state.rows();
    let row = rows.find(|row| matches!(row, Row::Request(_)));
    let Some(Row::Request(request)) = row else {
        panic!("it is remembered");
    };
    let receipt = Receipt::Forgotten;
    let row = Row::Request(Arc::new(Request {
        receipt,
        ..(*request).clone()
    }));
    assert_eq!(decode_row(&encode_row(&row)).unwrap(), row);
}

#[test]
fn what_is_not_known_is_refused() {
    use berth_proto::state::v1;
    use prost::Message as _;
    let field = |bytes: &[u8]| match decode_command(bytes).unwrap_err() {
        CodecError::Field { source, .. } => source.path,
        other @ (CodecError::Wire { .. } | CodecError::Misplaced { .. }) => panic!("{other:?}"),
    };
    assert_eq!(field(&v1::Envelope::default().encode_to_vec()), "command");
    // Field 999 of a later build.
    let mut later = v1::Envelope {
        at_ms: 1,
        ..v1::Envelope::default()
    }
    .encode_to_vec();
    later.extend([0xba, 0x3e, 0x00]);
    assert_eq!(field(&later), "command");
    let advance = v1::Advance {
        operation: format!("operations/{}", uuid(1, 1)),
        epoch: 1,
        step: 1,
        mark: Some((&berth_domain::operation::Mark::Started).into()),
        effect: Some(berth_proto::operation::v1::Effect { effect: None }),
    };
    let wire = v1::Envelope {
        command: Some(v1::envelope::Command::Advance(advance)),
        ..v1::Envelope::default()
    };
    assert_eq!(field(&wire.encode_to_vec()), "effect");
    let batch = |writes| v1::Envelope {
        command: Some(v1::envelope::Command::Batch(v1::Batch { writes })),
        ..v1::Envelope::default()
    };
    let nested = batch(vec![batch(Vec::new())]).encode_to_vec();
    assert_eq!(field(&nested), "writes[0].command");
    let unknown = batch(vec![v1::Envelope::default()]).encode_to_vec();
    assert_eq!(field(&unknown), "writes[0].command");
    assert!(matches!(
        decode_command(&[0xff]),
        Err(CodecError::Wire { .. })
    ));
    let row = |value: Vec<u8>| {
        decode_row(&berth_store::Row {
            key: Bytes::from_static(&[0]),
            value: value.into(),
        })
    };
    assert!(matches!(row(Vec::new()), Err(CodecError::Field { .. })));
    let header = encode_row(&State::new().rows().next().unwrap());
    assert!(row(header.value.to_vec()).is_ok());
    let elsewhere = berth_store::Row {
        key: Bytes::from_static(&[1, b'h']),
        value: header.value,
    };
    assert!(matches!(
        decode_row(&elsewhere),
        Err(CodecError::Misplaced { .. })
    ));
}

/// Goal: a cluster that was filled before anybody could say something of memory over-commits nothing
/// after the upgrade, and a policy that says nothing of it has the bytes of before. Method: the row as
/// an older member stored it, byte for byte, among hosts with guests.
#[test]
fn a_policy_of_before_over_commits_nothing() {
    // hosts 1, cells 2, weights 100, 1000, 10, 0, 1000, generation 3.
    let bytes: &'static [u8] = &[
        0xa2, 0x01, 0x12, 0x08, 0x01, 0x10, 0x02, 0x1a, 0x0a, 0x08, 0x64, 0x10, 0xe8, 0x07, 0x18,
        0x0a, 0x28, 0xe8, 0x07, 0x20, 0x03,
    ];
    let mut policy = SchedulingPolicy {
        generation: Generation(3),
        ..SchedulingPolicy::default()
    };
    policy.set(Setting::parse("scheduling.cells", "pack").unwrap());
    let mut stored = encode_row(&Row::Policy(policy.clone().into()));
    assert_eq!(stored.value, bytes);
    stored.value = Bytes::from_static(bytes);
    let old = decode_row(&stored).unwrap();
    assert_eq!(old, Row::Policy(policy.into()));

    let mut world = World::with_hosts(2);
    world.boot("a", &pinned(2), "h1");
    let rows = world.state.rows().chain([old]);
    let state = State::from_rows(rows).unwrap();
    state.check().unwrap();
    for view in state.hosts().values() {
        let said = state.memory_policy_of(&view.host.name);
        assert_eq!(
            (said.rule, view.rule),
            (MemoryRule::EXACT, HostRule::default())
        );
        assert_eq!(said.ratio_from, Source::Default);
        let cpus = state.cpu_policy_of(&view.host.name);
        assert_eq!(
            (cpus.ratio_from, cpus.reserved_from),
            (Source::Default, Source::Default)
        );
        let vcpu = &view.inventories[&ResourceClass::vcpu()];
        assert_eq!((vcpu.allocation_ratio.milli(), vcpu.reserved), (4000, 0));
        let memory = &view.inventories[&ResourceClass::memory_mb()];
        assert_eq!(
            (memory.allocation_ratio.milli(), memory.reserved),
            (1000, 512)
        );
    }
}
