//! A spawner that cannot start or dies: the caller's error has the reason.
#![expect(clippy::unwrap_used, reason = "a failed expectation must fail the test")]

use std::{fs, path::Path, time::Duration};

use lis_sandbox_native::{Launcher, NativeOptions, NativeRuntime};
use rustix::process::{Pid, Signal, kill_process};
use sandbox::{Error, Runtime, Sandbox, ShellCommand, Spec};

use crate::support;

async fn failure_of(script: &str) -> String {
    let launcher = Launcher { args: vec!["-c".into(), script.into()], ..Launcher::new("/bin/sh") };
    let options = NativeOptions { launcher, ..NativeOptions::new(support::home()) };
    let started = tokio::time::timeout(Duration::from_secs(20), NativeRuntime::start(options));
    match started.await.unwrap() {
        Ok(_) => panic!("a shell is not a spawner"),
        Err(error) => error.chain(),
    }
}

#[tokio::test]
async fn what_a_spawner_writes_before_it_ends_is_in_the_error() {
    let error = failure_of("echo 'libfoo.so: cannot open' >&2; exit 3").await;
    assert!(
        error.contains("libfoo.so: cannot open") && error.contains("exit status: 3"),
        "{error}"
    );
    // A flood is read to its end, and only its end is kept.
    let error = failure_of("yes noise | head -c 1000000 >&2; echo the end >&2; kill -9 $$").await;
    assert!(error.contains("the end") && error.contains("signal: 9"), "{error}");
    assert!(error.len() < 8 << 10, "{} bytes", error.len());
}

#[tokio::test]
async fn a_missing_spawner_program_is_named() {
    let options = NativeOptions {
        launcher: Launcher::new("/no/such/program"),
        ..NativeOptions::new(support::home())
    };
    let Err(error) = NativeRuntime::start(options).await else { panic!("it started") };
    assert!(error.chain().contains("/no/such/program: No such file"), "{}", error.chain());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_spawner_is_named_in_later_errors() {
    let home = support::home();
    let runtime = match support::start(home.clone()).await {
        Ok(runtime) => runtime,
        Err(missing) => return sandbox_conformance::skip(&missing.capability, &missing.reason),
    };
    let sandbox = runtime.create(&Spec::default()).await.unwrap();
    kill_process(spawner(), Signal::KILL).unwrap();
    let Err(Error::Gone(reason)) = runtime.create(&Spec::default()).await.map(drop) else {
        panic!("a dead spawner created a sandbox");
    };
    assert!(reason.contains("signal: 9"), "{reason}");
    let failed = sandbox.shell(&ShellCommand::new("true")).await;
    assert!(matches!(failed, Err(Error::Gone(_))), "{failed:?}");
    drop((sandbox, runtime));
    // The next spawner finds and removes what this one left.
    let next = support::start(home.clone()).await;
    assert!(next.is_ok());
    assert_eq!(fs::read_dir(home.join("run")).unwrap().count(), 1, "its own directory alone");
}

/// The only child of this process that is a spawner.
pub(crate) fn spawner() -> Pid {
    let tasks = fs::read_dir("/proc/self/task").unwrap().flatten();
    let children = tasks.filter_map(|task| fs::read_to_string(task.path().join("children")).ok());
    let children: Vec<i32> = children
        .flat_map(|all| all.split(' ').filter_map(|pid| pid.parse().ok()).collect::<Vec<_>>())
        .collect();
    let is_spawner = |pid: &i32| {
        let name = fs::read(Path::new("/proc").join(pid.to_string()).join("cmdline"));
        name.is_ok_and(|name| name.starts_with(b"llm-in-sandbox"))
    };
    let spawners: Vec<_> = children.into_iter().filter(is_spawner).collect();
    let [pid] = spawners[..] else { panic!("{spawners:?}") };
    Pid::from_raw(pid).unwrap()
}
