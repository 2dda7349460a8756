//! Names of resource classes, of traits, and of the types of consumers.
//!
//! Invariant: a name holds 1 to 255 characters out of `A-Z 0-9 _`; a custom class or trait begins
//! with `CUSTOM_`. The rules are those of OpenStack's os-resource-classes and os-traits; the
//! standard names are in [`crate::standard`].

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize, Serializer};

use crate::id::TimeMs;

/// What the names of custom resource classes and traits begin with.
pub const CUSTOM_PREFIX: &str = "CUSTOM_";

/// Why a text is not the name of a resource class, of a trait or of a type of consumers.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not a valid {kind}: 1 to 255 characters out of A-Z, 0-9 and _")]
pub struct Invalid {
    /// `resource class`, `trait` or `consumer type`.
    pub kind: &'static str,
    /// The text, cut to a bounded length.
    pub text: String,
}

macro_rules! upper_name {
    ($(#[$doc:meta])* $name:ident, $kind:literal) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
        #[serde(try_from = "String")]
        pub struct $name(Arc<str>);

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                // As it stands: answers hold thousands of names.
                serializer.serialize_str(&self.0)
            }
        }

        impl $name {
            /// Returns the name after checking it.
            ///
            /// # Errors
            ///
            /// When a character or the length is not allowed.
            pub fn new(text: &str) -> Result<Self, Invalid> {
                let good = (1..=255).contains(&text.len())
                    && text.bytes().all(|b| b.is_ascii_uppercase() || b.is_ascii_digit() || b == b'_');
                if good {
                    Ok(Self(text.into()))
                } else {
                    Err(Invalid { kind: $kind, text: text.chars().take(256).collect() })
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
                f.write_str(&self.0)
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
    };
}

upper_name!(
    /// The name of a class of countable resources, as `VCPU`.
    ResourceClass, "resource class"
);
upper_name!(
    /// The name of a trait that a provider has, as `HW_CPU_X86_AVX2`.
    Trait, "trait"
);
upper_name!(
    /// What kind of thing a consumer is, as `INSTANCE`; clients choose it.
    ConsumerType, "consumer type"
);

macro_rules! custom {
    ($name:ident) => {
        impl $name {
            /// Returns whether it is a name that clients may create and delete.
            #[must_use]
            pub fn is_custom(&self) -> bool {
                self.0.len() > CUSTOM_PREFIX.len() && self.0.starts_with(CUSTOM_PREFIX)
            }
        }
    };
}

custom!(ResourceClass);
custom!(Trait);

/// A custom resource class or trait: one that a client created, or that a host reported.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Custom<Name> {
    /// Its name.
    pub name: Name,
    /// When it was created.
    pub created_at: TimeMs,
    /// When it was created or renamed last.
    pub updated_at: TimeMs,
    /// Whether only reports of hosts brought it. It is then removed with the last provider that has
    /// it; once a client creates the name, it stays until a client deletes it. Recorded from
    /// [`ServiceVersion::REPORTED_NAMES`](crate::version::ServiceVersion::REPORTED_NAMES) on.
    #[serde(default)]
    pub reported: bool,
}

macro_rules! constant {
    ($(#[$doc:meta])* $function:ident, $text:literal) => {
        $(#[$doc])*
        #[must_use]
        pub fn $function() -> Self {
            static NAME: std::sync::LazyLock<Arc<str>> = std::sync::LazyLock::new(|| $text.into());
            Self(NAME.clone())
        }
    };
}

impl ResourceClass {
    constant!(
        /// Returns `VCPU`: virtual CPUs that float over shared host CPUs.
        vcpu,
        "VCPU"
    );
    constant!(
        /// Returns `PCPU`: host CPUs given to one virtual CPU each.
        pcpu,
        "PCPU"
    );
    constant!(
        /// Returns `MEMORY_MB`: memory in MiB.
        memory_mb,
        "MEMORY_MB"
    );
    constant!(
        /// Returns `DISK_GB`: disk space in GiB.
        disk_gb,
        "DISK_GB"
    );
}

impl Trait {
    constant!(
        /// Returns `HW_CPU_HYPERTHREADING`: cores have more than one thread.
        hyperthreading,
        "HW_CPU_HYPERTHREADING"
    );
    constant!(
        /// Returns `COMPUTE_SOCKET_PCI_NUMA_AFFINITY`: the agent knows the policy `socket` of
        /// PCI requests.
        socket_pci_numa_affinity,
        "COMPUTE_SOCKET_PCI_NUMA_AFFINITY"
    );
}
