//! Commands made by hand: those that no drawn sequence holds.
//!
//! Together with the drawn sequences they are one of every kind, which a test of the store's codec
//! holds.

use berth_domain::agent::DomainState;
use berth_domain::aggregate::{Aggregate, AggregateChange};
use berth_domain::id::{
    AggregateId, ClaimId, ClusterId, Epoch, Generation, Incarnation, ProviderId, TimeMs,
};
use berth_domain::name::{AggregateName, RegionName, ServerGroupName};
use berth_domain::numa::Assignment;
use berth_domain::ownership::Ownership;
use berth_domain::reality::Unknown;
use berth_domain::recovery::ReportedGuest;
use berth_domain::resource::Trait;
use berth_domain::server_group::{GroupPolicy, ServerGroup};
use berth_domain::service::Service;
use berth_domain::topology::CellId;
use berth_domain::version::ServiceVersion;
use berth_domain::volume::{
    DeviceMode, DisplayName, Extent, Kind as VolumeKind, Outcome, Parameters, Phase, Region,
    Replica, Report, Volume,
};
use berth_state::command::Command;

use super::placement::{
    after, class, consumer, new_class, new_trait, place, provider, quality, update,
};
use super::{
    conductor, flavor, host_name, image, image_content, network, operation_id, pci_alias, pinned,
    report, revoked_certificate, topology, uuid,
};

fn aggregate(name: &str) -> Aggregate {
    Aggregate {
        name: AggregateName::new(name).unwrap(),
        id: AggregateId(uuid(50, 1)),
        hosts: Default::default(),
        metadata: [("disk".to_owned(), "ssd".to_owned())].into(),
        generation: Generation(0),
        created_at: TimeMs(0),
    }
}

fn server_group(name: &str) -> ServerGroup {
    let name = ServerGroupName::new(name).unwrap();
    ServerGroup::new(name, GroupPolicy::AntiAffinity, Some(3)).unwrap()
}

/// Returns a guest as its host reports it.
pub fn guest(number: u64) -> ReportedGuest {
    ReportedGuest {
        domain: Unknown {
            uuid: uuid(4, number),
            name: format!("guest{number}"),
            is_ours: true,
            claim: Some(ClaimId(uuid(3, number))),
            held: Assignment::default(),
        },
        state: DomainState::Running,
        spec: Some(Box::new(pinned(1))),
    }
}

/// Returns the commands that the drawn sequences never hold.
pub fn commands() -> Vec<Command> {
    let service = Service {
        name: conductor("c1"),
        address: "http://127.0.0.1:7200".to_owned(),
        version: ServiceVersion::CURRENT,
        registered_at: TimeMs(1),
    };
    vec![
        Command::Bootstrap {
            cluster: ClusterId(uuid(30, 1)),
        },
        Command::RegisterService(service),
        Command::ReportGuests {
            host: host_name("h1"),
            incarnation: Incarnation(uuid(8, 1)),
            basis: 1,
            guests: vec![guest(1)],
        },
        Command::EndRecovery {
            accept_conflicts: true,
        },
        Command::DeleteFlavor {
            flavor: flavor("a", 1, 1, &[]).name,
        },
        Command::CreatePciAlias(pci_alias("nic")),
        Command::CreatePciAlias(pci_alias("gpu")),
        Command::DeletePciAlias {
            alias: pci_alias("gpu").name,
        },
        Command::CreateNetwork(network("by-hand")),
        Command::CreateNetwork(network("other")),
        Command::DeleteNetwork {
            network: network("other").name,
        },
        Command::CreateImage(image("debian")),
        Command::CompleteImage {
            image: image("debian").name,
            uid: image("debian").uid,
            content: image_content(),
            host: host_name("h1"),
        },
        Command::SetImageCopy {
            image: image("debian").name,
            uid: image("debian").uid,
            host: host_name("h2"),
            present: true,
        },
        Command::CreateImage(image("golden")),
        Command::DeleteImage {
            image: image("golden").name,
            uid: None,
        },
        Command::SetTraits {
            provider: ProviderId(uuid(20, 0)),
            generation: Generation(3),
            traits: ["CUSTOM_B", "CUSTOM_A"]
                .map(|t| Trait::new(t).unwrap())
                .into(),
        },
        Command::SetAllocations {
            consumers: Vec::new(),
        },
        new_class("CUSTOM_HAND"),
        new_trait("CUSTOM_HAND"),
        Command::RenameClass {
            from: class("CUSTOM_B"),
            to: class("CUSTOM_A"),
        },
        Command::DeleteClass {
            class: class("CUSTOM_A"),
        },
        Command::DeleteTrait {
            name: quality("CUSTOM_A"),
        },
        Command::DeleteAllocations {
            consumer: consumer(0),
        },
        Command::DeleteTraits {
            provider: provider(0),
        },
        place(0, None, true),
        place(1, Some(0), false),
        Command::Reshape {
            inventories: [after(1, 3, &[("VCPU", 2)]), after(0, 0, &[])].into(),
            consumers: vec![update(2, None, &[(1, "VCPU", 1)])],
        },
        Command::Batch {
            writes: vec![new_trait("CUSTOM_BATCH"), place(1, Some(0), true)],
        },
        Command::Batch { writes: Vec::new() },
        Command::CreateServerGroup(server_group("by-hand")),
        Command::CreateAggregate(aggregate("by-hand")),
        Command::UpdateAggregate {
            aggregate: aggregate("by-hand").name,
            change: AggregateChange {
                add_hosts: [host_name("h1")].into(),
                remove_hosts: [host_name("h2")].into(),
                set: aggregate("other").metadata,
                unset: ["disk".to_owned()].into(),
                generation: Some(Generation(3)),
            },
        },
        Command::DeleteAggregate {
            aggregate: aggregate("by-hand").name,
        },
        Command::DeleteServerGroup {
            group: server_group("missing").name,
        },
        Command::RenewLeases {
            conductor: conductor("c1"),
            leases: vec![(operation_id(1), Epoch(7))],
            ttl_ms: 1,
        },
        Command::FinalizeUpgrade {
            version: ServiceVersion::CURRENT,
            gone: [conductor("c2"), conductor("c3")].into(),
        },
        Command::ReplaceGrantKey {
            number: 1,
            seed: berth_domain::grant::GrantSeed([7; 32]),
        },
        Command::RevokeCertificate(revoked_certificate(1)),
        Command::RevokeCertificate(revoked_certificate(2)),
        Command::RevokeCertificate(revoked_certificate(2)),
        Command::RevokeCertificate(revoked_certificate(3)),
        Command::ReinstateCertificate {
            fingerprint: revoked_certificate(2).fingerprint,
        },
        Command::UnregisterService {
            service: conductor("c1"),
        },
        Command::WriteOffPmem {
            host: host_name("h1"),
            namespace: "ns0".parse().unwrap(),
        },
        host_with_a_region(),
        Command::CreateVolume {
            volume: Box::new(volume(VolumeKind::Persistent)),
            limit_bytes: 1 << 30,
        },
        Command::NoteVolumes {
            host: host_name("hv"),
            incarnation: Incarnation(uuid(9, 1)),
            reports: outcomes_of_volumes(),
        },
        Command::DeleteVolume {
            volume: volume(VolumeKind::Cache).id,
            generation: Some(Generation(7)),
            forget: true,
        },
    ]
}

fn host_with_a_region() -> Command {
    let region = Region {
        name: RegionName::new("region0").unwrap(),
        cell: Some(CellId(1)),
        mode: DeviceMode::Direct,
        capacity_bytes: 8 << 30,
        align_bytes: 1 << 30,
        foreign: vec![Extent {
            offset_bytes: 0,
            length_bytes: 1 << 30,
        }],
        trouble: String::new(),
    };
    let mut report = report(topology(2, 3, 1));
    report.regions = vec![region];
    Command::RegisterHost {
        host: host_name("hv"),
        provider: ProviderId(uuid(2, 4711)),
        report,
    }
}

fn volume(kind: VolumeKind) -> Volume {
    let display_name = DisplayName::new("pvc 1/ü").unwrap();
    let replica = Replica {
        host: host_name("hv"),
        region: RegionName::new("region0").unwrap(),
        cell: Some(CellId(1)),
        mode: DeviceMode::Direct,
        gross_bytes: 2 << 30,
        size_bytes: 2_113_929_216,
        extent: Some(Extent {
            offset_bytes: 1 << 30,
            length_bytes: 2 << 30,
        }),
        placed: false,
        phase: Phase::Creating,
        sequence: 0,
        erased_bytes: 0,
        failure: String::new(),
        failures: 0,
    };
    Volume {
        id: display_name.id(uuid(7, 1)),
        display_name,
        kind,
        required_bytes: 1 << 30,
        parameters: Parameters {
            erase_after: false,
            kata_containers: true,
        },
        replicas: vec![replica],
        created_at: TimeMs(0),
        generation: Generation(0),
        ownership: Ownership::default(),
    }
}

/// Everything that an agent can say of one.
fn outcomes_of_volumes() -> Vec<Report> {
    let why = || "no space left".to_owned();
    let extent = Extent {
        offset_bytes: 3 << 30,
        length_bytes: 2 << 30,
    };
    let all = [
        Outcome::Delayed { why: why() },
        Outcome::Created {
            size_bytes: 5,
            extent: Some(extent),
        },
        Outcome::Failed { why: why() },
        Outcome::Erasing { erased_bytes: 7 },
        Outcome::Deleted,
    ];
    let volume = volume(VolumeKind::Persistent).id;
    let report = |outcome| Report {
        volume: volume.clone(),
        outcome,
    };
    all.map(report).into()
}
