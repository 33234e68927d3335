//! What was running when a process ended can be resumed by the next one.

use std::{fs, io::Write, time::Duration};

use lis_episodes::{Error, State, Store};
use model::Permit;
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
        let resumed = episodes.resume(&id, Permit::default(), None).await.unwrap();
        let info = resumed.wait().await.unwrap();
        assert_eq!(info.state, State::Finished, "{info:?}");
        assert_eq!(left(&resumed, "log"), "1\n2\n3\n");
        // A watcher continues where it was.
        let last = before.len() as u64;
        let after = all(&mut resumed.events_from(last).await.unwrap()).await;
        assert_eq!(after[0].number, last + 1);
        assert!(matches!(after[0].line().unwrap().event, Event::Resumed { turn: 2 }));
        let again = episodes.resume(&id, Permit::default(), None).await;
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
            let resumed = episodes.resume(&id, Permit::default(), None).await.unwrap();
            let info = resumed.wait().await.unwrap();
            let result = info.result.clone().unwrap();
            assert_eq!(info.state, State::Finished, "{kept} lines: {info:?}");
            assert_eq!(result.answer.as_deref(), Some("1"), "{kept} lines");
        }
    });
}
