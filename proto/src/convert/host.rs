//! Hosts, what their agents report, and what claims take from them.

use std::collections::BTreeMap;
use std::sync::Arc;

use berth_domain::claim::Claim;
use berth_domain::fence::{self, Fenced, Method};
use berth_domain::host::{Host, HostReport, Liveness};
use berth_domain::id::Generation;
use berth_domain::numa::HostUsage;
use berth_domain::platform::{Architecture, HypervisorType, Platform};
use berth_domain::reality::UNKNOWN_MAX;
use berth_domain::topology::HostTopology;
use berth_domain::version::ServiceVersion;
use berth_domain::volume::{FAILED_MAX, FAILURE_LENGTH_MAX, Failed, REGIONS_MAX};

use super::field::{self, ADDRESS_MAX, Invalid, choices};
use super::name::ResourceName;
use super::network::read_networks;
use super::placement::{read_traits, write_traits};
use super::volume::read_display_name;
use crate::host::v1;

choices!(Liveness => v1::host::Liveness { Up, Down });
choices!(Method => v1::fence::Method { FenceCommand, Operator, SelfFenced });

impl From<&HostReport> for v1::HostReport {
    fn from(report: &HostReport) -> Self {
        Self {
            cpu: report.cpu.as_deref().map(Into::into),
            ..write_report_without_cpu(report)
        }
    }
}

fn write_report_without_cpu(report: &HostReport) -> v1::HostReport {
    v1::HostReport {
        agent_address: report.agent_address.clone(),
        incarnation: report.incarnation.to_string(),
        service_version: report.service_version.0,
        driver: report.driver.clone(),
        migration_uri: report.migration_uri.clone(),
        topology: Some((&*report.topology).into()),
        memory_reserved_mib: report.memory_reserved_mib,
        disk_gib: report.disk_gib,
        storage_id: report.storage_id.clone(),
        traits: write_traits(&report.traits),
        architecture: text(report.platform.architecture.as_ref()),
        hypervisor_type: text(report.platform.hypervisor.as_ref()),
        self_fence_ms: report.self_fence_ms,
        regions: report.regions.iter().map(Into::into).collect(),
        cpu: None,
        networks: report.networks.iter().map(Into::into).collect(),
    }
}

impl TryFrom<v1::HostReport> for HostReport {
    type Error = Invalid;

    fn try_from(wire: v1::HostReport) -> Result<Self, Invalid> {
        let address = |text, field| field::text(text, field, ADDRESS_MAX);
        Ok(Self {
            agent_address: address(wire.agent_address, "agent_address")?,
            incarnation: field::uuid(&wire.incarnation, "incarnation")?,
            service_version: ServiceVersion(wire.service_version),
            driver: address(wire.driver, "driver")?,
            migration_uri: address(wire.migration_uri, "migration_uri")?,
            topology: Arc::new(field::required(wire.topology, "topology")?),
            memory_reserved_mib: wire.memory_reserved_mib,
            disk_gib: wire.disk_gib,
            storage_id: address(wire.storage_id, "storage_id")?,
            traits: read_traits(wire.traits, "traits")?,
            platform: Platform {
                architecture: kind(&wire.architecture, "architecture", Architecture::reported)?,
                hypervisor: kind(
                    &wire.hypervisor_type,
                    "hypervisor_type",
                    HypervisorType::reported,
                )?,
            },
            self_fence_ms: wire.self_fence_ms,
            regions: field::each(wire.regions, "regions", REGIONS_MAX)?,
            cpu: field::optional(wire.cpu, "cpu")?.map(Arc::new),
            networks: read_networks(wire.networks, "networks")?,
        })
    }
}

fn text(kind: Option<&impl ToString>) -> String {
    kind.map(ToString::to_string).unwrap_or_default()
}

/// Reads a kind of which older agents report nothing.
fn kind<T>(
    text: &str,
    field: &str,
    read: impl Fn(&str) -> Result<T, String>,
) -> Result<Option<T>, Invalid> {
    if text.is_empty() {
        return Ok(None);
    }
    read(text)
        .map(Some)
        .map_err(|rule| Invalid::new(field, rule))
}

impl From<&Host> for v1::Host {
    fn from(host: &Host) -> Self {
        write_host(host, (&host.report).into())
    }
}

/// Writes a host as lists have it: without what its hypervisor offers as a CPU, which is the most of it.
#[must_use]
pub fn write_listed_host(host: &Host) -> v1::Host {
    write_host(host, write_report_without_cpu(&host.report))
}

fn write_host(host: &Host, report: v1::HostReport) -> v1::Host {
    v1::Host {
        name: host.name.resource_name(),
        resource_provider: host.provider.resource_name(),
        report: Some(report),
        liveness: v1::host::Liveness::from(host.liveness).into(),
        cordoned: host.cordoned,
        cordoned_by: field::name_or_empty(host.cordoned_by.as_ref()),
        generation: host.generation.0,
        create_time: Some(field::timestamp(host.created_at)),
        shape_refused: host.shape_refused.clone().unwrap_or_default(),
        fence: host.fenced.as_ref().map(Into::into),
        unknown_domains: host.unknown.iter().map(Into::into).collect(),
        compared_revision: host.compared,
        hit_claims: host.hit.iter().map(ResourceName::resource_name).collect(),
        failed_volumes: host.failed_volumes.iter().map(Into::into).collect(),
        registered_version: match host.registered_version {
            // As it was written before there were such records.
            ServiceVersion::OLDEST => 0,
            version => version.0,
        },
        unreported: host.unreported,
        orphans: host.orphans.iter().map(ToString::to_string).collect(),
    }
}

impl TryFrom<v1::Host> for Host {
    type Error = Invalid;

    fn try_from(wire: v1::Host) -> Result<Self, Invalid> {
        Ok(Self {
            name: field::name(&wire.name, "name")?,
            provider: field::name(&wire.resource_provider, "resource_provider")?,
            report: field::required(wire.report, "report")?,
            liveness: field::choice::<v1::host::Liveness, _>(wire.liveness, "liveness")?,
            cordoned: wire.cordoned,
            cordoned_by: field::optional_name(&wire.cordoned_by, "cordoned_by")?,
            generation: Generation(wire.generation),
            created_at: field::time(wire.create_time, "create_time")?,
            shape_refused: Some(wire.shape_refused).filter(|why| !why.is_empty()),
            registered_version: ServiceVersion::from_wire(wire.registered_version),
            fenced: field::optional(wire.fence, "fence")?,
            unknown: field::each(wire.unknown_domains, "unknown_domains", UNKNOWN_MAX)?,
            compared: wire.compared_revision,
            hit: (wire.hit_claims.iter())
                .map(|name| field::name(name, "hit_claims"))
                .collect::<Result<_, _>>()?,
            failed_volumes: field::each(wire.failed_volumes, "failed_volumes", FAILED_MAX)?,
            unreported: wire.unreported,
            orphans: (wire.orphans.iter())
                .map(|uuid| field::uuid(uuid, "orphans"))
                .collect::<Result<_, _>>()?,
        })
    }
}

impl From<&Failed> for v1::FailedVolume {
    fn from(failed: &Failed) -> Self {
        Self {
            volume: failed.volume.resource_name(),
            display_name: failed.display_name.to_string(),
            why: failed.why.clone(),
            time: Some(field::timestamp(failed.at)),
        }
    }
}

impl TryFrom<v1::FailedVolume> for Failed {
    type Error = Invalid;

    fn try_from(wire: v1::FailedVolume) -> Result<Self, Invalid> {
        Ok(Self {
            volume: field::name(&wire.volume, "volume")?,
            display_name: read_display_name(&wire.display_name, "display_name")?,
            why: field::text(wire.why, "why", FAILURE_LENGTH_MAX)?,
            at: field::time(wire.time, "time")?,
        })
    }
}

impl From<&Fenced> for v1::Fence {
    fn from(fenced: &Fenced) -> Self {
        Self {
            method: v1::fence::Method::from(fenced.method).into(),
            principal: fenced.by.clone(),
            fence_time: Some(field::timestamp(fenced.at)),
            incarnation: fenced.incarnation.to_string(),
            output: fenced.output.clone(),
            reported_since: fenced.reported_since,
        }
    }
}

impl TryFrom<v1::Fence> for Fenced {
    type Error = Invalid;

    fn try_from(wire: v1::Fence) -> Result<Self, Invalid> {
        Ok(Self {
            method: field::choice::<v1::fence::Method, _>(wire.method, "method")?,
            by: wire.principal,
            at: field::time(wire.fence_time, "fence_time")?,
            incarnation: field::uuid(&wire.incarnation, "incarnation")?,
            output: field::text(wire.output, "output", fence::OUTPUT_MAX)?,
            reported_since: wire.reported_since,
        })
    }
}

/// Writes what the claims of a host take from it, with the holder of each dedicated CPU.
#[must_use]
pub fn write_usage<'a>(
    topology: &HostTopology,
    usage: &HostUsage,
    claims: impl IntoIterator<Item = &'a Claim>,
) -> v1::HostUsage {
    let cells = topology.cells().iter().zip(&usage.cells);
    let mut holders = BTreeMap::new();
    let mut resources = BTreeMap::new();
    for claim in claims {
        for holder in cpu_holders(claim) {
            holders.insert(holder.cpu, holder);
        }
        for (class, amount) in &claim.resources {
            *resources.entry(class.to_string()).or_default() += amount;
        }
    }
    v1::HostUsage {
        cells: cells
            .map(|(cell, used)| v1::CellUsage {
                host_cell: cell.id.0,
                pinned_cpus: used.pinned.to_string(),
                shared_vcpus: used.shared_vcpus,
                memory_mib: used.memory_mib,
                pages: used.pages.clone(),
            })
            .collect(),
        cpus: holders.into_values().collect(),
        resources,
    }
}

fn cpu_holders(claim: &Claim) -> Vec<v1::CpuHolder> {
    let holder = |cpu, vcpu| v1::CpuHolder {
        cpu,
        claim: claim.id.resource_name(),
        vm: claim.vm.resource_name(),
        vcpu,
    };
    let pins = claim.assignment.pins();
    let pinned = pins.iter().map(|(vcpu, cpu)| holder(cpu.0, Some(vcpu.0)));
    let emulator = claim.assignment.emulator.iter().map(|c| holder(c.0, None));
    pinned.chain(emulator).collect()
}
