//! The upgrade of the agents: reads pods, revisions and volumes, and deletes the pods that are replaced.
//!
//! Not here: which ones those are ([`crate::upgrade`]).
//!
//! Invariant: where all agents are of the newest revision, no scheduler is read. The schedulers are read
//! last, so that a volume can begin to be made only in the moment between that and the end of the agent. An
//! agent finishes what it is making before it ends, and goes on with what it is erasing when it is started
//! again.

use serde_json::Value;

use super::{Fault, Operator, Upgrade, is_counted};
use crate::cluster;
use crate::plan::{Key, Write};
use crate::reconcile::make;
use crate::spec::BerthStorageSpec;
use crate::upgrade::{Agent, MaxUnavailable, Situation, newest_revision, step};

impl Operator {
    /// Replaces agents of an older revision, as far as that is safe now.
    pub(super) async fn upgrade(
        &self,
        spec: &BerthStorageSpec,
        max_unavailable: MaxUnavailable,
        daemon_set: &Value,
    ) -> Result<Upgrade, Fault> {
        let count = |key: &str| daemon_set["status"][key].as_i64().unwrap_or_default();
        let desired = count("desiredNumberScheduled");
        if !is_counted(daemon_set) || count("updatedNumberScheduled") >= desired {
            return Ok(Upgrade::default());
        }
        let owned = |api_version, kind| {
            let key = Key {
                api_version: String::from(api_version),
                kind: String::from(kind),
                namespace: self.settings.namespace.clone(),
                name: String::new(),
            };
            cluster::owned(&self.server, key, daemon_set)
        };
        let Some(revision) = newest_revision(&owned("apps/v1", "ControllerRevision").await?) else {
            return Ok(Upgrade::default());
        };
        let pods = owned("v1", "Pod").await?;
        let agents: Vec<Agent> = pods.iter().filter_map(Agent::of_pod).collect();
        if agents.iter().all(|agent| agent.revision == revision) {
            // Some are not made yet, and schedulers that do not respond take a pass several seconds.
            return Ok(Upgrade::default());
        }
        let inventory = self.schedulers.read(&self.addresses(Some(spec))).await;
        let situation = Situation {
            agents: &agents,
            revision: &revision,
            desired,
            available: count("numberAvailable"),
            max_unavailable,
            hosts: match &inventory {
                Ok(inventory) => Ok(&inventory.hosts),
                Err(why) => Err(why),
            },
        };
        let step = step(&situation);
        for agent in &step.replaced {
            self.replace(agent).await?;
        }
        Ok(Upgrade {
            has_replaced: !step.replaced.is_empty(),
            waits_for: step.waits_for,
        })
    }

    /// Deletes the pod; Kubernetes makes one of the newest revision.
    async fn replace(&self, agent: &Agent) -> Result<(), Fault> {
        let key = Key {
            api_version: "v1".to_owned(),
            kind: "Pod".to_owned(),
            namespace: self.settings.namespace.clone(),
            name: agent.name.clone(),
        };
        tracing::info!(node = agent.node, pod = agent.name, "replacing an agent");
        let uid = agent.uid.clone();
        Ok(make(&self.server, &Write::Delete { key, uid }).await?)
    }
}
