//! Arbitrary domain values within their invariants. They need not make sense together: a claim
//! may be of a host that does not exist.

pub(crate) mod agent;
pub(crate) mod image;
pub(crate) mod network;
mod operation;
mod placement;
pub(crate) mod pmem;
mod policy;
mod reality;
pub(crate) mod signals;
pub(crate) mod transfer;
pub(crate) mod volume;

pub(crate) use operation::*;
pub(crate) use placement::*;
pub(crate) use policy::*;
pub(crate) use reality::*;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use berth_domain::aggregate::Aggregate;
use berth_domain::allocation::{Consumer, ConsumerGeneration, ConsumerUpdate, Resources};
use berth_domain::claim::{self, Claim, Owner};
use berth_domain::cpu_model::{CpuMode, GuestCpu, HostCpu};
use berth_domain::cpu_set::{CpuId, CpuSet};
use berth_domain::cpu_shape::CpuShape;
use berth_domain::first_boot::FirstBoot;
use berth_domain::flavor::Flavor;
use berth_domain::host::{Host, HostReport, Liveness};
use berth_domain::id::{
    ClaimId, ConsumerId, Epoch, Generation, Incarnation, MigrationId, OperationId, ProviderId,
    TimeMs, VmUid,
};
use berth_domain::image::ImageProperties;
use berth_domain::import::{ConsumerImport, Origin, ProviderImport};
use berth_domain::instance::{
    CpuPolicy, EmulatorThreads, InstanceCell, InstanceNumaTopology, InstanceTopology, PageSize,
    ThreadPolicy, VcpuId,
};
use berth_domain::inventory::Inventory;
use berth_domain::migration::{self, Migration};
use berth_domain::name::{
    AggregateName, CpuFeature, CpuModelName, CpuVendor, FlavorName, HostName, PciAliasName,
    ServerGroupName, ServiceName, VmName, VolumeId, ZoneName,
};
use berth_domain::numa::{self, Assignment, CellAssignment};
use berth_domain::operation::{
    Drain, DrainSpec, DrainedVm, Effect, Entry, GuestPower, Kind, Lease, Mark, Operation, Outcome,
    PlannedPlace, Progress, Step, Subject,
};
use berth_domain::overcommit::AllocationRatio;
use berth_domain::ownership::{Ownership, ProjectName};
use berth_domain::pci::{
    PciAddress, PciAlias, PciAliases, PciDevice, PciId, PciKind, PciMatch, PciNumaPolicy,
    PciRequest,
};
use berth_domain::platform::{Architecture, HypervisorType, Platform};
use berth_domain::policy::{DefaultPages, SchedulingPolicy, WEIGHT_MAX, Weights};
use berth_domain::provider::ResourceProvider;
use berth_domain::refusal::{Code, HostRefusal, Missing, Refusal};
use berth_domain::resource::{ConsumerType, ResourceClass, Trait};
use berth_domain::revocation::{Fingerprint, RevokedCertificate};
use berth_domain::server_group::{GroupPolicy, PER_HOST_MAX, ServerGroup};
use berth_domain::service::Service;
use berth_domain::topology::{
    CellId, FarMemory, HostCell, HostTopology, MEMORY_MIB_MAX, PagePool, SocketId,
};
use berth_domain::version::ServiceVersion;
use berth_domain::vm::{
    self, AttachedAs, BootSource, Disk, DiskFormat, Nic, SchedulingHints, Vm, VmSpec,
    VolumeAttachment,
};
use berth_proto::convert::operation::Advance;
use proptest::collection::{btree_map, btree_set, vec};
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;
use uuid::Uuid;

const NAME: &str = "[a-zA-Z0-9][a-zA-Z0-9._-]{0,12}";
const TEXT: &str = "\\PC{0,12}";

fn id<I: From<Uuid> + std::fmt::Debug>() -> impl Strategy<Value = I> {
    any::<u128>().prop_map(|n| I::from(Uuid::from_u128(n)))
}

fn host_name() -> impl Strategy<Value = HostName> {
    NAME.prop_map(|n| HostName::new(&n).unwrap())
}

fn vm_name() -> impl Strategy<Value = VmName> {
    NAME.prop_map(|n| VmName::new(&n).unwrap())
}

fn service_name() -> impl Strategy<Value = ServiceName> {
    NAME.prop_map(|n| ServiceName::new(&n).unwrap())
}

fn time() -> impl Strategy<Value = TimeMs> {
    any::<u64>().prop_map(TimeMs)
}

fn generation() -> impl Strategy<Value = Generation> {
    any::<u64>().prop_map(Generation)
}

fn epoch() -> impl Strategy<Value = Epoch> {
    any::<u64>().prop_map(Epoch)
}

fn version() -> impl Strategy<Value = ServiceVersion> {
    any::<u32>().prop_map(ServiceVersion)
}

fn cpus() -> impl Strategy<Value = CpuSet> {
    vec(0_u32..=8191, 0..6).prop_map(|cpus| cpus.into_iter().map(CpuId).collect())
}

fn class() -> impl Strategy<Value = ResourceClass> {
    "[A-Z][A-Z0-9_]{0,12}".prop_map(|n| ResourceClass::new(&n).unwrap())
}

fn resources() -> impl Strategy<Value = Resources> {
    btree_map(class(), any::<u64>(), 0..4)
}

fn texts() -> impl Strategy<Value = BTreeMap<String, String>> {
    btree_map(TEXT, TEXT, 0..4)
}

pub(crate) fn topology() -> impl Strategy<Value = HostTopology> {
    let pool = (1_u64..9, any::<u32>(), any::<u32>());
    let cell = (
        option::of(any::<u32>()),
        vec((any::<bool>(), 1_u32..3), 0..4),
        0..=MEMORY_MIB_MAX,
        vec(pool, 0..3),
    );
    let devices = vec((pci_device(), any::<prop::sample::Index>()), 0..4);
    let namespaces = pmem::namespaces();
    let far = vec((1_u32..5, 0..=MEMORY_MIB_MAX), 0..3);
    let all = (vec((1_u32..5, cell), 1..4), devices, namespaces, far);
    all.prop_map(|(cells, devices, namespaces, far)| {
        let (mut id, mut cpu) = (0, 0);
        let count = cells.len();
        let cells = cells
            .into_iter()
            .map(|(skip, (socket, cores, memory, pools))| {
                id += skip;
                let mut cell = HostCell {
                    id: CellId(id),
                    socket: socket.map(SocketId),
                    shared: CpuSet::new(),
                    dedicated: CpuSet::new(),
                    cores: Vec::new(),
                    memory_mib: memory,
                    pages: Vec::new(),
                };
                for (dedicated, threads) in cores {
                    let core: CpuSet = (cpu..cpu + threads).map(CpuId).collect();
                    cpu += threads;
                    let cpus = if dedicated {
                        &mut cell.dedicated
                    } else {
                        &mut cell.shared
                    };
                    cpus.extend(core.iter());
                    cell.cores.push(core);
                }
                let mut size_kib = 0;
                for (step, total, reserved) in pools {
                    size_kib += step;
                    let (total, reserved) = (total.max(reserved), total.min(reserved));
                    cell.pages.push(PagePool {
                        size_kib,
                        total: total.into(),
                        reserved: reserved.into(),
                    });
                }
                cell
            });
        let cells: Vec<_> = cells.collect();
        let ids: Vec<_> = cells.iter().map(|c| c.id).collect();
        let devices: BTreeMap<_, _> = devices
            .into_iter()
            .map(|(mut device, at)| {
                device.cell = Some(ids[at.index(count)]);
                (device.address, device)
            })
            .collect();
        let has_memory = cells.iter().any(|cell| cell.memory_mib > 0);
        let far = far.into_iter().filter(|_| has_memory);
        let far = far.map(|(skip, memory_mib)| {
            id += skip;
            FarMemory {
                id: CellId(id),
                memory_mib,
            }
        });
        let far = far.collect();
        HostTopology::new(cells, vec![vec![10; count]; count])
            .and_then(|topology| topology.with_pci(devices.into_values().collect()))
            .and_then(|topology| topology.with_pmem(namespaces))
            .and_then(|topology| topology.with_far_memory(far))
            .unwrap()
    })
}

pub(crate) fn wish() -> impl Strategy<Value = InstanceTopology> {
    let page_size = prop_oneof![
        select(vec![
            PageSize::Unspecified,
            PageSize::Small,
            PageSize::Large,
            PageSize::Any,
        ]),
        any::<u64>().prop_map(PageSize::Kib),
    ];
    let vcpus = || btree_set(any::<u32>().prop_map(VcpuId), 0..4);
    let cpus = (cpu_policy(), vcpus(), vcpus());
    let thread_policy = select(vec![
        ThreadPolicy::Prefer,
        ThreadPolicy::Isolate,
        ThreadPolicy::Require,
    ]);
    let cell = (
        cpus,
        thread_policy,
        0..=berth_domain::topology::MEMORY_MIB_MAX,
        page_size,
    )
        .prop_map(
            |((cpu_policy, shared, dedicated), thread_policy, memory_mib, page_size)| {
                InstanceCell {
                    id: 0,
                    cpu_policy,
                    thread_policy,
                    shared: match cpu_policy {
                        CpuPolicy::Shared | CpuPolicy::Mixed => shared,
                        CpuPolicy::Dedicated => BTreeSet::new(),
                    },
                    dedicated: match cpu_policy {
                        CpuPolicy::Dedicated | CpuPolicy::Mixed => dedicated,
                        CpuPolicy::Shared => BTreeSet::new(),
                    },
                    memory_mib,
                    page_size,
                }
            },
        );
    let emulator_threads = select(vec![
        EmulatorThreads::Unspecified,
        EmulatorThreads::Isolate,
        EmulatorThreads::Share,
    ]);
    let cells = btree_map(any::<u32>(), cell, 1..4);
    (cells, emulator_threads, vcpus(), any::<bool>()).prop_map(
        |(cells, emulator_threads, realtime, locked_memory)| InstanceTopology {
            cells: cells
                .into_iter()
                .map(|(id, cell)| InstanceCell { id, ..cell })
                .collect(),
            emulator_threads,
            realtime,
            locked_memory,
        },
    )
}

fn cpu_policy() -> impl Strategy<Value = CpuPolicy> {
    select(vec![
        CpuPolicy::Shared,
        CpuPolicy::Dedicated,
        CpuPolicy::Mixed,
    ])
}

fn pci_kind() -> impl Strategy<Value = PciKind> {
    select(vec![PciKind::Pci, PciKind::Virtual, PciKind::Physical])
}

fn pci_address() -> impl Strategy<Value = PciAddress> {
    (any::<u32>(), any::<u8>(), 0_u8..32, 0_u8..8).prop_map(|(domain, bus, slot, function)| {
        let text = format!("{domain:04x}:{bus:02x}:{slot:02x}.{function:x}");
        text.parse().unwrap()
    })
}

fn tags() -> impl Strategy<Value = BTreeMap<String, String>> {
    btree_map(TEXT, TEXT, 0..3)
}

fn pci_device() -> impl Strategy<Value = PciDevice> {
    let ids = (any::<u16>(), any::<u16>());
    let parent = option::of(pci_address());
    (pci_address(), ids, pci_kind(), parent, tags()).prop_map(
        |(address, (vendor, product), kind, parent, tags)| PciDevice {
            address,
            vendor: PciId(vendor),
            product: PciId(product),
            cell: None,
            kind,
            parent: parent.filter(|_| kind == PciKind::Virtual),
            tags,
        },
    )
}

fn pci_match() -> impl Strategy<Value = PciMatch> {
    let id = || option::of(any::<u16>().prop_map(PciId));
    (id(), id(), option::of(pci_kind()), tags()).prop_map(|(vendor, product, kind, tags)| {
        PciMatch {
            vendor,
            product,
            kind,
            tags,
        }
    })
}

pub(crate) fn pci_request() -> impl Strategy<Value = PciRequest> {
    let policy = select(vec![
        PciNumaPolicy::Required,
        PciNumaPolicy::Preferred,
        PciNumaPolicy::Legacy,
        PciNumaPolicy::Socket,
    ]);
    (1_u32..4096, vec(pci_match(), 1..3), policy).prop_map(|(count, any_of, policy)| PciRequest {
        count,
        any_of,
        policy,
    })
}

pub(crate) fn assignment() -> impl Strategy<Value = Assignment> {
    let pins = btree_map(
        any::<u32>().prop_map(VcpuId),
        (0_u32..=8191).prop_map(CpuId),
        0..4,
    );
    let cell = (
        any::<u32>(),
        pins,
        any::<u32>(),
        cpus(),
        0..=berth_domain::topology::MEMORY_MIB_MAX,
        option::of(any::<u64>()),
        cpus(),
    );
    let cells = btree_map(any::<u32>(), cell, 0..3);
    let pci = vec(btree_set(pci_address(), 0..3), 0..3);
    (cells, cpus(), pci, pmem::devices()).prop_map(|(cells, emulator, pci, pmem)| Assignment {
        cells: cells
            .into_iter()
            .map(
                |(
                    guest_cell,
                    (host_cell, pins, shared_vcpus, floating, memory_mib, size, idle),
                )| {
                    CellAssignment {
                        guest_cell,
                        host_cell: CellId(host_cell),
                        pins,
                        idle,
                        shared_vcpus,
                        floating,
                        memory_mib,
                        page_size_kib: size,
                    }
                },
            )
            .collect(),
        emulator,
        pci,
        pmem,
    })
}

pub(crate) fn numa_topology() -> impl Strategy<Value = InstanceNumaTopology> {
    (wish(), assignment()).prop_map(|(requested, assignment)| InstanceNumaTopology {
        requested,
        assignment,
    })
}

pub(crate) fn claim() -> impl Strategy<Value = Claim> {
    let owner = option::of(id::<MigrationId>())
        .prop_map(|migration| migration.map_or(Owner::Vm, Owner::Migration));
    let state = select(vec![
        claim::State::Held,
        claim::State::Active,
        claim::State::Releasing,
    ]);
    (
        id(),
        vm_name(),
        owner,
        host_name(),
        state,
        resources(),
        assignment(),
        (pmem::erasures(), option::of(guest_cpu())),
    )
        .prop_map(
            |(id, vm, owner, host, state, resources, assignment, (erasures, cpu))| Claim {
                id,
                vm,
                owner,
                host,
                state,
                resources,
                assignment,
                erasures,
                cpu: cpu.map(Arc::new),
            },
        )
}

fn features() -> impl Strategy<Value = BTreeSet<CpuFeature>> {
    btree_set(
        "[a-z0-9][a-z0-9._-]{0,6}".prop_map(|n| CpuFeature::new(&n).unwrap()),
        0..4,
    )
}

fn cpu_model() -> impl Strategy<Value = CpuModelName> {
    "[A-Za-z0-9][A-Za-z0-9-]{0,12}".prop_map(|n| CpuModelName::new(&n).unwrap())
}

fn guest_cpu() -> impl Strategy<Value = GuestCpu> {
    let mode = select(vec![CpuMode::Custom, CpuMode::HostPassthrough]);
    let vendor = option::of("[A-Z][a-z]{1,6}".prop_map(|n| CpuVendor::new(&n).unwrap()));
    (mode, cpu_model(), vendor, features(), features()).prop_map(
        |(mode, model, vendor, required, disabled)| GuestCpu {
            mode,
            model,
            vendor,
            disabled: disabled.difference(&required).cloned().collect(),
            required,
        },
    )
}

fn host_cpu() -> impl Strategy<Value = HostCpu> {
    let models = proptest::collection::btree_map(cpu_model(), features(), 0..3);
    (guest_cpu(), features(), models).prop_map(|(own, more, mut models)| {
        let all = own.required.union(&more);
        let features: BTreeSet<_> = all
            .filter(|f| !own.disabled.contains(*f))
            .cloned()
            .collect();
        for lacking in models.values_mut() {
            lacking.retain(|feature| !features.contains(feature));
        }
        let host_model = GuestCpu {
            mode: CpuMode::Custom,
            ..own
        };
        models.insert(host_model.model.clone(), host_model.disabled.clone());
        HostCpu {
            host_model: Arc::new(host_model),
            features,
            models,
        }
    })
}

/// A record has both or neither: none from before a cluster version that has them.
pub(crate) fn ownership() -> impl Strategy<Value = Ownership> {
    let project = "[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?".prop_map(|n| ProjectName::new(&n).unwrap());
    let both = (project, ".{1,30}").prop_map(|(project, creator)| Ownership {
        project: Some(project),
        creator,
    });
    option::of(both).prop_map(Option::unwrap_or_default)
}

pub(crate) fn flavor() -> impl Strategy<Value = Flavor> {
    let name = NAME.prop_map(|n| FlavorName::new(&n).unwrap());
    let sizes = (any::<u32>(), any::<u64>(), any::<u64>());
    (name, sizes, texts(), ownership()).prop_map(
        |(name, (vcpus, memory_mib, disk_gib), extra_specs, ownership)| Flavor {
            name,
            vcpus,
            memory_mib,
            disk_gib,
            extra_specs,
            ownership,
        },
    )
}

pub(crate) fn spec() -> impl Strategy<Value = VmSpec> {
    let boot = prop_oneof![
        Just(BootSource::Disk),
        (TEXT, TEXT, TEXT).prop_map(|(kernel, initrd, cmdline)| BootSource::Kernel {
            kernel,
            initrd,
            cmdline,
        }),
    ];
    let format = select(vec![DiskFormat::Qcow2, DiskFormat::Raw]);
    let disk = (option::of(TEXT), format, any::<u64>(), any::<bool>()).prop_map(
        |(image, format, size_gib, seed)| Disk {
            image,
            format,
            size_gib,
            seed,
        },
    );
    (
        flavor(),
        boot,
        vec(disk, 0..3),
        vec(network::nic(), 0..3),
        option::of(wish()),
        option::of(cpu_shape()),
        vec(pci_request(), 0..3),
        texts().prop_map(ImageProperties),
        pci_aliases(),
        (hints(), vec(attachment(), 0..3)),
    )
        .prop_map(
            |(
                flavor,
                boot,
                disks,
                nics,
                topology,
                cpu_shape,
                pci,
                image_properties,
                pci_aliases,
                (hints, volumes),
            )| VmSpec {
                hints,
                volumes,
                image_properties,
                pci_aliases,
                flavor,
                boot,
                disks,
                nics,
                topology,
                cpu_shape,
                pci,
            },
        )
}

fn attachment() -> impl Strategy<Value = VolumeAttachment> {
    let attached_as = select(AttachedAs::ALL.to_vec());
    (NAME, attached_as, any::<bool>()).prop_map(|(volume, attached_as, read_only)| {
        VolumeAttachment {
            volume: VolumeId::new(&volume).unwrap(),
            attached_as,
            read_only,
        }
    })
}

fn hints() -> impl Strategy<Value = SchedulingHints> {
    let group = NAME.prop_map(|n| ServerGroupName::new(&n).unwrap());
    let zone = NAME.prop_map(|n| ZoneName::new(&n).unwrap());
    (option::of(group), option::of(zone)).prop_map(|(server_group, availability_zone)| {
        SchedulingHints {
            server_group,
            availability_zone,
        }
    })
}

pub(crate) fn pci_alias() -> impl Strategy<Value = PciAlias> {
    let policy = select(vec![
        None,
        Some(PciNumaPolicy::Required),
        Some(PciNumaPolicy::Preferred),
        Some(PciNumaPolicy::Legacy),
        Some(PciNumaPolicy::Socket),
    ]);
    (NAME, vec(pci_match(), 1..3), policy).prop_map(|(name, any_of, policy)| PciAlias {
        name: PciAliasName::new(&name).unwrap(),
        any_of,
        policy,
    })
}

fn pci_aliases() -> impl Strategy<Value = PciAliases> {
    let alias = pci_alias().prop_map(|alias| (alias.name.clone(), alias));
    vec(alias, 0..3).prop_map(|aliases| aliases.into_iter().collect())
}

fn cpu_shape() -> impl Strategy<Value = CpuShape> {
    (1_u32.., 1_u32.., 1_u32..).prop_map(|(sockets, cores, threads)| CpuShape {
        sockets,
        cores,
        threads,
    })
}

pub(crate) fn refusal() -> impl Strategy<Value = Refusal> {
    let code = select(vec![
        Code::InvalidArgument,
        Code::NotFound,
        Code::AlreadyExists,
        Code::FailedPrecondition,
        Code::Aborted,
        Code::ResourceExhausted,
        Code::OutOfRange,
        Code::Unavailable,
        Code::DeadlineExceeded,
        Code::Cancelled,
        Code::PermissionDenied,
        Code::Internal,
        Code::Unimplemented,
    ]);
    let missing =
        (TEXT, any::<u64>(), any::<u64>()).prop_map(|(resource, requested, available)| Missing {
            resource,
            requested,
            available,
        });
    let host = (
        host_name(),
        TEXT,
        TEXT,
        option::of(any::<u32>()),
        option::of(any::<u32>().prop_map(CellId)),
        option::of(missing),
    )
        .prop_map(
            |(host, cause, message, guest_cell, host_cell, missing)| HostRefusal {
                host,
                cause,
                message,
                guest_cell,
                host_cell,
                missing,
            },
        );
    (
        code,
        TEXT,
        TEXT,
        option::of(TEXT),
        texts(),
        btree_map(TEXT, any::<u32>(), 0..3),
        vec(host, 0..3),
    )
        .prop_map(
            |(code, reason, message, hint, metadata, causes, hosts)| Refusal {
                code,
                reason,
                message,
                hint,
                change: None,
                metadata,
                causes,
                hosts,
            },
        )
}

fn traits() -> impl Strategy<Value = BTreeSet<Trait>> {
    btree_set("[A-Z0-9_]{1,8}".prop_map(|t| Trait::new(&t).unwrap()), 0..4)
}

fn platform() -> impl Strategy<Value = Platform> {
    let name = || option::of("[a-zA-Z0-9_-]{1,32}");
    (name(), name()).prop_map(|(architecture, hypervisor)| Platform {
        architecture: architecture.map(|text| Architecture::reported(&text).unwrap()),
        hypervisor: hypervisor.map(|text| HypervisorType::reported(&text).unwrap()),
    })
}

fn report() -> impl Strategy<Value = HostReport> {
    (
        (TEXT, id::<Incarnation>(), version(), TEXT, TEXT),
        (
            topology(),
            any::<u64>(),
            any::<u64>(),
            TEXT,
            traits(),
            (
                platform(),
                any::<u64>(),
                vec(volume::region(), 0..3),
                option::of(host_cpu()),
                network::host_networks(),
            ),
        ),
    )
        .prop_map(
            |((agent_address, incarnation, version, driver, uri), rest)| {
                let (topology, memory_reserved_mib, disk_gib, storage_id, traits, more) = rest;
                let (platform, self_fence_ms, regions, cpu, networks) = more;
                HostReport {
                    networks,
                    agent_address,
                    incarnation,
                    service_version: version,
                    driver,
                    migration_uri: uri,
                    topology: Arc::new(topology),
                    memory_reserved_mib,
                    disk_gib,
                    storage_id,
                    traits,
                    platform,
                    self_fence_ms,
                    regions,
                    cpu: cpu.map(Arc::new),
                }
            },
        )
}

pub(crate) fn host() -> impl Strategy<Value = Host> {
    (
        host_name(),
        id::<ProviderId>(),
        report(),
        select(vec![Liveness::Up, Liveness::Down]),
        (any::<bool>(), option::of(id()), option::of("[a-z ]{1,12}")),
        generation(),
        (time(), option::of(fenced()), reality(), version()),
        (any::<bool>(), vec(any::<u128>(), 0..3)),
    )
        .prop_map(
            |(
                name,
                provider,
                report,
                liveness,
                closed,
                generation,
                (created_at, fenced, reality, under),
                (unreported, orphans),
            )| Host {
                name,
                provider,
                report,
                liveness,
                cordoned: closed.0,
                cordoned_by: closed.1,
                shape_refused: closed.2,
                generation,
                created_at,
                fenced,
                unknown: reality.0,
                compared: reality.1,
                hit: reality.2,
                failed_volumes: reality.3,
                registered_version: under.max(ServiceVersion::OLDEST),
                unreported,
                orphans: orphans.into_iter().map(Uuid::from_u128).collect(),
            },
        )
}

pub(crate) fn service() -> impl Strategy<Value = Service> {
    (service_name(), "http://[a-z]{1,8}", version(), time()).prop_map(
        |(name, address, version, registered_at)| Service {
            name,
            address,
            version,
            registered_at,
        },
    )
}

pub(crate) fn revoked_certificate() -> impl Strategy<Value = RevokedCertificate> {
    (
        any::<[u8; 32]>(),
        ".{0,20}",
        ".{0,20}",
        option::of(time()),
        time(),
    )
        .prop_map(|(fingerprint, principal, reason, expires_at, revoked_at)| {
            RevokedCertificate {
                fingerprint: Fingerprint(fingerprint),
                principal,
                reason,
                expires_at,
                revoked_at,
            }
        })
}

pub(crate) fn first_boot() -> impl Strategy<Value = FirstBoot> {
    let user_data = vec(any::<u8>(), 0..40);
    (user_data, TEXT, vec(TEXT, 0..3)).prop_map(|(user_data, network_config, ssh_keys)| FirstBoot {
        user_data,
        network_config,
        ssh_keys,
    })
}

pub(crate) fn vm() -> impl Strategy<Value = Vm> {
    (
        (vm_name(), id::<VmUid>(), spec()),
        select(vm::State::ALL.to_vec()),
        (
            option::of(host_name()),
            option::of(id::<ClaimId>()),
            option::of(host_name()),
            option::of(id::<OperationId>()),
        ),
        option::of(refusal()),
        generation(),
        (
            time(),
            option::of(trouble()),
            restarts(),
            metadata(),
            ownership(),
        ),
    )
        .prop_map(
            |(
                (name, uid, spec),
                state,
                (host, claim, remains_on, operation),
                error,
                generation,
                (created_at, trouble, restarts, metadata, ownership),
            )| {
                Vm {
                    name,
                    uid,
                    spec,
                    state,
                    host,
                    claim,
                    remains_on,
                    operation,
                    error,
                    generation,
                    created_at,
                    trouble,
                    restarts,
                    metadata,
                    ownership,
                    // Never beside the record.
                    first_boot: None,
                }
            },
        )
}

fn metadata() -> impl Strategy<Value = vm::Metadata> {
    let labels = btree_map("[a-z]{1,8}", "[a-z]{0,8}", 0..4);
    (labels, TEXT, any::<bool>()).prop_map(|(labels, description, protected)| vm::Metadata {
        labels,
        description,
        protected,
    })
}

pub(crate) fn restart_policy() -> impl Strategy<Value = vm::RestartPolicy> {
    let action = || select(vm::RestartAction::ALL.to_vec());
    (
        action(),
        action(),
        0..=vm::PRIORITY_MAX,
        1..=vm::PER_HOUR_MAX,
    )
        .prop_map(
            |(on_crash, on_host_failure, priority, per_hour_max)| vm::RestartPolicy {
                on_crash,
                on_host_failure,
                priority,
                per_hour_max,
            },
        )
}

fn restarts() -> impl Strategy<Value = vm::Restarts> {
    let begun_at = vec(time(), 0..=vm::PER_HOUR_MAX as usize);
    (restart_policy(), begun_at, option::of(time())).prop_map(|(policy, begun_at, gave_up_at)| {
        vm::Restarts {
            policy,
            begun_at,
            gave_up_at,
        }
    })
}
