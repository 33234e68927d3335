//! A step closes before its slowest groups are complete; they are played on and join a later one.

use std::{
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use lis_rollout::{
    ChatCodec, Group, OpenGroups, PlayProgress, Reward, RolloutError, RolloutRequest,
    RolloutSettings, SampleError, SampleRequest, Sampled, Sampler, Segment,
};
use problems::Problem;
use sandbox::Runtime as _;
use sandbox_native::NativeRuntime;
use tokio::sync::Semaphore;

use crate::{
    script::{Heard, Script},
    support::{answering, block, bytes, engine, problem, request, settings, with_runtime},
};

/// Answers. Episodes of problems named `slow` wait for their first response until they are let go, those named `slowest`
/// sleep in their sandbox beyond every test, and those named `bad` fail.
struct Gated {
    script: Script,
    codec: Arc<ChatCodec>,
    gate: Semaphore,
}

impl Gated {
    fn new(codec: &Arc<ChatCodec>) -> Arc<Self> {
        let play = |heard: &Heard| {
            if heard.text.contains("(bad") {
                return Err("there is no such problem".to_owned());
            }
            let sleeps = heard.text.contains("(slowest");
            Ok(match heard.turn {
                0 if sleeps => block("sleep 60"),
                turn if turn == usize::from(sleeps) => answering("1"),
                _ => block("submit"),
            })
        };
        let (script, codec) = (Script::new(codec, play), Arc::clone(codec));
        Arc::new(Self { script, codec, gate: Semaphore::new(0) })
    }

    /// How often it was asked about a problem.
    fn asked(&self, problem: &str) -> usize {
        let asked = self.script.asked.lock().unwrap();
        let text = |tokens: &Vec<u32>| self.codec.vocabulary().decode(tokens);
        asked.iter().filter(|(_, tokens)| text(tokens).contains(problem)).count()
    }

    /// Lets the slow episodes go.
    fn open(&self) {
        self.gate.add_permits(1000);
    }
}

impl Sampler for Gated {
    fn context(&self) -> usize {
        self.script.context()
    }

    async fn sample(&self, request: SampleRequest) -> Result<Sampled, SampleError> {
        if self.codec.vocabulary().decode(&request.tokens).contains("(slow)") {
            let _passed = self.gate.acquire().await;
        }
        self.script.sample(request).await
    }

    fn release(&self, conversation: u64) {
        self.script.release(conversation);
    }
}

fn problems(names: &[&str]) -> Vec<Arc<Problem>> {
    names.iter().map(|name| problem(name, 1)).collect()
}

fn at(step: u64, names: &[&str], members: u32) -> RolloutRequest {
    RolloutRequest { step, ..request(&problems(names), members) }
}

fn names(groups: &[Group]) -> Vec<&str> {
    groups.iter().map(|group| group.problem.as_str()).collect()
}

fn segments(group: &Group) -> Vec<Vec<Segment>> {
    group.members.iter().map(|played| played.segments.clone()).collect()
}

/// Waits until no sandbox is left.
async fn nothing_is_left(runtime: &Arc<NativeRuntime>) {
    let begun = Instant::now();
    while !runtime.list().await.unwrap().is_empty() {
        assert!(begun.elapsed() < Duration::from_secs(20), "sandboxes are left behind");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[test]
fn slow_groups_join_the_next_step_with_the_tokens_they_would_have_had() {
    with_runtime(|runtime| async move {
        let codec = bytes();
        let script = Gated::new(&codec);
        let engine = engine(&codec, &runtime, settings(), Reward::Grader);
        let (mut open, heard) = (OpenGroups::default(), Mutex::new(Vec::new()));
        let complete = Mutex::new(Vec::new());
        let note = |progress: PlayProgress<'_>| match progress {
            PlayProgress::Rollout(played) => heard.lock().unwrap().push(played.problem.clone()),
            PlayProgress::Group(members) => {
                complete.lock().unwrap().push((members[0].problem.clone(), members.len()));
            }
        };
        let first = at(1, &["slow", "a", "b"], 1);
        let closed = engine.run_beside(&script, &first, &mut open, 2, note).await.unwrap();
        assert_eq!(names(&closed), ["a", "b"]);
        assert_eq!(heard.lock().unwrap().len(), 2);
        let reported = |names: &[&str]| {
            let mut reported = std::mem::take(&mut *complete.lock().unwrap());
            reported.sort();
            assert_eq!(
                reported,
                names.iter().map(|name| (name.to_string(), 1)).collect::<Vec<_>>()
            );
        };
        reported(&["a", "b"]);
        let left: Vec<&str> = open.problems().map(|problem| problem.id.as_str()).collect();
        assert_eq!((left, open.missing()), (vec!["slow"], 1));
        // It is played on while nobody waits for it.
        script.open();
        let asked = || script.asked("(");
        let begun = Instant::now();
        while asked() < 3 * 2 {
            assert!(begun.elapsed() < Duration::from_secs(60), "it is not played on");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let next = at(2, &["c"], 1);
        let joined = engine.run_beside(&script, &next, &mut open, 2, note).await.unwrap();
        assert_eq!(asked(), 4 * 2, "the slow group began again");
        assert_eq!((names(&joined), open.len()), (vec!["slow", "c"], 0));
        assert_eq!(heard.lock().unwrap().len(), 4);
        reported(&["c", "slow"]);
        // Seeds are those of the step that began it.
        let whole = engine.run(&script, &first, |_| {}).await.unwrap();
        assert_eq!(segments(&joined[0]), segments(&whole[0]));
        engine.close().await.unwrap();
        nothing_is_left(&runtime).await;
    });
}

#[test]
fn groups_that_are_too_old_end_alone_and_closing_leaves_nothing() {
    with_runtime(|runtime| async move {
        let codec = bytes();
        let script = Gated::new(&codec);
        let engine = engine(&codec, &runtime, settings(), Reward::Grader);
        let mut open = OpenGroups::default();
        for (step, batch) in [(1, ["slowest", "a"]), (2, ["slow", "b"])] {
            let request = at(step, &batch, 1);
            let closed = engine.run_beside(&script, &request, &mut open, 1, |_| {}).await.unwrap();
            assert_eq!(names(&closed), [batch[1]]);
        }
        assert_eq!((open.drop_before(2), open.len()), (1, 1));
        // A dropped group cancels no other, and one that failed closes no step.
        let opener = tokio::spawn({
            let script = Arc::clone(&script);
            async move {
                while script.asked("(bad)") < 3 {
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
                tokio::time::sleep(Duration::from_millis(100)).await;
                script.open();
            }
        });
        let third = at(3, &["bad", "c"], 1);
        let mut closed = engine.run_beside(&script, &third, &mut open, 2, |_| {}).await.unwrap();
        opener.await.unwrap();
        closed.retain(|group| group.problem != "bad");
        assert_eq!(names(&closed), ["slow", "c"]);
        open.close().await;
        nothing_is_left(&runtime).await;
        for ends in ["closed", "dropped"] {
            let fourth = at(4, &["slowest", "d"], 2);
            engine.run_beside(&script, &fourth, &mut open, 1, |_| {}).await.unwrap();
            assert_eq!(open.missing(), 2);
            assert!(!runtime.list().await.unwrap().is_empty(), "nothing was being played");
            let begun = Instant::now();
            match ends {
                "closed" => {
                    open.close().await;
                    assert!(runtime.list().await.unwrap().is_empty(), "closing does not wait");
                }
                _ => drop(std::mem::take(&mut open)),
            }
            nothing_is_left(&runtime).await;
            assert!(
                begun.elapsed() < Duration::from_secs(30),
                "{ends} groups were played to their end"
            );
        }
        engine.close().await.unwrap();
    });
}

#[test]
fn limits_hold_for_old_and_new_groups_together_and_all_are_played() {
    with_runtime(|runtime| async move {
        let codec = bytes();
        for (sandboxes, episodes) in [(2, 0), (8, 2)] {
            let script = Gated::new(&codec);
            let settings = RolloutSettings { sandboxes, episodes, ..settings() };
            let engine = engine(&codec, &runtime, settings, Reward::Grader);
            let mut open = OpenGroups::default();
            // Two slow episodes fill all slots when the second step begins.
            let first = at(1, &["slow"], 2);
            let none = engine.run_beside(&script, &first, &mut open, 0, |_| {}).await.unwrap();
            assert!(none.is_empty() && open.missing() == 2);
            while runtime.list().await.unwrap().len() < 2 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            let second = at(2, &["b", "c", "d"], 2);
            let mut most = 0;
            let joined = {
                let playing = engine.run_beside(&script, &second, &mut open, 4, |_| {});
                let mut playing = std::pin::pin!(playing);
                let begun = Instant::now();
                loop {
                    if begun.elapsed() > Duration::from_millis(200) {
                        script.open();
                    }
                    most = most.max(runtime.list().await.unwrap().len());
                    let wait = tokio::time::sleep(Duration::from_millis(3));
                    tokio::select! {
                        played = &mut playing => break played.unwrap(),
                        () = wait => {}
                    }
                }
            };
            assert_eq!(names(&joined), ["slow", "b", "c", "d"]);
            assert!((1..=2).contains(&most), "{most} sandboxes at once");
            engine.close().await.unwrap();
        }
    });
}

#[test]
fn stopping_ends_open_groups_too() {
    with_runtime(|runtime| async move {
        let codec = bytes();
        let script = Gated::new(&codec);
        let engine = engine(&codec, &runtime, settings(), Reward::Grader);
        let cancel = tokio_util::sync::CancellationToken::new();
        let mut open = OpenGroups::default();
        let first = RolloutRequest { cancel: cancel.clone(), ..at(1, &["slowest", "a"], 1) };
        engine.run_beside(&script, &first, &mut open, 1, |_| {}).await.unwrap();
        cancel.cancel();
        let second = RolloutRequest { cancel, ..at(2, &["b"], 1) };
        let stopped = engine.run_beside(&script, &second, &mut open, 2, |_| {}).await;
        assert!(matches!(stopped, Err(RolloutError::Cancelled)), "{:?}", stopped.err());
        assert!(open.is_empty() && runtime.list().await.unwrap().is_empty());
        engine.close().await.unwrap();
    });
}
