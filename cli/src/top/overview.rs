//! The view of the cluster: its members, its capacity, what would fail, and what runs now.
//!
//! Not here: how members and verdicts are read ([`status`](super::status)).
//!
//! Invariant: what was not read, or could not be, is shown as such and never as good.

use std::collections::BTreeMap;
use std::time::Duration;

use ratatui::text::Line;

use super::model::Model;
use super::moment::{Now, describe};
use super::operations::{Transfers, step, took};
use super::paint::{Tone, line, span};
use super::table::{Column, cut, fit, head, row};
use super::usage::{Capacity, Usage};
use crate::draw::{bar, count};
use crate::records;

/// A member of the schedulers' group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Its number.
    pub id: u64,
    /// Where it is reached.
    pub address: String,
    /// Its part in the group; `leader` for the one that leads.
    pub role: String,
    /// How many entries of the log it lacks; unknown without a leader.
    pub lag: Option<u64>,
    /// Whether it answers the leader, and for how long it has not.
    pub active: String,
    /// Whether it does.
    pub is_active: bool,
    /// The version of its program.
    pub version: String,
}

/// What schedulers say of themselves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// The cluster.
    pub id: String,
    /// The leader, as a sentence.
    pub leader: String,
    /// Whether there is one.
    pub has_leader: bool,
    /// The failures of members that are tolerated, as a sentence.
    pub tolerates: String,
    /// The cluster version.
    pub version: String,
    /// The recovery that is not at its end.
    pub recovery: Option<String>,
    /// The members.
    pub members: Vec<Member>,
}

/// What the failure of each host would mean, and where memory is given away beyond its ratio.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verdicts {
    /// The revision that was verified.
    pub revision: u64,
    /// How many failures would be survived.
    pub proven: usize,
    /// Hosts whose failure would not be, each with the reason.
    pub refuted: Vec<(String, String)>,
    /// How many of which it is not known.
    pub unknown: usize,
    /// Hosts with memory beyond their ratio, each with how.
    pub beyond: Vec<(String, String)>,
}

/// A value that is read now and then, and how the last attempt went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reading<T> {
    /// The last value, and when it was read.
    pub value: Option<(T, Duration)>,
    /// Why the attempt after it failed.
    pub failure: Option<String>,
}

impl<T> Default for Reading<T> {
    fn default() -> Self {
        Self {
            value: None,
            failure: None,
        }
    }
}

impl<T> Reading<T> {
    /// Records how an attempt went.
    pub fn record(&mut self, result: Result<T, String>, at: Duration) {
        match result {
            Ok(value) => {
                self.value = Some((value, at));
                self.failure = None;
            }
            Err(failure) => self.failure = Some(failure),
        }
    }
}

/// What the view shows.
#[derive(Debug, Default)]
pub struct Overview {
    /// What schedulers say of themselves.
    pub status: Reading<Status>,
    /// What would fail.
    pub verdicts: Reading<Verdicts>,
    /// Whether the verdicts are being worked out.
    pub is_verifying: bool,
    /// At which revision they were worked out last, successfully or not, and when.
    pub last_verified: Option<(u64, Duration)>,
    /// Whether they are worked out by themselves: not in a large cluster.
    pub verifies: bool,
    /// The first line that is shown.
    pub scroll: usize,
}

impl Overview {
    /// Draws the cluster, from the first line on.
    #[must_use]
    pub fn draw(
        &self,
        model: &Model,
        transfers: &Transfers,
        now: Now,
        width: usize,
    ) -> Vec<Line<'static>> {
        let mut lines = Vec::new();
        self.members(&mut lines, now, width);
        counts(&mut lines, model);
        capacity(&mut lines, model, width);
        self.failures(&mut lines, now, width);
        running(&mut lines, model, transfers, now, width);
        lines
    }

    fn members(&self, lines: &mut Vec<Line<'static>>, now: Now, width: usize) {
        if let Some(failure) = &self.status.failure {
            let age = match &self.status.value {
                Some((_, at)) => format!(", as of {} ago", ago(now, *at)),
                None => String::new(),
            };
            let text = format!("schedulers: not read{age}: {failure}");
            lines.push(line(&cut(&text, width), Tone::Bad));
        }
        let Some((status, _)) = &self.status.value else {
            if self.status.failure.is_none() {
                lines.push(line("schedulers: being read", Tone::Faint));
            }
            return;
        };
        let leader = match status.has_leader {
            true => Tone::Good,
            false => Tone::Bad,
        };
        lines.push(Line::from(vec![
            span("leader ", Tone::Faint),
            span(&status.leader, leader),
            span("   cluster version ", Tone::Faint),
            span(&status.version, Tone::Plain),
        ]));
        lines.push(Line::from(vec![
            span("tolerates ", Tone::Faint),
            span(&status.tolerates, Tone::Plain),
        ]));
        if let Some(recovery) = &status.recovery {
            let text = format!("recovery: {recovery}");
            lines.push(line(&cut(&text, width), Tone::Bad));
        }
        let columns = fit(&MEMBERS, width);
        lines.push(head(&columns));
        for member in &status.members {
            let tone = match member.is_active {
                true => Tone::Plain,
                false => Tone::Bad,
            };
            let lag = member.lag.map_or("-".to_owned(), |lag| lag.to_string());
            let cells = vec![
                (member.id.to_string(), Tone::Plain),
                (member.address.clone(), Tone::Plain),
                (member.role.clone(), Tone::Plain),
                (lag, Tone::Plain),
                (member.active.clone(), tone),
                (member.version.clone(), Tone::Plain),
            ];
            lines.push(row(&columns, cells, false));
        }
    }

    fn failures(&self, lines: &mut Vec<Line<'static>>, now: Now, width: usize) {
        let mut push = |text: &str, tone| lines.push(line(&cut(text, width), tone));
        if let Some(failure) = &self.verdicts.failure {
            push(
                &format!("failures of hosts: not verified: {failure}"),
                Tone::Bad,
            );
        }
        let Some((verdicts, at)) = &self.verdicts.value else {
            let text = match (self.is_verifying, self.verifies) {
                (true, _) => "failures of hosts: being verified",
                (false, true) => "failures of hosts: not verified yet",
                (false, false) => "failures of hosts: press v to verify, the cluster is large",
            };
            if self.verdicts.failure.is_none() {
                push(text, Tone::Faint);
            }
            return;
        };
        let age = format!("{} ago, revision {}", ago(now, *at), verdicts.revision);
        let hosts = verdicts.proven + verdicts.refuted.len() + verdicts.unknown;
        if verdicts.refuted.is_empty() && verdicts.unknown == 0 {
            let text = match hosts {
                0 => format!("failures of hosts: there is no host ({age})"),
                _ => format!("failures of hosts: each of {hosts} would be survived ({age})"),
            };
            push(&text, Tone::Good);
        } else {
            let text = format!(
                "failures of hosts: {} survived, {} NOT, {} unknown ({age})",
                verdicts.proven,
                verdicts.refuted.len(),
                verdicts.unknown
            );
            push(&text, Tone::Bad);
        }
        for (host, why) in verdicts.refuted.iter().take(LISTED) {
            push(&format!("  {host}: {why}"), Tone::Plain);
        }
        if verdicts.beyond.is_empty() {
            push("memory: within its ratio on each host", Tone::Good);
        } else {
            let hosts = count(verdicts.beyond.len(), "host");
            push(&format!("memory: beyond its ratio on {hosts}"), Tone::Bad);
        }
        for (host, how) in verdicts.beyond.iter().take(LISTED) {
            push(&format!("  {host}: {how}"), Tone::Plain);
        }
    }
}

/// How many hosts of a kind are named.
const LISTED: usize = 5;

const MEMBERS: [Column; 6] = [
    Column::number("MEMBER", 6),
    Column::text("ADDRESS", 28),
    Column::text("ROLE", 8),
    Column::number("LAG", 7),
    Column::text("ACTIVE", 12),
    Column::text("VERSION", 7),
];

fn ago(now: Now, at: Duration) -> String {
    let ms = now.running.saturating_sub(at).as_millis();
    describe(u64::try_from(ms).unwrap_or(u64::MAX))
}

/// Draws how many hosts and VMs are in each state.
fn counts(lines: &mut Vec<Line<'static>>, model: &Model) {
    let mut hosts: BTreeMap<&str, usize> = BTreeMap::new();
    for entry in model.hosts() {
        *hosts.entry(records::host_state(&entry.host)).or_default() += 1;
    }
    let mut vms: BTreeMap<&str, usize> = BTreeMap::new();
    let mut troubled = 0;
    let mut all = 0;
    for (_, vm) in model.vms() {
        *vms.entry(vm.state.as_str()).or_default() += 1;
        troubled += usize::from(vm.trouble);
        all += 1;
    }
    let listed = |counts: &BTreeMap<&str, usize>| -> String {
        let each = counts.iter().map(|(state, n)| format!("{n} {state}"));
        match counts.is_empty() {
            true => "none".to_owned(),
            false => each.collect::<Vec<_>>().join(", "),
        }
    };
    let total = count(model.host_count(), "host");
    lines.push(line(&format!("{total}: {}", listed(&hosts)), Tone::Plain));
    lines.push(line(
        &format!("{}: {}", count(all, "VM"), listed(&vms)),
        Tone::Plain,
    ));
    if troubled > 0 {
        let text = format!("{} not as they should be", count(troubled, "VM"));
        lines.push(line(&text, Tone::Bad));
    }
    let unsettled = model.unsettled();
    if unsettled > 0 {
        let text = format!("UNSETTLED: {}", count(unsettled, "migration"));
        lines.push(line(&text, Tone::Bad));
    }
}

/// Draws what is taken of each resource class. What is installed counts, not what the policy's ratios
/// make of it.
fn capacity(lines: &mut Vec<Line<'static>>, model: &Model, width: usize) {
    let mut capacity = Capacity::default();
    let mut usage = Usage::default();
    for entry in model.hosts() {
        capacity.add(&entry.capacity);
        usage.add(&model.usage(&entry.host.name));
    }
    let classes = [
        (
            "PCPU",
            usage.dedicated,
            capacity.dedicated,
            "dedicated CPUs",
        ),
        (
            "VCPU",
            usage.shared,
            capacity.shared,
            "vCPUs on shared CPUs",
        ),
        ("MEMORY_MB", usage.memory_mib, capacity.memory_mib, "MiB"),
        ("huge pages", usage.pages_mib, capacity.pages_mib, "MiB"),
        ("DISK_GB", usage.disk_gib, capacity.disk_gib, "GiB"),
        ("pmem", usage.pmem, capacity.pmem, "namespaces"),
    ];
    let classes = classes.into_iter();
    for (class, used, all, unit) in classes.filter(|(_, used, all, _)| used + all > 0) {
        let percent = u128::from(used) * 100 / u128::from(all.max(1));
        let tone = match percent {
            0..=79 => Tone::Good,
            80..=100 => Tone::Warning,
            _ => Tone::Bad,
        };
        let text = format!(" {percent:>3} %  {used} of {all} {unit}");
        let spent = 12 + 10;
        lines.push(Line::from(vec![
            span(&format!("  {class:<10}"), Tone::Plain),
            span(&bar(used, 0, all), tone),
            span(&cut(&text, width.saturating_sub(spent)), Tone::Plain),
        ]));
    }
}

fn running(
    lines: &mut Vec<Line<'static>>,
    model: &Model,
    transfers: &Transfers,
    now: Now,
    width: usize,
) {
    let all = model.operations_by_age();
    let running: Vec<_> = all.into_iter().filter(|o| !o.is_done()).collect();
    let text = match running.len() {
        0 => "no operation is running".to_owned(),
        number => format!("{} running", count(number, "operation")),
    };
    lines.push(line(&text, Tone::Heading));
    for operation in running {
        let text = format!(
            "  {} {}, {}: {}",
            operation.kind.plan().title,
            operation.subject_name(),
            took(operation, now),
            step(operation, transfers)
        );
        lines.push(line(&cut(&text, width), Tone::Plain));
    }
}
