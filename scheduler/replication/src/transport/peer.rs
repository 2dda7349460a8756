//! The way out to one member: a bounded queue and a task that keeps a stream to it.

use std::collections::{BTreeMap, VecDeque};
use std::io::Read;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use berth_proto::raft::v1::raft_service_client::RaftServiceClient;
use berth_proto::raft::v1::{ExchangeRequest, Hello, InstallSnapshotRequest};
use berth_tls::{Connector, Expected};
use bytes::Bytes;
use protobuf::Message as _;
use raft::eraftpb::Message;
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::{Channel, Endpoint};

use super::{Addresses, FRAME_BYTES_MAX, Options};
use crate::runtime::{OutgoingSnapshot, SnapshotReport};

/// Batches handed to the connection that it has not taken yet. Few: what waits here cannot be
/// dropped for something newer.
const BATCHES_AHEAD: usize = 2;
const BATCH_BYTES: usize = 1 << 20;
const CHUNK_BYTES: usize = 256 << 10;

/// Where a member is tried.
pub(super) struct Places {
    /// The generation of the addresses.
    pub(super) generation: u64,
    /// The address that the membership records.
    pub(super) recorded: String,
    /// The addresses to try in turn, at least one.
    pub(super) candidates: Vec<String>,
    /// Where it is noted at which of them the member was reached.
    pub(super) addresses: Addresses,
}

/// The way out to one member. Dropping it ends its tasks.
pub(super) struct Peer {
    generation: u64,
    recorded: String,
    route: Arc<Route>,
    queue: Arc<Queue>,
    task: JoinHandle<()>,
}

/// How the streams to a member are opened.
struct Route {
    candidates: Vec<String>,
    addresses: Addresses,
    hello: Hello,
    options: Options,
}

impl Peer {
    /// Starts the task. `lost` is called when messages were lost.
    pub(super) fn start(
        places: Places,
        hello: Hello,
        options: Options,
        lost: impl Fn() + Send + 'static,
    ) -> Self {
        let queue = Arc::new(Queue::default());
        let route = Arc::new(Route {
            candidates: places.candidates,
            addresses: places.addresses,
            hello,
            options,
        });
        let task = tokio::spawn(keep_connected(route.clone(), queue.clone(), lost));
        Self {
            generation: places.generation,
            recorded: places.recorded,
            route,
            queue,
            task,
        }
    }

    /// Returns whether nothing was stated or recorded since it was last confirmed.
    pub(super) fn is_current(&self, generation: u64, recorded: &str) -> bool {
        self.generation == generation && self.recorded == recorded
    }

    /// Returns whether these are the addresses that it tries, and if so remembers of when that is.
    pub(super) fn confirm(
        &mut self,
        generation: u64,
        recorded: &str,
        candidates: &[String],
    ) -> bool {
        let is_same = self.route.candidates == candidates;
        if is_same {
            self.generation = generation;
            recorded.clone_into(&mut self.recorded);
        }
        is_same
    }

    pub(super) fn send(&self, messages: Vec<Message>) {
        self.queue.push(messages, self.route.options.queue);
    }

    /// Sends a snapshot on a connection of its own.
    pub(super) fn send_snapshot(&self, snapshot: OutgoingSnapshot, report: SnapshotReport) {
        let route = self.route.clone();
        tokio::spawn(async move {
            let sent = send_snapshot(&route, snapshot).await;
            if let Err(status) = &sent {
                let to = route.hello.to;
                tracing::info!(to, error = %status.message(), "sending snapshot failed");
                // The leader would try again at once.
                tokio::time::sleep(route.options.backoff_min).await;
            }
            report.finished(sent.is_ok());
        });
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Messages that wait for the connection; when there are too many, the oldest go.
#[derive(Default)]
struct Queue {
    messages: Mutex<VecDeque<Message>>,
    filled: Notify,
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, VecDeque<Message>> {
        self.messages.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, new: Vec<Message>, limit: usize) {
        let mut messages = self.lock();
        messages.extend(new);
        let surplus = messages.len().saturating_sub(limit);
        messages.drain(..surplus);
        drop(messages);
        self.filled.notify_one();
    }

    fn clear(&self) -> usize {
        std::mem::take(&mut *self.lock()).len()
    }

    /// Takes about one batch, waiting until there is something.
    async fn take(&self) -> Vec<Message> {
        loop {
            let batch = self.take_now();
            if !batch.is_empty() {
                return batch;
            }
            self.filled.notified().await;
        }
    }

    fn take_now(&self) -> Vec<Message> {
        let mut messages = self.lock();
        let mut bytes = 0;
        let mut batch = Vec::new();
        while bytes < BATCH_BYTES {
            let Some(message) = messages.pop_front() else {
                break;
            };
            bytes += message.entries.iter().map(|e| e.data.len()).sum::<usize>();
            batch.push(message);
        }
        batch
    }
}

async fn keep_connected(route: Arc<Route>, queue: Arc<Queue>, lost: impl Fn()) {
    let Route {
        candidates,
        hello,
        options,
        ..
    } = &*route;
    let to = hello.to;
    let mut pause = options.backoff_min;
    let mut logged = BTreeMap::new();
    let mut turn = 0;
    loop {
        let address = &candidates[turn % candidates.len()];
        let mut connected = None;
        let ended = exchange(address, &route, &queue, &mut connected).await;
        let (refused, why) = match ended {
            Ok(()) => (false, "the other member closed the stream".to_owned()),
            Err(status) => (is_refusal(&status), status.message().to_owned()),
        };
        // A stream that was open for a while shows nothing of the address: what accepts connections there
        // may never answer. So the other one is next in any case.
        turn += 1;
        if connected.is_some_and(|since: Instant| since.elapsed() > options.backoff_max) {
            pause = options.backoff_min;
        }
        // Once per address and reason in a row: a member that is down is tried for hours.
        if logged.get(address) != Some(&why) {
            logged.insert(address, why.clone());
            if refused {
                tracing::warn!(to, address, reason = why, "peer refused the connection");
            } else {
                tracing::info!(to, address, reason = why, "connecting to peer failed");
            }
        }
        if queue.clear() > 0 {
            lost();
        }
        tokio::time::sleep(pause).await;
        if queue.clear() > 0 {
            lost();
        }
        pause = (pause * 2).min(options.backoff_max);
    }
}

/// Returns whether the other end will have nothing to do with this member, as of another cluster:
/// no time heals that, a person has to look.
fn is_refusal(status: &tonic::Status) -> bool {
    matches!(
        status.code(),
        tonic::Code::FailedPrecondition | tonic::Code::PermissionDenied
    )
}

/// Keeps one stream until it breaks.
async fn exchange(
    address: &str,
    route: &Route,
    queue: &Queue,
    connected: &mut Option<Instant>,
) -> Result<(), tonic::Status> {
    let Route { hello, options, .. } = route;
    let generation = options.dialer.generation();
    let mut client = connect(address, options).await?;
    route.addresses.reach(hello.to, address);
    *connected = Some(Instant::now());
    tracing::debug!(to = hello.to, address, "connected to peer");
    let (batches, stream) = mpsc::channel(BATCHES_AHEAD);
    let first = ExchangeRequest {
        hello: Some(hello.clone()),
        messages: Vec::new(),
    };
    // The channel is empty, so there is room.
    let _ = batches.try_send(first);
    let pump = async {
        loop {
            let Ok(permit) = batches.reserve().await else {
                return;
            };
            let messages = queue.take().await.iter().map(encode).collect();
            permit.send(ExchangeRequest {
                hello: None,
                messages,
            });
        }
    };
    tokio::select! {
        biased;
        ended = client.exchange(ReceiverStream::new(stream)) => ended.map(|_| ()),
        // The other end would hold this member to a certificate that runs out.
        () = options.dialer.outdated(generation) => {
            Err(tonic::Status::unavailable("other certificates are used from now on"))
        }
        () = pump => Err(tonic::Status::unavailable("the stream broke")),
    }
}

fn encode(message: &Message) -> Bytes {
    let bytes = message.write_to_bytes();
    Bytes::from(bytes.expect("a Raft message has no required fields and fits into memory"))
}

/// Returns how a member is reached.
pub(super) fn endpoint(address: &str, options: &Options) -> Result<Endpoint, tonic::Status> {
    let url = match address.contains("://") {
        true => address.to_owned(),
        false => options.dialer.url(address),
    };
    let endpoint = Endpoint::from_shared(url)
        .map_err(|e| tonic::Status::invalid_argument(format!("address {address}: {e}")))?;
    Ok(endpoint
        // Without these a connection stays dead after a partition has healed.
        .http2_keep_alive_interval(options.keep_alive_interval)
        .keep_alive_timeout(options.keep_alive_timeout)
        .keep_alive_while_idle(true)
        .initial_stream_window_size(Some(4 << 20))
        .initial_connection_window_size(Some(8 << 20)))
}

/// Returns what connects to another member.
pub(super) fn connector(options: &Options) -> Connector {
    let timeout = options.connect_timeout;
    options.dialer.connector(Expected::Scheduler, timeout)
}

/// Returns a client that talks through this channel.
pub(super) fn client(channel: Channel) -> RaftServiceClient<Channel> {
    RaftServiceClient::new(channel)
        .max_decoding_message_size(FRAME_BYTES_MAX)
        .max_encoding_message_size(FRAME_BYTES_MAX)
}

async fn connect(
    address: &str,
    options: &Options,
) -> Result<RaftServiceClient<Channel>, tonic::Status> {
    let endpoint = endpoint(address, options)?;
    let channel = endpoint.connect_with_connector(connector(options)).await;
    let channel = channel.map_err(|e| {
        tonic::Status::unavailable(format!("connecting to {address}: {}", root_cause(&e)))
    })?;
    Ok(client(channel))
}

fn root_cause(error: &dyn std::error::Error) -> String {
    match error.source() {
        Some(source) => root_cause(source),
        None => error.to_string(),
    }
}

/// Connects at the first address at which that succeeds.
async fn connect_to_any(route: &Route) -> Result<RaftServiceClient<Channel>, tonic::Status> {
    let mut failed = tonic::Status::unavailable("the member has no address");
    for address in &route.candidates {
        match connect(address, &route.options).await {
            Ok(client) => return Ok(client),
            Err(status) => failed = status,
        }
    }
    Err(failed)
}

async fn send_snapshot(route: &Route, snapshot: OutgoingSnapshot) -> Result<(), tonic::Status> {
    let mut client = connect_to_any(route).await?;
    let hello = route.hello.clone();
    let (pieces, stream) = mpsc::channel(4);
    let message = encode(&snapshot.message);
    let reading = tokio::task::spawn_blocking(move || {
        let first = InstallSnapshotRequest {
            hello: Some(hello),
            message,
            ..InstallSnapshotRequest::default()
        };
        read_pieces(snapshot.content, first, |piece| {
            pieces.blocking_send(piece).is_ok()
        })
    });
    let answer = client
        .install_snapshot(ReceiverStream::new(stream))
        .await
        .map(|_| ());
    match reading.await {
        Ok(Ok(())) => answer,
        Ok(Err(error)) => Err(tonic::Status::data_loss(format!(
            "the checkpoint cannot be read: {error}"
        ))),
        Err(_) => Err(tonic::Status::internal("reading the checkpoint panicked")),
    }
}

/// Cuts a checkpoint into pieces until it ends or the receiver is gone.
fn read_pieces(
    mut content: impl Read,
    first: InstallSnapshotRequest,
    mut send: impl FnMut(InstallSnapshotRequest) -> bool,
) -> std::io::Result<()> {
    let mut piece = first;
    let mut offset = 0;
    loop {
        let mut chunk = Vec::with_capacity(CHUNK_BYTES);
        content
            .by_ref()
            .take(CHUNK_BYTES as u64)
            .read_to_end(&mut chunk)?;
        let last = chunk.is_empty();
        piece.offset = offset;
        piece.crc32 = crc32fast::hash(&chunk);
        piece.last = last;
        offset += chunk.len() as u64;
        piece.chunk = chunk.into();
        if !send(std::mem::take(&mut piece)) || last {
            return Ok(());
        }
    }
}
