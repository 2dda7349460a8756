//! Hosts and guests for tests and measurements.

pub mod claims;
pub mod hosts;
pub mod mix;
pub mod views;

pub use claims::claim;
pub use views::view;

use berth_domain::constraint::Demand;
use berth_domain::flavor::Flavor;
use berth_domain::host::Host;
use berth_domain::host_view::HostView;
use berth_domain::image::ImageProperties;
use berth_domain::name::FlavorName;
use berth_domain::ownership::Ownership;
use berth_domain::pci::PciAliases;
use berth_domain::policy::SchedulingPolicy;
use berth_domain::vm::{BootSource, VmSpec};
use berth_selection::Request;
use std::sync::Arc;
use uuid::Uuid;

/// Changes the record of a view's host.
pub fn change(view: &mut HostView, change: impl FnOnce(&mut Host)) {
    let mut host = (*view.host).clone();
    change(&mut host);
    view.set_host(Arc::new(host));
}

/// Returns what a guest of such a flavor is.
pub fn spec(vcpus: u32, memory_mib: u64, specs: &[(&str, &str)]) -> VmSpec {
    let flavor = Flavor {
        name: FlavorName::new("f").unwrap(),
        vcpus,
        memory_mib,
        disk_gib: 0,
        extra_specs: specs
            .iter()
            .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
            .collect(),
        ownership: Ownership::default(),
    };
    let requirements = flavor.requirements(&ImageProperties::default(), &PciAliases::new());
    VmSpec {
        topology: requirements.unwrap().topology,
        flavor,
        boot: BootSource::Kernel {
            kernel: "vmlinuz".to_owned(),
            initrd: "initrd".to_owned(),
            cmdline: String::new(),
        },
        disks: Vec::new(),
        nics: Vec::new(),
        image_properties: ImageProperties::default(),
        pci_aliases: PciAliases::new(),
        cpu_shape: None,
        pci: Vec::new(),
        hints: berth_domain::vm::SchedulingHints::default(),
        volumes: Vec::new(),
    }
}

/// Returns the wish to boot a guest.
pub fn request(spec: &VmSpec, seed: u128) -> Request {
    Request {
        demand: Demand::boot(spec).unwrap(),
        requested: None,
        excluded: Vec::new(),
        seed: Uuid::from_u128(seed),
        policy: SchedulingPolicy::default(),
    }
}
