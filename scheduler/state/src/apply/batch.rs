//! Several writes of counted placement in one command, all or none.
//!
//! Each write sees what the ones before it did, exactly as if they were commands of their own; the
//! first that is refused takes all of them back. Taking back is giving the state that was before:
//! its tables share their structure, so that keeping it costs nothing.
//!
//! Invariant: a batch that is carried out leaves what its writes would have left one by one; one
//! that is refused leaves nothing.

use berth_domain::id::{ConsumerId, ProviderId};
use berth_domain::refusal::Refusal;

use crate::command::Command;
use crate::refusals::invalid;
use crate::reply::Reply;
use crate::transaction::{Journal, Transaction};

/// How many providers the moves of one batch may take along. Everything else that a write does
/// is in proportion to its own length, or to that of an earlier one.
pub const MOVED_MAX: usize = 10_000;

/// What a batch has written, each once and in the order of the first writes.
#[derive(Default)]
struct Written {
    providers: Vec<ProviderId>,
    consumers: Vec<ConsumerId>,
}

impl<J: Journal> Transaction<'_, J> {
    pub(super) fn batch(&mut self, writes: &[Command]) -> Result<Reply, Refusal> {
        let before = self.state.clone();
        let mut written = Written::default();
        let mut moved = 0;
        for (at, write) in writes.iter().enumerate() {
            moved += self.moves(write);
            let outcome = match moved > MOVED_MAX {
                true => Err(moves_too_much()),
                false => self.write(write),
            };
            match outcome {
                Ok(reply) => written.note(reply),
                Err(refusal) => {
                    *self.state = before;
                    self.journal.forget();
                    return Err(of_write(refusal, at));
                }
            }
        }
        let providers = written.providers.iter();
        let consumers = written.consumers.iter();
        Ok(Reply::Batch {
            providers: providers
                .filter_map(|id| self.state.provider(*id).cloned())
                .collect(),
            consumers: consumers
                .filter_map(|id| self.state.consumer(*id).cloned())
                .collect(),
        })
    }

    fn write(&mut self, write: &Command) -> Result<Reply, Refusal> {
        match write.is_placement_write() {
            true => self.command(write),
            false => Err(invalid(
                "NOT_FOR_BATCHES",
                "only writes of counted placement can be in a batch",
            )),
        }
    }

    /// Returns how many providers a write takes along to another tree.
    fn moves(&self, write: &Command) -> usize {
        let Command::UpdateProvider {
            id,
            parent: Some(_),
            ..
        } = write
        else {
            return 0;
        };
        let (mut below, mut count) = (vec![*id], 0);
        while let Some(parent) = below.pop()
            && count <= MOVED_MAX
        {
            count += 1;
            below.extend(self.state.children_of(parent).map(|child| child.id));
        }
        count
    }
}

impl Written {
    fn note(&mut self, reply: Reply) {
        match reply {
            Reply::Provider(provider) if !self.providers.contains(&provider.id) => {
                self.providers.push(provider.id);
            }
            Reply::Consumers(consumers) => {
                for consumer in consumers {
                    if !self.consumers.contains(&consumer.id) {
                        self.consumers.push(consumer.id);
                    }
                }
            }
            Reply::Provider(_)
            | Reply::None
            | Reply::Class { .. }
            | Reply::Trait { .. }
            | Reply::Batch { .. }
            | Reply::Host(_)
            | Reply::Service(_)
            | Reply::Flavor(_)
            | Reply::Aggregate(_)
            | Reply::ServerGroup(_)
            | Reply::Policy(_)
            | Reply::PciAlias(_)
            | Reply::Image(_)
            | Reply::Network(_)
            | Reply::Operation(_)
            | Reply::Volume(_)
            | Reply::Leases(_) => {}
        }
    }
}

fn moves_too_much() -> Refusal {
    invalid(
        "BATCH_MOVES_TOO_MUCH",
        format!("the moves of a batch take at most {MOVED_MAX} providers along"),
    )
    .with_hint("move them one by one, outside of batches")
}

/// Says which write of a batch was refused.
fn of_write(mut refusal: Refusal, at: usize) -> Refusal {
    refusal.message = format!("write {at} of the batch: {}", refusal.message);
    refusal.with("write", at)
}
