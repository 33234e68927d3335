//! A model without commands, or without files: what it is told, what it cannot do, and where its answer is.

use std::{
    io,
    path::Path,
    sync::{Mutex, PoisonError},
};

use agent::{
    Episode, Journal, Opening, Settings,
    tools::{Done, MAX_ANSWER, ToolSet, Tools, submitted_answer},
};
use model::{Delta, Listener};
use sandbox::{Sandbox, Spec};
use sandbox_native::NativeSandbox;
use serde_json::{Value, json};
use testkit::{Call, Scripted, bash, calls, submit};
use trajectory::{Event, Line, Message, Outcome, Started};

use crate::sandboxes::{Hand, text, with_sandbox};

/// Keeps the lines of an episode, as a file would.
#[derive(Default)]
struct Lines(Mutex<String>);

impl Lines {
    fn read(&self) -> Vec<Line> {
        trajectory::read(&self.0.lock().unwrap_or_else(PoisonError::into_inner)).unwrap()
    }
}

impl Listener for Lines {
    fn hear(&self, _: Delta<'_>) {}
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

/// Plays an episode with these tools, whose answer would belong into the working directory.
async fn play(hand: &Hand, set: ToolSet, model: &Scripted) -> (Outcome, Vec<Line>) {
    let tools = Tools { set, ..Tools::default() };
    let deliver_to = Some(tools.workdir.clone());
    let settings = Settings { tools, deliver_to, ..Settings::default() };
    let opening = Opening::Fresh(Box::new(Started {
        problem_statement: "Do it".into(),
        messages: vec![Message::user("Do it")],
        model: "scripted".into(),
        settings: Value::Null,
        protection: Value::Null,
        program: String::new(),
    }));
    let journal = Lines::default();
    let (_stopper, watch) = agent::stopper();
    let episode = Episode::new(model, &hand.sandbox, &journal, &settings, opening, watch);
    let ended = agent::run(episode).await;
    (ended.outcome, journal.read())
}

fn names(specs: &[model::ToolSpec]) -> Vec<&str> {
    specs.iter().map(|spec| spec.name.as_str()).collect()
}

/// What was said last before the model was asked.
fn told(asked: &testkit::Asked) -> String {
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
        let Done::Refused(seen) = hand.call("execute_bash", run).await else { panic!("it ran") };
        assert!(seen.is_error && seen.exit_code.is_none());
        let why =
            "There is no tool `execute_bash` here. The tools are str_replace_editor and submit.";
        assert_eq!(text(&seen), why);
        hand.edit(json!({"command": "create", "path": "/testbed/f", "file_text": "x"})).await;
        assert_eq!(hand.read("/testbed/f").await, b"x");
        assert_eq!(hand.sandbox.list(Path::new("/testbed")).await.unwrap().len(), 1);
        assert_eq!(hand.call("submit", json!({})).await, Done::Submitted);
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
        let Done::Refused(seen) = hand.call("str_replace_editor", edit).await else { panic!() };
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
            let Done::Refused(seen) = hand.call("submit", given).await else { panic!("{why}") };
            let said = text(&seen);
            assert!(seen.is_error && said.contains(why) && said.len() < 300, "{said}");
        }
        assert_eq!(hand.call("submit", json!({"answer": "17"})).await, Done::Submitted);
    });
}

#[test]
fn tools_of_a_frozen_computer_say_what_they_could_not_do() {
    with_sandbox(&Spec::default(), async |hand| {
        hand.write("/testbed/f", b"old\n").await;
        hand.sandbox.freeze().await.unwrap();
        for edit in [
            json!({"command": "create", "path": "/testbed/new", "file_text": "x"}),
            json!({"command": "create", "path": "/testbed/d/new", "file_text": "x"}),
            json!({"command": "str_replace", "path": "/testbed/f", "old_str": "old", "new_str": "new"}),
            json!({"command": "insert", "path": "/testbed/f", "insert_line": 0, "new_str": "new"}),
        ] {
            let told = hand.refused(edit).await;
            assert!(told.contains("not written: Read-only file system"), "{told}");
        }
        let seen = hand.edit(json!({"command": "view", "path": "/testbed/f"})).await;
        assert!(seen.contains("old"), "{seen}");
        // Output too long to be shown has nowhere to go, and that is said where it is missing.
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
fn an_answer_given_to_submit_is_in_the_record() {
    with_sandbox(&Spec::default(), async |hand| {
        let give = |answer: Value| Call::new("submit", json!({ "answer": answer }));
        let model = Scripted::new([
            bash("echo 42"),
            submit(),
            calls([give(json!(42)), give(json!("forty-two\n")), give(json!("43"))]),
        ]);
        let (outcome, lines) = play(&hand, ToolSet::WithoutFiles, &model).await;
        assert_eq!(outcome, Outcome::Submitted);
        assert_eq!(submitted_answer(&lines).as_deref(), Some("forty-two\n"));
        let asked = model.asked();
        let note = ToolSet::WithoutFiles.note().unwrap();
        assert!(told(&asked[0]).starts_with(&format!("Do it\n\n{note}")), "{}", told(&asked[0]));
        // Nobody looks for a file that cannot be there.
        assert!(told(&asked[2]).contains("`answer` is missing"), "{}", told(&asked[2]));
        let Event::Started(started) = &lines[0].event else { panic!("{:?}", lines[0]) };
        assert_eq!(started.messages, asked[0].messages);
    });
}

#[test]
fn an_episode_without_execution_goes_on_after_a_call_of_bash() {
    with_sandbox(&Spec::default(), async |hand| {
        let create = json!({"command": "create", "path": "/testbed/answer.txt", "file_text": "42"});
        let model = Scripted::new([
            bash("echo 42 > /testbed/answer.txt"),
            calls([Call::new("str_replace_editor", create)]),
            submit(),
        ]);
        let (outcome, lines) = play(&hand, ToolSet::WithoutExecution, &model).await;
        assert_eq!((outcome, submitted_answer(&lines)), (Outcome::Submitted, None));
        let asked = model.asked();
        assert!(told(&asked[0]).contains("there is no execute_bash"), "{}", told(&asked[0]));
        assert!(
            told(&asked[1]).contains("There is no tool `execute_bash` here"),
            "{}",
            told(&asked[1])
        );
        assert_eq!(hand.read("/testbed/answer.txt").await, b"42");
    });
}
