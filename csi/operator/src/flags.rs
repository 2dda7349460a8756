//! The command line of `berth-csi-operator`. A flag overrides the configuration file.

use std::path::PathBuf;

use berth_process::Faults;
use berth_process::flags::{Identity, replace_some};
use clap::{Parser, Subcommand};

use crate::config::Config;

/// Deploy Berth's volumes of persistent memory into a Kubernetes cluster
///
/// It watches the resources Deployment (pmem-csi.intel.com/v1alpha1), PmemCSIDeployment
/// (pmem-csi.intel.com/v1beta1) and BerthStorage (berth.internal/v1alpha1), and makes the objects of each.
/// Of several operators one is active. The API server is found as kubectl finds it, or as a pod does.
#[derive(Clone, Debug, Parser)]
#[command(name = "berth-csi-operator", version)]
pub struct Flags {
    /// What to do instead of running
    #[command(subcommand)]
    pub command: Option<Command>,
    /// Read the configuration from this TOML file; flags override it
    #[arg(long, value_name = "FILE", global = true)]
    pub config: Option<PathBuf>,
    /// Check the configuration, print what is wrong with it, and end
    #[arg(long)]
    pub check_config: bool,
    /// Deploy with this scheduler what names none; give several separated by commas or by repeating the option
    #[arg(long, value_name = "HOST:PORT", value_delimiter = ',', global = true)]
    pub scheduler: Vec<String>,
    /// Make all objects in this namespace [default: that of the own pod]
    #[arg(long, value_name = "NAME", global = true)]
    pub namespace: Option<String>,
    /// Deploy this image where a resource names none [default: that of the own pod]
    #[arg(long, value_name = "IMAGE", global = true)]
    pub image: Option<String>,
    /// Serve metrics on this address
    #[arg(long, value_name = "HOST:PORT")]
    pub metrics_listen: Option<String>,
    /// How it identifies itself and writes its log.
    #[command(flatten)]
    pub identity: Identity,
}

/// What to do instead of running.
#[derive(Clone, Debug, PartialEq, Eq, Subcommand)]
pub enum Command {
    /// Print manifests in YAML
    ///
    /// Without an option: those that install the operator. With a resource: the objects that the operator
    /// would make for it, without certificates and owner. With a resource and a directory: files that deploy
    /// the resource where there is no operator.
    Manifests {
        /// Print the objects of the resource in this YAML or JSON file
        #[arg(long, value_name = "FILE")]
        resource: Option<PathBuf>,
        /// Write the manifests into files in this directory
        #[arg(long, value_name = "DIRECTORY")]
        directory: Option<PathBuf>,
    },
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
        replace_some(&mut config.namespace, flags.namespace);
        replace_some(&mut config.image, flags.image);
        replace_some(&mut config.metrics_listen, flags.metrics_listen);
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
            "berth-csi-operator",
            "--scheduler=s1:7100,s2:7100",
            "--namespace=storage",
            "--image=berth:1",
            "--metrics-listen=0.0.0.0:7400",
        ];
        let flags = Flags::try_parse_from(arguments).expect("flags");
        assert_eq!(flags.command, None);
        let config = flags.config().expect("a configuration");
        assert_eq!(config.schedulers, ["s1:7100", "s2:7100"]);
        assert_eq!(config.namespace.as_deref(), Some("storage"));
        assert_eq!(config.image.as_deref(), Some("berth:1"));
        assert_eq!(config.metrics_listen.as_deref(), Some("0.0.0.0:7400"));
        let arguments = [
            "berth-csi-operator",
            "manifests",
            "--resource=d.yaml",
            "--namespace=x",
        ];
        let flags = Flags::try_parse_from(arguments).expect("flags");
        let resource = Some(PathBuf::from("d.yaml"));
        let directory = None;
        assert_eq!(
            flags.command,
            Some(Command::Manifests {
                resource,
                directory
            })
        );
        assert_eq!(flags.namespace.as_deref(), Some("x"));
    }
}
