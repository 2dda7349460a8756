//! The memory signals that agents report: received with heartbeats, served by the leader.
//!
//! Invariant: nothing of it is replicated, and no decision of placement rests on it.

use berth_domain::name::HostName;
use berth_domain::signals::Measured;
use berth_proto::convert::page::Page;
use berth_proto::convert::{ResourceName as _, field};
use berth_proto::host::v1;
use berth_proto::status::to_status;
use tonic::Status;

use super::context::Context;
use super::{list, refusal};

/// Reads what an agent measured. What makes no sense must not make its host count as dead.
pub(super) fn read(host: &HostName, wire: Option<v1::MemorySignals>) -> Option<Measured> {
    let measured = wire.map(Measured::try_from).transpose();
    measured.unwrap_or_else(|invalid| {
        tracing::warn!(%host, %invalid, "ignored invalid memory signals");
        None
    })
}

/// Tells what is known.
pub(super) async fn list(
    context: &Context,
    wire: v1::ListMemorySignalsRequest,
) -> Result<v1::ListMemorySignalsResponse, Status> {
    let one: Option<HostName> = field::optional_name(&wire.host, "host")?;
    let page = Page::new(wire.page_size, &wire.page_token)?;
    context.must_lead_unless_stale()?;
    let state = context.stale(|state| state.clone()).await?;
    let signals = |host: &HostName| context.liveness().signals(host, context.monotonic_ms());
    if let Some(host) = one {
        if state.host(&host).is_none() {
            return Err(to_status(&refusal::no_host(&host)));
        }
        let signals = signals(&host).as_ref().map(Into::into);
        return Ok(v1::ListMemorySignalsResponse {
            hosts: vec![write_signals(&host, signals)],
            next_page_token: String::new(),
        });
    }
    let (views, next_page_token) = list::page(
        state.hosts(),
        &page,
        |text| HostName::new(text).ok(),
        HostName::to_string,
        |_| true,
    )?;
    let names = views.iter().map(|view| &view.host.name);
    Ok(v1::ListMemorySignalsResponse {
        hosts: names
            .map(|host| write_signals(host, signals(host).as_ref().map(without_guests)))
            .collect(),
        next_page_token,
    })
}

fn write_signals(host: &HostName, signals: Option<v1::MemorySignals>) -> v1::HostMemorySignals {
    v1::HostMemorySignals {
        host: host.resource_name(),
        signals,
    }
}

/// Writes what was measured of all guests together, not of each.
fn without_guests(measured: &Measured) -> v1::MemorySignals {
    let mut wire = v1::MemorySignals::from(measured);
    if let Some(guests) = &mut wire.guests {
        guests.guests.clear();
    }
    wire
}
