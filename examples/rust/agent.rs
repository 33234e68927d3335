//! An agent: a scripted model works in a sandbox until it submits. Any other `lis_model::Model` can take its place.
#![expect(clippy::print_stdout, reason = "an example shows its result")]

use std::io;

use lis_agent::{CancellationToken, Episode, EpisodeSettings, Journal, Opening};
use lis_model::{Delta, Listener};
use lis_sandbox::{Runtime, Sandbox, Spec};
use lis_sandbox_native::{NativeOptions, NativeRuntime};
use lis_testkit::{ScriptedModel, bash, submit};
use lis_trajectory::{Event, Message, Started};

/// Prints every event of the episode as a line of JSON.
struct Print;

impl Listener for Print {
    fn on_delta(&self, _: Delta<'_>) {}
}

impl<S> Journal<S> for Print {
    fn record(&self, event: Event) -> io::Result<()> {
        println!("{}", serde_json::to_string(&event)?);
        Ok(())
    }
}

fn main() -> anyhow::Result<()> {
    lis_sandbox_native::init(); // Before any thread exists.
    run()
}

#[tokio::main]
async fn run() -> anyhow::Result<()> {
    let home = std::env::temp_dir().join("lis-example");
    let runtime = NativeRuntime::start(NativeOptions::new(home)).await?;
    let sandbox = runtime.create(&Spec::default()).await?;
    let model = ScriptedModel::new([bash("echo $((6 * 7)) > /testbed/answer.txt"), submit()]);
    let messages = vec![Message::user("Write the product of 6 and 7 to /testbed/answer.txt.")];
    let opening = Opening::Fresh(Box::new(Started { messages, ..Started::default() }));
    let (settings, cancel) = (EpisodeSettings::default(), CancellationToken::new());
    let episode = Episode::new(&model, &sandbox, &Print, &settings, opening, cancel);
    let ended = lis_agent::run(episode).await;
    println!("{:?} after {} turns", ended.outcome, ended.spent.turns);
    sandbox.destroy().await?;
    Ok(())
}
