//! What kind of machine a guest needs, and what kind a host gives: architecture of the CPU, type of
//! the hypervisor, mode of the virtual machine.
//!
//! Names and aliases are those that OpenStack Nova knows; here they are kept in their first form.
//!
//! Invariant: a host without a reported platform takes only guests without such requirements.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The longest name that an agent may report, in bytes.
const NAME_MAX: usize = 32;
/// Architectures.
const ARCHITECTURES: [&str; 22] = [
    "aarch64",
    "armv6",
    "armv7l",
    "i686",
    "ia64",
    "loongarch64",
    "m68k",
    "mips",
    "mips64",
    "mips64el",
    "mipsel",
    "parisc",
    "ppc",
    "ppc64",
    "ppc64le",
    "riscv64",
    "s390",
    "s390x",
    "sh4",
    "sparc",
    "sparc64",
    "x86_64",
];
/// Other names of architectures.
const ARCHITECTURE_ALIASES: [(&str, &str); 12] = [
    ("amd64", "x86_64"),
    ("x64", "x86_64"),
    ("x86-64", "x86_64"),
    ("arm64", "aarch64"),
    ("i386", "i686"),
    ("i486", "i686"),
    ("i586", "i686"),
    ("x86", "i686"),
    ("arm", "armv7l"),
    ("powerpc", "ppc"),
    ("powerpc64", "ppc64"),
    ("ppc64el", "ppc64le"),
];
/// Types of hypervisors; `fake` is the simulated one.
const HYPERVISORS: [&str; 8] = [
    "bhyve", "fake", "hyperv", "kvm", "lxc", "qemu", "vmware", "xen",
];
/// Modes of virtual machines.
const MODES: [&str; 4] = ["exe", "hvm", "uml", "xen"];

fn known(text: &str, names: &[&'static str], aliases: &[(&str, &'static str)]) -> Option<String> {
    let text = text.trim().to_ascii_lowercase();
    let alias = aliases.iter().find(|(alias, _)| *alias == text);
    let name = alias.map_or(&*text, |(_, name)| name);
    names.contains(&name).then(|| name.to_owned())
}

macro_rules! kind {
    ($(#[$doc:meta])* $name:ident, $names:expr, $aliases:expr) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(String);

        impl $name {
            /// Reads a name or an alias in any case.
            ///
            /// # Errors
            ///
            /// Which names are known.
            pub fn parse(text: &str) -> Result<Self, String> {
                known(text, &$names, &$aliases)
                    .map(Self)
                    .ok_or_else(|| format!("must be one of {}", $names.join(", ")))
            }

            /// Reads a name that an agent reports; one that is not known here is kept as it is, so
            /// that a newer agent is not kept from registering.
            ///
            /// # Errors
            ///
            /// The text is no name at all.
            pub fn reported(text: &str) -> Result<Self, String> {
                let plain = |c: u8| c.is_ascii_alphanumeric() || c == b'_' || c == b'-';
                if !(1..=NAME_MAX).contains(&text.len()) || !text.bytes().all(plain) {
                    return Err(format!("must be 1 to {NAME_MAX} letters, digits, _ or -"));
                }
                Ok(Self::parse(text).unwrap_or_else(|_| Self(text.to_ascii_lowercase())))
            }

            /// Returns its name.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(&self.0)
            }
        }
    };
}

kind!(
    /// The architecture of a CPU, as `x86_64`.
    Architecture, ARCHITECTURES, ARCHITECTURE_ALIASES
);
kind!(
    /// The type of a hypervisor, as `kvm`.
    HypervisorType, HYPERVISORS, [("xapi", "xen")]
);
kind!(
    /// The mode of a virtual machine, as `hvm`.
    VmMode, MODES, [("hv", "hvm"), ("pv", "xen")]
);

/// What kind of machine a host gives, as far as its agent reports.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Platform {
    /// The architecture of its CPUs.
    #[serde(default)]
    pub architecture: Option<Architecture>,
    /// The type of its hypervisor.
    #[serde(default)]
    pub hypervisor: Option<HypervisorType>,
}

impl Platform {
    /// Returns whether guests of this architecture run here: the host's own, and that of 32 bits
    /// on x86.
    #[must_use]
    pub fn runs(&self, requested: &Architecture) -> bool {
        let own = self.architecture.as_ref().map(Architecture::as_str);
        own.is_some_and(|own| {
            own == requested.as_str() || (own == "x86_64" && requested.0 == "i686")
        })
    }

    /// Returns whether guests for this hypervisor run here. One with KVM emulates too.
    #[must_use]
    pub fn is(&self, requested: &HypervisorType) -> bool {
        let own = self.hypervisor.as_ref().map(HypervisorType::as_str);
        own.is_some_and(|own| own == requested.as_str() || (own == "kvm" && requested.0 == "qemu"))
    }

    /// Returns whether guests are emulated here, instruction by instruction.
    #[must_use]
    pub fn emulates(&self) -> bool {
        let own = self.hypervisor.as_ref().map(HypervisorType::as_str);
        own == Some("qemu")
    }

    /// Returns whether guests of this mode run here: all drivers of ours give whole machines.
    #[must_use]
    pub fn has(&self, requested: &VmMode) -> bool {
        self.hypervisor.is_some() && requested.0 == "hvm"
    }
}

/// What kind of machine a guest's image requests.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct PlatformDemand {
    /// `hw_architecture`.
    pub architecture: Option<Architecture>,
    /// `img_hv_type`.
    pub hypervisor: Option<HypervisorType>,
    /// `hw_vm_mode`.
    pub mode: Option<VmMode>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_aliases_are_known() {
        for (text, name) in [
            ("x86_64", "x86_64"),
            ("AMD64", "x86_64"),
            ("i586", "i686"),
            ("arm64", "aarch64"),
            ("ppc64el", "ppc64le"),
        ] {
            assert_eq!(Architecture::parse(text).unwrap().as_str(), name);
        }
        assert_eq!(HypervisorType::parse("KVM").unwrap().as_str(), "kvm");
        assert_eq!(VmMode::parse("hv").unwrap().as_str(), "hvm");
        let [new, bad] = ["Riscv128", "a b"].map(Architecture::reported);
        assert_eq!(new.unwrap().as_str(), "riscv128");
        assert!(bad.is_err());
        let rule = Architecture::parse("z80").unwrap_err();
        assert!(rule.starts_with("must be one of aarch64, "), "{rule}");
    }

    #[test]
    fn a_host_without_a_platform_meets_no_platform_demand() {
        let architecture = |text| Architecture::parse(text).unwrap();
        let hypervisor = |text| HypervisorType::parse(text).unwrap();
        let silent = Platform::default();
        let kvm = Platform {
            architecture: Some(architecture("x86_64")),
            hypervisor: Some(hypervisor("kvm")),
        };
        assert!(!silent.runs(&architecture("x86_64")) && !silent.is(&hypervisor("kvm")));
        assert!(kvm.runs(&architecture("i686")) && !kvm.runs(&architecture("aarch64")));
        assert!(kvm.is(&hypervisor("qemu")) && !kvm.is(&hypervisor("xen")));
        let mode = |text| VmMode::parse(text).unwrap();
        assert!(kvm.has(&mode("hvm")) && !kvm.has(&mode("exe")) && !silent.has(&mode("hvm")));
    }
}
