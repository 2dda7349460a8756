//! How a guest sees its vCPUs: as sockets, cores and threads. It states nothing about the host.

use serde::{Deserialize, Serialize};

/// How a guest sees its vCPUs (`hw:cpu_sockets`, `hw:cpu_cores`, `hw:cpu_threads`, or the best
/// within `hw:cpu_max_*`). Their product is the number of vCPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct CpuShape {
    /// How many sockets, at least 1.
    pub sockets: u32,
    /// How many cores each has, at least 1.
    pub cores: u32,
    /// How many threads each of these has, at least 1.
    pub threads: u32,
}

impl CpuShape {
    /// Returns the number of vCPUs.
    #[must_use]
    pub fn vcpus(&self) -> u64 {
        let cores = u64::from(self.sockets).saturating_mul(self.cores.into());
        cores.saturating_mul(self.threads.into())
    }
}
