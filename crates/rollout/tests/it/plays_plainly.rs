//! Mode `llm`: one reply, no sandbox.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use attempt::LimitSettings;
use lis_rollout::{
    End, EngineParts, Mode, Reward, Rollout, RolloutEngine, RolloutError, RolloutSettings,
    SampleError, SampleRequest, Sampled, Sampler,
};
use problems::{Command, Grader, Task};
use sandbox_native::NativeRuntime;
use trajectory::Event;

use crate::{
    script::Script,
    support::{bytes, in_time, limited, problem, request, said, settings, task, with_runtime},
};

async fn played(script: Script, limits: LimitSettings) -> Rollout {
    let settings = RolloutSettings { mode: Mode::Llm, ..limited(limits) };
    let parts = EngineParts {
        codec: bytes(),
        task: task(),
        settings,
        reward: Reward::Grader,
        runtime: None,
    };
    let engine: RolloutEngine<NativeRuntime> = RolloutEngine::new(parts).unwrap();
    let request = request(&[problem("one", 42)], 1);
    let mut groups = engine.run(&Arc::new(script), &request, |_| {}).await.unwrap();
    groups.remove(0).members.remove(0)
}

/// A sampler that never answers.
struct Silent {
    remote: bool,
}

impl Sampler for Silent {
    fn context(&self) -> usize {
        4096
    }

    async fn sample(&self, _: SampleRequest) -> Result<Sampled, SampleError> {
        std::future::pending().await
    }

    fn release(&self, _: u64) {}

    fn is_remote(&self) -> bool {
        self.remote
    }
}

#[test]
fn a_server_that_does_not_answer_in_time_is_no_wrong_answer() {
    in_time(async {
        let time = Some(Duration::from_millis(100));
        let limits = LimitSettings { time, ..LimitSettings::default() };
        let mut settings = RolloutSettings { mode: Mode::Llm, ..limited(limits) };
        settings.retry.tries = 1;
        for remote in [true, false] {
            let (codec, settings, reward) = (bytes(), settings.clone(), Reward::Grader);
            let parts = EngineParts { codec, task: task(), settings, reward, runtime: None };
            let engine: RolloutEngine<NativeRuntime> = RolloutEngine::new(parts).unwrap();
            let request = request(&[problem("one", 42)], 1);
            match (remote, engine.run(&Arc::new(Silent { remote }), &request, |_| {}).await) {
                (true, Err(RolloutError::AllFailed { cause, .. })) => {
                    assert!(cause.contains("inference server"), "{cause}");
                }
                (false, Ok(groups)) => assert_eq!(groups[0].members[0].end, End::Timeout),
                (_, other) => panic!("{remote}: {:?}", other.err()),
            }
        }
    });
}

#[test]
fn the_reply_is_the_answer() {
    in_time(async {
        let codec = bytes();
        let right = played(Script::of(&codec, &["42"]), LimitSettings::default()).await;
        assert_eq!((right.end, right.reward, right.turns), (End::Submitted, Some(1.0), 1));
        assert_eq!(said(&codec, &right.segments[0]), ["42<|im_end|>"]);
        let text = codec.vocabulary().decode(&right.segments[0].tokens);
        assert!(text.contains("the number is 42"), "the documents stand in the prompt: {text}");
        assert!(matches!(right.events.last().map(|line| &line.event), Some(Event::Ended(_))));
        // A block is nothing special here.
        let block = "```bash\nls\n```\nmore";
        let whole = played(Script::of(&codec, &[block]), LimitSettings::default()).await;
        assert_eq!(whole.answer, block);
        assert_eq!(whole.reward, Some(0.0));
    });
}

#[test]
fn a_reply_that_is_cut_off_is_worth_nothing() {
    in_time(async {
        let limits = LimitSettings { plain_tokens: 3, ..LimitSettings::default() };
        let cut = played(Script::of(&bytes(), &["42 it is"]), limits).await;
        assert_eq!((cut.end, cut.reward), (End::Truncated, Some(0.0)));
        assert_eq!(cut.answer, "42 ");
        let mut narrow = Script::of(&bytes(), &["42"]);
        narrow.context = 100;
        let full = played(narrow, LimitSettings::default()).await;
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
            let mut settings = RolloutSettings { mode: Mode::Llm, ..settings() };
            settings.retry.tries = 1;
            let (codec, runtime) = (bytes(), Some(Arc::clone(&runtime)));
            let script = Arc::new(Script::of(&codec, &["42"]));
            let parts = EngineParts { codec, task, settings, reward: Reward::Grader, runtime };
            let engine = RolloutEngine::new(parts).unwrap();
            let played = engine.run(&script, &request(&[problem("one", 42)], 1), |_| {}).await;
            match (played, reward) {
                (Ok(groups), Some(_)) => assert_eq!(groups[0].members[0].reward, reward),
                (Err(RolloutError::AllFailed { cause, .. }), None) => {
                    assert!(cause.contains("exit code 3"), "{cause}");
                }
                (played, _) => panic!("{:?}", played.err()),
            }
            engine.close().await.unwrap();
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
        let settings = RolloutSettings { mode: Mode::Llm, ..settings() };
        let (codec, asked) = (bytes(), AtomicUsize::new(0));
        let script = Script::new(&codec, move |_| {
            let first = asked.fetch_add(1, Ordering::SeqCst) == 0;
            Ok(if first { "42" } else { "nonsense" }.to_owned())
        });
        let parts =
            EngineParts { codec, task, settings, reward: Reward::Grader, runtime: Some(runtime) };
        let engine = RolloutEngine::new(parts).unwrap();
        let request = request(&[problem("one", 42)], 2);
        let mut groups = engine.run(&Arc::new(script), &request, |_| {}).await.unwrap();
        groups[0].members.sort_by(|a, b| b.reward.partial_cmp(&a.reward).unwrap());
        let [right, broken] = &groups[0].members[..] else { panic!("{groups:?}") };
        assert_eq!((right.reward, right.end), (Some(1.0), End::Submitted));
        assert_eq!((broken.reward, broken.end), (Some(0.0), End::Infrastructure));
        // Graded again, not played again.
        assert_eq!((broken.tries, broken.turns), (1, 1));
        assert!(broken.why.as_ref().unwrap().contains("exit code 1"), "{:?}", broken.why);
        engine.close().await.unwrap();
    });
}

#[test]
fn what_cannot_give_rewards_is_refused_at_once() {
    in_time(async {
        let refused = |task: Task, mode: Mode| {
            let settings = RolloutSettings { mode, ..settings() };
            let parts = EngineParts {
                codec: bytes(),
                task,
                settings,
                reward: Reward::Grader,
                runtime: None,
            };
            RolloutEngine::<NativeRuntime>::new(parts).err()
        };
        assert!(matches!(refused(task(), Mode::Sandbox), Some(RolloutError::NoRuntime)));
        assert!(refused(task(), Mode::Llm).is_none());
        for grader in [Grader::Judge, Grader::Tests] {
            let error = refused(Task { grader, ..task() }, Mode::Llm).unwrap();
            assert!(matches!(error, RolloutError::Grader { .. }), "{error}");
        }
        let (command, timeout) = ("exit 0".to_owned(), Duration::from_secs(30));
        let command = Command { command, files: Vec::new(), image: None, timeout };
        let commanded = Task { grader: Grader::Command(command), ..task() };
        let error = refused(commanded, Mode::Llm).unwrap();
        assert!(matches!(error, RolloutError::NoSandboxes { .. }), "{error}");
    });
}
