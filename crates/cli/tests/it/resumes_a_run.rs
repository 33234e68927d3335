//! A run whose process died goes on: the conversation from its record, the files as they were.

use std::{fs, path::Path, time::Duration};

use rustix::process::Signal;
use testkit::{Answer, MockServer, Received, bash, submit};

use crate::{
    episodes::{check_record, events, folder, json, kinds, run},
    support::{Home, Running, code, err, is_running, out, refusal, unique_sleep, wait_for},
};

/// A model that makes a list, by what it was told so far. It falls silent in its third turn, until it hears
/// of a restart.
fn listing() -> MockServer {
    let turn = |asked: &Received| -> Answer {
        match (asked.turns(), asked.mentions("restarted")) {
            (0, _) => bash(
                "mkdir -p /opt/kept; cd /opt/kept; echo deep > x; echo one > /testbed/output/list; seq 20001",
            )
            .into(),
            (1, _) => bash("echo two >> /testbed/output/list; seq 20002").into(),
            (2, false) => Answer::hang(),
            (2, true) => bash(
                "cd /testbed/output; cat /opt/kept/x >> list; paste -sd' ' list > answer.txt; wc -l /tmp/outputs/*",
            )
            .into(),
            _ => submit().into(),
        }
    };
    MockServer::answering(turn).unwrap()
}

/// Starts a run and kills it in its third turn.
fn killed(home: &Home, server: &MockServer) {
    let mut running = Running(run(home, &server.base_url(), ["Make a list"]).spawn().unwrap());
    server.wait_for_requests(3).unwrap();
    running.signal(Signal::KILL);
    running.0.wait().unwrap();
    wait_for("clean-up", || home.traces().is_empty().then_some(()));
}

/// Starts a run and cancels it in its third turn, with this many signals.
fn cancelled(home: &Home, server: &MockServer, signals: u32) {
    let mut running = Running(run(home, &server.base_url(), ["Make a list"]).spawn().unwrap());
    server.wait_for_requests(3).unwrap();
    for _ in 0..signals {
        running.signal(Signal::INT);
        std::thread::sleep(Duration::from_millis(4));
    }
    assert_eq!(running.end(), 130);
    wait_for("clean-up", || home.traces().is_empty().then_some(()));
}

fn go_on(home: &Home) -> std::process::Output {
    home.command(["run", "--resume"]).arg(folder(home)).output().unwrap()
}

/// The steps of the record: every turn is there once.
fn check_steps(folder: &Path) {
    let record = json(&folder.join("trajectory.json"));
    let steps = record["steps"].as_array().unwrap();
    let turns: Vec<_> = steps.iter().filter_map(|step| step["metadata"]["turn"].as_u64()).collect();
    assert_eq!(turns, [1, 2, 3, 4]);
}

#[test]
fn a_killed_run_goes_on_where_its_files_were() {
    let Some(home) = Home::with_sandboxes() else { return };
    let server = listing();
    killed(&home, &server);
    let folder = folder(&home);
    let events = events(&folder);
    let saved = events.iter().rev().find(|event| event["kind"] == "saved").unwrap();
    let saved = saved["turn"].as_u64().unwrap();
    // Half a line, as a kill in the middle of a write leaves it.
    let path = folder.join("events.jsonl");
    let mut text = fs::read_to_string(&path).unwrap();
    text.push_str("{\"v\":1,\"at\":17");
    fs::write(&path, text).unwrap();

    let output = go_on(&home);
    assert_eq!((code(&output), out(&output).as_str()), (0, "one two deep\n"), "{}", err(&output));
    check_record(&home, &output, "submitted");
    check_steps(&folder);
    // The model hears what it had heard when the files were saved, and that its computer was restarted.
    let asked = &server.requests()[3];
    assert_eq!(asked.turns() as u64, saved);
    assert!(asked.mentions("Make a list") && asked.mentions("restarted"));
    assert!(!err(&output).contains("repeating"), "{}", err(&output));
}

#[test]
fn a_cancelled_run_goes_on_where_its_files_were() {
    for signals in [1, 2] {
        let Some(home) = Home::with_sandboxes() else { return };
        let server = listing();
        cancelled(&home, &server, signals);
        let events = events(&folder(&home));
        let saved = events.iter().rev().find(|event| event["kind"] == "saved").unwrap();
        let saved = saved["turn"].as_u64().unwrap();
        // A process that may clean up saves the last turn; another one keeps what was saved before.
        assert!(signals == 2 || saved == 2, "{saved}");
        let output = go_on(&home);
        let answer = (code(&output), out(&output));
        assert_eq!(answer, (0, "one two deep\n".to_owned()), "{signals}: {}", err(&output));
        assert!(!err(&output).contains("again"), "{}", err(&output));
        let asked = &server.requests()[3];
        assert_eq!(asked.turns() as u64, saved);
        assert!(asked.mentions("restarted. The files are as you left them"));
        check_record(&home, &output, "submitted");
        check_steps(&folder(&home));
    }
}

/// The files are saved again and again after a restart: on top of the saved ones, which nothing else needs then.
#[test]
fn a_resumed_run_goes_on_saving() {
    let Some(home) = Home::with_sandboxes() else { return };
    let server =
        MockServer::answering(|asked| match (asked.turns(), asked.mentions("restarted")) {
            (2, false) | (5, true) => Answer::hang(),
            (turn @ 2..5, true) => bash(format!("sleep 1.5; echo {turn} > /opt/{turn}")).into(),
            (turn, _) => bash(format!("echo {turn} > /opt/{turn}")).into(),
        })
        .unwrap();
    killed(&home, &server);
    let saved_turns = || {
        let events = events(&folder(&home));
        let saved = events.iter().filter(|event| event["kind"] == "saved");
        saved.map(|event| event["turn"].as_u64().unwrap()).collect::<Vec<_>>()
    };
    let before = saved_turns();
    let mut running =
        Running(home.command(["run", "--resume"]).arg(folder(&home)).spawn().unwrap());
    wait_for("the last turn", || (server.requests().last()?.turns() == 5).then_some(()));
    running.signal(Signal::INT);
    assert_eq!(running.end(), 130);
    let after = saved_turns();
    assert_eq!(after.last(), Some(&5), "{before:?} {after:?}");
    assert!(after.len() >= before.len() + 2, "{before:?} {after:?}");
    let images = home.json(["image", "list", "--json"]);
    assert_eq!(images.as_array().unwrap().len(), 1, "{images}");
}

#[test]
fn a_command_that_was_cancelled_halfway_leaves_no_trace() {
    let Some(home) = Home::with_sandboxes() else { return };
    let sleep = unique_sleep();
    let halfway = format!("echo half >> /testbed/output/list; {}", sleep.join(" "));
    let server =
        MockServer::answering(move |asked| match (asked.turns(), asked.mentions("restarted")) {
            (0, _) => bash("echo one > /testbed/output/list"),
            (1, false) => bash(halfway.clone()),
            (1, true) => bash("cd /testbed/output; paste -sd' ' list > answer.txt"),
            _ => submit(),
        })
        .unwrap();
    let mut running = Running(run(&home, &server.base_url(), ["Make a list"]).spawn().unwrap());
    wait_for("the command", || is_running(&sleep).then_some(()));
    running.signal(Signal::INT);
    assert_eq!(running.end(), 130);
    let output = go_on(&home);
    assert_eq!((code(&output), out(&output).as_str()), (0, "one\n"), "{}", err(&output));
    check_record(&home, &output, "submitted");
}

#[test]
fn a_failed_run_goes_on_where_its_files_were() {
    let Some(home) = Home::with_sandboxes() else { return };
    let server = MockServer::start().unwrap();
    server.push(bash("date +%N > /testbed/output/answer.txt; cat /testbed/output/answer.txt"));
    server.push(Answer::error(400, "no"));
    assert_eq!(code(&run(&home, &server.base_url(), ["Do it"]).output().unwrap()), 4);
    let first = fs::read_to_string(folder(&home).join("files/answer.txt")).unwrap();
    server.push(submit());
    let output = go_on(&home);
    assert_eq!((code(&output), out(&output)), (0, first), "{}", err(&output));
    check_record(&home, &output, "submitted");
}

#[test]
fn a_run_that_reached_a_limit_goes_on_with_a_higher_one() {
    let Some(home) = Home::with_sandboxes() else { return };
    let server = MockServer::start().unwrap();
    server.push(bash("echo x >> /testbed/output/answer.txt"));
    let output = run(&home, &server.base_url(), ["Do it", "--max-turns", "1"]).output().unwrap();
    assert_eq!(code(&output), 3, "{}", err(&output));
    let folder = folder(&home);
    assert!(err(&output).contains("out of turns (--max-turns 1) ·"), "{}", err(&output));
    let hint = format!("run --resume {} --max-turns 2\n", folder.display());
    assert!(err(&output).contains(&hint), "{}", err(&output));
    let resume = |args: &[&str]| {
        let mut command = home.command(["run", "--resume"]);
        command.arg(&folder).args(args).output().unwrap()
    };
    for args in [&[][..], &["--max-turns", "1"], &["--max-tokens", "99999"]] {
        let line = refusal(&resume(args), 2);
        assert!(line.contains("out of turns") && line.contains("higher --max-turns"), "{line}");
    }
    // What is refused changes nothing.
    assert_eq!(json(&folder.join("run.json"))["outcome"], "max_turns");
    server.push(Answer::error(400, "no"));
    let output = resume(&["--max-turns", "3"]);
    assert_eq!(code(&output), 4, "{}", err(&output));
    assert!(server.requests()[1].mentions("[2 steps remaining]"));
    // The new limit is recorded: it need not be repeated.
    server.push(bash("echo y >> /testbed/output/answer.txt"));
    server.push(submit());
    let output = resume(&[]);
    assert_eq!((code(&output), out(&output).as_str()), (0, "x\ny\n"), "{}", err(&output));
    check_record(&home, &output, "submitted");
    let record = json(&folder.join("trajectory.json"));
    assert_eq!(record["metadata"]["settings"]["limits"]["turns"], 3);
}

#[test]
fn saved_files_go_with_the_directory_of_their_run() {
    let Some(home) = Home::with_sandboxes() else { return };
    let server = listing();
    let output = run(&home, &server.base_url(), ["Do it", "--max-turns", "1"]).output().unwrap();
    assert_eq!(code(&output), 3, "{}", err(&output));
    let names = || {
        let images = home.json(["image", "list", "--json"]);
        let images = images.as_array().unwrap().iter();
        images.map(|image| image["name"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let saved = names();
    assert_eq!(saved.len(), 1, "{saved:?}");
    let kept = home.json(["image", "prune", "--json"]);
    assert_eq!((&kept["images"], names()), (&serde_json::json!([]), saved.clone()));
    fs::remove_dir_all(folder(&home)).unwrap();
    let pruned = home.run(["image", "prune"]);
    let text = err(&pruned);
    assert!(text.contains(&format!("runs whose directories are gone: {}", saved[0])), "{text}");
    assert!(text.contains("removed 1 layer"), "{text}");
    assert_eq!((code(&pruned), names()), (0, Vec::<String>::new()));
    assert_eq!(fs::read_dir(home.state().join("runs")).unwrap().count(), 0);
    // A run that is over leaves neither files nor a note.
    let server = MockServer::answering(|_: &Received| -> Answer { submit().into() }).unwrap();
    run(&home, &server.base_url(), ["Do it"]).output().unwrap();
    assert_eq!(names(), Vec::<String>::new());
    assert_eq!(fs::read_dir(home.state().join("runs")).unwrap().count(), 0);
}

#[test]
fn runs_with_the_same_settings_keep_their_own_files() {
    let Some(home) = Home::with_sandboxes() else { return };
    let server = listing();
    for _ in 0..2 {
        let output =
            run(&home, &server.base_url(), ["Do it", "--max-turns", "1"]).output().unwrap();
        assert_eq!(code(&output), 3, "{}", err(&output));
    }
    let folders: Vec<_> =
        fs::read_dir(home.file("out")).unwrap().map(|entry| entry.unwrap().path()).collect();
    let [kept, removed] = folders.as_slice() else { panic!("{folders:?}") };
    let image = |folder: &Path| {
        let saved = events(folder).into_iter().rfind(|event| event["kind"] == "saved").unwrap();
        saved["image"].as_str().unwrap().to_owned()
    };
    let gone = image(removed);
    // Both names begin with the same code.
    assert_eq!(gone[..20], image(kept)[..20]);
    fs::remove_dir_all(removed).unwrap();
    let pruned = home.json(["image", "prune", "--json"]);
    assert_eq!(pruned["images"], serde_json::json!([gone]));
    // A copy that is resumed to its end leaves the files that the original needs.
    let copy = home.file("copy");
    fs::create_dir(&copy).unwrap();
    for name in ["events.jsonl", "run.json"] {
        fs::copy(kept.join(name), copy.join(name)).unwrap();
    }
    for folder in [&copy, kept] {
        let mut resumed = home.command(["run", "--max-turns", "9", "--resume"]);
        let output = resumed.arg(folder).output().unwrap();
        assert_eq!(
            (code(&output), out(&output).as_str()),
            (0, "one two deep\n"),
            "{}",
            err(&output)
        );
    }
    assert_eq!(home.json(["image", "list", "--json"]), serde_json::json!([]));
    assert_eq!(fs::read_dir(home.state().join("runs")).unwrap().count(), 0);
}

#[test]
fn a_run_out_of_time_goes_on_with_more() {
    let Some(home) = Home::with_sandboxes() else { return };
    let server = MockServer::start().unwrap();
    server.push(bash("echo x > /testbed/output/answer.txt"));
    server.push(Answer::hang());
    let output = run(&home, &server.base_url(), ["Do it", "--deadline", "1"]).output().unwrap();
    assert_eq!(code(&output), 3, "{}", err(&output));
    let resume = |deadline: &str| {
        let mut command = home.command(["run", "--quiet", "--deadline", deadline, "--resume"]);
        command.arg(folder(&home)).output().unwrap()
    };
    let line = refusal(&resume("900ms"), 2);
    assert!(line.contains("out of time") && line.contains("higher --deadline"), "{line}");
    server.push(submit());
    let output = resume("1h");
    assert_eq!((code(&output), out(&output).as_str()), (0, "x\n"), "{}", err(&output));
    // Quiet means that only the answer is printed.
    assert_eq!(err(&output), "");
    check_record(&home, &output, "submitted");
}

#[test]
fn the_command_to_resume_can_be_copied() {
    let Some(home) = Home::with_sandboxes() else { return };
    let server = MockServer::start().unwrap();
    server.push(Answer::error(400, "no"));
    let mut command = run(&home, &server.base_url(), ["Do it"]);
    let output = command.args(["--output", "it's mine"]).output().unwrap();
    assert_eq!(code(&output), 4, "{}", err(&output));
    let line = err(&output).lines().last().unwrap().to_owned();
    let (_, command) = line.split_once("resume with: llm-in-sandbox ").unwrap();
    server.push(submit());
    server.push(submit());
    let program = crate::support::program();
    let mut shell = std::process::Command::new("sh");
    shell.arg("-c").arg(format!("exec \"$PROGRAM\" {command}")).env("PROGRAM", program);
    shell.env("LLM_IN_SANDBOX_HOME", home.state()).current_dir("/");
    let output = shell.output().unwrap();
    assert_eq!(code(&output), 0, "{line}: {}", err(&output));
}

#[test]
fn without_the_saved_files_everything_is_done_again() {
    let Some(home) = Home::with_sandboxes() else { return };
    let server = listing();
    killed(&home, &server);
    let images = home.json(["image", "list", "--json"]);
    for image in images.as_array().unwrap() {
        home.ok(["image", "rm", image["name"].as_str().unwrap()]);
    }
    let output = go_on(&home);
    assert_eq!((code(&output), out(&output).as_str()), (0, "one two deep\n"), "{}", err(&output));
    check_record(&home, &output, "submitted");
    check_steps(&folder(&home));
    assert!(err(&output).contains("repeating 2 recorded tool calls"), "{}", err(&output));
    assert_eq!(server.requests()[3].turns(), 2);
    assert!(server.requests()[3].mentions("all your commands were run again"));
    // Long outputs are where the model was told they are.
    let last = server.requests()[4].messages().last().unwrap().to_string();
    assert!(last.contains("20001 /tmp/outputs/1.stdout.txt"), "{last}");
    assert!(last.contains("20002 /tmp/outputs/2.stdout.txt"), "{last}");
}

#[test]
fn what_is_not_recorded_is_asked_for_again() {
    let Some(home) = Home::with_sandboxes() else { return };
    let server = MockServer::start().unwrap();
    server.push(bash("true"));
    server.push(Answer::error(400, "no"));
    let body = "{\"api_key\": \"sk-hush\", \"min_p\": 0.5}";
    let args = ["Do it", "--env", "TOKEN=tk-hush", "--extra-body", body, "--api-key-env", "THEN"];
    let mut command = run(&home, &server.base_url(), args);
    assert_eq!(code(&command.env("THEN", "sk-hush-then").output().unwrap()), 4);
    let folder = folder(&home);
    for name in ["events.jsonl", "trajectory.json", "run.json"] {
        let text = fs::read_to_string(folder.join(name)).unwrap();
        assert!(!text.contains("hush"), "{name}");
    }
    // A user may call it what no image can be called.
    let renamed = home.file("out/Mein Lauf Ä");
    fs::rename(&folder, &renamed).unwrap();
    let resume = |args: &[&str]| {
        let mut command = home.command(["run", "--api-key", "sk-now", "--resume"]);
        command.arg(&renamed).args(args).output().unwrap()
    };
    for (args, word) in [
        (vec!["--extra-body", body], "--env TOKEN"),
        (vec!["--env", "TOKEN=tk-hush"], "--extra-body"),
        (vec!["--command-timeout", "5"], "--command-timeout"),
        (vec!["--network", "full"], "--network"),
    ] {
        let line = refusal(&resume(&args), 2);
        assert!(line.contains(word), "{args:?}: {line}");
    }
    server.push(bash("echo $TOKEN > /testbed/output/answer.txt"));
    server.push(bash("sleep 1"));
    server.push(submit());
    let args = ["--env", "TOKEN=tk-hush", "--extra-body", body, "--temperature", "0.25"];
    let output = resume(&args);
    assert_eq!((code(&output), out(&output).as_str()), (0, "tk-hush\n"), "{}", err(&output));
    let asked = server.requests();
    assert_eq!(asked[2].header("authorization"), Some("Bearer sk-now"));
    let asked = &asked[2].body;
    assert_eq!((&asked["api_key"], &asked["min_p"]), (&"sk-hush".into(), &0.5.into()));
    assert_eq!(asked["temperature"], 0.25);
    assert!(kinds(&renamed).iter().filter(|kind| *kind == "saved").count() > 1);
}

#[test]
fn only_what_broke_off_can_go_on() {
    let Some(home) = Home::with_sandboxes() else { return };
    let server = MockServer::scripted([submit(), submit()]).unwrap();
    assert_eq!(code(&run(&home, &server.base_url(), ["Do it"]).output().unwrap()), 0);
    let done = home.command(["run", "--resume"]).arg(folder(&home)).output().unwrap();
    assert_eq!(code(&done), 2, "{}", err(&done));
    assert!(err(&done).contains("submitted"), "{}", err(&done));
    let nothing = home.command(["run", "--resume", "nowhere"]).output().unwrap();
    assert_eq!(code(&nothing), 2);
    assert!(err(&nothing).contains("events.jsonl"), "{}", err(&nothing));
}

#[test]
fn a_run_under_way_is_left_alone() {
    let Some(home) = Home::with_sandboxes() else { return };
    let server = MockServer::start().unwrap();
    server.push(bash("true"));
    server.push(Answer::hang());
    let running = Running(run(&home, &server.base_url(), ["Do it"]).spawn().unwrap());
    server.wait_for_requests(2).unwrap();
    let output = home.command(["run", "--resume"]).arg(folder(&home)).output().unwrap();
    assert_eq!(code(&output), 2, "{}", err(&output));
    assert!(err(&output).contains("another process"), "{}", err(&output));
    drop(running);
}

#[test]
fn a_record_somebody_else_wrote_is_not_obeyed() {
    let Some(home) = Home::with_sandboxes() else { return };
    let server = listing();
    killed(&home, &server);
    let path = folder(&home).join("events.jsonl");
    let honest = fs::read_to_string(&path).unwrap();
    let forged = honest.replacen("\"network\":\"none\"", "\"network\":\"full\"", 1);
    assert_ne!(forged, honest);
    fs::write(&path, &forged).unwrap();
    let asked = server.count();
    let refused = home.command(["run", "--resume"]).arg(folder(&home)).output().unwrap();
    assert_eq!(code(&refused), 2, "{}", err(&refused));
    assert!(err(&refused).contains("--trust"), "{}", err(&refused));
    assert_eq!(server.count(), asked);
    // The one who looked at it may say so.
    let trusted = home.command(["run", "--trust", "--resume"]).arg(folder(&home)).output().unwrap();
    assert_eq!(code(&trusted), 0, "{}", err(&trusted));
}

#[test]
fn events_somebody_else_wrote_are_not_obeyed() {
    let Some(home) = Home::with_sandboxes() else { return };
    let server = listing();
    killed(&home, &server);
    let path = folder(&home).join("events.jsonl");
    let honest = fs::read_to_string(&path).unwrap();
    let without = |kind: &str| -> String {
        let kind = format!("\"kind\":\"{kind}\"");
        honest.split_inclusive('\n').filter(|line| !line.contains(&kind)).collect()
    };
    // The settings are the user's own, with their seal. Without the saved files all commands are run again.
    let forged = without("saved").replace("echo two", "echo evil");
    assert!(forged.contains("echo evil"), "{forged}");
    let asked = server.count();
    for text in [
        forged,
        without("saved"),
        format!("{honest}{}\n", r#"{"v":1,"at":1,"kind":"resumed","turn":1}"#),
    ] {
        fs::write(&path, &text).unwrap();
        let refused = go_on(&home);
        assert_eq!(code(&refused), 2, "{}", err(&refused));
        assert!(err(&refused).contains("the events in") && err(&refused).contains("--trust"));
        assert_eq!(fs::read_to_string(&path).unwrap(), text, "what is refused is not changed");
    }
    assert_eq!(server.count(), asked);
    // The one who looked at it may say so, each time.
    fs::write(&path, without("saved")).unwrap();
    let mut trusted = home.command(["run", "--trust", "--max-turns", "1", "--resume"]);
    let output = trusted.arg(folder(&home)).output().unwrap();
    assert_eq!(code(&output), 2, "two turns are there: {}", err(&output));
    let trusted = home.command(["run", "--trust", "--resume"]).arg(folder(&home)).output().unwrap();
    assert_eq!(
        (code(&trusted), out(&trusted).as_str()),
        (0, "one two deep\n"),
        "{}",
        err(&trusted)
    );
}

/// A killed run whose file lost its end, at a line or within one, is that of a process that was killed earlier.
#[test]
fn the_beginning_of_a_run_is_resumed() {
    let Some(home) = Home::with_sandboxes() else { return };
    let server = listing();
    killed(&home, &server);
    let path = folder(&home).join("events.jsonl");
    let honest = fs::read_to_string(&path).unwrap();
    let observed = honest.find("\"kind\":\"observed\"").unwrap();
    fs::write(&path, &honest[..observed]).unwrap();
    let output = go_on(&home);
    assert_eq!((code(&output), out(&output).as_str()), (0, "one two deep\n"), "{}", err(&output));
    check_steps(&folder(&home));
}

#[test]
fn links_in_the_directory_of_a_run_are_not_written_through() {
    let Some(home) = Home::with_sandboxes() else { return };
    let server = listing();
    killed(&home, &server);
    let victim = home.file("victim");
    fs::write(&victim, "mine").unwrap();
    for name in [".run.json.partial", ".trajectory.json.partial"] {
        std::os::unix::fs::symlink(&victim, folder(&home).join(name)).unwrap();
    }
    let output = go_on(&home);
    assert_eq!(code(&output), 0, "{}", err(&output));
    assert_eq!(fs::read_to_string(&victim).unwrap(), "mine");
}
