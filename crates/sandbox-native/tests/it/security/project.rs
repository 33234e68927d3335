//! Passing a disk limit that is a project quota of the file system: other projects, very many files, numbers of the dead.
//!
//! These need root and a state directory on a file system with project quotas; `cargo xtask vm` has them.

use std::path::{Path, PathBuf};

use rustix::process::{Signal, kill_process};
use sandbox::{
    ByteSize, Cause, DiskQuota, Error, Layer, Limits, Runtime, Sandbox, ShellCommand, Spec,
};
use sandbox_conformance::skip;

use super::{
    Ground, SCRIPT,
    disk::{LIMIT, hide_files, limited, use_as_any_other},
    ok, on_the_host, perl_outside, sh_within, soon, store,
};
use crate::{spawner_fails::spawner, support};

/// A sandbox under a project quota; `None` where this machine has none.
async fn create(h: &Ground<'_>, spec: &Spec) -> Option<impl Sandbox> {
    match soon("create", h.runtime.create(spec)).await {
        Err(Error::Unsupported { reason, .. }) => {
            skip("project-quota", &reason);
            None
        }
        created => Some(created.unwrap()),
    }
}

/// Under a project quota nothing that hides files from measurements takes more space than the limit.
#[test]
fn a_project_quota_holds_whatever_hides_the_files() {
    on_the_host(async |h| hide_files(h, DiskQuota::Project).await);
}

/// A sandbox under a project quota works as any other, and copies and forks have the same limit.
#[test]
fn a_sandbox_under_a_project_quota_is_like_any_other() {
    on_the_host(async |h| use_as_any_other(h, DiskQuota::Project).await);
}

/// A project quota is taken without being asked for, and reported, where the file system has it.
#[test]
fn a_project_quota_is_the_first_choice() {
    on_the_host(async |h| {
        let Some(asked) = create(h, &limited(h, DiskQuota::Project)).await else { return };
        let chosen = h.create(&limited(h, DiskQuota::Auto)).await;
        assert_eq!(chosen.protection(), asked.protection());
        let disk = chosen.protection().layers.iter().find(|l| l.layer == Layer::DiskLimit).unwrap();
        assert!(disk.detail.starts_with("project quota"), "{disk:?}");
        let limits = Limits { disk: None, ..Limits::default() };
        let unlimited = h.create(&Spec { limits, ..h.spec() }).await;
        ok(&unlimited, "echo works").await;
    });
}

/// Requests to change projects, each as Perl that dies if it succeeds: the number, its passing on to new files, the latter
/// again by an older request, and the limits themselves.
fn changes(path: &str) -> String {
    const GET: u32 = 0x801c_581f;
    const SET: u32 = 0x401c_5820;
    let quotactl = libc::SYS_quotactl_fd;
    format!(
        r#"$| = 1; open(my $f, '<', '{path}') or die "{path}: $!";
        my $now = "\0" x 28; ioctl($f, {GET}, $now) or die "cannot look: $!";
        my ($flags, $size, $count, $project, @rest) = unpack("V7", $now);
        $project >= 1 << 30 or die "{path} is of project $project";
        for my $other (0, 7, $project + 1) {{
            my $new = pack("V7", $flags, $size, $count, $other, @rest);
            ioctl($f, {SET}, $new) and die "{path} is of project $other now" }}
        my $apart = pack("V7", $flags ^ 0x200, $size, $count, $project, @rest);
        ioctl($f, {SET}, $apart) and die "{path} passes on another project now";
        my $old = pack("L!", 0); ioctl($f, 0x80086601, $old) or die "cannot look: $!";
        my $without = pack("L!", unpack("L!", $old) ^ 0x20000000);
        ioctl($f, 0x40086602, $without) and die "{path} passes on another project now";
        my $none = pack("Q8 V x4", (0) x 8, 5);
        syscall({quotactl}, fileno($f), (0x800008 << 8) | 2, $project, $none) == 0 and die "the limit is lifted";
        my $after = "\0" x 28; ioctl($f, {GET}, $after) or die "cannot look: $!";
        my @was = unpack("V7", $now); my @is = unpack("V7", $after);
        "@was" eq "@is" or die "{path}: @was became @is"; print "kept\n";"#
    )
}

/// Neither root of a sandbox nor links, moves and nameless files take anything out of the sandbox's project.
#[test]
fn commands_cannot_leave_their_project() {
    on_the_host(async |h| {
        let Some(sandbox) = create(h, &limited(h, DiskQuota::Project)).await else { return };
        ok(&sandbox, "mkdir d; echo text > d/f; echo text > f").await;
        for path in ["/testbed", "/testbed/d", "/testbed/d/f", "/testbed/f"] {
            store(&sandbox, "/dev/shm/change.pl", &changes(path)).await;
            assert_eq!(ok(&sandbox, "perl /dev/shm/change.pl").await, "kept\n", "{path}");
        }
        // 8 MiB in each of many places: all count for the same project.
        let places = "w() { head -c 8M /dev/zero > \"$1\"; }; set -e
            w a; ln a d/link; w d/b; mv d/b c; mkdir -p /opt/x /usr/local/x; w /opt/x/d; mv /opt/x e; w /usr/local/x/e
            mv e/d /usr/local/x; w /tmp/f";
        ok(&sandbox, places).await;
        let used = sandbox.usage().await.unwrap().disk.unwrap().bytes();
        assert!((40 << 20..42 << 20).contains(&used), "{used} bytes of 40 MiB");
        let output = sh_within(&sandbox, "head -c 20M /dev/zero > /usr/local/x/g", SCRIPT).await;
        assert_eq!(output.cause, Some(Cause::Disk), "{output:?}");
    });
}

/// Files without content are limited as well.
#[test]
fn many_empty_files_reach_the_limit() {
    on_the_host(async |h| {
        let Some(sandbox) = create(h, &limited(h, DiskQuota::Project)).await else { return };
        let attack = r#"my $made = 0; for (1..20000) { mkdir "d$_" or last; $made++ } print $made"#;
        store(&sandbox, "/tmp/attack.pl", attack).await;
        let output = sh_within(&sandbox, "perl /tmp/attack.pl", SCRIPT).await;
        assert_eq!(output.cause, Some(Cause::Disk), "{output:?}");
        let made: u64 = output.stdout.text().parse().unwrap();
        assert!((1000..LIMIT / 8192 + 200).contains(&made), "{made} files");
        assert_eq!(ok(&sandbox, "rm -r d?*; echo fits > f; cat f").await, "fits\n");
    });
}

/// The host's disk keeps its reserve: the space that a project has left is not mistaken for that of the disk.
#[test]
fn the_host_keeps_its_reserve_under_project_quotas() {
    on_the_host(async |h| {
        let look = format!("print `df -B1 --output=avail {}`", h.home.display());
        let free = perl_outside(&look).split_whitespace().last().unwrap().parse::<u64>().unwrap();
        let limits = Limits { disk: Some(ByteSize::gib(2)), ..Limits::default() };
        let disk_reserve = Some(ByteSize(free - (300 << 20)));
        let spec = Spec { limits, disk_reserve, ..limited(h, DiskQuota::Project) };
        let Some(sandbox) = create(h, &spec).await else { return };
        let fill = "for i in {1..15}; do fallocate -l 100M f$i; sleep 0.2; done; sleep 50";
        match soon("fill", sandbox.shell(&ShellCommand::new(fill).timeout(SCRIPT))).await {
            Err(Error::HostFull(reason)) => {
                assert!(reason.contains("have to stay free"), "{reason}")
            }
            other => panic!("{other:?}"),
        }
    });
}

/// The directories of the sandboxes of a home.
fn directories(home: &Path) -> Vec<PathBuf> {
    let runs = std::fs::read_dir(home.join("run")).unwrap().flatten();
    let states = runs.filter_map(|run| std::fs::read_dir(run.path().join("state")).ok());
    states.flat_map(|state| state.flatten().map(|dir| dir.path()).collect::<Vec<_>>()).collect()
}

/// The project of a directory.
fn project(dir: &Path) -> u32 {
    let look = format!(
        r#"open(my $f, '<', '{}') or die; my $a = "\0" x 28; ioctl($f, 0x801c581f, $a) or die $!;
        print((unpack("V7", $a))[3])"#,
        dir.display()
    );
    perl_outside(&look).parse().unwrap()
}

/// The limit of a project in KiB, and its files, as the kernel of the host has them.
fn counted(home: &Path, project: u32) -> String {
    let look = format!(
        r#"open(my $f, '<', '{}') or die; my $q = "\0" x 72;
        syscall({}, fileno($f), (0x800007 << 8) | 2, {project}, $q) == 0 or $!{{ENOENT}} or $!{{ESRCH}} or die $!;
        my @q = unpack("Q8 V", $q); print "$q[0] $q[5]""#,
        home.display(),
        libc::SYS_quotactl_fd
    );
    perl_outside(&look)
}

/// No two sandboxes have the same project, those of other programs and of killed ones included; and what a killed program
/// leaves is freed with its files.
#[test]
fn projects_are_never_shared_and_freed_after_a_crash() {
    on_the_host(async |h| {
        let spec = limited(h, DiskQuota::Project);
        let (Some(_one), Some(_two)) = (create(h, &spec).await, create(h, &spec).await) else {
            return;
        };
        let mut projects: Vec<u32> = directories(&h.home).iter().map(|d| project(d)).collect();
        assert_eq!(projects.len(), 2);
        kill_process(spawner(), Signal::KILL).unwrap();
        // Its files still have these numbers, and another program takes others.
        let other = support::home();
        let runtime = support::start(other.clone()).await.unwrap();
        let _three = runtime.create(&spec).await.unwrap();
        projects.extend(directories(&other).iter().map(|d| project(d)));
        projects.sort_unstable();
        projects.dedup();
        assert_eq!(projects.len(), 3);
        let limit = ByteSize(LIMIT + (256 << 10)).bytes() / 1024;
        for project in &projects {
            let counted = counted(&h.home, *project);
            assert!(counted.starts_with(&format!("{limit} ")), "{project}: {counted}");
        }
        // The next program with the same home removes what was left.
        let next = support::start(h.home.clone()).await.unwrap();
        assert_eq!(directories(&h.home).len(), 0);
        let own = project(&directories(&other)[0]);
        for project in projects.into_iter().filter(|project| *project != own) {
            let mut left = counted(&h.home, project);
            // XFS frees the last files in the background.
            for _ in 0..200 {
                if left == "0 0" {
                    break;
                }
                std::thread::sleep(std::time::Duration::from_millis(50));
                left = counted(&h.home, project);
            }
            assert_eq!(left, "0 0", "{project}");
        }
        drop((next, runtime));
    });
}
