//! A sandbox: create it, run a command, read the output, destroy it.
#![expect(clippy::print_stdout, reason = "an example shows its result")]

use lis_sandbox::{Runtime, Sandbox, ShellCommand, Spec};
use lis_sandbox_native::{NativeOptions, NativeRuntime};

fn main() -> anyhow::Result<()> {
    lis_sandbox_native::init(); // Before any thread exists.
    run()
}

#[tokio::main]
async fn run() -> anyhow::Result<()> {
    let home = std::env::temp_dir().join("lis-example");
    let runtime = NativeRuntime::start(NativeOptions::new(home)).await?;
    let sandbox = runtime.create(&Spec::default()).await?;
    let output = sandbox.shell(&ShellCommand::new("whoami; hostname; seq 3 | paste -sd+")).await?;
    println!("{}exit code {}", output.stdout.text(), output.status.code());
    sandbox.destroy().await?;
    Ok(())
}
