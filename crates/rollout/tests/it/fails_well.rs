//! What goes wrong on our side is named, tried again, and never counted against the policy.

use std::{
    path::Path,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

use lis_rollout::{End, Mode, Reward, RolloutError, RolloutSettings};
use sandbox::{
    ByteSize, CopyReport, Entry, Error, ExecOutput, Exit, Input, Process, Protection, Runtime,
    Sandbox, SandboxInfo, ShellCommand, Spec, Streams,
};
use sandbox_native::{NativeRuntime, NativeSandbox};

use crate::{
    script::Script,
    support::{
        answering, block, bytes, engine, forever, problem, request, settings, templated,
        with_runtime,
    },
};

/// Sandboxes of which some die.
struct Mortal {
    runtime: Arc<NativeRuntime>,
    /// How many of the first die at a command that says `deadly`.
    deaths: AtomicUsize,
    /// How many of the first cannot be made.
    stillborn: AtomicUsize,
    made: AtomicUsize,
}

impl Mortal {
    fn new(runtime: Arc<NativeRuntime>, deaths: usize, stillborn: usize) -> Arc<Self> {
        let (deaths, stillborn) = (AtomicUsize::new(deaths), AtomicUsize::new(stillborn));
        Arc::new(Self { runtime, deaths, stillborn, made: AtomicUsize::new(0) })
    }
}

fn one_less(count: &AtomicUsize) -> bool {
    count.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |count| count.checked_sub(1)).is_ok()
}

impl Runtime for Mortal {
    type Sandbox = Dying;

    async fn create(&self, spec: &Spec) -> Result<Dying, Error> {
        self.made.fetch_add(1, Ordering::SeqCst);
        if one_less(&self.stillborn) {
            return Err(Error::Gone("it was never there".into()));
        }
        let dies = one_less(&self.deaths);
        Ok(Dying { sandbox: self.runtime.create(spec).await?, dies })
    }

    async fn list(&self) -> Result<Vec<SandboxInfo>, Error> {
        self.runtime.list().await
    }

    async fn prune(&self) -> Result<Vec<SandboxInfo>, Error> {
        self.runtime.prune().await
    }
}

struct Dying {
    sandbox: NativeSandbox,
    dies: bool,
}

impl Sandbox for Dying {
    fn id(&self) -> &str {
        self.sandbox.id()
    }

    fn protection(&self) -> &Protection {
        self.sandbox.protection()
    }

    async fn shell(&self, command: &ShellCommand) -> Result<ExecOutput, Error> {
        if self.dies && String::from_utf8_lossy(&command.script).contains("deadly") {
            return Err(Error::Gone("somebody killed it".into()));
        }
        self.sandbox.shell(command).await
    }

    async fn process(&self, process: &Process, streams: Streams) -> Result<Exit, Error> {
        self.sandbox.process(process, streams).await
    }

    async fn read_file(&self, path: &Path) -> Result<Input, Error> {
        self.sandbox.read_file(path).await
    }

    async fn write_file(&self, path: &Path, contents: &[u8]) -> Result<(), Error> {
        self.sandbox.write_file(path, contents).await
    }

    async fn list(&self, path: &Path) -> Result<Vec<Entry>, Error> {
        self.sandbox.list(path).await
    }

    async fn copy_in(&self, host: &Path, path: &Path) -> Result<CopyReport, Error> {
        self.sandbox.copy_in(host, path).await
    }

    async fn copy_out(&self, path: &Path, host: &Path) -> Result<CopyReport, Error> {
        self.sandbox.copy_out(path, host).await
    }

    async fn fork(&self) -> Result<Self, Error> {
        Ok(Self { sandbox: self.sandbox.fork().await?, dies: self.dies })
    }

    async fn snapshot(&self, name: &str) -> Result<(), Error> {
        self.sandbox.snapshot(name).await
    }

    async fn freeze(&self) -> Result<(), Error> {
        self.sandbox.freeze().await
    }

    async fn peak_memory(&self) -> Result<Option<ByteSize>, Error> {
        self.sandbox.peak_memory().await
    }

    async fn destroy(self) -> Result<(), Error> {
        self.sandbox.destroy().await
    }
}

fn replies() -> [String; 3] {
    [block("echo deadly"), answering("42"), block("submit")]
}

fn script(codec: &Arc<lis_rollout::ChatCodec>) -> Arc<Script> {
    let replies = replies();
    Arc::new(Script::of(codec, &replies.each_ref().map(String::as_str)))
}

#[test]
fn a_sandbox_that_dies_is_replaced() {
    with_runtime(|runtime| async move {
        for (deaths, stillborn) in [(2, 0), (0, 2), (1, 1)] {
            let codec = bytes();
            let mortal = Mortal::new(Arc::clone(&runtime), deaths, stillborn);
            let engine = engine(&codec, &mortal, settings(), Reward::Grader);
            let request = request(&[problem("one", 42)], 1);
            let groups = engine.run(&script(&codec), &request, |_| {}).await.unwrap();
            let played = &groups[0].members[0];
            assert_eq!((played.end, played.reward, played.tries), (End::Submitted, Some(1.0), 3));
            assert_eq!(mortal.made.load(Ordering::SeqCst), 3);
            // Nothing of the tries that failed is left in what is trained on.
            assert_eq!((played.segments.len(), played.turns), (1, 3));
        }
    });
}

#[test]
fn a_demonstration_that_our_side_spoilt_is_given_again() {
    with_runtime(|runtime| async move {
        for (deaths, end, tries) in [(2, End::Submitted, 3), (3, End::Infrastructure, 3)] {
            let mortal = Mortal::new(Arc::clone(&runtime), deaths, 0);
            let engine = engine(&bytes(), &mortal, settings(), Reward::Grader);
            let (problem, replies) = (problem("one", 42), replies().to_vec());
            let played = engine.demonstrate(&problem, replies, None, forever()).await.unwrap();
            assert_eq!((played.end, played.tries), (end, tries));
            assert_eq!(played.why.is_some(), end == End::Infrastructure);
            assert_eq!(mortal.made.load(Ordering::SeqCst), 3);
        }
    });
}

/// ChatML that refuses a word.
const REFUSING: &str = "{% for message in messages %}{% if 'forbidden' in message.content %}\
    {{ raise_exception('no such word') }}{% endif %}<|im_start|>{{ message.role }}\n\
    {{ message.content }}<|im_end|>\n{% endfor %}{{ '<|im_start|>assistant\n' }}";

#[test]
fn a_policy_does_not_talk_its_way_out_of_a_reward() {
    with_runtime(|runtime| async move {
        for (answer, reward) in [("42", 1.0), ("41", 0.0)] {
            let codec = templated(REFUSING);
            let reply = format!("forbidden\n{}", answering(answer));
            let script = Arc::new(Script::of(&codec, &[&reply]));
            let engine = engine(&codec, &runtime, settings(), Reward::Grader);
            let request = request(&[problem("one", 42)], 1);
            let groups = engine.run(&script, &request, |_| {}).await.unwrap();
            let played = &groups[0].members[0];
            assert_eq!((played.end, played.reward), (End::NoCalls, Some(reward)));
            assert_eq!((played.raw_reward, played.tries, played.turns), (Some(reward), 1, 1));
            assert_eq!(played.segments.len(), 1);
        }
    });
}

#[test]
fn a_problem_the_template_refuses_is_named_and_not_tried_again() {
    with_runtime(|runtime| async move {
        let codec = templated(REFUSING);
        for mode in [Mode::Sandbox, Mode::Llm] {
            let engine =
                engine(&codec, &runtime, RolloutSettings { mode, ..settings() }, Reward::Grader);
            let request = request(&[problem("forbidden", 42), problem("fine", 42)], 1);
            let groups = engine.run(&script(&codec), &request, |_| {}).await.unwrap();
            let played = &groups[0].members[0];
            assert_eq!((played.end, played.reward), (End::Infrastructure, None));
            assert_eq!(played.tries, 1, "it would be the same again");
            assert!(played.why.as_ref().unwrap().contains("no such word"), "{:?}", played.why);
            assert!(groups[1].members[0].reward.is_some());
        }
    });
}

#[test]
fn a_member_whose_sandboxes_keep_dying_after_it_acted_is_worth_nothing() {
    with_runtime(|runtime| async move {
        for members in [2, 3] {
            let codec = bytes();
            let mortal = Mortal::new(Arc::clone(&runtime), usize::MAX, 0);
            // A member keeps its seed from try to try, so this is always the same one.
            let unlucky = Mutex::new(None);
            let script = Script::new(&codec, move |heard| {
                let first = *unlucky.lock().unwrap().get_or_insert(heard.seed);
                let [deadly, answer, submit] = replies();
                Ok(match heard.turn {
                    0 if heard.seed == first => deadly,
                    0 => answer,
                    _ => submit,
                })
            });
            let engine = engine(&codec, &mortal, settings(), Reward::Grader);
            let request = request(&[problem("one", 42)], members);
            let groups = engine.run(&Arc::new(script), &request, |_| {}).await.unwrap();
            let died = |played: &&lis_rollout::Rollout| played.end == End::Infrastructure;
            let (gone, fine): (Vec<_>, Vec<_>) = groups[0].members.iter().partition(died);
            assert_eq!(gone.len(), 1);
            assert_eq!((gone[0].reward, gone[0].tries, gone[0].turns), (Some(0.0), 3, 1));
            assert!(gone[0].why.as_ref().unwrap().contains("somebody killed it"));
            // What it did is there to be unlearnt.
            assert!(gone[0].response_tokens > 0);
            assert!(fine.iter().all(|played| played.reward == Some(1.0) && played.tries == 1));
        }
    });
}

/// A failure that something else may have caused says nothing about the policy: a single try, or one that failed for another
/// reason.
#[test]
fn a_member_that_did_not_break_every_sandbox_leaves_its_group() {
    with_runtime(|runtime| async move {
        for (tries, starts) in [(1, 1), (3, 3)] {
            let codec = bytes();
            let mortal = Mortal::new(Arc::clone(&runtime), usize::MAX, 0);
            let unlucky = Mutex::new((None, 0));
            let script = Script::new(&codec, move |heard| {
                let (first, started) = &mut *unlucky.lock().unwrap();
                let is_first = heard.seed == *first.get_or_insert(heard.seed);
                let [deadly, answer, submit] = replies();
                if heard.turn > 0 {
                    return Ok(submit);
                }
                if !is_first {
                    return Ok(answer);
                }
                *started += 1;
                if *started == 2 { Err("out of memory".into()) } else { Ok(deadly) }
            });
            let mut settings = settings();
            settings.retry.tries = tries;
            let engine = engine(&codec, &mortal, settings, Reward::Grader);
            let request = request(&[problem("one", 42)], 2);
            let groups = engine.run(&Arc::new(script), &request, |_| {}).await.unwrap();
            let died = |played: &&lis_rollout::Rollout| played.end == End::Infrastructure;
            let (gone, fine): (Vec<_>, Vec<_>) = groups[0].members.iter().partition(died);
            assert_eq!((gone.len(), gone[0].reward, gone[0].tries), (1, None, starts));
            assert!(gone[0].why.as_ref().unwrap().contains("somebody killed it"));
            assert_eq!(fine[0].reward, Some(1.0));
        }
    });
}

#[test]
fn where_nothing_works_the_step_fails_with_the_cause() {
    with_runtime(|runtime| async move {
        let codec = bytes();
        let mortal = Mortal::new(runtime, usize::MAX, 0);
        let mut two_tries = settings();
        two_tries.retry.tries = 2;
        let engine = engine(&codec, &mortal, two_tries, Reward::Grader);
        let request = request(&[problem("one", 42)], 2);
        let failed = engine.run(&script(&codec), &request, |_| {}).await;
        let Err(RolloutError::AllFailed { episodes: 2, cause }) = failed else {
            panic!("{:?}", failed.err())
        };
        assert!(cause.contains("somebody killed it"), "{cause}");
    });
}

#[test]
fn a_sampler_that_fails_is_our_failure() {
    with_runtime(|runtime| async move {
        let codec = bytes();
        let failing = AtomicUsize::new(1);
        let script = Script::new(&codec, move |heard| match one_less(&failing) {
            true => Err("out of memory".into()),
            false => Ok(replies()[heard.turn.min(2)].clone()),
        });
        let engine = engine(&codec, &runtime, settings(), Reward::Grader);
        let request = request(&[problem("one", 42)], 1);
        let groups = engine.run(&Arc::new(script), &request, |_| {}).await.unwrap();
        assert_eq!((groups[0].members[0].reward, groups[0].members[0].tries), (Some(1.0), 2));
    });
}

#[test]
fn a_reward_that_is_no_number_leaves_the_group_and_is_named() {
    with_runtime(|runtime| async move {
        let codec = bytes();
        for odd in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            let reward =
                Reward::Custom(Arc::new(move |problem: &problems::Problem, _: &str| match problem
                    .id
                    .as_str()
                {
                    "odd" => odd,
                    _ => 0.25,
                }));
            let engine = engine(&codec, &runtime, settings(), reward);
            let request = request(&[problem("odd", 42), problem("even", 42)], 1);
            let groups = engine.run(&script(&codec), &request, |_| {}).await.unwrap();
            let played = &groups[0].members[0];
            assert_eq!(
                (played.end, played.reward, played.raw_reward),
                (End::Infrastructure, None, None)
            );
            assert_eq!(played.tries, 1, "it would be the same again");
            let why = played.why.as_ref().unwrap();
            assert!(why.contains("`odd`") && why.contains(&odd.to_string()), "{why}");
            assert_eq!(groups[1].members[0].reward, Some(0.25));
        }
    });
}

#[test]
fn a_reward_that_panics_is_named() {
    with_runtime(|runtime| async move {
        let codec = bytes();
        let reward = Reward::Custom(Arc::new(|_: &problems::Problem, _: &str| panic!("no idea")));
        let engine = engine(&codec, &runtime, settings(), reward);
        let failed = engine.run(&script(&codec), &request(&[problem("one", 42)], 1), |_| {}).await;
        assert!(
            matches!(failed, Err(RolloutError::AllFailed { episodes: 1, .. })),
            "{:?}",
            failed.err()
        );
    });
}

#[test]
fn events_that_cannot_be_kept_stop_the_play() {
    with_runtime(|runtime| async move {
        let file = tempfile::NamedTempFile::new().unwrap();
        let codec = bytes();
        let engine = engine(&codec, &runtime, settings(), Reward::Grader);
        let mut request = request(&[problem("one", 42)], 1);
        request.events = Some(file.path().join("below"));
        let failed = engine.run(&script(&codec), &request, |_| {}).await;
        assert!(matches!(failed, Err(RolloutError::Events { .. })), "{:?}", failed.err());
    });
}
