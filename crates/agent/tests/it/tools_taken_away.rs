//! A model without commands, or without files: its note, its tools, and where its answer is.

use std::{
    io,
    path::Path,
    sync::{Mutex, PoisonError},
};

use lis_agent::{
    CancellationToken, Episode, EpisodeSettings, Journal, Opening,
    tools::{MAX_ANSWER, ToolOutcome, ToolSet, Tools, submitted_answer},
};
use model::{Delta, Listener};
use sandbox::{Sandbox, Spec};
use sandbox_native::NativeSandbox;
use serde_json::{Value, json};
use testkit::{Call, ScriptedModel, bash, calls, submit};
use trajectory::{Event, Line, Message, Outcome, Started};

use crate::sandboxes::{Hand, text, with_sandbox};

/// A journal in memory, with lines like those of a file.
#[derive(Default)]
struct Lines(Mutex<String>);

impl Lines {
    fn read(&self) -> Vec<Line> {
        trajectory::read(&self.0.lock().unwrap_or_else(PoisonError::into_inner)).unwrap()
    }
}

impl Listener for Lines {
    fn on_delta(&self, _: Delta<'_>) {}
}

impl Journal<NativeSandbox> for Lines {
    fn record(&self, event: Event) -> io::Result<()> {
        let line = serde_json::to_string(&Line::new(0, event))?;
        let mut lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        lines.push_str(&line);
        lines.push('\n');
        Ok(())
    }
}

/// Runs an episode with these tools and the working directory as output directory.
async fn play(hand: &Hand, set: ToolSet, model: &ScriptedModel) -> (Outcome, Vec<Line>) {
    let tools = Tools { set, ..Tools::default() };
    let output_dir = Some(tools.workdir.clone());
    let settings = EpisodeSettings { tools, output_dir, ..EpisodeSettings::default() };
    let opening = Opening::Fresh(Box::new(Started {
        problem_statement: "Do it".into(),
        messages: vec![Message::user("Do it")],
        model: "scripted".into(),
        settings: Value::Null,
        protection: Value::Null,
        program: String::new(),
    }));
    let journal = Lines::default();
    let cancel = CancellationToken::new();
    let episode = Episode::new(model, &hand.sandbox, &journal, &settings, opening, cancel);
    let ended = lis_agent::run(episode).await;
    (ended.outcome, journal.read())
}

fn names(specs: &[model::ToolSpec]) -> Vec<&str> {
    specs.iter().map(|spec| spec.name.as_str()).collect()
}

/// The last message of a request to the model.
fn last_message(asked: &testkit::RecordedRequest) -> String {
    let content = match asked.messages.last() {
        Some(Message::User { content }) => content,
        Some(Message::Tool(result)) => &result.content,
        other => panic!("{other:?}"),
    };
    content.iter().filter_map(|part| part.as_text()).collect()
}

#[test]
fn without_execution_no_command_runs() {
    with_sandbox(&Spec::default(), async |mut hand| {
        // The control: with all tools the same call leaves a file.
        let run = json!({"command": "touch /testbed/ran"});
        hand.observe("execute_bash", run.clone()).await;
        assert_eq!(
            hand.bash("rm /testbed/ran && echo removed").await,
            "[exit code 0]\n[stdout]\nremoved"
        );

        hand.tools.set = ToolSet::WithoutExecution;
        assert_eq!(names(&hand.tools.specs()), ["str_replace_editor", "submit"]);
        let ToolOutcome::Refused(seen) = hand.call("execute_bash", run).await else {
            panic!("it ran")
        };
        assert!(seen.is_error && seen.exit_code.is_none());
        let why =
            "There is no tool `execute_bash` here. The tools are str_replace_editor and submit.";
        assert_eq!(text(&seen), why);
        hand.edit(json!({"command": "create", "path": "/testbed/f", "file_text": "x"})).await;
        assert_eq!(hand.read("/testbed/f").await, b"x");
        assert_eq!(hand.sandbox.list(Path::new("/testbed")).await.unwrap().len(), 1);
        assert_eq!(hand.call("submit", json!({})).await, ToolOutcome::Submitted);
    });
}

#[test]
fn without_files_the_answer_is_submitted() {
    with_sandbox(&Spec::default(), async |mut hand| {
        hand.write("/testbed/data", b"17\n").await;
        hand.sandbox.freeze().await.unwrap();
        hand.tools.set = ToolSet::WithoutFiles;
        let specs = hand.tools.specs();
        assert_eq!(names(&specs), ["execute_bash", "submit"]);
        assert_eq!(specs[1].parameters["required"], json!(["answer"]));
        assert!(!specs[0].description.contains("job.log"), "{}", specs[0].description);
        assert_eq!(hand.bash("cat data").await, "[exit code 0]\n[stdout]\n17");
        let edit = json!({"command": "view", "path": "/testbed/data"});
        let ToolOutcome::Refused(seen) = hand.call("str_replace_editor", edit).await else {
            panic!()
        };
        assert!(text(&seen).ends_with("The tools are execute_bash and submit."), "{seen:?}");
        for (given, why) in [
            (json!({}), "`answer` is missing (given: none)"),
            (json!({"answer": null}), "`answer` is missing"),
            (json!({"answer": 42}), "must be a string, not a number"),
            (json!({"answer": ["4", "2"]}), "must be a string, not an array"),
            (json!({"answer": " \n "}), "is empty"),
            (json!({"answer": "x".repeat(10_000_000)}), "has 10000000 bytes"),
            (json!({"answer": "ü".repeat(MAX_ANSWER / 2 + 1)}), "has 1048578 bytes"),
        ] {
            let ToolOutcome::Refused(seen) = hand.call("submit", given).await else {
                panic!("{why}")
            };
            let error = text(&seen);
            assert!(seen.is_error && error.contains(why) && error.len() < 300, "{error}");
        }
        assert_eq!(hand.call("submit", json!({"answer": "17"})).await, ToolOutcome::Submitted);
    });
}

#[test]
fn tools_of_a_read_only_sandbox_explain_what_failed() {
    with_sandbox(&Spec::default(), async |hand| {
        hand.write("/testbed/f", b"old\n").await;
        hand.sandbox.freeze().await.unwrap();
        for edit in [
            json!({"command": "create", "path": "/testbed/new", "file_text": "x"}),
            json!({"command": "create", "path": "/testbed/d/new", "file_text": "x"}),
            json!({"command": "str_replace", "path": "/testbed/f", "old_str": "old", "new_str": "new"}),
            json!({"command": "insert", "path": "/testbed/f", "insert_line": 0, "new_str": "new"}),
        ] {
            let error = hand.refused(edit).await;
            assert!(error.contains("not written: Read-only file system"), "{error}");
        }
        let seen = hand.edit(json!({"command": "view", "path": "/testbed/f"})).await;
        assert!(seen.contains("old"), "{seen}");
        // Long output cannot be saved, and the marker says so.
        let seen = hand.bash("seq 1 100000").await;
        assert!(seen.contains("could not be kept in a file: Read-only file system"), "{seen}");
        assert!(seen.starts_with("[exit code 0]") && seen.ends_with("\n100000"), "{seen}");
        let seen = hand.bash("echo x > /testbed/f").await;
        assert!(seen.starts_with("[exit code 1]") && seen.contains("Read-only"), "{seen}");
        // Programs still come without files: a long one passes through a pipe.
        let lines = "# a line that says nothing\n".repeat(1000);
        let program = format!("python3 - <<'END'\n{lines}print(6 * 7)\nEND");
        assert_eq!(hand.bash(&program).await, "[exit code 0]\n[stdout]\n42");
    });
}

#[test]
fn a_submitted_answer_is_recorded() {
    with_sandbox(&Spec::default(), async |hand| {
        let give = |answer: Value| Call::new("submit", json!({ "answer": answer }));
        let model = ScriptedModel::new([
            bash("echo 42"),
            submit(),
            calls([give(json!(42)), give(json!("forty-two\n")), give(json!("43"))]),
        ]);
        let (outcome, lines) = play(&hand, ToolSet::WithoutFiles, &model).await;
        assert_eq!(outcome, Outcome::Submitted);
        assert_eq!(submitted_answer(&lines).as_deref(), Some("forty-two\n"));
        let asked = model.requests();
        let note = ToolSet::WithoutFiles.note().unwrap();
        assert!(
            last_message(&asked[0]).starts_with(&format!("Do it\n\n{note}")),
            "{}",
            last_message(&asked[0])
        );
        // Nobody looks for a file that cannot be there.
        assert!(
            last_message(&asked[2]).contains("`answer` is missing"),
            "{}",
            last_message(&asked[2])
        );
        let Event::Started(started) = &lines[0].event else { panic!("{:?}", lines[0]) };
        assert_eq!(started.messages, asked[0].messages);
    });
}

#[test]
fn an_episode_without_execution_continues_after_a_call_to_bash() {
    with_sandbox(&Spec::default(), async |hand| {
        let create = json!({"command": "create", "path": "/testbed/answer.txt", "file_text": "42"});
        let model = ScriptedModel::new([
            bash("echo 42 > /testbed/answer.txt"),
            calls([Call::new("str_replace_editor", create)]),
            submit(),
        ]);
        let (outcome, lines) = play(&hand, ToolSet::WithoutExecution, &model).await;
        assert_eq!((outcome, submitted_answer(&lines)), (Outcome::Submitted, None));
        let asked = model.requests();
        assert!(
            last_message(&asked[0]).contains("there is no execute_bash"),
            "{}",
            last_message(&asked[0])
        );
        assert!(
            last_message(&asked[1]).contains("There is no tool `execute_bash` here"),
            "{}",
            last_message(&asked[1])
        );
        assert_eq!(hand.read("/testbed/answer.txt").await, b"42");
    });
}
