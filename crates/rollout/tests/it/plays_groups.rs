//! Groups: every problem gets its members, and what they do depends on nobody else.

use std::{
    collections::HashSet,
    fs,
    sync::{Arc, Mutex},
};

use rollout::{End, Group, Method, Order, PlayError, Reward, Segment, Speech};

use crate::{
    script::{Heard, Script},
    support::{answering, block, bytes, method, order, problem, stage, with_runtime},
};

/// Answers rightly where its seed is even, after as many looks as the seed says.
fn chancy(speech: &Arc<Speech>) -> Arc<Script> {
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
    Arc::new(Script::new(speech, play))
}

fn problems() -> Vec<Arc<problems::Problem>> {
    vec![problem("p11", 11), problem("p22", 22), problem("p33", 33)]
}

async fn groups(
    runtime: &Arc<sandbox_native::NativeRuntime>,
    method: Method,
    order: &Order,
) -> Vec<Group> {
    let speech = bytes();
    let stage = stage(&speech, runtime, method, Reward::Grader);
    let groups = stage.play(&chancy(&speech), order, |_| {}).await.unwrap();
    stage.close().await.unwrap();
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
        let order = Order { events, ..order(&problems(), 4) };
        let heard = Mutex::new(0);
        let speech = bytes();
        let stage = stage(&speech, &runtime, Method { ahead: 2, ..method() }, Reward::Grader);
        let script = chancy(&speech);
        let count = |_: &rollout::Played| *heard.lock().unwrap() += 1;
        let groups = stage.play(&script, &order, count).await.unwrap();
        stage.close().await.unwrap();
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
        let wide = order(&problems(), 3);
        let one = groups(&runtime, Method { sandboxes: 1, ..method() }, &wide).await;
        let many = groups(&runtime, Method { sandboxes: 9, ahead: 4, ..method() }, &wide).await;
        assert_eq!(tokens(&one), tokens(&many));
        // Fewer members and another order of problems change nothing for those who are there.
        let narrow = order(&[problem("p22", 22)], 2);
        let few = groups(&runtime, method(), &narrow).await;
        assert_eq!(tokens(&few)[0], tokens(&one)[1][..2]);
        let next = Order { step: 4, ..narrow.clone() };
        assert_ne!(tokens(&groups(&runtime, method(), &next).await), tokens(&few));
        // A problem that stands there twice is not the same twice.
        let twice = Order { members: 6, ..order(&[problem("p11", 11), problem("p11", 11)], 6) };
        let twice = tokens(&groups(&runtime, method(), &twice).await);
        assert_ne!(twice[0], twice[1]);
    });
}

#[test]
fn a_run_that_is_stopped_says_so() {
    with_runtime(|runtime| async move {
        let speech = bytes();
        let (stopper, watch) = agent::stopper();
        let script = Script::new(&speech, move |_| {
            stopper.stop();
            Ok(block("ls"))
        });
        let stage = stage(&speech, &runtime, method(), Reward::Grader);
        let order = Order { watch, ..order(&problems(), 2) };
        let stopped = stage.play(&Arc::new(script), &order, |_| {}).await;
        assert!(matches!(stopped, Err(PlayError::Stopped)), "{:?}", stopped.err());
        stage.close().await.unwrap();
    });
}
