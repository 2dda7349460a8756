//! Waiters for the end of a transfer, and the times of recently ended transfers.
//!
//! Not how a transfer ended: the hypervisors report where the guest is then.
//!
//! Invariant: bounded. The record of an ended transfer holds nothing but the time of its end.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use berth_domain::id::VmUid;
use berth_driver::Token;
use tokio::sync::oneshot;

/// Of how many ended transfers something is kept.
const ENDED_MAX: usize = 256;
/// How many may wait at once: few conductors, one question each for a guest that leaves.
const WAITING_MAX: usize = 1024;

/// A transfer that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct End {
    /// How long the hypervisor was at it.
    pub(crate) took: Duration,
    /// When it had ended.
    pub(crate) at: Instant,
}

/// A waiter, and the channel for the last end of the guest's transfers, if it is known.
pub(crate) struct TransferWaiter {
    pub(crate) vm: VmUid,
    pub(crate) answer: oneshot::Sender<Option<End>>,
}

/// The transfers of one agent.
#[derive(Default)]
pub(crate) struct Transfers {
    /// What the hypervisor is at, and since when.
    begun: BTreeMap<Token, (VmUid, Instant)>,
    /// The latest last.
    ended: VecDeque<(VmUid, End)>,
    waiting: Vec<TransferWaiter>,
}

impl Transfers {
    /// The hypervisor begins to send a guest.
    pub(crate) fn begin(&mut self, token: Token, vm: VmUid, now: Instant) {
        self.begun.insert(token, (vm, now));
    }

    /// The hypervisor has completed a request; whether it was a transfer is known here.
    pub(crate) fn end(&mut self, token: Token, now: Instant) {
        let Some((vm, began)) = self.begun.remove(&token) else {
            return;
        };
        self.ended.retain(|(other, _)| *other != vm);
        if self.ended.len() >= ENDED_MAX {
            self.ended.pop_front();
        }
        let end = End {
            took: now.saturating_duration_since(began),
            at: now,
        };
        self.ended.push_back((vm, end));
    }

    /// Adds a waiter for the end of the guest's transfer. Beyond the bound a waiter is dropped, which
    /// its caller sees as a closed channel.
    pub(crate) fn wait(&mut self, waiting: TransferWaiter) {
        self.waiting.retain(|w| !w.answer.is_closed());
        if self.waiting.len() < WAITING_MAX {
            self.waiting.push(waiting);
        }
    }

    /// Notifies the waiters whose guest is not being sent.
    pub(crate) fn notify(&mut self, sends: impl Fn(VmUid) -> bool) {
        let over = self.waiting.extract_if(.., |w| !sends(w.vm));
        for TransferWaiter { vm, answer } in over {
            let end = self.ended.iter().find(|(of, _)| *of == vm);
            // The caller may have disconnected.
            let _ = answer.send(end.map(|(_, end)| *end));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vm(number: u128) -> VmUid {
        VmUid(uuid::Uuid::from_u128(number))
    }

    fn wait(transfers: &mut Transfers, vm: VmUid) -> oneshot::Receiver<Option<End>> {
        let (answer, receiver) = oneshot::channel();
        transfers.wait(TransferWaiter { vm, answer });
        receiver
    }

    /// Goal: everybody hears of the end of their own guest's transfer, once, also who asks late.
    #[test]
    fn the_end_is_told_to_all_who_wait_for_it() {
        let (start, second) = (Instant::now(), Duration::from_secs(1));
        let mut transfers = Transfers::default();
        transfers.begin(Token(1), vm(1), start);
        transfers.begin(Token(2), vm(2), start);
        let mut first = [wait(&mut transfers, vm(1)), wait(&mut transfers, vm(1))];
        let mut other = wait(&mut transfers, vm(2));
        transfers.notify(|_| true);
        assert!(first[0].try_recv().is_err());

        transfers.end(Token(1), start + second);
        transfers.notify(|of| of == vm(2));
        let end = Some(End {
            took: second,
            at: start + second,
        });
        for receiver in &mut first {
            assert_eq!(receiver.try_recv(), Ok(end));
        }
        assert!(other.try_recv().is_err());

        let mut late = wait(&mut transfers, vm(1));
        transfers.notify(|of| of == vm(2));
        assert_eq!(late.try_recv(), Ok(end));
        let mut unknown = wait(&mut transfers, vm(3));
        transfers.notify(|of| of == vm(2));
        assert_eq!(unknown.try_recv(), Ok(None));
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let now = Instant::now();
        let mut transfers = Transfers::default();
        for number in 0..2000 {
            transfers.begin(Token(number), vm(number.into()), now);
            transfers.end(Token(number), now);
        }
        assert_eq!(transfers.ended.len(), ENDED_MAX);
        assert!(transfers.begun.is_empty());

        let asked: Vec<_> = (0..2000).map(|_| wait(&mut transfers, vm(1))).collect();
        assert_eq!(transfers.waiting.len(), WAITING_MAX);
        drop(asked);
        let _last = wait(&mut transfers, vm(1));
        assert_eq!(transfers.waiting.len(), 1, "who has gone makes room");
    }
}
