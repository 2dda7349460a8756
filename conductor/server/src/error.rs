//! Why a conductor cannot start, or stopped by itself.

use berth_process::{Faults, ListenError};

/// Why a conductor cannot start, or stopped by itself.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The configuration is wrong.
    #[error(transparent)]
    Config(#[from] Faults),
    /// The address to listen on is in use or not local.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// The server failed.
    #[error("the server failed")]
    Serve(#[from] tonic::transport::Error),
    /// A part of the program ended that never should.
    #[error("{0} ended unexpectedly")]
    Task(&'static str),
}
