//! What the descriptors do not state of fields: which texts are names of resources, which fields lists
//! leave out, and what the default value of some stands for.
//!
//! Invariant: of the messages that are listed, these are the fields whose comments say so, with a pattern
//! as `hosts/{host}`; a test compares the comments with this.

use berth_domain::ownership::DEFAULT_PROJECT;

/// Fields that have a value outside of lists only, with the message that has them.
const LEFT_OUT: &[(&str, &str)] = &[
    (".berth.scheduler.v1.Vm", "restart_obstacle"),
    (".berth.host.v1.HostReport", "cpu"),
];

/// Fields of which the default value stands for another one, which is written like this.
const STANDS_FOR: &[(&str, &str, &str)] = &[
    (".berth.scheduler.v1.Migration", "kind", "KIND_LIVE"),
    (".berth.volume.v1.Volume", "kind", "VOLUME_KIND_PERSISTENT"),
];

/// Returns what the default value of a field of a message stands for, if it is another one.
pub(super) fn default_stands_for(message: &str, field: &str) -> Option<&'static str> {
    let mut all = STANDS_FOR.iter();
    let other = all.find(|(owner, name, _)| (*owner, *name) == (message, field));
    match other {
        Some((_, _, value)) => Some(value),
        None => (field == "project").then_some(DEFAULT_PROJECT),
    }
}

/// Returns whether lists leave a field of a message out.
pub(super) fn is_left_out(message: &str, field: &str) -> bool {
    LEFT_OUT.contains(&(message, field))
}

/// Returns the collection of the resources that a field of a message names.
pub(super) fn collection(message: &str, field: &str) -> Option<&'static str> {
    match field {
        "name" => own_collection(message),
        "host" | "hosts" | "source" | "destination" | "requested_host" | "excluded_hosts"
        | "remains_on" | "moved" => Some("hosts"),
        "vm" | "attached_vm" => Some("vms"),
        "claim" | "source_claim" | "destination_claim" | "hit_claims" => Some("claims"),
        "operation" | "cordoned_by" | "moving" => Some("operations"),
        "migration" => Some("migrations"),
        "server_group" => Some("serverGroups"),
        "volume" => Some("volumes"),
        "conductor" => Some("services"),
        "resource_provider" => Some("resourceProviders"),
        "group" => Some("aggregates"),
        "network" => Some("networks"),
        _ => None,
    }
}

/// Returns the collection of messages that have a name of their own.
fn own_collection(message: &str) -> Option<&'static str> {
    match message.rsplit('.').next()? {
        "Vm" => Some("vms"),
        "Host" => Some("hosts"),
        "Operation" => Some("operations"),
        "Migration" => Some("migrations"),
        "Flavor" => Some("flavors"),
        "PciAlias" => Some("pciAliases"),
        "Network" => Some("networks"),
        "ServerGroup" => Some("serverGroups"),
        "Aggregate" => Some("aggregates"),
        "Volume" => Some("volumes"),
        _ => None,
    }
}
