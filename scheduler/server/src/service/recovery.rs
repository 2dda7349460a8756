//! What agents report while the cluster recovers.
//!
//! Invariant: a report that changes nothing is no entry of the log.

use berth_domain::host::Host;
use berth_domain::id::Incarnation;
use berth_domain::name::HostName;
use berth_domain::recovery::{GUESTS_MAX, ReportedGuest, era_of};
use berth_proto::convert::field;
use berth_proto::host::v1 as host;
use berth_state::command::Command;
use berth_state::{Reply, State};
use tonic::Status;

use super::context::Context;
use super::keyed::Caller;
use crate::grants;

/// Takes what guests an agent has.
pub(super) async fn report_guests(
    context: &Context,
    caller: Caller,
    wire: host::ReportGuestsRequest,
) -> Result<host::ReportGuestsResponse, Status> {
    let host: HostName = field::name(&wire.name, "name")?;
    let incarnation: Incarnation = field::uuid(&wire.incarnation, "incarnation")?;
    let guests: Vec<ReportedGuest> = field::each(wire.guests, "guests", GUESTS_MAX)?;
    context.must_lead()?;
    let state = context.stale(State::clone).await?;
    if state.is_reported(&host, incarnation, &guests) {
        return Ok(host::ReportGuestsResponse {});
    }
    let command = Command::ReportGuests {
        host,
        incarnation,
        basis: wire.basis_revision,
        guests,
    };
    let reported = context.command(caller, command).await?;
    if let Reply::Host(host) = reported
        && !host.unreported
    {
        let orphans = host.orphans.len();
        tracing::warn!(host = %host.name, orphans, "host settled after the recovery");
    }
    Ok(host::ReportGuestsResponse {})
}

/// Returns the least epoch that the agent of a host carries out, while its guests are to be reported;
/// otherwise 0. What agents report counts with the key of the new cluster only, which its leader makes
/// first.
pub(super) fn least_epoch(state: &State, host: &Host) -> u64 {
    match state.has_unreported_guests(host) && !grants::lacks_key(state) {
        true => era_of(state.header().epoch.0),
        false => 0,
    }
}
