//! Service records.

use berth_domain::service::Service;
use berth_domain::version::ServiceVersion;

use super::field::{self, ADDRESS_MAX, Invalid};
use super::name::ResourceName;
use crate::cluster::v1;

impl From<&Service> for v1::Service {
    fn from(service: &Service) -> Self {
        Self {
            name: service.name.resource_name(),
            address: service.address.clone(),
            service_version: service.version.0,
            register_time: Some(field::timestamp(service.registered_at)),
        }
    }
}

impl TryFrom<v1::Service> for Service {
    type Error = Invalid;

    /// A service that registers itself leaves the time open; it reads as the epoch then, and the
    /// state writes its own.
    fn try_from(wire: v1::Service) -> Result<Self, Invalid> {
        let registered_at = field::optional_time(wire.register_time, "register_time")?;
        Ok(Self {
            name: field::name(&wire.name, "name")?,
            address: field::required_text(wire.address, "address", ADDRESS_MAX)?,
            version: ServiceVersion(wire.service_version),
            registered_at: registered_at.unwrap_or_default(),
        })
    }
}
