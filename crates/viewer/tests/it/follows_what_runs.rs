//! Episodes and tables while they change.

use std::{
    collections::HashSet,
    fs,
    io::Write,
    sync::{Arc, Mutex},
    time::Duration,
};

use axum::{body::Body, http::Request};
use futures_util::StreamExt;
use lis_viewer::{Library, PageOptions, Scope, routes};
use serde_json::{Value, json};
use tower_service::Service;

use crate::support::{Served, ended, episode, observed, run_directory, write_events};

/// Reads a stream until a text occurs in it.
async fn read_until(served: &Served, path: &str, until: &str, mut act: impl FnMut(&str)) -> String {
    let request = Request::get(format!("/page/api/{path}")).body(Body::empty()).unwrap();
    let response = served.router.clone().call(request).await.unwrap();
    assert_eq!(response.headers()["content-type"], "text/event-stream");
    let mut stream = response.into_body().into_data_stream();
    let mut text = String::new();
    let reading = async {
        while let Some(piece) = stream.next().await {
            text.push_str(&String::from_utf8_lossy(&piece.unwrap()));
            act(&text);
            if text.contains(until) {
                break;
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(20), reading).await.unwrap();
    text
}

#[tokio::test]
async fn events_arrive_as_they_are_written() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("run/events.jsonl");
    write_events(&path, &episode()[..2]);
    let served = Served::at(dir.path());
    let at = format!("runs/{}/attempts/0/events/stream", served.only_run().await);
    let mut written = false;
    let text = read_until(&served, &at, "event: end", |text| {
        if text.contains("id: 2\n") && !written {
            written = true;
            let mut file = fs::OpenOptions::new().append(true).open(&path).unwrap();
            for event in [observed(1, "str_replace_editor", "created"), ended(1)] {
                let line = serde_json::to_string(&trajectory::Line::new(5, event)).unwrap();
                writeln!(file, "{line}").unwrap();
            }
        }
    })
    .await;
    let ids: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("id: ")).collect();
    assert_eq!(ids, ["1", "2", "3", "4"]);
    assert!(text.contains("data: {\"total\":4}"), "{text}");
    let rest = read_until(&served, &format!("{at}?from=4"), "event: end", |_| {}).await;
    assert_eq!(rest.matches("id: ").count(), 1);
}

/// A server's directory of episodes with one of them.
fn episode_of_server(dir: &std::path::Path, id: &str, keep: &str) -> std::path::PathBuf {
    episode_of("me", dir, id, keep)
}

fn episode_of(owner: &str, dir: &std::path::Path, id: &str, keep: &str) -> std::path::PathBuf {
    let path = dir.join(id);
    fs::create_dir_all(&path).unwrap();
    let record =
        json!({ "owner": owner, "created": 1, "model": "m", "task": "Count.", "keep": keep });
    fs::write(path.join("episode.json"), record.to_string()).unwrap();
    write_events(&path.join("events.jsonl"), &episode()[..3]);
    path
}

#[tokio::test]
async fn a_server_knows_what_its_files_do_not_say_yet() {
    let dir = tempfile::tempdir().unwrap();
    let first = episode_of_server(dir.path(), "ep_1", "every_turn");
    let running = Arc::new(Mutex::new(HashSet::from(["ep_1".to_owned()])));
    let said = Arc::new(Mutex::new("The ans".to_owned()));
    let (known, partial) = (Arc::clone(&running), Arc::clone(&said));
    let library =
        Library::of_server(dir.path().to_owned(), move |id| known.lock().unwrap().contains(id))
            .with_partial(move |_| partial.lock().unwrap().clone());
    let served = Served { router: routes(Arc::new(library), PageOptions::default()) };
    let at = "runs/episodes/attempts/ep_1";
    let state = async || served.get(at).await["server_episode"]["state"].clone();
    assert_eq!(state().await, "running");

    // The model's text, while it streams.
    let stream = format!("{at}/events/stream?from=4");
    let text = read_until(&served, &stream, "The answer", |text| {
        if text.contains("The ans\"") {
            "The answer".clone_into(&mut said.lock().unwrap());
        }
    })
    .await;
    assert_eq!(text.matches("event: partial").count(), 2, "{text}");

    // One that was created a moment ago is there at once, and one that does not exist is not.
    assert_eq!(served.reply("runs/episodes/attempts/ep_2").await.status, 404);
    episode_of_server(dir.path(), "ep_2", "for_resume");
    assert_eq!(
        served.get("runs/episodes/attempts/ep_2").await["server_episode"]["state"],
        "interrupted"
    );
    assert_eq!(served.reply("runs/episodes/attempts/..%2Fep_1").await.status, 404);

    // A server that crashed: its file was written a moment ago, but nobody plays it.
    running.lock().unwrap().clear();
    let detail = served.get(at).await;
    assert_eq!(
        (&detail["server_episode"]["state"], &detail["state"]),
        (&"interrupted".into(), &"interrupted".into())
    );

    // Turns can be forked whose files were saved.
    let mut file = fs::OpenOptions::new().append(true).open(first.join("events.jsonl")).unwrap();
    for event in [trajectory::Event::Saved { turn: 1, image: "x".into() }, ended(1)] {
        let line = serde_json::to_string(&trajectory::Line::new(5, event)).unwrap();
        writeln!(file, "{line}").unwrap();
    }
    let detail = served.get(at).await;
    assert_eq!(detail["server_episode"]["forkable"], json!([0, 1]));
    // It is resumed: no longer complete, though its last event is its end.
    running.lock().unwrap().insert("ep_1".to_owned());
    let detail = served.get(at).await;
    assert_eq!(
        (&detail["events"]["complete"], &detail["state"]),
        (&false.into(), &"running".into())
    );
}

#[tokio::test]
async fn everybody_sees_and_counts_their_own_episodes() {
    let dir = tempfile::tempdir().unwrap();
    for (owner, id) in [("me", "ep_1"), ("you", "ep_2"), ("you", "ep_3")] {
        episode_of(owner, dir.path(), id, "for_resume");
    }
    let library = Library::of_server(dir.path().to_owned(), |_| false);
    let served = Served { router: routes(Arc::new(library), PageOptions::default()) };
    let get = async |path: &str, owner: Option<&str>| -> Value {
        let scope = Scope { owner: owner.map(str::to_owned) };
        let request = Request::get(format!("/page/api/runs/episodes/{path}")).extension(scope);
        served.send(request.body(Body::empty()).unwrap()).await.json()
    };
    for (owner, own) in [(Some("me"), 1), (Some("you"), 2), (Some("stranger"), 0), (None, 3)] {
        assert_eq!(get("attempts", owner).await["total"], own, "{owner:?}");
        let steps = get("steps", owner).await;
        let episodes =
            steps["steps"].as_array().unwrap().iter().map(|step| step["episodes"].as_u64());
        assert_eq!(episodes.flatten().sum::<u64>(), own, "{owner:?}: {steps}");
        let groups = get("groups?set=", owner).await;
        let members =
            groups["groups"].as_array().unwrap().iter().flat_map(|it| it["members"].as_array());
        assert_eq!(members.flatten().count() as u64, own, "{owner:?}: {groups}");
    }
}

#[tokio::test]
async fn new_runs_are_announced() {
    let dir = tempfile::tempdir().unwrap();
    run_directory(dir.path(), "first");
    let served = Served::at(dir.path());
    let root = dir.path().to_owned();
    let writer = tokio::spawn(async move {
        tokio::time::sleep(Duration::from_millis(2500)).await;
        run_directory(&root, "second");
    });
    let text = read_until(&served, "changes", "event: runs", |_| {}).await;
    writer.await.unwrap();
    assert!(text.contains("\"second\"") && !text.contains("\"first\""), "{text}");
}
