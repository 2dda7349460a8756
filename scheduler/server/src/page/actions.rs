//! Actions of the page: what a person confirmed, carried out under that person's name.
//!
//! ```text
//!   cordon, uncordon, cancel ─▶ command at the leader, forwarded where another member leads
//!   drain, migrate, abort    ─▶ conductor: berth-on-behalf-of: operator:NAME
//! ```
//!
//! Invariant: the id of the request is that of the form. A form that is sent twice, also to another conductor,
//! begins one operation.

use std::time::Duration;

use berth_domain::id::RequestId;
use berth_domain::refusal::{Code, Refusal};
use berth_page::{Action, Submission};
use berth_process::access::{self, UNVERIFIED};
use berth_proto::client::{conductor, is_unanswered};
use berth_proto::cluster::v1 as cluster;
use berth_proto::cluster::v1::cluster_service_server::ClusterService as _;
use berth_proto::conductor::v1 as wire;
use berth_proto::conductor::v1::conductor_service_client::ConductorServiceClient;
use berth_proto::convert::field;
use berth_proto::for_cluster::{ForCluster, MemberChannel};
use berth_proto::status::{OUTCOME_UNKNOWN, to_status};
use berth_state::Reply;
use berth_state::command::Command;
use berth_tls::Peer;
use tokio::task::JoinSet;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::{Request, Status};
use uuid::Uuid;

use crate::service::{ClusterApi, Context, of_own_state};

/// How long an action may take until it has begun.
const ACTION_TIMEOUT: Duration = Duration::from_secs(20);

/// Carries out actions for a caller.
pub(super) struct Actor<'a> {
    context: &'a Context,
    /// The caller, as the audit names it.
    principal: String,
}

impl<'a> Actor<'a> {
    /// Returns one for a caller.
    pub(super) fn new(context: &'a Context, peer: Option<&Peer>) -> Self {
        let identity = peer.and_then(|peer| peer.identity.as_ref());
        Self {
            context,
            principal: identity.map_or_else(|| UNVERIFIED.to_owned(), |who| who.principal()),
        }
    }

    /// Carries an action out, or has it begun.
    ///
    /// # Errors
    ///
    /// Why it was not; or that this is not known.
    pub(super) async fn carry_out(
        &self,
        action: &Action,
        submission: &Submission,
    ) -> Result<(), Status> {
        let id: Uuid = field::uuid(&submission.request_id, "request_id")?;
        let resource = action.resource();
        let command = match action {
            Action::Cordon(_) => set_cordon(&resource, true)?,
            Action::Uncordon(_) => set_cordon(&resource, false)?,
            Action::CancelOperation(_) => {
                let operation = field::name(&resource, "name")?;
                Command::CancelOperation { operation }
            }
            Action::Drain(_) | Action::Migrate(_) | Action::AbortMigration(_) => {
                if self.context.handle().leader().role.leader.is_none() {
                    // A conductor could not say that nothing was done.
                    return Err(self.context.elsewhere());
                }
                // Until one is chosen nothing is sent.
                let conductor = self.conductor().await?;
                let begun = self.begin(action, submission, conductor);
                let begun = tokio::time::timeout(ACTION_TIMEOUT, begun).await;
                return begun.unwrap_or_else(|_| Err(unknown("it has not begun within 20 s")));
            }
        };
        self.command(command, action, RequestId(id)).await
    }

    /// Has a conductor begin an action.
    async fn begin(
        &self,
        action: &Action,
        submission: &Submission,
        mut conductor: ConductorServiceClient<MemberChannel>,
    ) -> Result<(), Status> {
        let resource = action.resource();
        match action {
            Action::Cordon(_) | Action::Uncordon(_) | Action::CancelOperation(_) => {
                Err(Status::internal("it is no conductor's"))
            }
            Action::Drain(_) => {
                let request = wire::DrainHostRequest {
                    host: resource,
                    cold: submission.cold,
                    no_wait: true,
                    request_id: submission.request_id.clone(),
                    ..Default::default()
                };
                let begun = conductor.drain_host(self.request(request)).await;
                let mut events = begun.map_err(in_doubt)?.into_inner();
                while events.message().await.map_err(in_doubt)?.is_some() {}
                Ok(())
            }
            Action::Migrate(_) => {
                let request = wire::MigrateVmRequest {
                    vm: resource,
                    requested_host: match submission.host.as_str() {
                        "" => String::new(),
                        host => format!("hosts/{host}"),
                    },
                    request_id: submission.request_id.clone(),
                    transfer: None,
                };
                let begun = conductor.migrate_vm(self.request(request)).await;
                begun.map(drop).map_err(in_doubt)
            }
            Action::AbortMigration(_) => {
                let request = wire::AbortMigrationRequest {
                    name: resource,
                    request_id: submission.request_id.clone(),
                };
                let begun = conductor.abort_migration(self.request(request)).await;
                let response = begun.map_err(in_doubt)?.into_inner();
                match response.operation.is_some_and(|operation| operation.done) {
                    true => Err(ended("the migration")),
                    false => Ok(()),
                }
            }
        }
    }

    /// Carries a command out at the leader, under the method and the id of the form.
    async fn command(
        &self,
        command: Command,
        action: &Action,
        id: RequestId,
    ) -> Result<(), Status> {
        let principal = self.principal.clone();
        let method = action.method().rsplit('/').next().unwrap_or_default();
        let outcome = self
            .context
            .execute_once_at_leader(principal, command, method, id);
        let reply = outcome.await?.map_err(|refusal| to_status(&refusal))?;
        if let Reply::Operation(operation) = reply
            && operation.outcome.is_some()
        {
            return Err(ended("the operation"));
        }
        Ok(())
    }

    /// Returns a request for a conductor, on behalf of the caller.
    fn request<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        let principal: Option<MetadataValue<Ascii>> = self.principal.parse().ok();
        if let Some(principal) = principal.filter(|_| self.principal != UNVERIFIED) {
            let metadata = request.metadata_mut();
            metadata.insert(access::ON_BEHALF_OF, principal);
        }
        request
    }

    /// Returns a client of the registered conductor that answers first and works for this cluster.
    async fn conductor(&self) -> Result<ConductorServiceClient<MemberChannel>, Status> {
        let api = ClusterApi(self.context.clone());
        let request = Request::new(cluster::ListServicesRequest::default());
        let (listed, _) = of_own_state(self.context, api.list_services(request)).await;
        let for_cluster = ForCluster::of(self.context.cluster_id());
        let services = listed?.into_inner().services;
        // One that hangs delays none that works.
        let mut tries = JoinSet::new();
        for service in services {
            let dialer = self.context.dialer().clone();
            let for_cluster = for_cluster.clone();
            let request = self.request(wire::GetServiceInfoRequest {});
            tries.spawn(async move {
                let failed = |why: String| format!("{} ({why})", service.address);
                let channel = conductor::connect(&dialer, &service, &for_cluster).await;
                let channel = channel.map_err(failed)?;
                let checked = conductor::check(&channel, request).await;
                checked.map_err(|refusal| failed(refusal.message))?;
                Ok::<_, String>(channel)
            });
        }
        let mut tried = Vec::new();
        while let Some(ended) = tries.join_next().await {
            match ended {
                Ok(Ok(channel)) => return Ok(ConductorServiceClient::new(channel)),
                Ok(Err(why)) => tried.push(why),
                Err(_) => {}
            }
        }
        let message = match tried.is_empty() {
            true => "no conductor has registered".to_owned(),
            false => format!("no conductor can carry it out: {}", tried.join(", ")),
        };
        let refusal = Refusal::new(Code::Unavailable, conductor::UNREACHABLE, message);
        Err(to_status(&refusal.with_hint(
            "start one: berth-conductor --scheduler ADDRESS",
        )))
    }
}

fn set_cordon(host: &str, cordoned: bool) -> Result<Command, Status> {
    let host = field::name(host, "name")?;
    Ok(Command::SetCordon { host, cordoned })
}

/// Returns the refusal of what comes too late.
pub(super) fn ended(what: &str) -> Status {
    // It may have been this very form, sent before, that ended it.
    let message = format!("{what} has ended already");
    let refusal = Refusal::new(Code::FailedPrecondition, "OPERATION_DONE", message);
    to_status(&refusal)
}

/// Returns why a conductor did not carry a request out, or that this is not known.
fn in_doubt(status: Status) -> Status {
    match is_unanswered(&status) {
        true => unknown("the conductor was lost before it answered"),
        false => status,
    }
}

fn unknown(why: &str) -> Status {
    let message = format!("{why}; the request may or may not be carried out");
    let refusal = Refusal::new(Code::Unavailable, OUTCOME_UNKNOWN, message);
    to_status(&refusal.with_hint(
        "reload this page to send the same form again: it is carried out once, however often it is sent",
    ))
}
