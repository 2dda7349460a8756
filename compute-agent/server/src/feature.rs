//! What an agent refuses that behaves like one that is too old for it. Not here: which version has what.

use berth_agent_core::Facts;
use berth_domain::refusal::{Code, Refusal};
use berth_domain::version::{Feature, TOO_OLD};
use berth_proto::status::to_status;
use tonic::Status;

/// Refuses a call that needs a feature which agents of this one's version do not have.
///
/// # Errors
///
/// `UNIMPLEMENTED`, with what would have it.
pub(crate) fn gate(facts: &Facts, feature: Feature) -> Result<(), Status> {
    let (host, version) = (&facts.host, facts.version);
    feature.gate_host(version).map_err(|old| {
        let message = format!("the agent of host {host} is too old: {old}");
        to_status(&Refusal::new(Code::Unimplemented, TOO_OLD, message).with("host", host))
    })
}
