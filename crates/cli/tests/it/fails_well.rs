//! Whatever fails, the outcome says so, the exit code is right, the record reads, and nothing stays behind.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use rustix::process::Signal;
use testkit::{Answer, Fault, MockServer, UnusedPort, bash, say, submit};

use crate::{
    episodes::{check_record, events, folder, json, kinds, ran, run},
    support::{
        Home, Running, code, err, is_root, is_running, out, setting, skip, unique_sleep, wait_for,
    },
};

fn good() -> [testkit::Turn; 2] {
    [bash("echo fine > /testbed/output/answer.txt"), submit()]
}

#[test]
fn passing_faults_are_tried_again_and_recorded() {
    let Some(_) = Home::with_sandboxes() else { return };
    let faults: Vec<(&str, Answer)> = vec![
        ("busy", Answer::busy(0)),
        ("500", Answer::error(500, "boom")),
        ("503", Answer::page(503)),
        ("closed", Answer::close()),
        ("cut", bash("echo half > /testbed/output/answer.txt").fault(Fault::CutAfter(3))),
        ("cut inside JSON", bash("rm -rf /testbed").fault(Fault::CutInJson(2))),
        ("malformed", say("hm").fault(Fault::Malformed(1))),
        ("error event", say("hm").fault(Fault::ErrorEvent(1, "overloaded".into()))),
    ];
    // Each waits a second before it asks again, so they wait together.
    std::thread::scope(|scope| {
        for (name, fault) in faults {
            scope.spawn(move || recovers_from(name, fault));
        }
    });
}

fn recovers_from(name: &str, fault: Answer) {
    let home = Home::new();
    let server = MockServer::start().unwrap();
    server.push(fault);
    good().into_iter().for_each(|turn| server.push(turn));
    let output = ran(&home, &server, ["Do it", "--retries", "2"]);
    assert_eq!((code(&output), out(&output).as_str()), (0, "fine\n"), "{name}: {}", err(&output));
    let folder = check_record(&home, &output, "submitted");
    let retried = events(&folder).into_iter().filter(|event| event["kind"] == "retried");
    assert_eq!(retried.count(), 1, "{name}");
}

#[test]
fn silence_is_noticed() {
    let Some(home) = Home::with_sandboxes() else { return };
    for fault in [Answer::hang(), say("a long story").fault(Fault::SilentAfter(2))] {
        let server = MockServer::start().unwrap();
        server.push(fault);
        let output = ran(&home, &server, ["Do it", "--retries", "0", "--silence", "300ms"]);
        assert_eq!(code(&output), 4, "{}", err(&output));
        let folder = check_record(&home, &output, "infrastructure");
        let cause = json(&folder.join("run.json"))["cause"].to_string();
        assert!(cause.contains("sent nothing"), "{cause}");
        fs::remove_dir_all(home.file("out")).unwrap();
    }
}

#[test]
fn what_will_not_pass_stops_at_once_with_the_servers_words() {
    let Some(home) = Home::with_sandboxes() else { return };
    let key = "sk-secret-1234567890";
    for (status, message) in [
        (401, format!("bad key {key}")),
        (403, "no entry".to_owned()),
        (400, "unknown field `x`".to_owned()),
        (404, "no such model".to_owned()),
    ] {
        let server = MockServer::start().unwrap();
        server.push(Answer::error(status, &message));
        let mut command = run(&home, &server.base_url(), ["Do it"]);
        let output = command.env("LLM_API_KEY", key).output().unwrap();
        assert_eq!(code(&output), 4, "{status}: {}", err(&output));
        assert_eq!(server.count(), 1, "{status}");
        let folder = check_record(&home, &output, "infrastructure");
        let cause = json(&folder.join("run.json"))["cause"].to_string();
        assert!(cause.contains(&message.replace(key, "[hidden]")), "{cause}");
        fs::remove_dir_all(home.file("out")).unwrap();
    }
}

#[test]
fn a_missing_key_is_named_with_the_option() {
    let Some(home) = Home::with_sandboxes() else { return };
    let server = MockServer::start().unwrap();
    server.push(Answer::error(401, "who are you?"));
    let output = ran(&home, &server, ["Do it"]);
    assert_eq!((code(&output), server.count()), (4, 1), "{}", err(&output));
    let shown = err(&output);
    assert!(shown.contains("none was sent (401): who are you?"), "{shown}");
    assert!(shown.contains("--api-key-env"), "{shown}");
    check_record(&home, &output, "infrastructure");
}

#[test]
fn nobody_at_the_address_is_named() {
    let Some(home) = Home::with_sandboxes() else { return };
    let nobody = UnusedPort::new().unwrap();
    let url = nobody.base_url().unwrap();
    let output = run(&home, &url, ["Do it", "--retries", "1"]).output().unwrap();
    assert_eq!(code(&output), 4);
    assert!(err(&output).contains(&url), "{}", err(&output));
    check_record(&home, &output, "infrastructure");
}

#[test]
fn a_full_context_ends_the_episode() {
    let Some(home) = Home::with_sandboxes() else { return };
    let words = "This model's maximum context length is 4096 tokens. However, you requested 4196 tokens \
                 (4090 in the messages, 106 in the completion). Please reduce the length of the messages \
                 or completion.";
    let server = MockServer::start().unwrap();
    server.push(bash("true"));
    server.push(Answer::error(400, words));
    server.push(Answer::error(400, words));
    let output = ran(&home, &server, ["Do it"]);
    assert_eq!(code(&output), 3, "{}", err(&output));
    check_record(&home, &output, "context_full");
}

#[test]
fn a_context_with_room_left_gets_fewer_tokens() {
    let Some(home) = Home::with_sandboxes() else { return };
    let words = "This model's maximum context length is 4096 tokens. However, you requested 66036 tokens \
                 (500 in the messages, 65536 in the completion). Please reduce the length of the messages \
                 or completion.";
    let server = MockServer::start().unwrap();
    server.push(Answer::error(400, words));
    good().into_iter().for_each(|turn| server.push(turn));
    let output = ran(&home, &server, ["Do it"]);
    assert_eq!(code(&output), 0, "{}", err(&output));
    let asked = server.requests()[1].body["max_tokens"].as_u64().unwrap();
    assert!((3000..=3596).contains(&asked), "{asked}");
}

#[test]
fn a_reply_cut_off_in_a_call_does_not_run_half_a_command() {
    let Some(home) = Home::with_sandboxes() else { return };
    let server = MockServer::start().unwrap();
    server.push(Answer::cut_call("execute_bash", "{\"command\": \"rm -rf /testbed/output"));
    good().into_iter().for_each(|turn| server.push(turn));
    let output = ran(&home, &server, ["Do it"]);
    assert_eq!((code(&output), out(&output).as_str()), (0, "fine\n"), "{}", err(&output));
    let said = server.requests()[1].messages().last().unwrap().to_string();
    assert!(said.contains("cut off"), "{said}");
}

#[test]
fn a_sandbox_killed_in_a_command_is_infrastructure() {
    let Some(home) = Home::with_sandboxes() else { return };
    let sleep = unique_sleep();
    let server = MockServer::scripted([bash(sleep.join(" "))]).unwrap();
    let mut running = Running(run(&home, &server.base_url(), ["Do it"]).spawn().unwrap());
    wait_for("the command", || is_running(&sleep).then_some(()));
    let spawner =
        wait_for("the spawner", || crate::leaves_nothing_behind::spawner_of(running.0.id()));
    rustix::process::kill_process(spawner, Signal::KILL).unwrap();
    assert_eq!(running.end(), 4);
    let folder = folder(&home);
    assert_eq!(json(&folder.join("run.json"))["outcome"], "infrastructure");
    assert_eq!(json(&folder.join("trajectory.json"))["metadata"]["outcome"], "infrastructure");
    wait_for("the command's end", || (!is_running(&sleep)).then_some(()));
    home.ok(["sandbox", "prune"]);
    assert_eq!(home.traces(), Vec::<PathBuf>::new());
}

#[test]
fn a_full_disk_inside_is_the_models_to_solve() {
    let Some(home) = Home::with_sandboxes() else { return };
    let server = MockServer::scripted([
        bash("head -c 40M /dev/zero > /testbed/output/big; echo $?"),
        bash("rm -f /testbed/output/big; echo small > /testbed/output/answer.txt"),
        submit(),
    ])
    .unwrap();
    let output = ran(&home, &server, ["Do it", "--disk", "16M"]);
    assert_eq!((code(&output), out(&output).as_str()), (0, "small\n"), "{}", err(&output));
    let seen = server.requests()[1].messages().last().unwrap().to_string();
    assert!(seen.contains("disk"), "{seen}");
}

#[test]
fn an_output_that_cannot_be_written_is_told_before_anything_is_made() {
    let Some(home) = Home::with_sandboxes() else { return };
    let server = MockServer::start().unwrap();
    fs::write(home.file("out"), "a file").unwrap();
    let output = ran(&home, &server, ["Do it"]);
    assert_eq!(code(&output), 2, "{}", err(&output));
    assert!(err(&output).contains("--output"), "{}", err(&output));
    fs::remove_file(home.file("out")).unwrap();
    if !is_root() {
        use std::os::unix::fs::PermissionsExt;
        fs::create_dir(home.file("out")).unwrap();
        fs::set_permissions(home.file("out"), fs::Permissions::from_mode(0o500)).unwrap();
        let output = ran(&home, &server, ["Do it"]);
        assert_eq!(code(&output), 4, "{}", err(&output));
    }
    assert_eq!(server.count(), 0);
    assert_eq!(home.traces(), Vec::<PathBuf>::new());
}

#[test]
fn no_room_for_the_record_ends_the_episode() {
    let Some(home) = Home::with_sandboxes() else { return };
    let Some(_small) = small_disk(&home) else { return };
    let server = MockServer::answering(|_| bash("true").text("x".repeat(20_000))).unwrap();
    let output = ran(&home, &server, ["Do it"]);
    assert_eq!(code(&output), 4, "{}", err(&output));
    assert!(err(&output).contains("space") || err(&output).contains("record"), "{}", err(&output));
    // What was written before can be read.
    let kinds = kinds(&folder(&home));
    assert!(kinds.len() > 2 && kinds.last().unwrap() == "ended", "{kinds:?}");
    assert_eq!(home.traces(), Vec::<PathBuf>::new());
}

/// A file system with hardly any room.
struct Small(PathBuf);

fn small_disk(home: &Home) -> Option<Small> {
    if !is_root() {
        println!("skip: only root can mount a small disk");
        return None;
    }
    let dir = home.file("out");
    fs::create_dir(&dir).unwrap();
    let mounted = std::process::Command::new("mount")
        .args(["-t", "tmpfs", "-o", "size=128k", "tmpfs"])
        .arg(&dir)
        .status();
    assert!(mounted.unwrap().success());
    Some(Small(dir))
}

impl Drop for Small {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount").arg(&self.0).status();
    }
}

#[test]
fn ctrl_c_keeps_files_and_record() {
    let Some(home) = Home::with_sandboxes() else { return };
    for (signal, expected) in [(Signal::INT, 130), (Signal::TERM, 143)] {
        let sleep = unique_sleep();
        let script = format!("echo partial > /testbed/output/answer.txt; {}", sleep.join(" "));
        let server = MockServer::scripted([bash(script)]).unwrap();
        let mut running = Running(run(&home, &server.base_url(), ["Do it"]).spawn().unwrap());
        wait_for("the command", || is_running(&sleep).then_some(()));
        running.signal(signal);
        assert_eq!(running.end(), expected);
        let folder = folder(&home);
        assert_eq!(json(&folder.join("run.json"))["outcome"], "cancelled");
        assert_eq!(json(&folder.join("run.json"))["answer"], "partial");
        assert_eq!(fs::read_to_string(folder.join("files/answer.txt")).unwrap(), "partial\n");
        assert!(!is_running(&sleep));
        assert_eq!(home.traces(), Vec::<PathBuf>::new());
        fs::remove_dir_all(home.file("out")).unwrap();
    }
}

#[test]
fn ctrl_c_while_the_model_thinks_ends_at_once() {
    let Some(home) = Home::with_sandboxes() else { return };
    let server = MockServer::start().unwrap();
    server.push(Answer::hang());
    let mut running = Running(run(&home, &server.base_url(), ["Do it"]).spawn().unwrap());
    server.wait_for_requests(1).unwrap();
    let began = std::time::Instant::now();
    running.signal(Signal::INT);
    assert_eq!(running.end(), 130);
    assert!(began.elapsed() < Duration::from_secs(10));
    assert_eq!(json(&folder(&home).join("run.json"))["outcome"], "cancelled");
}

#[test]
fn what_a_model_does_to_its_output_is_not_our_failure() {
    let Some(home) = Home::with_sandboxes() else { return };
    let names = r#"cd /testbed/output; echo 1 > answer.txt; touch "$(printf '\xff\x1b]0;x\x07')"; ln -s /etc "$(printf 'l\x1b[31m\nx')""#;
    let scripts = [
        ("rm -rf /testbed/output", ""),
        ("rm -rf /testbed/output; mkfifo /testbed/output", ""),
        ("rm -rf /testbed/output; echo 1 > /testbed/output", ""),
        ("rm -rf /testbed/output; ln -s /etc /testbed/output", ""),
        ("cd /testbed/output; for i in 1 2 3 4; do truncate -s 40M f$i; done", ""),
        (names, "1\n"),
    ];
    for (script, answer) in scripts {
        let server = MockServer::scripted([bash(script), submit(), submit()]).unwrap();
        let output = ran(&home, &server, ["Do it", "--disk", "64M"]);
        assert_eq!(
            (code(&output), out(&output).as_str()),
            (0, answer),
            "{script}: {}",
            err(&output)
        );
        assert!(!err(&output).contains('\u{1b}') && !err(&output).contains('\u{7}'), "{script}");
        check_record(&home, &output, "submitted");
        fs::remove_dir_all(home.file("out")).unwrap();
    }
}

#[test]
fn a_reader_that_leaves_does_not_change_the_end() {
    let Some(home) = Home::with_sandboxes() else { return };
    let server = MockServer::answering(|_| bash("true")).unwrap();
    let args = ["Do it", "--json", "--max-turns", "1"];
    let mut running = Running(run(&home, &server.base_url(), args).spawn().unwrap());
    drop(running.0.stdout.take());
    assert_eq!(running.end(), 3);
}

/// Copies the shell, `mkdir` and their libraries from one root file system to another.
const SMALL_ROOTFS: &str = "cd \"$1\" && cp -a --parents -t \"$2\" bin lib lib64 usr/lib64 \
    usr/bin/bash usr/bin/mkdir usr/lib/*-linux-gnu/{ld-linux*,libc.so.6,libtinfo.so.6*,libselinux.so.1,libpcre2-8.so.0*}";

#[test]
fn a_directory_as_the_image_leaves_nothing_behind() {
    let Some(rootfs) = setting("LIS_TEST_ROOTFS") else {
        return skip("rootfs", "LIS_TEST_ROOTFS names no directory with a root file system");
    };
    let Some(home) = Home::with_sandboxes() else { return };
    let server = MockServer::scripted(good()).unwrap();
    let small = home.file("small");
    fs::create_dir(&small).unwrap();
    // Saving copies the directory, and gives up after a while: the shell and what preparing a sandbox needs suffice.
    let copied = std::process::Command::new("bash")
        .args(["-c", SMALL_ROOTFS, "bash"])
        .args([Path::new(&rootfs), &small])
        .status();
    assert!(copied.unwrap().success());
    let mut command = run(&home, &server.base_url(), ["Do it", "--image"]);
    let output = command.arg(small).output().unwrap();
    assert_eq!((code(&output), out(&output).as_str()), (0, "fine\n"), "{}", err(&output));
    let folder = check_record(&home, &output, "submitted");
    assert!(kinds(&folder).contains(&"saved".to_owned()));
}
