//! What the operator refuses to do.
//!
//! | refused | because |
//! |---|---|
//! | changing an object of another owner | it is in use by that owner |
//! | another device mode while there are volumes | agents of the new mode do not manage them |
//! | a selector without a node that has volumes | no agent would serve them |
//! | schedulers that do not know the volumes | the agents would not manage them any more |
//! | a node that two deployments select | both would use the same regions and the same port |
//!
//! Not here: how volumes are counted. The caller passes those of the driver, with their nodes.
//!
//! Invariant: a refusal names every volume or node that it is about, up to [`NAMED_MAX`].

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::desired::{DEVICE_MODE, Owner};
use crate::spec::BerthStorageSpec;

/// The most names in a refusal; the rest is counted.
pub const NAMED_MAX: usize = 10;

/// The labels of each node, by its name.
pub type Nodes = BTreeMap<String, BTreeMap<String, String>>;

/// A volume of the driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Volume {
    /// Its name.
    pub name: String,
    /// The nodes that it is on; empty if that is not known.
    pub nodes: Vec<String>,
}

/// Whose an object in the cluster is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ownership {
    /// There is none of this name.
    Absent,
    /// The deployment's.
    Own {
        /// Its unique identifier.
        uid: String,
    },
    /// Of another owner, or of none.
    Foreign(Refusal),
}

/// Why a deployment is not changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// An object of this name exists.
    #[error(
        "{kind} {name} exists and is not owned by this deployment; hint: rename the deployment, or delete \
         the object"
    )]
    Foreign {
        /// Its kind.
        kind: String,
        /// Its name.
        name: String,
    },
    /// The device mode is not that of the existing volumes.
    #[error(
        "the device mode cannot change from {deployed} to {requested} while there are volumes: {volumes}; \
         hint: delete them first"
    )]
    DeviceMode {
        /// The mode of the agents.
        deployed: String,
        /// The mode in the spec.
        requested: String,
        /// The volumes.
        volumes: String,
    },
    /// Nodes with volumes are not selected any more.
    #[error(
        "the node selector leaves out nodes with volumes: {volumes}; hint: delete them first, or label \
         their nodes"
    )]
    Selector {
        /// The volumes.
        volumes: String,
    },
    /// Other schedulers do not know the volumes.
    #[error(
        "the schedulers change to a cluster that does not know these volumes: {volumes}; hint: delete them \
         first, or keep one of the addresses if it is the same cluster"
    )]
    Schedulers {
        /// The volumes.
        volumes: String,
    },
    /// Nodes are selected twice.
    #[error("{other} selects the same nodes: {nodes}; hint: change one of the two node selectors")]
    Overlap {
        /// The deployment that was created earlier.
        other: String,
        /// The nodes.
        nodes: String,
    },
}

/// Returns whose a live object is.
#[must_use]
pub fn ownership(live: Option<&Value>, owner: &Owner) -> Ownership {
    let Some(live) = live else {
        return Ownership::Absent;
    };
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let metadata = &live["metadata"];
    let mut owners = metadata["ownerReferences"].as_array().into_iter().flatten();
    // Only one of several owners is the controller.
    let is_own = |one: &Value| one["uid"] == owner.uid.as_str() && one["controller"] == true;
    if owners.any(is_own) {
        return Ownership::Own {
            uid: text(&metadata["uid"]),
        };
    }
    Ownership::Foreign(Refusal::Foreign {
        kind: text(&live["kind"]),
        name: text(&metadata["name"]),
    })
}

/// Checks that a change of the deployed agents strands no volume.
///
/// # Errors
///
/// When it would.
pub fn check_change(
    agents: Option<&Value>,
    spec: &BerthStorageSpec,
    nodes: &Nodes,
    volumes: &[Volume],
) -> Result<(), Refusal> {
    let Some(agents) = agents else {
        return Ok(());
    };
    let deployed = agents["metadata"]["annotations"][DEVICE_MODE].as_str();
    let requested = spec.device_mode.as_str();
    if let Some(deployed) = deployed.filter(|deployed| *deployed != requested)
        && !volumes.is_empty()
    {
        return Err(Refusal::DeviceMode {
            deployed: deployed.to_owned(),
            requested: requested.to_owned(),
            volumes: names(volumes.iter().map(|volume| volume.name.clone())),
        });
    }
    let old = &agents["spec"]["template"]["spec"]["nodeSelector"];
    let old: BTreeMap<String, String> = serde_json::from_value(old.clone()).unwrap_or_default();
    let stranded: Vec<String> = match old == spec.node_selector {
        // Labels of nodes may have changed meanwhile; that is not a change of the deployment.
        true => Vec::new(),
        false => volumes
            .iter()
            .filter(|volume| is_stranded(volume, spec, nodes))
            .map(|volume| format!("{} on {}", volume.name, volume.nodes.join(", ")))
            .collect(),
    };
    if stranded.is_empty() {
        return Ok(());
    }
    Err(Refusal::Selector {
        volumes: names(stranded.into_iter()),
    })
}

/// Checks that other schedulers know the volumes.
///
/// # Errors
///
/// When they do not.
pub fn check_known(volumes: &[Volume], known: &[Volume]) -> Result<(), Refusal> {
    let known: BTreeSet<(&str, &[String])> = known
        .iter()
        .map(|volume| (volume.name.as_str(), volume.nodes.as_slice()))
        .collect();
    let mut unknown = volumes
        .iter()
        .filter(|volume| !known.contains(&(volume.name.as_str(), volume.nodes.as_slice())))
        .map(|volume| format!("{} on {}", volume.name, volume.nodes.join(", ")))
        .peekable();
    if unknown.peek().is_none() {
        return Ok(());
    }
    let volumes = names(unknown);
    Err(Refusal::Schedulers { volumes })
}

/// A node that does not exist any more has no volume to serve.
fn is_stranded(volume: &Volume, spec: &BerthStorageSpec, nodes: &Nodes) -> bool {
    volume
        .nodes
        .iter()
        .filter_map(|node| nodes.get(node))
        .any(|labels| !selects(&spec.node_selector, labels))
}

/// Checks that no node is selected by a deployment that was created earlier.
///
/// # Errors
///
/// When one is.
pub fn check_overlap<'a>(
    spec: &BerthStorageSpec,
    earlier: impl IntoIterator<Item = (&'a str, &'a BerthStorageSpec)>,
    nodes: &Nodes,
) -> Result<(), Refusal> {
    for (name, other) in earlier {
        let mut both = nodes.iter().filter(|(_, labels)| {
            selects(&spec.node_selector, labels) && selects(&other.node_selector, labels)
        });
        if let Some((first, _)) = both.next() {
            let rest = both.map(|(name, _)| name.clone());
            return Err(Refusal::Overlap {
                other: name.to_owned(),
                nodes: names(std::iter::once(first.clone()).chain(rest)),
            });
        }
    }
    Ok(())
}

/// Returns whether labels have everything that a selector requires.
#[must_use]
pub fn selects(selector: &BTreeMap<String, String>, labels: &BTreeMap<String, String>) -> bool {
    selector
        .iter()
        .all(|(key, value)| labels.get(key) == Some(value))
}

/// Returns names as a text, up to [`NAMED_MAX`]; the rest is counted.
pub(crate) fn names(all: impl Iterator<Item = String>) -> String {
    let all: Vec<String> = all.collect();
    let named = all.iter().take(NAMED_MAX).cloned().collect::<Vec<_>>();
    match all.len().saturating_sub(NAMED_MAX) {
        0 => named.join(", "),
        more => format!("{} and {more} more", named.join(", ")),
    }
}

#[cfg(test)]
mod tests;
