//! What `lvm` reports of physical and logical volumes, parsed.
//!
//! Invariant: a row that cannot be understood is an error: what is not understood might be a part of
//! what is counted as free.

use berth_domain::volume::FOREIGN_MAX;
use serde_json::Value;

use super::super::manager::Error;

/// The query: one row for each piece of a physical volume, with the volume group that it is in and
/// the logical volume that has the piece. One program, so that all of it is of one moment.
pub(super) const ARGUMENTS: [&str; 6] = [
    "pvs",
    "--reportformat=json",
    "--units=b",
    "--nosuffix",
    "--options",
    "pv_name,vg_name,vg_uuid,vg_extent_size,vg_free,lv_name,lv_uuid,lv_size,lv_path",
];

/// How much of an output is repeated in a message, in characters.
const QUOTED_MAX: usize = 120;

/// The most rows that are read.
const ROWS_MAX: usize = 64 * FOREIGN_MAX;

/// A physical volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Physical {
    /// Its device.
    pub(super) name: String,
    /// The group that it is in, if it is in any.
    pub(super) group: Option<Group>,
}

/// A volume group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Group {
    pub(super) name: String,
    pub(super) uuid: String,
    pub(super) extent_bytes: u64,
    pub(super) free_bytes: u64,
}

/// A logical volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Logical {
    pub(super) name: String,
    pub(super) uuid: String,
    pub(super) group_uuid: String,
    pub(super) size_bytes: u64,
    pub(super) path: String,
}

/// What LVM has, each once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Report {
    pub(super) physical: Vec<Physical>,
    /// Those that have pieces; the composition of others is given by these.
    pub(super) logical: Vec<Logical>,
}

/// Reads what the program printed.
pub(super) fn read(output: &[u8]) -> Result<Report, Error> {
    let mut report = Report::default();
    for (physical, logical) in rows("lvm pvs", "pv", output, row)? {
        if !report.physical.contains(&physical) {
            report.physical.push(physical);
        }
        report.logical.extend(logical);
    }
    report.logical.sort_by(|a, b| a.uuid.cmp(&b.uuid));
    report.logical.dedup_by(|a, b| a.uuid == b.uuid);
    Ok(report)
}

fn row(row: &Value) -> Result<(Physical, Option<Logical>), String> {
    let name = text(row, "pv_name")?;
    let group = match text(row, "vg_name")?.as_str() {
        "" => None,
        vg => Some(Group {
            name: vg.to_owned(),
            uuid: text(row, "vg_uuid")?,
            extent_bytes: number(row, "vg_extent_size")?.max(1),
            free_bytes: number(row, "vg_free")?,
        }),
    };
    let logical = match text(row, "lv_name")?.as_str() {
        "" => None,
        lv => Some(Logical {
            name: lv.to_owned(),
            uuid: text(row, "lv_uuid")?,
            group_uuid: text(row, "vg_uuid")?,
            size_bytes: number(row, "lv_size")?,
            path: text(row, "lv_path")?,
        }),
    };
    Ok((Physical { name, group }, logical))
}

fn rows<T>(
    program: &'static str,
    key: &str,
    output: &[u8],
    read: impl Fn(&Value) -> Result<T, String>,
) -> Result<Vec<T>, Error> {
    let odd = |why: String, value: &Value| Error::Listing {
        program,
        why,
        begin: begin(&value.to_string()),
    };
    let value = parse(program, output)?;
    let reports = value.get("report").and_then(Value::as_array);
    let reports = reports.ok_or_else(|| odd("no report".to_owned(), &value))?;
    let mut found = Vec::new();
    for report in reports {
        let rows = report.get(key).and_then(Value::as_array);
        let rows = rows.ok_or_else(|| odd(format!("a report without {key}"), report))?;
        if found.len() + rows.len() > ROWS_MAX {
            return Err(odd(format!("more than {ROWS_MAX} rows"), &Value::Null));
        }
        for row in rows {
            found.push(read(row).map_err(|why| odd(why, row))?);
        }
    }
    Ok(found)
}

/// Reads JSON; nothing printed is nothing there.
pub(super) fn parse(program: &'static str, output: &[u8]) -> Result<Value, Error> {
    let text = String::from_utf8_lossy(output);
    if text.trim().is_empty() {
        return Ok(Value::Null);
    }
    serde_json::from_str(&text).map_err(|error| Error::Listing {
        program,
        why: error.to_string(),
        begin: begin(&text),
    })
}

fn text(row: &Value, key: &str) -> Result<String, String> {
    let value = row.get(key).and_then(Value::as_str);
    value
        .map(str::to_owned)
        .ok_or_else(|| format!("{key} is missing or no text"))
}

/// Numbers are texts in reports.
fn number(row: &Value, key: &str) -> Result<u64, String> {
    let text = text(row, key)?;
    let digits = text.trim_end_matches('B');
    digits
        .parse()
        .map_err(|_| format!("{key} is {:?}, not a number of bytes", begin(&text)))
}

/// Returns how a text begins.
pub(super) fn begin(text: &str) -> String {
    let mut begin: String = text.trim().chars().take(QUOTED_MAX).collect();
    if begin.len() < text.trim().len() {
        begin.push('…');
    }
    begin
}
