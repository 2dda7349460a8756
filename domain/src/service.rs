//! Service processes as they register themselves: conductors here, agents with their
//! [`crate::host`].

use serde::{Deserialize, Serialize};

use crate::id::TimeMs;
use crate::name::ServiceName;
use crate::version::ServiceVersion;

/// A conductor that has registered.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Service {
    /// Who it is.
    pub name: ServiceName,
    /// Where clients reach it, as `http://127.0.0.1:7300`.
    pub address: String,
    /// What it can do.
    pub version: ServiceVersion,
    /// When it registered last.
    pub registered_at: TimeMs,
}
