//! Simulated hosts and guests as the scheduler knows them: how they are registered, claimed for and
//! given back by hand, without agents and conductors.

use anyhow::Context as _;
use berth_domain::cpu_set::{CpuId, CpuSet};
use berth_domain::topology::{CellId, HostCell, HostTopology, PagePool, SocketId};
use berth_proto::host::v1::{HostReport, RegisterHostRequest};
use berth_proto::operation::v1::mark::Kind as MarkKind;
use berth_proto::operation::v1::operation_service_client::OperationServiceClient;
use berth_proto::operation::v1::{AdvanceRequest, Effect, Mark, Operation, Step, effect};
use berth_proto::scheduler::v1::scheduler_service_client::SchedulerServiceClient;
use berth_proto::scheduler::v1::{
    BeginDeleteRequest, CreateFlavorRequest, ScheduleVmRequest, ScheduleVmResponse,
};
use berth_proto::types::v1 as wire;
use tonic::transport::Channel;
use uuid::Uuid;

/// Cells of a host.
pub const CELLS: u32 = 8;
/// Dedicated CPUs of a cell.
const CPUS: u32 = 16;

/// A guest that has a claim.
#[derive(Debug)]
pub struct Scheduled {
    /// Its name.
    pub vm: String,
    /// The operation that boots it.
    pub operation: String,
    /// The epoch of the lease of that operation.
    pub epoch: u64,
}

/// Returns the request for a flavor whose vCPUs have CPUs of their own.
#[must_use]
pub fn flavor(name: &str, vcpus: u32) -> CreateFlavorRequest {
    CreateFlavorRequest {
        flavor: Some(wire::Flavor {
            name: format!("flavors/{name}"),
            vcpus,
            memory_mib: 128,
            disk_gib: 0,
            extra_specs: [("hw:cpu_policy".to_owned(), "dedicated".to_owned())].into(),
            ..wire::Flavor::default()
        }),
        request_id: String::new(),
    }
}

/// Returns the request for a claim, to be sent as often as it takes.
#[must_use]
pub fn request(vm: &str, flavor: &str, host: Option<String>) -> ScheduleVmRequest {
    let kernel = wire::KernelBoot {
        kernel: "vmlinuz".to_owned(),
        initrd: "initrd".to_owned(),
        cmdline: "console=ttyS0".to_owned(),
    };
    ScheduleVmRequest {
        vm: vm.to_owned(),
        template: Some(wire::VmTemplate {
            flavor: format!("flavors/{flavor}"),
            boot: Some(wire::BootSource {
                source: Some(wire::boot_source::Source::Kernel(kernel)),
            }),
            ..Default::default()
        }),
        requested_host: host.unwrap_or_default(),
        conductor: "services/bench".to_owned(),
        lease_ttl: Some(lease_ttl()),
        request_id: Uuid::now_v7().to_string(),
        ..Default::default()
    }
}

fn lease_ttl() -> prost_types::Duration {
    prost_types::Duration {
        seconds: 600,
        nanos: 0,
    }
}

/// Reads the response to a [`request`].
///
/// # Errors
///
/// When it has no operation with a lease.
pub fn scheduled(vm: String, response: ScheduleVmResponse) -> anyhow::Result<Scheduled> {
    let operation = response.operation.context("a response has an operation")?;
    let Operation { name, lease, .. } = operation;
    let epoch = lease.context("a running operation has a lease")?.epoch;
    Ok(Scheduled {
        vm,
        operation: name,
        epoch,
    })
}

/// Releases a claim, and deletes the record of the guest.
///
/// # Errors
///
/// When the scheduler refuses.
pub async fn release(channel: Channel, guest: Scheduled) -> anyhow::Result<()> {
    let cancelled = wire::Refusal {
        code: wire::refusal::Code::Cancelled.into(),
        reason: "CANCELLED".to_owned(),
        message: "the measurement is over".to_owned(),
        ..Default::default()
    };
    let effect = effect::Effect::FailBoot(cancelled);
    advance(
        &channel,
        &guest,
        Step::Claim,
        MarkKind::Undone,
        Some(effect),
    )
    .await?;
    let request = BeginDeleteRequest {
        vm: guest.vm,
        conductor: "services/bench".to_owned(),
        lease_ttl: Some(lease_ttl()),
        request_id: Uuid::now_v7().to_string(),
    };
    SchedulerServiceClient::new(channel)
        .begin_delete(request)
        .await?;
    Ok(())
}

/// Records a step, as the conductor would.
///
/// # Errors
///
/// When the scheduler refuses.
pub async fn advance(
    channel: &Channel,
    guest: &Scheduled,
    step: Step,
    mark: MarkKind,
    effect: Option<effect::Effect>,
) -> anyhow::Result<()> {
    let request = AdvanceRequest {
        operation: guest.operation.clone(),
        epoch: guest.epoch,
        step: step.into(),
        mark: Some(Mark {
            kind: mark.into(),
            refusal: None,
        }),
        effect: effect.map(|effect| Effect {
            effect: Some(effect),
        }),
        request_id: String::new(),
    };
    OperationServiceClient::new(channel.clone())
        .advance(request)
        .await?;
    Ok(())
}

/// Returns the registration of a host.
///
/// # Panics
///
/// Never: the topology is made of constants.
#[must_use]
pub fn host(number: usize) -> RegisterHostRequest {
    RegisterHostRequest {
        name: format!("hosts/h{number:04}"),
        report: Some(HostReport {
            agent_address: "http://127.0.0.1:1".to_owned(),
            incarnation: Uuid::new_v4().to_string(),
            service_version: berth_domain::version::ServiceVersion::CURRENT.0,
            driver: "sim".to_owned(),
            migration_uri: format!("sim+tcp://h{number}"),
            topology: Some((&topology()).into()),
            memory_reserved_mib: 0,
            disk_gib: 1000,
            storage_id: String::new(),
            traits: Vec::new(),
            ..Default::default()
        }),
        request_id: String::new(),
    }
}

fn topology() -> HostTopology {
    let cells = (0..CELLS).map(|id| {
        let first = id * CPUS;
        let pair = |low: u32| [CpuId(low), CpuId(low + 1)].into_iter().collect::<CpuSet>();
        HostCell {
            id: CellId(id),
            socket: Some(SocketId(id / 4)),
            shared: CpuSet::new(),
            dedicated: (first..first + CPUS).map(CpuId).collect(),
            cores: (first..first + CPUS).step_by(2).map(pair).collect(),
            memory_mib: 65_536,
            pages: vec![PagePool {
                size_kib: 4,
                total: 16_777_216,
                reserved: 0,
            }],
        }
    });
    let distance = |a: u32, b: u32| if a == b { 10 } else { 20 };
    let distances = (0..CELLS)
        .map(|a| (0..CELLS).map(|b| distance(a, b)).collect())
        .collect();
    HostTopology::new(cells.collect(), distances).expect("the cells are in order")
}
