//! `berth provider watch`: the providers, and what becomes of them.

use std::collections::BTreeSet;
use std::time::Duration;

use berth_domain::provider::ResourceProvider;
use berth_domain::refusal::{Code, Refusal};
use berth_proto::placement::v1::placement_service_client::PlacementServiceClient;
use berth_proto::placement::v1::{
    WatchResourceProvidersRequest, WatchResourceProvidersResponse as Message,
};
use serde_json::json;
use tonic::Streaming;

use crate::session::{Session, ended, resource, short};
use crate::{ask, draw, output};

/// How long to wait before a watch that ended is begun again.
const AGAIN_AFTER: Duration = Duration::from_millis(200);

/// What was told, to go on from and to tell new from changed.
#[derive(Default)]
struct Told {
    revision: u64,
    known: BTreeSet<String>,
    /// Whether it is known who was there: after a revision, only changes are told.
    is_complete: bool,
    /// Providers of a snapshot that is being told; who is known and not among them is gone.
    snapshot: BTreeSet<String>,
}

/// Shows changes until nobody can be reached.
pub(super) async fn run(
    session: &Session,
    provider: Option<String>,
    after: Option<u64>,
) -> anyhow::Result<()> {
    let mut told = Told {
        revision: after.unwrap_or(0),
        ..Told::default()
    };
    let only = provider.map(|id| resource("resourceProviders", &id));
    loop {
        let request = WatchResourceProvidersRequest {
            revision: told.revision,
            resource_provider: only.clone().unwrap_or_default(),
        };
        let stream = ask!(
            session,
            PlacementServiceClient,
            watch_resource_providers,
            request
        )?;
        let ended = follow(session, stream, &mut told).await?;
        if ended.code == Code::OutOfRange && told.revision != after.unwrap_or(0) {
            output::tell("too much has changed meanwhile: from the beginning");
            told.revision = 0;
        } else if ended.code != Code::Unavailable {
            return Err(ended.into());
        }
        tokio::time::sleep(AGAIN_AFTER).await;
    }
}

/// Shows what a stream tells; returns why it ended.
async fn follow(
    session: &Session,
    mut stream: Streaming<Message>,
    told: &mut Told,
) -> anyhow::Result<Refusal> {
    loop {
        match stream.message().await {
            Ok(Some(message)) => show(session, message, told)?,
            Ok(None) => {
                let message = "the scheduler ended the watch";
                return Ok(Refusal::new(Code::Unavailable, "STREAM_ENDED", message));
            }
            Err(status) => return Ok(ended(&status)),
        }
    }
}

fn show(session: &Session, message: Message, told: &mut Told) -> anyhow::Result<()> {
    let is_snapshot = message.snapshot;
    let revision = message.revision;
    for wire in message.resource_providers {
        let provider: ResourceProvider = wire.try_into()?;
        let id = provider.id.to_string();
        let is_known = !told.known.insert(id.clone());
        if is_snapshot {
            told.snapshot.insert(id);
        }
        let what = match is_snapshot {
            true => "is",
            false if is_known || !told.is_complete => "changed",
            false => "new",
        };
        line(session, revision, what, &provider)?;
    }
    for name in message.deleted_resource_providers {
        told.known.remove(short(&name));
        gone(session, revision, short(&name))?;
    }
    if is_snapshot && revision > 0 {
        let there = std::mem::take(&mut told.snapshot);
        for id in told.known.difference(&there) {
            gone(session, revision, id)?;
        }
        (told.known, told.is_complete) = (there, true);
    }
    told.revision = told.revision.max(revision);
    Ok(())
}

fn line(
    session: &Session,
    revision: u64,
    what: &str,
    provider: &ResourceProvider,
) -> anyhow::Result<()> {
    if session.json() {
        return output::json_line(&json!({"revision": revision, "provider": provider}));
    }
    let amounts = provider.inventories.iter();
    let amounts = amounts.map(|(class, inventory)| format!("{class}={}", inventory.total));
    let mut has: Vec<String> = amounts.collect();
    has.push(draw::count(provider.traits.len(), "trait"));
    output::print(&format!(
        "{what:<7}  {}  {}  generation {}  {}\n",
        provider.id,
        provider.name,
        provider.generation,
        has.join(" ")
    ));
    Ok(())
}

fn gone(session: &Session, revision: u64, id: &str) -> anyhow::Result<()> {
    if session.json() {
        return output::json_line(&json!({"revision": revision, "deleted": id}));
    }
    output::print(&format!("gone     {id}\n"));
    Ok(())
}
