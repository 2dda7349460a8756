//! Resource names, as `hosts/h1` or `operations/{uuid}`: how things are called on the wire.
//!
//! The domain's own names and identifiers carry no collection: their type is the collection.

use berth_domain::id::{ClaimId, ConsumerId, MigrationId, OperationId, ProviderId};
use berth_domain::name::{
    AggregateName, FlavorName, HostName, ImageName, NetworkName, PciAliasName, ServerGroupName,
    ServiceName, VmName, VolumeId,
};

use super::field::{Invalid, UUID_RULE, parse_uuid, shown};

/// Something that has a resource name.
pub trait ResourceName: Sized {
    /// The form of its names, as `hosts/{host}`.
    const PATTERN: &'static str;

    /// Returns its name on the wire.
    fn resource_name(&self) -> String;

    /// Reads a name.
    ///
    /// # Errors
    ///
    /// When it is of another kind, or not valid behind the slash.
    fn from_resource_name(name: &str) -> Result<Self, Invalid>;
}

fn strip<'a>(name: &'a str, collection: &str, pattern: &str) -> Result<&'a str, Invalid> {
    name.strip_prefix(collection).ok_or_else(|| {
        Invalid::here(format!(
            "must be a name like {pattern}, not {}",
            shown(name)
        ))
    })
}

macro_rules! resource_names {
    ($($type:ty: $collection:literal, $placeholder:literal;)*) => {$(
        impl ResourceName for $type {
            const PATTERN: &'static str = concat!($collection, "{", $placeholder, "}");

            fn resource_name(&self) -> String {
                [$collection, self.as_str()].concat()
            }

            fn from_resource_name(name: &str) -> Result<Self, Invalid> {
                Self::new(strip(name, $collection, Self::PATTERN)?).map_err(Invalid::here)
            }
        }
    )*};
}

resource_names! {
    HostName: "hosts/", "host";
    VmName: "vms/", "vm";
    FlavorName: "flavors/", "flavor";
    PciAliasName: "pciAliases/", "pci alias";
    ImageName: "images/", "image";
    NetworkName: "networks/", "network";
    ServiceName: "services/", "service";
    AggregateName: "aggregates/", "aggregate";
    ServerGroupName: "serverGroups/", "server group";
    VolumeId: "volumes/", "volume";
}

macro_rules! uuid_names {
    ($($type:ident: $collection:literal, $placeholder:literal;)*) => {$(
        impl ResourceName for $type {
            const PATTERN: &'static str = concat!($collection, "{", $placeholder, "}");

            fn resource_name(&self) -> String {
                let mut buffer = [0; uuid::fmt::Hyphenated::LENGTH];
                [$collection, self.0.hyphenated().encode_lower(&mut buffer)].concat()
            }

            fn from_resource_name(name: &str) -> Result<Self, Invalid> {
                parse_uuid(strip(name, $collection, Self::PATTERN)?)
                    .map(Self)
                    .ok_or_else(|| {
                        let (pattern, shown) = (Self::PATTERN, shown(name));
                        Invalid::here(format!("must be {pattern} with {UUID_RULE}, not {shown}"))
                    })
            }
        }
    )*};
}

uuid_names! {
    OperationId: "operations/", "operation";
    MigrationId: "migrations/", "migration";
    ClaimId: "claims/", "claim";
    ProviderId: "resourceProviders/", "provider";
    ConsumerId: "consumers/", "consumer";
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fmt::Debug;

    fn check<N: ResourceName + Debug + PartialEq>(text: &str) {
        let name = N::from_resource_name(text).unwrap();
        assert_eq!(name.resource_name(), text);
    }

    #[test]
    fn names_are_read_as_they_are_written() {
        check::<HostName>("hosts/h1");
        check::<VmName>("vms/a");
        check::<FlavorName>("flavors/m1.large");
        check::<ServiceName>("services/conductor-1");
        let id = "01234567-89ab-cdef-0123-456789abcdef";
        check::<OperationId>(&format!("operations/{id}"));
        check::<MigrationId>(&format!("migrations/{id}"));
        check::<ClaimId>(&format!("claims/{id}"));
        check::<ProviderId>(&format!("resourceProviders/{id}"));
        check::<ConsumerId>(&format!("consumers/{id}"));
    }

    #[test]
    fn other_names_are_refused() {
        for bad in ["h1", "hosts/", "hosts/a/b", "vms/h1", "/hosts/h1", "hosts"] {
            assert!(HostName::from_resource_name(bad).is_err(), "{bad:?}");
        }
        for bad in ["operations/", "operations/1", "migrations/01234567"] {
            assert!(OperationId::from_resource_name(bad).is_err(), "{bad:?}");
        }
    }
}
