//! The command line of `berth-csi-controller`. A flag overrides the configuration file.

use std::path::PathBuf;

use berth_process::Faults;
use berth_process::flags::{Identity, replace, replace_some};
use clap::Parser;

use crate::config::Config;
use crate::kubernetes;

/// Run a controller of persistent-memory volumes
///
/// It serves the Container Storage Interface to a provisioner beside it. Any number of controllers
/// can run beside each other; they keep no state.
#[derive(Clone, Debug, Parser)]
#[command(name = "berth-csi-controller", version)]
pub struct Flags {
    /// Read the configuration from this TOML file; flags override it
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Check the configuration, print what is wrong with it, and end
    #[arg(long)]
    pub check_config: bool,
    /// Serve the Container Storage Interface on this Unix socket [default: unix:///run/berth/csi-controller/csi.sock]
    #[arg(long, value_name = "ENDPOINT")]
    pub csi_endpoint: Option<String>,
    /// Connect to this scheduler; give several separated by commas or by repeating the option [default: 127.0.0.1:7100]
    #[arg(long, value_name = "HOST:PORT", value_delimiter = ',')]
    pub scheduler: Vec<String>,
    /// Store the learnt schedulers in this directory over restarts [default: in memory only]
    #[arg(long, value_name = "DIRECTORY")]
    pub data_dir: Option<PathBuf>,
    /// Register the CSI driver under this name [default: pmem-csi.intel.com]
    #[arg(long, value_name = "NAME")]
    pub driver_name: Option<String>,
    /// Serve metrics and health over HTTP on this address
    #[arg(long, value_name = "HOST:PORT")]
    pub metrics_listen: Option<String>,
    /// The extender and the webhook.
    #[command(flatten)]
    pub kubernetes: kubernetes::Flags,
    /// How it identifies itself and writes its log.
    #[command(flatten)]
    pub identity: Identity,
}

impl Flags {
    /// Returns the configuration that file and flags give together.
    ///
    /// # Errors
    ///
    /// Everything that is wrong with it.
    pub fn config(&self) -> Result<Config, Faults> {
        Config::load(self.config.as_deref(), |config| self.apply(config))
    }

    fn apply(&self, config: &mut Config) {
        let flags = self.clone();
        if !flags.scheduler.is_empty() {
            config.schedulers = flags.scheduler;
        }
        replace_some(&mut config.data_dir, flags.data_dir);
        replace_some(&mut config.metrics_listen, flags.metrics_listen);
        replace(&mut config.csi_endpoint, flags.csi_endpoint);
        replace(&mut config.driver_name, flags.driver_name);
        flags.kubernetes.apply(&mut config.kubernetes);
        let identity = flags.identity;
        identity.apply(&mut config.encryption, &mut config.log);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: the command line is sound as a whole, and its flags go where they belong.
    #[test]
    fn flags_go_before_the_file() {
        let arguments = [
            "berth-csi-controller",
            "--kubernetes-listen=0.0.0.0:8000",
            "--kubernetes-certificate=/c",
            "--kubernetes-key=/k",
            "--driver-name=d.example",
        ];
        let config = Flags::try_parse_from(arguments).unwrap().config().unwrap();
        assert_eq!(config.driver_name, "d.example");
        let options = config.kubernetes;
        assert_eq!(options.listen.as_deref(), Some("0.0.0.0:8000"));
        assert_eq!(options.certificate, PathBuf::from("/c"));
        assert_eq!(options.key, PathBuf::from("/k"));
    }
}
