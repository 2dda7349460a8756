//! What a bundle states about itself: its first file.
//!
//! Not here: reading the rest (`open`).
//!
//! Invariant: it names every other file of the bundle with its checksum.

use std::collections::BTreeMap;

use berth_process::wall_clock_ms;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::collect::Collected;
use crate::arguments::SupportBundle;

/// The name of the file.
pub(super) const NAME: &str = "bundle.json";
/// The name of the file with the state.
pub(super) const STATE: &str = "state.backup";
/// The version of the layout that is written, and the newest that is read.
pub(super) const FORMAT: u32 = 1;

/// What a bundle states about itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Manifest {
    /// The version of the layout.
    pub(super) format: u32,
    /// The version of the command that made it.
    pub(super) program_version: String,
    /// When, in milliseconds since 1970, by the clock of that machine.
    pub(super) created_ms: u64,
    /// The cluster.
    pub(super) cluster_id: String,
    /// The time since when log lines are in it, as it was requested.
    pub(super) since: String,
    /// How many operations and audit entries were requested.
    pub(super) operations: u32,
    /// Whether hashes stand for names.
    pub(super) names_hashed: bool,
    /// The SHA-256 of every other file, in hexadecimal.
    pub(super) files: BTreeMap<String, String>,
    /// What is not in it, and why.
    pub(super) missing: Vec<Missing>,
}

/// Something that is not in a bundle.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Missing {
    /// What.
    pub(super) what: String,
    /// Why.
    pub(super) why: String,
}

impl Manifest {
    /// Returns that of a new bundle.
    pub(super) fn new(collected: &Collected, args: &SupportBundle) -> Self {
        let files = collected.files.iter();
        Self {
            format: FORMAT,
            program_version: env!("CARGO_PKG_VERSION").to_owned(),
            created_ms: wall_clock_ms(),
            cluster_id: collected.cluster_id.clone(),
            since: args.since.clone(),
            operations: args.operations,
            names_hashed: args.hash_names,
            files: files
                .map(|(name, bytes)| (name.clone(), sum(bytes)))
                .collect(),
            missing: collected.missing.clone(),
        }
    }

    /// Returns whether the state is in it.
    pub(super) fn has_state(&self) -> bool {
        self.files.contains_key(STATE)
    }
}

/// Returns a checksum in hexadecimal.
pub(super) fn sum(bytes: &[u8]) -> String {
    let digest = Sha256::digest(bytes);
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}
