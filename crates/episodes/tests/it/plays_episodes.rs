//! An episode is played, followed from any event, and cancelled.

use std::sync::{Arc, atomic::Ordering};

use lis_episodes::{
    EpisodeRequest, Error, FilesFrom, InputContent, InputFile, Keep, Meter, Resume, State, Task,
};
use testkit::{Step, bash, submit};
use trajectory::{Fault, Outcome, Validity};

use crate::support::{after_turn, all, by_turn, left, task, with_episodes};

#[test]
fn a_task_is_solved_and_every_event_has_a_number() {
    with_episodes(async |fixture| {
        let episodes = fixture.open(by_turn(|turn| match turn {
            1 => bash("cp /testbed/input/a/numbers.txt /testbed/output/answer.txt"),
            _ => submit(),
        }));
        let input = vec![InputFile {
            path: "a/numbers.txt".into(),
            content: InputContent::Bytes(b"4 2\n".to_vec()),
        }];
        let episode = episodes.start(EpisodeRequest { input, ..task("Copy") }).await.unwrap();
        // A watcher that is there from the start sees what one sees that comes later.
        let during = all(&mut episode.events_from(0).await.unwrap()).await;
        let info = episode.wait().await.unwrap();
        assert_eq!(info.state, State::Finished);
        let result = info.result.unwrap();
        assert_eq!((result.outcome, result.validity), (Outcome::Submitted, Validity::Valid));
        assert_eq!(result.answer.as_deref(), Some("4 2"));
        assert_eq!(left(&episode, "answer.txt"), "4 2\n");
        assert_eq!(episodes.files(episode.id()).unwrap()[0].path, "answer.txt");
        let later = all(&mut episodes.events_from(episode.id(), 0).await.unwrap()).await;
        assert_eq!(during, later);
        let numbers: Vec<u64> = later.iter().map(|event| event.number).collect();
        assert_eq!(numbers, (1..=later.len() as u64).collect::<Vec<_>>());
        for after in 0..=numbers.len() + 1 {
            let rest = all(&mut episode.events_from(after as u64).await.unwrap()).await;
            assert_eq!(rest, later[after.min(later.len())..]);
        }
        assert_eq!(episodes.trajectory(episode.id()).unwrap().steps.len(), 2);
        // Another episode starts with its files only if they were kept.
        let files = FilesFrom::EndOf(episode.id().to_owned());
        let refused = episodes.start(EpisodeRequest { files, ..task("Again") }).await;
        assert!(matches!(refused, Err(Error::State { .. })), "{refused:?}");
        episodes.remove(episode.id()).await.unwrap();
        assert!(matches!(episodes.get(episode.id()), Err(Error::NotFound(_))));
    });
}

#[test]
fn another_episode_starts_with_the_files_of_the_first() {
    with_episodes(async |fixture| {
        let episodes = fixture.open(by_turn(|turn| match turn {
            1 => bash("echo x >> /testbed/kept; cat /testbed/kept > /testbed/output/answer.txt"),
            _ => submit(),
        }));
        let first = EpisodeRequest { keep: Keep::End, ..task("Count") };
        let first = episodes.start(first).await.unwrap();
        assert!(first.wait().await.unwrap().result.unwrap().kept);
        let files = FilesFrom::EndOf(first.id().to_owned());
        let second = episodes.start(EpisodeRequest { files, ..task("Count on") }).await.unwrap();
        let result = second.wait().await.unwrap().result.unwrap();
        assert_eq!(result.answer.as_deref(), Some("x\nx"));
    });
}

#[test]
fn a_cancelled_episode_ends_at_once_and_says_so() {
    with_episodes(async |fixture| {
        let episodes = fixture.open(by_turn(|turn| match turn {
            1 => Step::from(bash("echo 1 > /testbed/output/part")),
            _ => Step::Hang,
        }));
        let episode = episodes.start(task("Wait")).await.unwrap();
        after_turn(&episode, 1).await;
        episodes.cancel(episode.id()).unwrap();
        let info = episode.wait().await.unwrap();
        assert_eq!(info.state, State::Cancelled);
        assert_eq!(info.result.unwrap().validity, Validity::Cancelled);
        assert_eq!(left(&episode, "part"), "1\n");
        assert!(matches!(episodes.cancel(episode.id()), Err(Error::State { .. })));
    });
}

#[test]
fn a_result_that_cannot_be_stored_is_a_failure_of_storage() {
    with_episodes(async |fixture| {
        let events = fixture.dir.path().to_owned();
        // A directory in the place of the file cannot be replaced by it.
        let episodes = fixture.open(by_turn(move |_| {
            for entry in std::fs::read_dir(&events).unwrap().flatten() {
                let file = entry.path().join("result.json");
                if entry.path().is_dir() && !file.exists() {
                    std::fs::create_dir(&file).unwrap();
                }
            }
            submit()
        }));
        let episode = episodes.start(task("Submit")).await.unwrap();
        let info = episode.wait().await.unwrap();
        assert_eq!(info.state, State::Failed);
        let Validity::Invalid { fault, cause } = info.result.unwrap().validity else { panic!() };
        assert_eq!(fault, Fault::Storage);
        assert!(cause.contains("result"), "{cause}");
    });
}

#[test]
fn what_makes_no_sense_is_refused_and_leaves_nothing() {
    with_episodes(async |fixture| {
        let episodes = fixture.open(by_turn(|_| submit()));
        let bad_input =
            vec![InputFile { path: "../x".into(), content: InputContent::Bytes(Vec::new()) }];
        let limits = agent::Limits { turns: 1_000_000, ..agent::Limits::default() };
        for request in [
            task(" "),
            EpisodeRequest { task: Task::Messages(Vec::new()), ..task("") },
            EpisodeRequest { model: Some("other".into()), ..task("x") },
            EpisodeRequest { input: bad_input, ..task("x") },
            EpisodeRequest { limits: Some(limits), ..task("x") },
            EpisodeRequest { metadata: [("k".into(), "v".repeat(20_000))].into(), ..task("x") },
            EpisodeRequest { files: FilesFrom::EndOf("ep_x".into()), ..task("x") },
        ] {
            let shown = format!("{request:?}");
            assert!(episodes.start(request).await.is_err(), "{shown}");
        }
        assert!(episodes.list("me", None, None, 10).episodes.is_empty());
        let names: Vec<_> = std::fs::read_dir(fixture.dir.path()).unwrap().flatten().collect();
        assert_eq!(names.len(), 1, "{names:?}");
    });
}

#[test]
fn an_episode_whose_client_leaves_while_it_is_created_leaves_nothing() {
    with_episodes(async |fixture| {
        let episodes = fixture.open(by_turn(|_| submit()));
        let names = || {
            let entries = std::fs::read_dir(fixture.dir.path()).unwrap().flatten();
            entries.map(|entry| entry.file_name().into_string().unwrap()).collect::<Vec<_>>()
        };
        // Reading this input waits until somebody writes it.
        let pipes = tempfile::tempdir().unwrap();
        let pipe = pipes.path().join("input");
        rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, rustix::fs::Mode::RWXU).unwrap();
        let content = InputContent::Host(pipe.clone());
        let input = vec![InputFile { path: "a".into(), content }];
        let mut starting = Box::pin(episodes.start(EpisodeRequest { input, ..task("Read") }));
        let begun = std::time::Instant::now();
        while !names().iter().any(|name| name.starts_with(".partial-")) {
            assert!(begun.elapsed().as_secs() < 20, "it is not created");
            let soon = std::time::Duration::from_millis(10);
            assert!(tokio::time::timeout(soon, &mut starting).await.is_err());
        }
        drop(starting);
        tokio::task::block_in_place(|| std::fs::write(&pipe, "").unwrap());
        while names() != ["lock"] {
            assert!(begun.elapsed().as_secs() < 20, "it stays: {:?}", names());
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
        assert!(episodes.list("me", None, None, 10).episodes.is_empty());
    });
}

#[derive(Debug, Default)]
struct OneCall(std::sync::atomic::AtomicU64);

impl Meter for OneCall {
    fn check(&self) -> Result<(), String> {
        match self.0.load(Ordering::SeqCst) {
            0 => Ok(()),
            _ => Err("the quota is used up".into()),
        }
    }

    fn on_response(&self, tokens: u64, _: Option<f64>) {
        self.0.fetch_add(tokens.max(1), Ordering::SeqCst);
    }
}

#[test]
fn an_episode_without_quota_stops_and_can_be_resumed() {
    with_episodes(async |fixture| {
        let episodes = fixture.open(by_turn(|turn| match turn {
            1 => bash("echo 7 > /testbed/output/answer.txt"),
            _ => submit(),
        }));
        let meter: Arc<dyn Meter> = Arc::new(OneCall::default());
        let request = EpisodeRequest { meter: Some(meter), ..task("Spend") };
        let episode = episodes.start(request).await.unwrap();
        let info = episode.wait().await.unwrap();
        assert_eq!(info.state, State::Failed);
        let Validity::Invalid { fault, cause } = info.result.unwrap().validity else { panic!() };
        assert_eq!(fault, Fault::ModelRequest);
        assert!(cause.contains("the quota is used up"), "{cause}");
        let resumed = episodes.resume(episode.id(), Resume::default()).await.unwrap();
        let info = resumed.wait().await.unwrap();
        assert_eq!(info.result.unwrap().answer.as_deref(), Some("7"));
    });
}

#[test]
fn a_call_that_is_cut_short_is_charged() {
    with_episodes(async |fixture| {
        let called = Arc::new(tokio::sync::Notify::new());
        let episodes = fixture.open(by_turn({
            let called = Arc::clone(&called);
            move |_| {
                called.notify_one();
                Step::Hang
            }
        }));
        let meter = Arc::new(OneCall::default());
        let shared: Arc<dyn Meter> = Arc::clone(&meter) as _;
        let request = EpisodeRequest { meter: Some(shared), ..task("Spend") };
        let episode = episodes.start(request).await.unwrap();
        called.notified().await;
        episode.cancel().unwrap();
        episode.wait().await.unwrap();
        assert!(meter.0.load(Ordering::SeqCst) > 10);
    });
}
