//! The measured memory of hosts, for people.
//!
//! Not the claimed memory, by which placement decides and which `mib free` of the list shows.

use berth_domain::name::HostName;
use berth_domain::signals::{GuestMemory, Measured, MemorySignals, Stall};
use berth_process::error_chain;
use berth_proto::host::v1::host_service_client::HostServiceClient;
use berth_proto::host::v1::{HostMemorySignals, ListMemorySignalsRequest};
use serde_json::json;

use crate::output::Columns;
use crate::session::{Session, resource, short};
use crate::{all_pages, output, read};

/// The text for a value that is unknown.
const UNKNOWN: &str = "unknown";

/// Returns the measured memory of a host.
///
/// # Errors
///
/// Why it is unknown, as from a scheduler that does not support it.
pub(super) async fn of(session: &Session, host: &HostName) -> anyhow::Result<Option<Measured>> {
    let request = ListMemorySignalsRequest {
        host: resource("hosts", host.as_str()),
        ..Default::default()
    };
    let response = read!(session, HostServiceClient, list_memory_signals, request)?;
    let signals = response.hosts.into_iter().find_map(|host| host.signals);
    Ok(signals.map(Measured::try_from).transpose()?)
}

/// The columns of the list of measured memory.
pub(crate) const COLUMNS: Columns<7, 0> = Columns {
    usual: [
        "host",
        "mib total",
        "mib free",
        "mib of guests",
        "swap free",
        "waits % 10 s",
        "measured",
    ],
    wide: [],
};

/// Lists the memory of all hosts.
///
/// # Errors
///
/// The scheduler's refusal.
pub(super) async fn list(session: &Session) -> anyhow::Result<()> {
    let request = ListMemorySignalsRequest::default();
    let all = all_pages!(
        session,
        HostServiceClient,
        list_memory_signals,
        request,
        hosts
    );
    let mut hosts = Vec::new();
    for HostMemorySignals { host, signals } in all {
        let measured = signals.map(Measured::try_from).transpose()?;
        hosts.push((short(&host).to_owned(), measured));
    }
    if session.for_programs() {
        let value = |(host, measured)| json!({"host": host, "memory_signals": measured});
        let values: Vec<_> = hosts.iter().map(|(host, m)| value((host, m))).collect();
        return output::value(&values);
    }
    let rows = hosts
        .into_iter()
        .map(|(host, measured)| (row(host, measured), []));
    output::list(&COLUMNS, rows.collect(), "no host has registered")
}

fn row(host: String, measured: Option<Measured>) -> [String; 7] {
    let signals = measured.as_ref().map(|measured| &*measured.signals);
    let memory = signals.and_then(|signals| signals.memory);
    let swap = signals.and_then(|signals| signals.swap);
    let swap = swap.map(|swap| format!("{} of {}", mib(swap.free_kib), mib(swap.total_kib)));
    let pressure = signals.and_then(|signals| signals.pressure);
    let waits = pressure.map(|pressure| percent(pressure.some.avg10_milli_percent));
    let guests = signals.and_then(MemorySignals::non_discardable_kib);
    [
        host,
        or_unknown(memory.map(|memory| mib(memory.total_kib))),
        or_unknown(memory.map(|memory| mib(memory.free_kib))),
        or_unknown(guests.map(mib)),
        or_unknown(swap),
        or_unknown(waits),
        or_unknown(measured.as_ref().map(age)),
    ]
}

/// Returns the memory of a host as fields.
pub(super) fn fields(measured: anyhow::Result<Option<Measured>>) -> Vec<(&'static str, String)> {
    let unknown = |why: &str| vec![("memory signals", format!("{UNKNOWN}: {why}"))];
    let measured = match measured {
        Ok(Some(measured)) => measured,
        Ok(None) => {
            return unknown(
                "the leading scheduler has not received them from the host's agent yet",
            );
        }
        Err(error) => return unknown(&error_chain(error.as_ref())),
    };
    let signals = &measured.signals;
    let memory = signals.memory.map(|memory| {
        let available = memory.available_kib.map_or_else(String::new, |available| {
            format!(", {} available without swapping", mib(available))
        });
        let (total, free, huge) = (
            mib(memory.total_kib),
            mib(memory.free_kib),
            mib(memory.huge_kib),
        );
        format!("{total} MiB, {free} free{available}, {huge} for huge pages")
    });
    let swap = signals.swap.map(|swap| match swap.total_kib {
        0 => "none".to_owned(),
        total => format!("{} MiB, {} free", mib(total), mib(swap.free_kib)),
    });
    let pressure = signals.pressure.map(|pressure| {
        let (some, full) = (stall(pressure.some), stall(pressure.full));
        format!("some {some}, all {full} of the last 10 s, minute")
    });
    let guests = signals.guests.as_ref();
    let mut fields = vec![
        ("memory measured", or_unknown(memory)),
        ("swap space", or_unknown(swap)),
        ("waits for memory", or_unknown(pressure)),
        (
            "guests' memory",
            or_unknown(guests.map(|g| of_guests(g.sum))),
        ),
    ];
    let each = guests.into_iter().flat_map(|guests| &guests.each);
    fields
        .extend(each.map(|(vm, memory)| ("memory of vm", format!("{vm}: {}", of_guests(*memory)))));
    fields.push(("measured", age(&measured)));
    fields
}

fn of_guests(memory: GuestMemory) -> String {
    let (resident, huge) = (mib(memory.resident_kib), mib(memory.huge_kib));
    let swapped = mib(memory.swapped_kib);
    format!("{resident} MiB in ordinary pages, {huge} in huge pages, {swapped} swapped out")
}

fn stall(stall: Stall) -> String {
    let (short, long) = (stall.avg10_milli_percent, stall.avg60_milli_percent);
    format!("{} %, {} %", percent(short), percent(long))
}

/// Returns thousandths of a percent as percent, with the precision of the kernel.
fn percent(milli_percent: u32) -> String {
    let hundredths = milli_percent / 10;
    format!("{}.{:02}", hundredths / 100, hundredths % 100)
}

fn mib(kib: u64) -> String {
    (kib / 1024).to_string()
}

fn age(measured: &Measured) -> String {
    format!("{} s ago", measured.age_ms / 1000)
}

fn or_unknown(value: Option<String>) -> String {
    value.unwrap_or_else(|| UNKNOWN.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    use std::collections::BTreeMap;
    use std::sync::Arc;

    use berth_domain::name::VmName;
    use berth_domain::signals::{GuestsMemory, NodeMemory, Pressure, Swap};

    fn lines(signals: MemorySignals) -> Vec<String> {
        let measured = Measured {
            age_ms: 2_999,
            signals: Arc::new(signals),
        };
        let fields = fields(Ok(Some(measured))).into_iter();
        fields
            .map(|(name, value)| format!("{name}: {value}"))
            .collect()
    }

    #[test]
    fn what_was_measured_is_shown_in_full() {
        let guest = GuestMemory {
            resident_kib: 3 << 10,
            huge_kib: 4 << 10,
            swapped_kib: 5 << 10,
        };
        let web = VmName::new("web1").unwrap();
        let signals = MemorySignals {
            memory: Some(NodeMemory {
                total_kib: 64 << 20,
                free_kib: 1 << 20,
                available_kib: Some(2 << 20),
                huge_kib: 0,
            }),
            swap: Some(Swap::default()),
            pressure: Some(Pressure {
                some: Stall::from_hundredths(125, 10_000),
                full: Stall::from_hundredths(0, 7),
            }),
            guests: Some(GuestsMemory::of(BTreeMap::from([(web, guest)]))),
        };
        let guest = "3 MiB in ordinary pages, 4 in huge pages, 5 swapped out";
        assert_eq!(
            lines(signals),
            [
                "memory measured: 65536 MiB, 1024 free, 2048 available without swapping, 0 for huge pages",
                "swap space: none",
                "waits for memory: some 1.25 %, 100.00 %, all 0.00 %, 0.07 % of the last 10 s, minute",
                &format!("guests' memory: {guest}"),
                &format!("memory of vm: web1: {guest}"),
                "measured: 2 s ago",
            ]
        );
    }

    #[test]
    fn what_is_absent_is_unknown_and_not_zero() {
        let lines = lines(MemorySignals::default());
        assert_eq!(
            lines,
            [
                "memory measured: unknown",
                "swap space: unknown",
                "waits for memory: unknown",
                "guests' memory: unknown",
                "measured: 2 s ago",
            ]
        );
        assert!(fields(Ok(None))[0].1.starts_with("unknown: "));
        let failed = fields(Err(anyhow::anyhow!("no such method")));
        assert_eq!(failed[0].1, "unknown: no such method");
    }
}
