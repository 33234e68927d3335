//! The developers' entry point: prepares a machine, then checks and tests the workspace on it.
//!
//! It knows commands and files only. It links no crate of the product, so it compiles in seconds and works
//! when they do not.

mod attack;
mod daemon;
mod docs;
mod llama;
mod machine;
mod npm;
mod ordinary_user;
mod paths;
mod python;
mod report;
mod results;
mod rootfs;
mod run;
mod setup;
mod siege;
mod test;
mod torch;
mod vm;

use std::process::ExitCode;

const USAGE: &str = "\
usage: cargo xtask COMMAND

  install  install what the build needs, then the program into ~/.cargo/bin;
           with --train the program that trains, and libtorch for it
  setup    install what the tests need: packages, libtorch, small models, a root file system
  check    formatting, clippy, unit tests, architecture rules; nothing installed, a few minutes
  test     setup, then every check and every test; as root, some tests again as an ordinary user
  ci       the same as test
  attack   attack sandboxes on this machine, as root also as an ordinary user, and containers where there is a dockerd;
           prints what was tried and how it ended
  siege    64 sandboxes at once, half of them attacking, and 200 kills at random moments; as root also as an ordinary
           user; takes half an hour. $LIS_SIEGE, $LIS_KILL_ROUNDS and $LIS_SEED choose other numbers
  vm       the tests of native sandboxes in a virtual machine with control groups of version 2 and project quotas; all, or
           some of: root, user (delegated groups), subids (the same with subordinate users), ext4, xfs (quotas)
  docs     regenerate the generated pages, build the API documentation and print its address

Downloads are kept in $LIS_CACHE (default: $XDG_CACHE_HOME/llm-in-sandbox or ~/.cache/llm-in-sandbox), builds in
$CARGO_TARGET_DIR (default: `target` in that directory). $LIBTORCH may name a PyTorch 2.11.0 to use. Without libtorch,
`check` and `docs` leave out the crates that train.
";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let command: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let result = paths::Paths::find().and_then(|paths| match command[..] {
        ["install"] => setup::install(&paths).map(|()| ExitCode::SUCCESS),
        ["install", "--train"] => setup::install_training(&paths).map(|()| ExitCode::SUCCESS),
        ["setup"] => setup::setup(&paths).map(|()| ExitCode::SUCCESS),
        ["check"] => Ok(test::check(&paths)),
        ["test" | "ci"] => test::test(&paths),
        ["attack"] => attack::attack(&paths),
        ["siege"] => siege::siege(&paths).map(|()| ExitCode::SUCCESS),
        ["vm", ref runs @ ..] => vm::vm(&paths, runs),
        ["docs"] => docs::docs(&paths).map(|()| ExitCode::SUCCESS),
        ["help" | "--help" | "-h"] => {
            eprint!("{USAGE}");
            Ok(ExitCode::SUCCESS)
        }
        _ => {
            eprint!("{USAGE}");
            Ok(ExitCode::from(2))
        }
    });
    result.unwrap_or_else(|error| {
        eprintln!("error: {error:#}");
        ExitCode::FAILURE
    })
}
