//! What a recorded outcome counts against
//! [`OUTCOMES_BYTES_MAX`](crate::request::OUTCOMES_BYTES_MAX).
//!
//! An estimate of the memory of its records: their texts, and how many parts they have. Not the
//! length of its encoded form, which this crate does not know; a test of the codec checks that it is
//! not below that length.
//!
//! Invariant: equal outcomes have equal weights on all members, so that all of them forget the same
//! requests. What is counted changes only with a cluster version. The records are taken apart field
//! by field: a new field does not compile until it is counted.

use std::collections::BTreeSet;

use berth_domain::aggregate::Aggregate;
use berth_domain::allocation::{Consumer, Resources};
use berth_domain::cpu_model::HostCpu;
use berth_domain::cpu_set::CpuSet;
use berth_domain::fence::Fenced;
use berth_domain::flavor::Flavor;
use berth_domain::host::{Host, HostReport};
use berth_domain::image::Image;
use berth_domain::import::Origin;
use berth_domain::name::CpuFeature;
use berth_domain::network::{Network, NetworkLink};
use berth_domain::numa::Assignment;
use berth_domain::operation::{
    Drain, DrainedVm, Entry, Kind, Mark, Operation, Outcome, PlannedPlace, Progress, Subject,
};
use berth_domain::ownership::Ownership;
use berth_domain::pci::PciAlias;
use berth_domain::policy::{SchedulingPolicy, Scoped};
use berth_domain::provider::ResourceProvider;
use berth_domain::reality::Unknown;
use berth_domain::refusal::{HostRefusal, Refusal};
use berth_domain::service::Service;
use berth_domain::topology::{HostCell, HostTopology};
use berth_domain::volume::{Failed, Region, Replica, Volume};

use crate::reply::Reply;

/// A record, for its fields of fixed size and its place in a table.
const RECORD: u64 = 512;
/// A part of a record: an element of a list, a set or a map.
const PART: u64 = 128;

/// Returns what an outcome counts. One without a record is part of its request, and counts nothing.
pub(crate) fn of_outcome(outcome: &Result<Reply, Refusal>) -> u64 {
    match outcome {
        Ok(reply) => of_reply(reply),
        Err(refusal) => of_refusal(refusal),
    }
}

fn of_reply(reply: &Reply) -> u64 {
    match reply {
        Reply::None => 0,
        Reply::Host(host) => of_host(host),
        Reply::Service(service) => of_service(service),
        Reply::Flavor(flavor) => of_flavor(flavor),
        Reply::PciAlias(alias) => of_alias(alias),
        Reply::Network(network) => of_network(network),
        Reply::Image(image) => of_image(image),
        Reply::Provider(provider) => of_provider(provider),
        Reply::Consumers(consumers) => each(consumers, |c| of_consumer(c)),
        Reply::Batch {
            providers,
            consumers,
        } => each(providers, |p| of_provider(p)) + each(consumers, |c| of_consumer(c)),
        Reply::Class { class, existed: _ } => RECORD + text(class.name.as_str()),
        Reply::Trait { custom, existed: _ } => RECORD + text(custom.name.as_str()),
        Reply::Aggregate(aggregate) => of_aggregate(aggregate),
        Reply::ServerGroup(group) => {
            RECORD + text(group.name.as_str()) + of_ownership(&group.ownership)
        }
        Reply::Policy(policy) => of_policy(policy),
        Reply::Operation(operation) => of_operation(operation),
        Reply::Leases(operations) => each(operations, |_| 0),
        Reply::Volume(volume) => of_volume(volume),
    }
}

fn text(text: &str) -> u64 {
    text.len() as u64
}

fn option(option: Option<&str>) -> u64 {
    option.map_or(0, text)
}

fn each<T>(parts: impl IntoIterator<Item = T>, weight: impl Fn(T) -> u64) -> u64 {
    let parts = parts.into_iter();
    parts.map(|part| PART + weight(part)).sum()
}

fn pairs<'a>(pairs: impl IntoIterator<Item = (&'a String, &'a String)>) -> u64 {
    each(pairs, |(key, value)| text(key) + text(value))
}

fn cpus(set: &CpuSet) -> u64 {
    set.len() as u64 * 8
}

fn of_refusal(refusal: &Refusal) -> u64 {
    let Refusal {
        code: _,
        reason,
        message,
        hint,
        // Of placements, which are refused before they are recorded.
        change: _,
        metadata,
        causes,
        hosts,
    } = refusal;
    RECORD
        + text(reason)
        + text(message)
        + option(hint.as_deref())
        + pairs(metadata)
        + each(causes.keys(), |cause| text(cause))
        + each(hosts, of_host_refusal)
}

fn of_host_refusal(refusal: &HostRefusal) -> u64 {
    let HostRefusal {
        host,
        cause,
        message,
        guest_cell: _,
        host_cell: _,
        missing,
    } = refusal;
    let missing = missing.as_ref().map(|missing| missing.resource.as_str());
    text(host.as_str()) + text(cause) + text(message) + option(missing)
}

/// Returns nothing for a record from before cluster version 4, which has none.
fn of_ownership(ownership: &Ownership) -> u64 {
    let Ownership { project, creator } = ownership;
    option(project.as_ref().map(|project| project.as_str())) + text(creator)
}

fn of_service(service: &Service) -> u64 {
    let Service {
        name,
        address,
        version: _,
        registered_at: _,
    } = service;
    RECORD + text(name.as_str()) + text(address)
}

fn of_flavor(flavor: &Flavor) -> u64 {
    let Flavor {
        name,
        vcpus: _,
        memory_mib: _,
        disk_gib: _,
        extra_specs,
        ownership,
    } = flavor;
    RECORD + text(name.as_str()) + pairs(extra_specs) + of_ownership(ownership)
}

fn of_alias(alias: &PciAlias) -> u64 {
    let PciAlias {
        name,
        any_of,
        policy: _,
    } = alias;
    RECORD + text(name.as_str()) + each(any_of, |one| pairs(&one.tags))
}

fn of_network(network: &Network) -> u64 {
    let Network {
        name,
        link,
        description,
        ownership,
        created_at: _,
    } = network;
    RECORD + text(name.as_str()) + of_link(link) + text(description) + of_ownership(ownership)
}

fn of_link(link: &NetworkLink) -> u64 {
    let NetworkLink {
        physical_network,
        vlan: _,
        mtu: _,
    } = link;
    text(physical_network.as_str())
}

fn of_image(image: &Image) -> u64 {
    let Image {
        name,
        uid: _,
        format: _,
        properties,
        content: _,
        copies,
        ownership,
        created_at: _,
    } = image;
    RECORD
        + text(name.as_str())
        + pairs(&properties.0)
        + each(copies, |host| text(host.as_str()))
        + of_ownership(ownership)
}

fn of_provider(provider: &ResourceProvider) -> u64 {
    let ResourceProvider {
        id: _,
        name,
        generation: _,
        parent: _,
        root: _,
        host,
        inventories,
        traits,
        aggregates,
        origin,
        created_at: _,
        updated_at: _,
    } = provider;
    RECORD
        + text(name)
        + option(host.as_ref().map(|host| host.as_str()))
        + each(inventories.keys(), |class| text(class.as_str()))
        + each(traits, |name| text(name.as_str()))
        + each(aggregates, |_| 0)
        + of_origin(origin.as_ref())
}

fn of_origin(origin: Option<&Origin>) -> u64 {
    option(origin.map(|origin| origin.source.as_str()))
}

fn of_consumer(consumer: &Consumer) -> u64 {
    let Consumer {
        id: _,
        generation: _,
        project,
        user,
        consumer_type,
        origin,
        created_at: _,
        updated_at: _,
        allocations,
    } = consumer;
    RECORD
        + text(project)
        + text(user)
        + option(consumer_type.as_ref().map(|kind| kind.as_str()))
        + of_origin(origin.as_ref())
        + each(allocations.values(), of_resources)
}

fn of_resources(resources: &Resources) -> u64 {
    each(resources.keys(), |class| text(class.as_str()))
}

fn of_aggregate(aggregate: &Aggregate) -> u64 {
    let Aggregate {
        name,
        id: _,
        hosts,
        metadata,
        generation: _,
        created_at: _,
    } = aggregate;
    RECORD + text(name.as_str()) + each(hosts, |host| text(host.as_str())) + pairs(metadata)
}

fn of_policy(policy: &SchedulingPolicy) -> u64 {
    let SchedulingPolicy {
        hosts: _,
        cells: _,
        weights: _,
        mem_page_size: _,
        migration: _,
        self_fence_ms: _,
        dead_member_timeout_s: _,
        memory,
        cpu,
        failover: _,
        balance: _,
        generation: _,
    } = policy;
    RECORD + of_scoped(memory) + of_scoped(cpu)
}

fn of_scoped<T>(scoped: &Scoped<T>) -> u64 {
    let Scoped {
        cluster: _,
        groups,
        hosts,
    } = scoped;
    each(groups.keys(), |name| text(name.as_str())) + each(hosts.keys(), |name| text(name.as_str()))
}

fn of_subject(subject: &Subject) -> u64 {
    match subject {
        Subject::Vm(vm) => text(vm.as_str()),
        Subject::Drain(drain) => {
            let Drain {
                host,
                by,
                was_cordoned: _,
                vms,
            } = &**drain;
            text(host.as_str()) + text(by) + each(vms, of_drained)
        }
    }
}

fn of_drained(drained: &DrainedVm) -> u64 {
    let DrainedVm {
        vm,
        uid: _,
        planned,
        attempts: _,
        progress,
    } = drained;
    let place = |place: &PlannedPlace| text(place.host.as_str()) + of_assignment(&place.assignment);
    let progress = match progress {
        Progress::Waiting | Progress::Gone => 0,
        Progress::Moving { .. } => RECORD,
        Progress::Moved { host } => text(host.as_str()),
        Progress::Stays { refusal } => of_refusal(refusal),
    };
    RECORD + text(vm.as_str()) + planned.as_ref().map_or(0, place) + progress
}

fn of_operation(operation: &Operation) -> u64 {
    let Operation {
        id: _,
        kind,
        subject,
        requested_host,
        excluded,
        claim: _,
        lease,
        cancelled: _,
        log,
        outcome,
        created_at: _,
        ended_at: _,
        force_complete: _,
        ownership,
    } = operation;
    let outcome = match outcome {
        Some(Outcome::Failed(refusal)) => of_refusal(refusal),
        Some(Outcome::Succeeded) | None => 0,
    };
    RECORD
        + of_kind(kind)
        + of_subject(subject)
        + option(requested_host.as_ref().map(|host| host.as_str()))
        + each(excluded, |host| text(host.as_str()))
        + option(lease.as_ref().map(|lease| lease.conductor.as_str()))
        + each(log, of_entry)
        + outcome
        + of_ownership(ownership)
}

fn of_kind(kind: &Kind) -> u64 {
    match kind {
        Kind::Rebuild { images } => each(images, |image| text(image)),
        Kind::Snapshot { disk: _, image } => text(image),
        Kind::Boot
        | Kind::Delete
        | Kind::LiveMigrate { .. }
        | Kind::ColdMigrate { .. }
        | Kind::RevertResize { .. }
        | Kind::Evacuate { .. }
        | Kind::Shelve
        | Kind::Unshelve
        | Kind::Stop { .. }
        | Kind::Start
        | Kind::Reboot { .. }
        | Kind::ConfirmResize { .. }
        | Kind::DrainHost(_) => 0,
    }
}

fn of_entry(entry: &Entry) -> u64 {
    let Entry {
        step: _,
        mark,
        host,
        at: _,
    } = entry;
    let mark = match mark {
        Mark::Failed(refusal) => of_refusal(refusal),
        Mark::Started | Mark::Succeeded | Mark::UndoStarted | Mark::Undone => 0,
    };
    mark + option(host.as_ref().map(|host| host.as_str()))
}

fn of_volume(volume: &Volume) -> u64 {
    let Volume {
        id,
        display_name,
        kind: _,
        required_bytes: _,
        parameters: _,
        replicas,
        created_at: _,
        generation: _,
        ownership,
    } = volume;
    let replica = |replica: &Replica| {
        text(replica.host.as_str()) + text(replica.region.as_str()) + text(&replica.failure)
    };
    RECORD
        + text(id.as_str())
        + text(display_name.as_str())
        + each(replicas, replica)
        + of_ownership(ownership)
}

fn of_host(host: &Host) -> u64 {
    let Host {
        name,
        provider: _,
        report,
        liveness: _,
        cordoned: _,
        cordoned_by: _,
        shape_refused,
        generation: _,
        created_at: _,
        fenced,
        unknown,
        compared: _,
        hit,
        failed_volumes,
        registered_version: _,
        unreported: _,
        orphans,
    } = host;
    RECORD
        + text(name.as_str())
        + of_report(report)
        + option(shape_refused.as_deref())
        + fenced.as_ref().map_or(0, of_fence)
        + each(unknown, of_unknown)
        + each(hit, |_| 0)
        + each(failed_volumes, of_failed)
        + each(orphans, |_| 0)
}

/// Returns what the report of a host counts, which is limited too.
pub(crate) fn of_report(report: &HostReport) -> u64 {
    let HostReport {
        agent_address,
        incarnation: _,
        service_version: _,
        driver,
        migration_uri,
        topology,
        memory_reserved_mib: _,
        disk_gib: _,
        storage_id,
        traits,
        platform: _,
        self_fence_ms: _,
        regions,
        cpu,
        networks,
    } = report;
    RECORD
        + text(agent_address)
        + text(driver)
        + text(migration_uri)
        + of_topology(topology)
        + text(storage_id)
        + each(traits, |name| text(name.as_str()))
        + each(regions, of_region)
        + cpu.as_deref().map_or(0, of_cpu)
        + each(networks, |one| {
            text(one.mapping.physical_network.as_str()) + text(&one.mapping.bridge)
        })
}

fn of_cpu(cpu: &HostCpu) -> u64 {
    let names = |features: &BTreeSet<CpuFeature>| each(features, |name| text(name.as_str()));
    let models = cpu.models.iter();
    let models = models.map(|(model, missing)| text(model.as_str()) + names(missing));
    let own = &cpu.host_model;
    names(&own.required) + names(&own.disabled) + names(&cpu.features) + models.sum::<u64>()
}

fn of_topology(topology: &HostTopology) -> u64 {
    let cell = |cell: &HostCell| {
        cpus(&cell.shared)
            + cpus(&cell.dedicated)
            + each(&cell.cores, cpus)
            + each(&cell.pages, |_| 0)
    };
    let distances = topology.distances().iter().map(|row| row.len() as u64 * 8);
    each(topology.cells(), cell)
        + distances.sum::<u64>()
        + each(topology.far_memory(), |_| 0)
        + each(topology.pci(), |device| pairs(&device.tags))
        + each(topology.pmem(), |namespace| {
            text(namespace.name.as_str())
                + text(namespace.class.as_str())
                + text(&namespace.path)
                + text(&namespace.region)
                + text(&namespace.trouble)
        })
}

fn of_region(region: &Region) -> u64 {
    let Region {
        name,
        cell: _,
        mode: _,
        capacity_bytes: _,
        align_bytes: _,
        foreign,
        trouble,
    } = region;
    text(name.as_str()) + each(foreign, |_| 0) + text(trouble)
}

fn of_fence(fenced: &Fenced) -> u64 {
    let Fenced {
        method: _,
        by,
        at: _,
        incarnation: _,
        output,
        reported_since: _,
    } = fenced;
    RECORD + text(by) + text(output)
}

fn of_unknown(unknown: &Unknown) -> u64 {
    let Unknown {
        uuid: _,
        name,
        is_ours: _,
        claim: _,
        held,
    } = unknown;
    text(name) + of_assignment(held)
}

fn of_assignment(assignment: &Assignment) -> u64 {
    let Assignment {
        cells,
        emulator,
        pci,
        pmem,
    } = assignment;
    each(cells, |cell| {
        cell.pins.len() as u64 * 16 + cpus(&cell.idle) + cpus(&cell.floating)
    }) + cpus(emulator)
        + each(pci, |functions| each(functions, |_| 0))
        + each(pmem, |device| {
            text(device.name.as_str()) + text(device.class.as_str()) + text(&device.path)
        })
}

fn of_failed(failed: &Failed) -> u64 {
    let Failed {
        volume,
        display_name,
        why,
        at: _,
    } = failed;
    text(volume.as_str()) + text(display_name.as_str()) + text(why)
}
