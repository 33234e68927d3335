//! Passing the disk limit: files that no measurement finds, measurements that never end, and a host that runs full.

use std::time::{Duration, SystemTime};

use sandbox::{
    ByteSize, Cause, DiskQuota, Error, Layer, LayerState, Limits, Runtime, Sandbox, ShellCommand,
    Spec,
};
use sandbox_conformance::{patience, skip};

use super::{
    Ground, SCRIPT, ok, on_the_host, perl_behind, perl_outside, sh, sh_within, soon, store,
};

/// What the sandboxes of this test hold on the host's disk.
fn stored(h: &Ground<'_>) -> u64 {
    let used = perl_outside(&format!("print `du -s -B1 {} 2>/dev/null`", h.home.display()));
    used.split_whitespace().next().unwrap().parse().unwrap()
}

pub(super) const LIMIT: u64 = 50 << 20;

pub(super) fn limited(h: &Ground<'_>, disk_quota: DiskQuota) -> Spec {
    let limits = Limits {
        disk: Some(ByteSize(LIMIT)),
        memory: Some(ByteSize::mib(400)),
        ..Limits::default()
    };
    Spec { limits, disk_quota, ..h.spec() }
}

/// Deleted files count whichever thread has them open.
#[test]
fn files_open_in_one_thread_only_count() {
    on_the_host(async |h| {
        if perl_outside("use threads; print 'threads'") != "threads" {
            return skip("perl-threads", "Perl has no threads here");
        }
        let sandbox = h.create(&limited(h, DiskQuota::Measured)).await;
        // From then on the thread has a table of descriptors of its own.
        let apart = format!("syscall({}, 900, 901, 2) == 0 or die", libc::SYS_close_range);
        let hold = format!(
            r#"use threads; threads->create(sub {{ {apart}; my @held;
                for (1..10) {{ open(my $f, '>', '/testbed/x') or die; unlink '/testbed/x';
                    print $f "\0" x 15000000; push @held, $f; select(undef, undef, undef, 0.15) }}
                print "all\n" }})->join"#
        );
        store(&sandbox, "/tmp/hold.pl", &hold).await;
        let output = sh_within(&sandbox, "perl /tmp/hold.pl", SCRIPT).await;
        assert_eq!(output.cause, Some(Cause::Disk), "{output:?}");
        assert!(!output.stdout.text().contains("all"), "{output:?}");
    });
}

/// Deleted files count whatever they were called: also those with the name of a file in memory.
#[test]
fn names_of_deleted_files_hide_none() {
    on_the_host(async |h| {
        let sandbox = h.create(&limited(h, DiskQuota::Measured)).await;
        let hold = r#"$| = 1; my @held; for (1..10) { open(my $f, '>', '/memfd:x') or die; unlink '/memfd:x';
            print $f "\0" x 15000000; push @held, $f; select(undef, undef, undef, 0.15) } print "all\n""#;
        store(&sandbox, "/tmp/hold.pl", &hold.replace("\\\\", "\\")).await;
        let output = sh_within(&sandbox, "perl /tmp/hold.pl", SCRIPT).await;
        assert_eq!(output.cause, Some(Cause::Disk), "{output:?}");
        assert!(!output.stdout.text().contains("all"), "{output:?}");
        // Files in memory count as memory.
        let memory = format!(
            r#"my @held; my $name = "x"; for (1..4) {{ my $n = syscall({}, $name, 0); open(my $f, '>&=', $n) or die;
                print $f "\0" x 15000000; push @held, $f; open(my $g, '>', '/dev/shm/x') or die; unlink '/dev/shm/x';
                print $g "\0" x 15000000; push @held, $g; select(undef, undef, undef, 0.1) }} print "all\n""#,
            libc::SYS_memfd_create
        );
        store(&sandbox, "/tmp/memory.pl", &memory).await;
        assert_eq!(ok(&sandbox, "perl /tmp/memory.pl").await, "all\n");
    });
}

/// Perl that writes 300 MiB in six seconds.
const FILL: &str = r"for (1..30) { open(my $f, '>', qq(/testbed/big$_)) or exit; for (1..10) { syswrite $f, qq(\0) x 1048576 }
    close $f; select(undef, undef, undef, 0.2) } sleep 600;";

/// Asserts that what writes now is stopped at the limit, and that the sandbox can be used afterwards.
async fn stays_limited(h: &Ground<'_>, sandbox: &impl Sandbox, before: u64) {
    for _ in 0..16 {
        tokio::time::sleep(Duration::from_millis(500)).await;
        let taken = stored(h).saturating_sub(before);
        assert!(taken < LIMIT + (80 << 20) * u64::from(patience()), "{taken} bytes");
    }
    // On a busy machine a command may be killed with the rest before it has removed anything.
    for tries in 1.. {
        let output = sh(sandbox, "rm -f /testbed/big*; echo works").await;
        if output.stdout.text() == "works\n" {
            break;
        }
        assert!(tries < 5, "{output:?}");
    }
}

/// What the shell does between commands, in a trap, is measured as that of any other process.
#[test]
fn the_shell_writes_no_more_between_commands() {
    on_the_host(async |h| {
        let sandbox = h.create(&limited(h, DiskQuota::Measured)).await;
        store(&sandbox, "/tmp/fill.pl", FILL).await;
        let before = stored(h);
        let trap = "trap 'exec perl /tmp/fill.pl >/dev/null 2>&1 </dev/null' USR1
            (sleep 0.5; kill -USR1 $$) >/dev/null 2>&1 & true";
        ok(&sandbox, trap).await;
        stays_limited(h, &sandbox, before).await;
    });
}

/// A process that reports itself as the copy of the shell, and then takes its place, is measured and killed like any other.
#[test]
fn a_false_copy_of_the_shell_writes_no_more() {
    on_the_host(async |h| {
        let sandbox = h.create(&limited(h, DiskQuota::Measured)).await;
        let before = stored(h);
        // The first report about a command counts.
        let daemon = r#"use POSIX; setsid(); $SIG{TERM} = 'IGNORE'; open(my $s, '>', '/dev/.lis/s') or die; $| = 1; print "ready\n";
            until (-e '/tmp/go') { syswrite $s, "b 2 $$\n" } close $s; select(undef, undef, undef, 0.5); "#;
        perl_behind(&sandbox, &(daemon.to_owned() + FILL)).await;
        let killed =
            sh_within(&sandbox, "sleep 0.2; : > /tmp/go; sleep 0.3; kill -9 $$", SCRIPT).await;
        assert_eq!(killed.status.code(), 137, "{killed:?}");
        stays_limited(h, &sandbox, before).await;
    });
}

/// Commands do not see when their files are measured: those that move them out of the way would know when.
#[test]
fn measurements_change_no_time_of_access() {
    on_the_host(async |h| {
        let sandbox = h.create(&limited(h, DiskQuota::Measured)).await;
        // A time of access before the last change is updated by every reader.
        let look = "mkdir -p d/e; touch -a -d 2001-01-01 d d/e; sleep 1; stat -c %X d d/e";
        let seen = ok(&sandbox, look).await;
        let kept = ok(&sandbox, "date -d 2001-01-01 +%s").await;
        assert_eq!(seen, format!("{kept}{kept}"));
    });
}

/// Very many files and busy loops do not keep a measurement from being made in time.
#[test]
fn many_files_and_busy_loops_do_not_lift_the_limit() {
    on_the_host(async |h| {
        let sandbox = h.create(&limited(h, DiskQuota::Measured)).await;
        let attack = format!(
            r#"use Time::HiRes; $| = 1; mkdir 'm'; for (1..12000) {{ open(my $f, '>', "m/$_") }}
            for (1..80) {{ fork or do {{ 1 while 1 }} }} select(undef, undef, undef, 0.3);
            for (1..8) {{ open(my $f, '>', "x$_"); syscall({}, fileno($f), 0, 0, 15 << 20) == 0 or die }}
            print Time::HiRes::time(); sleep {}; print " all""#,
            libc::SYS_fallocate,
            20 * patience()
        );
        store(&sandbox, "/tmp/attack.pl", &attack).await;
        let output = sh_within(&sandbox, "perl /tmp/attack.pl", SCRIPT).await;
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
        assert_eq!(output.cause, Some(Cause::Disk), "{output:?}");
        // Killed even before it noted the time, unless the machine is fast.
        let passed = output.stdout.text().parse().unwrap_or(f64::MAX);
        let late = now.as_secs_f64() - passed;
        assert!(late < 4.0 * f64::from(patience()), "noticed after {late:.1} s");
    });
}

/// Perl that hides 30 MiB of a deleted file in this way, eight times.
fn hide(how: &str) -> String {
    format!(
        r#"use Socket; $| = 1; my @keep; my $written = 0;
        for (1..8) {{ open(my $f, '+>', '/testbed/x') or last; unlink '/testbed/x';
            for (1..30) {{ syswrite($f, "\0" x 1048576) // last; $written++ }} {how} }}
        print "ready\n"; sleep 600"#
    )
}

fn in_flight() -> String {
    let send = format!(
        r#"socketpair(my $a, my $b, AF_UNIX, SOCK_DGRAM, 0) or die; push @keep, $a, $b;
        my $m = pack("Qiii x4", 20, 1, 1, fileno($f)); my $d = "x";
        my $iov = pack("QQ", unpack("Q", pack("P", $d)), 1);
        my $h = pack("Q I x4 Q Q Q Q i x4", 0, 0, unpack("Q", pack("P", $iov)), 1, unpack("Q", pack("P", $m)), length $m, 0);
        syscall({}, fileno($a), $h, 0) > 0 or die "not sent: $!"; close $f;"#,
        libc::SYS_sendmsg
    );
    hide(&send)
}

fn mapped() -> String {
    let map = format!(
        r#"syscall({}, 0, 4096, 1, 1, fileno($f), 0) > 0 or die "not mapped: $!"; close $f;"#,
        libc::SYS_mmap
    );
    hide(&map)
}

fn allocated() -> String {
    format!(
        r#"$| = 1; open(my $f, '>', '/testbed/x'); syscall({}, fileno($f), 1, 0, 240 << 20); print "ready\n"; sleep 600"#,
        libc::SYS_fallocate
    )
}

/// Under a strict quota nothing that hides files from measurements takes more space than the limit.
#[test]
fn a_strict_quota_holds_whatever_hides_the_files() {
    on_the_host(async |h| hide_files(h, DiskQuota::Strict).await);
}

/// Hides files in every way from an exact quota.
pub(super) async fn hide_files(h: &Ground<'_>, quota: DiskQuota) {
    let spec = limited(h, quota);
    let before = stored(h);
    for attack in [in_flight(), mapped(), allocated()] {
        let sandbox = match soon("create", h.runtime.create(&spec)).await {
            Err(Error::Unsupported { reason, .. }) => {
                return skip(&format!("{quota}-quota"), &reason);
            }
            created => created.unwrap(),
        };
        assert_eq!(sandbox.protection().state(&Layer::DiskLimit), LayerState::Enforced);
        store(&sandbox, "/tmp/attack.pl", &attack).await;
        // Its own file system may be full.
        let start = "perl /tmp/attack.pl >/dev/shm/ready 2>&1 </dev/null &
            for i in {1..2500}; do [ -s /dev/shm/ready ] && break; sleep 0.02; done; cat /dev/shm/ready";
        assert_eq!(ok(&sandbox, start).await, "ready\n");
        // The files are written, and not only kept in memory.
        let _ = sh_within(&sandbox, "sync -f /testbed", SCRIPT).await;
        let taken = stored(h) - before;
        assert!(taken < LIMIT + (8 << 20), "{taken} bytes: {attack}");
        // Deleted files are not in the sum of all others, but the kernel counts them.
        let used = sandbox.usage().await.unwrap().disk.unwrap();
        let least = if attack == allocated() { 0 } else { LIMIT / 2 };
        assert!((least..LIMIT + (8 << 20)).contains(&used.bytes()), "{used}: {attack}");
        soon("destroy", sandbox.destroy()).await.unwrap();
    }
}

/// Works with a sandbox under an exact quota as with any other.
pub(super) async fn use_as_any_other(h: &Ground<'_>, quota: DiskQuota) {
    let spec = limited(h, quota);
    let sandbox = match soon("create", h.runtime.create(&spec)).await {
        Err(Error::Unsupported { reason, .. }) => return skip(&format!("{quota}-quota"), &reason),
        created => created.unwrap(),
    };
    store(&sandbox, "/testbed/kept", "text").await;
    let fill = "head -c 100M /dev/zero > /testbed/fill";
    let output = sh_within(&sandbox, fill, SCRIPT).await;
    assert_eq!(output.cause, Some(Cause::Disk), "{quota}: {output:?}");
    let size = ok(&sandbox, "stat -c %s fill").await;
    let size: u64 = size.trim().parse().unwrap();
    assert!((LIMIT * 9 / 10..=LIMIT + (4 << 20)).contains(&size), "{quota}: {size} fit");
    assert_eq!(ok(&sandbox, "rm fill; echo fits > f; cat f kept").await, "fits\ntext");
    assert!(sandbox.usage().await.unwrap().disk.unwrap() < ByteSize(LIMIT / 2));
    ok(&sandbox, "chown 7:8 f 2>/dev/null; mkdir -p a/b; ln -s ../f a/l").await;
    let fork = soon("fork", sandbox.fork()).await.unwrap();
    let look = "cat a/l; stat -c %u:%g:%a f";
    assert_eq!(ok(&fork, look).await, ok(&sandbox, look).await, "{quota}");
    let output = sh_within(&fork, fill, SCRIPT).await;
    assert_eq!(output.cause, Some(Cause::Disk), "{quota}: {output:?}");
    soon("destroy", fork.destroy()).await.unwrap();
    soon("destroy", sandbox.destroy()).await.unwrap();
}

/// A sandbox with a file system of its own works as any other: reaching its limit is reported, removed files free their
/// space, and copies and forks have the same limit.
#[test]
fn a_file_system_of_its_own_is_like_any_other() {
    on_the_host(async |h| {
        for quota in [DiskQuota::Strict, DiskQuota::Memory] {
            use_as_any_other(h, quota).await;
        }
    });
}

/// Sandboxes that write are stopped, and none is created, where they would take the last space of the host's disk. Those
/// that do not write go on.
#[test]
fn the_host_keeps_its_reserve() {
    on_the_host(async |h| {
        // No disk is that large.
        let reserve = |quota| Spec { disk_reserve: Some(ByteSize(1 << 60)), ..limited(h, quota) };
        let Err(error) = h.runtime.create(&reserve(DiskQuota::Measured)).await.map(drop) else {
            panic!("there is less space than the reserve");
        };
        let error = error.chain();
        assert!(error.contains("have to stay free"), "{error}");
        let in_memory = h.create(&reserve(DiskQuota::Memory)).await;
        assert_eq!(ok(&in_memory, "echo takes no disk space").await, "takes no disk space\n");
    });
}

/// The same on a file system that nothing else writes to.
#[test]
fn a_small_disk_keeps_its_reserve() {
    on_a_small_disk("a_small_disk_keeps_its_reserve", async |h, free| {
        let reserve = free - (30 << 20);
        let limits = Limits { memory: Some(ByteSize::mib(400)), ..Limits::default() };
        let disk_reserve = Some(ByteSize(reserve));
        let sandbox = h.create(&Spec { limits: limits.clone(), disk_reserve, ..h.spec() }).await;
        ok(&sandbox, "echo fine").await;
        let fill = ShellCommand::new(
            "for i in {1..10}; do head -c 10M /dev/zero > f$i; sleep 0.1; done; sleep 20",
        );
        let other = h.create(&Spec { limits, disk_reserve, ..h.spec() }).await;
        let fill = fill.timeout(Duration::from_secs(30));
        let (filled, waited) = tokio::join!(
            soon("fill", sandbox.shell(&fill)),
            ok(&other, "kept=1; for i in {1..12}; do sleep 0.2; done; echo waited")
        );
        assert_eq!(waited, "waited\n");
        assert_eq!(ok(&other, "echo $kept").await, "1\n");
        match filled {
            Err(Error::HostFull(reason)) => {
                assert!(reason.contains("have to stay free"), "{reason}")
            }
            other => panic!("{other:?}"),
        }
    });
}

/// Runs a test of this module with a file system of its own, of which it gets the free bytes: other tests, and whatever else
/// runs on this machine, would change the free space of a shared one. The test runs again in a mount namespace for that.
#[expect(clippy::disallowed_methods, reason = "starts this test again, with a variable for it")]
fn on_a_small_disk(
    test: &str,
    body: impl AsyncFnOnce(&sandbox_conformance::Harness<lis_sandbox_native::NativeRuntime>, u64),
) {
    const OWN: &str = "LIS_TEST_OWN_DISK";
    let Some(home) = std::env::var_os(OWN).map(std::path::PathBuf::from) else {
        let dir = tempfile::Builder::new().prefix("lis-test-").tempdir().unwrap();
        let mount = "mount -t tmpfs -o size=300m,mode=700 none \"$0\"";
        let mut command = std::process::Command::new("unshare");
        // As an ordinary user, the right to mount lasts for one user namespace; the test runs in the next one, without it.
        match rustix::process::geteuid().is_root() {
            true => command.args(["--mount", "sh", "-c", &format!("{mount} && exec \"$@\"")]),
            false => {
                let again = "exec unshare --user --map-user=1000 --map-group=1000 \"$@\"";
                let script = format!("{mount} && {again}");
                command.args(["--user", "--map-root-user", "--mount", "sh", "-c", &script])
            }
        };
        command.arg(dir.path()).arg(std::env::current_exe().unwrap());
        command.args(["--exact", &format!("security::disk::{test}"), "--nocapture"]);
        // The runner's variable for it has a dash in its name, and shells drop such variables.
        command.env("LIS_TEST_HELPER", crate::support::spawner());
        let status = command.env(OWN, dir.path()).status().unwrap();
        assert!(status.success(), "with a file system of its own: {status}");
        return;
    };
    let started = async || {
        let runtime = crate::support::start(home.clone()).await?;
        Ok(sandbox_conformance::Harness::new(
            std::sync::Arc::new(runtime),
            sandbox::ImageRef::Host,
            sandbox_conformance::Capabilities::all(),
        ))
    };
    sandbox_conformance::run(started, async |h| {
        let free = rustix::fs::statvfs(&home).unwrap();
        body(h, free.f_bavail * free.f_frsize).await;
    });
}

/// A sandbox is not refused for space that removed sandboxes are about to free.
#[test]
fn space_that_is_being_freed_is_waited_for() {
    on_a_small_disk("space_that_is_being_freed_is_waited_for", async |h, free| {
        let limits = Limits { memory: Some(ByteSize::mib(400)), ..Limits::default() };
        let large = h.create(&Spec { limits: limits.clone(), ..h.spec() }).await;
        ok(&large, "for i in {1..80}; do head -c 1M /dev/zero > f$i; done").await;
        soon("destroy", large.destroy()).await.unwrap();
        let disk_reserve = Some(ByteSize(free - (40 << 20)));
        let next = h.create(&Spec { limits, disk_reserve, ..h.spec() }).await;
        assert_eq!(ok(&next, "echo fits").await, "fits\n");
    });
}
