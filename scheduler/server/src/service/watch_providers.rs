//! The stream of resource providers as they change, in messages of bounded size.
//!
//! Invariant: the revision of a message says up to where everything was told; where what is told
//! at once takes several messages, only the last of them brings it forward.

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

/// Messages that may wait for a slow client. Changes gather behind them and arrive as one.
const WAITING_MAX: usize = 4;

type Message = v1::WatchResourceProvidersResponse;
type Messages = mpsc::Sender<Result<Message, Status>>;

/// From where a watch goes on.
pub(super) enum From {
    /// With everything that this state holds.
    Snapshot(Box<State>),
    /// After this revision.
    After(u64),
}

/// A provider that changed.
enum Told {
    Now(Arc<ResourceProvider>),
    Gone(ProviderId),
}

/// The client wants no more.
struct Closed;

/// Sends the providers as they are, if wanted, and then those that change.
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
    /// Tells what changes; returns why no more is told.
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
            let rows = changes.rows.into_iter().filter(|(id, _)| self.wants(*id));
            let told = rows.map(|(id, row)| match row {
                Some(row) => decode_provider(&row).map(Told::Now),
                None => Ok(Told::Gone(id)),
            });
            let first = Message {
                revision: after,
                ..Message::default()
            };
            if let Some(refusal) = self.tell(first, changes.revision, told).await? {
                return Ok(to_status(&refusal));
            }
            after = changes.revision;
        }
    }

    fn wants(&self, id: ProviderId) -> bool {
        self.only.is_none_or(|only| only == id)
    }

    async fn snapshot(&self, state: &State) -> Result<(), Closed> {
        let wanted = state.providers().values().filter(|p| self.wants(p.id));
        let told = wanted.map(|provider| Ok(Told::Now(provider.clone())));
        let first = Message {
            snapshot: true,
            ..Message::default()
        };
        // Nothing of a state has to be decoded, so nothing can be refused.
        self.tell(first, state.revision(), told).await.map(drop)
    }

    /// Sends what is told in messages like the first, the last of which reaches `revision`.
    /// Returns why something could not be told.
    async fn tell(
        &self,
        first: Message,
        revision: u64,
        told: impl Iterator<Item = Result<Told, Refusal>>,
    ) -> Result<Option<Refusal>, Closed> {
        let (mut message, mut bytes) = (first.clone(), 0);
        for told in told {
            let told = match told {
                Ok(Told::Now(provider)) => Ok(v1::ResourceProvider::from(&*provider)),
                Ok(Told::Gone(id)) => Err(id.resource_name()),
                Err(refusal) => return Ok(Some(refusal)),
            };
            let more = match &told {
                Ok(provider) => provider.encoded_len(),
                Err(name) => name.len(),
            };
            if bytes > 0 && bytes + more > MESSAGE_BYTES_MAX {
                self.send(std::mem::replace(&mut message, first.clone()))
                    .await?;
                bytes = 0;
            }
            bytes += more;
            match told {
                Ok(provider) => message.resource_providers.push(provider),
                Err(name) => message.deleted_resource_providers.push(name),
            }
        }
        // A snapshot of nothing is told as well.
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
