//! The flags that every server has. A flag goes before the configuration file.

use std::path::PathBuf;

use crate::listening::Listening;
use crate::log::{Log, LogFormat};

/// The flags that every server has.
#[derive(Clone, Debug, clap::Args)]
pub struct Common {
    /// Read this configuration file
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Tell others to dial this address
    #[arg(long, value_name = "HOST:PORT")]
    pub advertise: Option<String>,
    /// Listen beyond loopback although connections are not encrypted
    #[arg(long)]
    pub insecure_listen: bool,
    /// Trust the authorities in this file; with --tls-cert and --tls-key, only connections that are
    /// encrypted are taken and made
    #[arg(long, value_name = "FILE")]
    pub tls_ca: Option<PathBuf>,
    /// Show this certificate
    #[arg(long, value_name = "FILE")]
    pub tls_cert: Option<PathBuf>,
    /// This is its key
    #[arg(long, value_name = "FILE")]
    pub tls_key: Option<PathBuf>,
    /// Write log lines like this
    #[arg(long, value_name = "FORMAT", value_enum)]
    pub log_format: Option<LogFormat>,
    /// Write these log lines, as info,berth_proto=debug
    #[arg(long, value_name = "FILTER")]
    pub log_filter: Option<String>,
}

impl Common {
    /// Puts what was said over what the file says.
    pub fn apply(self, listening: &mut Listening, log: &mut Log) {
        listening.insecure |= self.insecure_listen;
        replace_some(&mut listening.advertise, self.advertise);
        replace_some(&mut listening.encryption.ca, self.tls_ca);
        replace_some(&mut listening.encryption.cert, self.tls_cert);
        replace_some(&mut listening.encryption.key, self.tls_key);
        replace(&mut log.format, self.log_format);
        replace(&mut log.filter, self.log_filter);
    }
}

/// Replaces a value by a flag, if the flag was said.
pub fn replace<T>(value: &mut T, flag: Option<T>) {
    if let Some(flag) = flag {
        *value = flag;
    }
}

/// As [`replace`], for a value that may be absent.
pub fn replace_some<T>(value: &mut Option<T>, flag: Option<T>) {
    if flag.is_some() {
        *value = flag;
    }
}
