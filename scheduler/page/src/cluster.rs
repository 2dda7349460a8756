//! The cluster as a whole: members, what would be survived, what is running, what is wrong, and how much
//! there is.

use berth_proto::cluster::v1::{GetClusterStatusResponse, Member, Service, member};
use berth_proto::operation::v1::Operation;
use berth_proto::policy::v1::HostMemory;
use berth_proto::scheduler::v1::Migration;
use maud::{Markup, html};

use crate::frame::{Frame, Section, View};
use crate::operations::{migrations, operations};
use crate::table::{Column, facts, meter, number, table};
use crate::text::{Shown, Wrapped, bytes, count, duration, grouped, host_path, joined, mib, short};
use crate::words::{self, Tone, badge};

/// What the view shows.
#[derive(Clone, Debug, Default)]
pub struct Cluster {
    /// What the member that serves the page states.
    pub status: GetClusterStatusResponse,
    /// The conductors.
    pub services: Vec<Service>,
    /// Running operations, the oldest first.
    pub operations: Vec<Operation>,
    /// Whether more are running than are shown.
    pub has_more_operations: bool,
    /// Migrations of which it is not known where the guest is, and others that have not ended.
    pub migrations: Vec<Migration>,
    /// How much there is.
    pub counts: Counts,
    /// What the failure of each host would mean; the leader alone knows.
    pub failover: Option<Failover>,
}

/// How much there is of everything.
#[derive(Clone, Debug, Default)]
pub struct Counts {
    /// Hosts by state.
    pub hosts: Vec<(&'static str, u64)>,
    /// VMs by state.
    pub vms: Vec<(&'static str, u64)>,
    /// Migrations by state.
    pub migrations: Vec<(&'static str, u64)>,
    /// VMs with an error, or that do not run although they should.
    pub troubled_vms: u64,
    /// Guests of hosts for which there is no claim.
    pub unknown_guests: u64,
    /// Namespaces of which the latest erasure failed.
    pub failed_erasures: u64,
    /// What is taken of each resource class.
    pub amounts: Vec<Amount>,
    /// Hosts beyond their rule of memory, the first of them.
    pub violations: Vec<(String, HostMemory)>,
    /// How many hosts are.
    pub violation_count: u64,
}

/// What is taken of a resource class.
#[derive(Clone, Debug, Default)]
pub struct Amount {
    /// The class.
    pub class: String,
    /// What is taken.
    pub used: u64,
    /// What there is under the allocation ratios.
    pub capacity: u64,
}

/// How many hosts may fail.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Failover {
    /// Hosts of which every guest could be started elsewhere.
    pub survived: u64,
    /// Hosts of which not every guest could be.
    pub not_survived: u64,
    /// Hosts of which it is not known.
    pub unknown: u64,
    /// The time since it was verified.
    pub age_ms: u64,
}

/// Returns the view.
#[must_use]
pub fn render(frame: &Frame, cluster: &Cluster) -> String {
    let view = View {
        section: Section::Cluster,
        title: "Cluster".to_owned(),
        fixed: html! {},
        live: html! {
            (recovery(&cluster.status))
            (failover(cluster.failover))
            (troubles(&cluster.counts))
            (running(cluster, frame.may_change))
            (members(&cluster.status))
            (conductors(&cluster.services))
            (counts(&cluster.counts))
        },
    };
    frame.document(&view)
}

fn recovery(status: &GetClusterStatusResponse) -> Markup {
    let recovery = status.recovery.as_ref();
    let running = recovery.filter(|recovery| recovery.end_time.is_none());
    html! {
        @if let Some(recovery) = running {
            p class="notice bad" {
                strong { "RECOVERING. " }
                "The state is older than the hosts are (recovery " (recovery.number)
                "): nothing is started, moved or deleted until it is compared with all of them."
            }
        }
    }
}

fn failover(failover: Option<Failover>) -> Markup {
    html! {
        section aria-labelledby="failover" {
            h2 id="failover" { "Failure of a host (N+1)" }
            @match failover {
                None => p {
                    "Not known here yet: the leader verifies it, one host after the other. "
                    a href="/failover" { "Verify now" }
                },
                Some(verdict) => (verdicts(verdict)),
            }
        }
    }
}

fn verdicts(verdict: Failover) -> Markup {
    let hosts = verdict.survived + verdict.not_survived + verdict.unknown;
    html! {
        @if hosts == 0 {
            p { "There is no host." }
        } @else if verdict.survived == hosts {
            p { (badge(("SURVIVED", Tone::Good))) " The failure of each of " (count(hosts, "host"))
                " would be survived: every guest has a place elsewhere." }
        } @else {
            p { (badge(("NOT SURVIVED", Tone::Bad))) " The failure of " (count(verdict.not_survived, "host"))
                " would not be survived, of " (grouped(verdict.unknown)) " it is not known; "
                (grouped(verdict.survived)) " of " (grouped(hosts)) " may fail. "
                a href="/failover" { "Which, and why" } }
        }
        p class="aside" { "Verified " (duration(verdict.age_ms)) " before this view was made." }
    }
}

fn troubles(counts: &Counts) -> Markup {
    let unsettled = counts
        .migrations
        .iter()
        .find(|(state, _)| *state == "unsettled");
    let unsettled = unsettled.map_or(0, |(_, count)| *count);
    let others = [
        (
            unsettled,
            "migration",
            "UNSETTLED: it is not known where the guest is",
        ),
        (
            counts.troubled_vms,
            "VM",
            "with an error, or not running although it should be",
        ),
        (counts.unknown_guests, "guest", "without a claim, on hosts"),
        (
            counts.failed_erasures,
            "namespace",
            "of which the latest erasure failed",
        ),
    ];
    let is_quiet = counts.violation_count == 0 && others.iter().all(|(number, ..)| *number == 0);
    html! {
        section aria-labelledby="violations" {
            h2 id="violations" { "Violations" }
            @if is_quiet {
                p { (badge(("NONE", Tone::Good))) " No host is beyond its rule of memory, and no guest is in trouble." }
            } @else {
                ul {
                    @for (number, noun, what) in others {
                        @if number > 0 { li { strong { (count(number, noun)) } " " (what) "." } }
                    }
                    @if counts.violation_count > 0 {
                        li { strong { (count(counts.violation_count, "host")) } " beyond the rule of memory." }
                    }
                }
                @if !counts.violations.is_empty() { (violations(counts)) }
            }
        }
    }
}

fn violations(counts: &Counts) -> Markup {
    let row = |(host, memory): &(String, HostMemory)| {
        html! {
            tr {
                th scope="row" { a href=(host_path(host)) { (Shown(short(host))) } }
                td { @if let Some(violation) = words::violation(memory.violation()) { (badge(violation)) } }
                (number(mib(memory.used_mib)))
                (number(mib(memory.available_mib)))
                td class="wide" { (Wrapped(&memory.explanation)) }
            }
        }
    };
    let rows: Vec<Markup> = counts.violations.iter().map(row).collect();
    let columns = [
        Column::Text("Host"),
        Column::Text("Rule"),
        Column::Number("Taken"),
        Column::Number("Available"),
        Column::Text("Why"),
    ];
    table("Hosts beyond their rule of memory", &columns, &rows)
}

fn running(cluster: &Cluster, may_change: bool) -> Markup {
    let open: Vec<&Migration> = cluster.migrations.iter().collect();
    html! {
        section aria-labelledby="running" {
            h2 id="running" { "Running operations" }
            @if cluster.operations.is_empty() {
                p { "No operation is running." }
            } @else {
                (operations("Running operations", &cluster.operations, may_change))
            }
            @if cluster.has_more_operations { p { "More are running than are shown." } }
            @if !cluster.migrations.is_empty() {
                (migrations("Migrations that have not ended", &open, may_change))
            }
        }
    }
}

fn members(status: &GetClusterStatusResponse) -> Markup {
    let knows = status.leader_id == status.member_id && status.leader_id != 0;
    let rows: Vec<Markup> = status
        .members
        .iter()
        .map(|m| member_row(status, m, knows))
        .collect();
    let columns = [
        Column::Number("Member"),
        Column::Text("Address"),
        Column::Text("Role"),
        Column::Number("Lag in entries"),
        Column::Text("Contact"),
        Column::Text("Version"),
    ];
    let version = |number: u32| html! { (number) };
    html! {
        section aria-labelledby="members" {
            h2 id="members" { "Members" }
            @match status.failures_tolerated {
                Some(0) => p { (badge(("NO FAILURE TOLERATED", Tone::Bad)))
                    " If one more voter fails, nothing can be changed any more." },
                Some(tolerated) => p { (count(tolerated.into(), "voter")) " may fail." },
                None => p { "How many voters may fail, their lag and their versions are known to the leader"
                    @if !status.leader_address.is_empty() { ", " code { (Shown(&status.leader_address)) } }
                    "." },
            }
            (table("Members of the group of schedulers", &columns, &rows))
            (facts(&[
                ("Term", html! { (status.term) }),
                ("Committed", html! { (status.commit_index) }),
                ("Applied here", html! { (status.applied_index) }),
                ("Cluster version", version(status.cluster_version)),
                ("Program", html! { (Shown(&status.program_version)) }),
                ("Log on disk since", html! { (status.first_index) }),
            ]))
        }
    }
}

fn member_row(status: &GetClusterStatusResponse, member: &Member, knows: bool) -> Markup {
    let role = match member.role() {
        _ if member.leader => ("LEADER", Tone::Good),
        member::Role::Voter => ("VOTER", Tone::Plain),
        member::Role::Learner => ("LEARNER", Tone::Note),
        member::Role::Unspecified => ("UNKNOWN", Tone::Note),
    };
    let silent = member.silent_time.as_ref();
    let silent_ms = silent.map(|time| {
        u64::try_from(time.seconds).unwrap_or(0) * 1000
            + u64::try_from(time.nanos).unwrap_or(0) / 1_000_000
    });
    html! {
        tr {
            th scope="row" class="number" { (member.id) @if member.id == status.member_id { " (this one)" } }
            td { code { (Shown(&member.address)) } }
            td { (badge(role)) }
            td class="number" {
                @if knows { (grouped(status.commit_index.saturating_sub(member.matched_index))) } @else { "-" }
            }
            td {
                @if !knows { "-" }
                @else if member.recently_active { (badge(("ANSWERS", Tone::Good))) }
                @else { (badge(("SILENT", Tone::Bad))) }
                @if let Some(ms) = silent_ms { " " (duration(ms)) " ago" }
            }
            td { @if member.service_version == 0 { "-" } @else { (member.service_version) } }
        }
    }
}

fn conductors(services: &[Service]) -> Markup {
    let row = |service: &Service| {
        html! {
            tr {
                th scope="row" { (Shown(short(&service.name))) }
                td { code { (Shown(&service.address)) } }
                td { (service.service_version) }
            }
        }
    };
    let rows: Vec<Markup> = services.iter().map(row).collect();
    let columns = [
        Column::Text("Conductor"),
        Column::Text("Address"),
        Column::Text("Version"),
    ];
    html! {
        section aria-labelledby="conductors" {
            h2 id="conductors" { "Conductors" }
            @if rows.is_empty() {
                p { "No conductor is registered: nothing can be booted or moved." }
            } @else {
                (table("Registered conductors", &columns, &rows))
            }
        }
    }
}

fn counts(counts: &Counts) -> Markup {
    let listed = |states: &[(&str, u64)]| {
        let there = states.iter().filter(|(_, number)| *number > 0);
        match joined(there.map(|(state, number)| format!("{} {state}", grouped(*number)))) {
            none if none.is_empty() => "none".to_owned(),
            listed => listed,
        }
    };
    let sum = |states: &[(&str, u64)]| grouped(states.iter().map(|(_, number)| number).sum());
    let amounts = counts
        .amounts
        .iter()
        .filter(|amount| amount.used + amount.capacity > 0);
    let rows: Vec<Markup> = amounts.map(amount_row).collect();
    let columns = [
        Column::Text("Resource class"),
        Column::Text("Taken"),
        Column::Number("Of"),
    ];
    html! {
        section aria-labelledby="counts" {
            h2 id="counts" { "How much there is" }
            (facts(&[
                ("Hosts", html! { a href="/hosts" { (sum(&counts.hosts)) } ": " (listed(&counts.hosts)) }),
                ("VMs", html! { a href="/vms" { (sum(&counts.vms)) } ": " (listed(&counts.vms)) }),
                ("Migrations", html! { (listed(&counts.migrations)) }),
            ]))
            (table("What is taken, under the allocation ratios", &columns, &rows))
        }
    }
}

fn amount_row(amount: &Amount) -> Markup {
    let shown = |number: u64| match amount.class.as_str() {
        "MEMORY_MB" => mib(number),
        "DISK_GB" => bytes(number.saturating_mul(1 << 30)),
        _ => grouped(number),
    };
    html! {
        tr {
            th scope="row" { (Shown(&amount.class)) }
            td { (meter(&amount.class, amount.used, amount.capacity, &shown(amount.used))) }
            (number(shown(amount.capacity)))
        }
    }
}
