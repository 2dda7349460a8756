//! The reported state of a deployment, computed from what is observed.
//!
//! ```text
//!   ""  ─▶ Initializing ◀──▶ Running        Failed: from and to each of them
//! ```
//!
//! Running means that the pods are ready and that each selected node is a host of Berth's schedulers.
//! PMEM-CSI sets it as soon as its objects exist.
//!
//! Invariant: a status that differs from the stored one only in its times is not written.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The phase of a deployment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Phase {
    /// Not reconciled yet.
    #[default]
    #[serde(rename = "")]
    New,
    /// Its objects are made; pods or hosts are missing.
    Initializing,
    /// Its pods are ready and its hosts are registered.
    Running,
    /// It is refused, or its objects could not be made.
    Failed,
}

/// The state of a condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ConditionStatus {
    /// It holds.
    True,
    /// It does not hold.
    False,
    /// It cannot be determined.
    Unknown,
}

/// What a condition is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ConditionType {
    /// The certificates exist and are valid.
    CertsReady,
    /// All objects exist as they have to be.
    DriverDeployed,
    /// Each selected node is a host of Berth's schedulers.
    HostsRegistered,
    /// The phase is Running. Its reason is the phase, so that its time is when the phase began.
    Ready,
}

/// One condition.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    /// What it is about.
    #[serde(rename = "type")]
    pub kind: ConditionType,
    /// Whether it holds.
    pub status: ConditionStatus,
    /// Why.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// The generation of the resource for which it was determined.
    #[serde(default)]
    pub observed_generation: i64,
    /// Since when it is so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_update_time: Option<Time>,
}

/// A part of the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Component {
    /// The controllers.
    Controller,
    /// The agents on the nodes.
    Node,
}

/// Whether a part is ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Readiness {
    /// All its pods are ready.
    Ready,
    /// Some of its pods are not.
    NotReady,
}

/// The state of one part.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ComponentStatus {
    /// The part.
    pub component: Component,
    /// Whether it is ready.
    pub status: Readiness,
    /// How many of its pods are ready.
    pub reason: String,
    /// Since when it is so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_updated: Option<Time>,
}

/// The status of a deployment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Status {
    /// The phase.
    pub phase: Phase,
    /// Why it is in this phase.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// The generation of the resource that it is about.
    pub observed_generation: i64,
    /// Several aspects by themselves.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// Controller and agents.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub driver_components: Vec<ComponentStatus>,
    /// When it was last changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_updated: Option<Time>,
}

/// How many pods there are of those that there have to be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pods {
    /// Ready ones of the newest template.
    pub ready: i64,
    /// How many there have to be; `None` while their controller has not determined it.
    pub desired: Option<i64>,
}

impl Pods {
    fn readiness(self) -> Readiness {
        match self.desired {
            Some(desired) if self.ready >= desired => Readiness::Ready,
            Some(_) | None => Readiness::NotReady,
        }
    }

    fn describe(self) -> String {
        match self.desired {
            Some(desired) => format!("{} of {desired} pods are ready", self.ready),
            None => "the pods have not been counted yet".to_owned(),
        }
    }
}

/// Which selected nodes are hosts of Berth's schedulers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Hosts {
    /// The schedulers did not respond, with the reason.
    Unknown(String),
    /// These nodes are not registered.
    Missing(Vec<String>),
}

/// What a status is computed from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Observed {
    /// The generation of the resource.
    pub generation: i64,
    /// Why the certificates are not valid.
    pub certificate_fault: Option<String>,
    /// Why the objects are not as they have to be.
    pub fault: Option<String>,
    /// The controllers.
    pub controller: Pods,
    /// The agents.
    pub node: Pods,
    /// The hosts.
    pub hosts: Hosts,
    /// Why agents of an older revision are left. Empty: none is.
    pub upgrade: String,
}

impl Status {
    /// Returns when the phase began, if that is recorded.
    #[must_use]
    pub fn phase_began(&self) -> Option<&Time> {
        let ready = |condition: &&Condition| condition.kind == ConditionType::Ready;
        self.conditions
            .iter()
            .find(ready)?
            .last_update_time
            .as_ref()
    }

    /// Returns the status to write, or `None` if the stored one is still true.
    #[must_use]
    pub fn next(&self, observed: &Observed, now: &Time) -> Option<Self> {
        let mut next = observed.status();
        for condition in &mut next.conditions {
            let old = self.conditions.iter().find(|old| {
                old.kind == condition.kind
                    && (old.status, &old.reason) == (condition.status, &condition.reason)
            });
            condition.last_update_time = old
                .and_then(|old| old.last_update_time.clone())
                .or_else(|| Some(now.clone()));
        }
        for part in &mut next.driver_components {
            let old = self.driver_components.iter().find(|old| {
                old.component == part.component
                    && (old.status, &old.reason) == (part.status, &part.reason)
            });
            part.last_updated = old
                .and_then(|old| old.last_updated.clone())
                .or_else(|| Some(now.clone()));
        }
        next.last_updated.clone_from(&self.last_updated);
        if next == *self {
            return None;
        }
        next.last_updated = Some(now.clone());
        Some(next)
    }
}

impl Observed {
    fn status(&self) -> Status {
        let (phase, reason) = self.phase();
        let certificates = self.certificate_fault.as_ref();
        let deployed = self.fault.as_ref().or(certificates);
        let (registered, hosts) = self.registered();
        let (ready, phase_name) = match phase {
            Phase::Running => (ConditionStatus::True, "Running"),
            Phase::Failed => (ConditionStatus::False, "Failed"),
            Phase::New | Phase::Initializing => (ConditionStatus::False, "Initializing"),
        };
        Status {
            phase,
            reason,
            observed_generation: self.generation,
            conditions: vec![
                self.without_fault(ConditionType::CertsReady, certificates),
                self.without_fault(ConditionType::DriverDeployed, deployed),
                self.condition(ConditionType::HostsRegistered, registered, hosts),
                self.condition(ConditionType::Ready, ready, phase_name.to_owned()),
            ],
            driver_components: vec![
                component(Component::Controller, self.controller, ""),
                component(Component::Node, self.node, &self.upgrade),
            ],
            last_updated: None,
        }
    }

    fn phase(&self) -> (Phase, String) {
        if let Some(fault) = self.certificate_fault.as_ref().or(self.fault.as_ref()) {
            return (Phase::Failed, fault.clone());
        }
        let parts = [
            ("controller", self.controller, ""),
            ("node", self.node, &self.upgrade),
        ];
        for (name, pods, upgrade) in parts {
            match pods.readiness() {
                Readiness::Ready => {}
                Readiness::NotReady => {
                    let why = describe(pods, upgrade);
                    return (Phase::Initializing, format!("{name}: {why}"));
                }
            }
        }
        match self.registered() {
            (ConditionStatus::True, _) => (
                Phase::Running,
                "all pods are ready and all hosts are registered".to_owned(),
            ),
            (ConditionStatus::False | ConditionStatus::Unknown, why) => (Phase::Initializing, why),
        }
    }

    fn registered(&self) -> (ConditionStatus, String) {
        match &self.hosts {
            Hosts::Unknown(why) => (ConditionStatus::Unknown, why.clone()),
            Hosts::Missing(nodes) if nodes.is_empty() => (ConditionStatus::True, String::new()),
            Hosts::Missing(nodes) => (
                ConditionStatus::False,
                format!(
                    "nodes without a registered host: {}; hint: see the log of their agents",
                    nodes.join(", ")
                ),
            ),
        }
    }

    fn without_fault(&self, kind: ConditionType, fault: Option<&String>) -> Condition {
        let status = match fault {
            None => ConditionStatus::True,
            Some(_) => ConditionStatus::False,
        };
        self.condition(kind, status, fault.cloned().unwrap_or_default())
    }

    fn condition(&self, kind: ConditionType, status: ConditionStatus, reason: String) -> Condition {
        Condition {
            kind,
            status,
            reason,
            observed_generation: self.generation,
            last_update_time: None,
        }
    }
}

fn describe(pods: Pods, upgrade: &str) -> String {
    match upgrade {
        "" => pods.describe(),
        why => format!("{}; {why}", pods.describe()),
    }
}

fn component(component: Component, pods: Pods, upgrade: &str) -> ComponentStatus {
    ComponentStatus {
        component,
        status: pods.readiness(),
        reason: describe(pods, upgrade),
        last_updated: None,
    }
}

#[cfg(test)]
mod tests;
