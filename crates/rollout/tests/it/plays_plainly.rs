//! Mode `llm`: one reply, no sandbox.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use agent::Limits;
use problems::{Command, Grader, Task};
use rollout::{End, Method, Mode, PlayError, Played, Reward, Scene, Stage};
use sandbox_native::NativeRuntime;
use trajectory::Event;

use crate::{
    script::Script,
    support::{bytes, in_time, method, order, problem, said, task, with_runtime},
};

async fn played(script: Script, limits: Limits) -> Played {
    let method = Method { mode: Mode::Llm, limits, ..method() };
    let scene =
        Scene { speech: bytes(), task: task(), method, reward: Reward::Grader, runtime: None };
    let stage: Stage<NativeRuntime> = Stage::new(scene).unwrap();
    let order = order(&[problem("one", 42)], 1);
    let mut groups = stage.play(&Arc::new(script), &order, |_| {}).await.unwrap();
    groups.remove(0).members.remove(0)
}

#[test]
fn the_reply_is_the_answer() {
    in_time(async {
        let speech = bytes();
        let right = played(Script::of(&speech, &["42"]), Limits::default()).await;
        assert_eq!((right.end, right.reward, right.turns), (End::Submitted, Some(1.0), 1));
        assert_eq!(said(&speech, &right.segments[0]), ["42<|im_end|>"]);
        let text = speech.vocabulary().decode(&right.segments[0].tokens);
        assert!(text.contains("the number is 42"), "the documents stand in the prompt: {text}");
        assert!(matches!(right.events.last().map(|line| &line.event), Some(Event::Ended(_))));
        // A block is nothing special here.
        let block = "```bash\nls\n```\nmore";
        let whole = played(Script::of(&speech, &[block]), Limits::default()).await;
        assert_eq!(whole.answer, block);
        assert_eq!(whole.reward, Some(0.0));
    });
}

#[test]
fn a_reply_that_is_cut_off_is_worth_nothing() {
    in_time(async {
        let limits = Limits { tokens_per_call: 3, ..Limits::default() };
        let cut = played(Script::of(&bytes(), &["42 it is"]), limits).await;
        assert_eq!((cut.end, cut.reward), (End::Truncated, Some(0.0)));
        assert_eq!(cut.answer, "42 ");
        let mut narrow = Script::of(&bytes(), &["42"]);
        narrow.context = 100;
        let full = played(narrow, Limits::default()).await;
        assert_eq!((full.end, full.reward, full.turns), (End::Truncated, Some(0.0), 0));
        assert!(full.segments.is_empty());
    });
}

#[test]
fn a_command_of_the_task_can_give_the_reward() {
    with_runtime(|runtime| async move {
        for (command, reward) in [
            ("grep -qx 42 answer.txt && echo 0.75", Some(0.75)),
            ("grep -q 'the number is 42' row.json && echo 0", Some(0.0)),
            ("exit 3", None),
        ] {
            let (command, timeout) = (command.to_owned(), Duration::from_secs(30));
            let command = Command { command, files: Vec::new(), image: None, timeout };
            let task = Task { grader: Grader::Command(command), ..task() };
            let method = Method { mode: Mode::Llm, tries: 1, ..method() };
            let (speech, runtime) = (bytes(), Some(Arc::clone(&runtime)));
            let script = Arc::new(Script::of(&speech, &["42"]));
            let scene = Scene { speech, task, method, reward: Reward::Grader, runtime };
            let stage = Stage::new(scene).unwrap();
            let played = stage.play(&script, &order(&[problem("one", 42)], 1), |_| {}).await;
            match (played, reward) {
                (Ok(groups), Some(_)) => assert_eq!(groups[0].members[0].reward, reward),
                (Err(PlayError::NothingPlayed { cause, .. }), None) => {
                    assert!(cause.contains("exit code 3"), "{cause}");
                }
                (played, _) => panic!("{:?}", played.err()),
            }
            stage.close().await.unwrap();
        }
    });
}

#[test]
fn an_answer_that_breaks_the_grader_is_worth_nothing() {
    with_runtime(|runtime| async move {
        let (command, timeout) =
            ("grep -qx 42 answer.txt && echo 1".into(), Duration::from_secs(30));
        let command = Command { command, files: Vec::new(), image: None, timeout };
        let task = Task { grader: Grader::Command(command), ..task() };
        let method = Method { mode: Mode::Llm, ..method() };
        let (speech, asked) = (bytes(), AtomicUsize::new(0));
        let script = Script::new(&speech, move |_| {
            let first = asked.fetch_add(1, Ordering::SeqCst) == 0;
            Ok(if first { "42" } else { "nonsense" }.to_owned())
        });
        let scene = Scene { speech, task, method, reward: Reward::Grader, runtime: Some(runtime) };
        let stage = Stage::new(scene).unwrap();
        let order = order(&[problem("one", 42)], 2);
        let mut groups = stage.play(&Arc::new(script), &order, |_| {}).await.unwrap();
        groups[0].members.sort_by(|a, b| b.reward.partial_cmp(&a.reward).unwrap());
        let [right, broken] = &groups[0].members[..] else { panic!("{groups:?}") };
        assert_eq!((right.reward, right.end), (Some(1.0), End::Submitted));
        assert_eq!((broken.reward, broken.end), (Some(0.0), End::Infrastructure));
        // Graded again, not played again.
        assert_eq!((broken.tries, broken.turns), (1, 1));
        assert!(broken.why.as_ref().unwrap().contains("exit code 1"), "{:?}", broken.why);
        stage.close().await.unwrap();
    });
}

#[test]
fn what_cannot_give_rewards_is_refused_at_once() {
    in_time(async {
        let refused = |task: Task, mode: Mode| {
            let method = Method { mode, ..method() };
            let scene =
                Scene { speech: bytes(), task, method, reward: Reward::Grader, runtime: None };
            Stage::<NativeRuntime>::new(scene).err()
        };
        assert!(matches!(refused(task(), Mode::Sandbox), Some(PlayError::NoRuntime)));
        assert!(refused(task(), Mode::Llm).is_none());
        for grader in [Grader::Judge, Grader::Tests] {
            let error = refused(Task { grader, ..task() }, Mode::Llm).unwrap();
            assert!(matches!(error, PlayError::Grader { .. }), "{error}");
        }
        let (command, timeout) = ("exit 0".to_owned(), Duration::from_secs(30));
        let command = Command { command, files: Vec::new(), image: None, timeout };
        let commanded = Task { grader: Grader::Command(command), ..task() };
        let error = refused(commanded, Mode::Llm).unwrap();
        assert!(matches!(error, PlayError::NoSandboxes { .. }), "{error}");
    });
}
