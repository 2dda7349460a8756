//! The flags that every server has. A flag overrides the configuration file.

use std::path::PathBuf;

use crate::encryption::Encryption;
use crate::listening::Listening;
use crate::log::{Log, LogFormat};

/// The flags that every server has.
#[derive(Clone, Debug, clap::Args)]
pub struct Common {
    /// Read the configuration from this TOML file; flags override it
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Check the configuration, print what is wrong with it, and end
    #[arg(long)]
    pub check_config: bool,
    /// Advertise this address for other programs to dial, if it differs from the listening address
    #[arg(long, value_name = "HOST:PORT")]
    pub advertise: Option<String>,
    /// Serve metrics and health over HTTP on this address
    #[arg(long, value_name = "HOST:PORT")]
    pub metrics_listen: Option<String>,
    /// Allow listening on addresses other than loopback without TLS
    #[arg(long)]
    pub insecure_listen: bool,
    /// How it identifies itself and writes its log.
    #[command(flatten)]
    pub identity: Identity,
}

/// How a program identifies itself to others, and writes its log.
#[derive(Clone, Debug, clap::Args)]
pub struct Identity {
    /// Trust the certificate authorities in this PEM file; together with --tls-cert and --tls-key
    /// it turns on mutual TLS for all connections
    #[arg(long, value_name = "FILE")]
    pub tls_ca: Option<PathBuf>,
    /// Identify this program by the certificate in this PEM file
    #[arg(long, value_name = "FILE")]
    pub tls_cert: Option<PathBuf>,
    /// Read the private key of the certificate from this PEM file
    #[arg(long, value_name = "FILE")]
    pub tls_key: Option<PathBuf>,
    /// Write log lines in this format
    #[arg(long, value_name = "FORMAT", value_enum)]
    pub log_format: Option<LogFormat>,
    /// Write only the log lines that match this filter, for example info,berth_proto=debug
    #[arg(long, value_name = "FILTER")]
    pub log_filter: Option<String>,
}

impl Common {
    /// Overrides the values of the file by the flags that are set.
    pub fn apply(self, listening: &mut Listening, log: &mut Log) {
        listening.insecure |= self.insecure_listen;
        replace_some(&mut listening.advertise, self.advertise);
        replace_some(&mut listening.metrics, self.metrics_listen);
        self.identity.apply(&mut listening.encryption, log);
    }
}

impl Identity {
    /// Overrides the values of the file by the flags that are set.
    pub fn apply(self, encryption: &mut Encryption, log: &mut Log) {
        replace_some(&mut encryption.ca, self.tls_ca);
        replace_some(&mut encryption.cert, self.tls_cert);
        replace_some(&mut encryption.key, self.tls_key);
        replace(&mut log.format, self.log_format);
        replace(&mut log.filter, self.log_filter);
    }
}

/// Replaces a value by a flag, if the flag is set.
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
