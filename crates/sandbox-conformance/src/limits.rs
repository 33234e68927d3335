//! Limits: reaching one affects only its sandbox, and is reported as data.

use std::{path::Path, time::Duration};

use sandbox::{ByteSize, Cause, Limits, Runtime, Sandbox, Spec, Status};

use crate::{
    Harness,
    harness::slow,
    support::{has, ok, read, sh, sh_within, write},
};

fn limited<R: Runtime>(h: &Harness<R>, limits: Limits) -> Spec {
    Spec { limits, ..h.spec() }
}

/// A memory bomb is killed and reported as `oom`, and everything works afterwards.
pub async fn memory_bomb_is_reported<R: Runtime>(h: &Harness<R>) {
    if !h.caps.memory_limit.or_skip("memory_limit") {
        return;
    }
    let limits = Limits { memory: Some(ByteSize::mib(64)), ..Limits::default() };
    let sandbox = h.create(&limited(h, limits)).await;
    let neighbour = h.sandbox().await;
    ok(&sandbox, "before=1").await;
    // `tail` holds what has no line end, so this grows until something stops it.
    let output = sh(&sandbox, "head -c 500M /dev/zero | tail | wc -c").await;
    assert_eq!(output.cause, Some(Cause::Oom), "{output:?}");
    assert_ne!(output.stdout.text().trim(), (500 << 20).to_string());
    let output = sh(&sandbox, "echo $before").await;
    assert_eq!((&*output.stdout.text(), output.cause), ("1\n", None));
    assert_eq!(ok(&neighbour, "echo unharmed").await, "unharmed\n");
}

/// A fork bomb is stopped and reported as `pids`, and everything works afterwards.
pub async fn fork_bomb_is_reported<R: Runtime>(h: &Harness<R>) {
    if !h.caps.pids_limit.or_skip("pids_limit") {
        return;
    }
    let limits = Limits { pids: Some(40), ..Limits::default() };
    let sandbox = h.create(&limited(h, limits)).await;
    if !has(&sandbox, "perl").await {
        return;
    }
    let script = r#"perl -e 'my @p; for (1..500) { my $p = fork; if (!defined $p) { kill 9, @p; wait for @p; exit 7 }
        if (!$p) { sleep 100; exit } push @p, $p } kill 9, @p; exit 0'"#;
    let output = sh(&sandbox, script).await;
    assert_eq!((output.status, output.cause), (Status::Exited(7), Some(Cause::Pids)));
    let output = sh(&sandbox, "echo works | cat").await;
    assert_eq!((&*output.stdout.text(), output.cause), ("works\n", None));
}

/// A fork bomb is killed completely at its timeout.
pub async fn unbounded_fork_bomb_ends_at_the_timeout<R: Runtime>(h: &Harness<R>) {
    if !h.caps.pids_limit.or_skip("pids_limit") {
        return;
    }
    let limits = Limits { pids: Some(64), ..Limits::default() };
    let sandbox = h.create(&limited(h, limits)).await;
    ok(&sandbox, "before=1").await;
    let script = "bomb() { bomb | bomb & }; bomb 2>/dev/null; while :; do :; done";
    let output = sh_within(&sandbox, script, Duration::from_secs(2)).await;
    assert_eq!(output.status, Status::TimedOut);
    assert!(matches!(output.cause, Some(Cause::Timeout | Cause::Pids)), "{:?}", output.cause);
    let output = sh(&sandbox, "echo $before | cat").await;
    assert_eq!((&*output.stdout.text(), output.cause), ("1\n", None));
}

/// A disk filler is stopped and reported as `disk`; removed files free their space.
pub async fn disk_filler_is_reported<R: Runtime>(h: &Harness<R>) {
    if !h.caps.disk_limit.or_skip("disk_limit") {
        return;
    }
    let limits = Limits { disk: Some(ByteSize::mib(64)), ..Limits::default() };
    let sandbox = h.create(&limited(h, limits)).await;
    let neighbour = h.sandbox().await;
    for dir in ["/testbed", "/tmp", "/root"] {
        let output = sh(&sandbox, format!("head -c 300M /dev/zero > {dir}/fill")).await;
        assert_ne!(output.status, Status::Exited(0), "{dir}");
        assert_eq!(output.cause, Some(Cause::Disk), "{dir}: {output:?}");
        let kept: u64 =
            ok(&sandbox, format!("stat -c %s {dir}/fill")).await.trim().parse().expect("a size");
        assert!(kept <= 64 << 20, "{kept} bytes fit into {dir}");
        assert_eq!(ok(&neighbour, "echo x > /tmp/x && cat /tmp/x").await, "x\n");
        let output =
            sh(&sandbox, format!("rm {dir}/fill && echo fits > {dir}/fits && cat {dir}/fits"))
                .await;
        assert_eq!((&*output.stdout.text(), output.cause), ("fits\n", None), "{dir}");
    }
}

/// A write that does not fit leaves the old contents.
pub async fn full_disk_leaves_the_old_file<R: Runtime>(h: &Harness<R>) {
    if !h.caps.disk_limit.or_skip("disk_limit") {
        return;
    }
    let limits = Limits { disk: Some(ByteSize::mib(16)), ..Limits::default() };
    let sandbox = h.create(&limited(h, limits)).await;
    write(&sandbox, "/testbed/f", b"old").await;
    let failed = sandbox.write_file(Path::new("/testbed/f"), &vec![b'x'; 40 << 20]).await;
    assert!(failed.is_err());
    assert_eq!(read(&sandbox, "/testbed/f").await, b"old");
    let entries = sandbox.list(Path::new("/testbed")).await.expect("listed");
    assert_eq!(entries.len(), 1, "{entries:?}");
    write(&sandbox, "/testbed/g", &vec![b'y'; 8 << 20]).await;
}

/// Spinners under half a core get about half a core between them.
pub async fn half_a_core_is_half_a_core<R: Runtime>(h: &Harness<R>) {
    if !h.caps.cpu_limit.or_skip("cpu_limit") {
        return;
    }
    let sandbox = h.create(&limited(h, Limits { cpus: Some(0.5), ..Limits::default() })).await;
    let script =
        "bash -c 'spin() { local end=$((SECONDS + 2)); while (( SECONDS < end )); do :; done; }
        a=$EPOCHREALTIME; spin & spin & wait; b=$EPOCHREALTIME; times; echo ${a/[.,]/} ${b/[.,]/}'";
    let shown = ok(&sandbox, script).await;
    let lines: Vec<&str> = shown.lines().collect();
    let used: f64 = lines[1].split_whitespace().map(seconds).sum();
    let clock: Vec<f64> = lines[2].split_whitespace().map(|n| n.parse().expect("a time")).collect();
    let share = used / ((clock[1] - clock[0]) / 1e6);
    // Less on a busy machine, but never nothing.
    assert!((0.01..0.7).contains(&share), "they got {share:.2} of a core: {shown}");
}

/// `1m2.345s` in seconds.
fn seconds(text: &str) -> f64 {
    let (minutes, rest) = text.split_once('m').expect("minutes");
    let rest: f64 = rest.trim_end_matches('s').parse().expect("seconds");
    minutes.parse::<f64>().expect("minutes") * 60.0 + rest
}

/// Very many files can be made, listed, copied and thrown away.
pub async fn many_files_are_fine<R: Runtime>(h: &Harness<R>) {
    let sandbox = h.sandbox().await;
    let count = if slow() { 100_000 } else { 10_000 };
    ok(&sandbox, format!("mkdir m; cd m; for i in {{1..{count}}}; do : > f$i; done; cd ..")).await;
    let entries = sandbox.list(Path::new("/testbed/m")).await.expect("listed");
    assert_eq!(entries.len(), count);
    assert!(entries.is_sorted_by(|a, b| a.name < b.name));
    let host = tempfile::tempdir().expect("a directory");
    let report =
        sandbox.copy_out(Path::new("/testbed/m"), &host.path().join("m")).await.expect("copied");
    assert_eq!(report.files, count as u64);
    ok(&sandbox, "rm -r m").await;
    sandbox.destroy().await.expect("it goes");
}

/// Reaching the time limit is reported as `timeout`, soon after.
pub async fn timeout_is_reported<R: Runtime>(h: &Harness<R>) {
    let sandbox = h.sandbox().await;
    for script in
        ["sleep 1000", "while :; do :; done", "cat /dev/zero", "read -r x < <(sleep 1000)"]
    {
        let output = sh_within(&sandbox, script, Duration::from_millis(300)).await;
        assert_eq!(
            (output.status, output.cause),
            (Status::TimedOut, Some(Cause::Timeout)),
            "{script}"
        );
        assert!(output.duration < Duration::from_secs(60), "{script} took {:?}", output.duration);
    }
    ok(&sandbox, "true").await;
}

/// Without limits commands run, and no cause is reported.
pub async fn no_limit_no_cause<R: Runtime>(h: &Harness<R>) {
    let limits = Limits { memory: None, cpus: None, pids: None, disk: None };
    let sandbox = h.create(&limited(h, limits)).await;
    let output = sh(&sandbox, "head -c 100M /dev/zero | tail | wc -c").await;
    assert_eq!((output.stdout.text().trim(), output.cause), ("104857600", None));
    let output = sh(&sandbox, "kill -9 $$ & bash -c 'kill -9 $$'; exit 1").await;
    assert_eq!(output.cause, None);
}

/// The peak memory use includes what a command used, also after it has ended.
pub async fn peak_memory_is_what_was_in_use<R: Runtime>(h: &Harness<R>) {
    let sandbox = h.sandbox().await;
    ok(&sandbox, "true").await;
    let most = async || sandbox.peak_memory().await.expect("it answers");
    if !h.caps.peak_memory.or_skip("peak_memory") {
        return assert_eq!(most().await, None);
    }
    let before = most().await.expect("it is known");
    assert!((ByteSize(1)..ByteSize::mib(48)).contains(&before), "{before} before anything ran");
    // `tail` holds what has no line end.
    ok(&sandbox, "head -c 64M /dev/zero | tail | wc -c").await;
    let after = most().await.expect("it is known");
    assert!((ByteSize::mib(64)..ByteSize::mib(256)).contains(&after), "{after} after 64 MiB");
    ok(&sandbox, "true").await;
    assert_eq!(most().await, Some(after), "it never falls");
}
