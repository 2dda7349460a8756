//! Turns: between equally good hosts the request's seed decides, so that a burst of requests on
//! fresh hosts does not fill them in the order of their names.

use berth_domain::name::HostName;
use uuid::Uuid;

/// The FNV-1a prime of 64 bits.
const PRIME: u64 = 0x0100_0000_01b3;
/// The FNV-1a offset basis of 64 bits.
const BASIS: u64 = 0xcbf2_9ce4_8422_2325;
/// An odd number whose bits are well spread: 2^64 divided by the golden ratio.
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;

/// Returns a number that stands for the host's name; the same on every machine.
#[must_use]
pub fn key(host: &HostName) -> u64 {
    hash(host.as_str().as_bytes())
}

/// Returns a number that stands for these bytes; the same on every machine.
#[must_use]
pub fn hash(bytes: &[u8]) -> u64 {
    let mix = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(PRIME);
    bytes.iter().fold(BASIS, mix)
}

/// Returns the request's seed in the form that [`weigh`] takes.
#[must_use]
pub fn seed(id: Uuid) -> u64 {
    let (high, low) = id.as_u64_pair();
    high.wrapping_mul(SPREAD) ^ low
}

/// Returns the turn of a host for a request.
#[must_use]
pub fn weigh(key: u64, seed: u64) -> u64 {
    let once = (key ^ seed).wrapping_mul(SPREAD);
    (once ^ (once >> 32)).wrapping_mul(SPREAD)
}
