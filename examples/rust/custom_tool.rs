//! A tool of your own beside the built-in ones: the model calls it, Rust code on the host answers.
#![expect(clippy::print_stdout, reason = "an example shows its result")]

use std::io;

use lis_agent::{
    CancellationToken, Episode, EpisodeSettings, Journal, Observation, Opening, Tool, ToolFuture,
};
use lis_model::{Delta, Listener, ToolSpec};
use lis_sandbox::{Runtime, Sandbox, Spec};
use lis_sandbox_native::{NativeOptions, NativeRuntime};
use lis_testkit::{Call, ScriptedModel, calls, submit};
use lis_trajectory::{Event, Message, Started};
use serde_json::{Map, Value, json};

/// Looks up the price of an item in a table that the sandbox cannot see.
struct Price;

impl<S: Sandbox> Tool<S> for Price {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: "price".into(),
            description: "Returns the price of an item in euros.".into(),
            parameters: json!({
                "type": "object",
                "properties": { "item": { "type": "string" } },
                "required": ["item"],
            }),
        }
    }

    fn call<'a>(&'a self, arguments: &'a Map<String, Value>, _: &'a S) -> ToolFuture<'a> {
        Box::pin(async move {
            Ok(match arguments.get("item").and_then(Value::as_str) {
                Some("lamp") => Observation::text("19.90").into(),
                Some(item) => Observation::error(format!("unknown item `{item}`")).into(),
                None => Observation::error("argument `item` is missing").into(),
            })
        })
    }
}

/// Prints what the model sees.
struct Print;

impl Listener for Print {
    fn on_delta(&self, _: Delta<'_>) {}
}

impl<S> Journal<S> for Print {
    fn record(&self, event: Event) -> io::Result<()> {
        if let Event::Observed(observed) = event {
            println!("{}", serde_json::to_string(&observed.message)?);
        }
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
    let model =
        ScriptedModel::new([calls([Call::new("price", json!({ "item": "lamp" }))]), submit()]);
    let messages = vec![Message::user("What does a lamp cost?")];
    let opening = Opening::Fresh(Box::new(Started { messages, ..Started::default() }));
    let (settings, cancel) = (EpisodeSettings::default(), CancellationToken::new());
    let episode = Episode::new(&model, &sandbox, &Print, &settings, opening, cancel);
    let ended = lis_agent::run(episode.with_tools(&[&Price])).await;
    println!("{:?}", ended.outcome);
    sandbox.destroy().await?;
    Ok(())
}
