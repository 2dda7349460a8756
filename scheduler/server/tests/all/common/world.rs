//! Hosts, flavors and VMs for the tests.

use berth_proto::host::v1::{HostReport, RegisterHostRequest};
use berth_proto::scheduler::v1::{CreateFlavorRequest, ScheduleVmRequest, ScheduleVmResponse};
use berth_proto::types::v1::{
    BootSource, Disk, DiskBoot, Flavor, HostCell, HostTopology, PagePool, VmTemplate, boot_source,
    disk,
};
use tonic::Status;
use tonic::transport::Channel;
use uuid::Uuid;

use super::{hosts, schedulers};

/// Registers a host of `cells` cells with `cpus` dedicated CPUs and 64 GiB each.
pub async fn register(channel: &Channel, name: &str, cells: u32, cpus: u32) {
    let request = register_request(name, cells, cpus);
    let answer = hosts(channel).register_host(request).await;
    answer.expect("the host is registered");
}

pub fn register_request(name: &str, cells: u32, cpus: u32) -> RegisterHostRequest {
    let cell = |id: u32| HostCell {
        id,
        socket: Some(0),
        shared_cpus: String::new(),
        dedicated_cpus: format!("{}-{}", id * cpus, (id + 1) * cpus - 1),
        cores: (id * cpus..(id + 1) * cpus)
            .map(|cpu| cpu.to_string())
            .collect(),
        memory_mib: 65_536,
        pages: vec![PagePool {
            size_kib: 4,
            total: 65_536 * 256,
            reserved: 0,
        }],
    };
    let distances = |row: u32| berth_proto::types::v1::CellDistances {
        distances: (0..cells)
            .map(|column| if row == column { 10 } else { 20 })
            .collect(),
    };
    RegisterHostRequest {
        name: format!("hosts/{name}"),
        report: Some(HostReport {
            agent_address: "http://127.0.0.1:1".into(),
            incarnation: Uuid::new_v4().to_string(),
            service_version: 2,
            driver: "sim".into(),
            migration_uri: String::new(),
            topology: Some(HostTopology {
                cells: (0..cells).map(cell).collect(),
                distances: (0..cells).map(distances).collect(),
                pci_devices: Vec::new(),
                pmem_namespaces: Vec::new(),
                far_memory: Vec::new(),
            }),
            memory_reserved_mib: 0,
            disk_gib: 100_000,
            storage_id: "shared".into(),
            traits: Vec::new(),
            ..Default::default()
        }),
        request_id: String::new(),
    }
}

/// Makes a flavor of dedicated CPUs.
pub async fn flavor(channel: &Channel, name: &str, vcpus: u32) {
    let request = flavor_request(name, vcpus, &[("hw:cpu_policy", "dedicated")]);
    let answer = schedulers(channel).create_flavor(request).await;
    answer.expect("the flavor is made");
}

pub fn flavor_request(name: &str, vcpus: u32, specs: &[(&str, &str)]) -> CreateFlavorRequest {
    CreateFlavorRequest {
        flavor: Some(Flavor {
            name: format!("flavors/{name}"),
            vcpus,
            memory_mib: 256,
            disk_gib: 1,
            extra_specs: specs
                .iter()
                .map(|(key, value)| ((*key).into(), (*value).into()))
                .collect(),
            ..Flavor::default()
        }),
        request_id: String::new(),
    }
}

pub fn vm_request(vm: &str, flavor: &str) -> ScheduleVmRequest {
    ScheduleVmRequest {
        vm: format!("vms/{vm}"),
        template: Some(VmTemplate {
            flavor: format!("flavors/{flavor}"),
            boot: Some(BootSource {
                source: Some(boot_source::Source::Disk(DiskBoot {})),
            }),
            disks: vec![Disk {
                image: Some("image.qcow2".into()),
                format: disk::Format::Qcow2.into(),
                size_gib: 1,
                seed: false,
            }],
            nics: Vec::new(),
            ..Default::default()
        }),
        conductor: "services/c1".into(),
        lease_ttl: Some(prost_types::Duration {
            seconds: 60,
            nanos: 0,
        }),
        ..Default::default()
    }
}

pub async fn schedule(
    channel: &Channel,
    request: ScheduleVmRequest,
) -> Result<ScheduleVmResponse, Status> {
    let answer = schedulers(channel).schedule_vm(request).await;
    answer.map(tonic::Response::into_inner)
}
