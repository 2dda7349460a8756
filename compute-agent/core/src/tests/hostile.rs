//! Goal: row B1 of the attacks. Reads and refused calls change nothing, in every method that the
//! service has: neither what is remembered of calls nor the guests. An epoch that is stored for a
//! hostile caller would stop the calls of everyone else.
//!
//! Method: every method of the descriptors has an entry here; a hostile caller repeats it with the
//! greatest epochs, for its own, other and unknown VMs, and everything that is remembered is compared.

use berth_domain::agent::{Call, DiskSource, FetchDisks, Side};
use berth_domain::id::{Epoch, Incarnation, VmUid};
use berth_domain::instance::PageSize;
use berth_driver::conformance::sample;
use berth_process::access::table;
use berth_tls::Role;
use prost::Message as _;
use prost_types::{FileDescriptorSet, MethodDescriptorProto};
use uuid::Uuid;

use super::rig::{Guest, Rig, host, migration};
use crate::{CallId, Event};

/// More VMs than are remembered: what is dropped would raise the floor for all others.
const UNKNOWN_VMS: u128 = 4_200;

/// The greatest epoch that is still greater than another.
const HUGE: Epoch = Epoch(u64::MAX - 1);

const SERVICE: &str = "berth.agent.v1.ComputeAgentService";

/// How far a method comes.
enum Reach {
    /// Answered from the driver or from facts; the core has no event for it.
    Driver,
    /// The core compares the fence, and stores nothing.
    Read,
    /// A fenced call.
    Call(Box<Call>),
}

/// Returns how far a method comes; nothing for one that is not considered here.
fn reach(method: &str, rig: &Rig, guest: &Guest) -> Option<Reach> {
    let (h1, h2) = (host("h1"), host("h2"));
    let migration = migration(1);
    let on = || sample::pins(0, &[1], None);
    let claim = || guest.claim(&h1, on());
    let (vm, spec) = (guest.vm.clone(), guest.spec.clone());
    let image = "new".to_owned();
    let call = match method {
        "GetAgentInfo" | "ListDomains" | "ReadConsole" | "AttachConsole" | "GetTransfer"
        | "WaitTransfer" | "CheckHost" | "PutImage" | "DownloadImage" | "FetchImage"
        | "ReadImage" => {
            return Some(Reach::Driver);
        }
        "ReadDisks" => return Some(Reach::Read),
        "SpawnVm" => guest.spawn_call(&h1, on()),
        "DestroyVm" => Call::DestroyVm,
        "GetDomain" => Call::GetDomain,
        "CheckCanLiveMigrateDestination" => Call::CheckCanLiveMigrateDestination {
            migration,
            vm,
            spec,
        },
        "CheckCanLiveMigrateSource" => Call::CheckCanLiveMigrateSource {
            migration,
            destination: berth_domain::agent::DestinationCheck {
                bridges: Vec::new(),
                migration_uri: "sim://h2".to_owned(),
                storage_id: "shared".to_owned(),
                driver: "sim".to_owned(),
                shared_cpus: berth_domain::cpu_set::CpuSet::default(),
                tls: None,
            },
        },
        "FitLiveMigration" => Call::FitLiveMigration {
            migration,
            migrate_data: data(guest),
        },
        "PreLiveMigration" => Call::PreLiveMigration {
            migration,
            migrate_data: data(guest),
        },
        "LiveMigration" => Call::LiveMigration {
            migration,
            migrate_data: data(guest),
        },
        "RollbackLiveMigrationAtDestination" => Call::RollbackLiveMigrationAtDestination {
            migration,
            keep_disks: false,
        },
        "PostLiveMigrationAtSource" => Call::PostLiveMigrationAtSource { migration },
        "StopVm" => guest.stop_call(0, true),
        "StartVm" => guest.start_call(&h1, on()),
        "SettleVm" => Call::SettleVm,
        "AbortLiveMigration" => Call::AbortLiveMigration { migration },
        "ForceCompleteLiveMigration" => Call::ForceCompleteLiveMigration {
            migration,
            post_copy: false,
        },
        "MakeDisks" => Call::MakeDisks {
            vm,
            spec,
            claim: claim(),
        },
        "CopyDisk" => Call::CopyDisk {
            vm,
            spec,
            disk: 0,
            image,
        },
        "PublishImage" => Call::PublishImage { image },
        "DropImage" => Call::DropImage { image },
        "FetchDisks" => Call::FetchDisks(Box::new(FetchDisks {
            migration,
            vm,
            spec,
            claim: claim(),
            source: DiskSource {
                address: "http://h2:7300".to_owned(),
                incarnation: rig.fence(&h2, guest).incarnation,
                host: h2,
            },
            bandwidth_mib_per_s_max: None,
            timeout_ms: None,
        })),
        "DropDisks" => Call::DropDisks {
            migration,
            side: Side::Source,
            claim: claim().id,
        },
        _ => return None,
    };
    Some(Reach::Call(Box::new(call)))
}

fn data(guest: &Guest) -> berth_domain::migration::MigrateData {
    berth_domain::migration::MigrateData {
        destination_bridges: Vec::new(),
        vm: guest.vm.clone(),
        vm_uid: guest.uid,
        spec: guest.spec.clone(),
        destination_uri: "sim://h2".to_owned(),
        destination_shared: berth_domain::cpu_set::CpuSet::default(),
        numa_topology: None,
        claim: None,
        source_pci: Vec::new(),
        transfer: berth_domain::transfer::TransferPolicy::default(),
        disk_copies: Vec::new(),
        tls: false,
    }
}

/// Returns the methods of the service as it is described.
fn methods() -> Vec<MethodDescriptorProto> {
    let described = FileDescriptorSet::decode(berth_proto::DESCRIPTOR_SET).unwrap();
    let file = |file: &&prost_types::FileDescriptorProto| file.package() == "berth.agent.v1";
    let services = described.file.iter().filter(file).flat_map(|f| &f.service);
    let service = services
        .into_iter()
        .find(|s| s.name() == "ComputeAgentService");
    service.expect("it is described").method.clone()
}

/// Returns whether the request of a method has a fence.
fn is_fenced(method: &MethodDescriptorProto) -> bool {
    let described = FileDescriptorSet::decode(berth_proto::DESCRIPTOR_SET).unwrap();
    let messages = described.file.into_iter().flat_map(|f| {
        let package = f.package().to_owned();
        let message =
            move |m: prost_types::DescriptorProto| (format!(".{package}.{}", m.name()), m);
        f.message_type.into_iter().map(message)
    });
    let input = messages.into_iter().find(|(n, _)| n == method.input_type());
    let (_, input) = input.expect("its request is described");
    input.field.iter().any(|field| field.name() == "fence")
}

/// A host with a running guest under epoch 5.
fn running() -> (Rig, Guest) {
    let spec = sample::pinned_spec(1, PageSize::Unspecified);
    let (mut rig, guest) = (Rig::new(&[4, 4]), Guest::new("a", 4321, spec).under(1, 5));
    let on = sample::pins(0, &[1], None);
    rig.spawn(&host("h1"), &guest, on).unwrap();
    (rig, guest)
}

/// Returns everything that a call could change.
fn remembered(rig: &Rig) -> String {
    let agent = &rig.agents[&host("h1")];
    format!("{:?} {:?} {:?}", agent.fences, agent.guests, agent.queues)
}

#[test]
fn every_method_is_considered_and_only_conductors_reach_the_fences() {
    let (rig, guest) = running();
    let methods = methods();
    assert!(methods.len() >= 27, "{}", methods.len());
    for method in &methods {
        let name = method.name();
        let reach = reach(name, &rig, &guest);
        let reach = reach.unwrap_or_else(|| panic!("{name} has no entry in this test"));
        let is_driver = matches!(reach, Reach::Driver);
        assert_eq!(is_driver, !is_fenced(method), "{name}");
        let raises = matches!(reach, Reach::Call(_));
        for role in table::roles(&format!("{SERVICE}/{name}")) {
            assert!(
                !raises || role == Role::Conductor,
                "{role} may call {name}, which raises fences"
            );
        }
    }
}

#[test]
fn reads_of_a_rogue_agent_change_nothing() {
    let (mut rig, guest) = running();
    let h1 = host("h1");
    let before = remembered(&rig);
    let own = rig.fence(&h1, &guest);
    let other_run = Incarnation(Uuid::from_u128(77));
    let mut id = u64::MAX;
    let mut read = |rig: &mut Rig, fence| {
        id -= 1;
        let id = CallId(id);
        rig.step(&h1, Event::Read { id, fence });
        rig.answer(id)
    };
    for epoch in [Epoch(0), Epoch(5), HUGE, Epoch(u64::MAX)] {
        for incarnation in [own.incarnation, other_run] {
            let mut fence = own;
            fence.epoch = epoch;
            fence.incarnation = incarnation;
            let refused = read(&mut rig, fence).unwrap_err();
            let shown = format!("{refused:?}");
            assert!(!shown.contains(&own.incarnation.to_string()), "{shown}");
        }
    }
    for vm in 0..UNKNOWN_VMS {
        let mut fence = own;
        fence.vm = VmUid(Uuid::from_u128(1 << 64 | vm));
        fence.epoch = HUGE;
        let _ = read(&mut rig, fence);
    }
    assert_eq!(remembered(&rig), before);
    // Neither the guest nor one that is not known yet is out of reach of its conductor.
    let later = guest.under(2, 6);
    rig.call(&h1, &later, later.stop_call(0, false)).unwrap();
    let new = Guest::new("b", 2, guest.spec.clone());
    rig.spawn(&h1, &new, sample::pins(0, &[2], None)).unwrap();
}

/// Method: every fenced call with an incarnation or an epoch of others, and while as many calls wait
/// as may.
#[test]
fn refused_calls_change_nothing() {
    let (mut rig, guest) = running();
    let h1 = host("h1");
    let own = rig.fence(&h1, &guest);
    let mut busy = Rig::new(&[4, 4]);
    let late = berth_driver::sim::Behaviour::Late { by_ms: 1_000 };
    busy.world.script(&h1, berth_driver::Kind::Create, [late]);
    for _ in 0..17 {
        busy.begin(
            &h1,
            &guest,
            guest.spawn_call(&h1, sample::pins(0, &[1], None)),
        );
    }
    let mut count = 0;
    for method in methods() {
        let name = method.name();
        let Some(Reach::Call(call)) = reach(name, &rig, &guest) else {
            continue;
        };
        count += 1;
        for vm in [guest.uid, VmUid(Uuid::from_u128(99))] {
            let mut other_run = own;
            (other_run.vm, other_run.epoch) = (vm, HUGE);
            other_run.incarnation = Incarnation(Uuid::from_u128(77));
            let before = remembered(&rig);
            let id = rig.begin_with(&h1, other_run, (*call).clone());
            let refused = rig.answered(id).unwrap().clone().unwrap_err();
            assert_eq!(refused.reason, "STALE_INCARNATION", "{name}");
            let shown = format!("{refused:?}");
            assert!(!shown.contains(&own.incarnation.to_string()), "{shown}");
            assert_eq!(remembered(&rig), before, "{name}");
        }
        let before = remembered(&rig);
        let mut earlier = own;
        earlier.epoch = Epoch(4);
        let id = rig.begin_with(&h1, earlier, (*call).clone());
        let refused = rig.answered(id).unwrap().clone().unwrap_err();
        assert_eq!(refused.reason, "STALE_EPOCH", "{name}");
        assert_eq!(remembered(&rig), before, "{name}");
        // The conductor's query passes those that wait.
        if name == "GetDomain" {
            continue;
        }
        let before = remembered(&busy);
        let mut fence = busy.fence(&h1, &guest);
        fence.epoch = HUGE;
        let id = busy.begin_with(&h1, fence, *call);
        let refused = busy.answered(id).unwrap().clone().unwrap_err();
        assert_eq!(refused.reason, "AGENT_BUSY", "{name}");
        assert_eq!(remembered(&busy), before, "{name}");
    }
    assert!(count >= 20, "{count}");
}
