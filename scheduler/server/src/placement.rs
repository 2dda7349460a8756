//! OpenStack Placement's REST API of this member: the reads, writes and searches behind
//! [`berth_placement_api`], which knows no replica.

use std::sync::Arc;

use berth_domain::id::TimeMs;
use berth_domain::refusal::Refusal;
use berth_placement_api::{Backend, Options, Search};
use berth_process::BoxFuture;
use berth_proto::status::from_status;
use berth_proto::types::v1::ReadConsistency;
use berth_state::command::Command;
use berth_state::{Reply, State};
use berth_tls::Tls;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::service::{Context, wall};

/// Serves until `stop` is cancelled.
pub(crate) async fn serve(
    listener: TcpListener,
    tls: Option<Tls>,
    context: Context,
    options: Options,
    stop: CancellationToken,
) {
    // Accepted connections get a response: while a member starts, they wait in the backlog until
    // there is a leader. Without one they get an error after a timeout.
    let mut leader = context.handle().watch_leader();
    let led = leader.wait_for(|leader| leader.role.leader.is_some());
    tokio::select! {
        biased;
        () = stop.cancelled() => return,
        _ = tokio::time::timeout(context.leader_wait(), led) => {}
    }
    berth_placement_api::serve(listener, tls, Arc::new(context), options, stop).await;
}

impl Backend for Context {
    fn state(&self) -> BoxFuture<'_, Result<State, Refusal>> {
        Box::pin(async {
            let state = Self::state(self, ReadConsistency::Linearizable.into()).await;
            state.map_err(|status| from_status(&status))
        })
    }

    fn search(&self, state: State, search: Search) -> BoxFuture<'_, ()> {
        Box::pin(async {
            // The API sees that a search has no result.
            let _ = Self::search(self, state, search).await;
        })
    }

    fn execute(
        &self,
        principal: String,
        command: Command,
    ) -> BoxFuture<'_, Result<Reply, Refusal>> {
        Box::pin(async {
            let executed = self.execute_at_leader(principal, command).await;
            executed.unwrap_or_else(|status| Err(from_status(&status)))
        })
    }

    fn now(&self) -> TimeMs {
        wall()
    }
}
