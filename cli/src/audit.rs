//! `berth audit`: which principal requested what, when, and what was decided.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use berth_domain::audit::{Chosen, Entry, Outcome, Refused, RequestSummary};
use berth_domain::id::TimeMs;
use berth_domain::refusal::Refusal;
use berth_proto::audit::v1::audit_service_client::AuditServiceClient;
use berth_proto::audit::v1::{
    AuditFilter, GetAuditEntryRequest, ListAuditEntriesRequest, ListRefusalsRequest,
};
use prost_types::Timestamp;
use serde_json::json;

use crate::arguments::{Audit as Verb, AuditList};
use crate::output::Columns;
use crate::session::{Session, read_all, resource};
use crate::usage::Usage;
use crate::{migration, output, read};

/// The columns of the list.
pub(crate) const COLUMNS: Columns<6, 1> = Columns {
    usual: ["entry", "time", "principal", "method", "about", "decided"],
    wide: ["request id"],
};

/// The largest page that a scheduler returns.
const PAGE_MAX: i32 = 1000;

/// Runs the command.
///
/// # Errors
///
/// The scheduler's refusal.
pub async fn run(session: &Session, verb: Verb) -> anyhow::Result<()> {
    match verb {
        Verb::List(args) => list(session, args).await,
        Verb::Show { entry } => show(session, &entry).await,
    }
}

/// A line of the list: an entry of the audit, or what was refused outside it.
enum Line {
    Entry(Entry),
    Refused(Refused),
}

impl Line {
    fn at(&self) -> TimeMs {
        match self {
            Self::Entry(entry) => entry.at,
            Self::Refused(refused) => refused.last_at,
        }
    }

    fn name(&self) -> String {
        match self {
            Self::Entry(entry) => entry.revision.to_string(),
            Self::Refused(refused) => format!("r{}", refused.number),
        }
    }

    fn principal(&self) -> &str {
        match self {
            Self::Entry(entry) => &entry.principal,
            Self::Refused(refused) => &refused.principal,
        }
    }

    fn request(&self) -> &RequestSummary {
        match self {
            Self::Entry(entry) => &entry.request,
            Self::Refused(refused) => &refused.request,
        }
    }

    fn decided(&self) -> String {
        match self {
            Self::Entry(entry) => match (&entry.outcome, &entry.request.choice) {
                (Outcome::Refused(refusal), _) => refusal.reason.clone(),
                (Outcome::Accepted { .. }, Some(choice)) => format!("on {}", choice.host),
                (Outcome::Accepted { .. }, None) => "done".to_owned(),
            },
            Self::Refused(refused) if refused.count > 1 => {
                format!("{} x {}", refused.count, refused.refusal.reason)
            }
            Self::Refused(refused) => refused.refusal.reason.clone(),
        }
    }

    /// Returns its record, with what `berth audit show` takes for it.
    fn json(&self) -> serde_json::Value {
        let mut value = match self {
            Self::Entry(entry) => json!(entry),
            Self::Refused(refused) => json!(refused),
        };
        value["entry"] = self.name().into();
        value
    }
}

async fn list(session: &Session, args: AuditList) -> anyhow::Result<()> {
    let name = |collection: &str, name: Option<String>| {
        name.map(|name| resource(collection, &name))
            .unwrap_or_default()
    };
    let filter = AuditFilter {
        vm: name("vms", args.vm),
        host: name("hosts", args.host),
        principal: args.principal.unwrap_or_default(),
        method: args.method.unwrap_or_default(),
        since: args.since.map(|text| since(&text)).transpose()?,
    };
    let page_size = i32::try_from(args.limit).unwrap_or(PAGE_MAX);
    let request = ListAuditEntriesRequest {
        page_size,
        filter: Some(filter.clone()),
        ..ListAuditEntriesRequest::default()
    };
    let response = read!(session, AuditServiceClient, list_audit_entries, request)?;
    let entries: Vec<Entry> = read_all(response.audit_entries)?;
    let refused = refused(session, page_size, filter).await?;
    let entries = entries.into_iter().map(Line::Entry);
    let mut lines: Vec<Line> = entries
        .chain(refused.into_iter().map(Line::Refused))
        .collect();
    lines.sort_by_key(|line| std::cmp::Reverse(line.at()));
    lines.truncate(usize::try_from(args.limit).unwrap_or(usize::MAX));
    if session.for_programs() {
        let lines: Vec<_> = lines.iter().map(Line::json).collect();
        return output::value(&lines);
    }
    let rows = lines.iter().map(|line| {
        let usual = [
            line.name(),
            migration::time(line.at()),
            line.principal().to_owned(),
            line.request().method.clone(),
            about(line.request()),
            line.decided(),
        ];
        (usual, [output::or_dash(line.request().request_id)])
    });
    output::list(&COLUMNS, rows.collect(), "there is no entry")
}

/// Returns what was refused; nothing of a state, which has the audit log only.
async fn refused(
    session: &Session,
    page_size: i32,
    filter: AuditFilter,
) -> anyhow::Result<Vec<Refused>> {
    if session.reads_state() {
        return Ok(Vec::new());
    }
    let request = ListRefusalsRequest {
        page_size,
        filter: Some(filter),
        ..ListRefusalsRequest::default()
    };
    let response = read!(session, AuditServiceClient, list_refusals, request)?;
    Ok(read_all(response.refusals)?)
}

/// Reads a moment, or how long ago it was.
pub(crate) fn since(text: &str) -> anyhow::Result<Timestamp> {
    if let Ok(at) = text.parse::<Timestamp>() {
        return Ok(at);
    }
    let wrong = || {
        let forms = "neither a moment as 2026-01-31T12:00:00Z nor a time as 90s, 15m, 2h, 7d";
        Usage(format!("--since {text} is {forms}"))
    };
    let (unit, factor) = [("s", 1), ("m", 60), ("h", 3_600), ("d", 86_400)]
        .into_iter()
        .find(|(unit, _)| text.ends_with(unit))
        .ok_or_else(wrong)?;
    let number = text.strip_suffix(unit).unwrap_or_default();
    let number: u64 = number.parse().map_err(|_| wrong())?;
    let ago = number.checked_mul(factor).map(Duration::from_secs);
    let now = SystemTime::now().duration_since(UNIX_EPOCH)?;
    let at = now.saturating_sub(ago.ok_or_else(wrong)?);
    Ok(Timestamp {
        seconds: i64::try_from(at.as_secs())?,
        nanos: 0,
    })
}

/// Returns an entry in one line.
pub(crate) fn line(entry: &Entry) -> String {
    let line = Line::Entry(entry.clone());
    let (principal, method) = (&entry.principal, &entry.request.method);
    format!(
        "{principal} {method} {}: {}",
        about(&entry.request),
        line.decided()
    )
}

/// Returns the subject of a request, in a few words.
pub(crate) fn about(request: &RequestSummary) -> String {
    let vm = request.vm.iter().map(|vm| format!("vm={vm}"));
    let host = request.host.iter().map(|host| format!("host={host}"));
    let more = (!request.summary.is_empty()).then(|| request.summary.clone());
    let words: Vec<_> = vm.chain(host).chain(more).collect();
    words.join(" ")
}

async fn show(session: &Session, name: &str) -> anyhow::Result<()> {
    if let Some(number) = name.strip_prefix('r') {
        return show_refused(session, number).await;
    }
    let request = GetAuditEntryRequest {
        name: resource("auditEntries", name),
        ..GetAuditEntryRequest::default()
    };
    let response = read!(session, AuditServiceClient, get_audit_entry, request)?;
    let entry: Entry = response.audit_entry.unwrap_or_default().try_into()?;
    if session.for_programs() {
        return output::value(&Line::Entry(entry).json());
    }
    let mut fields = vec![
        ("entry", entry.revision.to_string()),
        ("time", migration::time(entry.at)),
        ("principal", entry.principal.clone()),
    ];
    fields.extend(request_fields(&entry.request));
    match &entry.outcome {
        Outcome::Accepted { operation } => {
            fields.push(("decided", "done".to_owned()));
            fields.extend(operation.map(|id| ("operation", id.to_string())));
        }
        Outcome::Refused(refusal) => fields.push(("decided", refusal.reason.clone())),
    }
    output::fields(&fields);
    if let Some(choice) = &entry.request.choice {
        chosen(choice);
    }
    if let Outcome::Refused(refusal) = &entry.outcome {
        output::print(output::refusal(refusal));
    }
    Ok(())
}

async fn show_refused(session: &Session, number: &str) -> anyhow::Result<()> {
    let mut request = ListRefusalsRequest {
        page_size: PAGE_MAX,
        ..ListRefusalsRequest::default()
    };
    loop {
        let page = request.clone();
        let response = read!(session, AuditServiceClient, list_refusals, page)?;
        let refused: Vec<Refused> = read_all(response.refusals)?;
        if let Some(refused) = refused.iter().find(|r| r.number.to_string() == number) {
            return refusal(session, refused);
        }
        if response.next_page_token.is_empty() {
            let refusal = Refusal::not_found("refusal", number);
            return Err(refusal
                .with_hint("it may have been dropped since, or recorded by another leader")
                .into());
        }
        request.page_token = response.next_page_token;
    }
}

fn refusal(session: &Session, refused: &Refused) -> anyhow::Result<()> {
    if session.for_programs() {
        return output::value(&Line::Refused(refused.clone()).json());
    }
    let mut fields = vec![
        ("refusal", format!("r{}", refused.number)),
        ("first", migration::time(refused.first_at)),
        ("last", migration::time(refused.last_at)),
        ("count", refused.count.to_string()),
        ("principal", refused.principal.clone()),
    ];
    fields.extend(request_fields(&refused.request));
    output::fields(&fields);
    output::print(output::refusal(&refused.refusal));
    Ok(())
}

fn request_fields(request: &RequestSummary) -> Vec<(&'static str, String)> {
    let mut fields = vec![("method", request.method.clone())];
    fields.extend(request.request_id.map(|id| ("request id", id.to_string())));
    fields.push(("about", about(request)));
    fields
}

/// Prints why a host was chosen: what each weigher gave it and the next best.
fn chosen(choice: &Chosen) {
    output::print(format!(
        "chosen: {} of {} hosts, {} of which had enough free capacity, {} tried",
        choice.host, choice.hosts, choice.passed, choice.tried
    ));
    let rows = choice.ranking.iter().map(|ranked| {
        let points = ranked.points.iter();
        let points = points.map(|p| format!("{} {}", p.weigher, p.points));
        let points: Vec<_> = points.collect();
        [
            ranked.host.to_string(),
            ranked.sum().to_string(),
            points.join(", "),
        ]
    });
    output::table(
        ["host", "points", "of which"],
        rows.collect(),
        "the host was requested by name",
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_read_as_people_write_them() {
        let exact = since("2026-01-31T12:00:00Z").expect("a moment");
        assert_eq!(exact.seconds, 1_769_860_800);
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .expect("after 1970");
        for (text, seconds) in [("90s", 90), ("15m", 900), ("2h", 7_200), ("7d", 604_800)] {
            let at = since(text).expect("a time").seconds;
            let ago = i64::try_from(now.as_secs()).expect("soon") - at;
            assert!((seconds - 60..=seconds + 1).contains(&ago), "{text}: {ago}");
        }
        for text in [
            "",
            "7",
            "d",
            "-1s",
            "1w",
            "yesterday",
            "99999999999999999999d",
        ] {
            let wrong = since(text).expect_err(text).to_string();
            assert!(wrong.contains("--since"), "{wrong}");
        }
    }
}
