//! How many handshakes are under way, of each address and of all together.
//!
//! Invariant: nobody waits for a place behind somebody else. An address has only so many places, and
//! where there is none left at all, the address that has most gives up its oldest: so one that sends
//! half a hello again and again keeps out nobody but itself. Many that do so cut whoever takes longer
//! than they need to take all places.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio_util::sync::CancellationToken;

/// The handshakes that are under way.
#[derive(Debug)]
pub(crate) struct Room {
    all_max: usize,
    each_max: usize,
    taken: Mutex<Taken>,
}

#[derive(Debug, Default)]
struct Taken {
    made: u64,
    all: usize,
    /// Those of each source, the oldest first, with what has them give up.
    sources: HashMap<IpAddr, BTreeMap<u64, CancellationToken>>,
}

/// Why there is no place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Full {
    #[error("too many handshakes of its address are under way")]
    Source,
    #[error("too many handshakes are under way, and of no address more than of its own")]
    All,
}

/// A place, until it is dropped.
#[derive(Debug)]
pub(crate) struct Place {
    room: Arc<Room>,
    source: IpAddr,
    number: u64,
    given_up: CancellationToken,
}

impl Place {
    /// Waits until the place is given to somebody else.
    pub(crate) async fn given_up(&self) {
        self.given_up.cancelled().await;
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.room.lock().remove(self.source, self.number);
    }
}

impl Room {
    /// Returns room for so many handshakes, and so many of each address.
    pub(crate) fn new(all_max: usize, each_max: usize) -> Arc<Self> {
        Arc::new(Self {
            all_max,
            each_max,
            taken: Mutex::default(),
        })
    }

    /// Gives a place to somebody.
    pub(crate) fn enter(self: &Arc<Self>, address: IpAddr) -> Result<Place, Full> {
        let source = source(address);
        let mut taken = self.lock();
        let own = taken.sources.get(&source).map_or(0, BTreeMap::len);
        if own >= self.each_max {
            return Err(Full::Source);
        }
        if taken.all >= self.all_max && !taken.take_from_the_greediest(own) {
            return Err(Full::All);
        }
        taken.made += 1;
        taken.all += 1;
        let (number, given_up) = (taken.made, CancellationToken::new());
        let places = taken.sources.entry(source).or_default();
        places.insert(number, given_up.clone());
        Ok(Place {
            room: self.clone(),
            source,
            number,
            given_up,
        })
    }

    fn lock(&self) -> MutexGuard<'_, Taken> {
        // What is counted is changed together with what is there, and nothing in between can fail.
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Taken {
    fn remove(&mut self, source: IpAddr, number: u64) {
        let Some(places) = self.sources.get_mut(&source) else {
            return;
        };
        // It may have been given up already.
        if places.remove(&number).is_some() {
            self.all -= 1;
        }
        if places.is_empty() {
            self.sources.remove(&source);
        }
    }

    /// Has the address with most places give up its oldest, if it has more than whoever comes, who has so
    /// many.
    fn take_from_the_greediest(&mut self, own: usize) -> bool {
        let sources = self.sources.iter();
        // Of several the one that has been here for longest.
        let greediest = sources.max_by_key(|(_, places)| {
            let oldest = places.first_key_value().map(|(number, _)| *number);
            (places.len(), Reverse(oldest))
        });
        let Some((source, places)) = greediest.filter(|(_, places)| places.len() > own) else {
            return false;
        };
        let Some((number, given_up)) = places.first_key_value() else {
            return false;
        };
        given_up.cancel();
        let (source, number) = (*source, *number);
        self.remove(source, number);
        true
    }
}

/// Returns what counts as one address: who has one of IPv6 has all that share its first half.
fn source(address: IpAddr) -> IpAddr {
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
    fn an_address_has_only_so_many_places() {
        let room = Room::new(100, 3);
        let mut places: Vec<_> = (0..3).map(|_| room.enter(address(1)).unwrap()).collect();
        assert_eq!(room.enter(address(1)).unwrap_err(), Full::Source);
        assert!(room.enter(address(2)).is_ok());
        places.pop();
        assert!(room.enter(address(1)).is_ok());
        drop(places);
        assert_eq!(room.lock().all, 0);
        assert!(room.lock().sources.is_empty());
    }

    /// Goal: where all places are taken, whoever has most gives up, and nobody for one who has as many.
    #[test]
    fn the_greediest_give_up() {
        let room = Room::new(6, 4);
        let greedy: Vec<_> = (0..4).map(|_| room.enter(address(1)).unwrap()).collect();
        let modest: Vec<_> = (0..2).map(|_| room.enter(address(2)).unwrap()).collect();
        let first = room.enter(address(3)).unwrap();
        assert!(greedy[0].given_up.is_cancelled(), "the oldest");
        let second = room.enter(address(3)).unwrap();
        assert!(greedy[1].given_up.is_cancelled());
        assert_eq!(room.enter(address(3)).unwrap_err(), Full::All);
        assert!(!modest.iter().any(|m| m.given_up.is_cancelled()));
        assert_eq!(room.lock().all, 6);
        // What was given up is not counted twice.
        drop(greedy);
        assert_eq!(room.lock().all, 4);
        let more: Vec<_> = (4..6).map(|n| room.enter(address(n)).unwrap()).collect();
        // Nobody waits for those who come from many addresses.
        let last = room.enter(address(6)).unwrap();
        assert!(
            modest[0].given_up.is_cancelled(),
            "the oldest of those who have most"
        );
        drop((modest, first, second, more, last));
        assert_eq!(room.lock().all, 0);
    }

    #[test]
    fn a_network_of_ipv6_is_one_address() {
        let of = |text: &str| source(text.parse().unwrap());
        assert_eq!(of("2001:db8::1"), of("2001:db8::ffff:1"));
        assert_ne!(of("2001:db8::1"), of("2001:db8:0:1::1"));
        assert_eq!(of("::ffff:10.0.0.1"), of("10.0.0.1"));
    }
}
