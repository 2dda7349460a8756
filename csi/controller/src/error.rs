//! Why a controller cannot start, or stopped by itself.

use berth_process::{Faults, ListenError, socket};

/// Why a controller cannot start, or stopped by itself.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The configuration is wrong.
    #[error(transparent)]
    Config(#[from] Faults),
    /// The socket is taken or cannot be made.
    #[error(transparent)]
    Listen(#[from] socket::Error),
    /// The address for metrics is taken or not local.
    #[error(transparent)]
    Metrics(#[from] ListenError),
    /// The extender and the webhook cannot start.
    #[error(transparent)]
    Kubernetes(#[from] crate::kubernetes::Error),
    /// The server failed.
    #[error("the server failed")]
    Serve(#[from] tonic::transport::Error),
    /// A part of the program ended that never should.
    #[error("{0} ended unexpectedly")]
    Task(&'static str),
}
