//! The report of a replay for people.

use std::collections::BTreeMap;

use berth_domain::refusal::Refusal;
use berth_replay::report::{Replayed, WhatIfReport};
use berth_replay::{CheckReport, Difference, Report, Usage};

use crate::{migration, output};

/// Prints a report.
pub(super) fn print(report: &Report) {
    print_check(&report.check);
    output::print("");
    let Some(what_if) = &report.what_if else {
        print_usage(&report.recorded);
        return;
    };
    print_decisions(what_if);
    output::print("");
    print_compared(&report.recorded, &what_if.usage);
    print_refused(what_if);
    print_moved(what_if);
    print_left_out(what_if);
    output::message(
        "Requests that were refused when they were made are not in backups: which of them would \
         succeed is not known.",
    );
}

fn counted<K: Ord>(counts: &BTreeMap<K, u64>, word: impl Fn(&K) -> String) -> String {
    let each = counts.iter().map(|(key, n)| format!("{} {n}", word(key)));
    each.collect::<Vec<_>>().join(", ")
}

fn print_check(check: &CheckReport) {
    let kinds = counted(&check.by_kind, |kind| kind.as_str().to_owned());
    let mut fields = vec![
        ("commands", check.commands.to_string()),
        ("decisions checked", with_detail(check.decisions, &kinds)),
        ("named by a user", check.named.to_string()),
    ];
    if check.rejected > 0 {
        fields.push(("refused when applied", check.rejected.to_string()));
    }
    let causes = counted(&check.by_cause, |cause| cause.as_str().to_owned());
    fields.push(("differences", with_detail(check.differences, &causes)));
    output::fields(&fields);
    if check.examples.is_empty() {
        return;
    }
    output::print("");
    let rows = check.examples.iter().map(difference).collect();
    let head = ["index", "time", "vm", "kind", "recorded", "now", "cause"];
    output::table(head, rows, "");
}

fn with_detail(count: u64, detail: &str) -> String {
    match detail.is_empty() {
        true => count.to_string(),
        false => format!("{count} ({detail})"),
    }
}

fn difference(difference: &Difference) -> [String; 7] {
    let now = match &difference.replayed {
        Replayed::OtherHost(host) => host.to_string(),
        Replayed::OtherClaim => "other CPUs, memory or devices there".to_owned(),
        Replayed::OtherCommand => "another request".to_owned(),
        Replayed::Refused(refusal) => refusal.reason.clone(),
        Replayed::NoCommand => "nothing".to_owned(),
    };
    [
        difference.index.to_string(),
        migration::time(difference.at),
        difference.vm.to_string(),
        difference.kind.as_str().to_owned(),
        difference.recorded.to_string(),
        now,
        difference.cause.as_str().to_owned(),
    ]
}

fn print_decisions(what_if: &WhatIfReport) {
    let mut fields = vec![
        ("decisions with changes", what_if.decisions.to_string()),
        ("same host", what_if.same_host.to_string()),
        ("other host", what_if.other_host.to_string()),
        ("refused now", what_if.refused_in_all().to_string()),
        (
            "moves",
            format!("{} of {}", what_if.moves, what_if.moves_recorded),
        ),
        (
            "VMs at the end",
            format!(
                "{} of {}, {} of them on another host",
                what_if.vms, what_if.vms_recorded, what_if.vms_elsewhere
            ),
        ),
    ];
    if !what_if.cordoned.is_empty() {
        let hosts = what_if.cordoned.iter().map(ToString::to_string);
        let hosts = hosts.collect::<Vec<_>>().join(", ");
        fields.push(("only cordoned", format!("{hosts}: VMs were there")));
    }
    output::fields(&fields);
}

fn percent(some: u64, all: u64) -> String {
    let tenths = (u128::from(some) * 1000 + u128::from(all) / 2)
        .checked_div(u128::from(all))
        .unwrap_or_default();
    format!("{some} ({}.{} %)", tenths / 10, tenths % 10)
}

/// Returns what is shown of the use of hosts: a name and a value each.
fn lines(usage: &Usage) -> Vec<(String, String)> {
    let mut lines = Vec::new();
    for (class, level) in &usage.classes {
        let at_end = percent(level.used, level.capacity);
        lines.push((format!("{class} at the end"), at_end));
        let peak = percent(level.peak, level.capacity);
        lines.push((format!("{class} at most"), peak));
    }
    let stranded = percent(usage.stranded_cpus, usage.dedicated_cpus);
    lines.push(("stranded dedicated CPUs".to_owned(), stranded));
    let full = format!("{}, {} vCPUs free", usage.full_hosts, usage.stranded_vcpus);
    lines.push(("hosts that take no VM".to_owned(), full));
    lines.push((
        "hosts without VMs".to_owned(),
        usage.empty_hosts.to_string(),
    ));
    lines.push(("hosts".to_owned(), usage.hosts.to_string()));
    lines
}

fn print_usage(usage: &Usage) {
    let rows = lines(usage).into_iter().map(|(name, value)| [name, value]);
    output::table(["use", "recorded"], rows.collect(), "");
}

fn print_compared(recorded: &Usage, changed: &Usage) {
    let changed: BTreeMap<String, String> = lines(changed).into_iter().collect();
    let rows = lines(recorded).into_iter().map(|(name, value)| {
        let now = changed.get(&name).cloned().unwrap_or_default();
        [name, value, now]
    });
    output::table(["use", "recorded", "with changes"], rows.collect(), "");
}

fn print_refused(what_if: &WhatIfReport) {
    if what_if.refused.is_empty() {
        return;
    }
    output::print("");
    let flavors = counted(&what_if.refused_flavors, ToString::to_string);
    for (reason, refused) in &what_if.refused {
        output::print(format!("refused now, {reason}: {}", refused.count));
    }
    if !flavors.is_empty() {
        output::print(format!("new VMs of them by flavor: {flavors}"));
    }
    output::print("");
    let refused = what_if.refused.values();
    let rows = refused
        .flat_map(|refused| &refused.examples)
        .map(|refused| {
            [
                refused.index.to_string(),
                migration::time(refused.at),
                refused.vm.to_string(),
                refused.kind.as_str().to_owned(),
                nearest(&refused.refusal),
            ]
        });
    let head = ["index", "time", "vm", "kind", "why"];
    output::table(head, rows.collect(), "");
}

/// Returns the reason of the host that came nearest, or the message.
fn nearest(refusal: &Refusal) -> String {
    match refusal.hosts.first() {
        Some(host) => format!("{}: {}", host.host, host.message),
        None => refusal.message.clone(),
    }
}

fn print_moved(what_if: &WhatIfReport) {
    if what_if.moved.is_empty() {
        return;
    }
    output::print("");
    let rows = what_if.moved.iter().map(|moved| {
        [
            moved.index.to_string(),
            moved.vm.to_string(),
            moved.kind.as_str().to_owned(),
            moved.recorded.to_string(),
            moved.host.to_string(),
        ]
    });
    let head = ["index", "vm", "kind", "recorded", "with changes"];
    output::table(head, rows.collect(), "");
}

fn print_left_out(what_if: &WhatIfReport) {
    let mut rows = Vec::new();
    if what_if.followers > 0 {
        rows.push([
            what_if.followers.to_string(),
            "commands about VMs and operations that are not there".to_owned(),
        ]);
    }
    for (reason, count) in &what_if.left_out {
        rows.push([
            count.to_string(),
            format!("moves and unshelvings, {reason}"),
        ]);
    }
    for (reason, known) in &what_if.not_followed {
        let first = format!("{reason}, first at {}: {}", known.index, known.message);
        rows.push([known.count.to_string(), first]);
    }
    if !rows.is_empty() {
        output::print("");
        output::table(["left out", "what"], rows, "");
    }
}
