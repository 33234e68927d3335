//! A run directory: its row, its attempt, its events by range, turns, changes and files.

use axum::http::StatusCode;
use serde_json::{Value, json};
use trajectory::{Changed, ChangedFile, Event, FileChange};

use crate::support::{
    Served, bash, call, ended, episode, observed, responded, run_directory, started, write_events,
};

#[tokio::test]
async fn a_run_has_a_row_and_an_attempt() {
    let dir = tempfile::tempdir().unwrap();
    run_directory(dir.path(), "20260101_120000");
    let served = Served::at(dir.path());
    let runs = served.get("runs").await;
    let row = &runs["runs"][0];
    assert_eq!(row["kind"], "run");
    assert_eq!(row["name"], "20260101_120000");
    assert_eq!((&row["model"], &row["outcome"]), (&json!("scripted"), &json!("submitted")));
    assert_eq!((&row["turns"], &row["state"]), (&json!(3), &json!("ended")));
    let id = row["id"].as_str().unwrap();
    let attempts = served.get(&format!("runs/{id}/attempts")).await;
    assert_eq!(attempts["total"], 1);
    let detail = served.get(&format!("runs/{id}/attempts/0")).await;
    assert_eq!(detail["task_text"], "Count the words.");
    assert_eq!(detail["messages"][0]["role"], "system");
    assert_eq!(detail["protection"]["seccomp"], true);
    assert_eq!((&detail["answer"], &detail["steps"]), (&json!("42"), &json!(4)));
    assert_eq!(detail["events"]["total"], 8);
    assert_eq!(detail["events"]["complete"], true);
    assert_eq!(detail["spent"]["turns"], 3);
    assert_eq!(detail["files"]["output"], 3);
    // Words are found wherever they are, in any case.
    assert_eq!(served.get("runs?q=COUNT%20scripted").await["matched"], 1);
    assert_eq!(served.get("runs?q=absent").await["matched"], 0);
    assert_eq!(served.get("runs?kind=training").await["matched"], 0);
}

#[tokio::test]
async fn events_and_turns_come_by_range() {
    let dir = tempfile::tempdir().unwrap();
    run_directory(dir.path(), "run");
    let served = Served::at(dir.path());
    let at = format!("runs/{}/attempts/0", served.only_run().await);
    let page = served.get(&format!("{at}/events?from=3&limit=2")).await;
    assert_eq!((&page["from"], &page["total"]), (&json!(3), &json!(8)));
    let events = page["events"].as_array().unwrap();
    let kinds: Vec<_> = events.iter().map(|event| event["event"]["kind"].clone()).collect();
    assert_eq!(kinds, ["observed", "replied"]);
    assert_eq!(events[0]["n"], 3);
    assert_eq!(served.get(&format!("{at}/events/8")).await["event"]["outcome"], "submitted");
    assert_eq!(served.reply(&format!("{at}/events/9")).await.status, StatusCode::NOT_FOUND);
    let turns = served.get(&format!("{at}/turns")).await;
    assert_eq!(turns["total"], 3);
    let third = &turns["turns"][2];
    assert_eq!(
        (&third["event"], &third["model_ms"], &third["tool_ms"]),
        (&json!(6), &json!(1200), &json!(30))
    );
    assert_eq!(third["calls"][0]["text"], "echo 42 > output/answer.txt");
    assert_eq!(third["calls"][0]["exit_code"], 0);
    assert_eq!(turns["sums"]["output"], 30);
    assert_eq!(served.get(&format!("{at}/turns?from=1&limit=1")).await["turns"][0]["turn"], 2);
}

#[tokio::test]
async fn changes_of_a_turn_are_shown_as_differences() {
    let dir = tempfile::tempdir().unwrap();
    run_directory(dir.path(), "run");
    let served = Served::at(dir.path());
    let at = format!("runs/{}/attempts/0", served.only_run().await);
    let first = served.get(&format!("{at}/turns/1/changes")).await;
    assert_eq!(first["changes"][0]["how"], "created");
    let second = served.get(&format!("{at}/turns/2/changes")).await;
    let change = &second["changes"][0];
    assert_eq!((&change["path"], &change["how"]), (&json!("/testbed/a.py"), &json!("edited")));
    assert_eq!(change["before"], "x = 1\ny = 2\n");
    assert_eq!(change["after"], "x = 5\ny = 2\n");
    assert_eq!(first["changes"][0]["diff"][0]["text"], "@@ -0,0 +1,2 @@");
    let lines: Vec<_> =
        change["diff"].as_array().unwrap().iter().map(|line| line["type"].clone()).collect();
    assert_eq!(lines, ["hunk", "removed", "added", "same"]);
    let third = served.get(&format!("{at}/turns/3/changes")).await;
    assert_eq!(third["changes"][0]["source"], "command");
    let all = served.get(&format!("{at}/changes")).await;
    assert_eq!(all["files"][0]["turns"], json!([1, 2]));
    assert_eq!(all["files"][1]["path"], "output/answer.txt");
    assert_eq!(served.reply(&format!("{at}/turns/9/changes")).await.status, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn files_are_inert() {
    let dir = tempfile::tempdir().unwrap();
    let run = run_directory(dir.path(), "run");
    std::fs::write(dir.path().join("secret"), "x").unwrap();
    std::os::unix::fs::symlink(dir.path().join("secret"), run.join("files/link")).unwrap();
    std::fs::write(run.join("files/unknown.bin"), [0, 1, 2]).unwrap();
    let served = Served::at(dir.path());
    let at = format!("runs/{}/attempts/0/files", served.only_run().await);
    let files = served.get(&at).await;
    let names: Vec<_> =
        files["output"].as_array().unwrap().iter().map(|file| file["path"].clone()).collect();
    assert_eq!(names, ["answer.txt", "page.html", "sub/data.csv", "unknown.bin"]);
    assert_eq!(files["output"][2]["show"], "csv");
    assert_eq!((&files["output_known"], &files["input_known"]), (&json!(true), &json!(false)));
    let html = served.reply(&format!("{at}/output/page.html")).await;
    assert!(html.header("content-security-policy").starts_with("sandbox; default-src 'none'"));
    assert_eq!(html.header("x-content-type-options"), "nosniff");
    assert_eq!(html.header("content-type"), "text/html; charset=utf-8");
    let binary = served.reply(&format!("{at}/output/unknown.bin")).await;
    assert!(binary.header("content-disposition").starts_with("attachment"));
    let text = served.get(&format!("{at}/output/answer.txt?text=1")).await;
    assert_eq!((&text["text"], &text["size"]), (&json!("42"), &json!(2)));
    for path in [
        "output/link",
        "output/..%2F..%2Fsecret",
        "output/%2Fetc%2Fpasswd",
        "output/sub",
        "other/answer.txt",
        "output/..%2Fevents.jsonl",
    ] {
        let reply = served.reply(&format!("{at}/{path}")).await;
        assert!(reply.status.is_client_error(), "{path}: {}", reply.status);
    }
}

#[tokio::test]
async fn output_files_are_downloaded_as_one_archive() {
    let dir = tempfile::tempdir().unwrap();
    let run = run_directory(dir.path(), "run");
    std::os::unix::fs::symlink("/etc/passwd", run.join("files/link")).unwrap();
    let large = vec![b'x'; 1 << 20];
    std::fs::write(run.join("files/a\\large"), &large).unwrap();
    let served = Served::at(dir.path());
    let at = format!("runs/{}/attempts/0/archive", served.only_run().await);
    let reply = served.reply(&at).await;
    assert_eq!(reply.header("content-type"), "application/zip");
    assert!(reply.header("content-disposition").starts_with("attachment; filename="));
    assert!(reply.body.len() < large.len() / 10, "{} bytes", reply.body.len());
    let mut archive = zip::ZipArchive::new(std::io::Cursor::new(reply.body)).unwrap();
    let mut names: Vec<String> =
        archive.file_names().map(|name| name.unwrap().into_owned()).collect();
    names.sort();
    assert_eq!(names, ["a_large", "answer.txt", "page.html", "sub/data.csv"]);
    let mut content = Vec::new();
    std::io::copy(&mut archive.by_name("a_large").unwrap(), &mut content).unwrap();
    assert_eq!(content, large);
    std::fs::remove_dir_all(run.join("files")).unwrap();
    assert_eq!(served.reply(&at).await.status, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn ranges_of_a_file_can_be_requested() {
    let dir = tempfile::tempdir().unwrap();
    run_directory(dir.path(), "run");
    let served = Served::at(dir.path());
    let at =
        format!("/page/api/runs/{}/attempts/0/files/output/sub/data.csv", served.only_run().await);
    let request =
        axum::http::Request::get(at).header("range", "bytes=4-6").body(axum::body::Body::empty());
    let reply = served.send(request.unwrap()).await;
    assert_eq!((reply.status, reply.text().as_str()), (StatusCode::PARTIAL_CONTENT, "1,2"));
    assert_eq!(reply.header("content-range"), "bytes 4-6/8");
}

#[tokio::test]
async fn a_file_of_events_and_several_runs_are_found() {
    let dir = tempfile::tempdir().unwrap();
    run_directory(dir.path(), "deep/er/run");
    write_events(&dir.path().join("one.jsonl"), &episode());
    std::fs::write(dir.path().join("notes.json"), "{}").unwrap();
    // A link to a run elsewhere is not followed.
    let other = tempfile::tempdir().unwrap();
    run_directory(other.path(), "elsewhere");
    std::os::unix::fs::symlink(other.path(), dir.path().join("linked")).unwrap();
    let served = Served::at(dir.path());
    let runs = served.get("runs?sort=name").await;
    let paths: Vec<_> =
        runs["runs"].as_array().unwrap().iter().map(|run| run["path"].clone()).collect();
    assert_eq!(paths, ["deep/er/run", "one.jsonl"]);
    assert_eq!(served.reply("runs/absent").await.status, StatusCode::NOT_FOUND);
    assert_eq!(served.reply("absent").await.json()["error"]["code"], "not_found");
    assert_eq!(served.reply("runs?limit=x").await.status, StatusCode::BAD_REQUEST);
}

/// An event with the files that a turn changed.
fn changed(turn: u32, files: &[(&str, FileChange, Option<&str>, Option<&str>)]) -> Event {
    let file = |(path, change, text, before): &(&str, FileChange, Option<&str>, Option<&str>)| {
        ChangedFile {
            path: (*path).to_owned(),
            change: *change,
            size: 9,
            text: text.map(str::to_owned),
            before: before.map(str::to_owned),
        }
    };
    let files = files.iter().map(file).collect();
    let directory = "/testbed".to_owned();
    Event::Changed(Box::new(Changed { turn, directory, files, incomplete: turn == 3 }))
}

#[tokio::test]
async fn recorded_changes_say_what_programs_did() {
    use FileChange::{Created, Deleted, Modified};
    let dir = tempfile::tempdir().unwrap();
    let run = |turn, command: &str| responded(turn, "", vec![bash(command)]);
    let events = [
        started("Count."),
        run(1, "./make-files > /tmp/log"),
        observed(1, "execute_bash", "done"),
        changed(
            1,
            &[
                ("/testbed/data.csv", Modified, Some("a,2\n"), Some("a,1\n")),
                ("/testbed/new.txt", Created, Some("one\n"), None),
                ("/testbed/old.py", Modified, Some("x\n"), None),
            ],
        ),
        // The command says that it removes a file that it does not.
        run(2, "rm -f /testbed/missing.txt; ./change"),
        observed(2, "execute_bash", "done"),
        changed(
            2,
            &[
                ("/testbed/image.png", Created, None, None),
                ("/testbed/new.txt", Modified, Some("two\n"), None),
            ],
        ),
        run(3, "./clean"),
        observed(3, "execute_bash", "done"),
        changed(3, &[("/testbed/new.txt", Deleted, None, None)]),
        ended(3),
    ];
    write_events(&dir.path().join("run/events.jsonl"), &events);
    let served = Served::at(dir.path());
    let at = format!("runs/{}/attempts/0", served.only_run().await);
    let turns = served.get(&format!("{at}/turns")).await;
    let counts: Vec<_> = (0..3).map(|turn| turns["turns"][turn]["files"].clone()).collect();
    assert_eq!(counts, [3, 2, 1]);

    let first = served.get(&format!("{at}/turns/1/changes")).await;
    let shown = |of: &Value| -> Vec<(String, String)> {
        let text = |change: &Value, name: &str| change[name].as_str().unwrap().to_owned();
        let all = of["changes"].as_array().unwrap().iter();
        all.map(|change| (text(change, "path"), text(change, "how"))).collect()
    };
    let pair = |path: &str, how: &str| (path.to_owned(), how.to_owned());
    let expected = [
        pair("/testbed/data.csv", "edited"),
        pair("/testbed/new.txt", "created"),
        pair("/testbed/old.py", "written"),
        // Outside of what was looked at: the command says it.
        pair("/tmp/log", "written"),
    ];
    assert_eq!(shown(&first), expected);
    assert_eq!(first["changes"][0]["before"], "a,1\n");
    assert_eq!((&first["changes"][2]["after"], &first["complete"]), (&json!("x\n"), &json!(false)));

    let second = served.get(&format!("{at}/turns/2/changes")).await;
    let expected = [pair("/testbed/image.png", "created"), pair("/testbed/new.txt", "edited")];
    assert_eq!(shown(&second), expected);
    assert_eq!((&second["complete"], &second["changes"][0]["size"]), (&json!(true), &json!(9)));
    assert_eq!(
        (&second["changes"][1]["before"], &second["changes"][1]["after"]),
        (&json!("one\n"), &json!("two\n"))
    );

    let third = served.get(&format!("{at}/turns/3/changes")).await;
    assert_eq!(shown(&third), [pair("/testbed/new.txt", "deleted")]);
    assert_eq!(
        (&third["changes"][0]["before"], &third["complete"]),
        (&json!("two\n"), &json!(false))
    );
    let all = served.get(&format!("{at}/changes")).await;
    let new = all["files"].as_array().unwrap().iter().find(|it| it["path"] == "/testbed/new.txt");
    assert_eq!(new.unwrap()["turns"], json!([1, 2, 3]));
}

#[tokio::test]
async fn turns_that_were_undone_keep_their_own_changes() {
    let dir = tempfile::tempdir().unwrap();
    let create = |turn, text: &str| {
        let arguments = json!({ "command": "create", "path": format!("/testbed/{text}.py"), "file_text": text });
        responded(turn, text, vec![call("str_replace_editor", arguments)])
    };
    let events = [
        started("Count."),
        create(1, "first"),
        create(2, "undone"),
        create(3, "undone-too"),
        Event::Resumed { turn: 1 },
        create(2, "second"),
    ];
    write_events(&dir.path().join("run/events.jsonl"), &events);
    let served = Served::at(dir.path());
    let at = format!("runs/{}/attempts/0", served.only_run().await);
    let turns = served.get(&format!("{at}/turns?from=1&limit=1")).await;
    assert_eq!((&turns["total"], &turns["undone"]), (&json!(4), &json!([[1, 2]])));
    let path = async |query: &str| {
        let changes = served.get(&format!("{at}/turns/2/changes{query}")).await;
        changes["changes"][0]["path"].clone()
    };
    assert_eq!(path("").await, "/testbed/second.py");
    assert_eq!(path("?event=3").await, "/testbed/undone.py");
    let other = served.reply(&format!("{at}/turns/2/changes?event=2")).await;
    assert_eq!(other.status, StatusCode::NOT_FOUND);
}
