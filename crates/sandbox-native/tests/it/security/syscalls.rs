//! Dangerous system calls, made directly.

use std::fmt::Write;

use sandbox::{Network, Spec};

use super::{on_both, perl, perl_outside};

/// Name, number and arguments in Perl. `$buf` is a zeroed buffer, `$path` a name, `$null` no pointer.
fn refused_calls() -> Vec<(&'static str, libc::c_long, &'static str)> {
    vec![
        ("mount", libc::SYS_mount, "$path, $path, $tmpfs, 0, 0"),
        ("mount, bind", libc::SYS_mount, "$root, $path, 0, 4096, 0"),
        ("mount, remount writable", libc::SYS_mount, "$null, $sys, 0, 4128, 0"),
        ("umount2", libc::SYS_umount2, "$sys, 2"),
        ("pivot_root", libc::SYS_pivot_root, "$path, $path"),
        ("unshare user", libc::SYS_unshare, "0x10000000"),
        ("unshare mount", libc::SYS_unshare, "0x00020000"),
        ("unshare time", libc::SYS_unshare, "0x00000080"),
        ("setns", libc::SYS_setns, "$ns, 0"),
        ("clone with a user namespace", libc::SYS_clone, "0x10000011, 0, 0, 0, 0"),
        ("clone with a mount namespace", libc::SYS_clone, "0x00020011, 0, 0, 0, 0"),
        ("clone with a net namespace", libc::SYS_clone, "0x40000011, 0, 0, 0, 0"),
        ("clone with a pid namespace", libc::SYS_clone, "0x20000011, 0, 0, 0, 0"),
        ("clone with a cgroup namespace", libc::SYS_clone, "0x02000011, 0, 0, 0, 0"),
        ("clone3", libc::SYS_clone3, "$buf, 64"),
        ("open_tree", libc::SYS_open_tree, "-100, $root, 1"),
        ("move_mount", libc::SYS_move_mount, "-100, $root, -100, $path, 0"),
        ("fsopen", libc::SYS_fsopen, "$tmpfs, 0"),
        ("fsmount", libc::SYS_fsmount, "3, 0, 0"),
        ("fspick", libc::SYS_fspick, "-100, $root, 0"),
        ("fsconfig", libc::SYS_fsconfig, "3, 0, $path, $path, 0"),
        ("mount_setattr", libc::SYS_mount_setattr, "-100, $root, 0, $buf, 32"),
        ("init_module", libc::SYS_init_module, "$buf, 64, $path"),
        ("finit_module", libc::SYS_finit_module, "0, $path, 0"),
        ("delete_module", libc::SYS_delete_module, "$path, 0"),
        ("kexec_load", libc::SYS_kexec_load, "0, 0, 0, 0"),
        ("kexec_file_load", libc::SYS_kexec_file_load, "0, 0, 0, $path, 0"),
        ("reboot", libc::SYS_reboot, "0xfee1dead, 672274793, 0x89abcdef, 0"),
        ("settimeofday", libc::SYS_settimeofday, "$buf, 0"),
        ("clock_settime", libc::SYS_clock_settime, "0, $buf"),
        ("adjtimex", libc::SYS_adjtimex, "$tick"),
        ("clock_adjtime", libc::SYS_clock_adjtime, "0, $tick"),
        ("sethostname", libc::SYS_sethostname, "$path, 4"),
        ("setdomainname", libc::SYS_setdomainname, "$path, 4"),
        ("bpf", libc::SYS_bpf, "0, $buf, 64"),
        ("perf_event_open", libc::SYS_perf_event_open, "$buf, 0, -1, -1, 0"),
        ("userfaultfd", libc::SYS_userfaultfd, "1"),
        ("io_uring_setup", libc::SYS_io_uring_setup, "4, $buf"),
        ("io_uring_enter", libc::SYS_io_uring_enter, "0, 0, 0, 0, 0"),
        ("io_uring_register", libc::SYS_io_uring_register, "0, 0, 0, 0"),
        ("add_key", libc::SYS_add_key, "$user, $path, $buf, 8, -3"),
        ("request_key", libc::SYS_request_key, "$user, $path, 0, -3"),
        ("keyctl", libc::SYS_keyctl, "0, -3, 1"),
        ("open_by_handle_at", libc::SYS_open_by_handle_at, "0, $handle, 0"),
        ("fanotify_init", libc::SYS_fanotify_init, "0, 0"),
        ("syslog", libc::SYS_syslog, "3, $buf, 64"),
        ("acct", libc::SYS_acct, "$path"),
        ("swapon", libc::SYS_swapon, "$path, 0"),
        ("swapoff", libc::SYS_swapoff, "$path"),
        ("quotactl", libc::SYS_quotactl, "0x800007, $path, 0, $buf"),
        ("kcmp", libc::SYS_kcmp, "1, $$, 0, 0, 0"),
        ("mknod of a disk", libc::SYS_mknodat, "-100, $disk, 0x6180, 0x800"),
        ("mknod of memory", libc::SYS_mknodat, "-100, $disk, 0x2180, 0x101"),
        ("ptrace PID 1", libc::SYS_ptrace, "16, 1, 0, 0"),
        ("ptrace PID 1, seized", libc::SYS_ptrace, "0x4206, 1, 0, 0"),
        ("read PID 1's memory", libc::SYS_process_vm_readv, "1, $iov, 1, $iov, 1, 0"),
        ("write PID 1's memory", libc::SYS_process_vm_writev, "1, $iov, 1, $iov, 1, 0"),
        ("pidfd_getfd of PID 1", libc::SYS_pidfd_getfd, "$init, 3, 0"),
        ("memfd_secret", libc::SYS_memfd_secret, "0"),
        ("a call of the future", 470, "0"),
        ("a number without a call", 5000, "0"),
    ]
}

#[cfg(target_arch = "x86_64")]
fn refused_calls_here() -> Vec<(&'static str, libc::c_long, &'static str)> {
    vec![
        ("iopl", libc::SYS_iopl, "3"),
        ("ioperm", libc::SYS_ioperm, "0, 1, 1"),
        ("modify_ldt", libc::SYS_modify_ldt, "0, $buf, 64"),
    ]
}

#[cfg(not(target_arch = "x86_64"))]
fn refused_calls_here() -> Vec<(&'static str, libc::c_long, &'static str)> {
    Vec::new()
}

fn program(calls: &[(&str, libc::c_long, &str)]) -> String {
    let mut text = format!(
        r#"my $null = 0; my $buf = "\0" x 256; my $path = "/tmp"; my $root = "/"; my $sys = "/proc/sys";
           my $tmpfs = "tmpfs"; my $user = "user"; my $disk = "/tmp/disk"; my $area = "\0" x 64;
           my $tick = pack("I x124", 0x4000); my $handle = pack("IiQ", 8, 1, 2);
           my $iov = pack("QQ", unpack("Q", pack("P", $area)), 8);
           open(my $own, "<", "/proc/self/ns/user") or die; my $ns = fileno($own);
           my $init = syscall({}, 1, 0);
           sub attempt {{ my ($name, $number, @a) = @_; my $r = syscall($number, @a);
               exit 0 if $r == 0 && $name =~ /^clone/;
               print "$name: ", $r == -1 ? 0 + $! : "done", "\n"; }}
           attempt("getpid", {});
        "#,
        libc::SYS_pidfd_open,
        libc::SYS_getpid
    );
    for (name, number, arguments) in calls {
        let _ = writeln!(text, "attempt('{}', {number}, {arguments});", name.replace('\'', ""));
    }
    text
}

/// Each dangerous system call is refused, and the same program notices one that is not.
#[test]
fn dangerous_calls_are_refused() {
    on_both(async |h| {
        for network in [Network::None, Network::Full] {
            let sandbox = h.create(&Spec { network, ..h.spec() }).await;
            let mut calls = refused_calls();
            calls.extend(refused_calls_here());
            let seen = perl(&sandbox, &program(&calls)).await;
            assert!(seen.starts_with("getpid: done\n"), "system calls cannot be made: {seen}");
            assert_eq!(seen.lines().count(), calls.len() + 1, "{seen}");
            for line in seen.lines().skip(1) {
                let (name, result) = line.rsplit_once(": ").unwrap();
                let errno: i32 = result.parse().unwrap_or(0);
                assert!(
                    [libc::EPERM, libc::ENOSYS, libc::EACCES].contains(&errno),
                    "{name} was not refused: {result}"
                );
            }
        }
    });
}

/// The control: outside, the same program makes a namespace.
#[test]
fn the_same_attempt_succeeds_outside() {
    let calls = [("unshare user", libc::SYS_unshare, "0x10000000")];
    let seen = perl_outside(&program(&calls));
    if !seen.contains("unshare user: done") {
        sandbox_conformance::skip("userns", &format!("no user namespaces here: {seen}"));
    }
}

/// A program that makes one system call and exits with 42 if that answered a positive number.
#[cfg(target_arch = "x86_64")]
fn executable(number: u32, gate: [u8; 2]) -> Vec<u8> {
    let mut code = vec![0xb8];
    code.extend(number.to_le_bytes()); // mov eax, number
    code.extend(gate); // int 0x80, or syscall
    code.extend([0x85, 0xc0]); // test eax, eax
    code.extend([0xbf, 1, 0, 0, 0]); // mov edi, 1
    code.extend([0x7e, 5]); // jle over the next
    code.extend([0xbf, 42, 0, 0, 0]); // mov edi, 42
    code.extend([0xb8, 60, 0, 0, 0, 0x0f, 0x05]); // exit
    let size = (120 + code.len()) as u64;
    let mut file = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x02\0\x3e\0\x01\0\0\0".to_vec();
    for word in [0x40_0078u64, 64, 0] {
        file.extend(word.to_le_bytes()); // entry, program headers, section headers
    }
    file.extend([0, 0, 0, 0, 64, 0, 56, 0, 1, 0, 0, 0, 0, 0, 0, 0]);
    file.extend([1, 0, 0, 0, 5, 0, 0, 0]); // a loaded, executable segment
    for word in [0u64, 0x40_0000, 0x40_0000, size, size, 0x1000] {
        file.extend(word.to_le_bytes());
    }
    file.extend(code);
    file
}

/// The older system call tables of the processor do not get around the filter.
#[cfg(target_arch = "x86_64")]
#[test]
fn other_call_tables_are_refused() {
    use std::path::Path;

    use sandbox::Sandbox;
    const SYSCALL: [u8; 2] = [0x0f, 0x05];
    const INT80: [u8; 2] = [0xcd, 0x80];
    on_both(async |h| {
        let sandbox = h.sandbox().await;
        for (name, number, gate, expected) in [
            ("native getpid", 39, SYSCALL, true),
            ("x32 getpid", 0x4000_0027, SYSCALL, false),
            ("i386 getpid", 20, INT80, false),
            ("i386 unshare", 310, INT80, false),
        ] {
            let path = Path::new("/testbed/call");
            sandbox.write_file(path, &executable(number, gate)).await.unwrap();
            super::ok(&sandbox, "chmod 755 /testbed/call").await;
            let output = super::sh(&sandbox, "/testbed/call").await;
            assert_eq!(output.status.code() == 42, expected, "{name}: {output:?}");
        }
    });
}

/// A command cannot make another process wait, such as the file workers of PID 1, and can change its own priority.
#[test]
fn other_processes_keep_their_priority() {
    on_both(async |h| {
        let sandbox = h.sandbox().await;
        let program = format!(
            r#"my $p = fork; if (!$p) {{ sleep 60; exit }} my $param = pack('i', 0);
               my $idle = pack('I I Q i I Q Q Q', 48, 5, 0, 0, 0, 0, 0, 0); my $one = pack('Q', 1);
               my $state = sub {{ open(my $s, '<', "/proc/$p/status"); my ($mask) = grep /^Cpus_allowed:/, <$s>;
                   join ' ', getpriority(0, $p), syscall({policy}, $p), syscall({input_of}, 1, $p), $mask }};
               my $before = $state->(); my $group = getpgrp;
               my $try = sub {{ my $name = shift; print "$name: ", syscall(shift, @_) == -1 ? 0 + $! : 'done', "\n" }};
               $try->('scheduler', {scheduler}, $p, 5, $param); $try->('parameters', {parameters}, $p, $param);
               $try->('attributes', {attributes}, $p, $idle, 0); $try->('priority', {priority}, 0, $p, 10);
               $try->('input', {input}, 1, $p, 3 << 13); $try->('processors', {affinity}, $p, 8, $one); print "refused\n";
               $try->('priority of a user', {priority}, 2, 0, 10); $try->('input of a user', {input}, 3, 0, 3 << 13);
               $try->('priority of a group', {priority}, 1, $group, 10); $try->('input of a group', {input}, 2, $group, 3 << 13);
               my $after = $state->(); print $after eq $before ? "kept\n" : "from $before to $after";
               kill 'KILL', $p; print "own\n";
               $try->('own priority', {priority}, 0, 0, 18); $try->('own group', {priority}, 1, 0, 19);
               $try->('own input', {input}, 1, 0, 3 << 13); $try->('own scheduler', {scheduler}, 0, 3, $param);
               $try->('own attributes', {attributes}, 0, $idle, 0); $try->('own processors', {affinity}, 0, 8, $one);"#,
            scheduler = libc::SYS_sched_setscheduler,
            parameters = libc::SYS_sched_setparam,
            attributes = libc::SYS_sched_setattr,
            priority = libc::SYS_setpriority,
            input = libc::SYS_ioprio_set,
            affinity = libc::SYS_sched_setaffinity,
            policy = libc::SYS_sched_getscheduler,
            input_of = libc::SYS_ioprio_get,
        );
        let seen = perl(&sandbox, &program).await;
        let (others, own) = seen.split_once("own\n").unwrap();
        let (ignored, refused) = others.split_once("refused\n").unwrap();
        assert_eq!(
            ignored.matches(": done\n").count(),
            6,
            "a program may name itself so: {ignored}"
        );
        assert_eq!(refused.matches(": 1\n").count(), 4, "{refused}");
        assert!(refused.ends_with("\nkept\n"), "another process was changed: {refused}");
        assert_eq!(own.matches(": done\n").count(), 6, "its own may be changed: {own}");
        super::ok(
            &sandbox,
            "nice -n 5 true && ionice -c 3 true && taskset 1 true && chrt -b 0 true && renice -n 5 -p $$",
        )
        .await;
    });
}

/// No call makes the kernel start the machine's program that loads modules: protocols and line disciplines that may be
/// modules do not exist inside.
#[test]
fn no_kernel_module_is_asked_for() {
    on_both(async |h| {
        let sandbox = h.sandbox().await;
        let (inet, inet6, netlink) = (libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK);
        let (no_type, no_protocol) = (libc::ESOCKTNOSUPPORT, libc::EPROTONOSUPPORT);
        let sockets = [
            ("TCP", inet, 1, 0, 0),
            ("TCP by its number, with flags", inet6, 0x80801, 6, 0),
            ("UDP", inet6, 2, 17, 0),
            ("interfaces", netlink, 3, 0, 0),
            ("MPTCP", inet, 1, 262, no_protocol),
            ("SCTP", inet, 1, 132, no_protocol),
            ("SCTP by its type", inet, 5, 0, no_type),
            ("DCCP", inet6, 6, 33, no_type),
            ("UDP-Lite", inet, 2, 136, no_protocol),
            ("L2TP", inet6, 2, 115, no_protocol),
            ("a stream of UDP", inet, 1, 17, no_protocol),
            ("ICMP of the other family", inet6, 2, 1, no_protocol),
            ("sockets of others", netlink, 3, 4, no_protocol),
            ("audit", netlink, 3, 9, no_protocol),
            ("packet filters", netlink, 3, 12, no_protocol),
            ("generic netlink", netlink, 3, 16, no_protocol),
        ];
        let mut program = String::new();
        let mut expected = String::new();
        for (name, family, kind, protocol, error) in sockets {
            let _ = write!(
                program,
                "{{ my $r = syscall({}, {family}, {kind}, {protocol}); print '{name}: ', $r < 0 ? 0 + $! : 0, qq(\\n) }} ",
                libc::SYS_socket
            );
            let _ = writeln!(expected, "{name}: {error}");
        }
        // The usual line discipline, which a terminal has already.
        let _ = write!(
            program,
            "open(my $m, '+<', '/dev/ptmx') or die; my $usual = pack('i', 0); \
             print 'discipline: ', ioctl($m, {}, $usual) ? 0 : 0 + $!, qq(\\n); ",
            libc::TIOCSETD
        );
        let _ = writeln!(expected, "discipline: {}", libc::EPERM);
        // Lists of bridges and VLANs, and keys for signed segments: anybody may ask for them.
        program += "socket(my $s, 2, 2, 0) or die; socket(my $t, 2, 1, 0) or die; ";
        for request in [0x8940, 0x89a0, 0x8982, 0x8983] {
            let _ = write!(
                program,
                "{{ my $room = \"\\0\" x 64; print 'request: ', ioctl($s, {request}, $room) ? 0 : 0 + $!, qq(\n) }} "
            );
            let _ = writeln!(expected, "request: {}", libc::ENOPKG);
        }
        let key = r#"pack('S n C4 x120 C C S i a80', 2, 0, 127, 0, 0, 1, 0, 0, 4, 0, 'key')"#;
        for option in [14, 32, 38] {
            let _ = write!(
                program,
                "print 'key: ', setsockopt($t, 6, {option}, {key}) ? 0 : 0 + $!, qq(\n); "
            );
            let _ = writeln!(expected, "key: {}", libc::ENOPROTOOPT);
        }
        assert_eq!(perl(&sandbox, &program).await, expected);
    });
}
