//! Tampering with what runs the sandbox from inside: pipes, shells, workers, PID 1.
//!
//! A command may break its own shell and files. It must not block the caller, affect a later command's result, or survive
//! the sandbox.

use std::time::{Duration, Instant};

use sandbox::{Limits, Process, Sandbox, ShellCommand, Spec, Status};
use tokio::io::AsyncReadExt;

use super::{
    Ground, WAIT, go, ok, on_both, on_the_host, perl_behind, program, sh, sh_within, soon,
};

/// The caller's requests are answered, with whatever result, and the sandbox can be destroyed.
async fn is_answered(sandbox: impl Sandbox, attack: &str) {
    let command = ShellCommand::new("echo hello").timeout(Duration::from_millis(700));
    let _ = soon(&format!("{attack}: shell"), sandbox.shell(&command)).await;
    let _ = soon(&format!("{attack}: list"), sandbox.list("/".as_ref())).await;
    let _ = soon(&format!("{attack}: write"), sandbox.write_file("/tmp/f".as_ref(), b"x")).await;
    let _ = soon(&format!("{attack}: read"), sandbox.read_file("/etc/passwd".as_ref())).await;
    let to = tempfile::tempdir().unwrap();
    let _ = soon(
        &format!("{attack}: copy"),
        sandbox.copy_out("/testbed".as_ref(), &to.path().join("x")),
    )
    .await;
    let _ = soon(&format!("{attack}: shell"), sandbox.shell(&command)).await;
    soon(&format!("{attack}: destroy"), sandbox.destroy()).await.unwrap();
}

/// The pipes of PID 1 can be neither replaced nor removed, and nothing can be added to their directory.
#[test]
fn our_pipes_cannot_be_replaced() {
    on_both(async |h| {
        let sandbox = h.sandbox().await;
        for attack in [
            "rm /dev/.lis/k",
            "mkfifo /dev/.lis/c9",
            "mkdir /dev/.lis/b9",
            "mv /dev/.lis/s /dev/.lis/t",
            "ln -sf /testbed/victim /dev/.lis/o99",
            "ln -sf /dev/zero /dev/.lis/k",
            "echo x > /dev/.lis/x",
            "chmod 777 /dev/.lis",
            "mount -o remount,rw /dev/.lis",
        ] {
            let output = sh(&sandbox, attack).await;
            assert!(!output.status.success(), "{attack}: {output:?}");
        }
        let seen = ok(&sandbox, "cd /dev/.lis; stat -c %F k s; ls; stat -c %a .").await;
        assert!(seen.starts_with("fifo\nfifo\n") && seen.ends_with("\n700\n"), "{seen}");
        // Those of the command that looks, and no others.
        assert_eq!(seen.lines().count(), 2 + 6 + 1, "{seen}");
    });
}

/// Flooded or emptied pipes do not block the caller.
#[test]
fn tampering_with_the_pipes_does_not_block_the_caller() {
    on_the_host(async |h| {
        for attack in [
            "for i in 1 2 3 4; do yes 's 2 0' > /dev/.lis/s & done",
            "for i in 1 2 3 4; do yes > /dev/.lis/k & done",
            "for i in 1 2; do cat /dev/.lis/k >/dev/null & cat /dev/.lis/s > /dev/null & done",
            "head -c 300K /dev/zero > /dev/.lis/s &",
        ] {
            let sandbox = h.sandbox().await;
            let command = ShellCommand::new(attack).timeout(Duration::from_secs(1));
            let _ = soon(attack, sandbox.shell(&command)).await;
            is_answered(sandbox, attack).await;
        }
    });
}

/// A directory that becomes a pipe while files are copied into it is an error, not a wait.
#[test]
fn a_pipe_in_place_of_a_directory_blocks_no_copy() {
    on_the_host(async |h| {
        let sandbox = h.sandbox().await;
        // 2: RENAME_EXCHANGE.
        perl_behind(
            &sandbox,
            &format!(
                "$| = 1; use POSIX; mkdir '/testbed/a'; POSIX::mkfifo('/testbed/p', 0600); my ($a, $p) = ('/testbed/a', '/testbed/p'); \
                 print qq(ready\n); my $t = time; while (time - $t < 60) {{ syscall({}, -100, $a, -100, $p, 2) }}",
                libc::SYS_renameat2
            ),
        )
        .await;
        let from = tempfile::tempdir().unwrap();
        let file = from.path().join("f");
        std::fs::write(&file, "x").unwrap();
        let start = Instant::now();
        for _ in 0..400 {
            let copy = sandbox.copy_in(&file, "/testbed/a/f".as_ref());
            let copied = tokio::time::timeout(Duration::from_secs(10), copy).await;
            assert!(copied.is_ok(), "the copy waits for a pipe");
            if start.elapsed() > Duration::from_secs(3) {
                break;
            }
        }
    });
}

/// Forged reports break only the shell; programs apart from it are not affected.
#[test]
fn forged_reports_reach_no_program() {
    on_both(async |h| {
        let sandbox = h.sandbox().await;
        perl_behind(
            &sandbox,
            &format!(
                "$| = 1; open(my $s, '>', '/dev/.lis/s') or die; print qq(ready\n); {WAIT} my $t = time; \
                 while (time - $t < 30) {{ for my $n (1..200) {{ syswrite($s, qq(s $n 77\nb $n 1\nb $n -1\ns $n x\n)) }} \
                 select(undef, undef, undef, 0.001) }}"
            ),
        )
        .await;
        go(&sandbox).await;
        for code in 0..5 {
            let script = format!("echo out{code}; exit {code}");
            let seen = program(&sandbox, &Process::new(["bash", "-c", &script])).await;
            assert_eq!(seen, format!("out{code}\n[{code}]"));
            let _ = sh(&sandbox, "echo from the shell").await;
        }
        is_answered(sandbox, "forged reports").await;
    });
}

/// Signals to PID 1, the shells and the workers do not block the caller.
#[test]
fn signals_do_not_block_the_caller() {
    on_the_host(async |h| {
        for attack in ["STOP", "KILL", "TERM"] {
            let sandbox = h.sandbox().await;
            perl_behind(
                &sandbox,
                &format!(
                    "$| = 1; $SIG{{TERM}} = 'IGNORE'; print qq(ready\n); {WAIT} my $s = time; \
                     while (time - $s < 60) {{ kill '{attack}', -1; kill '{attack}', 1; select(undef, undef, undef, 0.0005) }}"
                ),
            )
            .await;
            go(&sandbox).await;
            is_answered(sandbox, attack).await;
        }
        let sandbox = h.sandbox().await;
        ok(&sandbox, "for s in {1..64}; do kill -$s 1; done 2>/dev/null; true").await;
        assert_eq!(ok(&sandbox, "echo alive").await, "alive\n");
    });
}

/// A request whose file worker a command kills fails for a fault of the sandbox: neither for one of the path, which would
/// not be tried again, nor for one of the host's files.
#[test]
fn a_killed_file_worker_is_nobodys_path() {
    on_the_host(async |h| {
        let sandbox = h.sandbox().await;
        ok(&sandbox, "mkdir t; head -c 30M /dev/zero > t/f").await;
        perl_behind(
            &sandbox,
            &format!(
                "$| = 1; print qq(ready\n); {WAIT} my $s = time; \
                 while (time - $s < 60) {{ kill 'KILL', -1; select(undef, undef, undef, 0.0005) }}"
            ),
        )
        .await;
        go(&sandbox).await;
        let to = tempfile::tempdir().unwrap();
        let large = vec![0; 8 << 20];
        let (mut read, mut written) = (None, None);
        for _ in 0..100 {
            let host = to.path().join("x");
            let copy = sandbox.copy_out("/testbed/t".as_ref(), &host);
            read = read.or(soon("copy", copy).await.err());
            let write = sandbox.write_file("/testbed/g".as_ref(), &large);
            written = written.or(soon("write", write).await.err());
            let _ = std::fs::remove_dir_all(host);
            if let (Some(read), Some(written)) = (&read, &written) {
                for error in [read, written] {
                    assert!(!error.is_usage(), "{error:?}");
                    assert!(error.chain().contains("the file worker was killed"), "{error:?}");
                }
                return;
            }
        }
        panic!("no worker was killed: {read:?} {written:?}");
    });
}

/// What root inside leaves for every new program, as libraries to preload and start-up files of shells, is loaded by none of
/// our own processes, and by no other sandbox.
#[test]
fn preloaded_files_reach_none_of_our_processes() {
    on_both(async |h| {
        let sandbox = h.sandbox().await;
        // Whoever reads one of these waits for ever.
        let files =
            "/etc/profile /etc/bash.bashrc /root/.bashrc /root/.bash_profile /etc/ld.so.preload";
        ok(&sandbox, &format!("rm -f {files}; mkdir -p /root; mkfifo {files}")).await;
        let output = sh_within(&sandbox, "ls /", Duration::from_millis(700)).await;
        assert_eq!(output.status, Status::TimedOut, "the control: new programs read the files");
        // The shell runs already.
        assert_eq!(ok(&sandbox, "echo alive").await, "alive\n");
        let fork = soon("fork", sandbox.fork()).await.unwrap();
        for one in [&sandbox, &fork] {
            super::store(one, "/testbed/f", "content").await;
            let mut read = String::new();
            let mut file = soon("read", one.read_file("/testbed/f".as_ref())).await.unwrap();
            soon("read", file.read_to_string(&mut read)).await.unwrap();
            assert_eq!(read, "content");
            assert!(!soon("list", one.list("/testbed".as_ref())).await.unwrap().is_empty());
            let host = tempfile::tempdir().unwrap();
            let out = host.path().join("out");
            soon("copy out", one.copy_out("/testbed".as_ref(), &out)).await.unwrap();
            let file = out.join("f");
            soon("copy in", one.copy_in(&file, "/testbed/g".as_ref())).await.unwrap();
        }
        assert_eq!(ok(&h.sandbox().await, "ls /etc/ld.so.preload 2>&1 | wc -l; true").await, "1\n");
    });
}

/// After a timeout nothing of the command is left, however it forks, is called, or ignores signals.
#[test]
fn nothing_survives_a_timeout() {
    on_both(async |h| {
        let sandbox = h.sandbox().await;
        for attack in [
            "$SIG{$_} = 'IGNORE' for qw(TERM HUP INT); if (!fork) { if (!fork) { sleep 100 } exit } sleep 100",
            // Never the same process for long.
            "$SIG{TERM} = 'IGNORE'; for (1..6) { if (!fork) { while (1) { my $p = fork; exit if $p } } } sleep 100",
            // Names that look like fields of /proc/PID/stat.
            "for my $n (') Z 1 1', qq(a\nb), qq(\\xff), '(((', ') S 1 (') { if (!fork) { $0 = $n; my $c = substr($n, 0, 15); \
             syscall(157, 15, $c, 0, 0, 0); sleep 100 } } sleep 100",
            "use POSIX; for (1..20) { if (!fork) { POSIX::setsid(); if (!fork) { sleep 100 } exit } } sleep 100",
        ] {
            super::store(&sandbox, "/tmp/hide.pl", attack).await;
            let output =
                sh_within(&sandbox, "exec -a hidden perl /tmp/hide.pl", Duration::from_millis(700))
                    .await;
            assert_eq!(output.status, Status::TimedOut, "{attack}: {output:?}");
            let left = ok(&sandbox, "for i in 1 2 3; do for e in /proc/[0-9]*/exe; do readlink $e; done; done 2>/dev/null | grep -c perl || true").await;
            assert_eq!(left, "0\n", "{attack}");
        }
    });
}

/// With a full process table the caller gets replies, and a timeout frees it.
#[test]
fn a_full_process_table_is_an_answer() {
    on_both(async |h| {
        if !h.caps.pids_limit.or_skip("pids_limit") {
            return;
        }
        let limits = Limits { pids: Some(40), ..Limits::default() };
        let sandbox = h.create(&Spec { limits, ..h.spec() }).await;
        let bomb = "perl -e '1 while fork; sleep 100'";
        let output = sh_within(&sandbox, bomb, Duration::from_secs(1)).await;
        assert_eq!(output.status, Status::TimedOut);
        assert_eq!(ok(&sandbox, "echo free again").await, "free again\n");
        let bomb = format!("$| = 1; print qq(ready\n); {WAIT} 1 while fork; sleep 60");
        perl_behind(&sandbox, &bomb).await;
        go(&sandbox).await;
        tokio::time::sleep(Duration::from_secs(1)).await;
        is_answered(sandbox, "process table").await;
    });
}

/// Limits of PID 1 that are changed from inside break only the sandbox.
#[test]
fn limits_of_pid_1_do_not_block_the_caller() {
    on_the_host(async |h| {
        // Processor time, file size, data, address space, descriptors, processes.
        for (resource, limit) in [(0, 1), (1, 0), (2, 4096), (9, 4096), (7, 0), (7, 5), (6, 0)] {
            let sandbox = h.sandbox().await;
            let program = format!(
                "my ($l, $o) = (pack('QQ', {limit}, {limit}), 0); print syscall({}, 1, {resource}, $l, $o)",
                libc::SYS_prlimit64
            );
            super::perl(&sandbox, &program).await;
            is_answered(sandbox, &format!("limit {resource}")).await;
        }
    });
}

/// Many processes that only burn time neither stop timeouts nor the other requests.
#[test]
fn busy_neighbour_processes_do_not_stop_us() {
    on_the_host(async |h: &Ground<'_>| {
        let sandbox = h.sandbox().await;
        ok(&sandbox, "for i in {1..40}; do while :; do :; done & done").await;
        let output = sh_within(&sandbox, "sleep 100", Duration::from_secs(1)).await;
        assert_eq!(output.status, Status::TimedOut);
        is_answered(sandbox, "spinning").await;
    });
}

/// A process that has a lease on a file keeps that file from being copied out, and nothing else.
#[test]
fn a_lease_on_a_file_blocks_no_copy() {
    on_the_host(async |h| {
        let sandbox = h.sandbox().await;
        ok(&sandbox, "mkdir /testbed/t; echo x | tee /testbed/t/kept > /testbed/t/leased").await;
        // The constants are F_SETLEASE and F_WRLCK. The kernel asks the holder to give the lease up, who does not.
        let hold = r#"$| = 1; $SIG{IO} = 'IGNORE'; open(my $f, '+<', '/testbed/t/leased') or die;
            fcntl($f, 1024, 1) or die "no lease: $!\n"; print "ready\n"; sleep 60"#;
        perl_behind(&sandbox, hold).await;
        let to = tempfile::tempdir().unwrap();
        let dest = to.path().join("copied");
        let report =
            soon("copy out", sandbox.copy_out("/testbed/t".as_ref(), &dest)).await.unwrap();
        let skipped: Vec<_> = report.skipped.iter().map(|entry| entry.why.as_str()).collect();
        assert_eq!(skipped, ["a process has a lease on it"]);
        assert_eq!(std::fs::read_to_string(dest.join("kept")).unwrap(), "x\n");
        let fork = soon("fork", sandbox.fork()).await.unwrap();
        assert_eq!(ok(&fork, "cat /testbed/t/leased").await, "x\n");
    });
}
