//! A resource as it is declared: a message of the API without what the cluster writes.
//!
//! Not here: which resources there are (`existing`), and what becomes of them (`plan`).
//!
//! Invariant: two resources are the same exactly if their values are, and a value can be declared again.

use berth_domain::aggregate::Aggregate;
use berth_domain::fault::Fault;
use berth_domain::flavor::Flavor;
use berth_domain::image::ImageFile;
use berth_domain::name::VmName;
use berth_domain::network::Network;
use berth_domain::ownership::DEFAULT_PROJECT;
use berth_domain::pci::PciAlias;
use berth_domain::server_group::ServerGroup;
use berth_domain::vm::LabelSelector;
use berth_proto::convert::Invalid;
use berth_proto::convert::vm::VmTemplate;
use berth_proto::policy::v1 as policy;
use berth_proto::scheduler::v1 as scheduler;
use berth_proto::types::v1 as wire;
use prost_reflect::DynamicMessage;
use serde_json::{Map, Value};

use super::fields;
use super::kind::Kind;
use super::settings::Settings;
use crate::arguments::suggested_format;

/// A resource.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Resource {
    /// A name for PCI functions.
    PciAlias(wire::PciAlias),
    /// A network.
    Network(wire::Network),
    /// A flavor.
    Flavor(wire::Flavor),
    /// An aggregate.
    Aggregate(policy::Aggregate),
    /// A server group.
    ServerGroup(policy::ServerGroup),
    /// Settings of the scheduling policy.
    SchedulingPolicy(Settings),
    /// A VM, as it is requested.
    Vm(Box<wire::VmTemplate>),
}

/// Reads the fields of a document, which are those of the API.
///
/// # Errors
///
/// All faults that are found at once.
pub(super) fn read(
    kind: Kind,
    mut fields: Map<String, Value>,
) -> Result<(String, Resource), Vec<Invalid>> {
    if kind == Kind::SchedulingPolicy {
        let settings = Settings::read(&fields)?;
        return Ok((String::new(), Resource::SchedulingPolicy(settings)));
    }
    let name = match fields.get("name") {
        Some(Value::String(name)) if !name.is_empty() => kind.without_collection(name).to_owned(),
        Some(Value::Null) | None => return Err(vec![Invalid::new("name", "is missing")]),
        Some(_) => return Err(vec![Invalid::new("name", "must be a text")]),
    };
    if kind == Kind::Vm {
        fields.remove("name");
    }
    let message = fields::read(&kind.message(), &fields).map_err(|invalid| vec![invalid])?;
    let resource = match kind {
        Kind::PciAlias => pci_alias(decode(&message)),
        Kind::Network => network(decode(&message)),
        Kind::Flavor => flavor(decode(&message)),
        Kind::Aggregate => aggregate(decode(&message)),
        Kind::ServerGroup => server_group(decode(&message)),
        Kind::SchedulingPolicy | Kind::Vm => vm(&name, decode(&message)),
    };
    Ok((name, resource?))
}

/// Returns a message of the API.
fn decode<M: prost::Message + Default>(message: &DynamicMessage) -> M {
    message.transcode_to().expect("it is of this type")
}

fn one(invalid: Invalid) -> Vec<Invalid> {
    vec![invalid]
}

fn all(faults: Vec<Fault>) -> Vec<Invalid> {
    let faults = faults.into_iter();
    faults
        .map(|fault| Invalid::new(fault.field, fault.rule))
        .collect()
}

fn pci_alias(alias: wire::PciAlias) -> Result<Resource, Vec<Invalid>> {
    let alias = PciAlias::try_from(alias).map_err(one)?;
    alias.validate().map_err(all)?;
    Ok(Resource::PciAlias((&alias).into()))
}

fn network(network: wire::Network) -> Result<Resource, Vec<Invalid>> {
    let network = Network::try_from(network).map_err(one)?;
    network.validate().map_err(all)?;
    Ok(Resource::of_network((&network).into()))
}

fn flavor(flavor: wire::Flavor) -> Result<Resource, Vec<Invalid>> {
    let flavor = Flavor::try_from(flavor).map_err(one)?;
    flavor.validate().map_err(all)?;
    Ok(Resource::of_flavor((&flavor).into()))
}

fn aggregate(aggregate: policy::Aggregate) -> Result<Resource, Vec<Invalid>> {
    let aggregate = Aggregate::try_from(aggregate).map_err(one)?;
    let faults = aggregate.faults();
    match faults.is_empty() {
        true => Ok(Resource::of_aggregate((&aggregate).into())),
        false => Err(all(faults)),
    }
}

fn server_group(group: policy::ServerGroup) -> Result<Resource, Vec<Invalid>> {
    let group = ServerGroup::try_from(group).map_err(one)?;
    Ok(Resource::of_server_group((&group).into()))
}

fn vm(name: &str, declared: wire::VmTemplate) -> Result<Resource, Vec<Invalid>> {
    VmName::new(name).map_err(|error| vec![Invalid::new("name", error.to_string())])?;
    for (field, is_missing) in [
        ("flavor", declared.flavor.is_empty()),
        ("boot", declared.boot.is_none()),
    ] {
        if is_missing {
            return Err(vec![Invalid::new(field, "is missing")]);
        }
    }
    let read = VmTemplate::try_from(with_formats(declared.clone())).map_err(one)?;
    let faults = read.metadata.faults();
    if !faults.is_empty() {
        return Err(all(faults));
    }
    if let Some(Err(faults)) = read
        .first_boot
        .as_ref()
        .map(|first_boot| first_boot.check())
    {
        return Err(all(faults));
    }
    // Formats that were left open stay so: that of an image is known by the cluster.
    let normal = wire::VmTemplate::from(&read);
    Ok(Resource::Vm(Box::new(without_default_project(
        wire::VmTemplate {
            disks: declared.disks,
            ..normal
        },
    ))))
}

/// Returns a template in which disks without a format have the one that the name of their file suggests.
pub(super) fn with_formats(mut template: wire::VmTemplate) -> wire::VmTemplate {
    for disk in &mut template.disks {
        if let Some(image) = &disk.image
            && disk.format == 0
        {
            disk.format = wire::disk::Format::from(suggested_format(image)).into();
        }
    }
    template
}

fn without_default_project(mut template: wire::VmTemplate) -> wire::VmTemplate {
    clear_default(&mut template.project);
    template
}

fn clear_default(project: &mut String) {
    if project == DEFAULT_PROJECT {
        project.clear();
    }
}

impl Resource {
    /// Returns a flavor without what the cluster writes.
    pub(super) fn of_flavor(mut flavor: wire::Flavor) -> Self {
        flavor.creator.clear();
        clear_default(&mut flavor.project);
        Self::Flavor(flavor)
    }

    /// Returns an aggregate without what the cluster writes.
    pub(super) fn of_aggregate(aggregate: policy::Aggregate) -> Self {
        let policy::Aggregate {
            name,
            uid: _,
            mut hosts,
            metadata,
            generation: _,
            create_time: _,
        } = aggregate;
        hosts.sort();
        Self::Aggregate(policy::Aggregate {
            name,
            hosts,
            metadata,
            ..policy::Aggregate::default()
        })
    }

    /// Returns a network without what the cluster writes.
    pub(super) fn of_network(network: wire::Network) -> Self {
        let wire::Network {
            name,
            physical_network,
            vlan,
            mtu,
            description,
            mut project,
            creator: _,
            create_time: _,
            vm_count: _,
            host_count: _,
        } = network;
        clear_default(&mut project);
        Self::Network(wire::Network {
            name,
            physical_network,
            vlan,
            mtu,
            description,
            project,
            ..wire::Network::default()
        })
    }

    /// Returns a server group without what the cluster writes.
    pub(super) fn of_server_group(group: policy::ServerGroup) -> Self {
        let policy::ServerGroup {
            name,
            policy,
            max_server_per_host,
            create_time: _,
            member_count: _,
            mut project,
            creator: _,
            separate_time: _,
        } = group;
        clear_default(&mut project);
        Self::ServerGroup(policy::ServerGroup {
            name,
            policy,
            max_server_per_host,
            project,
            ..policy::ServerGroup::default()
        })
    }

    /// Returns a VM as it would be requested.
    pub(super) fn of_vm(vm: scheduler::Vm) -> Self {
        let wire::VmSpec {
            flavor,
            boot,
            mut disks,
            mut nics,
            topology: _,
            cpu_shape: _,
            pci_requests: _,
            image_properties,
            pci_aliases: _,
            server_group,
            availability_zone,
            volumes,
        } = vm.spec.unwrap_or_default();
        disks.retain(|disk| !disk.seed);
        for nic in &mut nics {
            nic.network_link = None;
        }
        Self::Vm(Box::new(without_default_project(wire::VmTemplate {
            flavor: flavor.unwrap_or_default().name,
            boot,
            disks,
            nics,
            image_properties,
            server_group,
            availability_zone,
            volumes,
            project: vm.project,
            restart_policy: vm.restart_policy,
            first_boot: None,
            labels: vm.labels,
            description: vm.description,
            protected: vm.protected,
        })))
    }

    /// Returns its kind.
    pub(super) fn kind(&self) -> Kind {
        match self {
            Self::PciAlias(_) => Kind::PciAlias,
            Self::Network(_) => Kind::Network,
            Self::Flavor(_) => Kind::Flavor,
            Self::Aggregate(_) => Kind::Aggregate,
            Self::ServerGroup(_) => Kind::ServerGroup,
            Self::SchedulingPolicy(_) => Kind::SchedulingPolicy,
            Self::Vm(_) => Kind::Vm,
        }
    }

    /// Returns the VM that it is, if it is one.
    pub(super) fn vm(&self) -> Option<&wire::VmTemplate> {
        match self {
            Self::Vm(template) => Some(template),
            Self::PciAlias(_)
            | Self::Network(_)
            | Self::Flavor(_)
            | Self::Aggregate(_)
            | Self::ServerGroup(_)
            | Self::SchedulingPolicy(_) => None,
        }
    }

    /// Returns whether it is a VM with all of these labels.
    pub(super) fn has_labels(&self, labels: &[LabelSelector]) -> bool {
        let matches = |vm: &wire::VmTemplate| labels.iter().all(|label| label.matches(&vm.labels));
        self.vm().is_some_and(matches)
    }

    /// Returns its fields. What a guest is given for its first boot is not among them: it may hold secrets, and
    /// no response has it.
    pub(super) fn to_value(&self) -> Value {
        let mut fields = match self {
            Self::PciAlias(alias) => values(self.kind(), alias),
            Self::Network(network) => values(self.kind(), network),
            Self::Flavor(flavor) => values(self.kind(), flavor),
            Self::Aggregate(aggregate) => values(self.kind(), aggregate),
            Self::ServerGroup(group) => values(self.kind(), group),
            Self::SchedulingPolicy(settings) => return settings.to_value(),
            Self::Vm(template) => values(self.kind(), &**template),
        };
        fields.remove("name");
        fields.remove("first_boot");
        Value::Object(fields)
    }

    /// Returns what of it is compared with one that is there: where it leaves something open, it has what
    /// `other` has, and of `other` only what it names.
    pub(super) fn compared_with(&self, other: &Self) -> (Value, Value) {
        match (self, other) {
            (Self::SchedulingPolicy(declared), Self::SchedulingPolicy(existing)) => {
                let named = existing.named_by(declared);
                (declared.to_value(), named.to_value())
            }
            (Self::Vm(declared), Self::Vm(existing)) => {
                let declared = Self::Vm(Box::new(completed(declared, existing)));
                (declared.to_value(), other.to_value())
            }
            _ => (self.to_value(), other.to_value()),
        }
    }
}

fn values(kind: Kind, message: &impl prost::Message) -> Map<String, Value> {
    let mut dynamic = DynamicMessage::new(kind.message());
    let read = dynamic.transcode_from(message);
    read.expect("it is of this type");
    fields::values(&dynamic)
}

/// Returns a declared VM with what it leaves open as the existing one has it: MAC addresses, formats of disks,
/// which version of an image it was made from, and the properties of images.
fn completed(declared: &wire::VmTemplate, existing: &wire::VmTemplate) -> wire::VmTemplate {
    let mut declared = declared.clone();
    for (nic, there) in declared.nics.iter_mut().zip(&existing.nics) {
        if nic.mac.is_empty() {
            nic.mac.clone_from(&there.mac);
        }
    }
    let mut is_of_image = false;
    for (disk, there) in declared.disks.iter_mut().zip(&existing.disks) {
        if let (Some(image), Some(file)) = (&mut disk.image, &there.image) {
            is_of_image |= complete_image(image, file);
        }
        if disk.format == 0 {
            disk.format = there.format;
        }
    }
    if let (Some(boot), Some(there)) = (kernel_of(&mut declared.boot), &existing.boot)
        && let Some(wire::boot_source::Source::Kernel(there)) = &there.source
    {
        is_of_image |= complete_image(&mut boot.kernel, &there.kernel);
        is_of_image |= complete_image(&mut boot.initrd, &there.initrd);
    }
    if is_of_image {
        for (key, value) in &existing.image_properties {
            let properties = &mut declared.image_properties;
            properties
                .entry(key.clone())
                .or_insert_with(|| value.clone());
        }
    }
    declared
}

fn kernel_of(boot: &mut Option<wire::BootSource>) -> Option<&mut wire::KernelBoot> {
    match &mut boot.as_mut()?.source {
        Some(wire::boot_source::Source::Kernel(kernel)) => Some(kernel),
        Some(wire::boot_source::Source::Disk(_)) | None => None,
    }
}

/// Completes the name of an image with that of its file, if it is the image of this file. Returns whether the
/// file is that of an image.
fn complete_image(image: &mut String, file: &str) -> bool {
    let Ok(parsed) = file.parse::<ImageFile>() else {
        return false;
    };
    if image == parsed.name().as_str() {
        file.clone_into(image);
    }
    true
}
