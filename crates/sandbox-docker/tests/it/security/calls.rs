//! System calls, kernel files and devices: what commands do not need is refused, and programs work.

use sandbox::{Layer, LayerState, Sandbox};

use super::{ok, on_docker, perl, sh};

/// Calls that only an escape would need are refused.
#[test]
fn risky_calls_are_refused() {
    on_docker(async |h| {
        let sandbox = h.sandbox().await;
        assert_eq!(sandbox.protection().state(&Layer::Seccomp), LayerState::Enforced);
        let calls = [
            ("add_key", libc::SYS_add_key),
            ("bpf", libc::SYS_bpf),
            ("fanotify_init", libc::SYS_fanotify_init),
            ("fsopen", libc::SYS_fsopen),
            ("io_uring_setup", libc::SYS_io_uring_setup),
            ("kcmp", libc::SYS_kcmp),
            ("keyctl", libc::SYS_keyctl),
            ("mount", libc::SYS_mount),
            ("mount_setattr", libc::SYS_mount_setattr),
            ("open_by_handle_at", libc::SYS_open_by_handle_at),
            ("open_tree", libc::SYS_open_tree),
            ("perf_event_open", libc::SYS_perf_event_open),
            ("pivot_root", libc::SYS_pivot_root),
            ("quotactl", libc::SYS_quotactl),
            ("request_key", libc::SYS_request_key),
            ("setns", libc::SYS_setns),
            ("swapon", libc::SYS_swapon),
            ("syslog", libc::SYS_syslog),
            ("umount2", libc::SYS_umount2),
            ("unshare", libc::SYS_unshare),
            ("userfaultfd", libc::SYS_userfaultfd),
            ("vmsplice", libc::SYS_vmsplice),
        ];
        // With arguments that each of them would find wrong: without a filter the error is another one.
        let numbers: Vec<String> = calls.iter().map(|(_, number)| number.to_string()).collect();
        let program = format!(
            "for my $n ({}, 9999) {{ my $r = syscall($n, 1 << 40, -1, -1, -1, -1); print $r == -1 ? 0 + $! : 'done', ' ' }}",
            numbers.join(",")
        );
        let seen = perl(&sandbox, &program).await;
        let errors: Vec<&str> = seen.split_whitespace().collect();
        for ((name, _), error) in calls.iter().zip(&errors) {
            assert_eq!(*error, libc::EPERM.to_string(), "{name}");
        }
        assert_eq!(errors.last().copied(), Some("38"), "a call of the future: {seen}");
    });
}

/// New namespaces, sockets of risky families, limits and priorities of other processes are refused.
#[test]
fn arguments_are_filtered() {
    on_docker(async |h| {
        let sandbox = h.sandbox().await;
        let program = format!(
            r#"my $try = sub {{ my $r = syscall($_[0], @_[1..$#_]); print $r == -1 ? 0 + $! : $r >= 0 ? 'ok' : $r, ' ' }};
            $try->({clone}, 0x10000000, 0, 0, 0, 0); $try->({clone}, 0x02000000, 0, 0, 0, 0);
            $try->({clone3}, 0, 0); for my $family (17, 38, 40, 44) {{ $try->({socket}, $family, 3, 0) }}
            my $l = pack('QQ', 5, 5); $try->({prlimit}, 1, 7, $l, 0); $try->({ioctl}, 0, 0x5412, $l);
            $try->({setpriority}, 2, 0, 5); $try->({setpriority}, 0, 1, 5); $try->({setpriority}, 0, 0, 19);
            $try->({socket}, 1, 1, 0); $try->({getprlimit}, 1, 7, 0, $l); $try->({memfd_secret}, 0);
            $try->({socket}, 2, 1, 132); $try->({socket}, 10, 1, 262); $try->({socket}, 16, 3, 9); $try->({socket}, 16, 3, 12);
            $try->({socket}, 2, 3, 1); $try->({socket}, 2, 5, 0); $try->({mmap}, 0, 1 << 21, 3, 0x40022, -1, 0);
            $try->({memfd}, $l, 4); $try->({prctl}, 62, 1, 0, 0, 0); $try->({ioctl}, 0, 0x5423, $l);
            $try->({socket}, 2, 0x80801, 6); $try->({socket}, 10, 2, 0); $try->({socket}, 16, 3, 0); $try->({prctl}, 3, 0, 0, 0, 0);
            $try->({memfd}, $l, 1); $try->({seccomp}, 1, 0, $l); $try->({prctl}, 22, 2, $l, 0, 0);
            for my $o ([1, 26], [1, 51], [41, 32], [1, 2], [41, 26], [6, 1]) {{ $try->({setsockopt}, 0, @$o, $l, 16) }}"#,
            seccomp = libc::SYS_seccomp,
            setsockopt = libc::SYS_setsockopt,
            clone = libc::SYS_clone,
            clone3 = libc::SYS_clone3,
            socket = libc::SYS_socket,
            prlimit = libc::SYS_prlimit64,
            getprlimit = libc::SYS_prlimit64,
            ioctl = libc::SYS_ioctl,
            setpriority = libc::SYS_setpriority,
            memfd_secret = libc::SYS_memfd_secret,
            memfd = libc::SYS_memfd_create,
            mmap = libc::SYS_mmap,
            prctl = libc::SYS_prctl,
        );
        let seen = perl(&sandbox, &program).await;
        // At the end, calls that are not filtered name something that is not a socket.
        let expected = "1 1 38 1 1 1 1 1 1 1 ok ok ok ok 38 93 93 93 93 1 1 12 12 22 1 ok ok ok ok ok \
                        22 22 92 92 105 88 88 88";
        assert_eq!(seen.trim(), expected, "{seen}");
        // The one for the first process had no effect.
        let first = ok(&sandbox, "cut -d' ' -f19 /proc/1/stat").await;
        assert_eq!(first, "0\n");
    });
}

/// Kernel files that tell about the machine or reach it are hidden or read-only, and `/dev` takes no files.
#[test]
fn kernel_files_are_hidden() {
    on_docker(async |h| {
        let sandbox = h.sandbox().await;
        let hidden = "cat /proc/cmdline /proc/config.gz /proc/kcore /proc/keys /proc/timer_list 2>/dev/null | head -c 100 | wc -c";
        assert_eq!(ok(&sandbox, hidden).await, "0\n");
        let script = "for f in /dev/new /proc/sys/kernel/hostname /proc/sysrq-trigger /proc/pressure/cpu /sys/kernel/new; do
            (echo b > $f) 2>/dev/null && echo $f; done; mknod /tmp/null c 1 3 2>/dev/null && echo mknod; true";
        assert_eq!(ok(&sandbox, script).await, "");
        let works = "echo x > /dev/null && head -c 4 /dev/urandom | wc -c && echo y > /dev/shm/y && cat /dev/shm/y";
        assert_eq!(ok(&sandbox, works).await, "4\ny\n");
    });
}

/// What programs of images need works: other users, threads, priorities, shared memory, package managers.
#[test]
fn ordinary_programs_work() {
    on_docker(async |h| {
        let sandbox = h.sandbox().await;
        assert_eq!(ok(&sandbox, "su nobody -s /bin/bash -c 'id -un'").await, "nobody\n");
        ok(&sandbox, "nice -n 19 true && taskset 1 true && ionice -c 3 true && renice -n 12 $$")
            .await;
        let limits =
            "bash -c 'ulimit -n 100; ulimit -n' && bash -c 'ulimit -c 0; ulimit -f 10; echo set'";
        assert_eq!(ok(&sandbox, limits).await, "100\nset\n");
        ok(
            &sandbox,
            "dpkg --audit && apt-get --version > /dev/null && tar -C /etc -c passwd | tar -t",
        )
        .await;
        let python = "import threading, multiprocessing as m, sqlite3, subprocess, mmap
t = [threading.Thread(target=print) for _ in range(20)]
[x.start() for x in t]; [x.join() for x in t]
with m.Pool(2) as p: assert p.map(abs, [-1, -2]) == [1, 2]
m.Lock(); sqlite3.connect('/testbed/db').execute('create table t (x)'); subprocess.check_call(['true'])
mmap.mmap(-1, 1 << 20); print('fine')";
        if sh(&sandbox, "command -v python3").await.status.success() {
            sandbox
                .write_file("/tmp/p.py".as_ref(), python.as_bytes())
                .await
                .unwrap_or_else(|e| panic!("{e}"));
            assert!(ok(&sandbox, "python3 /tmp/p.py").await.ends_with("fine\n"));
        }
    });
}
