//! Grants. Not here: their signatures, which are made and checked over the encoded bytes.

use std::collections::BTreeSet;

use berth_domain::grant::{ConsoleGrant, Grant, ImageGrant};
use berth_domain::id::Epoch;
use berth_domain::name::HostName;

use super::field::{self, Invalid};
use super::image::read_file;
use super::name::ResourceName;
use crate::operation::v1;
use crate::types::v1::disk::Format;

/// The most hosts of a grant: an operation is about two, and a VM may hold a claim on a third.
const HOSTS_MAX: usize = 16;

impl From<&Grant> for v1::Grant {
    fn from(grant: &Grant) -> Self {
        Self {
            cluster_id: grant.cluster.to_string(),
            operation: grant.operation.resource_name(),
            vm_uid: grant.vm.to_string(),
            epoch: grant.epoch.0,
            conductor: grant.conductor.resource_name(),
            hosts: grant.hosts.iter().map(HostName::resource_name).collect(),
            source: field::name_or_empty(grant.source.as_ref()),
            destination: field::name_or_empty(grant.destination.as_ref()),
            issue_time: Some(field::timestamp(grant.issued_at)),
            expire_time: Some(field::timestamp(grant.expires_at)),
        }
    }
}

impl TryFrom<v1::Grant> for Grant {
    type Error = Invalid;

    fn try_from(wire: v1::Grant) -> Result<Self, Invalid> {
        field::bounded(wire.hosts.len(), "hosts", HOSTS_MAX)?;
        let host = |name: &String| field::name(name, "hosts");
        Ok(Self {
            cluster: field::uuid(&wire.cluster_id, "cluster_id")?,
            operation: field::name(&wire.operation, "operation")?,
            vm: field::uuid(&wire.vm_uid, "vm_uid")?,
            epoch: Epoch(wire.epoch),
            conductor: field::name(&wire.conductor, "conductor")?,
            hosts: wire
                .hosts
                .iter()
                .map(host)
                .collect::<Result<BTreeSet<_>, _>>()?,
            source: field::optional_name(&wire.source, "source")?,
            destination: field::optional_name(&wire.destination, "destination")?,
            issued_at: field::time(wire.issue_time, "issue_time")?,
            expires_at: field::time(wire.expire_time, "expire_time")?,
        })
    }
}

impl From<&ConsoleGrant> for v1::ConsoleGrant {
    fn from(grant: &ConsoleGrant) -> Self {
        Self {
            cluster_id: grant.cluster.to_string(),
            vm_uid: grant.vm.to_string(),
            conductor: grant.conductor.resource_name(),
            user: grant.user.clone(),
            issue_time: Some(field::timestamp(grant.issued_at)),
            expire_time: Some(field::timestamp(grant.expires_at)),
        }
    }
}

impl TryFrom<v1::ConsoleGrant> for ConsoleGrant {
    type Error = Invalid;

    fn try_from(wire: v1::ConsoleGrant) -> Result<Self, Invalid> {
        Ok(Self {
            cluster: field::uuid(&wire.cluster_id, "cluster_id")?,
            vm: field::uuid(&wire.vm_uid, "vm_uid")?,
            conductor: field::name(&wire.conductor, "conductor")?,
            user: wire.user,
            issued_at: field::time(wire.issue_time, "issue_time")?,
            expires_at: field::time(wire.expire_time, "expire_time")?,
        })
    }
}

impl From<&ImageGrant> for v1::ImageGrant {
    fn from(grant: &ImageGrant) -> Self {
        Self {
            cluster_id: grant.cluster.to_string(),
            file_name: grant.file.to_string(),
            format: Format::from(grant.format).into(),
            content: grant.content.as_ref().map(Into::into),
            download: grant.download.as_ref().map(Into::into),
            conductor: grant.conductor.resource_name(),
            issue_time: Some(field::timestamp(grant.issued_at)),
            expire_time: Some(field::timestamp(grant.expires_at)),
        }
    }
}

impl TryFrom<v1::ImageGrant> for ImageGrant {
    type Error = Invalid;

    fn try_from(wire: v1::ImageGrant) -> Result<Self, Invalid> {
        Ok(Self {
            cluster: field::uuid(&wire.cluster_id, "cluster_id")?,
            file: read_file(&wire.file_name, "file_name")?,
            format: field::choice::<Format, _>(wire.format, "format")?,
            content: field::optional(wire.content, "content")?,
            download: field::optional(wire.download, "download")?,
            conductor: field::name(&wire.conductor, "conductor")?,
            issued_at: field::time(wire.issue_time, "issue_time")?,
            expires_at: field::time(wire.expire_time, "expire_time")?,
        })
    }
}
