//! Responses made of their descriptors: every field set, every string benign or hostile.
//!
//! Invariant: the same string field of the same benign value has the same hostile value, so what a
//! command looks up by name it still finds.

use std::collections::BTreeSet;

use prost_reflect::prost::Message as _;
use prost_reflect::{
    DynamicMessage, EnumDescriptor, FieldDescriptor, Kind, MapKey, MessageDescriptor, Value,
};

/// What could move the cursor, forge a line, or hide a part of the text: C0, DEL, C1, line breaks
/// of all kinds, directions of text, invisible characters.
pub(super) const HOSTILE: &str = "\u{1b}[2J\u{1b}]0;x\u{7}\nforged  UP\r\u{8}\t\u{7f}\u{9b}31m\u{85}\
     \u{202a}\u{202e}\u{2066}\u{2069}\u{200e}\u{200f}\u{61c}\u{200b}\u{200d}\u{2060}\u{feff}\u{ad}\
     \u{2028}\u{2029}\u{e0041}";

/// The kind of the operations that are about a host.
const DRAIN_HOST: &str = "drain_host";

/// A string field: its message and its name. Of a map, the message is its entry.
pub(super) type Key = (String, String);

/// How responses are made.
#[derive(Clone, Debug)]
pub(super) struct Shape {
    /// Which strings are hostile.
    pub(super) hostile: BTreeSet<Key>,
    /// What stands behind them.
    pub(super) behind: String,
    /// Which alternative is taken of each `oneof`, and which value of each enum.
    pub(super) round: usize,
    /// The address of the server itself, for messages that name a conductor's.
    pub(super) address: String,
}

impl Shape {
    /// Returns a response, and the strings that it holds.
    pub(super) fn response(&self, of: &MessageDescriptor) -> (Vec<u8>, BTreeSet<Key>) {
        let mut keys = BTreeSet::new();
        let message = self.message(of, &mut Vec::new(), &mut keys);
        (message.encode_to_vec(), keys)
    }

    fn message(
        &self,
        of: &MessageDescriptor,
        within: &mut Vec<String>,
        keys: &mut BTreeSet<Key>,
    ) -> DynamicMessage {
        let mut message = DynamicMessage::new(of.clone());
        within.push(of.full_name().to_owned());
        for field in of.fields() {
            if !self.is_chosen(&field, within) || is_absent(&field) || !self.is_of_drain(&field) {
                continue;
            }
            if let Some(value) = self.field(&field, within, keys) {
                message.set_field(&field, value);
            }
        }
        within.pop();
        message
    }

    /// Whether a field is the alternative of its `oneof` that is set in this round.
    fn is_chosen(&self, field: &FieldDescriptor, within: &[String]) -> bool {
        let Some(oneof) = field.containing_oneof().filter(|o| !o.is_synthetic()) else {
            return true;
        };
        let alternatives: Vec<FieldDescriptor> = oneof
            .fields()
            .filter(|f| !is_recursive(f, within))
            .collect();
        let drain = alternatives.iter().position(|f| f.name() == DRAIN_HOST);
        let round = match (oneof.name(), drain) {
            // What was deleted is a name alone.
            ("change", _) => 0,
            (_, Some(drain)) if self.is_drain() => drain,
            _ => self.round,
        };
        let chosen = alternatives.get(round % alternatives.len().max(1));
        chosen.is_some_and(|chosen| chosen.number() == field.number())
    }

    /// Whether operations of this round drain a host: one in which no two of its options are set.
    fn is_drain(&self) -> bool {
        self.round == 1
    }

    /// Whether a field may be set: the record of a drain belongs to a drain alone.
    fn is_of_drain(&self, field: &FieldDescriptor) -> bool {
        let is_record = field.name() == "drain"
            && field.parent_message().full_name() == "berth.operation.v1.Operation";
        !is_record || self.is_drain()
    }

    fn field(
        &self,
        field: &FieldDescriptor,
        within: &mut Vec<String>,
        keys: &mut BTreeSet<Key>,
    ) -> Option<Value> {
        if is_recursive(field, within) {
            return None;
        }
        let Kind::Message(entry) = field.kind() else {
            let one = self.scalar(field, keys);
            return Some(match field.is_list() {
                true => Value::List(vec![one]),
                false => one,
            });
        };
        if field.is_map() {
            let key = self.scalar(&entry.map_entry_key_field(), keys);
            let text = key.as_str().map(|text| MapKey::String(text.to_owned()));
            let number = || key.as_u32().map(MapKey::U32);
            let large = || key.as_u64().map(MapKey::U64);
            let key = text
                .or_else(number)
                .or_else(large)
                .expect("a text or a number");
            let value = self.field(&entry.map_entry_value_field(), within, keys)?;
            return Some(Value::Map([(key, value)].into()));
        }
        let one = Value::Message(self.message(&entry, within, keys));
        Some(match field.is_list() {
            true => Value::List(vec![one]),
            false => one,
        })
    }

    fn scalar(&self, field: &FieldDescriptor, keys: &mut BTreeSet<Key>) -> Value {
        let parent = field.parent_message().full_name().to_owned();
        let number = u32::try_from(benign_number(&parent, field.name())).expect("a small number");
        match field.kind() {
            Kind::String => Value::String(self.text((parent, field.name().to_owned()), keys)),
            Kind::Enum(values) => Value::EnumNumber(match fixed(&parent, field.name()) {
                Some(name) => values.get_value_by_name(name).expect("a value").number(),
                None => self.variant(&values),
            }),
            Kind::Bool => Value::Bool(self.round.is_multiple_of(2)),
            Kind::Bytes if field.name() == "sha256" => Value::Bytes(vec![7; 32].into()),
            Kind::Bytes => Value::Bytes(Vec::new().into()),
            Kind::Double => Value::F64(1.0),
            Kind::Float => Value::F32(1.0),
            Kind::Int32 | Kind::Sint32 | Kind::Sfixed32 => Value::I32(number.cast_signed()),
            Kind::Int64 | Kind::Sint64 | Kind::Sfixed64 => Value::I64(number.into()),
            Kind::Uint32 | Kind::Fixed32 => Value::U32(number),
            Kind::Uint64 | Kind::Fixed64 => Value::U64(number.into()),
            Kind::Message(_) => unreachable!("a message is no scalar"),
        }
    }

    fn text(&self, key: Key, keys: &mut BTreeSet<Key>) -> String {
        let (message, field) = (key.0.as_str(), key.1.as_str());
        // A command dials the conductor that a response names; its address has a test of its own.
        if (message, field) == ("berth.cluster.v1.Service", "address") {
            return format!("http://{}", self.address);
        }
        let benign = benign_text(message, field, self.round);
        let is_hostile = self.hostile.contains(&key);
        keys.insert(key);
        match is_hostile {
            true => benign + &self.behind,
            false => benign,
        }
    }

    /// Returns the value of an enum for this round; the first one means "not set".
    fn variant(&self, values: &EnumDescriptor) -> i32 {
        let set: Vec<i32> = values
            .values()
            .map(|v| v.number())
            .filter(|n| *n > 0)
            .collect();
        set.get(self.round % set.len().max(1)).copied().unwrap_or(0)
    }
}

fn is_recursive(field: &FieldDescriptor, within: &[String]) -> bool {
    let kind = field.kind();
    let of = kind.as_message().map(MessageDescriptor::full_name);
    of.is_some_and(|of| within.iter().any(|name| name == of))
}

/// A list ends with its first page, and a limit of members is for one policy alone.
fn is_absent(field: &FieldDescriptor) -> bool {
    ["next_page_token", "max_server_per_host"].contains(&field.name())
}

/// Returns the value of an enum that goes with the other fields of its message.
fn fixed(message: &str, field: &str) -> Option<&'static str> {
    match (message.rsplit('.').next().unwrap_or_default(), field) {
        ("Mark", "kind") => Some("KIND_FAILED"),
        // As a host reports it.
        ("GuestCpu", "mode") => Some("MODE_CUSTOM"),
        (_, "cpu_policy") => Some("CPU_POLICY_MIXED"),
        _ => None,
    }
}

const UUID: &str = "6f1c6f0e-3a0e-4c39-8a51-4a8c3b6b1f10";
const VOLUME: &str = "volumes/pvc-6f1c6f0e3a0e4c398a514a8c3b6b1f10";
/// Names of the kinds of records, in the order of `berth.event.v1.Kind` and of the records.
const EVENTS: [&str; 6] = [
    "vms/x",
    "migrations/UUID",
    "hosts/x",
    "claims/UUID",
    "operations/UUID",
    "auditEntries/1",
];

fn benign_number(message: &str, field: &str) -> u64 {
    match (message, field) {
        ("google.protobuf.Timestamp" | "google.protobuf.Duration", "nanos") => 0,
        (_, "ratio_milli") => 1000,
        // Not that of the NUMA node with CPUs.
        ("berth.type.v1.FarMemory", "id") => 2,
        _ => 1,
    }
}

fn benign_text(message: &str, field: &str, round: usize) -> String {
    let short = message.rsplit('.').next().unwrap_or_default();
    let text = match (short, field) {
        ("PciDevice", "parent") => "",
        ("GroupsEntry", "key") => "aggregates/x",
        ("HostsEntry", "key") => "hosts/x",
        ("GuestsEntry", "key") => "vms/x",
        ("AuditEntry", "name") => "auditEntries/1",
        ("Refused", "name") => "refusals/1",
        ("Service", "name") => "services/x",
        ("Host", "name") => "hosts/x",
        ("Vm", "name") => "vms/x",
        ("Claim", "name") => "claims/UUID",
        ("Migration", "name") => "migrations/UUID",
        ("Operation", "name") => "operations/UUID",
        ("Flavor", "name") => "flavors/x",
        ("PciAlias", "name") => "pciAliases/x",
        ("Image", "name") => "images/x",
        ("Network", "name") | (_, "network") => "networks/x",
        ("Image", "copies") => "hosts/x",
        ("Image", "file_name") => "x@3f6c1d2e7b1a",
        ("Aggregate", "name") => "aggregates/x",
        ("ServerGroup", "name") => "serverGroups/x",
        ("Volume", "name") => VOLUME,
        ("ResourceProvider", "name") => "resourceProviders/UUID",
        ("Consumer", "name") => "consumers/UUID",
        ("ResourceClass", "name") => "resourceClasses/CUSTOM_A",
        ("Trait", "name") => "traits/CUSTOM_A",
        ("Event", "name") => EVENTS[round % EVENTS.len()],
        ("DomainVerdict", "name") => "hosts/x",
        ("PciDevice", "address") | ("PciGrant", "addresses") => "0000:81:00.1",
        (_, "vendor_id" | "product_id") => "8086",
        (_, "mac") => "52:54:00:00:00:01",
        (_, "fingerprint") => "2f0a9d1cf7a1b6e64c0e4e63ad5f2d0d6f6b2d8e0a3f4c5b6a798897a6b5c4d3",
        ("Entry", "host") => "hosts/x",
        (
            _,
            "host" | "hosts" | "requested_host" | "excluded_hosts" | "source" | "destination"
            | "worst_host" | "unreported_hosts" | "to_host" | "remains_on" | "moved" | "peer",
        ) => "hosts/x",
        (_, "vm" | "attached_vm") => "vms/x",
        (_, "claim" | "source_claim" | "destination_claim" | "hit_claims") => "claims/UUID",
        (_, "migration") => "migrations/UUID",
        (_, "operation" | "moving" | "cordoned_by") => "operations/UUID",
        (_, "conductor") => "services/x",
        (_, "flavor") => "flavors/x",
        (_, "volume") => VOLUME,
        (_, "server_group") => "serverGroups/x",
        (_, "group") => "aggregates/x",
        (
            _,
            "resource_provider"
            | "resource_providers"
            | "parent"
            | "root"
            | "in_tree"
            | "deleted_resource_providers",
        ) => "resourceProviders/UUID",
        (
            _,
            "uid" | "uuid" | "incarnation" | "vm_uid" | "request_id" | "aggregates" | "disk_id"
            | "orphans" | "cluster_id",
        ) => "UUID",
        ("PmemNamespace" | "PmemDevice", "resource_class") => "CUSTOM_PMEM_NAMESPACE_A",
        (_, "resource_class") => "CUSTOM_A",
        (_, "traits") => "HW_CPU_X86_AVX2",
        ("HostCell", "shared_cpus") => "1",
        ("HostCell", "dedicated_cpus") => "2",
        ("HostCell", "cores") => "1-2",
        ("PmemNamespace", "path") => "/x",
        // What is required is not disabled, and what is disabled is missing.
        ("GuestCpu", "disabled_features") | ("CpuModel", "missing_features") => "y",
        (_, "pinned_cpus" | "emulator_cpus" | "floating_cpus" | "idle_cpus") => "1",
        ("ResourcesEntry" | "UsedEntry" | "CapacityEntry" | "InventoriesEntry", "key") => "VCPU",
        _ => "x",
    };
    text.replace("UUID", UUID)
}
