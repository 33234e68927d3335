//! Groups: every problem gets its members, and what they do depends on nobody else.

use std::{
    collections::HashSet,
    fs,
    sync::{Arc, Mutex},
};

use lis_rollout::{
    ChatCodec, End, Group, Reward, RolloutError, RolloutRequest, RolloutSettings, Segment,
};

use crate::{
    script::{Heard, Script},
    support::{answering, block, bytes, engine, problem, request, settings, with_runtime},
};

/// Answers rightly where its seed is even, after as many looks as the seed says.
fn chancy(codec: &Arc<ChatCodec>) -> Arc<Script> {
    let play = |heard: &Heard| {
        let right = ["11", "22", "33"]
            .into_iter()
            .find(|number| heard.text.contains(&format!("(p{number})")));
        Ok(match (heard.turn, heard.seed % 3) {
            (0, looks) if looks > 0 => block(&format!("echo look {looks}")),
            (turn, looks) if turn as u64 == u64::from(looks > 0) => {
                answering(if heard.seed.is_multiple_of(2) { right.unwrap_or("0") } else { "wrong" })
            }
            _ => block("submit"),
        })
    };
    Arc::new(Script::new(codec, play))
}

fn problems() -> Vec<Arc<problems::Problem>> {
    vec![problem("p11", 11), problem("p22", 22), problem("p33", 33)]
}

async fn groups(
    runtime: &Arc<sandbox_native::NativeRuntime>,
    settings: RolloutSettings,
    request: &RolloutRequest,
) -> Vec<Group> {
    let codec = bytes();
    let engine = engine(&codec, runtime, settings, Reward::Grader);
    let groups = engine.run(&chancy(&codec), request, |_| {}).await.unwrap();
    engine.close().await.unwrap();
    groups
}

fn tokens(groups: &[Group]) -> Vec<Vec<Vec<Segment>>> {
    let of = |group: &Group| group.members.iter().map(|played| played.segments.clone()).collect();
    groups.iter().map(of).collect()
}

#[test]
fn groups_come_in_order_whoever_is_first() {
    with_runtime(|runtime| async move {
        let dir = tempfile::tempdir().unwrap();
        let events = Some(dir.path().join("step-3"));
        let request = RolloutRequest { events, ..request(&problems(), 4) };
        let heard = Mutex::new(0);
        let codec = bytes();
        let engine =
            engine(&codec, &runtime, RolloutSettings { warm: 2, ..settings() }, Reward::Grader);
        let script = chancy(&codec);
        let count = |_: &lis_rollout::Rollout| *heard.lock().unwrap() += 1;
        let groups = engine.run(&script, &request, count).await.unwrap();
        engine.close().await.unwrap();
        assert_eq!(*heard.lock().unwrap(), 12);
        let names: Vec<&str> = groups.iter().map(|group| group.problem.as_str()).collect();
        assert_eq!(names, ["p11", "p22", "p33"]);
        for group in &groups {
            let members: Vec<u32> = group.members.iter().map(|played| played.member).collect();
            assert_eq!(members, [0, 1, 2, 3]);
            assert!(group.members.iter().all(|played| played.end == End::Submitted));
            assert!(
                group
                    .members
                    .iter()
                    .all(|played| played.reward == Some(0.0) || played.reward == Some(1.0))
            );
        }
        let rewards: HashSet<bool> = groups
            .iter()
            .flat_map(|group| &group.members)
            .map(|played| played.reward == Some(1.0))
            .collect();
        assert_eq!(rewards.len(), 2, "some are right and some are not");
        assert!(groups.iter().any(Group::has_spread));
        // Every conversation is another one, and all are forgotten.
        assert_eq!(script.forgotten.lock().unwrap().iter().collect::<HashSet<_>>().len(), 12);
        for played in groups.iter().flat_map(|group| &group.members) {
            let text = fs::read_to_string(played.file.as_ref().unwrap()).unwrap();
            assert_eq!(trajectory::read(&text).unwrap(), played.events);
        }
        assert_eq!(fs::read_dir(dir.path().join("step-3")).unwrap().count(), 12);
    });
}

#[test]
fn the_same_order_gives_the_same_tokens_however_it_is_scheduled() {
    with_runtime(|runtime| async move {
        let wide = request(&problems(), 3);
        let one = groups(&runtime, RolloutSettings { sandboxes: 1, ..settings() }, &wide).await;
        let many =
            groups(&runtime, RolloutSettings { sandboxes: 9, warm: 4, ..settings() }, &wide).await;
        assert_eq!(tokens(&one), tokens(&many));
        // Fewer members and another request of problems change nothing for those who are there.
        let narrow = request(&[problem("p22", 22)], 2);
        let few = groups(&runtime, settings(), &narrow).await;
        assert_eq!(tokens(&few)[0], tokens(&one)[1][..2]);
        let next = RolloutRequest { step: 4, ..narrow.clone() };
        assert_ne!(tokens(&groups(&runtime, settings(), &next).await), tokens(&few));
        // A problem that stands there twice is not the same twice.
        let twice =
            RolloutRequest { members: 6, ..request(&[problem("p11", 11), problem("p11", 11)], 6) };
        let twice = tokens(&groups(&runtime, settings(), &twice).await);
        assert_ne!(twice[0], twice[1]);
    });
}

#[test]
fn a_run_that_is_stopped_says_so() {
    with_runtime(|runtime| async move {
        let codec = bytes();
        let cancel = tokio_util::sync::CancellationToken::new();
        let stopper = cancel.clone();
        let script = Script::new(&codec, move |_| {
            stopper.cancel();
            Ok(block("ls"))
        });
        let engine = engine(&codec, &runtime, settings(), Reward::Grader);
        let request = RolloutRequest { cancel, ..request(&problems(), 2) };
        let stopped = engine.run(&Arc::new(script), &request, |_| {}).await;
        assert!(matches!(stopped, Err(RolloutError::Cancelled)), "{:?}", stopped.err());
        engine.close().await.unwrap();
    });
}
