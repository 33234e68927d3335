//! Kernel interfaces in the file system: settings, devices, privileges.

use sandbox::{Network, Spec};

use super::{ok, on_both, perl, sh};

/// Switches of the machine cannot be written, whatever the network.
#[test]
fn kernel_switches_cannot_be_written() {
    on_both(async |h| {
        for network in [Network::None, Network::Full] {
            let sandbox = h.create(&Spec { network, ..h.spec() }).await;
            // Opening for appending changes nothing where it works; the control is a file of our own.
            let opened = ok(
                &sandbox,
                "touch /tmp/control; for f in /tmp/control $(find /proc/sys -type f 2>/dev/null) \
                 /proc/sysrq-trigger /proc/kmsg /proc/kcore /proc/mtrr /proc/irq/*/smp_affinity \
                 /proc/bus/pci/*/* /proc/fs/*/*/* /proc/acpi/* /proc/scsi/* /proc/dynamic_debug/control \
                 /proc/pressure/*; do \
                 if [ -f \"$f\" ] && { : >>\"$f\"; } 2>/dev/null; then echo \"$f\"; fi; done",
            )
            .await;
            let opened: Vec<_> = opened.lines().filter(|f| *f != "/proc/kmsg").collect();
            assert_eq!(opened, ["/tmp/control"], "these can be written");
            for file in ["core_pattern", "modprobe", "hotplug", "hostname", "sysrq"] {
                let script = format!("echo '|/tmp/x' > /proc/sys/kernel/{file}");
                assert!(!sh(&sandbox, &script).await.status.success(), "{file}");
            }
        }
    });
}

/// Files with the kernel's memory, log or keys are empty or closed.
#[test]
fn kernel_secrets_cannot_be_read() {
    on_both(async |h| {
        let sandbox = h.sandbox().await;
        let seen = ok(
            &sandbox,
            "for f in /proc/cmdline /proc/config.gz /proc/kcore /proc/keys /proc/timer_list /proc/kmsg /proc/vmallocinfo /proc/slabinfo \
             /proc/kpageflags /dev/mem /dev/kmem /dev/kmsg /dev/port /dev/fuse /dev/kvm /dev/userfaultfd; do \
             n=$(timeout 2 head -c 64 $f 2>/dev/null | wc -c); [ $n = 0 ] || echo $f; done; \
             grep -v '^0\\{16\\} ' /proc/kallsyms 2>/dev/null | head -1; \
             grep -E '^ *0*[1-9a-f][0-9a-f]*-' /proc/iomem | head -1",
        )
        .await;
        assert_eq!(seen, "", "these can be read");
    });
}

/// No control group hierarchy is there to put a release agent into, nor can one be mounted.
#[test]
fn there_is_no_release_agent() {
    on_both(async |h| {
        let sandbox = h.sandbox().await;
        let found = ok(
            &sandbox,
            "find / -xdev -name release_agent -o -xdev -name cgroup.procs 2>/dev/null | head -3; \
             grep -c -E ' (cgroup2?|sysfs|debugfs|tracefs|bpf|securityfs) ' /proc/self/mounts || true",
        )
        .await;
        assert_eq!(found, "0\n");
        let script = "mkdir /tmp/cg && mount -t cgroup -o rdma cgroup /tmp/cg";
        assert!(!sh(&sandbox, script).await.status.success());
    });
}

/// Only harmless devices exist, and none can be created.
#[test]
fn devices_are_few() {
    on_both(async |h| {
        let sandbox = h.sandbox().await;
        // `find` does not see a node that is mounted on a file, because it reads the directory only.
        let script = "for f in /dev/*; do if [ ! -h $f ] && [ -b $f -o -c $f ]; then echo $f; fi; done; find / \\( -path /proc -o \
                      -path /dev \\) -prune -o \\( -type b -o -type c \\) -print 2>/dev/null; true";
        let found = ok(&sandbox, script).await;
        let names: Vec<_> = found.lines().collect();
        let known =
            ["/dev/full", "/dev/null", "/dev/random", "/dev/tty", "/dev/urandom", "/dev/zero"];
        assert_eq!(names, known);
        assert!(!sh(&sandbox, "mknod /tmp/sda b 8 0").await.status.success());
        assert!(!sh(&sandbox, "mknod /tmp/mem c 1 1").await.status.success());
        assert!(
            !sh(&sandbox, "rm /dev/null || touch /dev/new || chmod 600 /dev/zero")
                .await
                .status
                .success()
        );
    });
}

/// A setuid program gives nothing, neither one of the image nor one made inside.
#[test]
fn setuid_programs_gain_nothing() {
    on_both(async |h| {
        let sandbox = h.sandbox().await;
        let loose = ok(
            &sandbox,
            "while read -r _ _ _ root at options _; do case $options in *nosuid*) ;; \
             *) [ -c \"$at\" ] || echo \"$at\";; esac; done < /proc/self/mountinfo",
        )
        .await;
        assert_eq!(loose, "", "mounted without nosuid");
        let made = ok(
            &sandbox,
            "cp \"$(readlink -f \"$(command -v id)\")\" /tmp/gain; chmod 6755 /tmp/gain; stat -c %a /tmp/gain",
        )
        .await;
        assert_eq!(made, "6755\n");
        let seen = perl(
            &sandbox,
            "$( = 1000; $) = '1000 1000'; $< = $> = 1000; print $> == 1000 ? `/tmp/gain -u` : qq(one user\n);",
        )
        .await;
        if seen == "one user\n" {
            return sandbox_conformance::skip("subuid", "there is one user inside only");
        }
        assert_eq!(seen, "1000\n", "the setuid bit worked");
    });
}

/// Capabilities cannot be had from files, user namespaces or ambient sets.
#[test]
fn capabilities_cannot_be_regained() {
    on_both(async |h| {
        let sandbox = h.sandbox().await;
        let caps = "grep -E '^Cap(Prm|Eff|Bnd)' /proc/self/status";
        let before = ok(&sandbox, caps).await;
        // security.capability, version 2: everything, effective.
        let script = format!(
            "cp \"$(readlink -f \"$(command -v grep)\")\" /tmp/capgrep && perl -e 'my ($f, $n, $v) = \
             (\"/tmp/capgrep\", \"security.capability\", pack(\"I5\", 0x02000001, (0xffffffff) x 4)); \
             syscall({}, $f, $n, $v, 20, 0)'; /tmp/capgrep -E '^Cap(Prm|Eff|Bnd)' /proc/self/status",
            libc::SYS_setxattr
        );
        let after = sh(&sandbox, &script).await;
        if after.status.success() {
            assert_eq!(after.stdout.text(), before);
        }
        assert!(!sh(&sandbox, "unshare -r true").await.status.success());
        assert!(!sh(&sandbox, "unshare -m true").await.status.success());
        assert!(!sh(&sandbox, "nsenter -t 1 -m true").await.status.success());
    });
}

/// The classic way out of a changed root: change it again and climb.
#[test]
fn chroot_leads_nowhere() {
    on_both(async |h| {
        let sandbox = h.sandbox().await;
        let seen = perl(
            &sandbox,
            "mkdir '/tmp/c'; opendir(my $d, '/'); chroot('/tmp/c') or print qq(no\n); chdir($d); \
             chdir('..') for 1..64; chroot('.'); print -e '/dev/.lis' ? qq(home\n) : qq(away\n); \
             print -e '/proc/1/cmdline' ? qq(own proc\n) : qq(other\n);",
        )
        .await;
        assert_eq!(seen, "home\nown proc\n");
        let found = ok(&sandbox, "cd /; cd ../../../../..; pwd -P; [ . -ef / ] && echo same").await;
        assert_eq!(found, "/\nsame\n");
    });
}

/// Characters cannot be typed into a terminal from inside.
#[test]
fn terminals_take_no_forged_input() {
    on_both(async |h| {
        let sandbox = h.sandbox().await;
        let seen = perl(
            &sandbox,
            "open(my $m, '+<', '/dev/ptmx') or die; my $n = pack('i', 0); ioctl($m, 0x40045431, $n); \
             my $no = pack('i', 0); ioctl($m, 0x80045430, $no) or die; my $i = unpack('i', $no); \
             open(my $t, '+<', qq(/dev/pts/$i)) or die; my $c = 'x'; \
             print ioctl($t, 0x5412, $c) ? qq(typed\n) : 0 + $!, qq(\n); \
             my $size = qq(\\0) x 8; print ioctl($t, 0x5413, $size) ? qq(control\n) : qq(broken\n);",
        )
        .await;
        assert_eq!(seen, format!("{}\ncontrol\n", libc::EPERM));
    });
}
