//! What an agent finds when it checks its host, from what was read of the host.
//!
//! Not here: the reading, which blocks; what follows from comparing hosts
//! ([`berth_domain::host_check`]).
//!
//! Invariant: pure, and bounded in the number and the length of its findings.

use berth_domain::host_check::{CheckOutcome, HostFinding, check};
use berth_domain::migration_tls::{TlsPolicy, TlsReport};
use berth_domain::name::HostName;
use berth_domain::numa::{Assignment, HostUsage};
use berth_domain::refusal::cut;
use berth_driver_api::FreePages;

use super::agent::Facts;
use super::migration_checks::peer_hint;

/// The longest message and hint of a finding, in bytes; the wire bounds them too.
const TEXT_MAX: usize = 1024;

/// The most pools of huge pages that are reported as short.
const POOLS_MAX: usize = 64;

/// A directory with less free space is about to be full.
const FREE_BYTES_MIN: u64 = 1 << 30;

/// What the hypervisor reported.
#[derive(Clone, Debug)]
pub struct HypervisorFacts {
    /// What it is, for people.
    pub name: String,
    /// Its version, as `7.2.0`.
    pub version: String,
    /// What its guests have.
    pub assignments: Vec<Assignment>,
    /// The free pages of the host, or why they are unknown.
    pub free_pages: Result<FreePages, String>,
}

/// What was read of the machine without the hypervisor.
#[derive(Clone, Debug, Default)]
pub struct MachineFacts {
    /// Why live migrations cannot be encrypted; nothing where they can, or the setting is off.
    pub tls_fault: Option<String>,
    /// The directories that guests need.
    pub directories: Vec<DirectoryFacts>,
    /// The model of the processor, if it is known.
    pub cpu: Option<String>,
}

/// A directory that guests need.
#[derive(Clone, Debug)]
pub struct DirectoryFacts {
    /// The key of the configuration that names it.
    pub key: &'static str,
    /// Its path.
    pub path: String,
    /// Whether no guest can be started without writing to it.
    pub must_write: bool,
    /// What it is like, or why it is of no use.
    pub space: Result<Space, String>,
}

/// The watchdog that the configuration names.
#[derive(Clone, Debug)]
pub struct WatchdogFacts {
    /// Its path.
    pub device: String,
    /// After how long without being fed it resets the host.
    pub timeout_s: u64,
    /// What it does.
    pub standing: WatchdogStanding,
}

/// Whether a promise to stop the guests may be built on a watchdog.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WatchdogStanding {
    /// It does not run.
    Off,
    /// It resets the host unless it is fed, also if the agent dies.
    Armed,
    /// It failed.
    Broken,
}

/// What a directory is like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Space {
    /// Whether the agent can write to it.
    pub is_writable: bool,
    /// The free space of its file system.
    pub free_bytes: u64,
}

/// Returns the findings of a host about itself. `hypervisor` is why it did not answer otherwise;
/// `machine` is absent where reading it took too long, and `watchdog` where none is configured.
#[must_use]
pub fn own_findings(
    facts: &Facts,
    hypervisor: Result<&HypervisorFacts, &str>,
    machine: Option<&MachineFacts>,
    watchdog: Option<&WatchdogFacts>,
) -> Vec<HostFinding> {
    let mut all = vec![hypervisor_finding(facts, hypervisor)];
    all.extend(watchdog.map(|watchdog| watchdog_finding(&facts.host, watchdog)));
    match machine {
        Some(machine) => {
            all.push(encryption_finding(
                &facts.tls_report(machine.tls_fault.clone()),
            ));
            let directories = machine.directories.iter();
            all.extend(directories.map(|directory| directory_finding(facts, directory)));
            let cpu = machine.cpu.as_ref();
            all.extend(cpu.map(|model| HostFinding::ok(check::CPU, &facts.host, model)));
        }
        None => all.push(HostFinding::new(
            check::DIRECTORY,
            &facts.host,
            CheckOutcome::Unknown,
            "the file systems of the host did not answer in time",
            format!(
                "on host {}, look for a server of NFS that hangs (df, dmesg)",
                facts.host
            ),
        )),
    }
    if let Ok(hypervisor) = hypervisor {
        all.extend(page_findings(facts, hypervisor));
    }
    all.into_iter().map(bounded).collect()
}

/// Returns the finding of connecting to a peer; `None` where it did not end in time.
#[must_use]
pub fn peer_finding(
    host: &HostName,
    peer: &HostName,
    uri: &str,
    result: Option<Result<(), String>>,
) -> HostFinding {
    let finding = match result {
        Some(Ok(())) => HostFinding::ok(check::PEER, host, format!("reaches {uri}")),
        Some(Err(why)) => HostFinding::new(
            check::PEER,
            host,
            CheckOutcome::Failed,
            format!("cannot reach the hypervisor at {uri}: {why}"),
            peer_hint(host, uri),
        ),
        None => HostFinding::new(
            check::PEER,
            host,
            CheckOutcome::Unknown,
            format!("{uri} was not checked in time"),
            format!("check fewer hosts at a time: berth host check {host} --peer {peer}"),
        ),
    };
    bounded(finding.with(peer))
}

fn bounded(mut finding: HostFinding) -> HostFinding {
    cut(&mut finding.message, TEXT_MAX);
    if let Some(hint) = &mut finding.hint {
        cut(hint, TEXT_MAX);
    }
    finding
}

fn watchdog_finding(host: &HostName, watchdog: &WatchdogFacts) -> HostFinding {
    let WatchdogFacts {
        device,
        timeout_s,
        standing,
    } = watchdog;
    match standing {
        WatchdogStanding::Armed => HostFinding::ok(
            check::WATCHDOG,
            host,
            format!("{device} is armed: it resets the host {timeout_s} s after it was fed last"),
        ),
        WatchdogStanding::Off => HostFinding::ok(
            check::WATCHDOG,
            host,
            format!("{device} is not armed, as the agent has not promised to stop its guests"),
        ),
        WatchdogStanding::Broken => HostFinding::new(
            check::WATCHDOG,
            host,
            CheckOutcome::Failed,
            format!("{device} has failed: the agent makes no promise to stop its guests"),
            format!(
                "on host {host}, find the fault in the log of the agent, and restart the agent"
            ),
        ),
    }
}

fn hypervisor_finding(facts: &Facts, hypervisor: Result<&HypervisorFacts, &str>) -> HostFinding {
    let host = &facts.host;
    match hypervisor {
        Ok(hypervisor) => HostFinding::ok(check::HYPERVISOR, host, &hypervisor.name),
        Err(why) => HostFinding::new(
            check::HYPERVISOR,
            host,
            CheckOutcome::Failed,
            format!("the hypervisor does not answer: {why}"),
            format!(
                "on host {host}, look at the hypervisor (systemctl status libvirtd) and its log"
            ),
        ),
    }
}

fn encryption_finding(report: &TlsReport) -> HostFinding {
    let (host, policy) = (&report.host, report.policy);
    let outcome = match policy {
        TlsPolicy::Require => CheckOutcome::Failed,
        TlsPolicy::Prefer | TlsPolicy::Off => CheckOutcome::Warning,
    };
    match (&report.fault, policy) {
        (Some(fault), _) => HostFinding::new(
            check::ENCRYPTION,
            host,
            outcome,
            format!("live migrations cannot be encrypted: {fault}"),
            "see \"Live migrations\" in docs/security.md",
        ),
        (None, TlsPolicy::Require | TlsPolicy::Prefer) => {
            let message =
                format!("live migrations can be encrypted (migration.tls = \"{policy}\")");
            HostFinding::ok(check::ENCRYPTION, host, message)
        }
        (None, TlsPolicy::Off) => {
            let message = "live migrations are sent in plain text (migration.tls = \"off\")";
            HostFinding::ok(check::ENCRYPTION, host, message)
        }
    }
}

fn directory_finding(facts: &Facts, directory: &DirectoryFacts) -> HostFinding {
    let DirectoryFacts { key, path, .. } = directory;
    let finding = |outcome, message: String, hint: String| {
        HostFinding::new(check::DIRECTORY, &facts.host, outcome, message, hint)
    };
    let space = match &directory.space {
        Ok(space) => space,
        Err(why) => {
            return finding(
                CheckOutcome::Failed,
                format!("{key} = {path:?} cannot be used: {why}"),
                format!(
                    "make the directory on host {}, mount it, or change {key}",
                    facts.host
                ),
            );
        }
    };
    if !space.is_writable {
        let outcome = match directory.must_write {
            true => CheckOutcome::Failed,
            false => CheckOutcome::Warning,
        };
        return finding(
            outcome,
            format!("{key} = {path:?} cannot be written by the agent"),
            "look at its owner and mode, at a file system mounted read-only, and on NFS at \
             no_root_squash"
                .to_owned(),
        );
    }
    let free_mib = space.free_bytes >> 20;
    let message = format!("{key} = {path:?} has {free_mib} MiB free");
    if directory.must_write && space.free_bytes < FREE_BYTES_MIN {
        let hint = format!("free space on host {}, or move guests away", facts.host);
        return finding(CheckOutcome::Warning, message, hint);
    }
    let storage = &facts.storage_id;
    let message = match directory.must_write {
        true => format!("{message}, storage_id {storage}"),
        false => message,
    };
    HostFinding::ok(check::DIRECTORY, &facts.host, message)
}

/// Compares the free huge pages with what the host has, without those that are reserved for others and
/// those that its guests have.
fn page_findings(facts: &Facts, hypervisor: &HypervisorFacts) -> Vec<HostFinding> {
    let host = &facts.host;
    let free = match &hypervisor.free_pages {
        Ok(free) => free,
        Err(why) => {
            return vec![HostFinding::new(
                check::HUGE_PAGES,
                host,
                CheckOutcome::Unknown,
                format!("the free pages of the host cannot be read: {why}"),
                format!("look at /sys/devices/system/node of host {host}"),
            )];
        }
    };
    let usage = HostUsage::sum(&facts.topology, &hypervisor.assignments);
    let (mut short, mut pages) = (Vec::new(), 0);
    for (node, used) in facts.topology.cells().iter().zip(&usage.cells) {
        // The first pool is that of small pages, whose free count is no limit.
        for pool in node.pages.iter().skip(1) {
            let (id, size_kib) = (node.id, pool.size_kib);
            let Some(free) = free.get(&id).and_then(|pools| pools.get(&size_kib)) else {
                continue;
            };
            let guests = used.pages.get(&size_kib).copied().unwrap_or(0);
            let left = pool
                .total
                .saturating_sub(pool.reserved.saturating_add(guests));
            pages += pool.total;
            if *free < left {
                let total = pool.total;
                let message = format!(
                    "NUMA node {id} has {free} free pages of {size_kib} KiB; of {total} its guests \
                     have {guests}, and {left} are to be free"
                );
                let hint = format!(
                    "find the process that has them on host {host} (grep -l hugepages \
                     /proc/*/numa_maps), or set reserved_pages of the agent"
                );
                let warning = CheckOutcome::Warning;
                short.push(HostFinding::new(
                    check::HUGE_PAGES,
                    host,
                    warning,
                    message,
                    hint,
                ));
            }
        }
    }
    short.truncate(POOLS_MAX);
    if short.is_empty() && pages > 0 {
        let message = format!("as many of {pages} are free as the guests leave");
        short.push(HostFinding::ok(check::HUGE_PAGES, host, message));
    }
    short
}
