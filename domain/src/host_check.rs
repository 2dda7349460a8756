//! What a check of hosts observes: findings, and those that follow from comparing hosts.
//!
//! Not here: how a host checks itself, which is the agent's; what a migration checks about its guest.
//!
//! Invariant: a finding that is not [`CheckOutcome::Ok`] says what to do.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::id::TimeMs;
use crate::migration_tls::{TlsReport, agree};
use crate::name::HostName;

/// The most hosts of one check: each connects to each other one.
pub const HOSTS_MAX: usize = 32;

/// How far the clock of a host may differ before that is a warning. What a conductor may do at an agent
/// is limited in time.
pub const CLOCK_DIFFERENCE_MS_MAX: u64 = 5_000;

/// What is checked. On the wire it is text, since later versions check more.
pub mod check {
    /// The agent answers.
    pub const AGENT: &str = "agent";
    /// The hypervisor answers.
    pub const HYPERVISOR: &str = "hypervisor";
    /// Guests are sent and received as the configuration requires.
    pub const ENCRYPTION: &str = "encryption";
    /// A directory that guests need.
    pub const DIRECTORY: &str = "directory";
    /// Huge pages are as free as the guests of the host leave them.
    pub const HUGE_PAGES: &str = "huge pages";
    /// The device that resets the host if its agent fails.
    pub const WATCHDOG: &str = "watchdog";
    /// The processor.
    pub const CPU: &str = "cpu";
    /// The clock is that of the conductor.
    pub const CLOCK: &str = "clock";
    /// The hypervisor of another host can be reached.
    pub const PEER: &str = "peer";
    /// Both hosts have the same driver.
    pub const DRIVER: &str = "driver";
    /// The hypervisor of the other host is not older.
    pub const VERSION: &str = "version";
}

/// How a check ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum CheckOutcome {
    /// Guests find what they need.
    Ok,
    /// Some guests, or some moves of guests, will be refused, or something is about to run out.
    Warning,
    /// Guests cannot be started, sent or received.
    Failed,
    /// It could not be checked.
    Unknown,
}

impl CheckOutcome {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Ok, Self::Warning, Self::Failed, Self::Unknown];

    /// Returns its name, as commands print it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "OK",
            Self::Warning => "WARNING",
            Self::Failed => "FAILED",
            Self::Unknown => "UNKNOWN",
        }
    }
}

impl fmt::Display for CheckOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The result of one check of a host, or of a pair of hosts.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct HostFinding {
    /// What was checked: see [`check`].
    pub check: String,
    /// The host. Of a pair: from which guests are sent.
    pub host: HostName,
    /// The other host of a pair.
    pub peer: Option<HostName>,
    /// How it ended.
    pub outcome: CheckOutcome,
    /// What was observed.
    pub message: String,
    /// What to do about it.
    pub hint: Option<String>,
}

impl HostFinding {
    /// Returns a finding with nothing to do.
    pub fn ok(check: &str, host: &HostName, message: impl Into<String>) -> Self {
        Self {
            check: check.to_owned(),
            host: host.clone(),
            peer: None,
            outcome: CheckOutcome::Ok,
            message: message.into(),
            hint: None,
        }
    }

    /// Returns a finding of this outcome.
    pub fn new(
        check: &str,
        host: &HostName,
        outcome: CheckOutcome,
        message: impl Into<String>,
        hint: impl Into<String>,
    ) -> Self {
        Self {
            outcome,
            hint: Some(hint.into()),
            ..Self::ok(check, host, message)
        }
    }

    /// Returns it as one of a pair.
    #[must_use]
    pub fn with(mut self, peer: &HostName) -> Self {
        self.peer = Some(peer.clone());
        self
    }
}

/// What an agent reports of its host so that it can be compared with others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostCheck {
    /// Its host.
    pub host: HostName,
    /// Its own findings, and those of the peers that it was given.
    pub findings: Vec<HostFinding>,
    /// The version of its hypervisor, as `7.2.0`. Empty: it did not answer.
    pub hypervisor_version: String,
    /// Whether it sends and receives guests encrypted.
    pub tls: TlsReport,
    /// Its wall clock.
    pub wall_clock: TimeMs,
}

/// What came of calling the agent of a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CheckReply {
    /// It reported.
    Report {
        /// The report.
        report: Box<HostCheck>,
        /// When the caller sent the call, and when it got the report, by its own clock.
        between: (TimeMs, TimeMs),
    },
    /// It refused.
    Refused {
        /// With what message.
        message: String,
    },
    /// It did not answer.
    Silent {
        /// Why, as far as it is known.
        message: String,
    },
    /// It does not know the call.
    TooOld,
}

/// A host that takes part in a check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckedHost {
    /// Its name.
    pub name: HostName,
    /// Its driver, as its agent registered it.
    pub driver: String,
    /// Where its agent is reached.
    pub agent_address: String,
    /// What came of calling its agent.
    pub reply: CheckReply,
    /// Whether it is checked itself, or only as a peer of others.
    pub is_checked: bool,
}

/// Returns the findings of all hosts, in the order of hosts and peers: those that the agents report, and
/// those that follow from comparing them.
#[must_use]
pub fn findings(hosts: &[CheckedHost]) -> Vec<HostFinding> {
    let mut all: Vec<HostFinding> = hosts.iter().flat_map(of_host).collect();
    for source in hosts {
        for destination in hosts {
            if source.name != destination.name && (source.is_checked || destination.is_checked) {
                all.extend(of_pair(source, destination));
            }
        }
    }
    // Stable: the order of the checks stays.
    all.sort_by(|a, b| (&a.host, &a.peer).cmp(&(&b.host, &b.peer)));
    all
}

/// Returns the findings of one host, and those that its agent reports of peers. Of a host that is only a
/// peer its own are left out, unless its agent did not report.
fn of_host(host: &CheckedHost) -> Vec<HostFinding> {
    let (name, address) = (&host.name, &host.agent_address);
    let agent = |outcome, message: String, hint: String| {
        vec![HostFinding::new(check::AGENT, name, outcome, message, hint)]
    };
    match &host.reply {
        CheckReply::Report { report, between } => {
            let own = host.is_checked;
            let reported = report.findings.iter();
            let mut all: Vec<_> = reported
                .filter(|finding| own || finding.peer.is_some())
                .cloned()
                .collect();
            if own {
                all.push(clock(report, *between));
            }
            all
        }
        CheckReply::Refused { message } => agent(
            CheckOutcome::Unknown,
            format!("the agent at {address} refuses the check: {message}"),
            "repeat the check a moment later".to_owned(),
        ),
        CheckReply::Silent { message } => agent(
            CheckOutcome::Failed,
            format!("the agent at {address} does not reply: {message}"),
            format!(
                "on host {name}, look at the agent (systemctl status berth-compute-agent) and its log; \
                 check the network and the firewall between the conductor and the host"
            ),
        ),
        CheckReply::TooOld => agent(
            CheckOutcome::Unknown,
            "the agent is too old to check its host".to_owned(),
            format!("upgrade the agent of host {name}"),
        ),
    }
}

/// Compares the clock of a host with that of the caller, who sent the call and got the report at these
/// times: the host read its clock in between.
fn clock(report: &HostCheck, (sent, received): (TimeMs, TimeMs)) -> HostFinding {
    let (host, there) = (&report.host, report.wall_clock.0);
    let (behind, ahead) = (
        sent.0.saturating_sub(there),
        there.saturating_sub(received.0),
    );
    let difference_ms = behind.max(ahead);
    if difference_ms <= CLOCK_DIFFERENCE_MS_MAX {
        return HostFinding::ok(check::CLOCK, host, "the clock is that of the conductor");
    }
    let direction = if behind > 0 { "behind" } else { "ahead of" };
    let seconds = difference_ms / 1_000;
    HostFinding::new(
        check::CLOCK,
        host,
        CheckOutcome::Warning,
        format!("the clock is {seconds} s {direction} that of the conductor"),
        format!(
            "synchronise the clocks, as with chrony, of host {host} and of the conductor: certificates, \
             and grants of conductors, are valid for a limited time"
        ),
    )
}

/// Compares a source with a destination.
fn of_pair(source: &CheckedHost, destination: &CheckedHost) -> Vec<HostFinding> {
    let (from, to) = (&source.name, &destination.name);
    if source.driver != destination.driver {
        let message = format!(
            "driver {} here, {} there: no guest can move",
            source.driver, destination.driver
        );
        let hint = "keep hosts with different drivers in groups of their own (berth aggregate)";
        return vec![
            HostFinding::new(check::DRIVER, from, CheckOutcome::Warning, message, hint).with(to),
        ];
    }
    let (CheckReply::Report { report: here, .. }, CheckReply::Report { report: there, .. }) =
        (&source.reply, &destination.reply)
    else {
        // That is a finding about the host that did not report.
        return Vec::new();
    };
    let mut all = Vec::new();
    // The URI names a destination that does not report; this one does.
    if let Err(refusal) = agree(&here.tls, Some(&there.tls), to.as_str()) {
        let hint = refusal.hint.unwrap_or_default();
        let failed = CheckOutcome::Failed;
        let finding = HostFinding::new(check::ENCRYPTION, from, failed, refusal.message, hint);
        all.push(finding.with(to));
    }
    let (newer, older) = (&here.hypervisor_version, &there.hypervisor_version);
    if is_newer(newer, older) {
        let message = format!(
            "hypervisor {newer} here, {older} there: guests that were started here may be refused there"
        );
        let hint = format!("upgrade the hypervisor of host {to}");
        let warning = CheckOutcome::Warning;
        all.push(HostFinding::new(check::VERSION, from, warning, message, hint).with(to));
    }
    all
}

/// Returns whether a version, as `7.2.0`, is newer than another. One that is not of that form is not
/// compared.
fn is_newer(version: &str, other: &str) -> bool {
    let parts = |text: &str| -> Option<Vec<u64>> {
        text.split('.').map(|part| part.parse().ok()).collect()
    };
    matches!((parts(version), parts(other)), (Some(a), Some(b)) if a > b)
}

#[cfg(test)]
mod tests;
