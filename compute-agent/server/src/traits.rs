//! The traits that an agent reports: what the machine is, what the agent can do, and what the
//! operator gives to the host.

use std::collections::BTreeSet;

use berth_domain::platform::{Architecture, HypervisorType, Platform};
use berth_domain::resource::Trait;
use berth_domain::version::{Feature, ServiceVersion};

use crate::config::{Config, DriverKind, Virtualisation};

/// What begins the names of what an x86 processor can do.
const X86: &str = "HW_CPU_X86_";

/// Returns what kind of machine the host is: the architecture is the one that this program is built
/// for, which guests run natively.
pub(crate) fn platform(config: &Config) -> Platform {
    let architecture = match std::env::consts::ARCH {
        "powerpc64" if cfg!(target_endian = "little") => "ppc64le",
        architecture => architecture,
    };
    let hypervisor = match (config.driver, config.libvirt.virt_type) {
        (DriverKind::Sim, _) => "fake",
        (DriverKind::Libvirt, Virtualisation::Qemu) => "qemu",
        (DriverKind::Libvirt, Virtualisation::Kvm) => "kvm",
        (DriverKind::None, _) => return Platform::default(),
    };
    Platform {
        architecture: Architecture::reported(architecture).ok(),
        hypervisor: HypervisorType::reported(hypervisor).ok(),
    }
}

/// Returns the traits of a host whose processor has these.
pub(crate) fn traits(config: &Config, processor: &BTreeSet<Trait>) -> BTreeSet<Trait> {
    // A guest that is executed by translation does not have what the processor can do.
    let translates =
        config.driver == DriverKind::Libvirt && config.libvirt.virt_type == Virtualisation::Qemu;
    let of_guests = |t: &&Trait| !translates || !t.as_str().starts_with(X86);
    let mut traits: BTreeSet<_> = processor.iter().filter(of_guests).cloned().collect();
    traits.extend(config.traits.iter().cloned());
    if config.driver == DriverKind::None {
        return traits;
    }
    let named = |name| Trait::new(name).expect("a constant name that holds to the rule");
    traits.insert(named("COMPUTE_NODE"));
    if config.driver == DriverKind::Libvirt {
        traits.insert(named("COMPUTE_ARCH_X86_64"));
    }
    // An agent that behaves like an older one does not know what only newer ones know.
    if ServiceVersion(config.service_version).can(Feature::SocketPolicy) {
        traits.insert(Trait::socket_pci_numa_affinity());
    }
    traits
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: nothing is said that is not true of guests. Method: one processor under each driver.
    #[test]
    fn a_translated_guest_has_not_what_the_processor_can_do() {
        let names = ["HW_CPU_HYPERTHREADING", "HW_CPU_X86_AVX2"];
        let processor = names.map(|name| Trait::new(name).unwrap()).into();
        let told = |change: fn(&mut Config)| {
            let mut config = Config::default();
            change(&mut config);
            let traits = traits(&config, &processor);
            assert!(traits.iter().all(|t| t.is_standard() || t.is_custom()));
            traits.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        let (node, socket) = ("COMPUTE_NODE", "COMPUTE_SOCKET_PCI_NUMA_AFFINITY");
        let arch = "COMPUTE_ARCH_X86_64";
        let hypervisor = |change: fn(&mut Config)| {
            let mut config = Config::default();
            change(&mut config);
            let told = platform(&config).hypervisor;
            told.map(|hypervisor| hypervisor.to_string())
        };
        assert_eq!(hypervisor(|_| ()).as_deref(), Some("qemu"));
        assert_eq!(
            hypervisor(|c| c.driver = DriverKind::Sim).as_deref(),
            Some("fake")
        );
        assert_eq!(told(|_| ()), [arch, node, socket, names[0]]);
        assert_eq!(
            told(|c| c.libvirt.virt_type = Virtualisation::Kvm),
            [arch, node, socket, names[0], names[1]]
        );
        let sim = told(|c| {
            c.driver = DriverKind::Sim;
            c.service_version = 1;
            c.traits = vec![Trait::new("CUSTOM_FAST").unwrap()];
        });
        assert_eq!(sim, [node, "CUSTOM_FAST", names[0], names[1]]);
        let former = |c: &mut Config| c.service_version = 2;
        assert_eq!(told(former), [arch, node, socket, names[0]]);
    }
}
