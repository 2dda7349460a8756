//! Goal: what is decided, without a replica. Method: a state made by commands, and requests on it.

use std::collections::BTreeSet;
use std::sync::Arc;

use berth_domain::fence::Method;
use berth_domain::flavor::Flavor;
use berth_domain::host::{HostReport, Liveness};
use berth_domain::id::{
    ClaimId, Epoch, Generation, Incarnation, MigrationId, OperationId, ProviderId, RequestId,
    TimeMs, VmUid,
};
use berth_domain::image::ImageProperties;
use berth_domain::instance::PageSize;
use berth_domain::name::{FlavorName, HostName, ServiceName, VmName};
use berth_domain::operation::{
    self, DrainSpec, Effect, GuestPower, LeaseRequest, Mark, Operation, Step,
};
use berth_domain::ownership::Ownership;
use berth_domain::policy::{Scope, Setting};
use berth_domain::topology::{CellId, HostCell, HostTopology, PagePool};
use berth_domain::version::ServiceVersion;
use berth_domain::vm::{
    BootSource, Disk, DiskFormat, NicPlug, NicRequest, RestartAction, RestartPolicy,
    SchedulingHints,
};
use berth_state::command::{Command, RequestKey};
use berth_state::{Reply, State};
use uuid::Uuid;

use super::{
    Action, Decision, DecisionRequest, HostTable, ScheduleMigration, ScheduleVm, decide,
    decide_with,
};

fn host(name: &str) -> HostName {
    HostName::new(name).unwrap()
}

fn vm(name: &str) -> VmName {
    VmName::new(name).unwrap()
}

fn id(number: u128) -> Uuid {
    Uuid::from_u128(number)
}

fn lease() -> LeaseRequest {
    LeaseRequest {
        conductor: ServiceName::new("c1").unwrap(),
        ttl_ms: 10_000,
    }
}

fn report(version: u32) -> HostReport {
    let cell = |id: u32| HostCell {
        id: CellId(id),
        socket: None,
        shared: "100-101".parse().unwrap(),
        dedicated: format!("{}-{}", id * 4, id * 4 + 3).parse().unwrap(),
        cores: (id * 4..id * 4 + 4)
            .chain(100..102)
            .map(|cpu| cpu.to_string().parse().unwrap())
            .collect(),
        memory_mib: 4096,
        pages: vec![PagePool {
            size_kib: 4,
            total: 4096 * 256,
            reserved: 0,
        }],
    };
    HostReport {
        networks: Vec::new(),
        agent_address: "http://127.0.0.1:1".into(),
        incarnation: Incarnation(id(1)),
        service_version: ServiceVersion(version),
        driver: "sim".into(),
        migration_uri: String::new(),
        topology: Arc::new(HostTopology::new(vec![cell(0)], vec![vec![10]]).unwrap()),
        memory_reserved_mib: 0,
        disk_gib: 100,
        storage_id: "s".into(),
        traits: Default::default(),
        platform: Default::default(),
        self_fence_ms: 0,
        regions: Vec::new(),
        cpu: None,
    }
}

/// A state, and the index of its last command.
struct World {
    state: State,
    hosts: HostTable,
    index: u64,
}

impl World {
    fn new(hosts: &[(&str, u32)]) -> Self {
        let mut world = Self {
            state: State::new(),
            hosts: HostTable::default(),
            index: 1,
        };
        for (number, (name, version)) in (100..).zip(hosts) {
            world.plain(Command::RegisterHost {
                host: host(name),
                provider: ProviderId(id(number)),
                report: report(*version),
            });
        }
        world.plain(Command::CreateFlavor(Flavor {
            name: FlavorName::new("pair").unwrap(),
            vcpus: 2,
            memory_mib: 64,
            disk_gib: 1,
            extra_specs: [("hw:cpu_policy".into(), "dedicated".into())].into(),
            ownership: Ownership::default(),
        }));
        world
    }

    fn decide(&self, request: &DecisionRequest) -> Decision {
        let now = TimeMs(1000);
        let slow = decide(&self.state, berth_codec::admit, now, request);
        let fast = decide_with(
            &self.state,
            &mut &self.hosts,
            berth_codec::admit,
            now,
            request,
        );
        assert_eq!(fast.explained(), slow, "the table of hosts decides");
        slow
    }

    /// Decides, and carries out what was decided.
    fn submit(&mut self, request: &DecisionRequest) -> Result<Reply, String> {
        match self.decide(request) {
            Decision::Command(proposal) => {
                self.index += 1;
                let outcome = self.state.speculate(self.index, &proposal.envelope);
                self.state.check().unwrap();
                outcome.map_err(|refusal| refusal.reason)
            }
            Decision::Answer(answer) => Ok(answer.reply),
            Decision::Refuse(refusal) => Err(refusal.reason),
            Decision::Explain(_) => panic!("left unexplained"),
        }
    }

    fn plain(&mut self, command: Command) -> Reply {
        self.submit(&DecisionRequest::new("test", Action::Plain(command)))
            .unwrap()
    }

    /// Boots a VM to the end and returns its claim's host.
    fn boot(&mut self, name: &str, number: u128) -> HostName {
        let Reply::Operation(operation) = self.submit(&boot(name, number)).unwrap() else {
            panic!("a boot is an operation");
        };
        self.advance(&operation, Step::Spawn, Mark::Started, Effect::None);
        self.advance(
            &operation,
            Step::Spawn,
            Mark::Succeeded,
            Effect::CompleteBoot,
        );
        self.state.vm(&vm(name)).unwrap().host.clone().unwrap()
    }

    fn advance(&mut self, operation: &Operation, step: Step, mark: Mark, effect: Effect) {
        self.plain(Command::Advance {
            operation: operation.id,
            epoch: operation.lease.as_ref().unwrap().epoch,
            step,
            mark,
            effect,
        });
    }
}

fn boot(name: &str, number: u128) -> DecisionRequest {
    DecisionRequest::new(
        "test",
        Action::ScheduleVm(ScheduleVm {
            operation: OperationId(id(number)),
            vm: vm(name),
            uid: VmUid(id(number)),
            claim: ClaimId(id(number)),
            flavor: FlavorName::new("pair").unwrap(),
            boot: BootSource::Disk,
            disks: vec![Disk {
                image: Some("i".into()),
                format: DiskFormat::Raw,
                size_gib: 1,
                seed: false,
            }],
            nics: vec![NicRequest {
                plug: NicPlug::Bridge("br0".into()),
                mac: String::new(),
            }],
            image_properties: ImageProperties::default(),
            hints: SchedulingHints::default(),
            volumes: Vec::new(),
            host: None,
            lease: lease(),
            project: None,
            restart: RestartPolicy::default(),
            first_boot: None,
            metadata: Default::default(),
        }),
    )
}

fn migrate(name: &str, number: u128, to: Option<&str>) -> DecisionRequest {
    DecisionRequest::new(
        "test",
        Action::ScheduleMigration(ScheduleMigration {
            transfer: Default::default(),
            operation: OperationId(id(number)),
            migration: MigrationId(id(number)),
            vm: vm(name),
            claim: ClaimId(id(number)),
            host: to.map(host),
            lease: lease(),
        }),
    )
}

fn keyed(request: DecisionRequest, key: u128) -> DecisionRequest {
    DecisionRequest {
        key: Some(RequestKey {
            method: "ScheduleVm".into(),
            id: RequestId(id(key)),
            payload_hash: 7,
        }),
        ..request
    }
}

#[test]
fn a_retry_gets_the_first_answer_where_it_would_be_refused_now() {
    let mut world = World::new(&[("h1", 2)]);
    let request = keyed(boot("a", 1), 50);
    let first = world.submit(&request).unwrap();
    world.boot("b", 2);
    assert_eq!(world.submit(&boot("c", 3)), Err("NO_VALID_HOST".into()));
    assert_eq!(world.submit(&request), Ok(first));
    let Decision::Refuse(refusal) = world.decide(&DecisionRequest {
        key: request.key.clone().map(|key| RequestKey {
            payload_hash: 8,
            ..key
        }),
        ..request
    }) else {
        panic!("another request under the same id");
    };
    assert_eq!(refusal.reason, "REQUEST_ID_REUSED");
}

#[test]
fn an_explanation_is_no_decision() {
    let world = World::new(&[("h1", 2)]);
    let request = DecisionRequest {
        validate_only: true,
        ..keyed(boot("a", 1), 50)
    };
    let Decision::Answer(answer) = world.decide(&request) else {
        panic!("there is room");
    };
    assert_eq!(answer.choice.unwrap().host, host("h1"));
    assert!(world.state.vm(&vm("a")).is_none());
}

/// Goal: the policy holds from the next choice on, and what a client saw of it is compared.
/// Method: small guests on three hosts, spread by default, packed once that is set.
#[test]
fn a_policy_that_is_set_decides_the_next_choice() {
    let mut world = World::new(&[("h1", 2), ("h2", 2), ("h3", 2)]);
    let first = world.boot("a", 1);
    let second = world.boot("b", 2);
    assert_ne!(first, second, "spread: the emptiest host first");
    let set = |generation: Option<u64>, key: &str, value: &str| {
        let settings = vec![Setting::parse(key, value).unwrap()];
        let generation = generation.map(Generation);
        let request = Action::SetPolicy {
            scope: Scope::Cluster,
            settings,
            generation,
        };
        DecisionRequest::new("test", request)
    };
    let Reply::Policy(policy) = world
        .submit(&set(None, "scheduling.hosts", "pack"))
        .unwrap()
    else {
        panic!("a policy");
    };
    assert_eq!(policy.generation, Generation(1));
    assert!([first, second].contains(&world.boot("c", 3)), "packed");
    let stale = world.submit(&set(Some(0), "scheduling.cells", "pack"));
    assert_eq!(stale, Err("POLICY_GENERATION".into()));
    let again = world.submit(&set(Some(1), "scheduling.hosts", "pack"));
    assert_eq!(again, Ok(Reply::Policy(policy)), "the same is no change");
}

/// Goal: what the cluster says of pages holds for guests with CPUs of their own that do not say,
/// from then on, and is written into what they are.
#[test]
fn unset_page_sizes_follow_the_policy() {
    let mut world = World::new(&[("h1", 2)]);
    world.boot("before", 1);
    let settings = vec![Setting::parse("flavor.mem_page_size", "small").unwrap()];
    let request = Action::SetPolicy {
        scope: Scope::Cluster,
        settings,
        generation: None,
    };
    world
        .submit(&DecisionRequest::new("test", request))
        .unwrap();
    world.boot("after", 2);
    let state = &world.state;
    let said = |name| {
        let spec = &state.vm(&vm(name)).unwrap().spec;
        let pages = spec.topology.as_ref().unwrap().cells[0].page_size;
        let key = spec.flavor.extra_specs.get("hw:mem_page_size").cloned();
        (pages, key)
    };
    assert_eq!(said("before"), (PageSize::Unspecified, None));
    assert_eq!(said("after"), (PageSize::Small, Some("small".to_owned())));
}

#[test]
fn interfaces_get_addresses_of_their_own() {
    let mut world = World::new(&[("h1", 2)]);
    world.boot("a", 0x00ab_cdff);
    let spec = &world.state.vm(&vm("a")).unwrap().spec;
    assert_eq!(spec.nics[0].mac, "52:54:00:ab:cd:ff");
}

fn with_nics(request: DecisionRequest, macs: &[&str]) -> DecisionRequest {
    let Action::ScheduleVm(mut params) = request.action else {
        panic!("a boot");
    };
    let nic = |mac: &&str| NicRequest {
        plug: NicPlug::Bridge("br0".into()),
        mac: (*mac).to_owned(),
    };
    params.nics = macs.iter().map(nic).collect();
    DecisionRequest {
        action: Action::ScheduleVm(params),
        ..request
    }
}

/// Two VMs whose uids end alike got one address.
#[test]
fn no_two_interfaces_of_the_cluster_share_an_address() {
    let mut world = World::new(&[("h1", 2), ("h2", 2)]);
    let ends_alike = [0x00ab_cdff, 0x0001_00ab_cdff, 0x0002_00ab_cdff];
    for (name, number) in ["a", "b", "c"].into_iter().zip(ends_alike) {
        world
            .submit(&with_nics(boot(name, number), &["", "", ""]))
            .unwrap();
    }
    let vms = world.state.vms().values();
    let macs: BTreeSet<_> = vms
        .flat_map(|vm| vm.spec.nics.iter().map(|nic| nic.mac.clone()))
        .collect();
    assert_eq!(macs.len(), 9, "{macs:?}");
    assert!(macs.iter().all(|mac| mac.starts_with("52:54:00:")));
}

#[test]
fn an_address_that_another_vm_has_is_refused() {
    let mut world = World::new(&[("h1", 2)]);
    let mac = "02:00:00:00:00:01";
    world.submit(&with_nics(boot("a", 1), &[mac])).unwrap();
    let again = with_nics(boot("b", 2), &["", mac]);
    let Decision::Refuse(refusal) = world.decide(&again) else {
        panic!("a taken address");
    };
    assert_eq!(refusal.reason, "MAC_IN_USE");
    assert_eq!(
        refusal.message,
        "an interface of vm a has MAC address 02:00:00:00:00:01 already"
    );
    assert_eq!(refusal.metadata["vm"], "a");
}

#[test]
fn interfaces_are_bounded() {
    let mut world = World::new(&[("h1", 2)]);
    for count in [17, 255, 256, 257, 1000] {
        let Decision::Refuse(refusal) = world.decide(&with_nics(boot("a", 1), &vec![""; count]))
        else {
            panic!("{count} interfaces");
        };
        assert_eq!(refusal.reason, "INVALID_VM");
        let expected = format!("nics = \"{count}\": at most 16 are allowed");
        assert!(refusal.message.contains(&expected), "{refusal}");
    }
    world.submit(&with_nics(boot("a", 1), &[""; 16])).unwrap();
}

#[test]
fn a_migration_goes_elsewhere_and_only_within_the_cluster() {
    let mut world = World::new(&[("h1", 2), ("h2", 2)]);
    let source = world.boot("a", 1);
    let reason = |outcome: Result<Reply, String>| outcome.unwrap_err();
    assert_eq!(
        reason(world.submit(&migrate("a", 2, Some("h9")))),
        "HOST_NOT_FOUND"
    );
    assert_eq!(reason(world.submit(&migrate("b", 2, None))), "VM_NOT_FOUND");
    assert_eq!(
        reason(world.submit(&migrate("a", 2, Some(source.as_str())))),
        "SAME_HOST"
    );
    world.submit(&migrate("a", 2, None)).unwrap();
    let claim = world.state.claim(ClaimId(id(2))).unwrap();
    assert_ne!(claim.host, source);
    assert_eq!(reason(world.submit(&migrate("a", 3, None))), "VM_BUSY");
}

#[test]
fn a_guest_with_a_topology_does_not_move_to_an_old_agent() {
    let mut world = World::new(&[("h1", 2), ("h2", 1)]);
    if world.boot("a", 1) == host("h2") {
        world.boot("b", 2);
    }
    let on_new = |world: &World, name: &str| {
        let found = world.state.vm(&vm(name)).cloned();
        found.is_some_and(|vm| vm.host == Some(host("h1")))
    };
    let name = if on_new(&world, "a") { "a" } else { "b" };
    let Err(reason) = world.submit(&migrate(name, 3, Some("h2"))) else {
        panic!("the agent is too old");
    };
    assert_eq!(reason, "SERVICE_VERSION_TOO_OLD");
}

#[test]
fn the_next_host_needs_the_lease_and_is_not_the_one_that_refused() {
    let mut world = World::new(&[("h1", 2), ("h2", 2)]);
    let Reply::Operation(operation) = world.submit(&boot("a", 1)).unwrap() else {
        panic!("a boot is an operation");
    };
    let first = world.state.vm(&vm("a")).unwrap().host.clone().unwrap();
    let release = Effect::ReleaseClaim {
        claim: ClaimId(id(1)),
        exclude: true,
    };
    world.advance(&operation, Step::Claim, Mark::Undone, release);
    let next = |epoch: Epoch| {
        let request = Action::ScheduleNext {
            operation: operation.id,
            epoch,
            claim: ClaimId(id(2)),
        };
        DecisionRequest::new("test", request)
    };
    assert_eq!(world.submit(&next(Epoch(99))), Err("STALE_EPOCH".into()));
    let epoch = operation.lease.as_ref().unwrap().epoch;
    world.submit(&next(epoch)).unwrap();
    let second = world.state.vm(&vm("a")).unwrap().host.clone().unwrap();
    assert_ne!(first, second);
}

#[test]
fn what_is_refused_does_not_reach_the_log() {
    let world = World::new(&[("h1", 2)]);
    for command in [
        Command::RemoveHost { host: host("h9") },
        Command::DeleteFlavor {
            flavor: FlavorName::new("none").unwrap(),
        },
    ] {
        let request = DecisionRequest::new("test", Action::Plain(command));
        assert!(matches!(world.decide(&request), Decision::Refuse(_)));
    }
    // What the state refuses is stored with the id of its request, by every member.
    let mut request = keyed(boot("a", 1), 1);
    let Action::ScheduleVm(params) = &mut request.action else {
        panic!("it is a boot");
    };
    let key = |number: u32| format!("{number:02}{}", "\u{10ffff}".repeat(255));
    params.metadata.labels = (0..64).map(|n| (key(n), key(n))).collect();
    let Decision::Refuse(refusal) = world.decide(&request) else {
        panic!("its labels cannot be");
    };
    assert_eq!(refusal.reason, "INVALID_VM");
}

/// Goal: a refusal has the word for the state of its VM, as tables show it, whichever request is refused.
/// Method: what an ACTIVE and a STOPPED VM do not admit.
#[test]
fn refusals_show_the_word_for_a_state() {
    let mut world = World::new(&[("h1", 4), ("h2", 4)]);
    world.plain(Command::FinalizeUpgrade {
        version: ServiceVersion::CURRENT,
        gone: BTreeSet::new(),
    });
    let (active, stopped) = (vm("a"), vm("b"));
    let _ = world.boot("a", 10);
    let _ = world.boot("b", 20);
    let power = |name: &VmName, number: u128, kind| Command::BeginPower {
        operation: OperationId(id(number)),
        vm: name.clone(),
        kind,
        lease: lease(),
        by_policy: false,
    };
    let stop = operation::Kind::Stop { timeout_ms: 0 };
    let Reply::Operation(begun) = world.plain(power(&stopped, 21, stop.clone())) else {
        panic!("a stop is an operation");
    };
    let ended = Effect::EndPower {
        power: GuestPower::Off,
        refusal: None,
    };
    world.advance(&begun, Step::Stop, Mark::Started, Effect::None);
    world.advance(&begun, Step::Stop, Mark::Succeeded, ended);
    let revert = |name: &VmName| Command::BeginRevertResize {
        operation: OperationId(id(30)),
        vm: name.clone(),
        lease: lease(),
    };
    let confirm = |name: &VmName| Command::ConfirmResize {
        vm: name.clone(),
        deleter: None,
    };
    let plain = |command| DecisionRequest::new("test", Action::Plain(command));
    for (request, word) in [
        (plain(revert(&active)), "ACTIVE"),
        (plain(confirm(&active)), "ACTIVE"),
        (plain(revert(&stopped)), "STOPPED"),
        (plain(confirm(&stopped)), "STOPPED"),
        (plain(power(&stopped, 32, stop)), "STOPPED"),
        (migrate("b", 33, None), "STOPPED"),
    ] {
        let Decision::Refuse(refusal) = world.decide(&request) else {
            panic!("{request:?} is not refused");
        };
        let message = &refusal.message;
        assert!(message.contains(&format!(" is {word}")), "{message}");
        assert!(
            !message.contains("Active") && !message.contains("Stopped"),
            "{message}"
        );
    }
}

/// Goal: the plan of a drain claims nothing and is the same when repeated; its moves together give
/// no CPU twice, also beside what is there; and who has nowhere to go is named with the reason.
#[test]
fn a_plan_of_a_drain_adds_up_and_claims_nothing() {
    let mut world = World::new(&[("h1", 2)]);
    let register = |world: &mut World, name: &str, number: u128| {
        world.plain(Command::RegisterHost {
            host: host(name),
            provider: ProviderId(id(number)),
            report: report(2),
        });
    };
    for (number, name) in (10..).zip(["a", "b"]) {
        assert_eq!(world.boot(name, number), host("h1"));
    }
    let plan_of = |world: &World, name: &str| {
        let plan = super::plan_drain(
            &world.state,
            berth_codec::admit,
            TimeMs(2_000),
            &host(name),
            super::DrainOptions::default(),
        );
        plan.expect("a known host")
    };
    let nowhere = plan_of(&world, "h1");
    assert!(nowhere.moves.is_empty());
    let stuck: Vec<_> = nowhere.stuck.iter().map(|s| s.vm.as_str()).collect();
    assert_eq!(stuck, ["a", "b"]);
    for stuck in &nowhere.stuck {
        assert_eq!(stuck.refusal.reason, "NO_VALID_HOST", "{stuck:?}");
    }

    register(&mut world, "h2", 200);
    let plan = plan_of(&world, "h1");
    assert_eq!(plan_of(&world, "h1"), plan, "repeated");
    assert_eq!(world.state.claims_of_host(&host("h2")).count(), 0);
    assert!(plan.stuck.is_empty(), "{plan:?}");
    let mut given = BTreeSet::new();
    for planned in &plan.moves {
        assert_eq!(planned.destination, host("h2"));
        for cpu in planned.assignment.dedicated().iter() {
            assert!(given.insert(cpu), "{cpu} twice: {plan:?}");
        }
    }
    assert_eq!(given.len(), 4, "{plan:?}");

    // Where capacity suffices for one of them only, the other one is named.
    assert_eq!(world.boot("c", 12), host("h2"));
    let plan = plan_of(&world, "h1");
    assert_eq!((plan.moves.len(), plan.stuck.len()), (1, 1), "{plan:?}");
    let state = &world.state;
    let own = state.claims_of_host(&host("h2")).next().unwrap();
    let both = plan.moves[0].assignment.dedicated();
    assert!(both.intersection(&own.assignment.dedicated()).is_empty());
    let unknown = super::plan_drain(
        state,
        berth_codec::admit,
        TimeMs(2_000),
        &host("h9"),
        super::DrainOptions::default(),
    );
    assert_eq!(unknown.unwrap_err().reason, "HOST_NOT_FOUND");
}

/// Goal: by policy the VMs with the highest priority come first, also where there is not enough for all,
/// and those without the policy are not among them.
#[test]
fn a_plan_by_policy_follows_the_priorities() {
    for is_tight in [false, true] {
        let mut world = World::new(&[("h1", 4)]);
        world.plain(Command::FinalizeUpgrade {
            version: ServiceVersion::CURRENT,
            gone: BTreeSet::new(),
        });
        for (number, (name, priority)) in (10..).zip([("a", Some(10)), ("b", Some(90))]) {
            assert_eq!(world.boot(name, number), host("h1"));
            let policy = RestartPolicy {
                on_host_failure: RestartAction::Restart,
                priority: priority.unwrap_or_default(),
                ..RestartPolicy::default()
            };
            let vm = vm(name);
            world.plain(Command::SetRestartPolicy { vm, policy });
        }
        world.plain(Command::RegisterHost {
            host: host("h2"),
            provider: ProviderId(id(200)),
            report: report(4),
        });
        if is_tight {
            assert_eq!(world.boot("c", 12), host("h2"));
        }
        let (dead, liveness) = (host("h1"), Liveness::Down);
        world.plain(Command::SetLiveness {
            host: dead.clone(),
            liveness,
        });
        world.plain(Command::FenceHost {
            host: dead.clone(),
            method: Method::Operator,
            by: "operator:me".to_owned(),
            output: String::new(),
            incarnation: Incarnation(id(1)),
        });
        let options = super::DrainOptions {
            evacuate: true,
            cold: false,
            by_policy: true,
        };
        let at = TimeMs(2_000);
        let plan = |world: &World| {
            let plan = super::plan_drain(&world.state, berth_codec::admit, at, &dead, options);
            plan.expect("it is proven dead")
        };
        let moves = |world: &World| -> Vec<String> {
            let moves = plan(world).moves;
            moves.iter().map(|planned| planned.vm.to_string()).collect()
        };
        let expected: &[&str] = if is_tight { &["b"] } else { &["b", "a"] };
        assert_eq!(moves(&world), expected, "{is_tight}");
        let policy = RestartPolicy::default();
        world.plain(Command::SetRestartPolicy {
            vm: vm("b"),
            policy,
        });
        assert_eq!(moves(&world), ["a"], "{is_tight}");
    }
}

/// Goal: room on the host that is drained is no advice. Method: all room is there, so that a guest of the
/// other host could change places with the one that is to leave.
#[test]
fn no_hint_of_a_drain_moves_something_to_its_host() {
    let mut world = World::new(&[("h1", 2)]);
    assert_eq!(world.boot("a", 10), host("h1"));
    world.plain(Command::RegisterHost {
        host: host("h2"),
        provider: ProviderId(id(200)),
        report: report(2),
    });
    let cordon = |world: &mut World, cordoned| {
        world.plain(Command::SetCordon {
            host: host("h1"),
            cordoned,
        });
    };
    cordon(&mut world, true);
    assert_eq!(world.boot("b", 11), host("h2"));
    assert_eq!(world.boot("c", 12), host("h2"));
    cordon(&mut world, false);
    let options = super::DrainOptions::default();
    let plan = super::plan_drain(
        &world.state,
        berth_codec::admit,
        TimeMs(2_000),
        &host("h1"),
        options,
    );
    let plan = plan.expect("a known host");
    assert_eq!((plan.moves.len(), plan.stuck.len()), (0, 1), "{plan:?}");
    let refusal = &plan.stuck[0].refusal;
    assert_eq!(refusal.reason, "NO_VALID_HOST", "{refusal:?}");
    let advice = format!("{:?} {:?}", refusal.hint, refusal.change);
    assert!(advice.contains("h2") && !advice.contains("h1"), "{advice}");
}

/// Goal: a drain whose host dies and is fenced evacuates the rest: its agent moves nothing any more.
#[test]
fn a_drain_evacuates_once_its_host_is_proven_dead() {
    let mut world = World::new(&[("h1", 4), ("h2", 4)]);
    world.plain(Command::FinalizeUpgrade {
        version: ServiceVersion::CURRENT,
        gone: BTreeSet::new(),
    });
    let from = world.boot("a", 10);
    let drain = OperationId(id(20));
    let begun = world.plain(Command::BeginDrain {
        operation: drain,
        host: from.clone(),
        spec: DrainSpec {
            evacuate: false,
            cold: false,
            parallel: 1,
            by_policy: false,
        },
        by: "operator:me".to_owned(),
        plan: Vec::new(),
        lease: lease(),
    });
    let Reply::Operation(begun) = begun else {
        panic!("a drain is an operation");
    };
    let epoch = begun.lease.as_ref().unwrap().epoch;
    let moved = |number: u128| {
        let params = super::MoveDrained {
            drain,
            epoch,
            vm: vm("a"),
            operation: OperationId(id(number)),
            migration: MigrationId(id(number)),
            claim: ClaimId(id(number)),
            lease: lease(),
        };
        DecisionRequest::new("test", Action::MoveDrained(params))
    };
    let kind = |world: &World, number| {
        let decision = world.decide(&moved(number));
        let Decision::Command(proposal) = decision else {
            panic!("it is not moved: {decision:?}");
        };
        let Command::MoveDrained { begin, .. } = proposal.envelope.command else {
            panic!("no move of a drain");
        };
        match matches!(*begin, Command::BeginMove { evacuate: true, .. }) {
            true => "evacuation",
            false => "live",
        }
    };
    assert_eq!(kind(&world, 30), "live");
    let (host, liveness) = (from.clone(), Liveness::Down);
    world.plain(Command::SetLiveness { host, liveness });
    assert_eq!(kind(&world, 31), "live", "nothing shows that it is dead");
    world.plain(Command::FenceHost {
        host: from,
        incarnation: Incarnation(id(1)),
        method: Method::Operator,
        by: "operator:me".to_owned(),
        output: String::new(),
    });
    assert_eq!(kind(&world, 32), "evacuation");
    world.submit(&moved(33)).unwrap();
}

/// Goal: no change elsewhere is advised for a VM whose host is DOWN, since nothing moves it from there. Method:
/// the only other host is cordoned.
#[test]
fn no_hint_moves_a_vm_from_a_host_that_is_down() {
    let mut world = World::new(&[("h1", 4), ("h2", 4)]);
    let from = world.boot("a", 10);
    let other = host(if from == host("h1") { "h2" } else { "h1" });
    world.plain(Command::SetCordon {
        host: other,
        cordoned: true,
    });
    let advice = |world: &World| {
        let Decision::Refuse(refusal) = world.decide(&migrate("a", 20, None)) else {
            panic!("no host is open");
        };
        refusal.hint.is_some() || refusal.change.is_some()
    };
    assert!(advice(&world), "the other host is uncordoned");
    let liveness = Liveness::Down;
    world.plain(Command::SetLiveness {
        host: from,
        liveness,
    });
    assert!(!advice(&world));
}
