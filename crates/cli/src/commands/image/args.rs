//! The arguments of `image …`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

/// Subcommands of `image`.
#[derive(Debug, Subcommand)]
pub(crate) enum ImageCommand {
    /// List stored images
    #[command(after_help = "Examples:
  llm-in-sandbox image list
  llm-in-sandbox image list --json | jq -r '.[].name'

The built-in image `host` is always available and not listed.")]
    List {
        /// Print one JSON array
        #[arg(long)]
        json: bool,
    },
    /// Pull an image from a registry and verify its digests
    #[command(after_help = "Examples:
  llm-in-sandbox image pull debian:12
  llm-in-sandbox image pull localhost:5000/team/tool:1
  echo $TOKEN | llm-in-sandbox image pull --username me --password-stdin registry.example.com/tool

An interrupted pull is resumed. The image is stored under its reference.")]
    Pull(PullArgs),
    /// Import an archive or a directory as an image
    #[command(after_help = "Examples:
  docker save python:3.12 -o python.tar && llm-in-sandbox image import python.tar python:3.12
  llm-in-sandbox image import rootfs.tar.gz mine
  llm-in-sandbox image import ./rootfs mine

An archive is the output of `docker save`, an OCI layout or a root file system, plain or compressed
with gzip or zstd.")]
    Import {
        /// Archive or directory
        #[arg(value_name = "FILE.tar|DIR")]
        source: PathBuf,
        /// Name of the image
        name: String,
        /// Print the image as one JSON object
        #[arg(long)]
        json: bool,
    },
    /// Build the base image: Debian with Python, build tools and scientific packages
    #[command(after_help = "Examples:
  llm-in-sandbox image build
  llm-in-sandbox image build mine
  llm-in-sandbox sandbox run --image base -- python3 -c 'import scipy'

Packages come from this machine's apt sources, through mmdebstrap (apt-get install mmdebstrap).")]
    Build {
        /// Name of the image
        #[arg(default_value = "base")]
        name: String,
        /// Print the image as one JSON object
        #[arg(long)]
        json: bool,
    },
    /// Remove an image and the layers no other image uses
    #[command(after_help = "Example:
  llm-in-sandbox image rm base")]
    Rm {
        /// Name of the image
        name: String,
    },
    /// Remove unused layers, partial downloads and remains of crashed commands
    #[command(after_help = "Example:
  llm-in-sandbox image prune")]
    Prune {
        /// Print what was removed as one JSON object
        #[arg(long)]
        json: bool,
    },
}

/// Options of `image pull`.
#[derive(Debug, Args)]
pub(crate) struct PullArgs {
    /// Image: `NAME[:TAG]` or `HOST[:PORT]/NAME[:TAG|@DIGEST]`
    #[arg(value_name = "REF")]
    pub(crate) reference: String,
    /// Allow plain HTTP; not needed for localhost
    #[arg(long)]
    pub(crate) insecure: bool,
    /// Registry user name
    #[arg(long, value_name = "NAME", requires = "password_stdin")]
    pub(crate) username: Option<String>,
    /// Read the password or token from standard input
    #[arg(long, requires = "username")]
    pub(crate) password_stdin: bool,
    /// Print the image as one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}
