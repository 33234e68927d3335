//! A fork continues an episode after a turn: with the conversation up to there, and the files of then.

use lis_episodes::{EpisodeRequest, Error, Fork, Keep, State};
use testkit::{bash, submit};
use trajectory::Event;

use crate::support::{all, by_turn, left, task, with_episodes};

fn fork(turn: u32) -> Fork {
    Fork { turn: Some(turn), owner: "me".into(), ..Fork::default() }
}

#[test]
fn a_fork_has_the_files_of_its_turn() {
    with_episodes(async |fixture| {
        let write = |turn| format!("echo {turn} >> /testbed/output/log");
        let episodes = fixture.open(by_turn(move |turn| match turn {
            1..=3 => bash(write(turn)),
            _ => submit(),
        }));
        let parent = EpisodeRequest { keep: Keep::EveryTurn, ..task("Log") };
        let parent = episodes.start(parent).await.unwrap();
        parent.wait().await.unwrap();
        assert_eq!(left(&parent, "log"), "1\n2\n3\n");
        for turn in [2, 0] {
            let forked = episodes.fork(parent.id(), fork(turn)).await.unwrap();
            let info = forked.wait().await.unwrap();
            assert_eq!(info.state, State::Finished);
            assert_eq!(info.record.parent.unwrap().turn, turn);
            // Had a turn been played twice, its line would be there twice.
            assert_eq!(left(&forked, "log"), "1\n2\n3\n");
            let lines = all(&mut forked.events_from(0).await.unwrap()).await;
            let resumed = lines.iter().any(|event| {
                matches!(event.line().unwrap().event, Event::Resumed { turn: at } if at == turn)
            });
            assert!(resumed);
        }
        let refused = episodes.fork(parent.id(), fork(9)).await.unwrap_err().to_string();
        assert!(refused.contains("turn 0, 1, 2, 3"), "{refused}");
    });
}

#[test]
fn files_that_were_not_kept_are_not_made_up() {
    with_episodes(async |fixture| {
        let episodes = fixture.open(by_turn(|turn| match turn {
            1..=2 => bash("echo x >> /testbed/output/log"),
            _ => submit(),
        }));
        let parent = episodes.start(task("Log")).await.unwrap();
        parent.wait().await.unwrap();
        let refused = episodes.fork(parent.id(), fork(1)).await;
        assert!(matches!(refused, Err(Error::NotKept { turn: 1, .. })), "{refused:?}");
        let begun = episodes.fork(parent.id(), fork(0)).await.unwrap();
        begun.wait().await.unwrap();
        assert_eq!(left(&begun, "log"), "x\nx\n");
    });
}
