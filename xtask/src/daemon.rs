//! A Docker daemon for one test run, separate from the machine's own, and the run's scratch directory.
//!
//! Both depend on a pipe: when this process ends, in whatever way, the pipe closes and a small shell script stops the
//! daemon and removes the directory.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use anyhow::{Context, Result, bail};

use crate::{
    machine,
    run::{output, succeeds},
};

/// The name of the test image in the daemon.
pub(crate) const IMAGE: &str = "lis-test:latest";

const READY_WITHIN: Duration = Duration::from_secs(60);

/// `$1` scratch directory, `$2` and `$3` user and group that own it and may use the socket. `read` returns when the pipe
/// closes.
///
/// The directory is a file system of its own, where loop devices exist: tests create and remove hundreds of thousands of
/// files, and an ext4 without a journal, as virtual machines often have, takes 15 times as long for it, because it does not
/// use the number of a removed file again for minutes and looks at all of these for each new one.
const KEEPER: &str = r#"
truncate --size=32G "$1.img" &&
    mkfs.ext4 -q -F -m 0 -E "nodiscard,lazy_itable_init=1,lazy_journal_init=1,root_owner=$2:$3" "$1.img" &&
    mount -o loop,noinit_itable,barrier=0 "$1.img" "$1" ||
    echo "temporary files of the tests stay on the file system of $1" >&2
rm -f "$1.img"
mkdir "$1/docker" || exit 1
cd "$1/docker"
dockerd --host="unix://$PWD/docker.sock" --group="$3" --data-root="$PWD/data" \
    --exec-root="$PWD/exec" --pidfile="$PWD/pid" --userland-proxy=false >log 2>&1 </dev/null &
read -r _
kill "$!" 2>/dev/null
wait
umount "$PWD/data" 2>/dev/null
cd /
umount --lazy "$1" 2>/dev/null
rm -rf --one-file-system "$1"
"#;

/// The running daemon. Dropping it stops it and waits.
pub(crate) struct Daemon {
    keeper: Child,
    scratch: PathBuf,
}

impl Daemon {
    /// Starts a daemon and waits until it answers.
    pub(crate) fn start() -> Result<Self> {
        // Not in /tmp, which may be memory; short, because socket paths must be. Process ids are reused, so the time
        // makes the name unique.
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
        let name = format!("/var/tmp/lis-test-{}-{:x}", std::process::id(), now & 0xff_ffff);
        let scratch = PathBuf::from(name);
        fs::create_dir(&scratch).with_context(|| format!("creating {}", scratch.display()))?;
        let (user, group) = machine::ids()?;
        let keeper = machine::as_root("setsid")?
            .args(["sh", "-c", KEEPER, "keeper"])
            .arg(&scratch)
            .args([user, group].map(|id| id.to_string()))
            .stdin(Stdio::piped())
            .spawn()
            .context("cannot start the Docker daemon")?;
        let daemon = Self { keeper, scratch };
        let deadline = Instant::now() + READY_WITHIN;
        while !succeeds(daemon.request("GET", "_ping").arg("--fail")) {
            if Instant::now() > deadline {
                bail!("the Docker daemon does not answer; its log:\n{}", daemon.log());
            }
            thread::sleep(Duration::from_millis(100));
        }
        let temporary = daemon.temporary();
        fs::create_dir(&temporary).with_context(|| format!("creating {}", temporary.display()))?;
        Ok(daemon)
    }

    /// The scratch directory, removed with the daemon. Other users may enter it.
    pub(crate) fn scratch(&self) -> &Path {
        &self.scratch
    }

    /// Where tests put temporary files.
    pub(crate) fn temporary(&self) -> PathBuf {
        self.scratch.join("tmp")
    }

    /// The daemon's address for `DOCKER_HOST`.
    pub(crate) fn host(&self) -> String {
        format!("unix://{}", self.socket().display())
    }

    /// Creates an image from the archive of a root file system.
    pub(crate) fn import(&self, archive: &Path) -> Result<()> {
        let (repo, tag) = IMAGE.split_once(':').context("the image name has no tag")?;
        let url = format!("images/create?fromSrc=-&repo={repo}&tag={tag}");
        let answer = output(self.request("POST", &url).arg("--upload-file").arg(archive))?;
        // The daemon reports failures within a response whose status is success.
        if !answer.contains("sha256:") || answer.contains("\"error") {
            bail!("the Docker daemon rejected the image: {}", answer.trim());
        }
        Ok(())
    }

    fn request(&self, method: &str, url: &str) -> Command {
        let mut curl = Command::new("curl");
        curl.args(["--silent", "--show-error", "--noproxy", "*", "--request", method]);
        curl.arg("--unix-socket").arg(self.socket()).arg(format!("http://docker/{url}"));
        curl
    }

    fn socket(&self) -> PathBuf {
        self.scratch.join("docker/docker.sock")
    }

    fn log(&self) -> String {
        let log = fs::read_to_string(self.scratch.join("docker/log")).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(15)..].join("\n")
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        drop(self.keeper.stdin.take());
        // On a failure the keeper outlives this process; nothing else can be done here.
        let _ = self.keeper.wait();
    }
}
