//! Names that people choose: hosts, VMs, flavors, services.
//!
//! Invariant: a name holds 1 to 63 characters out of `a-z A-Z 0-9 . _ -` and begins with a letter
//! or a digit, so that it can stand in a resource name, a file name and a libvirt domain name.

use std::borrow::Borrow;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// The longest name that is accepted, in characters.
pub const LENGTH_MAX: usize = 63;

/// Why a text is not a name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{kind} name {text:?} is not valid: 1 to 63 characters out of letters, digits, '.', '_' and '-', \
     beginning with a letter or a digit"
)]
pub struct Invalid {
    /// What the name was for, as `host`.
    pub kind: &'static str,
    /// The text that was given, cut to a bounded length.
    pub text: String,
}

fn is_valid(text: &str) -> bool {
    let mut bytes = text.bytes();
    text.len() <= LENGTH_MAX
        && bytes.next().is_some_and(|b| b.is_ascii_alphanumeric())
        && bytes.all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-'))
}

macro_rules! name {
    ($(#[$doc:meta])* $name:ident, $kind:literal) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(Arc<str>);

        impl $name {
            /// Returns the name after checking it.
            ///
            /// # Errors
            ///
            /// The rule that the text breaks.
            pub fn new(text: &str) -> Result<Self, Invalid> {
                if is_valid(text) {
                    Ok(Self(text.into()))
                } else {
                    Err(Invalid { kind: $kind, text: text.chars().take(LENGTH_MAX + 1).collect() })
                }
            }

            /// Returns the text of the name.
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

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:?}", &*self.0)
            }
        }

        impl FromStr for $name {
            type Err = Invalid;

            fn from_str(text: &str) -> Result<Self, Invalid> {
                Self::new(text)
            }
        }

        impl TryFrom<String> for $name {
            type Error = Invalid;

            fn try_from(text: String) -> Result<Self, Invalid> {
                Self::new(&text)
            }
        }

        impl From<$name> for String {
            fn from(name: $name) -> Self {
                name.0.to_string()
            }
        }

        impl Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }
    };
}

name!(
    /// The name of a compute host; `hosts/{host}` on the wire.
    HostName, "host"
);
name!(
    /// The name of a VM; `vms/{vm}` on the wire.
    VmName, "vm"
);
name!(
    /// The name of a flavor; `flavors/{flavor}` on the wire.
    FlavorName, "flavor"
);
name!(
    /// The name of a region of persistent memory, as `region0`.
    RegionName, "region"
);
name!(
    /// The id of a volume; `volumes/{volume}` on the wire.
    VolumeId, "volume"
);
name!(
    /// The name of a PCI alias; `pciAliases/{alias}` on the wire.
    PciAliasName, "pci alias"
);
name!(
    /// The name of an image of the cluster; `images/{image}` on the wire.
    ImageName, "image"
);
name!(
    /// The name of a network of the cluster; `networks/{network}` on the wire.
    NetworkName, "network"
);
name!(
    /// The name of a physical network, as `physnet1`.
    PhysicalNetworkName, "physical network"
);
name!(
    /// The name of an aggregate of hosts; `aggregates/{aggregate}` on the wire.
    AggregateName, "aggregate"
);
name!(
    /// The name of an availability zone.
    ZoneName, "availability zone"
);
name!(
    /// The name of a server group; `serverGroups/{server group}` on the wire.
    ServerGroupName, "server group"
);
name!(
    /// The name of a namespace of persistent memory on its host.
    PmemName, "pmem namespace"
);
name!(
    /// The name of a service process, as a conductor; agents use their host's name.
    ServiceName, "service"
);
name!(
    /// The name of a CPU model as libvirt knows it, as `Skylake-Server-IBRS`.
    CpuModelName, "CPU model"
);
name!(
    /// The name of a CPU feature as libvirt knows it, as `avx512f`.
    CpuFeature, "CPU feature"
);
name!(
    /// The name of a CPU vendor as libvirt knows it, as `Intel`.
    CpuVendor, "CPU vendor"
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_hold_to_the_rule() {
        for good in ["a", "h1", "rack-3.host_7", "0x"] {
            assert_eq!(HostName::new(good).unwrap().as_str(), good);
        }
        for bad in ["", "-a", ".a", "a/b", "a b", "ä", &"x".repeat(64)] {
            assert!(HostName::new(bad).is_err(), "{bad:?}");
        }
    }
}
