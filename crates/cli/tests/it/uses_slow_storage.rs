//! An ordinary user of a cluster: no control groups, no subordinate users, and a home on storage that holds no sockets, no
//! named pipes, no extended attributes and no overlay. Everything works, and nothing is left on the machine.

mod storage;

use std::{
    ffi::OsStr,
    fs,
    os::unix::{
        fs::{PermissionsExt, chown},
        process::CommandExt,
    },
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

use serde_json::{Value, json};
use testkit::{MockServer, bash, submit};

use self::storage::{Locks, Mounted};
use crate::{
    benchmarks::{sum, sums_script},
    support::{code, err, is_root, out, program, skip, wait_for, write},
};

/// A user with an account on no machine.
const USER: u32 = 12346;

/// A machine of a cluster, for one user.
struct Cluster {
    // Unmounted before the directories are removed.
    _storage: Mounted,
    dir: tempfile::TempDir,
    program: fs::File,
}

impl Cluster {
    fn new(locks: Locks) -> Option<Self> {
        if !is_root() || !Path::new("/dev/fuse").exists() {
            skip("fuse", "mounting a FUSE file system needs root and /dev/fuse");
            return None;
        }
        let dir = tempfile::Builder::new().prefix("lis-cluster-").tempdir().unwrap();
        let open = |path: &Path| {
            fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
        };
        open(dir.path());
        for name in ["backing", "shared"] {
            fs::create_dir(dir.path().join(name)).unwrap();
        }
        let (backing, shared) = (dir.path().join("backing"), dir.path().join("shared"));
        let _storage = match storage::mount(&backing, &shared, locks) {
            Ok(storage) => storage,
            Err(error) => {
                skip("fuse", &format!("FUSE does not work here: {error}"));
                return None;
            }
        };
        for own in [backing.join("home"), dir.path().join("node1"), dir.path().join("node2")] {
            fs::create_dir(&own).unwrap();
            chown(&own, Some(USER), Some(USER)).unwrap();
        }
        Some(Self { _storage, dir, program: fs::File::open(program()).unwrap() })
    }

    /// The user's home, on the storage.
    fn home(&self) -> PathBuf {
        self.dir.path().join("shared/home")
    }

    /// The directory for temporary files of a machine.
    fn local(&self, node: &str) -> PathBuf {
        self.dir.path().join(node)
    }

    fn data(&self) -> PathBuf {
        self.home().join(".local/share/llm-in-sandbox")
    }

    /// The program on a machine, as the user.
    fn command<S: AsRef<OsStr>>(&self, node: &str, args: impl IntoIterator<Item = S>) -> Command {
        use std::os::fd::AsRawFd;
        // The user cannot reach the directory it was built in.
        let mut command = Command::new(format!("/proc/self/fd/{}", self.program.as_raw_fd()));
        command
            .args(args)
            .env_clear()
            .env("PATH", "/usr/local/bin:/usr/bin:/bin")
            .env("HOME", self.home())
            .env("TMPDIR", self.local(node))
            .current_dir(self.home())
            .uid(USER)
            .gid(USER)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    fn run<S: AsRef<OsStr>>(&self, node: &str, args: impl IntoIterator<Item = S>) -> Output {
        self.command(node, args).output().unwrap()
    }

    fn ok<S: AsRef<OsStr>>(&self, node: &str, args: impl IntoIterator<Item = S>) -> String {
        let output = self.run(node, args);
        assert_eq!(code(&output), 0, "{}", err(&output));
        out(&output)
    }

    fn json<S: AsRef<OsStr>>(&self, node: &str, args: impl IntoIterator<Item = S>) -> Value {
        serde_json::from_str(&self.ok(node, args)).unwrap()
    }

    /// The state directory on a machine.
    fn state(&self, node: &str) -> PathBuf {
        let own = self.local(node).join(format!("llm-in-sandbox-{USER}"));
        let mut dirs: Vec<_> = fs::read_dir(own).unwrap().flatten().map(|e| e.path()).collect();
        assert_eq!(dirs.len(), 1, "{dirs:?}");
        dirs.remove(0)
    }

    /// Waits until sandboxes have left nothing: neither on the storage nor on the machine.
    fn check_gone(&self, node: &str) {
        let run = self.state(node).join("run");
        wait_for("clean-up", || (fs::read_dir(&run).unwrap().count() == 0).then_some(()));
        let names: Vec<_> = fs::read_dir(self.data()).unwrap().flatten().collect();
        let is_state = |name: &str| name == "run" || name.starts_with("supervisor");
        let found = names.iter().find(|entry| is_state(&entry.file_name().to_string_lossy()));
        assert!(found.is_none(), "{found:?}");
    }
}

#[test]
fn a_sandbox_runs_and_the_user_is_told_where() {
    let Some(cluster) = Cluster::new(Locks::Local) else { return };
    let script = "mkfifo /root/pipe && rm -r /srv && mkdir /srv && echo a > /root/a && echo done";
    assert_eq!(cluster.ok("node1", ["sandbox", "run", "--", "sh", "-c", script]), "done\n");
    let found = cluster.json("node1", ["doctor", "--json"]);
    assert_eq!(found["state"]["path"], json!(cluster.state("node1")), "{}", found["state"]);
    let passed = &found["state"]["passed_over"][0];
    assert_eq!(passed["path"], json!(cluster.data()));
    assert!(passed["reason"].as_str().unwrap().contains("sockets"), "{passed}");
    assert_eq!(found["native"]["works"], true);
    let text = cluster.ok("node1", ["doctor"]);
    assert!(text.contains("LLM_IN_SANDBOX_TMPDIR"), "{text}");
    cluster.check_gone("node1");
}

/// A job had its own directory for temporary files and was killed; the next job has another.
#[test]
fn leftovers_of_other_jobs_are_removed_and_those_of_other_machines_are_not() {
    let Some(cluster) = Cluster::new(Locks::Local) else { return };
    cluster.ok("node1", ["sandbox", "run", "--", "true"]);
    let leave = |name: &str, machine: Option<&str>| {
        let run = cluster.state("node1").join("run").join(name);
        let id = format!("{name}-1");
        let info = json!({"id": id, "owner_pid": 1, "alive": true, "image": "host", "created": 1});
        write(&run.join(format!("{id}.json")), info.to_string());
        write(&run.join("state").join(&id).join("u0/file"), "left");
        write(&run.join("lock"), "");
        if let Some(machine) = machine {
            write(&run.join("machine"), machine);
        }
        let user = USER.to_string();
        let mut give = Command::new("chown");
        assert!(give.args(["-R", &format!("{user}:{user}")]).arg(&run).status().unwrap().success());
        run
    };
    let own = leave("4000000-00000001", None);
    let foreign = leave("4000000-00000002", Some("another-node\nits-boot\n"));
    let listed = cluster.json("node2", ["sandbox", "list", "--json"]);
    assert_eq!(listed.as_array().unwrap().len(), 1, "{listed}");
    assert_eq!(listed[0]["alive"], false);
    let removed = cluster.json("node2", ["sandbox", "prune", "--json"]);
    assert_eq!(removed[0]["id"], "4000000-00000001-1", "{removed}");
    assert!(!own.exists() && foreign.join("state/4000000-00000002-1/u0/file").exists());
}

#[test]
fn a_place_that_another_user_prepared_is_not_used() {
    let Some(cluster) = Cluster::new(Locks::Local) else { return };
    let trap = cluster.local("node1").join(format!("llm-in-sandbox-{USER}"));
    // Of another user, and open to this one.
    fs::create_dir(&trap).unwrap();
    fs::set_permissions(&trap, fs::Permissions::from_mode(0o777)).unwrap();
    let args = ["sandbox", "run", "--", "true"];
    let chosen = cluster
        .command("node1", args)
        .env("LLM_IN_SANDBOX_TMPDIR", cluster.local("node1"))
        .output();
    let chosen = chosen.unwrap();
    assert_eq!(code(&chosen), 4, "{}", err(&chosen));
    assert!(err(&chosen).contains("belongs to the user 0, not to 12346"), "{}", err(&chosen));
    // Not chosen, but found in the environment: passed over for another.
    let runtime = cluster.local("node2");
    let mut command = cluster.command("node1", args);
    let output = command.env("XDG_RUNTIME_DIR", &runtime).output().unwrap();
    assert_eq!(code(&output), 0, "{}", err(&output));
    assert!(cluster.state("node2").join("run").exists());
    assert_eq!(fs::read_dir(&trap).unwrap().count(), 0);
}

#[test]
fn named_sandboxes_and_images_work_and_images_move_to_another_machine() {
    let Some(cluster) = Cluster::new(Locks::Local) else { return };
    let node = "node1";
    cluster.ok(node, ["sandbox", "create", "box"]);
    // What the storage cannot hold: the marks of a removed file, and of a directory that hides another.
    let script = "rm /etc/services && rm -r /srv /mnt && mkdir /mnt && echo x > /mnt/x";
    cluster.ok(node, ["sandbox", "exec", "box", "--", "sh", "-c", script]);
    let listed = cluster.json(node, ["sandbox", "list", "--json"]);
    assert_eq!((&listed[0]["name"], &listed[0]["alive"]), (&json!("box"), &json!(true)));
    cluster.ok(node, ["sandbox", "save", "box", "saved"]);
    cluster.ok(node, ["sandbox", "rm", "box"]);
    let check = "ls /mnt && test ! -e /etc/services && test ! -e /srv";
    let run = ["sandbox", "run", "--image", "saved", "--", "sh", "-c", check];
    assert_eq!(cluster.ok(node, run), "x\n");
    // Another machine has the archive only, and unpacks it.
    assert_eq!(cluster.ok("node2", run), "x\n");
    let layers = |node: &str| {
        fs::read_dir(cluster.state(node).join("images/layers")).into_iter().flatten().count()
    };
    assert_eq!((layers(node), layers("node2")), (1, 1));
    write_tree(&cluster.home().join("tree"));
    assert_eq!(cluster.ok(node, ["image", "import", "tree", "imported"]), "imported\n");
    assert_eq!(layers(node), 2);
    cluster.ok(node, ["image", "rm", "saved", "imported"]);
    cluster.ok("node2", ["image", "prune"]);
    assert_eq!((layers(node), layers("node2")), (0, 0));
    cluster.check_gone("node2");
    // The supervisor ends by itself.
    cluster.check_gone(node);
}

fn write_tree(at: &Path) {
    write(&at.join("bin/sh"), "#!/bin/sh\n");
    write(&at.join("etc/name"), "tree");
    let entries = ["", "bin", "bin/sh", "etc", "etc/name"];
    entries.iter().for_each(|entry| chown(at.join(entry), Some(USER), Some(USER)).unwrap());
}

/// With storage that refuses locks as well.
#[test]
fn a_task_and_a_benchmark_run_and_resume_without_locks() {
    let Some(cluster) = Cluster::new(Locks::Refused) else { return };
    let node = "node1";
    let steps = [bash("expr 6 \\* 7 > /testbed/output/answer.txt"), submit()];
    let server = MockServer::scripted(steps).unwrap();
    let url = server.base_url();
    let model = ["--model", "mock", "--base-url", &url];
    let task = ["run", "What is 6 times 7?", "--quiet", "--output", "out"];
    let answer = cluster.ok(node, task.iter().chain(&model));
    assert_eq!(answer, "42\n");

    let rows: String = (0..3).map(|n| sum(n).to_string() + "\n").collect();
    write(&cluster.home().join("rows.jsonl"), rows);
    let server = sums_script(3).serve();
    let url = server.base_url();
    let bench = |limit: &str| {
        let args = ["benchmark", "math", "--data", "rows.jsonl", "--limit", limit, "--json"];
        let model = ["--quiet", "--output", "bench", "--model", "mock", "--base-url", &url];
        cluster.json(node, args.iter().chain(&model))
    };
    bench("2");
    let asked = server.count();
    let results = bench("3");
    // The two that were finished are not played again.
    assert_eq!(server.count(), asked + asked / 2, "{results}");
    assert_eq!(results["mean_score"], 1.0, "{results}");
    cluster.check_gone(node);
}
