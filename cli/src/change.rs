//! The change that a hint names, as JSON: the key `change` of an error. `docs/scheduling.md` lists
//! the keys.

use berth_domain::hint::{Hint, RequestChange};
use serde_json::{Value, json};

/// Renders a change for programs.
pub(crate) fn to_json(hint: &Hint) -> Value {
    let mut value = match hint {
        Hint::WaitForErasure { host, namespaces } => {
            json!({ "host": host, "namespaces": namespaces })
        }
        Hint::OpenHost { host, steps } => {
            let steps: Vec<&str> = steps.iter().map(|step| step.as_str()).collect();
            json!({ "host": host, "steps": steps })
        }
        Hint::UpgradeAgents { agents, host } => json!({ "agents": agents, "host": host }),
        Hint::Vacate {
            host,
            nodes,
            vms,
            erasures,
        } => {
            let nodes: Vec<u32> = nodes.iter().map(|node| node.0).collect();
            let vms = vms.iter().map(|vm| {
                json!({
                    "vm": vm.vm,
                    "action": vm.action.as_str(),
                    "destination": vm.action.destination(),
                    "command": vm.command(),
                })
            });
            let vms: Vec<Value> = vms.collect();
            json!({ "host": host, "nodes": nodes, "vms": vms, "erasures": erasures })
        }
        Hint::ChangeRequest(change) => request(change),
        Hint::ResizePools { host, pools } => {
            let pools = pools.iter().map(|pool| {
                json!({
                    "node": pool.node.0,
                    "size_kib": pool.size_kib,
                    "pages": pool.pages,
                    "needed": pool.needed,
                })
            });
            let pools: Vec<Value> = pools.collect();
            json!({ "host": host, "pools": pools })
        }
        Hint::AddTraits { host, traits } => json!({ "host": host, "traits": traits }),
        Hint::AddBridges { host, bridges } => json!({ "host": host, "bridges": bridges }),
        Hint::AddHost { like } => json!({ "like": like }),
        Hint::AddShape(shape) => json!(shape),
        Hint::AnyHostAnd(hint) => json!({ "change": to_json(hint) }),
    };
    value["kind"] = json!(hint.kind());
    value
}

fn request(change: &RequestChange) -> Value {
    let mut value = match change {
        RequestChange::AnyHost => json!({}),
        RequestChange::ExtraSpec { key, value } => json!({ "key": key, "value": value }),
        RequestChange::Vcpus(vcpus) => json!({ "vcpus": vcpus }),
        RequestChange::MemoryMib(memory_mib) => json!({ "memory_mib": memory_mib }),
        RequestChange::Zone(zone) => json!({ "availability_zone": zone }),
        RequestChange::LeaveGroup(group) => json!({ "server_group": group }),
    };
    value["request"] = json!(change.as_str());
    value
}

#[cfg(test)]
mod tests {
    use berth_domain::hint::{VmAction, VmChange};
    use berth_domain::name::{HostName, VmName};
    use berth_domain::topology::CellId;

    use super::*;

    /// Goal: a program makes the change without parsing sentences.
    #[test]
    fn a_change_is_json_for_programs() {
        let host = |text| HostName::new(text).unwrap();
        let hint = Hint::Vacate {
            host: host("h1"),
            nodes: vec![CellId(0)],
            vms: vec![VmChange {
                vm: VmName::new("a").unwrap(),
                action: VmAction::LiveMigrate { to: host("h2") },
            }],
            erasures: Vec::new(),
        };
        assert_eq!(
            to_json(&hint).to_string(),
            r#"{"erasures":[],"host":"h1","kind":"VACATE","nodes":[0],"vms":[{"action":"LIVE_MIGRATE","command":"berth vm migrate a --host h2","destination":"h2","vm":"a"}]}"#
        );
        let hint = Hint::ChangeRequest(RequestChange::Zone(None));
        assert_eq!(
            to_json(&hint).to_string(),
            r#"{"availability_zone":null,"kind":"CHANGE_REQUEST","request":"ZONE"}"#
        );
    }
}
