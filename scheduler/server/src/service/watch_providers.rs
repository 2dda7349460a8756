//! The stream of resource providers as they change, in messages of bounded size.
//!
//! Invariant: every change up to the revision of a message was sent; where one batch takes several
//! messages, only the last of them advances the revision.

use std::sync::Arc;

use berth_domain::id::ProviderId;
use berth_domain::provider::ResourceProvider;
use berth_domain::refusal::Refusal;
use berth_proto::convert::ResourceName as _;
use berth_proto::placement::v1;
use berth_proto::status::to_status;
use berth_state::State;
use prost::Message as _;
use tokio::sync::mpsc;
use tokio_stream::Stream;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;

use super::context::Context;
use super::refusal;
use crate::feed::decode_provider;

/// How many bytes of providers a message has at most, unless one alone has more.
const MESSAGE_BYTES_MAX: usize = 128 << 10;

/// Messages that are queued for a slow client. Further changes are merged into one message.
const WAITING_MAX: usize = 4;

type Message = v1::WatchResourceProvidersResponse;
type Messages = mpsc::Sender<Result<Message, Status>>;

/// Where a watch starts.
pub(super) enum From {
    /// With all providers of this state.
    Snapshot(Box<State>),
    /// After this revision.
    After(u64),
}

/// A provider that changed.
enum ProviderChange {
    Put(Arc<ResourceProvider>),
    Deleted(ProviderId),
}

/// The client closed the stream.
struct Closed;

/// Sends the current providers, if requested, and then those that change.
pub(super) fn watch(
    context: Context,
    from: From,
    only: Option<ProviderId>,
) -> impl Stream<Item = Result<Message, Status>> {
    let (messages, stream) = mpsc::channel(WAITING_MAX);
    tokio::spawn(async move {
        let watching = Watching { messages, only };
        let Ok(ended) = watching.follow(&context, from).await else {
            return;
        };
        // The client may have gone.
        let _ = watching.messages.send(Err(ended)).await;
    });
    ReceiverStream::new(stream)
}

struct Watching {
    messages: Messages,
    only: Option<ProviderId>,
}

impl Watching {
    /// Sends the changes; returns the final status.
    async fn follow(&self, context: &Context, from: From) -> Result<Status, Closed> {
        let mut after = match from {
            From::Snapshot(state) => {
                let revision = state.revision();
                self.snapshot(&state).await?;
                revision
            }
            From::After(revision) => revision,
        };
        loop {
            let changes = tokio::select! {
                changes = context.feed().provider_changes(after) => changes,
                () = self.messages.closed() => return Err(Closed),
                () = context.stopping().cancelled() => return Ok(refusal::stopping()),
            };
            let changes = match changes {
                Ok(Some(changes)) => changes,
                Ok(None) => return Ok(refusal::stopping()),
                Err(refusal) => return Ok(to_status(&refusal)),
            };
            let rows = changes.rows.into_iter().filter(|(id, _)| self.selects(*id));
            let changed = rows.map(|(id, row)| match row {
                Some(row) => decode_provider(&row).map(ProviderChange::Put),
                None => Ok(ProviderChange::Deleted(id)),
            });
            let first = Message {
                revision: after,
                ..Message::default()
            };
            if let Some(refusal) = self.send_batch(first, changes.revision, changed).await? {
                return Ok(to_status(&refusal));
            }
            after = changes.revision;
        }
    }

    fn selects(&self, id: ProviderId) -> bool {
        self.only.is_none_or(|only| only == id)
    }

    async fn snapshot(&self, state: &State) -> Result<(), Closed> {
        let selected = state.providers().values().filter(|p| self.selects(p.id));
        let changes = selected.map(|provider| Ok(ProviderChange::Put(provider.clone())));
        let first = Message {
            snapshot: true,
            ..Message::default()
        };
        // Nothing of a state has to be decoded, so nothing can be refused.
        self.send_batch(first, state.revision(), changes)
            .await
            .map(drop)
    }

    /// Sends the changes in messages like the first, the last of which reaches `revision`.
    /// Returns the refusal if a change could not be read.
    async fn send_batch(
        &self,
        first: Message,
        revision: u64,
        changes: impl Iterator<Item = Result<ProviderChange, Refusal>>,
    ) -> Result<Option<Refusal>, Closed> {
        let (mut message, mut bytes) = (first.clone(), 0);
        for change in changes {
            let entry = match change {
                Ok(ProviderChange::Put(provider)) => Ok(v1::ResourceProvider::from(&*provider)),
                Ok(ProviderChange::Deleted(id)) => Err(id.resource_name()),
                Err(refusal) => return Ok(Some(refusal)),
            };
            let more = match &entry {
                Ok(provider) => provider.encoded_len(),
                Err(name) => name.len(),
            };
            if bytes > 0 && bytes + more > MESSAGE_BYTES_MAX {
                self.send(std::mem::replace(&mut message, first.clone()))
                    .await?;
                bytes = 0;
            }
            bytes += more;
            match entry {
                Ok(provider) => message.resource_providers.push(provider),
                Err(name) => message.deleted_resource_providers.push(name),
            }
        }
        // An empty snapshot is sent as well.
        if bytes > 0 || message.snapshot {
            message.revision = revision;
            self.send(message).await?;
        }
        Ok(None)
    }

    async fn send(&self, message: Message) -> Result<(), Closed> {
        self.messages.send(Ok(message)).await.map_err(|_| Closed)
    }
}
