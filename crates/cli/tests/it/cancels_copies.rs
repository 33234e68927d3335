//! Ctrl-C while files are copied: the program ends at once, and nothing half copied stays.

use std::{
    fs,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use rustix::process::Signal;
use testkit::{MockServer, bash, submit};

use crate::{
    episodes::{folder, run},
    support::{Home, Running, setting, wait_for},
};

/// The promise is a second, and half of one for the program to end; a machine that is busy with other work gets more.
fn at_once() -> Duration {
    let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let load: f64 = load.split(' ').next().and_then(|load| load.parse().ok()).unwrap_or(f64::MAX);
    let cores = std::thread::available_parallelism().map_or(1.0, |cores| cores.get() as f64);
    let patience = setting("LIS_PATIENCE").and_then(|text| text.to_str()?.parse::<u32>().ok());
    Duration::from_millis(if load <= cores { 1500 } else { 6000 }) * patience.unwrap_or(1)
}

/// A file without data that takes hours to copy.
fn endless(path: &Path) {
    fs::File::create(path).unwrap().set_len(1 << 43).unwrap();
}

/// Hidden files in a directory: what is being copied.
fn partial(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let is_partial = |path: &PathBuf| path.to_string_lossy().contains(".partial");
    entries.map(|entry| entry.path()).filter(is_partial).collect()
}

fn cancel(running: &mut Running) {
    let begun = Instant::now();
    running.signal(Signal::INT);
    assert_eq!(running.end(), 130);
    let took = begun.elapsed();
    eprintln!("ended after {took:?}");
    assert!(took < at_once(), "{took:?}");
}

#[test]
fn ctrl_c_ends_a_copy_into_a_sandbox() {
    let Some(home) = Home::with_sandboxes() else { return };
    endless(&home.file("large"));
    let mut command =
        home.command(["sandbox", "run", "--disk", "none", "--copy-in", "large:/testbed/large"]);
    let mut running = Running(command.args(["--", "true"]).spawn().unwrap());
    wait_for("the copy", || written(&home.state().join("run")).then_some(()));
    cancel(&mut running);
    assert_eq!(home.traces(), Vec::<PathBuf>::new());
}

/// Whether a file below this directory has content: the copy is under way.
fn written(dir: &Path) -> bool {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).any(|path| match path.symlink_metadata() {
        Ok(meta) if meta.is_dir() => written(&path),
        Ok(meta) => path.ends_with("large") && meta.len() > 0,
        Err(_) => false,
    })
}

#[test]
fn ctrl_c_ends_a_copy_out_of_a_sandbox() {
    let Some(home) = Home::with_sandboxes() else { return };
    let mut command = home.command(["sandbox", "run", "--disk", "none", "--copy-out", "t:copied"]);
    let script = "mkdir t; touch t/a t/b; truncate -s 8T t/endless; truncate -s 8T t/f";
    let mut running = Running(command.args(["--", "bash", "-c", script]).spawn().unwrap());
    let dir = home.file("");
    wait_for("the copy", || (!partial(&dir).is_empty()).then_some(()));
    cancel(&mut running);
    assert_eq!(partial(&dir), Vec::<PathBuf>::new());
    assert!(!home.file("copied").exists());
    assert_eq!(home.traces(), Vec::<PathBuf>::new());
}

#[test]
fn ctrl_c_ends_a_copy_out_of_a_named_sandbox() {
    let Some(home) = Home::with_sandboxes() else { return };
    home.ok(["sandbox", "create", "--disk", "none", "--idle-timeout", "60", "box"]);
    home.ok(["sandbox", "exec", "box", "--", "truncate", "-s", "8T", "endless"]);
    let mut command = home.command(["sandbox", "cp", "box:/testbed/endless", "copied"]);
    let mut running = Running(command.spawn().unwrap());
    let dir = home.file("");
    wait_for("the copy", || (!partial(&dir).is_empty()).then_some(()));
    cancel(&mut running);
    // The supervisor copies, and removes what it has copied when its client is gone.
    wait_for("the removal of the copy", || partial(&dir).is_empty().then_some(()));
    assert!(!home.file("copied").exists());
    assert_eq!(home.ok(["sandbox", "exec", "box", "--", "echo", "usable"]), "usable\n");
    home.ok(["sandbox", "rm", "--all"]);
    wait_for("clean-up", || home.traces().is_empty().then_some(()));
}

/// The files of an episode that has ended are collected, or the run can be resumed to collect them.
#[test]
fn ctrl_c_ends_the_collection_of_files() {
    let Some(home) = Home::with_sandboxes() else { return };
    let server = MockServer::answering(|asked: &testkit::Received| -> testkit::Answer {
        match asked.turns() {
            // Files are saved after this turn, and not again right after it: saving the endless file takes as long as
            // saving may take.
            0 => bash("echo 7 > /testbed/output/answer.txt").into(),
            1 => bash("truncate -s 8T /testbed/output/endless").into(),
            _ => submit().into(),
        }
    })
    .unwrap();
    let mut command = run(&home, &server.base_url(), ["--disk", "none", "Make a file"]);
    let mut running = Running(command.spawn().unwrap());
    let collecting = || {
        let dir = home.file("out");
        let runs = fs::read_dir(dir).into_iter().flatten().flatten();
        runs.map(|run| run.path()).find(|run| !partial(run).is_empty())
    };
    wait_for("the collection", collecting);
    cancel(&mut running);
    let folder = folder(&home);
    assert_eq!(partial(&folder), Vec::<PathBuf>::new());
    assert!(!folder.join("run.json").exists() && !folder.join("files").exists());
    assert!(folder.join("events.jsonl").exists());
    wait_for("clean-up", || home.traces().is_empty().then_some(()));
}
