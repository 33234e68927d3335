//! Exhausting resources: the sandbox reaches its limits; the host and other sandboxes are not affected.

use std::time::{Duration, Instant};

use sandbox::{ByteSize, Cause, ImageRef, Limits, Process, Runtime, Sandbox, ShellCommand, Spec};
use sandbox_conformance::skip;

use super::{
    Ground, SCRIPT, ok, on_both, on_the_host, perl, perl_behind, perl_outside, program, sh_within,
    soon,
};

/// What the sandboxes of this test hold on the host's disk.
fn stored(h: &Ground<'_>) -> u64 {
    let used = perl_outside(&format!("print `du -s -B1 {} 2>/dev/null`", h.home.display()));
    used.split_whitespace().next().unwrap().parse().unwrap()
}

fn small_disk(h: &Ground<'_>) -> Spec {
    let limits = Limits { disk: Some(ByteSize::mib(20)), ..Limits::default() };
    Spec { limits, ..h.spec() }
}

const FILL: &str = "for i in {1..40}; do head -c 15000000 /dev/zero > /testbed/fill$i; sleep 0.15; done; echo filled";

/// A tree too deep to measure does not lift the disk limit.
#[test]
fn a_deep_tree_does_not_lift_the_disk_limit() {
    on_the_host(async |h| {
        let sandbox = h.create(&small_disk(h)).await;
        let deep = "perl -e 'chdir \"/tmp\"; for (1..700) { mkdir \"d\"; chdir \"d\" }'; sleep 0.3";
        let _ = sh_within(&sandbox, deep, SCRIPT).await;
        let output = sh_within(&sandbox, FILL, SCRIPT).await;
        assert!(!output.stdout.text().contains("filled"), "{output:?}");
        assert_eq!(output.cause, Some(Cause::Disk));
        soon("destroy", sandbox.destroy()).await.unwrap();
    });
}

/// Space beyond the end of a file counts: no single file gets past the limit, by whichever call.
#[test]
fn no_file_holds_more_than_the_disk_limit() {
    on_the_host(async |h| {
        let sandbox = h.create(&small_disk(h)).await;
        // Each call asks for 60 MiB. The mode KEEP_SIZE, alone and with ZERO_RANGE, then the older requests for the same,
        // and INSERT_RANGE, which makes the file so large that reserving needs no more than the usual mode.
        let program = format!(
            r#"$| = 1; my $size = 60 << 20; my $most = 0; open(my $f, '+>', '/testbed/f') or die; my $fd = fileno($f);
               my $area = pack('s s x4 q q l L l4', 0, 0, 0, $size, 0, 0, 0, 0, 0, 0);
               my $look = sub {{ my $held = (stat $f)[12] * 512; $most = $held if $held > $most; truncate($f, 0) }};
               for my $mode (1, 0x11) {{ syscall({0}, $fd, $mode, 0, $size); $look->() }}
               for my $request (0x40305828, 0x4030582a, 0x40305839) {{ ioctl($f, $request, $area); $look->() }}
               syswrite($f, "x" x 65536); syscall({0}, $fd, 0x20, 0, $size);
               syscall({0}, $fd, 0, 0, $size) if -s $f > $size; $look->();
               print "$most
";"#,
            libc::SYS_fallocate
        );
        super::store(&sandbox, "/tmp/reserve.pl", &program).await;
        let output = sh_within(&sandbox, "perl /tmp/reserve.pl", SCRIPT).await;
        let most: u64 = output.stdout.text().trim().parse().unwrap_or(u64::MAX);
        assert!(most <= 20 << 20, "of 20 MiB allowed, a file held {most}: {output:?}");
    });
}

/// What programs use to reserve space in advance works.
#[test]
fn space_can_be_reserved_within_the_limit() {
    on_the_host(async |h| {
        let sandbox = h.create(&small_disk(h)).await;
        let program = format!(
            r#"open(my $f, '+>', '/testbed/f') or die; my $fd = fileno($f);
               print syscall({0}, $fd, 0, 0, 1 << 20), ' ', -s '/testbed/f', ' ';
               print syscall({0}, $fd, 3, 0, 65536), ' ', -s '/testbed/f', ' ';
               for my $mode (1, 0x20) {{ print syscall({0}, $fd, $mode, 0, 1 << 20), ' ', 0 + $!, ' ' }}"#,
            libc::SYS_fallocate
        );
        let refused = format!("-1 {} ", libc::EOPNOTSUPP);
        let expected = format!("0 1048576 0 1048576 {refused}{refused}");
        assert_eq!(perl(&sandbox, &program).await, expected);
    });
}

/// Background processes are limited as well.
#[test]
fn background_writers_are_limited() {
    on_the_host(async |h| {
        let sandbox = h.create(&small_disk(h)).await;
        let pid = ok(&sandbox, &format!("( {FILL} ) >/dev/null 2>&1 & echo $!")).await;
        let look = format!("kill -0 {} 2>/dev/null && echo running", pid.trim());
        let start = Instant::now();
        // A command that looks may be killed along with the writer.
        while sh_within(&sandbox, &look, SCRIPT).await.stdout.text() == "running\n" {
            assert!(start.elapsed() < SCRIPT, "the writer still runs");
        }
        assert!(stored(h) < 200_000_000, "{} bytes are stored", stored(h));
        soon("destroy", sandbox.destroy()).await.unwrap();
    });
}

/// Deleted files that are still open count.
#[test]
fn deleted_files_count() {
    on_the_host(async |h| {
        let sandbox = h.create(&small_disk(h)).await;
        let script = "perl -e 'my @h; for (1..10) { open(my $f, \">\", \"/testbed/x\"); unlink \"/testbed/x\"; \
                      for (1..15) { print $f \"\\0\" x 1000000 } push @h, $f; select(undef, undef, undef, 0.15) } \
                      print \"held\\n\"'";
        let output = sh_within(&sandbox, script, SCRIPT).await;
        assert!(
            !output.stdout.text().contains("held"),
            "150 MB were held, of 20 allowed: {output:?}"
        );
    });
}

/// A Perl program that does this in a thread, once its main thread has ended: it looks like a zombie then. `None` where
/// Perl has no threads.
fn without_main_thread(body: &str) -> Option<String> {
    if perl_outside("use threads; print 'threads'") != "threads" {
        skip("perl-threads", "Perl has no threads here");
        return None;
    }
    let end_main_thread = format!("syscall({}, 0)", libc::SYS_exit);
    let wait = r#"my $state = ''; until ($state eq 'Z') { select(undef, undef, undef, 0.01);
        open(my $f, '<', "/proc/$$/stat") or die; ($state) = <$f> =~ /.*\) (.)/ }"#;
    Some(format!(
        "use threads; $| = 1; threads->create(sub {{ {wait} {body} }}); {end_main_thread}"
    ))
}

/// A process whose main thread has ended is killed as any other: at a timeout, and when files are frozen.
#[test]
fn ending_the_main_thread_does_not_escape_a_kill() {
    on_the_host(async |h| {
        let beat = r#"open(my $held, '>', '/testbed/held');
            while (1) { open(my $f, '>', '/testbed/beat'); select(undef, undef, undef, 0.01) }"#;
        let Some(beat) = without_main_thread(beat) else { return };
        let sandbox = h.sandbox().await;
        super::store(&sandbox, "/tmp/beat.pl", &beat).await;
        let timeout = Duration::from_secs(1) * sandbox_conformance::patience();
        // Fails if it never ran.
        let silence = "rm /testbed/beat && sleep 0.2 && ls /testbed";
        let output = sh_within(&sandbox, "perl /tmp/beat.pl", timeout).await;
        assert_eq!(output.cause, Some(Cause::Timeout), "{output:?}");
        assert_eq!(ok(&sandbox, silence).await, "held\n", "it survived a shell command");
        let process = Process::new(["perl", "/tmp/beat.pl"]);
        program(&sandbox, &Process { timeout: Some(timeout), ..process }).await;
        assert_eq!(ok(&sandbox, silence).await, "held\n", "it survived a program");
        let behind =
            "perl /tmp/beat.pl >/dev/null 2>&1 & until [ -e /testbed/beat ]; do sleep 0.01; done";
        ok(&sandbox, behind).await;
        soon("freeze", sandbox.freeze()).await.unwrap();
    });
}

/// Nor does it lift the disk limit, for files with a name or without.
#[test]
fn ending_the_main_thread_does_not_lift_the_disk_limit() {
    on_the_host(async |h| {
        let fill = r#"for (1..20) { open(my $f, '>', "/testbed/fill$_"); print $f "\0" x 15000000; close $f;
            select(undef, undef, undef, 0.15) } print "all\n""#;
        let hold = r#"my @held; for (1..10) { open(my $f, '>', '/testbed/x'); unlink '/testbed/x';
            print $f "\0" x 15000000; push @held, $f; select(undef, undef, undef, 0.15) } print "all\n""#;
        for body in [fill, hold] {
            let Some(program) = without_main_thread(body) else { return };
            let sandbox = h.create(&small_disk(h)).await;
            super::store(&sandbox, "/tmp/write.pl", &program).await;
            let output = sh_within(&sandbox, "perl /tmp/write.pl", SCRIPT).await;
            assert_eq!(output.cause, Some(Cause::Disk), "{output:?}");
            assert!(!output.stdout.text().contains("all"), "{output:?}");
            let count = "ls /testbed | wc -l";
            let files = ok(&sandbox, count).await;
            assert_eq!(ok(&sandbox, &format!("sleep 0.4; {count}")).await, files, "it writes on");
            soon("destroy", sandbox.destroy()).await.unwrap();
        }
    });
}

/// Copies of a sandbox are no larger than the sandbox: links stay links, holes stay holes.
#[test]
fn copies_do_not_swell() {
    on_the_host(async |h| {
        let limits = Limits { disk: Some(ByteSize::mib(40)), ..Limits::default() };
        let sandbox = h.create(&Spec { limits, ..h.spec() }).await;
        ok(
            &sandbox,
            "mkdir l s; head -c 10M /dev/urandom > l/a; for i in {1..30}; do ln l/a l/a$i; done; \
                      for i in {1..30}; do truncate -s 40000000 s/f$i; done",
        )
        .await;
        let before = stored(h);
        assert!(before < 40_000_000, "the control fails: {before}");
        if let Ok(fork) = soon("fork", sandbox.fork()).await {
            assert!(
                stored(h) < before + 40_000_000,
                "a fork stored {} bytes more",
                stored(h) - before
            );
            fork.destroy().await.unwrap();
        }
        let to = tempfile::tempdir().unwrap();
        let _ =
            soon("copy out", sandbox.copy_out("/testbed".as_ref(), &to.path().join("all"))).await;
        let used = perl_outside(&format!("print `du -s -B1 {}`", to.path().display()));
        let used: u64 = used.split_whitespace().next().unwrap().parse().unwrap();
        assert!(used < 100_000_000, "{used} bytes arrived on the host");
    });
}

/// Further names of a link take almost nothing inside, and are charged there; in a fork and an image they stay names. A copy
/// to the host, where each would be a link of its own, does not pass the disk limit.
#[test]
fn names_of_a_link_do_not_swell_copies() {
    on_the_host(async |h| {
        let sandbox = h.create(&small_disk(h)).await;
        let names = 18_000;
        let make = format!(
            "mkdir '/testbed/t' or die; symlink 'x' x 4000, '/testbed/t/0' or die; \
             link('/testbed/t/0', \"/testbed/t/$_\") or die $! for 1..{names}"
        );
        perl(&sandbox, &make).await;
        let charged = async {
            let used = async || sandbox.usage().await.unwrap().disk.map_or(0, ByteSize::bytes);
            while used().await < names * 256 {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        soon("every name to be charged", charged).await;
        let to = tempfile::tempdir().unwrap();
        let dest = to.path().join("copied");
        let refused = soon("copy out", sandbox.copy_out("/testbed/t".as_ref(), &dest)).await;
        assert!(refused.is_err_and(|error| error.chain().contains("more than")));
        assert_eq!(std::fs::read_dir(to.path()).unwrap().count(), 0);
        let before = stored(h);
        let fork = soon("fork", sandbox.fork()).await.unwrap();
        soon("save", sandbox.snapshot("linked")).await.unwrap();
        let image = ImageRef::Name("linked".into());
        let saved = h.create(&Spec { image, ..small_disk(h) }).await;
        assert!(stored(h) < before + 20_000_000, "{} bytes more", stored(h) - before);
        for copy in [&fork, &saved] {
            let count = "ls /testbed/t | wc -l; stat -c %h /testbed/t/0 /testbed/t/17; readlink /testbed/t/17 | wc -c";
            let expected = format!("{0}\n{0}\n{0}\n4001\n", names + 1);
            assert_eq!(ok(copy, count).await, expected);
        }
    });
}

/// Names of a file in directories that are nested more deeply than a path can say do not keep a sandbox from being forked.
#[test]
fn links_beyond_any_path_do_not_prevent_a_fork() {
    on_the_host(async |h| {
        let sandbox = h.create(&small_disk(h)).await;
        let down = "for (1..45) { my $n = 'd' x 100; mkdir $n; chdir $n or die } ";
        let make = "open my $f, '>', 'a' or die; link 'a', 'b' or die; symlink 'x', 's'; link 's', 't' or die;";
        perl(&sandbox, &format!("chdir '/testbed'; {down} {make}")).await;
        let fork = soon("fork", sandbox.fork()).await.unwrap();
        let seen = "print join ' ', map { (lstat)[3] } 'a', 'b', 's', 't'";
        assert_eq!(perl(&fork, &format!("chdir '/testbed'; {down} {seen}")).await, "2 2 2 2");
    });
}

/// Resources that the kernel counts by user stay available to the host's user.
#[test]
fn counters_of_the_hosts_user_stay_free() {
    on_the_host(async |h| {
        let sandbox = h.sandbox().await;
        let take = format!("my $n = 0; $n++ while syscall({}, 0) >= 0; ", libc::SYS_inotify_init1);
        perl_behind(&sandbox, &format!("$| = 1; {take} print qq(ready\n); sleep 60")).await;
        let outside = perl_outside(&format!(
            "print syscall({}, 0) >= 0 ? 'works' : $!",
            libc::SYS_inotify_init1
        ));
        assert_eq!(outside, "works", "the host cannot watch files any more");
    });
}

/// Descriptors in flight, pipes and sockets: another sandbox still works.
#[test]
fn neighbours_keep_working() {
    on_the_host(async |h| {
        let sandbox = h.sandbox().await;
        perl_behind(
            &sandbox,
            &format!(
                r#"use Socket; $| = 1; my (@keep, $n); my $limit = time + 8;
                   S: for (1..4000) {{ socketpair(my $a, my $b, AF_UNIX, SOCK_DGRAM, 0) or last; push @keep, $a, $b;
                     fcntl($a, 4, 2048);
                     while (time < $limit) {{ my $m = pack("Qii", 16 + 800, 1, 1) . pack("i*", (0) x 200); my $d = "x";
                       my $iov = pack("QQ", unpack("Q", pack("P", $d)), 1);
                       my $h = pack("Q I x4 Q Q Q Q i x4", 0, 0, unpack("Q", pack("P", $iov)), 1, unpack("Q", pack("P", $m)), length $m, 0);
                       last if syscall({}, fileno($a), $h, 0) < 0; $n += 200 }} }}
                   for (1..2000) {{ pipe(my $r, my $w) or last; push @keep, $r, $w; fcntl($w, 1031, 1 << 20) }}
                   print "ready\n"; sleep 60"#,
                libc::SYS_sendmsg
            ),
        )
        .await;
        let neighbour = soon("create", h.runtime.create(&h.spec())).await.unwrap();
        assert_eq!(ok(&neighbour, "echo works | cat").await, "works\n");
        soon("list", neighbour.list("/".as_ref())).await.unwrap();
        soon("write", neighbour.write_file("/tmp/f".as_ref(), &vec![1; 3 << 20])).await.unwrap();
    });
}

/// Shared memory and other files in memory count as memory.
#[test]
fn files_in_memory_count_as_memory() {
    on_both(async |h| {
        if !h.caps.memory_limit.or_skip("memory_limit") {
            return;
        }
        let limits = Limits { memory: Some(ByteSize::mib(64)), ..Limits::default() };
        let sandbox = h.create(&Spec { limits, ..h.spec() }).await;
        let script = "head -c 300M /dev/zero > /dev/shm/f && echo all";
        let output = sh_within(&sandbox, script, SCRIPT).await;
        assert!(!output.stdout.text().contains("all"), "{output:?}");
        let _ = sh_within(&sandbox, "rm -f /dev/shm/f", SCRIPT).await;
        let program = format!(
            "my $n = 'x'; my $fd = syscall({}, $n, 0); open(my $f, '>&=', $fd) or die; \
             for (1..300) {{ print $f 'x' x 1048576 or last }} print qq(all\n)",
            libc::SYS_memfd_create
        );
        super::store(&sandbox, "/tmp/m.pl", &program).await;
        let output = sh_within(&sandbox, "perl /tmp/m.pl", SCRIPT).await;
        assert!(!output.stdout.text().contains("all"), "memfd: {output:?}");
    });
}

/// When memory runs out the kernel kills a command, not PID 1 or a process of the host.
#[test]
fn commands_are_the_first_to_go() {
    on_both(async |h| {
        let sandbox = h.sandbox().await;
        // The command of a shell, then a program of its own, also where nothing can be written.
        for freeze in [false, true] {
            if freeze {
                sandbox.freeze().await.unwrap();
            }
            let files = ["/proc/self/oom_score_adj", "/proc/1/oom_score_adj"];
            let seen = ok(&sandbox, &format!("cat {}", files.join(" "))).await;
            let apart = program(&sandbox, &Process::new(["cat", files[0], files[1]])).await;
            for seen in [seen.as_str(), apart.trim_end_matches("[0]")] {
                let scores: Vec<i32> = seen.lines().map(|line| line.parse().unwrap()).collect();
                assert!(scores[0] > scores[1] && scores[0] > 0, "{scores:?}");
            }
        }
        let sandbox = h.sandbox().await;
        assert_eq!(perl(&sandbox, "print qq(fine\n)").await, "fine\n");
    });
}

/// A command that does not fit takes no space from later ones.
#[test]
fn a_command_that_does_not_fit_leaves_nothing_behind() {
    on_the_host(async |h| {
        let limits = Limits { memory: Some(ByteSize::mib(32)), ..Limits::default() };
        let sandbox = h.create(&Spec { limits, ..h.spec() }).await;
        let long = ShellCommand::new(format!(": '{}'", "x".repeat(9 << 20)));
        for _ in 0..2 {
            soon("a long command", sandbox.shell(&long)).await.unwrap_err();
        }
        assert_eq!(ok(&sandbox, "echo fine").await, "fine\n");
    });
}

/// A deep and wide tree is measured, copied, forked and removed, or refused, in bounded time.
#[test]
fn deep_trees_do_not_block_the_caller() {
    on_the_host(async |h| {
        let sandbox = h.sandbox().await;
        let deep = "perl -e 'for (1..900) { mkdir \"d\"; chdir \"d\" }'; mkdir /testbed/w; cd /testbed/w; \
                    perl -e 'for (1..5000) { open(my $f, \">\", \"f$_\") }'";
        let _ = sh_within(&sandbox, deep, SCRIPT).await;
        let to = tempfile::tempdir().unwrap();
        let _ = soon("copy out", sandbox.copy_out("/testbed".as_ref(), &to.path().join("x"))).await;
        let _ = soon("list", sandbox.list("/testbed/w".as_ref())).await;
        let _ = soon("fork", sandbox.fork()).await;
        soon("destroy", sandbox.destroy()).await.unwrap();
    });
}
