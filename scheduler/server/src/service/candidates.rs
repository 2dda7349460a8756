//! Allocation candidates as they are found, in messages of bounded size.
//!
//! ```text
//! search ─one by one─▶ message ─full─▶ the few that wait ─▶ reader
//!                                         └─all wait─▶ the search waits, on a loan
//! ```
//!
//! Invariant: what is kept is the message that is being filled, the few that wait, and which
//! providers were summarised; never all candidates.

use std::collections::BTreeSet;
use std::time::Duration;

use berth_domain::id::ProviderId;
use berth_domain::provider::ResourceProvider;
use berth_domain::refusal::{Code, Refusal};
use berth_proto::convert::{ResourceName as _, field};
use berth_proto::placement::v1;
use berth_proto::status::to_status;
use berth_selection::candidates::{Bounds, Candidate, Index, Query, SearchBound};
use berth_state::State;
use prost::Message as _;
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;
use tokio_stream::Stream;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use tonic::Status;

use super::context::Context;
use super::table::Turn;
use super::{explanation, query, refusal};

/// How many bytes of candidates and summaries a message has at most, unless one alone has more.
const MESSAGE_BYTES_MAX: usize = 128 << 10;

/// How many candidates a message has at most.
const MESSAGE_CANDIDATES_MAX: usize = 256;

/// Messages that may wait for a slow client before the search waits for it.
const WAITING_MAX: usize = 4;

/// With a limit up to this, what is found hardly ever has to wait for its reader.
const LIMIT_SMALL: u32 = 1000;

type Message = v1::FindAllocationCandidatesResponse;

/// Finds candidates and sends them.
pub(super) async fn find(
    context: Context,
    wire: v1::FindAllocationCandidatesRequest,
) -> Result<impl Stream<Item = Result<Message, Status>>, Status> {
    let (consistency, whole_trees) = (wire.consistency, wire.whole_trees);
    let query = query::read(wire)?;
    let state = context.state(consistency).await?;
    query::check(&query, &state).map_err(|refusal| to_status(&refusal))?;
    let loan = match query.limit {
        Some(limit) if limit <= LIMIT_SMALL => None,
        Some(_) | None => {
            let loan = tokio::time::timeout(context.request_timeout(), context.loan());
            Some(loan.await.map_err(|_| too_many())?)
        }
    };
    let (messages, stream) = mpsc::channel(WAITING_MAX);
    let pace = Pace {
        messages: messages.clone(),
        stopping: context.stopping().clone(),
        patience: context.request_timeout(),
    };
    tokio::spawn(async move {
        let done = context.search_for_reader(state, loan, move |state, index, turn| {
            let mut sending = Sending::new(state, whole_trees, pace, turn);
            sending.all(index, &query)
        });
        let status = match done.await {
            Ok(Ok(())) | Ok(Err(Ended::Closed)) => return,
            Ok(Err(Ended::Refused(status))) => *status,
            Err(_) => refusal::search_failed(),
        };
        // The client may have gone.
        let _ = messages.send(Err(status)).await;
    });
    Ok(ReceiverStream::new(stream))
}

/// Why no more is sent.
enum Ended {
    /// The client closed the stream.
    Closed,
    /// The query is refused.
    Refused(Box<Status>),
}

impl From<Status> for Ended {
    fn from(status: Status) -> Self {
        Self::Refused(Box::new(status))
    }
}

/// How messages get to their reader.
struct Pace {
    messages: mpsc::Sender<Result<Message, Status>>,
    stopping: CancellationToken,
    /// How long the reader may take for one message.
    patience: Duration,
}

/// The message that is being filled.
struct Sending<'s, 't, 'u> {
    state: &'s State,
    whole_trees: bool,
    pace: Pace,
    turn: &'u mut Turn<'t>,
    message: Message,
    bytes: usize,
    /// Providers that were summarised.
    sent: BTreeSet<ProviderId>,
}

impl<'s, 't, 'u> Sending<'s, 't, 'u> {
    fn new(state: &'s State, whole_trees: bool, pace: Pace, turn: &'u mut Turn<'t>) -> Self {
        let mut sending = Self {
            state,
            whole_trees,
            pace,
            turn,
            message: Message::default(),
            bytes: 0,
            sent: BTreeSet::new(),
        };
        sending.take();
        sending
    }

    fn all(&mut self, index: &Index, query: &Query) -> Result<(), Ended> {
        let refuse = |invalid| to_status(&query::refuse(&invalid));
        let search = index.search(query, Bounds::default()).map_err(refuse)?;
        let mut found = false;
        for next in search {
            match next {
                Ok(candidate) => self.candidate(&candidate)?,
                // Enough was found to choose from.
                Err(_) if found && query.limit.is_some() => self.message.stopped = true,
                Err(bound) => {
                    self.flush()?;
                    return Err(stopped(&bound).into());
                }
            }
            found = true;
        }
        if !found {
            self.message.explanation = Some(explanation::explain(self.state, index, query));
        }
        self.send()
    }

    fn candidate(&mut self, candidate: &Candidate) -> Result<(), Ended> {
        let mappings = candidate.mappings.values().flatten();
        for id in candidate.allocations.keys().chain(mappings) {
            self.summarise(*id)?;
        }
        let candidate = write(candidate);
        self.reserve_bytes(candidate.encoded_len())?;
        self.message.candidates.push(candidate);
        Ok(())
    }

    /// Summarises a provider, unless it was.
    fn summarise(&mut self, id: ProviderId) -> Result<(), Ended> {
        let state = self.state;
        let Some(provider) = state.provider(id).filter(|_| !self.sent.contains(&id)) else {
            return Ok(());
        };
        if !self.whole_trees {
            return self.summary(provider);
        }
        for provider in state.tree_of(provider.root) {
            self.summary(provider)?;
        }
        Ok(())
    }

    fn summary(&mut self, provider: &ResourceProvider) -> Result<(), Ended> {
        let summary = summarise(self.state, provider);
        self.reserve_bytes(summary.encoded_len())?;
        self.message.summaries.push(summary);
        self.sent.insert(provider.id);
        Ok(())
    }

    /// Sends the message if so many bytes more would be too many.
    fn reserve_bytes(&mut self, bytes: usize) -> Result<(), Ended> {
        let full = self.message.candidates.len() >= MESSAGE_CANDIDATES_MAX;
        if full || self.bytes + bytes > MESSAGE_BYTES_MAX {
            self.flush()?;
        }
        self.bytes += bytes;
        Ok(())
    }

    fn flush(&mut self) -> Result<(), Ended> {
        match self.bytes {
            0 => Ok(()),
            _ => self.send(),
        }
    }

    fn take(&mut self) -> Message {
        let next = Message {
            revision: self.state.revision(),
            ..Message::default()
        };
        self.bytes = 0;
        std::mem::replace(&mut self.message, next)
    }

    fn send(&mut self) -> Result<(), Ended> {
        let message = self.take();
        let message = match self.pace.messages.try_send(Ok(message)) {
            Ok(()) => return Ok(()),
            Err(TrySendError::Closed(_)) => return Err(Ended::Closed),
            Err(TrySendError::Full(message)) => message,
        };
        let Pace {
            messages,
            stopping,
            patience,
        } = &self.pace;
        let sent = self.turn.wait(async {
            tokio::select! {
                sent = messages.send(message) => sent.map_err(|_| Ended::Closed),
                () = stopping.cancelled() => Err(refusal::stopping().into()),
                () = tokio::time::sleep(*patience) => Err(too_slow(*patience).into()),
            }
        });
        sent.map_err(|_| too_many())?
    }
}

fn write(candidate: &Candidate) -> v1::AllocationCandidate {
    let allocations = candidate.allocations.iter();
    let mappings = candidate.mappings.iter();
    v1::AllocationCandidate {
        allocations: allocations
            .map(|(provider, resources)| v1::Allocation {
                resource_provider: provider.resource_name(),
                resources: field::amounts(resources),
            })
            .collect(),
        mappings: mappings
            .map(|(suffix, providers)| v1::CandidateMapping {
                suffix: suffix.to_string(),
                resource_providers: providers.iter().map(|id| id.resource_name()).collect(),
            })
            .collect(),
    }
}

fn summarise(state: &State, provider: &ResourceProvider) -> v1::ProviderSummary {
    let used = state.used_of(provider.id);
    let classes = provider.inventories.iter();
    let resources = classes.map(|(class, inventory)| {
        let summary = v1::ResourceSummary {
            capacity: inventory.capacity(),
            used: used.get(class).copied().unwrap_or_default(),
        };
        (class.to_string(), summary)
    });
    v1::ProviderSummary {
        resource_provider: provider.id.resource_name(),
        display_name: provider.name.clone(),
        parent: field::name_or_empty(provider.parent.as_ref()),
        root: provider.root.resource_name(),
        resources: resources.collect(),
        traits: provider.traits.iter().map(ToString::to_string).collect(),
    }
}

fn stopped(bound: &SearchBound) -> Status {
    let refusal = Refusal::new(
        Code::ResourceExhausted,
        SearchBound::REASON,
        bound.to_string(),
    );
    to_status(
        &refusal
            .with("steps", bound.steps)
            .with("found", bound.candidates_total),
    )
}

fn too_many() -> Status {
    let message = "others are sent answers without end at the moment, and this one is long as well";
    let refusal = Refusal::new(Code::ResourceExhausted, "TOO_MANY_SEARCHES", message);
    to_status(&refusal.with_hint("set `limit`, or try again later"))
}

fn too_slow(patience: Duration) -> Status {
    let message = format!(
        "the client took none of the candidates that wait for it for {} seconds",
        patience.as_secs_f64()
    );
    let refusal = Refusal::new(Code::DeadlineExceeded, "READER_TOO_SLOW", message);
    to_status(&refusal.with_hint("read on while they come, or set `limit`"))
}
