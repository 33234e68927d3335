//! The arguments of `image …`.

use std::path::PathBuf;

use clap::{Arg, ArgAction, ArgMatches, Args, FromArgMatches, Subcommand};

use super::step::{self, Step};

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
  echo $TOKEN | llm-in-sandbox image pull registry.example.com/tool \\
      --username me --password-stdin

An interrupted pull is resumed. The image is stored under its reference.")]
    Pull(PullArgs),
    /// Import an archive or a directory as an image
    #[command(after_help = "Examples:
  docker save python:3.12 -o python.tar \\
      && llm-in-sandbox image import python.tar python:3.12
  llm-in-sandbox image import rootfs.tar.gz mine
  llm-in-sandbox image import ./rootfs mine

An archive is the output of `docker save`, an OCI layout or a root file system,
plain or compressed with gzip or zstd. A directory must have bin/sh.")]
    Import(ImportArgs),
    /// Build an image: the recipe `base` or `science`, or an image with packages and commands added
    #[command(after_help = "Examples:
  llm-in-sandbox image build
  llm-in-sandbox image build science
  llm-in-sandbox image build plots --add graphviz --pip plotly kaleido
  llm-in-sandbox image build mine --from debian:12 --add python3 git \\
      --run 'git clone https://example.com/tool /opt/tool'

base: Debian with Python, build tools and scientific packages, made by
mmdebstrap (apt-get install mmdebstrap) from this machine's apt sources.
science: base with RDKit, Biopython, FFmpeg and pypdf.
Steps run in the order given, each in a sandbox with this machine's network.
Each becomes a layer, which is taken from the cache if it ran before on the same
image.")]
    Build(BuildArgs),
    /// Remove images and the layers no other image uses
    #[command(after_help = "Examples:
  llm-in-sandbox image rm base
  llm-in-sandbox image rm plots mine")]
    Rm {
        /// Names of the images
        #[arg(value_name = "NAME", required = true)]
        names: Vec<String>,
        /// Print what was removed as one JSON object
        #[arg(long)]
        json: bool,
    },
    /// Remove unused layers, cached build steps, partial downloads and remains of crashed commands
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

/// Options of `image import`.
#[derive(Debug, Args)]
pub(crate) struct ImportArgs {
    /// Archive or directory
    #[arg(value_name = "FILE.tar|DIR")]
    pub(crate) source: PathBuf,
    /// Name of the image
    pub(crate) name: String,
    /// Import a directory even if it does not look like a root file system
    #[arg(long)]
    pub(crate) force: bool,
    /// Print the image as one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

/// Options of `image build`.
#[derive(Debug, Args)]
pub(crate) struct BuildArgs {
    /// Name of the image; without steps, the recipe: `base` or `science` [default: base]
    pub(crate) name: Option<String>,
    /// Image to build on: `host` or a name [default: base, which is built if missing]
    #[arg(long, value_name = "NAME")]
    pub(crate) from: Option<String>,
    #[command(flatten)]
    pub(crate) steps: StepArgs,
    /// Run every step again, with the packages of today
    #[arg(long, alias = "force")]
    pub(crate) no_cache: bool,
    /// Print the image and its steps as one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

/// The steps of a build, in the order in which they were given.
#[derive(Clone, Debug, Default)]
pub(crate) struct StepArgs(pub(crate) Vec<Step>);

const ADD: &str = "add";
const PIP: &str = "pip";
const RUN: &str = "run";

impl Args for StepArgs {
    fn augment_args(command: clap::Command) -> clap::Command {
        let option = |name: &'static str, value: &'static str, help: &'static str| {
            Arg::new(name)
                .long(name)
                .value_name(value)
                .help(help)
                .action(ArgAction::Append)
                .num_args(1..)
        };
        command
            .arg(
                option(ADD, "PKG", "Install Debian packages; repeatable")
                    .value_parser(step::debian_package),
            )
            .arg(
                option(PIP, "PKG", "Install Python packages with pip; repeatable")
                    .value_parser(step::requirement),
            )
            .arg(
                option(RUN, "CMD", "Run a shell command, each as one step; repeatable")
                    .value_parser(step::command),
            )
    }

    fn augment_args_for_update(command: clap::Command) -> clap::Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for StepArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut placed: Vec<(usize, Step)> = Vec::new();
        for option in [ADD, PIP, RUN] {
            // The indices are those of all values, not of the occurrences.
            let mut indices = matches.indices_of(option).into_iter().flatten();
            for values in matches.get_occurrences::<String>(option).into_iter().flatten() {
                let (values, at): (Vec<String>, Vec<usize>) =
                    values.cloned().zip(indices.by_ref()).unzip();
                let first = at.first().copied().unwrap_or_default();
                match option {
                    ADD => placed.push((first, Step::Add(values))),
                    PIP => placed.push((first, Step::Pip(values))),
                    _ => placed.extend(at.into_iter().zip(values.into_iter().map(Step::Run))),
                }
            }
        }
        placed.sort_by_key(|(index, _)| *index);
        Ok(Self(placed.into_iter().map(|(_, step)| step).collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::commands::{Cli, Command};

    fn build(options: &[&str]) -> Result<BuildArgs, clap::Error> {
        let line = ["x", "image", "build"].iter().chain(options);
        match Cli::try_parse_from(line)?.command {
            Command::Image(ImageCommand::Build(args)) => Ok(args),
            _ => panic!("another command"),
        }
    }

    #[test]
    fn steps_keep_their_order() {
        let args = build(&[
            "mine", "--run", "a", "b", "--add", "p", "q", "--pip", "r==1", "--run", "c", "--add",
            "s",
        ])
        .unwrap();
        let words = |words: &[&str]| words.iter().map(ToString::to_string).collect();
        assert_eq!(
            args.steps.0,
            [
                Step::Run("a".into()),
                Step::Run("b".into()),
                Step::Add(words(&["p", "q"])),
                Step::Pip(words(&["r==1"])),
                Step::Run("c".into()),
                Step::Add(words(&["s"])),
            ]
        );
        assert_eq!((args.name.as_deref(), args.from), (Some("mine"), None));
    }

    #[test]
    fn values_that_look_like_options_are_refused() {
        assert!(build(&["mine", "--add", "-o"]).is_err());
        assert!(build(&["mine", "--add", "a b"]).is_err());
        assert!(build(&["mine", "--add"]).is_err());
    }
}
