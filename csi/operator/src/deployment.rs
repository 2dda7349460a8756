//! One pass over a resource: read everything about it, check, make its objects, report.
//!
//! ```text
//!   resource ─▶ deleted? ─▶ certificates ─▶ overlap, change ─▶ finalizer ─▶ objects ─▶ event, status
//!                  │              └──────────────┴── a fault: objects stay as they are ──▶ Failed
//!                  └▶ no volumes, or not waited for ─▶ finalizer removed: Kubernetes deletes the objects
//! ```
//!
//! While a deletion waits for volumes, the objects are maintained: the agents are still needed.
//!
//! Not here: when a pass is made ([`crate::queue`]), and what the objects are ([`crate::desired`]).
//!
//! Invariant: a pass over a deployment that is as desired, with a true status, makes no write.

mod agents;

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, SystemTime};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use serde_json::Value;

use crate::certificates::{self, AUTHORITY, Existing, Files, Needs, Node, Signer};
use crate::cluster;
use crate::desired::{DEVICE_MODE, Facts, Names, Owner, SCHEDULERS, desired, names};
use crate::event;
use crate::metrics::Metrics;
use crate::plan::{Key, Plan, Write};
use crate::queue::Outcome;
use crate::reconcile::{ApiServer, Error, Pass, reconcile};
use crate::resource::{DELETE_WITH_VOLUMES, FINALIZER, Request, Resource};
use crate::safety::{self, Nodes, Ownership, Refusal, ownership};
use crate::schedulers::{Cache, Inventory, Schedulers};
use crate::spec::BerthStorageSpec;
use crate::status::{Hosts, Observed, Pods};
use crate::upgrade::MaxUnavailable;

/// How often a deletion that waits looks again, besides what the watches report.
const DELETION_INTERVAL: Duration = Duration::from_secs(10);
/// The same for agents that are not replaced yet.
const UPGRADE_INTERVAL: Duration = Duration::from_secs(10);

/// What the operator is configured with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Its own namespace.
    pub namespace: String,
    /// Its own image.
    pub image: String,
    /// The schedulers' addresses; a resource may have others.
    pub schedulers: Vec<String>,
    /// How long certificates are valid.
    pub validity: Duration,
}

/// The operator: what passes need.
pub struct Operator {
    /// The API server.
    pub server: ApiServer,
    /// What it is configured with.
    pub settings: Settings,
    /// Berth's schedulers.
    pub schedulers: Schedulers,
    /// What they returned last.
    pub cache: Cache,
    /// What is counted.
    pub metrics: Metrics,
}

/// Why the objects of a deployment are not as they have to be.
enum Fault {
    /// The API server could not be read or written.
    Server(Error),
    /// The certificates.
    Certificates(String),
    /// The spec, a check, or objects of others.
    Refused(String),
}

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        Self::Server(error)
    }
}

impl From<Refusal> for Fault {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal.to_string())
    }
}

/// How far the upgrade of the agents is.
#[derive(Default)]
struct Upgrade {
    /// Whether pods were deleted in this pass.
    has_replaced: bool,
    /// Why agents of an older revision are left. Empty: none is.
    waits_for: String,
}

/// What is observed of the pods and hosts.
struct Parts {
    controller: Pods,
    node: Pods,
    hosts: Hosts,
    upgrade: Upgrade,
}

impl Operator {
    /// Makes one pass over a resource.
    ///
    /// # Errors
    ///
    /// When the API server cannot be read or written; what was written stays.
    pub async fn pass(&self, request: &Request) -> Result<Outcome, Error> {
        let resources = cluster::resources(&self.server).await?;
        let Some(resource) = resources.iter().find(|one| one.request() == *request) else {
            self.metrics.forget(request);
            return Ok(Outcome::Gone);
        };
        self.metrics.count_pass(resource);
        match (resource.is_deleting, resource.has_finalizer()) {
            (true, true) => self.wait_for_deletion(resource, &resources).await,
            // Others wait for something, or Kubernetes is about to remove it.
            (true, false) => Ok(Outcome::Clean),
            (false, _) => self.maintain(resource, &resources, None).await,
        }
    }

    /// Ends the deletion if nothing keeps it.
    async fn wait_for_deletion(
        &self,
        resource: &Resource,
        resources: &[Resource],
    ) -> Result<Outcome, Error> {
        let Some(why) = self.obstacle(resource, resources).await? else {
            let others = resource.finalizers.iter().filter(|one| *one != FINALIZER);
            let others: Vec<String> = others.cloned().collect();
            cluster::set_finalizers(&self.server, resource, &others).await?;
            tracing::info!(resource = resource.owner.name, "deletion may go on");
            return Ok(Outcome::Wrote);
        };
        match self.maintain(resource, resources, Some(why)).await? {
            Outcome::Clean | Outcome::Failed => Ok(Outcome::Waits(DELETION_INTERVAL)),
            other @ (Outcome::Wrote | Outcome::Waits(_) | Outcome::Gone) => Ok(other),
        }
    }

    /// Returns why a resource must not be deleted yet.
    async fn obstacle(
        &self,
        resource: &Resource,
        resources: &[Resource],
    ) -> Result<Option<String>, Error> {
        if resource.deletes_with_volumes {
            return Ok(None);
        }
        let hint = format!(
            "hint: delete them, or set the annotation {DELETE_WITH_VOLUMES} to true: they stay on the \
             nodes, and no agent serves them"
        );
        let nodes = self.served_nodes(resource, resources).await?;
        let agents = self.agents(&resource.owner).await?;
        let requested = self.addresses(resource.spec.as_ref().ok());
        // Those of the spec may never have been deployed.
        let schedulers = former_schedulers(agents.as_ref(), &requested).unwrap_or(requested);
        match self.schedulers.read(&schedulers).await {
            Err(why) => Ok(Some(format!(
                "the deletion waits to know whether there are volumes: {why}; {hint}"
            ))),
            Ok(inventory) => {
                let volumes = inventory.volumes_on(&nodes);
                Ok((!volumes.is_empty()).then(|| {
                    let volumes = safety::names(volumes.into_iter().map(|volume| volume.name));
                    format!("the deletion waits for volumes: {volumes}; {hint}")
                }))
            }
        }
    }

    /// Returns the nodes on which a deployment may have volumes: those that its agents select. Agents
    /// that were deleted may have served any node that no other deployment selects.
    async fn served_nodes(
        &self,
        resource: &Resource,
        resources: &[Resource],
    ) -> Result<BTreeSet<String>, Error> {
        let agents = self.agents(&resource.owner).await?;
        let selector = agents.as_ref().map(deployed_selector);
        let nodes = cluster::nodes(&self.server, &selector.clone().unwrap_or_default()).await?;
        let others = resources
            .iter()
            .filter(|other| other.owner != resource.owner);
        let others: Vec<&BerthStorageSpec> = others.filter_map(|o| o.spec.as_ref().ok()).collect();
        let is_of_another = |node: &Node| {
            let selects =
                |spec: &&BerthStorageSpec| safety::selects(&spec.node_selector, &node.labels);
            selector.is_none() && others.iter().any(selects)
        };
        let served = nodes.into_iter().filter(|node| !is_of_another(node));
        Ok(served.map(|node| node.name).collect())
    }

    /// Makes the objects, and reports. `waiting` is why a deletion is not done yet.
    async fn maintain(
        &self,
        resource: &Resource,
        resources: &[Resource],
        waiting: Option<String>,
    ) -> Result<Outcome, Error> {
        let mut current = resource.clone();
        let applied = self.apply(&mut current, resources).await;
        let (certificate_fault, fault, has_written, parts) = match applied {
            Ok((pass, parts)) => {
                self.metrics.record_writes(resource, &pass.plan);
                let foreign: Vec<String> =
                    pass.plan.refusals.iter().map(ToString::to_string).collect();
                let fault = (!foreign.is_empty()).then(|| foreign.join("; "));
                (None, fault, !pass.plan.writes.is_empty(), parts)
            }
            Err(Fault::Server(error)) if !error.is_lasting() => return Err(error),
            Err(Fault::Server(error)) => {
                let why = berth_process::error_chain(&error);
                (None, Some(why), false, self.parts(resource).await?)
            }
            Err(Fault::Certificates(why)) => (Some(why), None, false, self.parts(resource).await?),
            Err(Fault::Refused(why)) => (None, Some(why), false, self.parts(resource).await?),
        };
        let fault = waiting.or(fault);
        let is_faulty = fault.is_some() || certificate_fault.is_some();
        let Upgrade {
            has_replaced,
            waits_for,
        } = parts.upgrade;
        let is_waiting = !waits_for.is_empty();
        let observed = Observed {
            generation: resource.generation,
            certificate_fault,
            fault,
            controller: parts.controller,
            node: parts.node,
            hosts: parts.hosts,
            upgrade: waits_for,
        };
        self.report(&current, &observed).await?;
        Ok(match (has_written || has_replaced, is_faulty, is_waiting) {
            (true, _, _) => Outcome::Wrote,
            (false, true, _) => Outcome::Failed,
            (false, false, true) => Outcome::Waits(UPGRADE_INTERVAL),
            (false, false, false) => Outcome::Clean,
        })
    }

    /// Writes the event and the status, if the stored status is not true any more.
    async fn report(&self, resource: &Resource, observed: &Observed) -> Result<(), Error> {
        let now = Time(Timestamp::now());
        let Some(next) = resource.status.next(observed, &now) else {
            return Ok(());
        };
        // The event first: it is repeated with the status if that cannot be written.
        if let Some(event) = event::of_change(resource, &next, &now) {
            cluster::create_event(&self.server, &event).await?;
        }
        cluster::write_status(&self.server, resource, &next).await?;
        let (name, phase) = (&resource.owner.name, next.phase);
        tracing::info!(resource = name, ?phase, reason = next.reason, "status");
        Ok(())
    }

    async fn apply(
        &self,
        resource: &mut Resource,
        resources: &[Resource],
    ) -> Result<(Pass, Parts), Fault> {
        let spec = resource.spec.clone().map_err(Fault::Refused)?;
        let owner = resource.owner.clone();
        let max_unavailable = MaxUnavailable::parse(&spec.max_unavailable);
        let max_unavailable =
            max_unavailable.map_err(|why| Fault::Refused(format!("the spec is invalid: {why}")))?;
        let nodes = cluster::nodes(&self.server, &spec.node_selector).await?;
        check_overlap(resource, &spec, resources, &nodes)?;
        self.check_change(&owner, &spec, &nodes).await?;
        let facts = self.facts(&owner, &spec, &nodes).await?;
        let objects =
            desired(&owner, &spec, &facts).map_err(|error| Fault::Refused(error.to_string()))?;
        if !resource.is_deleting && !resource.has_finalizer() {
            let mut finalizers = resource.finalizers.clone();
            finalizers.push(FINALIZER.to_owned());
            *resource = cluster::set_finalizers(&self.server, resource, &finalizers).await?;
        }
        let pass = reconcile(&self.server, &owner, &objects).await?;
        let names = names(&owner);
        let pods = |kind, name: &str, count: fn(&Value) -> Pods| {
            let key = self.apps_key(kind, name);
            match is_written(&pass.plan, &key) {
                // What was counted is about the object as it was.
                true => Pods::default(),
                false => pass.live.get(&key).map(count).unwrap_or_default(),
            }
        };
        let agents = self.apps_key("DaemonSet", &names.agents);
        let upgrade = match pass.live.get(&agents) {
            Some(agents_live)
                if pass.plan.refusals.is_empty() && !is_written(&pass.plan, &agents) =>
            {
                self.upgrade(&spec, max_unavailable, agents_live).await?
            }
            Some(_) | None => Upgrade::default(),
        };
        let parts = Parts {
            controller: pods("Deployment", &names.controller, controller_pods),
            node: pods("DaemonSet", &names.agents, agent_pods),
            hosts: self.hosts(&spec, &nodes),
            upgrade,
        };
        Ok((pass, parts))
    }

    /// Returns what there is of a deployment that is not changed now.
    async fn parts(&self, resource: &Resource) -> Result<Parts, Error> {
        let Names { controller, .. } = names(&resource.owner);
        let key = self.apps_key("Deployment", &controller);
        let controller = cluster::object(&self.server, &key).await?;
        let controller = controller.filter(|object| is_own(object, &resource.owner));
        let agents = self.agents(&resource.owner).await?;
        let hosts = match &resource.spec {
            Err(_) => Hosts::Unknown("the spec cannot be read".to_owned()),
            Ok(spec) => match cluster::nodes(&self.server, &spec.node_selector).await {
                Ok(nodes) => self.hosts(spec, &nodes),
                Err(error) if error.is_lasting() => {
                    Hosts::Unknown(berth_process::error_chain(&error))
                }
                Err(error) => return Err(error),
            },
        };
        Ok(Parts {
            controller: controller.as_ref().map(controller_pods).unwrap_or_default(),
            node: agents.as_ref().map(agent_pods).unwrap_or_default(),
            hosts,
            upgrade: Upgrade::default(),
        })
    }

    /// Returns the DaemonSet of the agents, if there is one of this owner.
    async fn agents(&self, owner: &Owner) -> Result<Option<Value>, Error> {
        let key = self.apps_key("DaemonSet", &names(owner).agents);
        let agents = cluster::object(&self.server, &key).await?;
        Ok(agents.filter(|agents| is_own(agents, owner)))
    }

    /// Returns what to do about schedulers that cannot be read any more, as text behind a reason.
    fn hint_for_former(&self, owner: &Owner) -> String {
        format!(
            "; hint: the agents were deployed with these schedulers; if those are gone for good, or the \
             annotation was edited, remove it: kubectl -n {} annotate daemonset {} {SCHEDULERS}-",
            self.settings.namespace,
            names(owner).agents
        )
    }

    fn apps_key(&self, kind: &str, name: &str) -> Key {
        Key {
            api_version: "apps/v1".to_owned(),
            kind: kind.to_owned(),
            namespace: self.settings.namespace.clone(),
            name: name.to_owned(),
        }
    }

    /// Checks that a change of the agents strands no volume. The schedulers are read only if there is one.
    ///
    /// If the former schedulers cannot be read, others may take their place: the addresses of a cluster are
    /// corrected like that, and going back to them is possible.
    async fn check_change(
        &self,
        owner: &Owner,
        spec: &BerthStorageSpec,
        nodes: &[Node],
    ) -> Result<(), Fault> {
        let Some(agents) = self.agents(owner).await? else {
            return Ok(());
        };
        let selector = deployed_selector(&agents);
        let mode = agents["metadata"]["annotations"][DEVICE_MODE].as_str();
        let requested = self.addresses(Some(spec));
        let former = former_schedulers(Some(&agents), &requested);
        let is_same = selector == spec.node_selector && mode == Some(spec.device_mode.as_str());
        if is_same && former.is_none() {
            return Ok(());
        }
        let deployed = cluster::nodes(&self.server, &selector).await?;
        let labels = deployed.iter().chain(nodes);
        let labels: Nodes = labels
            .map(|node| (node.name.clone(), node.labels.clone()))
            .collect();
        let served = deployed.into_iter().map(|node| node.name).collect();
        let inventory = self
            .schedulers
            .read(former.as_ref().unwrap_or(&requested))
            .await;
        let inventory = match inventory {
            Ok(inventory) => inventory,
            Err(why) if is_same => {
                tracing::warn!(why, "the former schedulers are replaced");
                return Ok(());
            }
            Err(why) => {
                let hint = former.as_ref().map(|_| self.hint_for_former(owner));
                return Err(Fault::Refused(format!(
                    "whether the change of device mode or node selector strands volumes is not known: \
                     {why}{}",
                    hint.unwrap_or_default()
                )));
            }
        };
        let volumes = inventory.volumes_on(&served);
        safety::check_change(Some(&agents), spec, &labels, &volumes)?;
        if former.is_some() && !volumes.is_empty() {
            // Schedulers that cannot be read know nothing.
            let known = self.schedulers.read(&requested).await.unwrap_or_default();
            safety::check_known(&volumes, &known.volumes)?;
        }
        Ok(())
    }

    async fn facts(
        &self,
        owner: &Owner,
        spec: &BerthStorageSpec,
        nodes: &[Node],
    ) -> Result<Facts, Fault> {
        let settings = &self.settings;
        let names = names(owner);
        let existing = Existing {
            controller: self.own_secret(owner, &names.controller_secret).await?,
            nodes: self.own_secret(owner, &names.agents_secret).await?,
        };
        let authority = cluster::secret(&self.server, &settings.namespace, AUTHORITY).await?;
        let faulty = |error: certificates::Error| Fault::Certificates(error.to_string());
        let signer = authority.map(|(_, files)| Signer::read(&files)).transpose();
        let signer = match (&spec.certificates, signer) {
            (Some(_), _) => None,
            (None, signer) => signer.map_err(faulty)?,
        };
        let needs = Needs {
            owner,
            spec,
            namespace: &settings.namespace,
            nodes,
            validity: settings.validity,
            now: SystemTime::now(),
        };
        let credentials = certificates::credentials(&needs, &existing, signer.as_ref());
        Ok(Facts {
            namespace: settings.namespace.clone(),
            image: settings.image.clone(),
            schedulers: settings.schedulers.clone(),
            credentials: credentials.map_err(faulty)?,
        })
    }

    /// Returns the content of a secret of this owner; nothing if there is none.
    async fn own_secret(&self, owner: &Owner, name: &str) -> Result<Files, Error> {
        let namespace = &self.settings.namespace;
        let secret = cluster::secret(&self.server, namespace, name).await?;
        let own = secret.filter(|(object, _)| is_own(object, owner));
        Ok(own.map(|(_, files)| files).unwrap_or_default())
    }

    /// Returns the schedulers of a deployment.
    fn addresses(&self, spec: Option<&BerthStorageSpec>) -> Vec<String> {
        let own = spec.map(|spec| spec.schedulers.clone()).unwrap_or_default();
        match own.is_empty() {
            true => self.settings.schedulers.clone(),
            false => own,
        }
    }

    fn hosts(&self, spec: &BerthStorageSpec, nodes: &[Node]) -> Hosts {
        let addresses = self.addresses(Some(spec));
        if addresses.is_empty() {
            return Hosts::Unknown("no address of a scheduler is known".to_owned());
        }
        match self.cache.get(&addresses) {
            None => Hosts::Unknown("the schedulers have not responded yet".to_owned()),
            Some(Err(why)) => Hosts::Unknown(why),
            Some(Ok(inventory)) => Hosts::Missing(missing(nodes, &inventory)),
        }
    }
}

fn missing(nodes: &[Node], inventory: &Inventory) -> Vec<String> {
    let names = nodes.iter().map(|node| &node.name);
    names
        .filter(|name| !inventory.hosts.up.contains(*name))
        .cloned()
        .collect()
}

fn check_overlap(
    resource: &Resource,
    spec: &BerthStorageSpec,
    resources: &[Resource],
    nodes: &[Node],
) -> Result<(), Refusal> {
    let nodes: Nodes = nodes
        .iter()
        .map(|node| (node.name.clone(), node.labels.clone()))
        .collect();
    let earlier = resources.iter().filter(|other| other.is_before(resource));
    let earlier: Vec<(String, &BerthStorageSpec)> = earlier
        .filter_map(|other| {
            let name = format!("{} {}", other.owner.kind, other.owner.name);
            Some((name, other.spec.as_ref().ok()?))
        })
        .collect();
    let earlier = earlier.iter().map(|(name, spec)| (name.as_str(), *spec));
    safety::check_overlap(spec, earlier, &nodes)
}

fn is_own(object: &Value, owner: &Owner) -> bool {
    matches!(ownership(Some(object), owner), Ownership::Own { .. })
}

fn deployed_selector(agents: &Value) -> BTreeMap<String, String> {
    let selector = &agents["spec"]["template"]["spec"]["nodeSelector"];
    serde_json::from_value(selector.clone()).unwrap_or_default()
}

/// Returns the schedulers of the deployed agents, if none of them is among the requested ones.
fn former_schedulers(agents: Option<&Value>, requested: &[String]) -> Option<Vec<String>> {
    let deployed = agents?["metadata"]["annotations"][SCHEDULERS].as_str()?;
    let deployed: Vec<String> = deployed.split(',').map(str::to_owned).collect();
    let is_other = !deployed.iter().any(|address| requested.contains(address));
    is_other.then_some(deployed)
}

fn is_written(plan: &Plan, key: &Key) -> bool {
    plan.writes.iter().any(|write| match write {
        Write::Create(object) | Write::Apply { object, .. } => Key::of(object) == *key,
        Write::Delete { key: deleted, .. } => deleted == key,
    })
}

/// The counts are about an earlier template until their controller has seen the newest one.
fn is_counted(object: &Value) -> bool {
    let generation = object["metadata"]["generation"].as_i64();
    generation.is_some() && object["status"]["observedGeneration"].as_i64() >= generation
}

fn controller_pods(object: &Value) -> Pods {
    let status = &object["status"];
    let count = |key: &str| status[key].as_i64().unwrap_or_default();
    Pods {
        ready: count("readyReplicas").min(count("updatedReplicas")),
        desired: object["spec"]["replicas"]
            .as_i64()
            .filter(|_| is_counted(object)),
    }
}

fn agent_pods(object: &Value) -> Pods {
    let status = &object["status"];
    let count = |key: &str| status[key].as_i64().unwrap_or_default();
    Pods {
        ready: count("numberReady").min(count("updatedNumberScheduled")),
        desired: status["desiredNumberScheduled"]
            .as_i64()
            .filter(|_| is_counted(object)),
    }
}

#[cfg(test)]
mod tests;
