//! Limits the concurrent handshakes of each address and of all together.
//!
//! Invariant: no client waits for a permit behind another one. Each address has a limited number of
//! permits, and when all are in use, the oldest permit of the address with most is revoked: so an
//! address that sends half a hello again and again blocks only itself. Many such addresses cut off
//! clients whose handshake takes longer than they need to take all permits.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio_util::sync::CancellationToken;

/// Limits the handshakes in progress.
#[derive(Debug)]
pub(crate) struct HandshakeLimiter {
    total_max: usize,
    per_source_max: usize,
    active: Mutex<Active>,
}

#[derive(Debug, Default)]
struct Active {
    issued: u64,
    all: usize,
    /// The permits of each source, the oldest first, with the token that revokes each.
    sources: HashMap<IpAddr, BTreeMap<u64, CancellationToken>>,
}

/// Which limit was reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum LimitReached {
    #[error("too many handshakes of its address in progress")]
    Source,
    #[error("too many handshakes in progress, and no address has more than its own")]
    All,
}

/// A permit for one handshake, until it is dropped.
#[derive(Debug)]
pub(crate) struct Permit {
    limiter: Arc<HandshakeLimiter>,
    source: IpAddr,
    number: u64,
    revoked: CancellationToken,
}

impl Permit {
    /// Waits until the permit is revoked.
    pub(crate) async fn revoked(&self) {
        self.revoked.cancelled().await;
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.limiter.lock().remove(self.source, self.number);
    }
}

impl HandshakeLimiter {
    /// Returns a limiter of all handshakes and of those of each address.
    pub(crate) fn new(total_max: usize, per_source_max: usize) -> Arc<Self> {
        Arc::new(Self {
            total_max,
            per_source_max,
            active: Mutex::default(),
        })
    }

    /// Returns a permit for a handshake of this address.
    pub(crate) fn acquire(self: &Arc<Self>, address: IpAddr) -> Result<Permit, LimitReached> {
        let source = source(address);
        let mut active = self.lock();
        let own = active.sources.get(&source).map_or(0, BTreeMap::len);
        if own >= self.per_source_max {
            return Err(LimitReached::Source);
        }
        if active.all >= self.total_max && !active.revoke_from_largest(own) {
            return Err(LimitReached::All);
        }
        active.issued += 1;
        active.all += 1;
        let (number, revoked) = (active.issued, CancellationToken::new());
        let permits = active.sources.entry(source).or_default();
        permits.insert(number, revoked.clone());
        Ok(Permit {
            limiter: self.clone(),
            source,
            number,
            revoked,
        })
    }

    fn lock(&self) -> MutexGuard<'_, Active> {
        // Count and permits are changed together, and nothing in between can fail.
        self.active.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Active {
    fn remove(&mut self, source: IpAddr, number: u64) {
        let Some(permits) = self.sources.get_mut(&source) else {
            return;
        };
        // It may have been revoked already.
        if permits.remove(&number).is_some() {
            self.all -= 1;
        }
        if permits.is_empty() {
            self.sources.remove(&source);
        }
    }

    /// Revokes the oldest permit of the address with most, if it has more than the requesting address,
    /// which has `own`.
    fn revoke_from_largest(&mut self, own: usize) -> bool {
        let sources = self.sources.iter();
        // Of several addresses the one with the oldest permit.
        let largest = sources.max_by_key(|(_, permits)| {
            let oldest = permits.first_key_value().map(|(number, _)| *number);
            (permits.len(), Reverse(oldest))
        });
        let Some((source, permits)) = largest.filter(|(_, permits)| permits.len() > own) else {
            return false;
        };
        let Some((number, revoked)) = permits.first_key_value() else {
            return false;
        };
        revoked.cancel();
        let (source, number) = (*source, *number);
        self.remove(source, number);
        true
    }
}

/// Returns what counts as one address: a client with one IPv6 address has its whole /64.
#[must_use]
pub fn source(address: IpAddr) -> IpAddr {
    let IpAddr::V6(address) = address.to_canonical() else {
        return address.to_canonical();
    };
    let network = u128::from(address) >> 64 << 64;
    Ipv6Addr::from(network).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(number: u8) -> IpAddr {
        [10, 0, 0, number].into()
    }

    #[test]
    fn an_address_has_a_limited_number_of_permits() {
        let limiter = HandshakeLimiter::new(100, 3);
        let mut permits: Vec<_> = (0..3)
            .map(|_| limiter.acquire(address(1)).unwrap())
            .collect();
        assert_eq!(
            limiter.acquire(address(1)).unwrap_err(),
            LimitReached::Source
        );
        assert!(limiter.acquire(address(2)).is_ok());
        permits.pop();
        assert!(limiter.acquire(address(1)).is_ok());
        drop(permits);
        assert_eq!(limiter.lock().all, 0);
        assert!(limiter.lock().sources.is_empty());
    }

    /// Goal: where all permits are in use, the address with most loses one, unless the requesting
    /// address has as many.
    #[test]
    fn permits_of_the_largest_are_revoked() {
        let limiter = HandshakeLimiter::new(6, 4);
        let greedy: Vec<_> = (0..4)
            .map(|_| limiter.acquire(address(1)).unwrap())
            .collect();
        let modest: Vec<_> = (0..2)
            .map(|_| limiter.acquire(address(2)).unwrap())
            .collect();
        let first = limiter.acquire(address(3)).unwrap();
        assert!(greedy[0].revoked.is_cancelled(), "the oldest");
        let second = limiter.acquire(address(3)).unwrap();
        assert!(greedy[1].revoked.is_cancelled());
        assert_eq!(limiter.acquire(address(3)).unwrap_err(), LimitReached::All);
        assert!(!modest.iter().any(|m| m.revoked.is_cancelled()));
        assert_eq!(limiter.lock().all, 6);
        // A revoked permit is not counted twice.
        drop(greedy);
        assert_eq!(limiter.lock().all, 4);
        let more: Vec<_> = (4..6)
            .map(|n| limiter.acquire(address(n)).unwrap())
            .collect();
        // Handshakes from many addresses do not block others.
        let last = limiter.acquire(address(6)).unwrap();
        assert!(
            modest[0].revoked.is_cancelled(),
            "the oldest of the addresses with most"
        );
        drop((modest, first, second, more, last));
        assert_eq!(limiter.lock().all, 0);
    }

    #[test]
    fn a_network_of_ipv6_is_one_address() {
        let of = |text: &str| source(text.parse().unwrap());
        assert_eq!(of("2001:db8::1"), of("2001:db8::ffff:1"));
        assert_ne!(of("2001:db8::1"), of("2001:db8:0:1::1"));
        assert_eq!(of("::ffff:10.0.0.1"), of("10.0.0.1"));
    }
}
