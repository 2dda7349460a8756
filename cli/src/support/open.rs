//! Reading a bundle, and why a file is none.
//!
//! Not here: answering commands with it (`recorded`, and the reader of backups).
//!
//! Invariant: nothing of a bundle is shown before the checksums of all its files were verified.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use berth_backup::Access;
use berth_domain::id::TimeMs;
use berth_domain::refusal::{Code, Refusal};
use serde_json::Value;

use super::calls::CALLS;
use super::collect::file_of;
use super::manifest::{FORMAT, Manifest, NAME, STATE, sum};
use super::recorded::Responses;
use super::tar;
use crate::backup::refusal;

/// A bundle that was read.
#[derive(Debug)]
pub(crate) struct Bundle {
    /// The cluster.
    pub(crate) cluster_id: String,
    /// When it was made.
    pub(crate) created: TimeMs,
    /// Whether hashes stand for names.
    pub(crate) names_hashed: bool,
    /// The recorded responses.
    pub(super) responses: Responses,
    /// The state as a backup, if it has one.
    pub(crate) state: Option<Vec<u8>>,
}

impl Bundle {
    /// Serves the recorded responses, in a task of the runtime that this is called in.
    pub(crate) fn recorded(&self) -> super::recorded::Recorded {
        super::recorded::Recorded::start(self.responses.clone())
    }
}

/// Reads a bundle.
///
/// # Errors
///
/// It cannot be read, or is none.
pub(crate) fn open(path: &Path) -> Result<Bundle, Refusal> {
    let unusable = |error: std::io::Error| refusal::of_file(Access::Read, path, &error);
    let file = File::open(path).map_err(unusable)?;
    let mut bytes = Vec::new();
    let mut whole = file.take(tar::BYTES_MAX);
    whole.read_to_end(&mut bytes).map_err(unusable)?;
    parse(&bytes).map_err(|fault| fault.to_refusal(path))
}

/// Why a file is no bundle.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
enum Fault {
    #[error("it is not a support bundle")]
    Foreign,
    #[error("it ends too early")]
    Truncated,
    #[error("{0} is damaged")]
    Damaged(String),
    #[error("it has format {0}, and this program reads up to {FORMAT}")]
    Newer(u64),
}

impl Fault {
    fn to_refusal(&self, path: &Path) -> Refusal {
        let damaged = "use another copy of the file";
        let (reason, hint) = match self {
            Self::Foreign => ("NOT_A_BUNDLE", "name a file that berth support bundle made"),
            Self::Truncated => ("BUNDLE_CUT_SHORT", damaged),
            Self::Damaged(_) => ("BUNDLE_DAMAGED", damaged),
            Self::Newer(_) => (
                "BUNDLE_NEWER",
                "use the berth of the version that made it, or a newer one",
            ),
        };
        let message = format!("{} cannot be read: {self}", path.display());
        let refusal = Refusal::new(Code::FailedPrecondition, reason, message);
        refusal.with("file", path.display()).with_hint(hint)
    }
}

fn parse(bytes: &[u8]) -> Result<Bundle, Fault> {
    let files = tar::read(bytes).map_err(|error| match error {
        tar::Error::Foreign => Fault::Foreign,
        tar::Error::Truncated => Fault::Truncated,
        tar::Error::Damaged(at) => Fault::Damaged(format!("the header at byte {at}")),
    })?;
    let manifest = manifest(files.get(NAME).ok_or(Fault::Foreign)?)?;
    for (name, stated) in &manifest.files {
        let content = files.get(name).ok_or(Fault::Truncated)?;
        if sum(content) != *stated {
            return Err(Fault::Damaged(name.clone()));
        }
    }
    let mut responses = BTreeMap::new();
    for (path, _) in CALLS {
        let name = file_of(path);
        if let Some(content) = files
            .get(&name)
            .filter(|_| manifest.files.contains_key(&name))
        {
            let response: Value =
                serde_json::from_slice(content).map_err(|_| Fault::Damaged(name.clone()))?;
            responses.insert(path.to_owned(), response);
        }
    }
    let state = files.get(STATE).filter(|_| manifest.has_state());
    Ok(Bundle {
        cluster_id: manifest.cluster_id.clone(),
        created: TimeMs(manifest.created_ms),
        names_hashed: manifest.names_hashed,
        responses,
        state: state.map(|state| state.to_vec()),
    })
}

fn manifest(content: &[u8]) -> Result<Manifest, Fault> {
    let value: Value = serde_json::from_slice(content).map_err(|_| Fault::Foreign)?;
    // Before the rest: a newer one may have other fields.
    let format = value["format"].as_u64().ok_or(Fault::Foreign)?;
    if format > u64::from(FORMAT) {
        return Err(Fault::Newer(format));
    }
    serde_json::from_value(value).map_err(|_| Fault::Damaged(NAME.to_owned()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const HOSTS: &str = "responses/berth.host.v1.HostService.ListHosts.json";

    fn archive(manifest: &Value, files: &[(&str, &[u8])]) -> Vec<u8> {
        let mut bytes = Vec::new();
        let first = manifest.to_string();
        tar::write(&mut bytes, NAME, first.as_bytes(), 0).expect("written");
        for (name, content) in files {
            tar::write(&mut bytes, name, content, 0).expect("written");
        }
        tar::end(&mut bytes).expect("written");
        bytes
    }

    fn stated(format: u32) -> Value {
        json!({"format": format, "program_version": "0.1.0", "created_ms": 7, "cluster_id": "c",
            "since": "1h", "operations": 9, "names_hashed": false, "missing": [],
            "files": {HOSTS: sum(b"{}")}})
    }

    #[test]
    fn a_sound_bundle_is_read() {
        let bundle = parse(&archive(&stated(1), &[(HOSTS, b"{}")])).expect("it is sound");
        assert_eq!(bundle.responses.len(), 1);
        assert!(bundle.state.is_none());
    }

    /// Goal: what is no bundle, is cut short, changed or of a newer program is refused as such.
    #[test]
    fn every_other_file_is_refused() {
        let good = archive(&stated(1), &[(HOSTS, b"{}")]);
        for length in 0..good.len() {
            assert!(parse(&good[..length]).is_err(), "{length}");
        }
        let refused = |bytes: &[u8]| parse(bytes).expect_err("it is no bundle");
        assert_eq!(refused(b"BERTHBKP"), Fault::Foreign);
        assert_eq!(refused(&archive(&stated(2), &[])), Fault::Newer(2));
        assert_eq!(refused(&archive(&stated(1), &[])), Fault::Truncated);
        assert_eq!(
            refused(&archive(&json!({"format": 1}), &[])),
            Fault::Damaged(NAME.to_owned())
        );
        assert_eq!(refused(&archive(&json!("x"), &[])), Fault::Foreign);
        let changed = archive(&stated(1), &[(HOSTS, b"[]")]);
        assert_eq!(refused(&changed), Fault::Damaged(HOSTS.to_owned()));
    }
}
