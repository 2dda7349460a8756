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
use berth_proto::client::is_unanswered;
use berth_proto::conductor::v1 as wire;
use berth_proto::convert::field;
use berth_proto::status::{OUTCOME_UNKNOWN, to_status};
use berth_state::Reply;
use berth_state::command::Command;
use berth_tls::Peer;
use tonic::Status;
use uuid::Uuid;

use super::conductors::{Client, Conductors};
use crate::service::Context;

/// How long an action may take until it has begun.
const ACTION_TIMEOUT: Duration = Duration::from_secs(20);

/// Carries out actions for a caller.
pub(super) struct Actor<'a> {
    context: &'a Context,
    conductors: Conductors<'a>,
}

impl<'a> Actor<'a> {
    /// Returns one for a caller.
    pub(super) fn new(context: &'a Context, peer: Option<&Peer>) -> Self {
        Self {
            context,
            conductors: Conductors::for_caller(context, peer),
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
        let id = RequestId(id);
        let resource = action.resource();
        match action {
            Action::Cordon(_) => {
                let command = set_cordon(&resource, true)?;
                self.command(command, action, id).await
            }
            Action::Uncordon(_) => {
                let command = set_cordon(&resource, false)?;
                self.command(command, action, id).await
            }
            Action::CancelOperation(_) => {
                let operation = field::name(&resource, "name")?;
                let command = Command::CancelOperation { operation };
                self.command(command, action, id).await
            }
            Action::Drain(_) => {
                self.begin(async |conductor| self.drain(conductor, resource, submission).await)
                    .await
            }
            Action::Migrate(_) => {
                self.begin(async |conductor| self.migrate(conductor, resource, submission).await)
                    .await
            }
            Action::AbortMigration(_) => {
                self.begin(async |conductor| self.abort(conductor, resource, submission).await)
                    .await
            }
        }
    }

    /// Has a conductor begin something.
    async fn begin(
        &self,
        work: impl AsyncFnOnce(Client) -> Result<(), Status>,
    ) -> Result<(), Status> {
        if self.context.handle().leader().role.leader.is_none() {
            // A conductor could not say that nothing was done.
            return Err(self.context.elsewhere());
        }
        // Until one is chosen nothing is sent.
        let conductor = self.conductors.connect().await?;
        let begun = tokio::time::timeout(ACTION_TIMEOUT, work(conductor)).await;
        begun.unwrap_or_else(|_| Err(unknown("it has not begun within 20 s")))
    }

    async fn drain(
        &self,
        mut conductor: Client,
        host: String,
        submission: &Submission,
    ) -> Result<(), Status> {
        let request = wire::DrainHostRequest {
            host,
            cold: submission.cold,
            no_wait: true,
            request_id: submission.request_id.clone(),
            ..Default::default()
        };
        let begun = conductor.drain_host(self.conductors.request(request)).await;
        let mut events = begun.map_err(in_doubt)?.into_inner();
        while events.message().await.map_err(in_doubt)?.is_some() {}
        Ok(())
    }

    async fn migrate(
        &self,
        mut conductor: Client,
        vm: String,
        submission: &Submission,
    ) -> Result<(), Status> {
        let request = wire::MigrateVmRequest {
            vm,
            requested_host: match submission.host.as_str() {
                "" => String::new(),
                host => format!("hosts/{host}"),
            },
            request_id: submission.request_id.clone(),
            transfer: None,
        };
        let begun = conductor.migrate_vm(self.conductors.request(request)).await;
        begun.map(drop).map_err(in_doubt)
    }

    async fn abort(
        &self,
        mut conductor: Client,
        name: String,
        submission: &Submission,
    ) -> Result<(), Status> {
        let request = wire::AbortMigrationRequest {
            name,
            request_id: submission.request_id.clone(),
        };
        let request = self.conductors.request(request);
        let begun = conductor.abort_migration(request).await;
        let response = begun.map_err(in_doubt)?.into_inner();
        match response.operation.is_some_and(|operation| operation.done) {
            true => Err(ended("the migration")),
            false => Ok(()),
        }
    }

    /// Carries a command out at the leader, under the method and the id of the form.
    async fn command(
        &self,
        command: Command,
        action: &Action,
        id: RequestId,
    ) -> Result<(), Status> {
        let principal = self.conductors.principal().to_owned();
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
