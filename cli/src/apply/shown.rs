//! The output of `show` as the fields of the API: where the two have other names or another shape.
//!
//! Not here: whether fields are known; what is not converted here is refused where it is read.
//!
//! Invariant: a document with the API's own names passes unchanged.

use berth_proto::convert::Invalid;
use serde_json::{Map, Value};

use super::kind::{DERIVED, Kind};

/// Fields that stand beside the VM in the output of `berth vm show`.
const BESIDE_VM: &[&str] = &["claims", "restart_obstacle"];
/// Fields of the restarts of a VM beside their policy.
const RESTARTS: &[&str] = &["begun_at", "gave_up_at"];

/// Converts the fields of a document into those of the API, without those that only the cluster writes.
///
/// # Errors
///
/// A field is there twice, in the one form and in the other.
pub(super) fn to_api(kind: Kind, fields: &mut Map<String, Value>) -> Result<(), Invalid> {
    match kind {
        Kind::PciAlias => matches_of_alias(fields)?,
        Kind::Vm => vm(fields)?,
        Kind::Network
        | Kind::Flavor
        | Kind::Aggregate
        | Kind::ServerGroup
        | Kind::SchedulingPolicy => {}
    }
    remove(fields, kind.output_only());
    Ok(())
}

fn remove(fields: &mut Map<String, Value>, names: &[&str]) {
    // JSON of gRPC has them without underscores.
    let letters = |name: &str| name.replace('_', "").to_ascii_lowercase();
    fields.retain(|name, _| !names.iter().any(|other| letters(other) == letters(name)));
}

/// Moves a value to another name.
fn insert(fields: &mut Map<String, Value>, name: &str, value: Value) -> Result<(), Invalid> {
    match fields.insert(name.to_owned(), value) {
        None | Some(Value::Null) => Ok(()),
        Some(_) => Err(Invalid::new(name, "is there twice")),
    }
}

fn matches_of_alias(fields: &mut Map<String, Value>) -> Result<(), Invalid> {
    let matches = fields.get_mut("any_of").and_then(Value::as_array_mut);
    for one in matches.into_iter().flatten() {
        let Some(one) = one.as_object_mut() else {
            continue;
        };
        for (shown, name) in [("vendor", "vendor_id"), ("product", "product_id")] {
            if let Some(value) = one.remove(shown) {
                insert(one, name, value).map_err(|invalid| invalid.within("any_of"))?;
            }
        }
    }
    Ok(())
}

/// Takes the fields of a field away, if it is there.
fn taken(
    fields: &mut Map<String, Value>,
    name: &str,
) -> Result<Option<Map<String, Value>>, Invalid> {
    match fields.remove(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Object(of)) => Ok(Some(of)),
        Some(_) => Err(Invalid::new(name, "must have fields, as `name: value`")),
    }
}

fn vm(fields: &mut Map<String, Value>) -> Result<(), Invalid> {
    if let Some(record) = taken(fields, "vm")? {
        remove(fields, BESIDE_VM);
        for (name, value) in record {
            insert(fields, &name, value)?;
        }
    }
    if let Some(mut spec) = taken(fields, "spec")? {
        remove(&mut spec, DERIVED);
        for (name, value) in spec {
            insert(fields, &name, value)?;
        }
    }
    if let Some(hints) = taken(fields, "hints")? {
        for (name, value) in hints {
            insert(fields, &name, value)?;
        }
    }
    if let Some(mut restarts) = taken(fields, "restarts")? {
        let policy = restarts.remove("policy").unwrap_or_default();
        remove(&mut restarts, RESTARTS);
        if let Some(name) = restarts.keys().next() {
            return Err(Invalid::new(format!("restarts.{name}"), "is not known"));
        }
        insert(fields, "restart_policy", policy)?;
    }
    // A VM has a copy of its flavor; it is declared by its name.
    let copy = fields.get("flavor").and_then(Value::as_object);
    if let Some(name) = copy.map(|flavor| flavor.get("name").cloned()) {
        fields.insert("flavor".to_owned(), name.unwrap_or_default());
    }
    if let Some(boot) = fields.get_mut("boot") {
        boot_source(boot);
    }
    let nics = fields.get_mut("nics").and_then(Value::as_array_mut);
    for nic in nics.into_iter().flatten().filter_map(Value::as_object_mut) {
        remove(nic, &["network_link"]);
        // A VM has a copy of its network; it is declared by its name.
        let copy = nic.get("network").and_then(Value::as_object);
        if let Some(name) = copy.map(|network| network.get("name").cloned()) {
            nic.insert("network".to_owned(), name.unwrap_or_default());
        }
    }
    let disks = fields.get_mut("disks").and_then(Value::as_array_mut);
    if let Some(disks) = disks {
        // The seed is made of what is given for the first boot.
        disks.retain(|disk| disk.get("seed") != Some(&Value::Bool(true)));
    }
    Ok(())
}

/// Converts what a guest starts from: a variant has its name in capitals, and none without fields is a text.
fn boot_source(boot: &mut Value) {
    match boot {
        Value::String(name) if name == "Disk" => {
            *boot = Value::Object(
                [("disk".to_owned(), Value::Object(Map::new()))]
                    .into_iter()
                    .collect(),
            );
        }
        Value::Object(fields) => {
            if let Some(kernel) = fields.remove("Kernel") {
                fields.insert("kernel".to_owned(), kernel);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {}
    }
}
