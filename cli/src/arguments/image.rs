//! Arguments of `berth image`.

use std::path::PathBuf;

use berth_domain::image::Sha256;
use berth_domain::vm::DiskFormat;
use clap::{ArgGroup, Args, Subcommand, ValueEnum};

use super::{InProject, key_value};

/// Verbs of images.
#[derive(Debug, Subcommand)]
pub enum Image {
    /// Add an image from a file, from standard input, from a URL or from a host's image directory
    Add(ImageAdd),
    /// List all images
    List,
    /// Show an image, the hosts that have it and how many VMs do
    Show {
        /// Name of the image
        image: String,
    },
    /// Copy an image to hosts before VMs need it there
    #[command(after_help = "\
A host fetches an image by itself when the first VM that is made from it starts
there. Copy it beforehand where the first boot must not wait, and so that it
is not lost with a single host.

Example: on two hosts; on all:
  berth image copy debian-12 h1 h2
  berth image copy debian-12 --all")]
    #[command(group = ArgGroup::new("where").required(true).args(["hosts", "all"]))]
    Copy {
        /// Name of the image
        image: String,
        /// Names of the hosts
        #[arg(value_name = "HOST")]
        hosts: Vec<String>,
        /// Copy it to all hosts that are UP and run VMs
        #[arg(long)]
        all: bool,
    },
    /// Remove an image that no VM has
    #[command(after_help = "\
The image is forgotten at once. Its hosts delete their files after
image_retention_ms of their agents, an hour unless set otherwise.")]
    Remove {
        /// Name of the image
        image: String,
    },
}

/// Arguments of `berth image add`.
#[derive(Debug, Args)]
#[command(after_help = "\
Example: add a file and boot from it, on whichever host:
  berth image add debian-12 --file debian-12-generic-amd64.qcow2
  berth vm create web --flavor small --disk debian-12:4

Example: a host downloads it, and compares it with the publisher's checksum:
  berth image add debian-12 --url https://example.org/d12.qcow2 --sha256 HEX

Example: from a server that the hosts do not reach, or with a password:
  curl -fsSL https://example.org/debian-12.qcow2 |
      berth image add debian-12 --file - --format qcow2 --sha256 HEX

Example: a snapshot, so that other hosts can boot from it:
  berth vm snapshot web golden.qcow2
  berth image add golden --host h1 --host-file golden.qcow2

The format is never determined from the file. Without --format it follows from
the name of the file: qcow2 if that ends with .qcow2, else raw. The image is
refused if it is not what it is declared to be.")]
#[command(group = ArgGroup::new("source").required(true).args(["file", "url", "host_file"]))]
pub struct ImageAdd {
    /// Name of the image
    pub image: String,
    /// File with the image, or `-` for standard input
    #[arg(long, value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// URL that a host downloads it from, with https or http
    #[arg(long, value_name = "URL")]
    pub url: Option<String>,
    /// File in the image directory of --host
    #[arg(long, value_name = "FILE", requires = "host")]
    pub host_file: Option<String>,
    /// Name of the host that has it first (default: one that is UP)
    #[arg(long)]
    pub host: Option<String>,
    /// Format of the file
    #[arg(long)]
    pub format: Option<ImageFormat>,
    /// SHA-256 that the file must have, in hexadecimal digits
    #[arg(long, value_name = "HEX")]
    pub sha256: Option<Sha256>,
    /// Property of VMs made from it, such as hw_cpu_policy=dedicated (repeatable)
    #[arg(long = "image-property", value_name = "KEY=VALUE", value_parser = key_value)]
    pub properties: Vec<(String, String)>,
    /// The project that it belongs to
    #[command(flatten)]
    pub project: InProject,
}

/// The format of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ImageFormat {
    /// QEMU's copy-on-write format
    Qcow2,
    /// Plain bytes
    Raw,
}

impl From<ImageFormat> for DiskFormat {
    fn from(format: ImageFormat) -> Self {
        match format {
            ImageFormat::Qcow2 => Self::Qcow2,
            ImageFormat::Raw => Self::Raw,
        }
    }
}
