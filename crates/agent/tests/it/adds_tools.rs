//! A library user adds a tool to the built-in ones, or replaces one of them.

use lis_agent::{
    CancellationToken, Episode, EpisodeSettings, Observation, Tool, ToolFuture, ToolOutcome,
};
use model::ToolSpec;
use sandbox::{Sandbox, Spec};
use serde_json::{Map, Value, json};
use testkit::{Call, ScriptedModel, calls};
use trajectory::{Event, Outcome};

use crate::{
    plays_episodes::{Memory, fresh, texts},
    sandboxes::with_sandbox,
};

fn spec(name: &str) -> ToolSpec {
    let parameters = json!({"type": "object", "properties": {"path": {"type": "string"}}});
    ToolSpec { name: name.into(), description: "A tool of the test.".into(), parameters }
}

/// Counts the entries of a directory in the sandbox.
struct CountEntries;

impl<S: Sandbox> Tool<S> for CountEntries {
    fn spec(&self) -> ToolSpec {
        spec("count_entries")
    }

    fn call<'a>(&'a self, arguments: &'a Map<String, Value>, sandbox: &'a S) -> ToolFuture<'a> {
        Box::pin(async move {
            let Some(path) = arguments.get("path").and_then(Value::as_str) else {
                return Ok(ToolOutcome::Refused(Observation::error("no path")));
            };
            let entries = sandbox.list(path.as_ref()).await?;
            Ok(Observation::text(format!("{} entries", entries.len())).into())
        })
    }
}

/// Accepts any submission that has a reason.
struct Submit;

impl<S: Sandbox> Tool<S> for Submit {
    fn spec(&self) -> ToolSpec {
        spec("submit")
    }

    fn call<'a>(&'a self, arguments: &'a Map<String, Value>, _: &'a S) -> ToolFuture<'a> {
        Box::pin(async move {
            Ok(match arguments.contains_key("reason") {
                true => ToolOutcome::Submitted,
                false => Observation::text("why?").into(),
            })
        })
    }
}

#[test]
fn a_custom_tool_is_offered_and_called() {
    with_sandbox(&Spec::default(), async |hand| {
        hand.write("/testbed/data/one", b"1").await;
        let script = [
            ("count_entries", json!({"path": "/testbed/data"})),
            ("count_entries", json!({})),
            ("count", json!({})),
            ("execute_bash", json!({"command": "true"})),
            ("submit", json!({})),
            ("submit", json!({"reason": "done"})),
        ];
        let model = ScriptedModel::new(script.map(|(name, map)| calls([Call::new(name, map)])));
        let (journal, settings) = (Memory::new(), EpisodeSettings::default());
        let cancel = CancellationToken::new();
        let episode = Episode::new(&model, &hand.sandbox, &journal, &settings, fresh(), cancel)
            .with_tools(&[&CountEntries, &Submit]);
        assert_eq!(lis_agent::run(episode).await.outcome, Outcome::Submitted);
        let seen: Vec<String> = journal
            .events()
            .iter()
            .filter_map(|event| match event {
                Event::Observed(observed) => Some(texts(&observed.message)),
                _ => None,
            })
            .collect();
        let names = "execute_bash, str_replace_editor, count_entries and submit";
        for (seen, expected) in seen.iter().zip([
            "1 entries",
            "no path",
            &format!("There is no tool `count` here. The tools are {names}."),
            "[exit code 0]",
            "why?",
            "submitted",
        ]) {
            assert!(seen.starts_with(expected), "{seen}");
        }
        assert_eq!(seen.len(), 6);
    });
}
