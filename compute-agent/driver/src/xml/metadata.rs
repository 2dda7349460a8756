//! The element in Berth's namespace that libvirt keeps with the domain and moves with it.
//!
//! The claim and the epoch stand there for people; the record, which holds them too, is what an
//! agent reads when it starts.

use super::node::Node;
use super::read::{self, Error};
use crate::domain::DomainSpec;

/// The namespace.
pub const NAMESPACE: &str = "urn:berth:guest:1";

/// Returns the element.
pub(super) fn element(domain: &DomainSpec) -> Node {
    let record = serde_json::to_string(domain).expect("plain data");
    let guest = Node::new("berth:guest").with("xmlns:berth", NAMESPACE);
    let guest = match domain.claim {
        Some(claim) => guest.with("claim", claim),
        None => guest,
    };
    guest
        .with("epoch", domain.epoch)
        .child(Node::new("berth:record").text(record))
}

/// Reads the element as libvirt gives it back, with or without a prefix.
///
/// # Errors
///
/// When it is not ours, or damaged.
pub fn parse(element: &str) -> Result<DomainSpec, Error> {
    let record = read::text_of(element, "record")?.ok_or(Error::NoRecord)?;
    serde_json::from_str(&record).map_err(Error::Record)
}
