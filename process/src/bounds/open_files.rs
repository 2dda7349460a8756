//! How many files the process may have open, and how many of them are connections.
//!
//! Not here: who may hold how many connections ([`super::table`]).
//!
//! Invariant: all listeners together leave a quarter of the open files, and at least 64, to the
//! process itself: a flood of connections does not keep it from opening its log.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// What the process keeps for files and for connections to others.
const OWN_MIN: u64 = 64;
/// Each connection takes memory too.
const CONNECTIONS_MAX: u64 = 32_768;
const HANDSHAKES_MAX: u64 = 512;
/// Where no limit is set.
const UNLIMITED: u64 = 1 << 20;

/// How the open files of a process are divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenFiles {
    /// For connections of the gRPC server.
    pub connections: u64,
    /// For handshakes in progress, of each listener.
    pub handshakes: u64,
    /// For connections of an HTTP/1.1 server.
    pub http1: u64,
}

impl OpenFiles {
    /// Divides a number of open files.
    #[must_use]
    pub fn divide(limit: u64) -> Self {
        let own = (limit / 4).max(OWN_MIN);
        let sockets = limit.saturating_sub(own).max(16);
        Self {
            connections: (sockets / 2).min(CONNECTIONS_MAX),
            handshakes: (sockets / 8).clamp(2, HANDSHAKES_MAX),
            http1: (sockets / 8).max(2),
        }
    }

    /// Divides what this process may open now.
    #[must_use]
    pub fn of_process() -> Self {
        Self::divide(getrlimit(Resource::Nofile).current.unwrap_or(UNLIMITED))
    }
}

/// Raises the limit of this process as far as it may by itself; returns the limit.
pub fn raise() -> u64 {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        ..limit
    };
    match setrlimit(Resource::Nofile, raised) {
        Ok(()) => limit.maximum.unwrap_or(UNLIMITED),
        Err(error) => {
            tracing::warn!(%error, "raising the limit of open files failed");
            limit.current.unwrap_or(UNLIMITED)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: no division gives away what the process needs, and none leaves a listener without any.
    #[test]
    fn every_division_leaves_enough() {
        for limit in [0, 64, 128, 256, 1024, 20_000, 1 << 20, u64::MAX] {
            let OpenFiles {
                connections,
                handshakes,
                http1,
            } = OpenFiles::divide(limit);
            assert!(connections >= 8 && handshakes >= 2 && http1 >= 2, "{limit}");
            // gRPC and REST, with the handshakes of both.
            let taken = connections + 2 * handshakes + http1.min(512);
            if limit >= 128 {
                assert!(limit - taken >= OWN_MIN.max(limit / 4), "{limit}: {taken}");
            }
        }
        assert_eq!(OpenFiles::divide(1024).connections, 384);
    }
}
