//! Learns the members of the cluster, so that a program that was given one address of a scheduler
//! still reaches the cluster when that member is lost; and with them the certificates that the cluster
//! has revoked.
//!
//! Invariant: the configured addresses are tried always, before the learnt ones; a stale file
//! cannot lock a program out. Learnt addresses are dialled like configured ones: encrypted if the
//! program has certificates, and only servers with the certificate of a scheduler are spoken to.
//! Of the clusters whose members have configured addresses the one that was recovered most often is
//! followed, from the start on, and the members of those that were recovered less often are left out. Other
//! responses of another cluster change nothing, unless they come from a configured address and no member
//! of the known cluster responds.

pub mod file;

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::path::PathBuf;
use std::time::Duration;

use tokio::task::JoinSet;
use tonic::transport::Uri;

use berth_domain::recovery::era_of;

use super::{SchedulerChannel, revoked};
use crate::cluster::v1::cluster_service_client::ClusterServiceClient;
use crate::cluster::v1::{
    GetClusterStatusRequest, GetClusterStatusResponse, ListRevokedCertificatesRequest,
};
use crate::convert::field::ADDRESS_MAX;
use crate::types::v1::ReadConsistency;

/// The most members that are learnt.
pub const MEMBERS_MAX: usize = 32;

/// The time between two queries for the members.
const INTERVAL: Duration = Duration::from_secs(5);
/// The time to the next query if no member responded.
const RETRY_INTERVAL: Duration = Duration::from_secs(2);
/// How long one member may take to respond.
const QUERY_TIMEOUT: Duration = Duration::from_secs(3);

/// The members of a cluster, as a program knows them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Known {
    /// The cluster.
    pub cluster_id: String,
    /// The [era](era_of) of its revisions: one that was recovered has a later one than before.
    pub era: u64,
    /// The configured addresses of the program that learnt them. If none of them is configured any
    /// more, the program was directed to another cluster.
    pub configured: Vec<String>,
    /// The members' addresses, as `host:port`.
    pub members: Vec<String>,
}

/// Keeps the addresses of a [`SchedulerChannel`] up to date.
#[derive(Debug)]
pub struct Learner {
    scheduler: SchedulerChannel,
    /// Where the members are stored over restarts; not at all if absent.
    directory: Option<PathBuf>,
    known: Option<Known>,
    /// Whether a member of the known cluster has responded in this run.
    is_confirmed: bool,
    /// Whether another cluster is followed only if it was recovered more often.
    is_chosen: bool,
    /// Whether the known members are stored.
    is_stored: bool,
    /// The revision of the list of revoked certificates that is stored.
    stored_revocations: u64,
    /// Whether the failure to store them was logged.
    is_failure_logged: bool,
    /// The addresses of other clusters that were logged.
    foreign: BTreeSet<String>,
    /// Counts the rounds, in each of which one more configured address is queried.
    round: usize,
}

impl Learner {
    /// Returns a learner for a channel, which starts with what is stored in this data directory.
    #[must_use]
    pub fn new(scheduler: SchedulerChannel, directory: Option<PathBuf>) -> Self {
        Self {
            scheduler,
            directory,
            known: None,
            is_confirmed: false,
            is_chosen: false,
            is_stored: false,
            stored_revocations: 0,
            is_failure_logged: false,
            foreign: BTreeSet::new(),
            round: 0,
        }
    }

    /// Starts with this cluster, which was chosen before.
    #[must_use]
    pub fn with_known(mut self, known: Known) -> Self {
        self.known = Some(known);
        self.is_chosen = true;
        self
    }

    /// Starts with what is stored, and compares the clusters of the configured addresses, so that no call of
    /// the program goes to one that was recovered less often than another.
    pub async fn begin(&mut self) {
        self.load().await;
        self.compare().await;
    }

    /// Learns until it is dropped.
    pub async fn run(mut self) {
        loop {
            let has_learnt = self.learn().await;
            if !self.is_stored {
                self.store().await;
            }
            self.store_revocations().await;
            tokio::time::sleep(if has_learnt { INTERVAL } else { RETRY_INTERVAL }).await;
        }
    }

    async fn load(&mut self) {
        let Some(directory) = self.directory.clone() else {
            return;
        };
        self.load_revocations(directory.clone()).await;
        let path = directory.join(file::FILE);
        let loaded = tokio::task::spawn_blocking(move || file::load(&directory)).await;
        match loaded {
            Ok(Ok(Some(known))) => {
                let configured = self.scheduler.configured();
                if known.configured.iter().any(|a| configured.contains(a)) {
                    self.is_stored = true;
                    self.known = Some(known);
                } else {
                    tracing::warn!(
                        file = %path.display(),
                        "ignored the stored schedulers: they were learnt from other configured schedulers"
                    );
                }
            }
            Ok(Ok(None)) | Err(_) => {}
            Ok(Err(error)) => {
                tracing::warn!(file = %path.display(), %error, "ignored the stored schedulers");
            }
        }
    }

    /// Queries one address after the other until a member of the known cluster has responded;
    /// returns whether one has.
    pub async fn learn(&mut self) -> bool {
        let configured = self.scheduler.configured().to_vec();
        let mut other = None;
        for address in self.candidates() {
            let Some(status) = self.query(&address).await else {
                continue;
            };
            match self.judge(&status) {
                Standing::Later if configured.contains(&address) => {
                    self.follow(&address, status);
                    self.compare().await;
                    return true;
                }
                Standing::Known => {
                    self.scheduler.leave_out(&address, false);
                    self.learn_revocations(&address, &status).await;
                    self.take(status);
                    self.look_at_another(&address).await;
                    return true;
                }
                Standing::Superseded => self.leave_out(&address, &status.cluster_id),
                Standing::Later | Standing::Foreign => {
                    self.log_foreign(&address, &status.cluster_id);
                    if configured.contains(&address) {
                        other.get_or_insert(status);
                        if !self.is_confirmed && !self.is_chosen {
                            break;
                        }
                    }
                }
            }
        }
        let Some(status) = other.filter(|_| !self.is_chosen) else {
            return false;
        };
        tracing::warn!(
            cluster = status.cluster_id,
            "discarded the known schedulers: a configured one belongs to another cluster"
        );
        self.take(status);
        true
    }

    /// Follows the cluster that was recovered most often, of those of the configured addresses and the known
    /// one, and leaves out the members of those that were recovered less often.
    async fn compare(&mut self) {
        let configured = self.scheduler.configured();
        if configured.len() < 2 {
            return;
        }
        let mut queries = JoinSet::new();
        for (at, address) in configured.iter().enumerate() {
            let (scheduler, address) = (self.scheduler.clone(), address.clone());
            queries.spawn(async move { (at, query(&scheduler, &address).await) });
        }
        let mut answers = BTreeMap::new();
        while let Some(answered) = queries.join_next().await {
            if let Ok((at, Some(status))) = answered {
                answers.insert(at, status);
            }
        }
        let latest = answers.values().map(era).max();
        let known = self.known.as_ref().map(|known| known.era);
        let later = latest.filter(|latest| known.is_none_or(|known| *latest > known));
        let later = answers
            .iter()
            .find(|(_, status)| Some(era(status)) == later);
        if let Some((at, status)) = later.map(|(at, status)| (*at, status.clone())) {
            self.follow(&configured[at].clone(), status);
        }
        for (at, status) in answers {
            let address = self.scheduler.configured()[at].clone();
            match self.judge(&status) {
                Standing::Superseded => self.leave_out(&address, &status.cluster_id),
                Standing::Known => self.scheduler.leave_out(&address, false),
                Standing::Later | Standing::Foreign => {}
            }
        }
    }

    /// Follows another cluster than the known one, if there was one, from now on.
    fn follow(&mut self, address: &str, status: GetClusterStatusResponse) {
        if let Some(known) = &self.known {
            tracing::warn!(
                address,
                cluster = status.cluster_id,
                before = known.cluster_id,
                "follows a cluster that was recovered more often"
            );
        }
        self.take(status);
        self.scheduler.prefer(address);
    }

    /// Looks whether a configured address has come to belong to a cluster that is not to be followed,
    /// before the known schedulers are lost and it is dialled: another one each time.
    async fn look_at_another(&mut self, current: &str) {
        let configured = self.scheduler.configured();
        let others = configured.iter().filter(|address| *address != current);
        let others: Vec<String> = others.cloned().collect();
        self.round = self.round.wrapping_add(1);
        let Some(address) = others.get(self.round % others.len().max(1)) else {
            return;
        };
        let Some(status) = self.query(address).await else {
            return;
        };
        match self.judge(&status) {
            Standing::Superseded => self.leave_out(address, &status.cluster_id),
            Standing::Later => self.compare().await,
            Standing::Known | Standing::Foreign => self.scheduler.leave_out(address, false),
        }
    }

    fn judge(&self, status: &GetClusterStatusResponse) -> Standing {
        match &self.known {
            Some(known) if known.cluster_id == status.cluster_id => Standing::Known,
            Some(known) if era(status) < known.era => Standing::Superseded,
            Some(known) if era(status) > known.era => Standing::Later,
            Some(_) => Standing::Foreign,
            None => Standing::Known,
        }
    }

    fn leave_out(&mut self, address: &str, cluster: &str) {
        self.scheduler.leave_out(address, true);
        if self.foreign.len() < MEMBERS_MAX && self.foreign.insert(address.to_owned()) {
            tracing::error!(
                address,
                cluster,
                "left out a scheduler of a cluster that was recovered less often: if the cluster that is \
                 followed was recovered from it, stop it for good"
            );
        }
    }

    /// Returns the addresses in the order in which they are queried: the configured ones first.
    fn candidates(&self) -> Vec<String> {
        let known = self.known.iter().flat_map(|known| &known.members);
        let dialer = self.scheduler.dialer();
        let mut candidates = Vec::new();
        let configured = self.scheduler.configured().iter().cloned();
        for address in configured.chain(known.map(|address| dialer.url(address))) {
            if !candidates.contains(&address) {
                candidates.push(address);
            }
        }
        // What answered last is likely to answer.
        let current = self.scheduler.current();
        if let Some(at) = candidates.iter().position(|address| *address == current) {
            candidates[..=at].rotate_right(1);
        }
        candidates
    }

    async fn query(&self, address: &str) -> Option<GetClusterStatusResponse> {
        query(&self.scheduler, address).await
    }

    async fn load_revocations(&mut self, directory: PathBuf) {
        let Some(tls) = self.scheduler.dialer().tls().cloned() else {
            return;
        };
        let path = directory.join(revoked::FILE);
        let loaded = tokio::task::spawn_blocking(move || revoked::load(&directory)).await;
        match loaded {
            Ok(Ok(Some(revoked))) => {
                self.stored_revocations = revoked.revision;
                tls.revoke(revoked);
            }
            Ok(Ok(None)) | Err(_) => {}
            Ok(Err(error)) => {
                tracing::warn!(file = %path.display(), %error, "ignored the stored revocations");
            }
        }
    }

    /// Takes over the list of revoked certificates if that member has a later one.
    async fn learn_revocations(&self, address: &str, status: &GetClusterStatusResponse) {
        let Some(tls) = self.scheduler.dialer().tls() else {
            return;
        };
        let known = tls.revoked();
        let is_known = known.revision >= status.revoked_revision;
        if status.revoked_revision == 0 || (known.cluster == status.cluster_id && is_known) {
            return;
        }
        let Ok(channel) = self.scheduler.channel_to(address) else {
            return;
        };
        let mut client = ClusterServiceClient::new(channel);
        // This member's own state is as late as what it responded.
        let request = ListRevokedCertificatesRequest {
            consistency: ReadConsistency::Stale.into(),
        };
        let query = client.list_revoked_certificates(request);
        let response = tokio::time::timeout(QUERY_TIMEOUT, query).await;
        if let Ok(Ok(response)) = response
            && let Some(listed) = revoked::of_response(&status.cluster_id, response.get_ref())
        {
            tls.revoke(listed);
        }
    }

    async fn store_revocations(&mut self) {
        let tls = self.scheduler.dialer().tls();
        let (Some(directory), Some(tls)) = (self.directory.clone(), tls) else {
            return;
        };
        let listed = tls.revoked();
        let revision = listed.revision;
        if revision == self.stored_revocations {
            return;
        }
        let path = directory.join(revoked::FILE);
        let stored = tokio::task::spawn_blocking(move || revoked::store(&directory, &listed)).await;
        match stored {
            Ok(Ok(())) => self.stored_revocations = revision,
            Ok(Err(error)) if !self.is_failure_logged => {
                self.is_failure_logged = true;
                tracing::warn!(
                    file = %path.display(), %error,
                    "failed to store the revoked certificates: after a restart they are accepted \
                     until a scheduler responds"
                );
            }
            Ok(Err(_)) | Err(_) => {}
        }
    }

    fn take(&mut self, status: GetClusterStatusResponse) {
        let era = era(&status);
        let addresses = status.members.into_iter().map(|member| member.address);
        let mut members: Vec<String> = addresses.filter(|a| is_member_address(a)).collect();
        members.sort_unstable();
        members.dedup();
        members.truncate(MEMBERS_MAX);
        let known = Known {
            era,
            cluster_id: status.cluster_id,
            configured: self.scheduler.configured().to_vec(),
            members,
        };
        if !self.is_confirmed || self.known.as_ref() != Some(&known) {
            tracing::info!(members = known.members.join(","), "learnt the schedulers");
            let urls = known.members.iter().map(|a| self.scheduler.dialer().url(a));
            self.scheduler.learn(urls.collect());
        }
        self.is_stored &= self.known.as_ref() == Some(&known);
        self.is_confirmed = true;
        self.known = Some(known);
    }

    async fn store(&mut self) {
        let (Some(directory), Some(known)) = (self.directory.clone(), self.known.clone()) else {
            return;
        };
        let path = directory.join(file::FILE);
        let stored = tokio::task::spawn_blocking(move || file::store(&directory, &known)).await;
        match stored {
            Ok(Ok(())) => self.is_stored = true,
            Ok(Err(error)) if !self.is_failure_logged => {
                self.is_failure_logged = true;
                tracing::warn!(
                    file = %path.display(), %error,
                    "failed to store the learnt schedulers: after a restart only the configured \
                     ones are known"
                );
            }
            Ok(Err(_)) | Err(_) => {}
        }
    }

    fn log_foreign(&mut self, address: &str, cluster: &str) {
        if self.foreign.len() < MEMBERS_MAX && self.foreign.insert(address.to_owned()) {
            tracing::warn!(address, cluster, "a scheduler belongs to another cluster");
        }
    }
}

/// Returns the status of a member that follows or leads; none of one that is cut off.
async fn query(scheduler: &SchedulerChannel, address: &str) -> Option<GetClusterStatusResponse> {
    let channel = scheduler.channel_to(address).ok()?;
    let mut client = ClusterServiceClient::new(channel);
    let query = client.get_cluster_status(GetClusterStatusRequest {});
    let response = tokio::time::timeout(QUERY_TIMEOUT, query).await;
    let status = response.ok()?.ok()?.into_inner();
    let is_usable = status.leader_id != 0 && is_cluster_id(&status.cluster_id);
    is_usable.then_some(status)
}

/// What the cluster of a scheduler is to a program.
enum Standing {
    /// It is the known one, or the first.
    Known,
    /// The known one was recovered more often.
    Superseded,
    /// It was recovered more often than the known one.
    Later,
    /// It is another one.
    Foreign,
}

/// Returns the era of a cluster; see [`Known::era`].
fn era(status: &GetClusterStatusResponse) -> u64 {
    era_of(status.applied_index)
}

/// Returns whether a text is a member's address as `host:port`, of bounded length.
fn is_member_address(text: &str) -> bool {
    let Ok(uri) = format!("http://{text}").parse::<Uri>() else {
        return false;
    };
    text.len() <= ADDRESS_MAX
        && !text.contains('@')
        && uri.authority().is_some_and(|authority| authority == text)
        && uri.host().is_some_and(|host| !host.is_empty())
        && uri.port_u16().is_some_and(|port| port != 0)
}

fn is_cluster_id(text: &str) -> bool {
    uuid::Uuid::try_parse(text).is_ok()
}

/// Runs a learner that has [begun](Learner::begin) until `stopping` is ready.
pub async fn learn_until(learner: Learner, stopping: impl Future<Output = ()>) {
    tokio::select! {
        () = learner.run() => {}
        () = stopping => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_addresses_with_a_host_and_a_port_are_learnt() {
        for good in ["h1:7100", "127.0.0.1:1", "[::1]:7100", "h1.example:65535"] {
            assert!(is_member_address(good), "{good}");
        }
        let long = format!("{}:7100", "h".repeat(ADDRESS_MAX));
        for bad in [
            "",
            ":7100",
            "h1",
            "h1:",
            "h1:0",
            "h1:65536",
            "http://h1:1",
            "h1:1/x",
            "a@h1:1",
            "h1:1?x",
            "h1:1\n",
            "h 1:1",
            &long,
        ] {
            assert!(!is_member_address(bad), "{bad:?}");
        }
    }
}
