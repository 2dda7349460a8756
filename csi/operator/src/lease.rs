//! The task that keeps the Lease by which one of several operators is active.
//!
//! Not here: what is to be done about a Lease that was read ([`crate::election`]).
//!
//! Invariant: the permit is extended only after a successful write of the Lease, from the moment at which
//! that was sent.

use std::time::{Duration, Instant};

use k8s_openapi::api::coordination::v1::{Lease as KubeLease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::Timestamp;
use kube::Api;
use kube::api::{ObjectMeta, PostParams};
use tokio::sync::watch;

use crate::election::{Lease, Seen, Step, patience, valid_until};
use crate::plan::Key;
use crate::reconcile::{ApiServer, Error, FIELD_MANAGER};

/// The name of the Lease.
pub const NAME: &str = "berth-csi-operator";
/// How often it is renewed within its duration.
const RENEWALS: u32 = 5;

/// Keeps the Lease.
pub struct Holder {
    server: ApiServer,
    namespace: String,
    /// Who this operator is; no other one has the name.
    name: String,
    duration: Duration,
    begun: Instant,
    seen: Seen,
    leading: watch::Sender<bool>,
}

impl Holder {
    /// Returns one that has seen nothing; `leading` is set while this operator is the active one.
    #[must_use]
    pub fn new(
        server: ApiServer,
        namespace: &str,
        name: &str,
        duration: Duration,
        leading: watch::Sender<bool>,
    ) -> Self {
        Self {
            server,
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            duration,
            begun: Instant::now(),
            seen: Seen::default(),
            leading,
        }
    }

    /// Keeps it for ever.
    pub async fn run(&mut self) {
        let interval = self.duration / RENEWALS;
        loop {
            let patience = patience(self.server.permit.left(), self.duration, interval);
            let wait = match tokio::time::timeout(patience, self.round(interval)).await {
                Ok(Ok(wait)) => wait,
                Ok(Err(error)) => {
                    let error = berth_process::error_chain(&error);
                    tracing::warn!(error, "the lease was not renewed");
                    interval / 4
                }
                Err(_) => {
                    tracing::warn!("the lease was not renewed: no response from the API server");
                    interval / 4
                }
            };
            let is_leading = self.server.permit.is_valid();
            let was_leading = self.leading.send_replace(is_leading);
            match (was_leading, is_leading) {
                (false, true) => tracing::info!(name = self.name, "elected leader"),
                (true, false) => tracing::warn!(name = self.name, "lost leadership"),
                (true, true) | (false, false) => {}
            }
            tokio::time::sleep(wait).await;
        }
    }

    /// Reads the Lease and does what is to be done; returns how long to wait.
    async fn round(&mut self, interval: Duration) -> Result<Duration, Error> {
        let api: Api<KubeLease> = Api::namespaced(self.server.client.clone(), &self.namespace);
        let read = self
            .server
            .within("get", &self.key(), NAME, api.get_opt(NAME))
            .await?;
        let now = self.begun.elapsed();
        self.seen.record(read.as_ref().map(parse), now);
        match self.seen.step(&self.name, interval, now) {
            Step::Wait(time) => {
                // Another one has it: also where this one was suspended.
                self.server.permit.end();
                Ok(time)
            }
            Step::Acquire | Step::Renew => {
                let sent = self.begun.elapsed();
                self.write(&api, read, &self.name.clone()).await?;
                let until = self.begun + valid_until(sent, self.duration);
                self.server.permit.extend(until);
                Ok(interval)
            }
        }
    }

    /// Gives it up, so that another operator becomes active at once.
    pub async fn release(&mut self) {
        if !self.server.permit.is_valid() {
            return;
        }
        self.server.permit.end();
        let api: Api<KubeLease> = Api::namespaced(self.server.client.clone(), &self.namespace);
        let released = async {
            let read = api.get_opt(NAME);
            let read = self.server.within("get", &self.key(), NAME, read).await?;
            let is_own = read
                .as_ref()
                .map(parse)
                .is_some_and(|l| l.holder == self.name);
            if is_own {
                self.write(&api, read, "").await?;
            }
            Ok::<_, Error>(())
        };
        if let Err(error) = released.await {
            let error = berth_process::error_chain(&error);
            tracing::warn!(error, "the lease was not released");
        }
    }

    /// Writes it with this holder, on the condition that it still is as it was read.
    async fn write(
        &self,
        api: &Api<KubeLease>,
        read: Option<KubeLease>,
        holder: &str,
    ) -> Result<(), Error> {
        let now = || Some(MicroTime(Timestamp::now()));
        let before = read.as_ref().and_then(|lease| lease.spec.clone());
        let before = before.unwrap_or_default();
        let is_same = before.holder_identity.as_deref() == Some(holder);
        let transitions = before.lease_transitions.unwrap_or_default();
        let spec = LeaseSpec {
            holder_identity: Some(holder.to_owned()),
            lease_duration_seconds: i32::try_from(self.duration.as_secs()).ok(),
            renew_time: now(),
            acquire_time: match is_same {
                true => before.acquire_time,
                false => now(),
            },
            lease_transitions: Some(transitions + i32::from(!is_same)),
            ..LeaseSpec::default()
        };
        let params = PostParams {
            field_manager: Some(FIELD_MANAGER.to_owned()),
            ..PostParams::default()
        };
        let key = self.key();
        match read {
            None => {
                let lease = KubeLease {
                    metadata: ObjectMeta {
                        name: Some(NAME.to_owned()),
                        ..ObjectMeta::default()
                    },
                    spec: Some(spec),
                };
                let request = api.create(&params, &lease);
                self.server.within("create", &key, NAME, request).await?;
            }
            Some(mut lease) => {
                lease.spec = Some(spec);
                let request = api.replace(NAME, &params, &lease);
                self.server.within("replace", &key, NAME, request).await?;
            }
        }
        Ok(())
    }

    fn key(&self) -> Key {
        Key {
            api_version: "coordination.k8s.io/v1".to_owned(),
            kind: "Lease".to_owned(),
            namespace: self.namespace.clone(),
            name: NAME.to_owned(),
        }
    }
}

fn parse(lease: &KubeLease) -> Lease {
    let spec = lease.spec.clone().unwrap_or_default();
    let seconds = spec.lease_duration_seconds.unwrap_or_default();
    Lease {
        holder: spec.holder_identity.unwrap_or_default(),
        duration: Duration::from_secs(u64::try_from(seconds).unwrap_or_default()),
        version: lease.metadata.resource_version.clone().unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests;
