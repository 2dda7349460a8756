//! Why a scheduler member cannot start, or stopped by itself.
//!
//! Invariant: the message with its causes names the affected object. The next step is in the table
//! of [`stop`](crate::stop), which has a row for each variant here and below.

use std::path::PathBuf;

use berth_domain::version::ServiceVersion;
use berth_replication::runtime::{OpenError, StopError};
use berth_store::{disk, identity};

use berth_process::{Faults, ListenError};
use tokio::task::JoinError;

use crate::invariants::Broken;

/// Why a scheduler member cannot start, or stopped by itself.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The configuration is wrong.
    #[error(transparent)]
    Config(#[from] Faults),
    /// The files of the certificates cannot be used.
    #[error(transparent)]
    Certificates(Faults),
    /// The file of the REST API's tokens cannot be used.
    #[error(transparent)]
    Tokens(Faults),
    /// The address to listen on is taken or not ours.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// The directory cannot be used.
    #[error("the data directory cannot be used")]
    Disk(#[from] disk::Error),
    /// The directory is empty, and neither --bootstrap nor --join is given.
    #[error("{path} holds no member")]
    NoMember {
        /// The directory.
        path: PathBuf,
    },
    /// A new cluster was requested in the directory of a member.
    #[error("{path} already holds member {member} of cluster {cluster}")]
    AlreadyMember {
        /// The directory.
        path: PathBuf,
        /// Its cluster.
        cluster: String,
        /// Its number there.
        member: u64,
    },
    /// The member to be joined belongs to another cluster than the directory.
    #[error("{path} belongs to cluster {own}, but {peer} is a member of cluster {expected}")]
    OtherCluster {
        /// The directory.
        path: PathBuf,
        /// Its cluster.
        own: String,
        /// The peer.
        peer: String,
        /// The cluster of the peer.
        expected: String,
    },
    /// The member to be joined belongs to another cluster than the one that was named.
    #[error("{peer} is a member of cluster {cluster}, and --cluster-id names cluster {expected}")]
    PeerOfOtherCluster {
        /// The peer.
        peer: String,
        /// The cluster of the peer.
        cluster: String,
        /// The cluster that was named.
        expected: String,
    },
    /// No peer accepted this member.
    #[error("could not join through {peers}: {what}")]
    Join {
        /// The peer.
        peers: String,
        /// The last error.
        what: String,
    },
    /// What is on the disk cannot be made into a member.
    #[error("the member cannot start from its data directory")]
    Open(#[from] OpenError),
    /// The member had to stop.
    #[error("the member had to stop")]
    Stop(#[from] StopError),
    /// The member is no longer part of its cluster.
    #[error("this member was removed from its cluster")]
    Removed,
    /// The cluster has gone beyond what this member can do.
    #[error("the cluster version is {cluster}, and this member is at service version {level}")]
    Outdated {
        /// The cluster version.
        cluster: ServiceVersion,
        /// This member's service version.
        level: ServiceVersion,
    },
    /// The state breaks an invariant.
    #[error("the state at revision {revision} breaks an invariant: {what}")]
    Unsound {
        /// The revision of the state.
        revision: u64,
        /// Which invariant, and where.
        what: String,
    },
    /// The server failed.
    #[error("the server failed")]
    Serve(#[from] tonic::transport::Error),
    /// A part of the program panicked: an invariant of it, or of a library, does not hold.
    #[error("{part} panicked: {what}")]
    Panicked {
        /// The part.
        part: &'static str,
        /// The message of the panic; its place is in the log.
        what: String,
    },
    /// A part of the program ended that never should.
    #[error("{0} ended by itself")]
    Ended(&'static str),
}

impl Error {
    /// Says which invariant is broken.
    pub(crate) fn of_invariant(broken: Broken) -> Self {
        let Broken { revision, what } = broken;
        Self::Unsound { revision, what }
    }

    /// Says why a task could not be joined.
    pub(crate) fn of_task(part: &'static str, error: JoinError) -> Self {
        match error.try_into_panic() {
            Ok(payload) => Self::Panicked {
                part,
                what: berth_process::panic_message(&*payload),
            },
            Err(_) => Self::Ended(part),
        }
    }
}

impl From<identity::Error> for Error {
    fn from(error: identity::Error) -> Self {
        Self::Disk(error.into())
    }
}
