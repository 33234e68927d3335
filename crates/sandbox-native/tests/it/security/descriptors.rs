//! Ways out through `/proc`: other processes' descriptors, programs, roots and memory.

use sandbox::{Network, Process, Runtime, Sandbox, Spec};
use tokio::io::AsyncReadExt;

use super::{ok, on_both, on_the_host, perl, perl_behind, program, soon, store};

/// PID 1 keeps its descriptors, program, root and memory to itself.
#[test]
fn pid_1_cannot_be_looked_into() {
    on_both(async |h| {
        for network in [Network::None, Network::Full] {
            let sandbox = h.create(&Spec { network, ..h.spec() }).await;
            let look = "for p in exe root cwd fd/0 fd/3 fd/4 fd/5 fd/8 ns/mnt ns/user; do \
                        readlink /proc/$P/$p >/dev/null 2>&1 && echo $p; done; \
                        for p in mem environ auxv maps; do head -c 1 /proc/$P/$p >/dev/null 2>&1 && \
                        [ $p != environ ] && echo $p; done; \
                        { : >>/proc/$P/mem; } 2>/dev/null && echo write mem; \
                        ls /proc/$P/root/ >/dev/null 2>&1 && echo enter; \
                        ls /proc/$P/map_files/* >/dev/null 2>&1 && echo map_files; true";
            assert_eq!(ok(&sandbox, &format!("P=1; {look}")).await, "");
            let own = ok(&sandbox, &format!("P=self; {look}")).await;
            assert!(own.contains("exe\nroot\ncwd\nfd/0\n"), "the control fails: {own}");
        }
    });
}

/// The program PID 1 runs cannot be overwritten or run from inside.
#[test]
fn our_program_cannot_be_replaced() {
    on_both(async |h| {
        let sandbox = h.sandbox().await;
        let helper = crate::support::spawner();
        let before = std::fs::metadata(&helper).unwrap();
        let seen = perl(
            &sandbox,
            "for my $p (glob '/proc/[0-9]*/exe') { my ($pid) = $p =~ /(\\d+)/; \
               my $l = readlink $p; next if defined $l && $l !~ /helper/; \
               print qq(opened $p\n) if open(my $r, '<', $p); print qq(wrote $p\n) if open(my $w, '+<', $p); \
               print qq(ran $p\n) if system(qq($p </dev/null >/dev/null 2>&1)) == 0 }",
        )
        .await;
        assert_eq!(seen, "");
        let after = std::fs::metadata(&helper).unwrap();
        assert_eq!(
            (before.len(), before.modified().unwrap()),
            (after.len(), after.modified().unwrap())
        );
    });
}

/// While the caller works on files, a command sees no descriptor, memory or program of the worker.
#[test]
fn file_workers_cannot_be_looked_into() {
    on_both(async |h| {
        let sandbox = h.sandbox().await;
        perl_behind(
            &sandbox,
            &format!(
                r#"$| = 1; my %mine; my (%seen, $met); print "ready\n"; close STDOUT; my $t = time;
                   until (-e "/tmp/stop" || time - $t > 90) {{ opendir(my $d, "/proc"); my @all = readdir $d;
                     for my $p (grep {{ /^\d+$/ && $_ > 1 && $_ != $$ }} @all) {{
                       open(my $c, "<", "/proc/$p/comm") or next; my $name = <$c>; next unless $name =~ /^lis-/;
                       $met++ or open(my $told, ">", "/tmp/met");
                       for my $f ("exe", "cwd", "root", map {{ "fd/$_" }} 0..12) {{
                         my $l = readlink "/proc/$p/$f"; $seen{{"$f $l"}} = 1 if defined $l }}
                       $seen{{"climbed"}} = 1 if opendir(my $e, "/proc/$p/fd/5/..") || opendir($e, "/proc/$p/fd/8/..");
                       $seen{{"memory"}} = 1 if open(my $m, "<", "/proc/$p/mem");
                       my $fd = syscall({open}, $p, 0); if ($fd >= 0) {{ for my $f (3..9) {{
                         my $got = syscall({getfd}, $fd, $f, 0); $seen{{"took $f"}} = 1 if $got >= 0 }}
                         open(my $close, "<&=", $fd) }} }} }}
                   open(my $o, ">", "/tmp/result"); print $o "met\n" if $met; print $o "$_\n" for sort keys %seen;"#,
                open = libc::SYS_pidfd_open,
                getfd = libc::SYS_pidfd_getfd
            ),
        )
        .await;
        let out = tempfile::tempdir().unwrap();
        // On a busy machine the attack may not run before the first workers have ended.
        for round in 0..100 {
            sandbox.list("/usr/bin".as_ref()).await.unwrap();
            sandbox.write_file("/tmp/some".as_ref(), &vec![7; 1 << 20]).await.unwrap();
            let to = out.path().join(round.to_string());
            sandbox.copy_out("/usr/share/perl5".as_ref(), &to).await.unwrap();
            if round >= 3 && ok(&sandbox, "ls /tmp").await.lines().any(|name| name == "met") {
                break;
            }
        }
        store(&sandbox, "/tmp/stop", "").await;
        let seen = ok(
            &sandbox,
            "for i in {1..1000}; do [ -s /tmp/result ] && break; sleep 0.05; done; cat /tmp/result",
        )
        .await;
        assert_eq!(seen, "met\n", "a worker could be looked into, or none was met");
    });
}

/// A program started in a directory that is a link into `/proc` ends up inside, or nowhere.
#[test]
fn working_directories_lead_nowhere_else() {
    on_both(async |h| {
        let sandbox = h.sandbox().await;
        let script = "stat -f -c %t . ; [ -e ../u0 -o -e ../../u0 -o -e u0 ] && echo outside; \
                      cd ../../../../../../..; [ . -ef / ] || echo 'another root'; true";
        let inside = {
            let run = Process::new(["bash", "-c", script]);
            program(&sandbox, &run).await
        };
        assert_eq!(inside, "794c7630\n[0]", "the control fails");
        for target in proc_places() {
            let mut run = Process::new(["bash", "-c", script]);
            run.workdir = Some(target.clone().into());
            let seen = program(&sandbox, &run).await;
            assert!(is_inside(&seen), "{target}: {seen}");
            // The same through a link a command left where programs start.
            ok(&sandbox, &format!("cd /; rm -rf /testbed; ln -s {target} /testbed")).await;
            let seen = program(&sandbox, &Process::new(["bash", "-c", script])).await;
            assert!(is_inside(&seen), "/testbed -> {target}: {seen}");
        }
        // And a shell that has to be started again.
        ok(&sandbox, "ln -sfn /proc/1/fd/5/.. /testbed").await;
        super::sh(&sandbox, "pkill -9 bash; kill -9 $$").await;
        let seen = sandbox.shell(&sandbox::ShellCommand::new(script)).await;
        if let Ok(output) = seen {
            assert!(!output.stdout.text().contains("outside"), "{output:?}");
            assert!(!output.stdout.text().contains("another"), "{output:?}");
        }
    });
}

fn is_inside(seen: &str) -> bool {
    !seen.contains("outside") && !seen.contains("another root")
}

/// Magic links of the kernel do not mislead the workers.
fn proc_places() -> Vec<String> {
    let mut all: Vec<String> =
        ["/proc/self/root/..", "/proc/1/root", "/proc/1/cwd", "/proc/self/cwd"]
            .map(String::from)
            .into();
    for number in 0..14 {
        for whose in ["self", "1"] {
            all.push(format!("/proc/{whose}/fd/{number}"));
            all.push(format!("/proc/{whose}/fd/{number}/../.."));
        }
    }
    all
}

/// A sandbox whose working directory itself is such a link is refused, or starts inside.
#[test]
fn first_working_directory_leads_nowhere_else() {
    on_the_host(async |h| {
        for number in 3..14 {
            let workdir = format!("/proc/self/fd/{number}/../..").into();
            let Ok(sandbox) = soon("create", h.runtime.create(&Spec { workdir, ..h.spec() })).await
            else {
                continue;
            };
            let seen = super::sh(&sandbox, "ls -a; [ . -ef / ] && echo root").await;
            assert!(!seen.stdout.text().contains("u0"), "{seen:?}");
            assert!(!seen.stdout.text().contains(sandbox.id()), "{seen:?}");
        }
    });
}

/// Reading, writing and copying through `/proc/PID` reveals nothing and breaks nothing.
#[test]
fn files_of_processes_are_not_given() {
    on_both(async |h| {
        let sandbox = h.sandbox().await;
        let mut paths: Vec<String> =
            ["mem", "environ", "maps", "exe", "root/etc/passwd", "fd/3", "fd/5", "ns/mnt"]
                .iter()
                .flat_map(|file| ["self", "1", "thread-self"].map(|p| format!("/proc/{p}/{file}")))
                .collect();
        paths.extend(["/dev/.lis/k", "/dev/.lis/s", "/dev/zero", "/dev/ptmx"].map(String::from));
        for path in &paths {
            ok(&sandbox, &format!("ln -sfn {path} /testbed/link")).await;
            for name in [path.as_str(), "/testbed/link"] {
                let read = soon(name, sandbox.read_file(name.as_ref())).await;
                if let Ok(mut input) = read {
                    // Through /proc/PID/root a file inside is the same file.
                    let mut bytes = Vec::new();
                    soon(name, (&mut input).take(4096).read_to_end(&mut bytes)).await.unwrap();
                    let same = path.ends_with("etc/passwd") && bytes.starts_with(b"root:");
                    assert!(same, "{name} can be read: {:?}", String::from_utf8_lossy(&bytes));
                }
                let _ = soon(name, sandbox.list(name.as_ref())).await;
                let to = tempfile::tempdir().unwrap();
                let _ = soon(name, sandbox.copy_out(name.as_ref(), &to.path().join("x"))).await;
                if !path.ends_with("etc/passwd") {
                    let _ = soon(name, sandbox.write_file(name.as_ref(), b"overwritten")).await;
                }
            }
        }
        assert_eq!(ok(&sandbox, "echo still here").await, "still here\n");
    });
}
