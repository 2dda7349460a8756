//! The report of a replay for programs.

use berth_replay::report::{Elsewhere, RefusedDecision, Replayed, WhatIfReport};
use berth_replay::{CheckReport, Difference, Report, Usage};
use serde_json::{Map, Value, json};

/// Returns a report as one value; `what_if` is null where no change was requested.
pub(super) fn report(report: &Report) -> Value {
    json!({
        "check": check(&report.check),
        "recorded": usage(&report.recorded),
        "what_if": report.what_if.as_ref().map(what_if),
        "recorded_refusals": null,
    })
}

fn check(check: &CheckReport) -> Value {
    let kinds = check.by_kind.iter();
    let kinds = kinds.map(|(kind, count)| (kind.as_str().to_owned(), json!(count)));
    let causes = check.by_cause.iter();
    let causes = causes.map(|(cause, count)| (cause.as_str().to_owned(), json!(count)));
    json!({
        "commands": check.commands,
        "decisions": check.decisions,
        "by_kind": Map::from_iter(kinds),
        "named_hosts": check.named,
        "rejected": check.rejected,
        "differences": check.differences,
        "by_cause": Map::from_iter(causes),
        "examples": check.examples.iter().map(difference).collect::<Vec<_>>(),
    })
}

fn difference(difference: &Difference) -> Value {
    let (what, host, reason) = match &difference.replayed {
        Replayed::OtherHost(host) => ("other-host", Some(host), None),
        Replayed::OtherClaim => ("other-claim", None, None),
        Replayed::OtherCommand => ("other-command", None, None),
        Replayed::Refused(refusal) => ("refused", None, Some(&refusal.reason)),
        Replayed::NoCommand => ("no-command", None, None),
    };
    json!({
        "index": difference.index,
        "at_ms": difference.at.0,
        "vm": difference.vm,
        "kind": difference.kind.as_str(),
        "recorded_host": difference.recorded,
        "what": what,
        "host": host,
        "reason": reason,
        "cause": difference.cause.as_str(),
    })
}

fn usage(usage: &Usage) -> Value {
    let classes = usage.classes.iter().map(|(class, level)| {
        let level = json!({
            "used": level.used,
            "capacity": level.capacity,
            "peak": level.peak,
        });
        (class.as_str().to_owned(), level)
    });
    json!({
        "classes": Map::from_iter(classes),
        "dedicated_cpus": usage.dedicated_cpus,
        "stranded_cpus": usage.stranded_cpus,
        "full_hosts": usage.full_hosts,
        "stranded_vcpus": usage.stranded_vcpus,
        "empty_hosts": usage.empty_hosts,
        "hosts": usage.hosts,
    })
}

fn what_if(what_if: &WhatIfReport) -> Value {
    let refused = what_if.refused.iter().map(|(reason, refused)| {
        let examples = refused.examples.iter().map(refused_decision);
        let value = json!({
            "count": refused.count,
            "examples": examples.collect::<Vec<_>>(),
        });
        (reason.clone(), value)
    });
    let flavors = what_if.refused_flavors.iter();
    let flavors = flavors.map(|(flavor, count)| (flavor.to_string(), json!(count)));
    let not_followed = what_if.not_followed.iter().map(|(reason, known)| {
        let value = json!({
            "count": known.count,
            "index": known.index,
            "message": known.message,
        });
        (reason.clone(), value)
    });
    json!({
        "decisions": what_if.decisions,
        "same_host": what_if.same_host,
        "other_host": what_if.other_host,
        "other_host_examples": what_if.moved.iter().map(elsewhere).collect::<Vec<_>>(),
        "refused": Map::from_iter(refused),
        "refused_flavors": Map::from_iter(flavors),
        "moves_recorded": what_if.moves_recorded,
        "moves": what_if.moves,
        "left_out": what_if.left_out,
        "followers": what_if.followers,
        "not_followed": Map::from_iter(not_followed),
        "usage": usage(&what_if.usage),
        "vms_recorded": what_if.vms_recorded,
        "vms": what_if.vms,
        "vms_elsewhere": what_if.vms_elsewhere,
        "cordoned": what_if.cordoned,
    })
}

fn refused_decision(refused: &RefusedDecision) -> Value {
    json!({
        "index": refused.index,
        "at_ms": refused.at.0,
        "vm": refused.vm,
        "flavor": refused.flavor,
        "kind": refused.kind.as_str(),
        "reason": refused.refusal.reason,
        "message": refused.refusal.message,
        "causes": refused.refusal.causes,
        "hosts": refused.refusal.hosts,
        "hint": refused.refusal.hint,
    })
}

fn elsewhere(elsewhere: &Elsewhere) -> Value {
    json!({
        "index": elsewhere.index,
        "vm": elsewhere.vm,
        "kind": elsewhere.kind.as_str(),
        "recorded_host": elsewhere.recorded,
        "host": elsewhere.host,
    })
}
