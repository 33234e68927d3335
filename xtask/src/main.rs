//! The developers' front door: prepares a machine, then checks and tests the workspace on it.
//!
//! It knows commands and files only. It links none of the product's crates, so it compiles in seconds
//! and works when they do not.

mod daemon;
mod llama;
mod machine;
mod ordinary_user;
mod places;
mod python;
mod report;
mod results;
mod rootfs;
mod run;
mod setup;
mod test;
mod torch;

use std::process::ExitCode;

const USAGE: &str = "\
usage: cargo xtask COMMAND

  install install what the build needs, then build the program into cargo's directory of programs;
          with --train the program that trains, and libtorch for it
  setup   install what the tests need, fetch a small model and libtorch, make the test root file system
  check   formatting, clippy and unit tests: the fast ones, nothing installed
  test    setup, then every check and every test, as root also once more as an ordinary user
  ci      the same as test

Files that are made once live in $LIS_CACHE, else $XDG_CACHE_HOME/llm-in-sandbox, else
~/.cache/llm-in-sandbox; builds go to $CARGO_TARGET_DIR, else to `target` in there. Where $LIBTORCH names a
PyTorch 2.11.0, that one is used. Without any, `check` leaves out the crates that train.
";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let command: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let done = places::Places::find().and_then(|places| match command[..] {
        ["install"] => setup::install(&places).map(|()| ExitCode::SUCCESS),
        ["install", "--train"] => setup::install_training(&places).map(|()| ExitCode::SUCCESS),
        ["setup"] => setup::setup(&places).map(|()| ExitCode::SUCCESS),
        ["check"] => Ok(test::check(&places)),
        ["test" | "ci"] => test::test(&places),
        ["help" | "--help" | "-h"] => {
            eprint!("{USAGE}");
            Ok(ExitCode::SUCCESS)
        }
        _ => {
            eprint!("{USAGE}");
            Ok(ExitCode::from(2))
        }
    });
    done.unwrap_or_else(|error| {
        eprintln!("error: {error:#}");
        ExitCode::FAILURE
    })
}
