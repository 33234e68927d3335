//! How named sandboxes end: idle, by a kill of their supervisor; and what does not end them.

use std::{
    fs,
    process::{Command, Stdio},
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process};

use super::{Kept, is_alive};
use crate::support::{
    Running, code, err, is_running, out, program, refusal, unique_sleep, wait_for,
};

fn kill(pid: u32, signal: Signal) {
    kill_process(Pid::from_raw(pid.try_into().unwrap()).unwrap(), signal).unwrap();
}

/// A command in `box` that runs until it is killed.
fn start(kept: &Kept, sleep: &[String]) -> Running {
    let mut command = kept.command(["sandbox", "exec", "box", "--"]);
    let running = Running(command.args(sleep).spawn().unwrap());
    wait_for("the command", || is_running(sleep).then_some(()));
    running
}

#[test]
fn a_command_ends_with_its_client_and_the_sandbox_stays() {
    let Some(kept) = Kept::with_box() else { return };
    for (signal, code) in
        [(Signal::INT, Some(130)), (Signal::TERM, Some(143)), (Signal::KILL, None)]
    {
        let sleep = unique_sleep();
        let mut running = start(&kept, &sleep);
        running.signal(signal);
        let ended = wait_for("the client's end", || running.0.try_wait().unwrap());
        assert_eq!(ended.code(), code);
        wait_for("the command's end", || (!is_running(&sleep)).then_some(()));
    }
    assert_eq!(kept.exec_ok("echo still here"), "still here\n");
}

#[test]
fn an_idle_sandbox_is_removed_and_a_busy_one_is_not() {
    let Some(kept) = Kept::new() else { return };
    kept.ok(["sandbox", "create", "forever", "--idle-timeout", "none"]);
    let owner = kept.owner();
    kept.ok(["sandbox", "create", "box", "--idle-timeout", "2s"]);
    assert_eq!(kept.exec_ok("sleep 2.2; echo done"), "done\n");
    wait_for("the idle sandbox's end", || (kept.names() == ["forever"]).then_some(()));
    let gone = refusal(&kept.exec("true"), 2);
    assert!(
        gone.contains("there is no sandbox `box`") && gone.contains("sandbox create"),
        "{gone}"
    );
    kept.ok(["sandbox", "rm", "forever"]);
    kept.is_clean(owner);
}

#[test]
fn a_killed_supervisor_takes_its_sandboxes_along_and_the_next_command_says_so() {
    let Some(kept) = Kept::with_box() else { return };
    kept.ok(["sandbox", "create", "other"]);
    let owner = kept.owner();
    let sleep = unique_sleep();
    let mut running = start(&kept, &sleep);
    kill(owner, Signal::KILL);
    assert_eq!(running.end(), 4);
    wait_for("the command's end", || (!is_running(&sleep)).then_some(()));
    wait_for("the removal of every trace", || kept.traces().is_empty().then_some(()));

    let output = kept.exec("true");
    assert_eq!(code(&output), 2);
    let text = err(&output);
    assert!(text.contains("lost: box, other;"), "{text}");
    assert!(text.contains("there is no sandbox `box`"), "{text}");
    // Once is enough.
    assert!(!err(&kept.exec("true")).contains("lost"));
    assert_eq!(kept.ok(["sandbox", "create", "box"]), "box\n");
    assert_eq!(kept.exec_ok("echo again"), "again\n");
    kill(kept.owner(), Signal::KILL);
    let output = kept.run(["sandbox", "create", "box"]);
    assert_eq!((code(&output), out(&output).as_str()), (0, "box\n"));
    assert!(err(&output).contains("lost: box;"), "{}", err(&output));
}

#[test]
fn a_supervisor_without_its_spawner_gives_up_and_the_next_one_works() {
    let Some(kept) = Kept::with_box() else { return };
    let owner = kept.owner();
    let spawner = wait_for("the spawner", || crate::leaves_nothing_behind::spawner_of(owner));
    kill_process(spawner, Signal::KILL).unwrap();
    wait_for("the sandbox's end", || (code(&kept.exec("true")) == 4).then_some(()));
    let failed = kept.run(["sandbox", "create", "other"]);
    assert_eq!(code(&failed), 4, "{}", err(&failed));
    wait_for("the supervisor's end", || (!is_alive(owner)).then_some(()));
    let output = kept.run(["sandbox", "create", "other"]);
    assert_eq!(code(&output), 0, "{}", err(&output));
    assert!(err(&output).contains("lost: box;"), "{}", err(&output));
}

#[test]
fn a_terminated_supervisor_cleans_up() {
    let Some(kept) = Kept::with_box() else { return };
    let owner = kept.owner();
    kill(owner, Signal::TERM);
    kept.is_clean(owner);
    assert!(!err(&kept.run(["sandbox", "list", "--runtime", "native"])).contains("lost"));
}

#[test]
fn the_supervisor_is_detached_and_holds_nothing_of_its_caller() {
    let Some(kept) = Kept::new() else { return };
    // The pipe ends although the supervisor lives: it does not have descriptor 7.
    let script = format!("{} sandbox create box 7>&1 >/dev/null", program().display());
    let mut shell = Command::new("bash");
    shell
        .args(["-c", &script])
        .env("LLM_IN_SANDBOX_HOME", kept.state())
        .env("SECRET_OF_THE_CALLER", "x")
        .current_dir(kept.file(""))
        .stdin(Stdio::null());
    let output = shell.output().unwrap();
    assert_eq!((code(&output), err(&output).as_str()), (0, ""));
    let owner = kept.owner();
    assert!(is_alive(owner));
    let proc = |name: &str| format!("/proc/{owner}/{name}");
    for fd in 0..3 {
        assert_eq!(fs::read_link(proc(&format!("fd/{fd}"))).unwrap().to_str(), Some("/dev/null"));
    }
    assert_eq!(fs::read_link(proc("cwd")).unwrap().to_str(), Some("/"));
    assert!(!fs::read_to_string(proc("environ")).unwrap().contains("SECRET_OF_THE_CALLER"));
    let stat = fs::read_to_string(proc("stat")).unwrap();
    let fields: Vec<_> = stat.rsplit_once(") ").unwrap().1.split(' ').collect();
    let (session, terminal) = (fields[3], fields[4]);
    let own = fs::read_to_string("/proc/self/stat").unwrap();
    assert_ne!(session, own.rsplit_once(") ").unwrap().1.split(' ').nth(3).unwrap());
    assert_ne!(session, owner.to_string(), "it is not the leader of its session");
    assert_eq!(terminal, "0");
}

#[test]
fn a_removed_sandbox_ends_its_commands() {
    let Some(kept) = Kept::with_box() else { return };
    let sleep = unique_sleep();
    let mut running = start(&kept, &sleep);
    kept.ok(["sandbox", "rm", "box"]);
    assert!(!is_running(&sleep));
    assert_eq!(running.end(), 4);
    std::thread::sleep(Duration::from_millis(10));
}

#[test]
fn a_killed_command_spares_what_another_left_in_the_background() {
    let Some(kept) = Kept::with_box() else { return };
    let sleep = unique_sleep();
    let running = start(&kept, &sleep);
    let (left, own) = (unique_sleep(), unique_sleep());
    kept.exec_ok(&format!("{} >/dev/null 2>&1 &", left.join(" ")));
    wait_for("the program in the background", || is_running(&left).then_some(()));
    // What the killed command itself left goes with it, also from a session of its own.
    let script = format!("setsid {} & sleep 1000", own.join(" "));
    let mut command = kept.command(["sandbox", "exec", "box", "--", "bash", "-c", &script]);
    let other = Running(command.spawn().unwrap());
    wait_for("the other command", || is_running(&own).then_some(()));
    for killed in [&running, &other] {
        killed.signal(Signal::KILL);
    }
    for gone in [&sleep, &own] {
        wait_for("the end of the commands", || (!is_running(gone)).then_some(()));
    }
    assert!(is_running(&left));
}

#[test]
fn a_killed_command_spares_the_daemon_another_started_meanwhile() {
    let Some(kept) = Kept::with_box() else { return };
    let (sleep, daemon, own) = (unique_sleep(), unique_sleep(), unique_sleep());
    let running = start(&kept, &sleep);
    // In a session of its own, and an orphan: only how it came to be says whose it is.
    kept.exec_ok(&format!("setsid -f {} >/dev/null 2>&1", daemon.join(" ")));
    let script = format!("setsid -f {}; sleep 1000", own.join(" "));
    let mut command = kept.command(["sandbox", "exec", "box", "--", "bash", "-c", &script]);
    let other = Running(command.spawn().unwrap());
    for started in [&daemon, &own] {
        wait_for("the daemons", || is_running(started).then_some(()));
    }
    for killed in [&running, &other] {
        killed.signal(Signal::KILL);
    }
    for gone in [&sleep, &own] {
        wait_for("the end of the commands", || (!is_running(gone)).then_some(()));
    }
    assert!(is_running(&daemon));
}
