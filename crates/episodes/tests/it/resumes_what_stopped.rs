//! What was running when a process ended can be resumed by the next one.

use std::{fs, io::Write, time::Duration};

use lis_episodes::{
    Episode, EpisodeRequest, Error, Fork, InputContent, InputFile, Keep, Resume, State, Store,
};
use testkit::{Step, bash, submit};
use trajectory::Event;

use crate::support::{after_turn, all, by_turn, left, task, with_episodes};

#[test]
fn a_parked_episode_continues_after_its_last_turn() {
    with_episodes(async |fixture| {
        let log = |turn: usize| format!("echo {turn} >> /testbed/output/log");
        let episodes = fixture.open(by_turn(move |turn| match turn {
            1..=2 => Step::from(bash(log(turn))),
            _ => Step::Hang,
        }));
        let episode = episodes.start(task("Log")).await.unwrap();
        after_turn(&episode, 2).await;
        let id = episode.id().to_owned();
        // A second server is refused meanwhile.
        assert!(matches!(Store::open(fixture.dir.path()), Err(Error::InUse(_))));
        let reading = tokio::spawn({
            let episode = episode.clone();
            async move { all(&mut episode.events_from(0).await.unwrap()).await }
        });
        episodes.close(Duration::from_secs(30)).await;
        assert_eq!(episode.state(), State::Interrupted);
        let before = reading.await.unwrap();
        assert!(!before.iter().any(|event| event.json.contains("\"kind\":\"ended\"")));
        assert!(matches!(episodes.start(task("x")).await, Err(Error::Closing)));
        drop((episode, episodes));

        let episodes = fixture.open(by_turn(move |turn| match turn {
            3 => bash(log(turn)),
            _ => submit(),
        }));
        assert_eq!(episodes.get(&id).unwrap().state, State::Interrupted);
        let resumed = episodes.resume(&id, Resume::default()).await.unwrap();
        let info = resumed.wait().await.unwrap();
        assert_eq!(info.state, State::Finished, "{info:?}");
        assert_eq!(left(&resumed, "log"), "1\n2\n3\n");
        // A watcher continues where it was.
        let last = before.len() as u64;
        let after = all(&mut resumed.events_from(last).await.unwrap()).await;
        assert_eq!(after[0].number, last + 1);
        assert!(matches!(after[0].line().unwrap().event, Event::Resumed { turn: 2 }));
        let again = episodes.resume(&id, Resume::default()).await;
        assert!(matches!(again, Err(Error::State { state: State::Finished, .. })));
    });
}

#[test]
fn a_killed_process_leaves_what_the_next_one_can_use() {
    with_episodes(async |fixture| {
        let model = || {
            by_turn(|turn| match turn {
                1 => bash("echo 1 >> /testbed/output/answer.txt"),
                _ => submit(),
            })
        };
        let episodes = fixture.open(model());
        let episode = episodes.start(task("Write")).await.unwrap();
        episode.wait().await.unwrap();
        let id = episode.id().to_owned();
        drop((episode, episodes));
        // Every state in which a kill can leave the files: each number of whole lines, with half a line behind it.
        let dir = fixture.dir.path().join(&id);
        let events = fs::read_to_string(dir.join("events.jsonl")).unwrap();
        let lines: Vec<&str> = events.split_inclusive('\n').collect();
        for kept in 0..=lines.len() {
            let _ = fs::remove_file(dir.join("result.json"));
            let _ = fs::remove_dir_all(dir.join("files"));
            fs::write(dir.join("events.jsonl"), lines[..kept].concat()).unwrap();
            let mut file =
                fs::OpenOptions::new().append(true).open(dir.join("events.jsonl")).unwrap();
            file.write_all("{\"v\":1,\"kind\":\"st\u{fc}".as_bytes()).unwrap();
            fs::write(dir.join(".tmp1234.partial"), "half").unwrap();
            fs::create_dir(fixture.dir.path().join(".partial-ep_x")).unwrap();
            let episodes = fixture.open(model());
            assert!(!dir.join(".tmp1234.partial").exists());
            assert!(!fixture.dir.path().join(".partial-ep_x").exists());
            assert_eq!(episodes.get(&id).unwrap().state, State::Interrupted);
            let resumed = episodes.resume(&id, Resume::default()).await.unwrap();
            let info = resumed.wait().await.unwrap();
            let result = info.result.clone().unwrap();
            assert_eq!(info.state, State::Finished, "{kept} lines: {info:?}");
            assert_eq!(result.answer.as_deref(), Some("1"), "{kept} lines");
        }
    });
}

/// Waits until files were saved after this turn.
async fn saved_after(episode: &Episode, turn: u32) {
    let mut reader = episode.events_from(0).await.unwrap();
    while let Some(event) = reader.next().await.unwrap() {
        if matches!(event.line().unwrap().event, Event::Saved { turn: saved, .. } if saved == turn)
        {
            return;
        }
    }
    panic!("the episode ended before its files were saved");
}

#[test]
fn a_resumed_episode_goes_on_saving_its_files() {
    with_episodes(async |fixture| {
        let log = |turn: usize| format!("echo {turn} >> /testbed/output/log");
        let model = move |last: usize| {
            by_turn(move |turn| match turn {
                turn if turn < last => Step::from(bash(log(turn))),
                _ if last == 4 => Step::from(submit()),
                _ => Step::Hang,
            })
        };
        let mut id: Option<String> = None;
        for last in [2, 3, 4] {
            let episodes = fixture.open(model(last));
            let episode = match &id {
                None => {
                    let request = EpisodeRequest { keep: Keep::End, ..task("Log") };
                    episodes.start(request).await.unwrap()
                }
                Some(id) => episodes.resume(id, Resume::default()).await.unwrap(),
            };
            id = Some(episode.id().to_owned());
            if last < 4 {
                saved_after(&episode, last as u32 - 1).await;
                episode.cancel().unwrap();
            }
            let info = episode.wait().await.unwrap();
            let result = info.result.unwrap();
            assert!(result.kept, "{last}: {result:?}");
            assert_eq!(result.files.len(), 1, "{last}: {result:?}");
            if last == 4 {
                assert_eq!(left(&episode, "log"), "1\n2\n3\n");
            }
        }
    });
}

#[test]
fn a_fork_outlives_the_episode_it_is_based_on() {
    with_episodes(async |fixture| {
        let episodes = fixture.open(by_turn(|turn| match turn {
            1 => Step::from(bash("echo 1 >> /testbed/output/log")),
            _ => Step::Hang,
        }));
        let parent = episodes.start(task("Log")).await.unwrap();
        saved_after(&parent, 1).await;
        parent.cancel().unwrap();
        parent.wait().await.unwrap();
        let fork = Fork { keep: Some(Keep::End), owner: "me".into(), ..Fork::default() };
        let fork = episodes.fork(parent.id(), fork).await.unwrap();
        episodes.remove(parent.id()).await.unwrap();
        assert!(matches!(episodes.remove(parent.id()).await, Err(Error::NotFound(_))));
        let resumed = episodes.resume(parent.id(), Resume::default()).await;
        assert!(matches!(resumed, Err(Error::NotFound(_))));
        // Its sandbox runs before it is stopped.
        let mut reader = fork.events_from(0).await.unwrap();
        while let Some(event) = reader.next().await.unwrap() {
            if matches!(event.line().unwrap().event, Event::Resumed { .. }) {
                break;
            }
        }
        episodes.cancel_where(|owner| owner == "me");
        let result = fork.wait().await.unwrap().result.unwrap();
        assert!(result.kept, "{result:?}");
    });
}

#[test]
fn an_episode_with_damaged_events_can_be_removed() {
    with_episodes(async |fixture| {
        let episodes = fixture.open(by_turn(|_| submit()));
        let episode = episodes.start(task("Submit")).await.unwrap();
        episode.wait().await.unwrap();
        let dir = fixture.dir.path().join(episode.id());
        fs::write(dir.join("events.jsonl"), "{\"v\":1,\n{}\n").unwrap();
        assert!(episodes.trajectory(episode.id()).is_err());
        episodes.remove(episode.id()).await.unwrap();
        assert!(!dir.exists());
    });
}

#[test]
fn more_input_than_the_sandbox_can_hold_is_refused() {
    with_episodes(async |fixture| {
        let episodes = fixture.open(by_turn(|_| submit()));
        let host = fixture.dir.path().join("large");
        fs::File::create(&host).unwrap().set_len(1 << 40).unwrap();
        let file = |name: &str| InputFile {
            path: name.into(),
            content: InputContent::Stored(host.clone()),
        };
        let request = EpisodeRequest { input: vec![file("a"), file("b")], ..task("Read") };
        let refused = episodes.start(request).await.unwrap_err();
        assert!(matches!(&refused, Error::Invalid(why) if why.contains("room for")), "{refused}");
    });
}
