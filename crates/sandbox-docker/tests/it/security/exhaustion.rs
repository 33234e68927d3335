//! Disk, memory and processor time: limits hold, and the first process answers.

use std::time::{Duration, Instant};

use sandbox::{ByteSize, Cause, Layer, LayerState, Limits, Sandbox, Spec, Status};
use sandbox_conformance::Harness;

use super::{ok, on_docker, perl, sh, sh_within, soon, store};

type Docker = lis_sandbox_docker::DockerRuntime;

async fn limited(h: &Harness<Docker>, limits: Limits) -> lis_sandbox_docker::DockerSandbox {
    h.create(&Spec { limits, ..h.spec() }).await
}

fn small_disk() -> Limits {
    Limits { disk: Some(ByteSize::mib(20)), ..Limits::default() }
}

/// Space beyond the end of a file counts: no single file gets past the limit, by whichever call.
#[test]
fn no_file_holds_more_than_the_disk_limit() {
    on_docker(async |h| {
        let sandbox = limited(h, small_disk()).await;
        // Each call asks for 60 MiB. The modes KEEP_SIZE, alone and with ZERO_RANGE, then the older requests for the same,
        // with and without bits that the kernel ignores, and INSERT_RANGE.
        let program = format!(
            r#"my $size = 60 << 20; my $most = 0; open(my $f, '+>', '/testbed/f') or die; my $fd = fileno($f);
               my $area = pack('s s x4 q q l L l4', 0, 0, 0, $size, 0, 0, 0, 0, 0, 0);
               my $look = sub {{ my $held = (stat $f)[12] * 512; $most = $held if $held > $most; truncate($f, 0) }};
               for my $mode (1, 0x11) {{ syscall({0}, $fd, $mode, 0, $size); $look->() }}
               for my $request (0x40305828, 0x4030582a, 0x40305839) {{ for my $high (0, 1 << 32) {{
                   syscall({1}, $fd, $request | $high, $area); $look->() }} }}
               syswrite($f, "x" x 65536); syscall({0}, $fd, 0x20, 0, $size);
               syscall({0}, $fd, 0, 0, $size) if -s $f > $size; $look->();
               print "$most "; print syscall({0}, $fd, 0, 0, 1 << 20), ' ', -s $f, ' ', syscall({0}, $fd, 3, 0, 65536)"#,
            libc::SYS_fallocate,
            libc::SYS_ioctl
        );
        let seen = perl(&sandbox, &program).await;
        let (most, works) = seen.split_once(' ').unwrap_or_default();
        assert!(most.parse::<u64>().is_ok_and(|most| most <= 20 << 20), "{seen}");
        assert_eq!(works, "0 1048576 0", "reserving within the limit");
    });
}

/// Commands that write more than the disk limit are killed, in the background as well; later commands can free the space.
#[test]
fn writers_past_the_disk_limit_are_killed() {
    on_docker(async |h| {
        let sandbox = limited(h, small_disk()).await;
        // Until it is killed, at the latest by its time limit; where there is a quota, until that fails.
        let fill = "i=0; while head -c 5000000 /dev/zero > fill$i; do i=$((i + 1)); sleep 0.2; done; false";
        let output = sh(&sandbox, fill).await;
        assert_eq!(output.cause, Some(Cause::Disk), "{output:?}");
        ok(&sandbox, "rm fill*").await;
        ok(&sandbox, &format!("( {fill} ) >/dev/null 2>&1 & true")).await;
        let output = sh(&sandbox, "wait; sleep 1000").await;
        assert_eq!(output.cause, Some(Cause::Disk), "{output:?}");
    });
}

/// What the measurement of files does not see, deleted files that are open, is reported; a quota sees them.
#[test]
fn deleted_files_count_or_are_reported() {
    on_docker(async |h| {
        let sandbox = limited(h, small_disk()).await;
        let hide = r#"my @held; for (1..4) { open(my $f, '>', '/testbed/x') or last; unlink '/testbed/x';
            for (1..15) { syswrite($f, "\0" x 1000000) // last } push @held, $f } sleep 1; print "held\n""#;
        store(&sandbox, "/tmp/hide.pl", hide).await;
        let held = sh(&sandbox, "perl /tmp/hide.pl").await.stdout.text() == "held\n";
        let report = sandbox.protection();
        let detail = report.layers.iter().find(|layer| layer.layer == Layer::DiskLimit);
        let detail = detail.map_or("", |layer| &layer.detail);
        match report.state(&Layer::DiskLimit) {
            LayerState::Enforced => assert!(!held, "60 MB were held, of 20 allowed"),
            state => assert!(
                state == LayerState::Partial && detail.contains("deleted"),
                "{state:?}: {detail}"
            ),
        }
    });
}

/// Busy loops do not delay a time limit by more than seconds, and nothing of the command is left.
#[test]
fn busy_loops_do_not_escape_a_time_limit() {
    on_docker(async |h| {
        let sandbox = h.sandbox().await;
        let loops = "for i in {1..100}; do (while :; do :; done) & done 2>/dev/null; wait";
        let limit = Duration::from_secs(2);
        let start = Instant::now();
        let output = sh_within(&sandbox, loops, limit).await;
        let late = start.elapsed().saturating_sub(limit);
        assert_eq!((output.status, output.cause), (Status::TimedOut, Some(Cause::Timeout)));
        assert!(late < Duration::from_secs(12), "{late:?} late");
        let left = "cat /proc/[0-9]*/stat 2>/dev/null | grep -c ') R ' || true";
        let left: u32 = ok(&sandbox, left).await.trim().parse().unwrap_or(u32::MAX);
        assert!(left < 10, "{left} processes still run");
    });
}

/// Files are written, listed and copied out while commands use all processor time, not only after them.
#[test]
fn busy_loops_do_not_keep_files_back() {
    on_docker(async |h| {
        let sandbox = h.sandbox().await;
        store(&sandbox, "/testbed/kept", "text").await;
        let loops = "for i in {1..100}; do (while :; do :; done) & done 2>/dev/null; wait";
        let work = async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            let to = std::env::temp_dir().join(format!("lis-docker-{}", std::process::id()));
            let copied = soon("copy", sandbox.copy_out("/testbed".as_ref(), &to)).await;
            let _ = std::fs::remove_dir_all(&to);
            assert!(copied.is_ok(), "{copied:?}");
            store(&sandbox, "/testbed/new", "text").await;
            let listed = soon("list", sandbox.list("/testbed".as_ref())).await;
            listed.map(|listed| listed.len()).unwrap_or(0)
        };
        tokio::select! {
            output = sh_within(&sandbox, loops, Duration::from_secs(20)) => {
                panic!("the loops ended first: {output:?}");
            }
            files = work => assert_eq!(files, 2),
        }
    });
}

/// Memory that outlives its processes makes the kernel kill commands but not the first process, and later commands run.
#[test]
fn memory_without_a_process_does_not_end_the_sandbox() {
    on_docker(async |h| {
        let limits = Limits { memory: Some(ByteSize::mib(48)), ..Limits::default() };
        let sandbox = limited(h, limits).await;
        let report = sandbox.protection();
        if report.layers.iter().any(|layer| layer.detail.contains("shared memory that no process"))
        {
            println!("skip: this daemon cannot limit shared memory, and reports it");
            return;
        }
        let fill = r#"for my $size (1 << 20, 1 << 16, 1 << 12) { while (defined(my $id = shmget(0, $size, 01600))) {
                shmwrite($id, "x" x $size, 0, $size) } }
            while (defined(my $id = msgget(0, 01600))) { for (1..200) { msgsnd($id, pack("l! a*", 1, "x" x 80), 04000) or last } }
            for my $dir ('/dev', '/dev/shm', '/run/llm-in-sandbox') { for (1..100) {
                open(my $f, '>', "$dir/f$_") or last; syswrite($f, "x" x (1 << 20)) or last } }
            for (1..100000) { open(my $f, '>', "/dev/shm/e$_") or last }"#;
        store(&sandbox, "/tmp/fill.pl", fill).await;
        // Small programs fill up what larger ones leave.
        let small = "for d in /dev/shm /dev /run/llm-in-sandbox; do head -c 64M /dev/zero > $d/small; done 2>/dev/null";
        for _ in 0..3 {
            sh(&sandbox, small).await;
            sh(&sandbox, "perl /tmp/fill.pl; :").await;
        }
        assert_eq!(ok(&sandbox, "echo works | cat").await, "works\n");
    });
}

/// A command that fills memory dies, and what ran before it goes on.
#[test]
fn a_command_that_fills_memory_dies_alone() {
    on_docker(async |h| {
        let limits = Limits { memory: Some(ByteSize::mib(48)), ..Limits::default() };
        let sandbox = limited(h, limits).await;
        let behind = ok(&sandbox, "kept=1; sleep 1000 >/dev/null 2>&1 & echo $!").await;
        let fill = "perl -e 'my $x = q(x) x (200 << 20); print qq(all\\n)'";
        let output = sh(&sandbox, fill).await;
        assert_eq!((output.status.code(), output.cause), (137, Some(Cause::Oom)), "{output:?}");
        let scores = ok(&sandbox, "cat /proc/self/oom_score_adj /proc/1/oom_score_adj").await;
        let scores: Vec<i32> = scores.lines().map(|line| line.parse().unwrap_or(-1)).collect();
        assert!(matches!(scores[..], [own, first] if own > first), "{scores:?}");
        let after = format!("echo $kept; kill -0 {} && echo runs", behind.trim());
        assert_eq!(ok(&sandbox, &after).await, "1\nruns\n");
        let state = sandbox.protection().state(&Layer::FirstProcess);
        assert_eq!(state, LayerState::Partial, "it is in the same group");
    });
}

/// The buffers of sockets count as memory, or the report says that they do not.
#[test]
fn socket_buffers_count_as_memory_or_are_reported() {
    on_docker(async |h| {
        let limits = Limits { memory: Some(ByteSize::mib(64)), ..Limits::default() };
        let sandbox = limited(h, limits).await;
        let fill = r#"use Socket; use Fcntl; my (@held, $sent); $sent = 0; my $block = "x" x 65536; my $most = 160 << 20;
            socket(my $l, AF_INET, SOCK_STREAM, 0) or die; bind($l, pack_sockaddr_in(0, inet_aton("127.0.0.1"))) or die;
            listen($l, 400); my $at = getsockname($l);
            for (1..200) { last if $sent > $most; socket(my $c, AF_INET, SOCK_STREAM, 0) or last; connect($c, $at) or last;
              accept(my $s, $l) or last; fcntl($c, F_SETFL, O_NONBLOCK); push @held, $c, $s;
              while ($sent < $most) { my $n = syswrite($c, $block); last unless $n; $sent += $n } } print $sent"#;
        store(&sandbox, "/tmp/fill.pl", fill).await;
        let output = sh(&sandbox, "perl /tmp/fill.pl").await;
        let sent: u64 = output.stdout.text().trim().parse().unwrap_or(0);
        let report = sandbox.protection();
        let detail = report.layers.iter().find(|layer| layer.layer == Layer::MemoryLimit);
        let detail = detail.map_or("", |layer| &layer.detail);
        assert_eq!(report.state(&Layer::MemoryLimit), LayerState::Partial, "{detail}");
        match detail.contains("netlink") {
            true => assert!(sent < 64 << 20, "{sent} bytes, 64 MiB allowed"),
            false => assert!(detail.contains("the buffers of sockets"), "{detail}"),
        }
    });
}
