//! What a spawner mounts is not seen on the host, even where the host's mounts are shared.
#![expect(clippy::unwrap_used, reason = "a failed expectation must fail the test")]

use std::{
    fs,
    path::{Path, PathBuf},
};

use rustix::mount::{
    MountFlags, MountPropagationFlags, UnmountFlags, mount, mount_change, unmount,
};
use sandbox::{Runtime, Sandbox, ShellCommand, Spec};

use crate::support;

/// A directory of shared mounts: an overlay, which can hold no files of sandboxes, in a tmpfs.
struct SharedMounts(tempfile::TempDir);

impl SharedMounts {
    fn new() -> Self {
        let made = Self(tempfile::tempdir().unwrap());
        let dir = made.0.path();
        mount("tmpfs", dir, "tmpfs", MountFlags::empty(), None).unwrap();
        mount_change(dir, MountPropagationFlags::SHARED).unwrap();
        for name in ["lower", "upper", "work", "overlay"] {
            fs::create_dir(dir.join(name)).unwrap();
        }
        let layer = |name: &str| dir.join(name).display().to_string();
        let (lower, upper, work) = (layer("lower"), layer("upper"), layer("work"));
        let options = format!("lowerdir={lower},upperdir={upper},workdir={work}");
        let options = std::ffi::CString::new(options).unwrap();
        mount("overlay", made.overlay(), "overlay", MountFlags::empty(), options.as_c_str())
            .unwrap();
        made
    }

    fn overlay(&self) -> PathBuf {
        self.0.path().join("overlay")
    }

    /// The mount points below the directory, as the host sees them.
    fn mounted(&self) -> Vec<PathBuf> {
        let all = fs::read_to_string("/proc/self/mountinfo").unwrap();
        let points = all.lines().filter_map(|line| line.split(' ').nth(4)).map(Path::new);
        points.filter(|at| at.starts_with(self.0.path())).map(Path::to_owned).collect()
    }
}

impl Drop for SharedMounts {
    fn drop(&mut self) {
        for at in self.mounted().iter().rev() {
            let _ = unmount(at, UnmountFlags::DETACH);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_mounted_on_the_host() {
    if !rustix::process::geteuid().is_root() {
        return sandbox_conformance::skip("root", "only root can share mounts");
    }
    let shared = SharedMounts::new();
    let own = shared.mounted();
    assert_eq!(own, [shared.0.path().to_owned(), shared.overlay()]);
    for home in [shared.0.path().join("home"), shared.overlay().join("home")] {
        let runtime = match support::start(home).await {
            Ok(runtime) => runtime,
            Err(missing) => return sandbox_conformance::skip(&missing.capability, &missing.reason),
        };
        let sandbox = runtime.create(&Spec::default()).await.unwrap();
        let output = sandbox.shell(&ShellCommand::new("echo works > file; cat file")).await;
        assert_eq!(output.unwrap().stdout.text(), "works\n");
        assert_eq!(shared.mounted(), own);
    }
}
