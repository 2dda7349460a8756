//! Arbitrary calls to agents and answers of theirs.

use std::sync::Arc;

use berth_domain::agent::{
    Call, DestinationCheck, DiskSource, DomainState, DomainStatus, Fence, FetchDisks, FitVerdict,
    Reply, Side,
};
use berth_domain::host_check::{CheckOutcome, HostCheck, HostFinding};
use berth_domain::id::{ClaimId, MigrationId, TimeMs, VmUid};
use berth_domain::instance::VcpuId;
use berth_domain::migration::MigrateData;
use berth_domain::migration_tls::{TlsPolicy, TlsReport};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;

use super::{
    TEXT, assignment, claim, cpus, epoch, first_boot, host_name, id, network, numa_topology, spec,
    transfer, vm_name,
};

pub(crate) fn fence() -> impl Strategy<Value = Fence> {
    (id(), id(), epoch(), id(), any::<u32>()).prop_map(
        |(vm, operation, epoch, incarnation, attempt)| Fence {
            vm,
            operation,
            epoch,
            incarnation,
            attempt,
        },
    )
}

pub(crate) fn destination_check() -> impl Strategy<Value = DestinationCheck> {
    let tls = option::of(tls_report());
    (TEXT, TEXT, TEXT, cpus(), tls, network::bridges()).prop_map(
        |(migration_uri, storage_id, driver, shared_cpus, tls, bridges)| DestinationCheck {
            bridges,
            migration_uri,
            storage_id,
            driver,
            shared_cpus,
            tls,
        },
    )
}

fn tls_report() -> impl Strategy<Value = TlsReport> {
    let policy = select(TlsPolicy::ALL.to_vec());
    // An empty text means that there is no fault.
    let fault = option::of("[a-z ]{1,20}");
    (host_name(), policy, fault).prop_map(|(host, policy, fault)| TlsReport {
        host,
        policy,
        fault,
    })
}

fn host_finding() -> impl Strategy<Value = HostFinding> {
    let outcome = select(CheckOutcome::ALL.to_vec());
    let hint = option::of("[a-z ]{1,20}");
    (
        host_name(),
        option::of(host_name()),
        outcome,
        "[a-z]{1,20}",
        hint,
    )
        .prop_map(|(host, peer, outcome, text, hint)| HostFinding {
            check: text.clone(),
            host,
            peer,
            outcome,
            message: text,
            hint,
        })
}

pub(crate) fn host_check() -> impl Strategy<Value = HostCheck> {
    let findings = vec(host_finding(), 0..4);
    (host_name(), findings, TEXT, tls_report(), any::<u32>()).prop_map(
        |(host, findings, hypervisor_version, tls, ms)| HostCheck {
            host,
            findings,
            hypervisor_version,
            tls,
            wall_clock: TimeMs(ms.into()),
        },
    )
}

pub(crate) fn migrate_data() -> impl Strategy<Value = MigrateData> {
    (
        (vm_name(), id::<VmUid>(), spec(), TEXT),
        (cpus(), network::bridges()),
        option::of(numa_topology()),
        option::of(claim()),
        assignment(),
        transfer::policy(),
        vec(transfer::disk_copy(), 0..3),
        any::<bool>(),
    )
        .prop_map(
            |(
                about,
                (destination_shared, destination_bridges),
                numa_topology,
                claim,
                source,
                transfer,
                disk_copies,
                tls,
            )| {
                let (vm, vm_uid, spec, destination_uri) = about;
                MigrateData {
                    destination_bridges,
                    vm,
                    vm_uid,
                    spec,
                    destination_uri,
                    destination_shared,
                    numa_topology,
                    claim,
                    source_pci: source.pci,
                    transfer,
                    disk_copies,
                    tls,
                }
            },
        )
}

pub(crate) fn domain_status() -> impl Strategy<Value = DomainStatus> {
    let state = select(vec![
        DomainState::Absent,
        DomainState::Starting,
        DomainState::Running,
        DomainState::Paused,
        DomainState::MigratingOut,
        DomainState::MigratingIn,
        DomainState::Prepared,
        DomainState::Stopped,
        DomainState::PostCopyBroken,
    ]);
    (
        state,
        option::of(id::<ClaimId>()),
        option::of(epoch()),
        vec((any::<u32>().prop_map(VcpuId), cpus()), 0..4),
        option::of(TEXT),
        option::of(transfer::progress()),
    )
        .prop_map(
            |(state, claim, epoch, vcpu_cpus, migration_error, progress)| DomainStatus {
                state,
                claim,
                epoch,
                vcpu_cpus,
                migration_error,
                progress,
            },
        )
}

pub(crate) fn call() -> impl Strategy<Value = Call> {
    let with_data = || (id::<MigrationId>(), migrate_data());
    prop_oneof![
        (vm_name(), spec(), claim(), option::of(first_boot())).prop_map(
            |(vm, spec, claim, first_boot)| Call::SpawnVm {
                vm,
                spec,
                claim,
                first_boot: first_boot.map(Arc::new),
            }
        ),
        select(vec![Call::DestroyVm, Call::GetDomain]),
        (id(), vm_name(), spec()).prop_map(|(migration, vm, spec)| {
            Call::CheckCanLiveMigrateDestination {
                migration,
                vm,
                spec,
            }
        }),
        (id(), destination_check()).prop_map(|(migration, destination)| {
            Call::CheckCanLiveMigrateSource {
                migration,
                destination,
            }
        }),
        with_data().prop_map(|(migration, migrate_data)| Call::FitLiveMigration {
            migration,
            migrate_data
        }),
        with_data().prop_map(|(migration, migrate_data)| Call::PreLiveMigration {
            migration,
            migrate_data
        }),
        with_data().prop_map(|(migration, migrate_data)| Call::LiveMigration {
            migration,
            migrate_data
        }),
        (id(), any::<bool>()).prop_map(|(migration, keep_disks)| {
            Call::RollbackLiveMigrationAtDestination {
                migration,
                keep_disks,
            }
        }),
        id().prop_map(|migration| Call::PostLiveMigrationAtSource { migration }),
        (id(), 0..3_600_000_u64, any::<bool>()).prop_map(|(claim, timeout_ms, last)| {
            Call::StopVm {
                claim,
                timeout_ms,
                last,
            }
        }),
        (vm_name(), spec(), claim()).prop_map(|(vm, spec, claim)| Call::StartVm {
            vm,
            spec,
            claim
        }),
        Just(Call::SettleVm),
        id().prop_map(|migration| Call::AbortLiveMigration { migration }),
        (id(), any::<bool>()).prop_map(|(migration, post_copy)| {
            Call::ForceCompleteLiveMigration {
                migration,
                post_copy,
            }
        }),
        (vm_name(), spec(), claim()).prop_map(|(vm, spec, claim)| Call::MakeDisks {
            vm,
            spec,
            claim
        }),
        (vm_name(), spec(), 0..26_u32, TEXT).prop_map(|(vm, spec, disk, image)| {
            Call::CopyDisk {
                vm,
                spec,
                disk,
                image,
            }
        }),
        TEXT.prop_map(|image| Call::PublishImage { image }),
        TEXT.prop_map(|image| Call::DropImage { image }),
        fetch_disks().prop_map(|fetch| Call::FetchDisks(Box::new(fetch))),
        (id(), select(vec![Side::Source, Side::Destination]), id()).prop_map(
            |(migration, side, claim)| Call::DropDisks {
                migration,
                side,
                claim,
            }
        ),
    ]
}

fn fetch_disks() -> impl Strategy<Value = FetchDisks> {
    let source = (host_name(), TEXT, id()).prop_map(|(host, address, incarnation)| DiskSource {
        host,
        address,
        incarnation,
    });
    let bounds = (option::of(1..1000_u32), option::of(1..1_000_000_u64));
    (id(), vm_name(), spec(), claim(), source, bounds).prop_map(
        |(migration, vm, spec, claim, source, bounds)| FetchDisks {
            migration,
            vm,
            spec,
            claim,
            source,
            bandwidth_mib_per_s_max: bounds.0,
            timeout_ms: bounds.1,
        },
    )
}

pub(crate) fn reply() -> impl Strategy<Value = Reply> {
    let verdict = prop_oneof![
        Just(FitVerdict::Confirm),
        assignment().prop_map(FitVerdict::Swap),
    ];
    prop_oneof![
        Just(Reply::Done),
        domain_status().prop_map(Reply::Domain),
        destination_check().prop_map(Reply::Destination),
        migrate_data().prop_map(Reply::MigrateData),
        any::<bool>().prop_map(|published| Reply::Image { published }),
        (verdict, migrate_data()).prop_map(|(verdict, migrate_data)| Reply::Fit {
            verdict,
            migrate_data
        }),
    ]
}
