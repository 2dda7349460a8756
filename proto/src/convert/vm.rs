//! VMs and what users request.

use std::collections::BTreeMap;

use berth_domain::first_boot::{
    FirstBoot, NETWORK_CONFIG_BYTES_MAX, SSH_KEY_BYTES_MAX, SSH_KEYS_MAX, USER_DATA_BYTES_MAX,
};
use berth_domain::image::{ImageProperties, PROPERTIES_MAX};
use berth_domain::name::{FlavorName, ZoneName};
use berth_domain::ownership::ProjectName;
use berth_domain::pci::PCI_REQUESTS_MAX;
use berth_domain::vm::{
    AttachedAs, BootSource, Disk, DiskFormat, Metadata, Nic, NicPlug, NicRequest, RestartPolicy,
    SchedulingHints, State, Vm, VmSpec, VolumeAttachment,
};

use super::field::{self, ADDRESS_MAX, Invalid, MESSAGE_MAX, choices};
use super::name::ResourceName;
use super::network::read_attachment;
use super::ownership::{self, read_project, write_project};
use super::{pci, restart, vm_metadata};
use crate::filter::Filter;
use crate::scheduler::v1 as scheduler;
use crate::types::v1;
use crate::types::v1::boot_source::Source;

/// The most disks or network interfaces of a VM.
const DEVICES_MAX: usize = 256;

/// The request for a new VM: the flavor by name, and an interface may leave its
/// MAC address open (empty).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VmTemplate {
    /// The flavor.
    pub flavor: FlavorName,
    /// What the guest starts from.
    pub boot: BootSource,
    /// Its disks, in order.
    pub disks: Vec<Disk>,
    /// Its network interfaces, in order.
    pub nics: Vec<NicRequest>,
    /// The properties of the image that it is made from.
    pub image_properties: ImageProperties,
    /// Where it is to go.
    pub hints: SchedulingHints,
    /// The volumes that it is to have.
    pub volumes: Vec<VolumeAttachment>,
    /// The project that it is to belong to; absent: the default one.
    pub project: Option<ProjectName>,
    /// When it is started again by itself.
    pub restart: RestartPolicy,
    /// What the guest is given for its first boot.
    pub first_boot: Option<FirstBoot>,
    /// What its operator writes on it.
    pub metadata: Metadata,
}

impl From<&VmTemplate> for v1::VmTemplate {
    fn from(template: &VmTemplate) -> Self {
        Self {
            flavor: template.flavor.resource_name(),
            boot: Some((&template.boot).into()),
            disks: template.disks.iter().map(Into::into).collect(),
            nics: template.nics.iter().map(Into::into).collect(),
            image_properties: template.image_properties.0.clone(),
            server_group: field::name_or_empty(template.hints.server_group.as_ref()),
            availability_zone: zone_or_empty(&template.hints),
            volumes: template.volumes.iter().map(Into::into).collect(),
            project: write_project(template.project.as_ref()),
            restart_policy: restart::write(&template.restart),
            first_boot: template.first_boot.as_ref().map(Into::into),
            labels: template.metadata.labels.clone(),
            description: template.metadata.description.clone(),
            protected: template.metadata.protected,
        }
    }
}

impl TryFrom<v1::VmTemplate> for VmTemplate {
    type Error = Invalid;

    fn try_from(wire: v1::VmTemplate) -> Result<Self, Invalid> {
        Ok(Self {
            flavor: field::name(&wire.flavor, "flavor")?,
            boot: field::required(wire.boot, "boot")?,
            disks: field::each(wire.disks, "disks", DEVICES_MAX)?,
            nics: field::each(wire.nics, "nics", DEVICES_MAX)?,
            image_properties: properties(wire.image_properties)?,
            hints: hints(&wire.server_group, &wire.availability_zone)?,
            volumes: field::each(wire.volumes, "volumes", DEVICES_MAX)?,
            project: read_project(&wire.project, "project")?,
            restart: restart::read(wire.restart_policy, "restart_policy")?,
            first_boot: field::optional(wire.first_boot, "first_boot")?,
            metadata: vm_metadata::read(wire.labels, wire.description, wire.protected)?,
        })
    }
}

impl From<&FirstBoot> for v1::FirstBoot {
    fn from(first_boot: &FirstBoot) -> Self {
        Self {
            user_data: first_boot.user_data.clone().into(),
            network_config: first_boot.network_config.clone(),
            ssh_keys: first_boot.ssh_keys.clone(),
        }
    }
}

/// An empty one is one too: a guest without anything but its name gets a seed as well.
impl TryFrom<v1::FirstBoot> for FirstBoot {
    type Error = Invalid;

    fn try_from(wire: v1::FirstBoot) -> Result<Self, Invalid> {
        if wire.user_data.len() > USER_DATA_BYTES_MAX {
            let rule = format!("must have at most {USER_DATA_BYTES_MAX} bytes");
            return Err(Invalid::new("user_data", rule));
        }
        Ok(Self {
            user_data: wire.user_data.into(),
            network_config: field::text(
                wire.network_config,
                "network_config",
                NETWORK_CONFIG_BYTES_MAX,
            )?,
            ssh_keys: field::each_by(wire.ssh_keys, "ssh_keys", SSH_KEYS_MAX, |key| {
                field::text(key, "ssh_keys", SSH_KEY_BYTES_MAX)
            })?,
        })
    }
}

/// Reads the properties of an image. Whether they make sense is checked together with the flavor,
/// by their names.
fn properties(wire: BTreeMap<String, String>) -> Result<ImageProperties, Invalid> {
    let field = "image_properties";
    field::text_map(wire, field, PROPERTIES_MAX, ADDRESS_MAX).map(ImageProperties)
}

/// Reads where a VM is to go.
fn hints(server_group: &str, zone: &str) -> Result<SchedulingHints, Invalid> {
    let zone = (!zone.is_empty()).then(|| ZoneName::new(zone)).transpose();
    Ok(SchedulingHints {
        server_group: field::optional_name(server_group, "server_group")?,
        availability_zone: zone
            .map_err(|error| Invalid::here(error).within("availability_zone"))?,
    })
}

fn zone_or_empty(hints: &SchedulingHints) -> String {
    let zone = hints.availability_zone.as_ref();
    zone.map(ToString::to_string).unwrap_or_default()
}

impl From<&VmSpec> for v1::VmSpec {
    fn from(spec: &VmSpec) -> Self {
        Self {
            flavor: Some((&spec.flavor).into()),
            boot: Some((&spec.boot).into()),
            disks: spec.disks.iter().map(Into::into).collect(),
            nics: spec.nics.iter().map(Into::into).collect(),
            topology: spec.topology.as_ref().map(Into::into),
            cpu_shape: spec.cpu_shape.as_ref().map(Into::into),
            pci_requests: spec.pci.iter().map(Into::into).collect(),
            image_properties: spec.image_properties.0.clone(),
            pci_aliases: spec.pci_aliases.values().map(Into::into).collect(),
            server_group: field::name_or_empty(spec.hints.server_group.as_ref()),
            availability_zone: zone_or_empty(&spec.hints),
            volumes: spec.volumes.iter().map(Into::into).collect(),
        }
    }
}

impl TryFrom<v1::VmSpec> for VmSpec {
    type Error = Invalid;

    fn try_from(wire: v1::VmSpec) -> Result<Self, Invalid> {
        Ok(Self {
            flavor: field::required(wire.flavor, "flavor")?,
            boot: field::required(wire.boot, "boot")?,
            disks: field::each(wire.disks, "disks", DEVICES_MAX)?,
            nics: field::each(wire.nics, "nics", DEVICES_MAX)?,
            topology: field::optional(wire.topology, "topology")?,
            cpu_shape: field::optional(wire.cpu_shape, "cpu_shape")?,
            pci: field::each(wire.pci_requests, "pci_requests", PCI_REQUESTS_MAX)?,
            image_properties: properties(wire.image_properties)?,
            pci_aliases: pci::aliases(wire.pci_aliases, "pci_aliases")?,
            hints: hints(&wire.server_group, &wire.availability_zone)?,
            volumes: field::each(wire.volumes, "volumes", DEVICES_MAX)?,
        })
    }
}

choices!(AttachedAs => v1::volume_attachment::As { Nvdimm, Disk });

impl From<&VolumeAttachment> for v1::VolumeAttachment {
    fn from(attachment: &VolumeAttachment) -> Self {
        Self {
            volume: attachment.volume.resource_name(),
            attached_as: v1::volume_attachment::As::from(attachment.attached_as).into(),
            read_only: attachment.read_only,
        }
    }
}

impl TryFrom<v1::VolumeAttachment> for VolumeAttachment {
    type Error = Invalid;

    fn try_from(wire: v1::VolumeAttachment) -> Result<Self, Invalid> {
        let attached_as = wire.attached_as;
        Ok(Self {
            volume: field::name(&wire.volume, "volume")?,
            attached_as: field::choice::<v1::volume_attachment::As, _>(attached_as, "attached_as")?,
            read_only: wire.read_only,
        })
    }
}

impl From<&BootSource> for v1::BootSource {
    fn from(boot: &BootSource) -> Self {
        let source = match boot {
            BootSource::Kernel {
                kernel,
                initrd,
                cmdline,
            } => Source::Kernel(v1::KernelBoot {
                kernel: kernel.clone(),
                initrd: initrd.clone(),
                cmdline: cmdline.clone(),
            }),
            BootSource::Disk => Source::Disk(v1::DiskBoot {}),
        };
        Self {
            source: Some(source),
        }
    }
}

impl TryFrom<v1::BootSource> for BootSource {
    type Error = Invalid;

    fn try_from(wire: v1::BootSource) -> Result<Self, Invalid> {
        match wire.source {
            None => Err(Invalid::here("must be a kernel or a disk")),
            Some(Source::Disk(v1::DiskBoot {})) => Ok(Self::Disk),
            Some(Source::Kernel(kernel)) => Ok(Self::Kernel {
                kernel: field::text(kernel.kernel, "kernel.kernel", ADDRESS_MAX)?,
                initrd: field::text(kernel.initrd, "kernel.initrd", ADDRESS_MAX)?,
                cmdline: field::text(kernel.cmdline, "kernel.cmdline", MESSAGE_MAX)?,
            }),
        }
    }
}

choices!(DiskFormat => v1::disk::Format { Qcow2, Raw });

impl From<&Disk> for v1::Disk {
    fn from(disk: &Disk) -> Self {
        Self {
            image: disk.image.clone(),
            format: v1::disk::Format::from(disk.format).into(),
            size_gib: disk.size_gib,
            seed: disk.seed,
        }
    }
}

impl TryFrom<v1::Disk> for Disk {
    type Error = Invalid;

    fn try_from(wire: v1::Disk) -> Result<Self, Invalid> {
        let image = |image| field::text(image, "image", ADDRESS_MAX);
        Ok(Self {
            image: wire.image.map(image).transpose()?,
            format: field::choice::<v1::disk::Format, _>(wire.format, "format")?,
            size_gib: wire.size_gib,
            seed: wire.seed,
        })
    }
}

impl From<&Nic> for v1::Nic {
    fn from(nic: &Nic) -> Self {
        Self {
            bridge: nic.bridge.clone(),
            mac: nic.mac.clone(),
            network: field::name_or_empty(nic.network.as_ref().map(|n| &n.name)),
            network_link: nic.network.as_ref().map(|n| (&n.link).into()),
        }
    }
}

impl TryFrom<v1::Nic> for Nic {
    type Error = Invalid;

    fn try_from(wire: v1::Nic) -> Result<Self, Invalid> {
        Ok(Self {
            bridge: field::text(wire.bridge, "bridge", ADDRESS_MAX)?,
            network: read_attachment(&wire.network, wire.network_link)?,
            mac: field::text(wire.mac, "mac", ADDRESS_MAX)?,
        })
    }
}

impl From<&NicRequest> for v1::Nic {
    fn from(nic: &NicRequest) -> Self {
        let (bridge, network) = match &nic.plug {
            NicPlug::Bridge(bridge) => (bridge.clone(), String::new()),
            NicPlug::Network(network) => (String::new(), network.resource_name()),
        };
        Self {
            bridge,
            mac: nic.mac.clone(),
            network,
            network_link: None,
        }
    }
}

impl TryFrom<v1::Nic> for NicRequest {
    type Error = Invalid;

    /// How hosts give a network is recorded by the cluster: what a client sends of it is refused, rather
    /// than taken for a wish.
    fn try_from(wire: v1::Nic) -> Result<Self, Invalid> {
        if wire.network_link.is_some() {
            return Err(Invalid::new("network_link", "must be absent in a request"));
        }
        let bridge = field::text(wire.bridge, "bridge", ADDRESS_MAX)?;
        let plug = match field::optional_name(&wire.network, "network")? {
            Some(_) if !bridge.is_empty() => {
                let rule = "must be empty where `network` is set";
                return Err(Invalid::new("bridge", rule));
            }
            Some(network) => NicPlug::Network(network),
            None => NicPlug::Bridge(bridge),
        };
        Ok(Self {
            plug,
            mac: field::text(wire.mac, "mac", ADDRESS_MAX)?,
        })
    }
}

choices!(State => scheduler::vm::State {
    Building,
    Active,
    Migrating,
    Deleting,
    Error,
    Stopped,
    Resized,
    Shelved,
});

impl From<&Vm> for scheduler::Vm {
    fn from(vm: &Vm) -> Self {
        Self {
            spec: Some((&vm.spec).into()),
            ..without_spec(vm)
        }
    }
}

/// Writes of a VM at least what a filter reads: the specification, which is most of it, only as far as
/// the filter reads it.
#[must_use]
pub fn write_for_filter(vm: &Vm, filter: &Filter) -> scheduler::Vm {
    let spec = || match filter.reads_besides("spec", "flavor") {
        true => (&vm.spec).into(),
        false => v1::VmSpec {
            flavor: Some((&vm.spec.flavor).into()),
            ..v1::VmSpec::default()
        },
    };
    scheduler::Vm {
        spec: filter.reads("spec").then(spec),
        ..without_spec(vm)
    }
}

fn without_spec(vm: &Vm) -> scheduler::Vm {
    scheduler::Vm {
        name: vm.name.resource_name(),
        uid: vm.uid.to_string(),
        spec: None,
        state: scheduler::vm::State::from(vm.state).into(),
        host: field::name_or_empty(vm.host.as_ref()),
        claim: field::name_or_empty(vm.claim.as_ref()),
        operation: field::name_or_empty(vm.operation.as_ref()),
        error: vm.error.as_ref().map(Into::into),
        generation: vm.generation.0,
        create_time: Some(field::timestamp(vm.created_at)),
        remains_on: field::name_or_empty(vm.remains_on.as_ref()),
        // Known to the holder of the operation: filled in by the scheduler's service.
        task: String::new(),
        guest_trouble: vm.trouble.as_ref().map(Into::into),
        project: write_project(vm.ownership.project.as_ref()),
        creator: vm.ownership.creator.clone(),
        restart_policy: restart::write(&vm.restarts.policy),
        restart_times: vm
            .restarts
            .begun_at
            .iter()
            .copied()
            .map(field::timestamp)
            .collect(),
        restarts_used_up_time: vm.restarts.gave_up_at.map(field::timestamp),
        // A question about other hosts: answered by the scheduler's service.
        restart_obstacle: String::new(),
        labels: vm.metadata.labels.clone(),
        description: vm.metadata.description.clone(),
        protected: vm.metadata.protected,
    }
}

impl TryFrom<scheduler::Vm> for Vm {
    type Error = Invalid;

    fn try_from(wire: scheduler::Vm) -> Result<Self, Invalid> {
        Ok(Self {
            name: field::name(&wire.name, "name")?,
            uid: field::uuid(&wire.uid, "uid")?,
            spec: field::required(wire.spec, "spec")?,
            state: field::choice::<scheduler::vm::State, _>(wire.state, "state")?,
            host: field::optional_name(&wire.host, "host")?,
            claim: field::optional_name(&wire.claim, "claim")?,
            remains_on: field::optional_name(&wire.remains_on, "remains_on")?,
            trouble: field::optional(wire.guest_trouble, "guest_trouble")?,
            operation: field::optional_name(&wire.operation, "operation")?,
            error: field::optional(wire.error, "error")?,
            generation: berth_domain::id::Generation(wire.generation),
            created_at: field::time(wire.create_time, "create_time")?,
            ownership: ownership::read(&wire.project, wire.creator)?,
            restarts: restart::read_restarts(
                wire.restart_policy,
                wire.restart_times,
                wire.restarts_used_up_time,
            )?,
            metadata: vm_metadata::read(wire.labels, wire.description, wire.protected)?,
            // In no record of a VM: rows have it beside the record, responses to whom it concerns.
            first_boot: None,
        })
    }
}
