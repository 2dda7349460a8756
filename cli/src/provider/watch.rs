//! `berth provider watch`: the providers, and what becomes of them.

use std::collections::BTreeSet;

use berth_domain::provider::ResourceProvider;
use berth_domain::refusal::{Code, Refusal};
use berth_proto::placement::v1::placement_service_client::PlacementServiceClient;
use berth_proto::placement::v1::{
    WatchResourceProvidersRequest, WatchResourceProvidersResponse as Message,
};
use serde_json::json;
use tonic::Streaming;

use crate::session::{Session, ended, resource, short};
use crate::watch::Continuation;
use crate::{draw, output, read};

/// What was printed, to continue from and to distinguish new from changed.
#[derive(Default)]
struct WatchState {
    revision: u64,
    known: BTreeSet<String>,
    /// Whether all providers are known: after a revision, only changes are reported.
    is_complete: bool,
    /// Providers of a snapshot that is being received; known ones that are not among them are deleted.
    snapshot: BTreeSet<String>,
}

/// Shows changes, for ever.
///
/// # Errors
///
/// The scheduler's refusal, or that no scheduler could be reached at the beginning.
pub(super) async fn run(
    session: &Session,
    provider: Option<String>,
    after: Option<u64>,
) -> anyhow::Result<()> {
    let mut state = WatchState {
        revision: after.unwrap_or(0),
        ..WatchState::default()
    };
    let only = provider.map(|id| resource("resourceProviders", &id));
    let mut continuation = Continuation::default();
    loop {
        let request = WatchResourceProvidersRequest {
            revision: state.revision,
            resource_provider: only.clone().unwrap_or_default(),
        };
        let opened = read!(
            session,
            PlacementServiceClient,
            watch_resource_providers,
            request
        );
        let ended = match opened {
            Ok(stream) => {
                continuation.opened();
                follow(session, stream, &mut state).await?
            }
            Err(refusal) => refusal,
        };
        if ended.code == Code::OutOfRange && state.revision != after.unwrap_or(0) {
            output::message("too much has changed meanwhile: restarting from the beginning");
            state.revision = 0;
            continuation.pause().await;
        } else if ended.code == Code::Unavailable && continuation.has_begun() {
            continuation.elsewhere(session, &ended).await;
        } else {
            return Err(ended.into());
        }
    }
}

/// Shows the messages of a stream; returns why it ended.
async fn follow(
    session: &Session,
    mut stream: Streaming<Message>,
    state: &mut WatchState,
) -> anyhow::Result<Refusal> {
    loop {
        match stream.message().await {
            Ok(Some(message)) => show(session, message, state)?,
            Ok(None) => {
                let message = "the scheduler ended the watch";
                return Ok(Refusal::new(Code::Unavailable, "STREAM_ENDED", message));
            }
            Err(status) => return Ok(ended(&status)),
        }
    }
}

fn show(session: &Session, message: Message, state: &mut WatchState) -> anyhow::Result<()> {
    let is_snapshot = message.snapshot;
    let revision = message.revision;
    for wire in message.resource_providers {
        let provider: ResourceProvider = wire.try_into()?;
        let id = provider.id.to_string();
        let is_known = !state.known.insert(id.clone());
        if is_snapshot {
            state.snapshot.insert(id);
        }
        let what = match is_snapshot {
            true => "is",
            false if is_known || !state.is_complete => "changed",
            false => "new",
        };
        line(session, revision, what, &provider)?;
    }
    for name in message.deleted_resource_providers {
        state.known.remove(short(&name));
        print_deleted(session, revision, short(&name))?;
    }
    if is_snapshot && revision > 0 {
        let there = std::mem::take(&mut state.snapshot);
        for id in state.known.difference(&there) {
            print_deleted(session, revision, id)?;
        }
        (state.known, state.is_complete) = (there, true);
    }
    state.revision = state.revision.max(revision);
    Ok(())
}

fn line(
    session: &Session,
    revision: u64,
    what: &str,
    provider: &ResourceProvider,
) -> anyhow::Result<()> {
    if session.for_programs() {
        return output::item(&json!({"revision": revision, "provider": provider}));
    }
    let amounts = provider.inventories.iter();
    let amounts = amounts.map(|(class, inventory)| format!("{class}={}", inventory.total));
    let mut has: Vec<String> = amounts.collect();
    has.push(draw::count(provider.traits.len(), "trait"));
    output::print(format!(
        "{what:<7}  {}  {}  generation {}  {}",
        provider.id,
        provider.name,
        provider.generation,
        has.join(" ")
    ));
    Ok(())
}

fn print_deleted(session: &Session, revision: u64, id: &str) -> anyhow::Result<()> {
    if session.for_programs() {
        return output::item(&json!({"revision": revision, "deleted": id}));
    }
    output::print(format!("gone     {id}"));
    Ok(())
}
