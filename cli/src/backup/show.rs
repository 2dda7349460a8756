//! What a backup holds, for people and for programs.

use berth_backup::{Header, Kind, Summary};
use berth_domain::id::TimeMs;
use serde_json::{Value, json};

use super::Contents;
use crate::{migration, output};

/// Prints what backups hold; of a single one, its tables as well.
pub(crate) fn print(all: &[Contents]) {
    if let [one] = all {
        fields(one);
        if !one.tables.is_empty() {
            let rows = one.tables.iter();
            let rows = rows.map(|(table, count)| [table.replace('_', " "), count.to_string()]);
            output::table(["table", "rows"], rows.collect(), "no rows");
        }
        return;
    }
    let rows = all.iter().map(|contents| {
        let Summary { header, .. } = &contents.summary;
        [
            contents.path.display().to_string(),
            kind(header),
            header.cluster_id.clone(),
            header.member_id.to_string(),
            migration::time(TimeMs(header.created_ms)),
            after(&contents.summary),
            header.end.index.to_string(),
            content(&contents.summary),
            size(contents.summary.bytes),
        ]
    });
    let head = [
        "file", "kind", "cluster", "member", "created", "after", "end", "content", "size",
    ];
    output::table(head, rows.collect(), "no backups");
}

fn fields(one: &Contents) {
    let summary = &one.summary;
    let header = &summary.header;
    let members = header.membership.members.iter();
    let members: Vec<String> = members
        .map(|m| format!("{} at {}", m.id, m.address))
        .collect();
    output::fields(&[
        ("file", one.path.display().to_string()),
        ("kind", kind(header)),
        ("cluster", header.cluster_id.clone()),
        ("cluster version", header.cluster_version.to_string()),
        (
            "made by",
            format!(
                "member {}, version {}",
                header.member_id, header.program_version
            ),
        ),
        ("created", migration::time(TimeMs(header.created_ms))),
        ("after index", after(summary)),
        (
            "end index",
            format!("{} in term {}", header.end.index, header.end.term),
        ),
        ("revision", header.revision.to_string()),
        ("state hash", hash(summary)),
        ("content", content(summary)),
        ("size", size(summary.bytes)),
        ("members", members.join(", ")),
    ]);
}

fn kind(header: &Header) -> String {
    let kind = header.kind().as_str();
    match header.redacted {
        true => format!("{kind}, without secrets"),
        false => kind.to_owned(),
    }
}

fn hash(summary: &Summary) -> String {
    let hash = summary.header.end.hash();
    hash.map_or_else(String::new, |hash| hash.to_string())
}

fn after(summary: &Summary) -> String {
    match summary.header.kind() {
        Kind::Increment => summary.header.after_index().to_string(),
        Kind::Full | Kind::Unspecified => "-".to_owned(),
    }
}

/// Returns what a backup has, as `340 rows`.
pub(crate) fn content(summary: &Summary) -> String {
    match summary.header.kind() {
        Kind::Increment => format!("{} entries", summary.entries),
        Kind::Full | Kind::Unspecified => format!("{} rows", summary.rows),
    }
}

/// Returns a size as people read it.
pub(crate) fn size(bytes: u64) -> String {
    const KIB: u64 = 1 << 10;
    const MIB: u64 = 1 << 20;
    match bytes {
        0..KIB => format!("{bytes} B"),
        KIB..MIB => format!("{:.1} KiB", bytes as f64 / KIB as f64),
        _ => format!("{:.1} MiB", bytes as f64 / MIB as f64),
    }
}

/// Returns what a file holds as JSON.
pub(super) fn contents_json(contents: &Contents) -> Value {
    let mut value = summary_json(&contents.summary);
    value["file"] = json!(contents.path);
    value["tables"] = json!(contents.tables);
    value
}

/// Returns what a backup states about itself as JSON.
pub(crate) fn summary_json(summary: &Summary) -> Value {
    let header = &summary.header;
    let after = header.after.as_ref();
    let members = header.membership.members.iter();
    let members = members.map(|m| json!({"id": m.id, "address": m.address}));
    json!({
        "kind": header.kind().as_str(),
        "cluster_id": header.cluster_id,
        "cluster_version": header.cluster_version,
        "member_id": header.member_id,
        "program_version": header.program_version,
        "redacted": header.redacted,
        "created": migration::time(TimeMs(header.created_ms)),
        "after_index": after.map(|after| after.index),
        "after_state_hash": after.and_then(|after| after.hash()).map(|hash| hash.to_string()),
        "end_index": header.end.index,
        "end_term": header.end.term,
        "revision": header.revision,
        "state_hash": hash(summary),
        "rows": summary.rows,
        "entries": summary.entries,
        "bytes": summary.bytes,
        "members": members.collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_readable() {
        assert_eq!(size(0), "0 B");
        assert_eq!(size(1023), "1023 B");
        assert_eq!(size(1536), "1.5 KiB");
        assert_eq!(size(3 << 20), "3.0 MiB");
    }
}
