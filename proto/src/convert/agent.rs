//! The calls of conductors to agents, and their responses.
//!
//! Every call of [`Call`] has an RPC of its own. [`Request`] is the call as the message of its
//! RPC; on the other side each of these messages reads as a [`FencedCall`].

use std::sync::Arc;

use berth_domain::agent::{
    Call, DestinationCheck, DiskSource, DomainState, DomainStatus, Fence, FetchDisks, FitVerdict,
    Reply, Side,
};
use berth_domain::cpu_set::CpuSet;
use berth_domain::id::Epoch;
use berth_domain::instance::VcpuId;
use berth_domain::migration::MigrateData;
use berth_domain::migration_tls::{TlsPolicy, TlsReport};
use berth_domain::pci::PCI_REQUESTS_MAX;
use berth_domain::vm::FILE_NAME_LENGTH_MAX;

use super::assignment::{read_grant, write_grant};
use super::field::{self, ADDRESS_MAX, Invalid, LIST_MAX, MESSAGE_MAX, choices};
use super::name::ResourceName;
use super::network::read_bridges;
use super::operation::stop_timeout_ms;
use super::transfer::{read_policy, write_policy};
use crate::agent::v1;
use crate::agent::v1::fit_live_migration_response::Verdict;
use crate::operation::v1::SignedGrant;

/// The most vCPUs of a guest.
const VCPUS_MAX: usize = 8192;

/// A call with the fence under which it is made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FencedCall {
    /// On whose behalf.
    pub fence: Fence,
    /// The requirement.
    pub call: Call,
    /// What the scheduler granted to the caller, signed.
    pub grant: Option<SignedGrant>,
}

/// A call as the message of its RPC.
#[derive(Clone, Debug, PartialEq)]
pub enum Request {
    /// [`Call::SpawnVm`].
    SpawnVm(Box<v1::SpawnVmRequest>),
    /// [`Call::DestroyVm`].
    DestroyVm(v1::DestroyVmRequest),
    /// [`Call::GetDomain`].
    GetDomain(v1::GetDomainRequest),
    /// [`Call::CheckCanLiveMigrateDestination`].
    CheckCanLiveMigrateDestination(Box<v1::CheckCanLiveMigrateDestinationRequest>),
    /// [`Call::CheckCanLiveMigrateSource`].
    CheckCanLiveMigrateSource(v1::CheckCanLiveMigrateSourceRequest),
    /// [`Call::FitLiveMigration`].
    FitLiveMigration(Box<v1::FitLiveMigrationRequest>),
    /// [`Call::PreLiveMigration`].
    PreLiveMigration(Box<v1::PreLiveMigrationRequest>),
    /// [`Call::LiveMigration`].
    LiveMigration(Box<v1::LiveMigrationRequest>),
    /// [`Call::RollbackLiveMigrationAtDestination`].
    RollbackLiveMigrationAtDestination(v1::RollbackLiveMigrationAtDestinationRequest),
    /// [`Call::PostLiveMigrationAtSource`].
    PostLiveMigrationAtSource(v1::PostLiveMigrationAtSourceRequest),
    /// [`Call::StopVm`].
    StopVm(v1::StopVmRequest),
    /// [`Call::StartVm`].
    StartVm(Box<v1::StartVmRequest>),
    /// [`Call::SettleVm`].
    SettleVm(v1::SettleVmRequest),
    /// [`Call::AbortLiveMigration`].
    AbortLiveMigration(v1::AbortLiveMigrationRequest),
    /// [`Call::ForceCompleteLiveMigration`].
    ForceCompleteLiveMigration(v1::ForceCompleteLiveMigrationRequest),
    /// [`Call::MakeDisks`].
    MakeDisks(Box<v1::MakeDisksRequest>),
    /// [`Call::CopyDisk`].
    CopyDisk(Box<v1::CopyDiskRequest>),
    /// [`Call::PublishImage`].
    PublishImage(v1::PublishImageRequest),
    /// [`Call::DropImage`].
    DropImage(v1::DropImageRequest),
    /// [`Call::FetchDisks`].
    FetchDisks(Box<v1::FetchDisksRequest>),
    /// [`Call::DropDisks`].
    DropDisks(v1::DropDisksRequest),
}

impl From<&FencedCall> for Request {
    fn from(FencedCall { fence, call, grant }: &FencedCall) -> Self {
        let fence = Some(v1::Fence {
            grant: grant.clone(),
            ..fence.into()
        });
        match call {
            Call::SpawnVm {
                vm,
                spec,
                claim,
                first_boot,
            } => Self::SpawnVm(Box::new(v1::SpawnVmRequest {
                fence,
                vm: vm.resource_name(),
                spec: Some(spec.into()),
                claim: Some(claim.into()),
                first_boot: first_boot.as_deref().map(Into::into),
            })),
            Call::DestroyVm => Self::DestroyVm(v1::DestroyVmRequest { fence }),
            Call::GetDomain => Self::GetDomain(v1::GetDomainRequest { fence }),
            Call::CheckCanLiveMigrateDestination {
                migration,
                vm,
                spec,
            } => Self::CheckCanLiveMigrateDestination(Box::new(
                v1::CheckCanLiveMigrateDestinationRequest {
                    fence,
                    migration: migration.resource_name(),
                    vm: vm.resource_name(),
                    spec: Some(spec.into()),
                },
            )),
            Call::CheckCanLiveMigrateSource {
                migration,
                destination,
            } => Self::CheckCanLiveMigrateSource(v1::CheckCanLiveMigrateSourceRequest {
                fence,
                migration: migration.resource_name(),
                destination: Some(destination.into()),
            }),
            Call::FitLiveMigration {
                migration,
                migrate_data,
            } => Self::FitLiveMigration(Box::new(v1::FitLiveMigrationRequest {
                fence,
                migration: migration.resource_name(),
                migrate_data: Some(migrate_data.into()),
            })),
            Call::PreLiveMigration {
                migration,
                migrate_data,
            } => Self::PreLiveMigration(Box::new(v1::PreLiveMigrationRequest {
                fence,
                migration: migration.resource_name(),
                migrate_data: Some(migrate_data.into()),
            })),
            Call::LiveMigration {
                migration,
                migrate_data,
            } => Self::LiveMigration(Box::new(v1::LiveMigrationRequest {
                fence,
                migration: migration.resource_name(),
                migrate_data: Some(migrate_data.into()),
            })),
            Call::RollbackLiveMigrationAtDestination {
                migration,
                keep_disks,
            } => Self::RollbackLiveMigrationAtDestination(
                v1::RollbackLiveMigrationAtDestinationRequest {
                    fence,
                    migration: migration.resource_name(),
                    keep_disks: *keep_disks,
                },
            ),
            Call::PostLiveMigrationAtSource { migration } => {
                Self::PostLiveMigrationAtSource(v1::PostLiveMigrationAtSourceRequest {
                    fence,
                    migration: migration.resource_name(),
                })
            }
            Call::StopVm {
                claim,
                timeout_ms,
                last,
            } => Self::StopVm(v1::StopVmRequest {
                fence,
                claim: claim.resource_name(),
                timeout_ms: *timeout_ms,
                last: *last,
            }),
            Call::StartVm { vm, spec, claim } => Self::StartVm(Box::new(v1::StartVmRequest {
                fence,
                vm: vm.resource_name(),
                spec: Some(spec.into()),
                claim: Some(claim.into()),
            })),
            Call::SettleVm => Self::SettleVm(v1::SettleVmRequest { fence }),
            Call::AbortLiveMigration { migration } => {
                Self::AbortLiveMigration(v1::AbortLiveMigrationRequest {
                    fence,
                    migration: migration.resource_name(),
                })
            }
            Call::ForceCompleteLiveMigration {
                migration,
                post_copy,
            } => Self::ForceCompleteLiveMigration(v1::ForceCompleteLiveMigrationRequest {
                fence,
                migration: migration.resource_name(),
                post_copy: *post_copy,
            }),
            Call::MakeDisks { vm, spec, claim } => {
                Self::MakeDisks(Box::new(v1::MakeDisksRequest {
                    fence,
                    vm: vm.resource_name(),
                    spec: Some(spec.into()),
                    claim: Some(claim.into()),
                }))
            }
            Call::CopyDisk {
                vm,
                spec,
                disk,
                image,
            } => Self::CopyDisk(Box::new(v1::CopyDiskRequest {
                fence,
                vm: vm.resource_name(),
                spec: Some(spec.into()),
                disk: *disk,
                image: image.clone(),
            })),
            Call::PublishImage { image } => Self::PublishImage(v1::PublishImageRequest {
                fence,
                image: image.clone(),
            }),
            Call::DropImage { image } => Self::DropImage(v1::DropImageRequest {
                fence,
                image: image.clone(),
            }),
            Call::FetchDisks(fetch) => Self::FetchDisks(Box::new(v1::FetchDisksRequest {
                fence,
                migration: fetch.migration.resource_name(),
                vm: fetch.vm.resource_name(),
                spec: Some((&fetch.spec).into()),
                claim: Some((&fetch.claim).into()),
                source: fetch.source.host.resource_name(),
                source_address: fetch.source.address.clone(),
                source_incarnation: fetch.source.incarnation.to_string(),
                bandwidth_mib_per_s_max: fetch.bandwidth_mib_per_s_max.unwrap_or(0),
                timeout_ms: fetch.timeout_ms.unwrap_or(0),
            })),
            Call::DropDisks {
                migration,
                side,
                claim,
            } => Self::DropDisks(v1::DropDisksRequest {
                fence,
                migration: migration.resource_name(),
                side: v1::drop_disks_request::Side::from(*side).into(),
                claim: claim.resource_name(),
            }),
        }
    }
}

/// Implements the reading of one request: `|wire| call`.
macro_rules! requests {
    ($($request:ident => |$wire:ident| $call:expr;)+) => {$(
        impl TryFrom<v1::$request> for FencedCall {
            type Error = Invalid;

            fn try_from(mut $wire: v1::$request) -> Result<Self, Invalid> {
                let grant = $wire.fence.as_mut().and_then(|fence| fence.grant.take());
                Ok(Self {
                    fence: field::required($wire.fence, "fence")?,
                    call: $call,
                    grant,
                })
            }
        }
    )+};
}

requests! {
    SpawnVmRequest => |wire| Call::SpawnVm {
        vm: field::name(&wire.vm, "vm")?,
        spec: field::required(wire.spec, "spec")?,
        claim: field::required(wire.claim, "claim")?,
        first_boot: field::optional(wire.first_boot, "first_boot")?.map(Arc::new),
    };
    DestroyVmRequest => |wire| Call::DestroyVm;
    GetDomainRequest => |wire| Call::GetDomain;
    CheckCanLiveMigrateDestinationRequest => |wire| Call::CheckCanLiveMigrateDestination {
        migration: field::name(&wire.migration, "migration")?,
        vm: field::name(&wire.vm, "vm")?,
        spec: field::required(wire.spec, "spec")?,
    };
    CheckCanLiveMigrateSourceRequest => |wire| Call::CheckCanLiveMigrateSource {
        migration: field::name(&wire.migration, "migration")?,
        destination: field::required(wire.destination, "destination")?,
    };
    FitLiveMigrationRequest => |wire| Call::FitLiveMigration {
        migration: field::name(&wire.migration, "migration")?,
        migrate_data: field::required(wire.migrate_data, "migrate_data")?,
    };
    PreLiveMigrationRequest => |wire| Call::PreLiveMigration {
        migration: field::name(&wire.migration, "migration")?,
        migrate_data: field::required(wire.migrate_data, "migrate_data")?,
    };
    LiveMigrationRequest => |wire| Call::LiveMigration {
        migration: field::name(&wire.migration, "migration")?,
        migrate_data: field::required(wire.migrate_data, "migrate_data")?,
    };
    RollbackLiveMigrationAtDestinationRequest => |wire| Call::RollbackLiveMigrationAtDestination {
        migration: field::name(&wire.migration, "migration")?,
        keep_disks: wire.keep_disks,
    };
    PostLiveMigrationAtSourceRequest => |wire| Call::PostLiveMigrationAtSource {
        migration: field::name(&wire.migration, "migration")?,
    };
    AbortLiveMigrationRequest => |wire| Call::AbortLiveMigration {
        migration: field::name(&wire.migration, "migration")?,
    };
    ForceCompleteLiveMigrationRequest => |wire| Call::ForceCompleteLiveMigration {
        migration: field::name(&wire.migration, "migration")?,
        post_copy: wire.post_copy,
    };
    StopVmRequest => |wire| Call::StopVm {
        claim: field::name(&wire.claim, "claim")?,
        timeout_ms: stop_timeout_ms(wire.timeout_ms)?,
        last: wire.last,
    };
    StartVmRequest => |wire| Call::StartVm {
        vm: field::name(&wire.vm, "vm")?,
        spec: field::required(wire.spec, "spec")?,
        claim: field::required(wire.claim, "claim")?,
    };
    SettleVmRequest => |wire| Call::SettleVm;
    MakeDisksRequest => |wire| Call::MakeDisks {
        vm: field::name(&wire.vm, "vm")?,
        spec: field::required(wire.spec, "spec")?,
        claim: field::required(wire.claim, "claim")?,
    };
    CopyDiskRequest => |wire| Call::CopyDisk {
        vm: field::name(&wire.vm, "vm")?,
        spec: field::required(wire.spec, "spec")?,
        disk: wire.disk,
        image: field::text(wire.image, "image", FILE_NAME_LENGTH_MAX)?,
    };
    PublishImageRequest => |wire| Call::PublishImage {
        image: field::text(wire.image, "image", FILE_NAME_LENGTH_MAX)?,
    };
    DropImageRequest => |wire| Call::DropImage {
        image: field::text(wire.image, "image", FILE_NAME_LENGTH_MAX)?,
    };
    FetchDisksRequest => |wire| Call::FetchDisks(Box::new(FetchDisks {
        migration: field::name(&wire.migration, "migration")?,
        vm: field::name(&wire.vm, "vm")?,
        spec: field::required(wire.spec, "spec")?,
        claim: field::required(wire.claim, "claim")?,
        source: DiskSource {
            host: field::name(&wire.source, "source")?,
            address: field::text(wire.source_address, "source_address", ADDRESS_MAX)?,
            incarnation: field::uuid(&wire.source_incarnation, "source_incarnation")?,
        },
        bandwidth_mib_per_s_max: Some(wire.bandwidth_mib_per_s_max).filter(|max| *max > 0),
        timeout_ms: Some(wire.timeout_ms).filter(|ms| *ms > 0),
    }));
    DropDisksRequest => |wire| Call::DropDisks {
        migration: field::name(&wire.migration, "migration")?,
        side: field::choice::<v1::drop_disks_request::Side, _>(wire.side, "side")?,
        claim: field::name(&wire.claim, "claim")?,
    };
}

/// The answer does not belong to the call: a fault in the agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the agent's core answered {answer} to {call}")]
pub struct Mismatch {
    /// The response that was to be made of it.
    pub call: &'static str,
    /// What kind of answer it was.
    pub answer: &'static str,
}

fn mismatch(call: &'static str, reply: &Reply) -> Mismatch {
    let answer = match reply {
        Reply::Done => "that it was done",
        Reply::Domain(_) => "with a domain",
        Reply::Destination(_) => "with a destination",
        Reply::MigrateData(_) => "with migrate data",
        Reply::Fit { .. } => "with a fit",
        Reply::Image { .. } => "with an image",
    };
    Mismatch { call, answer }
}

/// Implements both directions for responses without content.
macro_rules! done {
    ($($response:ident)+) => {$(
        impl TryFrom<Reply> for v1::$response {
            type Error = Mismatch;

            fn try_from(reply: Reply) -> Result<Self, Mismatch> {
                match reply {
                    Reply::Done => Ok(Self {}),
                    Reply::Domain(_) | Reply::Destination(_) | Reply::MigrateData(_)
                    | Reply::Fit { .. } | Reply::Image { .. } => Err(mismatch(stringify!($response), &reply)),
                }
            }
        }

        impl TryFrom<v1::$response> for Reply {
            type Error = Invalid;

            fn try_from(_: v1::$response) -> Result<Self, Invalid> {
                Ok(Self::Done)
            }
        }
    )+};
}

done! {
    SpawnVmResponse
    DestroyVmResponse
    PreLiveMigrationResponse
    LiveMigrationResponse
    RollbackLiveMigrationAtDestinationResponse
    PostLiveMigrationAtSourceResponse
    StopVmResponse
    StartVmResponse
    AbortLiveMigrationResponse
    ForceCompleteLiveMigrationResponse
    MakeDisksResponse
    CopyDiskResponse
    PublishImageResponse
    FetchDisksResponse
    DropDisksResponse
}

/// Implements both directions for responses with the state of a guest.
macro_rules! statuses {
    ($($response:ident)+) => {$(
        impl TryFrom<Reply> for v1::$response {
            type Error = Mismatch;

            fn try_from(reply: Reply) -> Result<Self, Mismatch> {
                let Reply::Domain(status) = &reply else {
                    return Err(mismatch(stringify!($response), &reply));
                };
                Ok(Self {
                    status: Some(status.into()),
                })
            }
        }

        impl TryFrom<v1::$response> for Reply {
            type Error = Invalid;

            fn try_from(wire: v1::$response) -> Result<Self, Invalid> {
                field::required(wire.status, "status").map(Self::Domain)
            }
        }
    )+};
}

statuses! {
    GetDomainResponse
    SettleVmResponse
}

impl TryFrom<Reply> for v1::CheckCanLiveMigrateDestinationResponse {
    type Error = Mismatch;

    fn try_from(reply: Reply) -> Result<Self, Mismatch> {
        let Reply::Destination(destination) = &reply else {
            return Err(mismatch("CheckCanLiveMigrateDestinationResponse", &reply));
        };
        Ok(Self {
            destination: Some(destination.into()),
        })
    }
}

impl TryFrom<v1::CheckCanLiveMigrateDestinationResponse> for Reply {
    type Error = Invalid;

    fn try_from(wire: v1::CheckCanLiveMigrateDestinationResponse) -> Result<Self, Invalid> {
        field::required(wire.destination, "destination").map(Self::Destination)
    }
}

impl TryFrom<Reply> for v1::CheckCanLiveMigrateSourceResponse {
    type Error = Mismatch;

    fn try_from(reply: Reply) -> Result<Self, Mismatch> {
        let Reply::MigrateData(migrate_data) = &reply else {
            return Err(mismatch("CheckCanLiveMigrateSourceResponse", &reply));
        };
        Ok(Self {
            migrate_data: Some(migrate_data.into()),
        })
    }
}

impl TryFrom<v1::CheckCanLiveMigrateSourceResponse> for Reply {
    type Error = Invalid;

    fn try_from(wire: v1::CheckCanLiveMigrateSourceResponse) -> Result<Self, Invalid> {
        field::required(wire.migrate_data, "migrate_data").map(Self::MigrateData)
    }
}

impl TryFrom<Reply> for v1::FitLiveMigrationResponse {
    type Error = Mismatch;

    fn try_from(reply: Reply) -> Result<Self, Mismatch> {
        let Reply::Fit {
            verdict,
            migrate_data,
        } = &reply
        else {
            return Err(mismatch("FitLiveMigrationResponse", &reply));
        };
        Ok(Self {
            verdict: Some(match verdict {
                FitVerdict::Confirm => Verdict::Confirmed(v1::ClaimConfirmed {}),
                FitVerdict::Swap(assignment) => Verdict::Swapped(assignment.into()),
            }),
            migrate_data: Some(migrate_data.into()),
        })
    }
}

impl TryFrom<v1::FitLiveMigrationResponse> for Reply {
    type Error = Invalid;

    fn try_from(wire: v1::FitLiveMigrationResponse) -> Result<Self, Invalid> {
        let verdict = match wire.verdict {
            None => return Err(Invalid::new("verdict", "must be confirmed or swapped")),
            Some(Verdict::Confirmed(v1::ClaimConfirmed {})) => FitVerdict::Confirm,
            Some(Verdict::Swapped(assignment)) => FitVerdict::Swap(
                assignment
                    .try_into()
                    .map_err(|e: Invalid| e.within("swapped"))?,
            ),
        };
        Ok(Self::Fit {
            verdict,
            migrate_data: field::required(wire.migrate_data, "migrate_data")?,
        })
    }
}

impl TryFrom<Reply> for v1::DropImageResponse {
    type Error = Mismatch;

    fn try_from(reply: Reply) -> Result<Self, Mismatch> {
        let Reply::Image { published } = reply else {
            return Err(mismatch("DropImageResponse", &reply));
        };
        Ok(Self { published })
    }
}

impl TryFrom<v1::DropImageResponse> for Reply {
    type Error = Invalid;

    fn try_from(wire: v1::DropImageResponse) -> Result<Self, Invalid> {
        Ok(Self::Image {
            published: wire.published,
        })
    }
}

impl From<&Fence> for v1::Fence {
    fn from(fence: &Fence) -> Self {
        Self {
            vm_uid: fence.vm.to_string(),
            operation: fence.operation.resource_name(),
            epoch: fence.epoch.0,
            incarnation: fence.incarnation.to_string(),
            attempt: fence.attempt,
            grant: None,
        }
    }
}

impl TryFrom<v1::Fence> for Fence {
    type Error = Invalid;

    fn try_from(wire: v1::Fence) -> Result<Self, Invalid> {
        Ok(Self {
            vm: field::uuid(&wire.vm_uid, "vm_uid")?,
            operation: field::name(&wire.operation, "operation")?,
            epoch: Epoch(wire.epoch),
            incarnation: field::uuid(&wire.incarnation, "incarnation")?,
            attempt: wire.attempt,
        })
    }
}

impl From<&DestinationCheck> for v1::DestinationCheck {
    fn from(check: &DestinationCheck) -> Self {
        Self {
            migration_uri: check.migration_uri.clone(),
            storage_id: check.storage_id.clone(),
            driver: check.driver.clone(),
            shared_cpus: check.shared_cpus.to_string(),
            tls: check.tls.as_ref().map(Into::into),
            bridges: check.bridges.iter().map(Into::into).collect(),
        }
    }
}

impl TryFrom<v1::DestinationCheck> for DestinationCheck {
    type Error = Invalid;

    fn try_from(wire: v1::DestinationCheck) -> Result<Self, Invalid> {
        let address = |text, field| field::text(text, field, ADDRESS_MAX);
        Ok(Self {
            migration_uri: address(wire.migration_uri, "migration_uri")?,
            storage_id: address(wire.storage_id, "storage_id")?,
            driver: address(wire.driver, "driver")?,
            shared_cpus: field::cpus(&wire.shared_cpus, "shared_cpus")?,
            tls: field::optional(wire.tls, "tls")?,
            bridges: read_bridges(wire.bridges, "bridges")?,
        })
    }
}

choices!(TlsPolicy => v1::MigrationTls { Require, Prefer, Off });

impl From<&TlsReport> for v1::TlsReport {
    fn from(report: &TlsReport) -> Self {
        Self {
            host: report.host.resource_name(),
            policy: v1::MigrationTls::from(report.policy).into(),
            fault: report.fault.clone().unwrap_or_default(),
        }
    }
}

impl TryFrom<v1::TlsReport> for TlsReport {
    type Error = Invalid;

    fn try_from(wire: v1::TlsReport) -> Result<Self, Invalid> {
        let fault = field::text(wire.fault, "fault", ADDRESS_MAX)?;
        Ok(Self {
            host: field::name(&wire.host, "host")?,
            policy: field::choice::<v1::MigrationTls, _>(wire.policy, "policy")?,
            fault: (!fault.is_empty()).then_some(fault),
        })
    }
}

impl From<&MigrateData> for v1::MigrateData {
    fn from(data: &MigrateData) -> Self {
        Self {
            vm: data.vm.resource_name(),
            vm_uid: data.vm_uid.to_string(),
            spec: Some((&data.spec).into()),
            destination_uri: data.destination_uri.clone(),
            numa_topology: data.numa_topology.as_ref().map(Into::into),
            claim: data.claim.as_ref().map(Into::into),
            destination_shared_cpus: data.destination_shared.to_string(),
            source_pci: data.source_pci.iter().map(write_grant).collect(),
            transfer: write_policy(&data.transfer),
            disk_copies: data.disk_copies.iter().map(Into::into).collect(),
            tls: data.tls,
            destination_bridges: data.destination_bridges.iter().map(Into::into).collect(),
        }
    }
}

impl TryFrom<v1::MigrateData> for MigrateData {
    type Error = Invalid;

    fn try_from(wire: v1::MigrateData) -> Result<Self, Invalid> {
        Ok(Self {
            vm: field::name(&wire.vm, "vm")?,
            vm_uid: field::uuid(&wire.vm_uid, "vm_uid")?,
            spec: field::required(wire.spec, "spec")?,
            destination_uri: field::text(wire.destination_uri, "destination_uri", ADDRESS_MAX)?,
            numa_topology: field::optional(wire.numa_topology, "numa_topology")?,
            claim: field::optional(wire.claim, "claim")?,
            destination_shared: field::cpus(
                &wire.destination_shared_cpus,
                "destination_shared_cpus",
            )?,
            source_pci: field::each_by(
                wire.source_pci,
                "source_pci",
                PCI_REQUESTS_MAX,
                read_grant,
            )?,
            transfer: read_policy(wire.transfer, "transfer")?,
            disk_copies: field::each(wire.disk_copies, "disk_copies", LIST_MAX)?,
            tls: wire.tls,
            destination_bridges: read_bridges(wire.destination_bridges, "destination_bridges")?,
        })
    }
}

choices!(Side => v1::drop_disks_request::Side { Source, Destination });
choices!(DomainState => v1::domain_status::State {
    Absent,
    Starting,
    Running,
    Paused,
    MigratingOut,
    MigratingIn,
    Prepared,
    Stopped,
    PostCopyBroken,
});

impl From<&DomainStatus> for v1::DomainStatus {
    fn from(status: &DomainStatus) -> Self {
        let placement = |(vcpu, cpus): &(VcpuId, CpuSet)| v1::VcpuPlacement {
            vcpu: vcpu.0,
            cpus: cpus.to_string(),
        };
        Self {
            state: v1::domain_status::State::from(status.state).into(),
            claim: field::name_or_empty(status.claim.as_ref()),
            epoch: status.epoch.map(|e| e.0),
            vcpus: status.vcpu_cpus.iter().map(placement).collect(),
            migration_error: status.migration_error.clone(),
            progress: status.progress.as_ref().map(Into::into),
        }
    }
}

impl TryFrom<v1::DomainStatus> for DomainStatus {
    type Error = Invalid;

    fn try_from(wire: v1::DomainStatus) -> Result<Self, Invalid> {
        let placement = |v: v1::VcpuPlacement| -> Result<(VcpuId, CpuSet), Invalid> {
            Ok((VcpuId(v.vcpu), field::cpus(&v.cpus, "cpus")?))
        };
        let error = |text| field::text(text, "migration_error", MESSAGE_MAX);
        Ok(Self {
            state: field::choice::<v1::domain_status::State, _>(wire.state, "state")?,
            claim: field::optional_name(&wire.claim, "claim")?,
            epoch: wire.epoch.map(Epoch),
            vcpu_cpus: field::each_by(wire.vcpus, "vcpus", VCPUS_MAX, placement)?,
            migration_error: wire.migration_error.map(error).transpose()?,
            progress: field::optional(wire.progress, "progress")?,
        })
    }
}
