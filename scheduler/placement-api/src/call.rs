//! One call: the request, its caller, and access to the state.

use axum::body::Bytes;
use axum::http::header::HOST;
use axum::http::{HeaderMap, StatusCode};
use berth_domain::id::TimeMs;
use berth_domain::refusal::Refusal;
use berth_selection::candidates::Index;
use berth_state::command::Command;
use berth_state::{Reply as Outcome, State};
use serde_json::Value;
use tokio::sync::oneshot;

use super::caller::Caller;
use super::fault::Fault;
use super::microversion::Microversion;
use super::query::Query;
use super::refused;
use super::schema::Schema;
use super::schemas;
use crate::backend::Backend;

/// One call that may be made.
pub(super) struct Call<'f> {
    pub(super) backend: &'f dyn Backend,
    pub(super) version: Microversion,
    pub(super) caller: Caller,
    pub(super) query: Query,
    pub(super) body: Bytes,
    /// The media type of the body.
    pub(super) media_type: Option<String>,
    /// Under which address the client reached us, as `http://localhost:8778`.
    pub(super) base: String,
    /// Whose certificate was shown, where connections are encrypted.
    pub(super) through: Option<String>,
}

impl Call<'_> {
    /// Says whether it speaks 1.`minor` or newer.
    pub(super) fn has(&self, minor: u64) -> bool {
        self.version.has(minor)
    }

    /// Reads the body and validates it.
    pub(super) fn read(&self, schema: &Schema) -> Result<Value, Fault> {
        schemas::read_body(&self.body, schema)
    }

    /// Judges the query.
    pub(super) fn check_query(&self, schema: &Schema) -> Result<(), Fault> {
        schemas::check_query(&self.query, schema)
    }

    /// Returns the current state by a linearizable read.
    pub(super) async fn state(&self) -> Result<State, Fault> {
        let state = self.backend.state().await;
        state.map_err(|refusal| refused::in_general(&refusal))
    }

    /// Searches the current providers; `what` is the plural noun of the results.
    pub(super) async fn search<T: Send + 'static>(
        &self,
        what: &str,
        work: impl FnOnce(&State, &Index) -> Result<T, Fault> + Send + 'static,
    ) -> Result<T, Fault> {
        let state = self.state().await?;
        let (send, result) = oneshot::channel();
        let search = move |state: &State, index: &Index| {
            // The receiver is gone if the client is.
            let _ = send.send(work(state, index));
        };
        self.backend.search(state, Box::new(search)).await;
        result.await.unwrap_or_else(|_| {
            let detail = format!("the search for {what} failed");
            Err(Fault::new(StatusCode::INTERNAL_SERVER_ERROR, detail))
        })
    }

    /// Executes a command at the leader and returns its outcome.
    pub(super) async fn command(&self, command: Command) -> Result<Outcome, Refusal> {
        self.backend.execute(self.principal(), command).await
    }

    /// Returns where a client finds something.
    pub(super) fn location(&self, path: &str) -> String {
        format!("{}{path}", self.base)
    }

    /// Returns the time, for what has no time of its own.
    pub(super) fn now(&self) -> TimeMs {
        self.backend.now()
    }

    fn principal(&self) -> String {
        let user = &self.caller.user;
        match &self.through {
            Some(through) => format!("placement:{user} through {through}"),
            None => format!("placement:{user}"),
        }
    }
}

/// Returns under which address the client reached us.
pub(super) fn base(headers: &HeaderMap, is_encrypted: bool) -> String {
    let scheme = if is_encrypted { "https" } else { "http" };
    match headers.get(HOST).and_then(|host| host.to_str().ok()) {
        Some(host) => format!("{scheme}://{host}"),
        // Without it a location is a path, which clients resolve by themselves.
        None => String::new(),
    }
}
