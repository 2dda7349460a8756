//! PCI functions of hosts, and what guests request of them.
//!
//! | module | what |
//! |---|---|
//! | [`PciAddress`] | where a function is on its host |
//! | [`PciDevice`] | what is there: never whether it is taken, see [`crate::numa::HostUsage`] |
//! | [`PciRequest`] | what a guest requests: how many of which, and how near to its cells |
//! | [`PciAlias`] | a name for such functions, that flavors use |

mod address;
mod alias;
mod device;
mod request;

pub use address::PciAddress;
pub use alias::{MATCHES_MAX, PciAlias, PciAliases, TAG_LENGTH_MAX, TAGS_MAX};
pub use device::{PciDevice, PciId, PciKind};
pub use request::{PciMatch, PciNumaPolicy, PciRequest};

/// The tag that states whether a guest with the function can be moved while it runs: `yes` or `no`.
/// A function without it cannot.
pub const LIVE_MIGRATABLE: &str = "live_migratable";
/// The most PCI requests of a guest.
pub const PCI_REQUESTS_MAX: usize = 64;

/// Why a text is not a PCI address or number.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not {what}")]
pub struct ParseError {
    /// The text, cut where it is long.
    pub text: String,
    /// What was expected.
    pub what: &'static str,
}

impl ParseError {
    fn new(text: &str, what: &'static str) -> Self {
        Self {
            text: text.chars().take(64).collect(),
            what,
        }
    }
}

/// Reads a number of this many hexadecimal digits, at least and at most.
fn hexadecimal(text: &str, digits: std::ops::RangeInclusive<usize>) -> Option<u32> {
    let is_good = digits.contains(&text.len()) && text.bytes().all(|b| b.is_ascii_hexdigit());
    is_good
        .then(|| u32::from_str_radix(text, 16).ok())
        .flatten()
}
