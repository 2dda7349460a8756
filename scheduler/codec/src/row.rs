//! Rows of the state, and changes of rows.

use std::sync::Arc;

use berth_domain::grant::{GrantKey, GrantKeys, GrantSeed};
use berth_domain::id::{Epoch, TimeMs};
use berth_domain::recovery::{GUESTS_MAX, RecoveredHost};
use berth_domain::resource::{Custom, ResourceClass, Trait};
use berth_domain::version::ServiceVersion;
use berth_domain::vm::Vm;
use berth_proto::convert::field::{self, Invalid};
use berth_proto::convert::{ResourceName as _, placement};
use berth_proto::state::v1;
use berth_proto::state::v1::row::Row as Wire;
use berth_state::{Change, Header, Row};
use berth_store::row::{Row as StoredRow, RowChange};
use bytes::Bytes;
use prost::Message as _;

use super::request::{read_request, write_request};
use super::{CodecError, encode_key};

/// Returns a row as it is stored.
#[must_use]
pub fn encode_row(row: &Row) -> StoredRow {
    StoredRow {
        key: encode_key(&row.key()),
        value: encode_value(row),
    }
}

/// Returns a change as it is stored.
#[must_use]
pub fn encode_change(change: &Change) -> RowChange {
    RowChange {
        key: encode_key(&change.key),
        old: change.old.as_ref().map(encode_value),
        new: change.new.as_ref().map(encode_value),
    }
}

/// Returns the row that is stored so.
///
/// # Errors
///
/// When this build does not know the row or a part of it, or when it is under another row's key.
pub fn decode_row(stored: &StoredRow) -> Result<Row, CodecError> {
    let row = decode_value(stored.value.clone())?;
    let key = row.key();
    if encode_key(&key) != stored.key {
        return Err(CodecError::Misplaced {
            row: format!("{key:?}"),
        });
    }
    Ok(row)
}

/// Returns the row with this value, whatever its key is: of one whose names were changed, that is another.
///
/// # Errors
///
/// When this build does not know the row or a part of it.
pub fn decode_value(value: Bytes) -> Result<Row, CodecError> {
    let what = "row";
    let wire = v1::Row::decode(value).map_err(|source| CodecError::Wire { what, source })?;
    read(wire).map_err(|source| CodecError::Field { what, source })
}

pub(super) fn encode_value(row: &Row) -> Bytes {
    let mut first_boot = None;
    let wire = match row {
        Row::Header(row) => Wire::Header(write_header(row)),
        Row::Host(row) => Wire::Host((&**row).into()),
        Row::Provider(row) => Wire::Provider((&**row).into()),
        Row::Consumer(row) => Wire::Consumer((&**row).into()),
        Row::Flavor(row) => Wire::Flavor((&**row).into()),
        Row::Service(row) => Wire::Service((&**row).into()),
        Row::Vm(row) => {
            first_boot = row.first_boot.as_deref().map(Into::into);
            Wire::Vm((&**row).into())
        }
        Row::Claim(row) => Wire::Claim((&**row).into()),
        Row::Migration(row) => Wire::Migration((&**row).into()),
        Row::Operation(row) => Wire::Operation((&**row).into()),
        Row::Request(row) => Wire::Request(write_request(row)),
        Row::Class(row) => Wire::ResourceClass(write_custom(row, ResourceClass::as_str)),
        Row::Trait(row) => Wire::Trait(write_custom(row, Trait::as_str)),
        Row::Aggregate(row) => Wire::Aggregate((&**row).into()),
        Row::ServerGroup(row) => Wire::ServerGroup((&**row).into()),
        Row::Policy(row) => Wire::Policy((&**row).into()),
        Row::PciAlias(row) => Wire::PciAlias((&**row).into()),
        Row::Image(row) => Wire::Image((&**row).into()),
        Row::Network(row) => Wire::Network((&**row).into()),
        Row::Audit(row) => Wire::Audit((&**row).into()),
        Row::Volume(row) => Wire::Volume((&**row).into()),
        Row::RevokedCertificate(row) => Wire::RevokedCertificate((&**row).into()),
        Row::RecoveredHost(row) => Wire::RecoveredHost(write_recovered(row)),
        Row::SettledVm(row) => Wire::SettledVm((&**row).into()),
    };
    let wire = v1::Row {
        row: Some(wire),
        first_boot,
    };
    wire.encode_to_vec().into()
}

fn read(wire: v1::Row) -> Result<Row, Invalid> {
    let first_boot = field::optional(wire.first_boot, "first_boot")?.map(Arc::new);
    let wire = wire
        .row
        .ok_or_else(|| Invalid::new("row", "must be one that this build knows"))?;
    Ok(match wire {
        Wire::Header(wire) => Row::Header(read_header(&wire)?),
        Wire::Host(wire) => Row::Host(Arc::new(wire.try_into()?)),
        Wire::Provider(wire) => Row::Provider(Arc::new(wire.try_into()?)),
        Wire::Consumer(wire) => Row::Consumer(Arc::new(wire.try_into()?)),
        Wire::Flavor(wire) => Row::Flavor(Arc::new(wire.try_into()?)),
        Wire::Service(wire) => Row::Service(Arc::new(wire.try_into()?)),
        Wire::Vm(wire) => Row::Vm(Arc::new(Vm {
            first_boot,
            ..wire.try_into()?
        })),
        Wire::Claim(wire) => Row::Claim(Arc::new(wire.try_into()?)),
        Wire::Migration(wire) => Row::Migration(Arc::new(wire.try_into()?)),
        Wire::Operation(wire) => Row::Operation(Arc::new(wire.try_into()?)),
        Wire::Request(wire) => Row::Request(Arc::new(read_request(wire)?)),
        Wire::ResourceClass(wire) => {
            Row::Class(Arc::new(read_custom(&wire, placement::read_class)?))
        }
        Wire::Aggregate(wire) => Row::Aggregate(Arc::new(wire.try_into()?)),
        Wire::ServerGroup(wire) => Row::ServerGroup(Arc::new(wire.try_into()?)),
        Wire::Policy(wire) => Row::Policy(Arc::new(wire.try_into()?)),
        Wire::Trait(wire) => Row::Trait(Arc::new(read_custom(&wire, placement::read_trait)?)),
        Wire::PciAlias(wire) => Row::PciAlias(Arc::new(wire.try_into()?)),
        Wire::Image(wire) => Row::Image(Arc::new(wire.try_into()?)),
        Wire::Network(wire) => Row::Network(Arc::new(wire.try_into()?)),
        Wire::Audit(wire) => Row::Audit(Arc::new(wire.try_into()?)),
        Wire::Volume(wire) => Row::Volume(Arc::new(wire.try_into()?)),
        Wire::RevokedCertificate(wire) => Row::RevokedCertificate(Arc::new(wire.try_into()?)),
        Wire::RecoveredHost(wire) => Row::RecoveredHost(Arc::new(read_recovered(wire)?)),
        Wire::SettledVm(wire) => Row::SettledVm(Arc::new(wire.try_into()?)),
    })
}

pub(super) fn write_custom<N>(custom: &Custom<N>, text: impl Fn(&N) -> &str) -> v1::Custom {
    v1::Custom {
        name: text(&custom.name).to_owned(),
        created_at_ms: custom.created_at.0,
        updated_at_ms: custom.updated_at.0,
        reported: custom.reported,
    }
}

pub(super) fn read_custom<N>(
    wire: &v1::Custom,
    name: impl Fn(&str, &str) -> Result<N, Invalid>,
) -> Result<Custom<N>, Invalid> {
    Ok(Custom {
        name: name(&wire.name, "name")?,
        created_at: TimeMs(wire.created_at_ms),
        updated_at: TimeMs(wire.updated_at_ms),
        reported: wire.reported,
    })
}

fn write_header(header: &Header) -> v1::Header {
    v1::Header {
        cluster_id: header.cluster.map(|id| id.to_string()).unwrap_or_default(),
        cluster_version: header.cluster_version.0,
        time_ms: header.time.0,
        revision: header.revision,
        epoch: header.epoch.0,
        requests: header.requests,
        forgotten_ms: header.forgotten.0,
        grant_keys: header.grant_keys.iter().flatten().map(write_key).collect(),
        revoked_revision: header.revoked_revision,
        recovery: header.recovery.as_ref().map(Into::into),
    }
}

fn read_header(wire: &v1::Header) -> Result<Header, Invalid> {
    let cluster_version = ServiceVersion::from_wire(wire.cluster_version);
    if cluster_version > ServiceVersion::CURRENT {
        return Err(Invalid::new(
            "cluster_version",
            format!(
                "must be at most {}, as this build knows",
                ServiceVersion::CURRENT
            ),
        ));
    }
    Ok(Header {
        cluster: field::optional_uuid(&wire.cluster_id, "cluster_id")?,
        cluster_version,
        time: TimeMs(wire.time_ms),
        revision: wire.revision,
        epoch: Epoch(wire.epoch),
        requests: wire.requests,
        forgotten: TimeMs(wire.forgotten_ms),
        grant_keys: read_keys(&wire.grant_keys)?,
        revoked_revision: wire.revoked_revision,
        recovery: field::optional(wire.recovery, "recovery")?,
    })
}

fn write_recovered(row: &RecoveredHost) -> v1::RecoveredHost {
    v1::RecoveredHost {
        host: row.host.resource_name(),
        incarnation: row.incarnation.to_string(),
        quiet_at: row.quiet_at,
        basis_revision: row.basis,
        running_claims: row
            .running
            .iter()
            .map(|claim| claim.resource_name())
            .collect(),
        others: row.others.iter().map(Into::into).collect(),
    }
}

fn read_recovered(wire: v1::RecoveredHost) -> Result<RecoveredHost, Invalid> {
    let claims = wire.running_claims;
    let running = field::each_by(claims, "running_claims", GUESTS_MAX, |claim| {
        field::name(&claim, "running_claims")
    })?;
    Ok(RecoveredHost {
        host: field::name(&wire.host, "host")?,
        incarnation: field::uuid(&wire.incarnation, "incarnation")?,
        quiet_at: wire.quiet_at,
        basis: wire.basis_revision,
        running: running.into_iter().collect(),
        others: field::each(wire.others, "others", GUESTS_MAX)?,
    })
}

fn write_key(key: &GrantKey) -> v1::StoredGrantKey {
    v1::StoredGrantKey {
        number: key.number,
        seed: Bytes::copy_from_slice(&key.seed.0),
        created_at_ms: key.created_at.0,
    }
}

fn read_keys(wire: &[v1::StoredGrantKey]) -> Result<GrantKeys, Invalid> {
    let mut keys = GrantKeys::default();
    field::bounded(wire.len(), "grant_keys", keys.len())?;
    for (key, wire) in keys.iter_mut().zip(wire) {
        *key = Some(GrantKey {
            number: wire.number,
            seed: read_seed(&wire.seed)?,
            created_at: TimeMs(wire.created_at_ms),
        });
    }
    Ok(keys)
}

/// Returns a secret. The error does not show it.
pub(super) fn read_seed(wire: &[u8]) -> Result<GrantSeed, Invalid> {
    let seed = wire.try_into().map(GrantSeed);
    seed.map_err(|_| Invalid::new("seed", "must have 32 bytes"))
}
