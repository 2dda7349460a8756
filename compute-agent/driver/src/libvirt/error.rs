//! The errors between an agent and libvirt, and which of them can be distinguished.
//!
//! What it is not: an evaluation. Whether an absent domain is a failure or the
//! goal is for the caller to decide.

use crate::error::Error as DriverError;

/// Why a call into libvirt gave nothing.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The library is not on this machine, or not one for this machine.
    #[error("{file_name} cannot be opened: libvirt's client library is not installed on this host")]
    LibraryMissing {
        /// The name that was looked for.
        file_name: String,
        /// The loader's message.
        #[source]
        source: libloading::Error,
    },
    /// The library lacks a function, so it is too old or something else altogether.
    #[error("libvirt's client library has no {function}: it is older than this program needs")]
    FunctionMissing {
        /// The function's name in C.
        function: &'static str,
        /// The loader's message.
        #[source]
        source: libloading::Error,
    },
    /// No connection to the daemon could be made.
    #[error("the hypervisor at {uri} cannot be reached: {}", .fault.message)]
    ConnectFailed {
        /// The URI that was dialled.
        uri: String,
        /// libvirt's message.
        fault: Fault,
    },
    /// An argument holds a zero byte, which no C string can carry.
    #[error("the {what} holds a zero byte")]
    ZeroByte {
        /// Which argument it was.
        what: &'static str,
    },
    /// libvirt was reached and refused or failed.
    #[error("{0}")]
    Libvirt(Fault),
}

/// One error as libvirt reports it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{call}: {message} (libvirt error {code})")]
pub struct Fault {
    /// The function that failed.
    pub call: &'static str,
    /// `virErrorNumber`.
    pub code: i32,
    /// `virErrorDomain`: which part of libvirt raised it.
    pub domain: i32,
    /// For people.
    pub message: String,
    /// The connection to the daemon was found broken after the call: its effect is unknown.
    pub connection_lost: bool,
}

/// The errors that a caller acts upon differently.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// No library, no daemon, or the connection broke: nothing is known about the call's effect.
    Unavailable,
    /// There is no such domain.
    NoDomain,
    /// A domain of that name or UUID exists already.
    DomainExists,
    /// The domain carries no such metadata.
    NoMetadata,
    /// The domain is not in a state for this: not running, already running, no job to abort.
    OperationInvalid,
    /// The hypervisor tried and failed.
    OperationFailed,
    /// The job was cancelled by a client.
    OperationAborted,
    /// Something else holds the domain for longer than libvirt waits.
    Timeout,
    /// This libvirt or this hypervisor cannot do it.
    Unsupported,
    /// The XML or an argument is wrong.
    InvalidArgument,
    /// libvirt holds the migration for unsafe: a disk that is neither shared nor copied.
    MigrateUnsafe,
    /// A resource of the host is taken or exhausted.
    ResourceBusy,
    /// Anything else; the fault has the code and the message.
    Other,
}

impl Fault {
    /// For a call that failed without leaving an error behind.
    pub(super) fn unexplained(call: &'static str) -> Self {
        Self {
            call,
            code: 0,
            domain: 0,
            message: "failed, and libvirt reports no reason".to_owned(),
            connection_lost: false,
        }
    }

    /// Which error it is, of those that are distinguished.
    pub fn kind(&self) -> Kind {
        // The code alone cannot distinguish a broken connection of ours from one that the daemon
        // had to its peer: both are system errors of the RPC part.
        if self.connection_lost {
            return Kind::Unavailable;
        }
        // The numbers are those of virErrorNumber, which libvirt never reuses.
        match self.code {
            42 => Kind::NoDomain,
            28 => Kind::DomainExists,
            80 => Kind::NoMetadata,
            55 => Kind::OperationInvalid,
            9 => Kind::OperationFailed,
            78 => Kind::OperationAborted,
            68 => Kind::Timeout,
            3 | 67 | 74 | 84 | 91 => Kind::Unsupported,
            8 | 16 | 21 | 22 | 27 | 35 | 92 => Kind::InvalidArgument,
            81 => Kind::MigrateUnsafe,
            2 | 87 => Kind::ResourceBusy,
            _ => Kind::Other,
        }
    }
}

impl Error {
    /// Which error it is, of those that are distinguished.
    pub fn kind(&self) -> Kind {
        match self {
            Self::LibraryMissing { .. }
            | Self::FunctionMissing { .. }
            | Self::ConnectFailed { .. } => Kind::Unavailable,
            Self::ZeroByte { .. } => Kind::InvalidArgument,
            Self::Libvirt(fault) => fault.kind(),
        }
    }

    /// libvirt's own report, where the call got that far.
    pub fn fault(&self) -> Option<&Fault> {
        match self {
            Self::ConnectFailed { fault, .. } | Self::Libvirt(fault) => Some(fault),
            Self::LibraryMissing { .. } | Self::FunctionMissing { .. } | Self::ZeroByte { .. } => {
                None
            }
        }
    }
}

/// Returns libvirt's error as callers of drivers read it.
pub(super) fn error_of(error: &Error) -> DriverError {
    match error.kind() {
        Kind::Unavailable => DriverError::Unreachable {
            message: error.to_string(),
        },
        Kind::Timeout => DriverError::TimedOut {
            attempted: "get hold of the guest",
        },
        Kind::NoDomain
        | Kind::DomainExists
        | Kind::NoMetadata
        | Kind::OperationInvalid
        | Kind::OperationFailed
        | Kind::OperationAborted
        | Kind::Unsupported
        | Kind::InvalidArgument
        | Kind::MigrateUnsafe
        | Kind::ResourceBusy
        | Kind::Other => DriverError::refused(
            error
                .fault()
                .map_or_else(|| error.to_string(), |fault| fault.message.clone()),
        ),
    }
}
