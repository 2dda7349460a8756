//! Service versions: what a running agent or conductor can do.
//!
//! A service version is one number that grows with every change of what services say to each
//! other. It gates features while a cluster is upgraded host by host: what a peer is too old for
//! is refused before anything is done.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The version of a service process.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct ServiceVersion(pub u32);

impl ServiceVersion {
    /// The version that this build speaks.
    pub const CURRENT: Self = Self(2);
    /// The oldest version that can still be started (`--service-version`).
    pub const OLDEST: Self = Self(1);
    /// From here on `migrate_data` carries the `InstanceNUMATopology`, and a destination fits it
    /// and confirms its claim. An older agent drops the field and refuses the call.
    pub const NUMA_LIVE_MIGRATION: Self = Self(2);
}

impl fmt::Display for ServiceVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
