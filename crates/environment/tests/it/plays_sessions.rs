//! A session is an attempt: it is played by its owner, graded once, and ends with its lease or its server.

use std::{sync::Arc, time::Duration};

use lis_environment::{
    Environments, Error, Given, GivenCall, GoneReason, Options, Phase, Reset, RowChoice, Served,
};
use model::Permit;
use problems::{Problem, Task};
use sandbox::Runtime;
use sandbox_native::NativeRuntime;
use sandbox_testkit::Spawner;
use serde_json::json;
use tokio::sync::Semaphore;

const BOUND: Duration = Duration::from_secs(60);
const WAIT: Duration = Duration::from_secs(30);

fn with_environments(test: impl AsyncFnOnce(Arc<Environments<NativeRuntime>>, Arc<Semaphore>)) {
    let spawner = Spawner::Example("lis-environment-spawner");
    sandbox_testkit::with_runtime(spawner, BOUND, async |runtime| {
        let row = json!({"id": "a", "problem_statement": "What is 6 * 7?", "ground_truth": "42"});
        let problem = Problem::from_row(row).unwrap();
        let task = Task::builtin("math").unwrap();
        let served = Served::new(task, vec![problem], attempt::Settings::default()).unwrap();
        let (runtime, permits) = (Arc::new(runtime), Arc::new(Semaphore::new(2)));
        let environments = Environments::new(
            Arc::clone(&runtime),
            Arc::clone(&permits),
            vec![served],
            Options::default(),
        );
        test(Arc::new(environments), Arc::clone(&permits)).await;
        // All permits are back once no session has a sandbox.
        let _ = permits.acquire_many(2).await.unwrap();
        // One whose creation was given up is removed a moment later.
        let begun = std::time::Instant::now();
        while !runtime.list().await.unwrap().is_empty() {
            assert!(begun.elapsed() < Duration::from_secs(10), "a sandbox is left");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
}

fn call(name: &str, arguments: serde_json::Value) -> GivenCall {
    GivenCall { id: String::new(), name: name.into(), arguments: arguments.to_string() }
}

fn response(calls: Vec<GivenCall>) -> Given {
    Given { text: String::new(), reasoning: String::new(), calls, cut_off: false, tokens: None }
}

#[test]
fn a_session_belongs_to_its_owner_and_is_graded() {
    with_environments(async |environments, permits| {
        let reset = Reset { row: RowChoice::Id("a".into()), ..Reset::default() };
        let held = Arc::new(());
        let permit = Permit::new(Arc::clone(&held));
        let session = environments.reset("alice", reset, permit, WAIT).await.unwrap();
        assert_eq!(
            (session.phase, session.step, permits.available_permits()),
            (Phase::Ready, 0, 1)
        );
        assert_eq!(Arc::strong_count(&held), 2, "held with the sandbox");
        let stranger = environments.get("bob", &session.id, WAIT).await;
        assert_eq!(stranger.err(), Some(Error::UnknownSession(session.id.clone())));
        let command = json!({"command": "echo '\\boxed{42}' > /testbed/answer.txt"});
        let calls = vec![call("execute_bash", command), call("submit", json!({}))];
        let step = environments.step("alice", &session.id, Some(1), response(calls), WAIT);
        let step = step.await.unwrap();
        assert_eq!((step.phase, permits.available_permits()), (Phase::Done, 2));
        assert_eq!(Arc::strong_count(&held), 1);
        let scored = environments.score("alice", &session.id, WAIT).await.unwrap();
        assert_eq!(scored.score.unwrap().score, Some(1.0));
        let closed = environments.close("alice", &session.id).await;
        assert_eq!(closed, Ok(GoneReason::Closed));
    });
}

#[test]
fn a_client_that_leaves_during_the_reset_leaves_no_session() {
    with_environments(async |environments, permits| {
        let reset = environments.reset("alice", Reset::default(), Permit::default(), WAIT);
        tokio::time::timeout(Duration::from_millis(1), reset).await.unwrap_err();
        assert!(environments.sessions() <= 1);
        // Long before the end of its lease.
        let free = tokio::time::timeout(WAIT, permits.acquire_many(2)).await;
        drop(free.unwrap().unwrap());
        while environments.sessions() > 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
}

#[test]
fn an_owner_has_its_share_of_the_sessions() {
    with_environments(async |environments, _| {
        let reset = |owner: &'static str| {
            let reset = Reset { most_of_owner: Some(1), ..Reset::default() };
            environments.reset(owner, reset, Permit::default(), WAIT)
        };
        let first = reset("alice").await.unwrap();
        assert!(matches!(reset("alice").await, Err(Error::Busy { sessions: 1, .. })));
        reset("bob").await.unwrap();
        environments.close("alice", &first.id).await.unwrap();
        environments.shut_down();
    });
}

#[test]
fn sessions_end_with_their_server() {
    with_environments(async |environments, _| {
        let reset = |name: &'static str| {
            environments.reset(name, Reset::default(), Permit::default(), WAIT)
        };
        let (alice, bob) = tokio::join!(reset("alice"), reset("bob"));
        environments.retain(|name| name != "bob");
        let ended = environments.heartbeat("bob", &bob.unwrap().id);
        assert_eq!(ended.err(), Some(Error::Gone(GoneReason::Closed)));
        // It runs a command that would take longer than the test.
        let id = alice.unwrap().id;
        let calls = vec![call("execute_bash", json!({"command": "sleep 100"}))];
        let stepping = environments.step("alice", &id, None, response(calls), WAIT);
        let (step, ()) = tokio::join!(stepping, async {
            tokio::time::sleep(Duration::from_millis(100)).await;
            environments.shut_down();
        });
        assert_eq!(step.err(), Some(Error::Gone(GoneReason::ShuttingDown)));
        let late = environments.reset("alice", Reset::default(), Permit::default(), WAIT).await;
        assert_eq!(late.err(), Some(Error::Gone(GoneReason::ShuttingDown)));
    });
}
