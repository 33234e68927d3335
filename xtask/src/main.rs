//! The developers' entry point: prepares a machine, then checks and tests the workspace on it.
//!
//! It knows commands and files only. It links no crate of the product, so it compiles in seconds and works
//! when they do not.

mod attack;
mod daemon;
mod docs;
mod download;
mod frameworks;
mod llama;
mod machine;
mod npm;
mod ordinary_user;
mod paths;
mod python;
mod python_package;
mod reference;
mod report;
mod results;
mod rootfs;
mod run;
mod setup;
mod siege;
mod test;
mod torch;
mod vm;
mod web;
mod wheel;

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
  siege    64 sandboxes at once, half of them attacking, 200 kills at random moments, and 50 of a server; as root also as an
           ordinary user; takes most of an hour. $LIS_SIEGE, $LIS_KILL_ROUNDS and $LIS_SEED choose other numbers
  vm       the tests of native sandboxes in a virtual machine with control groups of version 2 and project quotas; all, or
           some of: root, user (delegated groups), subids (the same with subordinate users), ext4, xfs (quotas)
  wheel    build the Python package; --profile dev for tests, --out DIR for another directory than `wheels` in the builds
  python   test the Python package with the machine's Python; --all: in new environments of Python 3.10, 3.12 and 3.13, with
           type checkers and the reference package on Docker; --rounds N: only the ends of its processes, so many times;
           --wheel FILE: this wheel instead of one built for tests
  frameworks
           test the adapters of the Python package for other frameworks, with their examples
  perf-python
           measure the Python package, a release build: sandboxes beside the reference package on Docker (at least 50 times as
           fast), calls (at most 100 us over Rust), threads, asyncio and multiprocessing without a failure; fails where a bound
           is missed; --json prints one object, --wheel FILE measures this wheel
  reference
           install the reference package and record its results on Docker, with which the tests of the Python package
           compare
  web      build the page into `web/dist`; with --check see whether that is up to date, with --test try the page in a
           browser
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
        ["wheel", ref arguments @ ..] => {
            wheel::wheel(&paths, arguments).map(|()| ExitCode::SUCCESS)
        }
        ["python", ref arguments @ ..] => python_package::test(&paths, arguments),
        ["frameworks"] => frameworks::test(&paths).map(|()| ExitCode::SUCCESS),
        ["perf-python", ref arguments @ ..] => {
            python_package::perf(&paths, arguments).map(|()| ExitCode::SUCCESS)
        }
        ["reference"] => reference::record(&paths).map(|()| ExitCode::SUCCESS),
        ["web"] => web::build(&paths).map(|()| ExitCode::SUCCESS),
        ["web", "--check"] => web::check(&paths).map(|()| ExitCode::SUCCESS),
        ["web", "--test"] => {
            web::test(&paths, web::program(&paths).as_deref()).map(|()| ExitCode::SUCCESS)
        }
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
