//! The real server when things go wrong around it: its disk is full, it is told twice to stop, its certificate is replaced.

use std::{
    fs,
    io::{Read, Write},
    net::TcpStream,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use rustix::process::Signal;
use serde_json::{Value, json};
use testkit::{MockServer, bash, submit};

use crate::{
    leaves_nothing_behind::spawner_of,
    serves_episodes::{Server, serve},
    support::{Home, crate_path, is_root, skip, unique_sleep, wait_for},
    survives_kills::processes_with,
};

impl Server {
    /// Creates a sandbox and starts a program in it; the sandbox's path, and the connection with the program's output.
    pub(crate) fn start_program(&self, script: &str) -> (String, TcpStream) {
        let new = json!({ "templateID": "base", "timeout": 600 });
        let (status, sandbox) = self.send("POST", "/v2/sandboxes", Some(&new));
        assert_eq!(status, 201, "{sandbox}");
        let text = |name: &str| sandbox[name].as_str().unwrap().to_owned();
        let (id, token) = (text("sandboxID"), text("envdAccessToken"));
        let process = json!({ "cmd": "/bin/bash", "args": ["-c", script] });
        let body = json!({ "process": process, "stdin": false }).to_string();
        let length = u32::try_from(body.len()).unwrap().to_be_bytes();
        let head = format!(
            "POST /process.Process/Start HTTP/1.1\r\nHost: {}\r\nE2b-Sandbox-Id: {id}\r\nX-Access-Token: \
             {token}\r\nContent-Type: application/connect+json\r\nContent-Length: {}\r\n\r\n",
            self.address,
            body.len() + 5
        );
        let mut stream = TcpStream::connect(&self.address).unwrap();
        let request = [head.as_bytes(), &[0], &length, body.as_bytes()].concat();
        stream.write_all(&request).unwrap();
        (format!("/sandboxes/{id}"), stream)
    }

    /// Asks it to continue an episode that was interrupted.
    fn resume(&self, path: &str) {
        let (status, answer) = self.send("POST", &format!("{path}/resume"), None);
        assert_eq!(status, 202, "{answer}");
    }
}

#[test]
fn a_second_signal_ends_a_server_at_once() {
    let Some(home) = Home::with_sandboxes() else { return };
    let mut command = home.command(["serve", "--addr", "127.0.0.1:0"]);
    let mut server = Server::start({
        command.env("HOME", home.file("nobody"));
        command
    });
    let sleep = unique_sleep();
    let (_, _output) = server.start_program(&sleep.join(" "));
    wait_for("the program", || (!processes_with(&sleep.join("\0")).is_empty()).then_some(()));
    // Without its spawner no sandbox can be removed, which the server waits for.
    let spawner = wait_for("the spawner", || spawner_of(server.process.0.id()));
    rustix::process::kill_process(spawner, Signal::STOP).unwrap();
    server.process.signal(Signal::TERM);
    std::thread::sleep(Duration::from_millis(200));
    assert!(server.process.0.try_wait().unwrap().is_none(), "it should wait for its sandboxes");
    // Signals that arrive together count as one, so the second is sent until it is noticed.
    let ended = wait_for("the server's end", || {
        server.process.signal(Signal::TERM);
        server.process.0.try_wait().unwrap()
    });
    assert_eq!(ended.code(), Some(143));
    rustix::process::kill_process(spawner, Signal::CONT).unwrap();
    wait_for("the program's end", || processes_with(&sleep.join("\0")).is_empty().then_some(()));
    wait_for("the spawner's clean-up", || home.traces().is_empty().then_some(()));
}

/// A small disk for what a server keeps.
struct SmallDisk(PathBuf);

impl SmallDisk {
    fn mount(at: PathBuf) -> Self {
        fs::create_dir(&at).unwrap();
        let mut mount = Command::new("mount");
        let mounted = mount.args(["-t", "tmpfs", "-o", "size=2m", "tmpfs"]).arg(&at).status();
        assert!(mounted.unwrap().success());
        Self(at)
    }

    /// Takes all that is left.
    fn fill(&self) {
        let mut file = fs::File::create(self.0.join("filler")).unwrap();
        for piece in [64 << 10, 4096, 1] {
            while file.write_all(&vec![0; piece]).is_ok() {}
        }
    }

    fn empty(&self) {
        fs::remove_file(self.0.join("filler")).unwrap();
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Lazily: a server of a failed test may still use it.
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

#[test]
fn a_full_disk_is_named_and_nothing_that_was_kept_is_lost() {
    let Some(home) = Home::with_sandboxes() else { return };
    if !is_root() {
        return skip("root", "only root can mount a small disk");
    }
    let disk = SmallDisk::mount(home.file("data"));
    // The second answer comes when the disk is full.
    let model = MockServer::answering(|asked| match (asked.turns(), asked.mentions("slowly")) {
        (0, _) => testkit::Answer::says(bash("echo 7 > /testbed/output/answer.txt")),
        (1, true) => testkit::Answer::says(bash("true")).after(Duration::from_millis(700)),
        _ => testkit::Answer::says(submit()),
    })
    .unwrap();
    let ended = |server: &Server, path: &str| {
        wait_for("the end", || {
            let info = server.get(path);
            (info["state"] != "running").then_some(info)
        })
    };
    let mut server = Server::start(serve(&home, &model.base_url(), &disk.0));
    let kept = server.start_episode();
    assert_eq!(ended(&server, &kept)["result"]["answer"], "7");
    let task = json!({ "task": "Work slowly" });
    let (_, hit) = server.send("POST", "/v1/episodes", Some(&task));
    let hit = format!("/v1/episodes/{}", hit["id"].as_str().unwrap());
    model.wait_for_requests(4).unwrap();
    disk.fill();
    let info = ended(&server, &hit);
    assert_eq!(
        (&info["state"], &info["result"]["fault"]),
        (&json!("failed"), &json!("storage")),
        "{info}"
    );
    let refused = server.send("POST", "/v1/episodes", Some(&task));
    assert_eq!(refused.0, 507, "{refused:?}");
    assert!(
        refused.1["error"]["message"].as_str().unwrap().contains("No space left"),
        "{refused:?}"
    );
    let uploaded = upload(&server, 64 << 10);
    assert_eq!(uploaded.0, 507, "{uploaded:?}");
    // What needs no room goes on.
    assert_eq!(server.get(&kept)["result"]["answer"], "7");
    let (sandbox, output) = server.start_program("echo hi");
    drop(output);
    let snapshots = format!("{sandbox}/snapshots");
    let refused = server.send("POST", &snapshots, Some(&json!({ "name": "late" })));
    assert_eq!(refused.0, 507, "whose it is could not be stored: {refused:?}");
    assert_eq!(server.get("/snapshots"), json!([]));
    disk.empty();
    let saved = server.send("POST", &snapshots, Some(&json!({ "name": "late" })));
    assert_eq!(saved.0, 201, "{saved:?}");
    assert_eq!(server.send("DELETE", &sandbox, None).0, 204);
    assert_eq!(upload(&server, 64 << 10).0, 200);
    let again = server.start_episode();
    assert_eq!(ended(&server, &again)["state"], "finished");
    server.process.signal(Signal::KILL);
    server.process.0.wait().unwrap();
    // Its result could not be stored, so it can be continued.
    let mut server = Server::start(serve(&home, &model.base_url(), &disk.0));
    assert_eq!(server.get(&hit)["state"], "interrupted");
    server.resume(&hit);
    assert_eq!(ended(&server, &hit)["result"]["answer"], "7");
    assert_eq!(server.get(&kept)["result"]["answer"], "7");
    server.process.signal(Signal::TERM);
    server.process.0.wait().unwrap();
}

/// Uploads so many bytes as a file.
fn upload(server: &Server, size: usize) -> (u16, Value) {
    let boundary = "xyz";
    let part = |name: &str, more: &str| {
        format!("--{boundary}\r\nContent-Disposition: form-data; name=\"{name}\"{more}\r\n\r\n")
    };
    let body = [
        part("purpose", "") + "user_data\r\n",
        part("file", "; filename=\"a\"") + &"x".repeat(size),
        format!("\r\n--{boundary}--\r\n"),
    ]
    .concat();
    let head = format!(
        "POST /v1/files HTTP/1.1\r\nHost: {}\r\nConnection: close\r\nContent-Type: multipart/form-data; \
         boundary={boundary}\r\nContent-Length: {}\r\n\r\n",
        server.address,
        body.len()
    );
    let mut stream = TcpStream::connect(&server.address).unwrap();
    stream.write_all((head + &body).as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), serde_json::from_str(body).unwrap())
}

#[test]
fn a_new_certificate_is_used_without_a_restart() {
    let home = Home::new();
    if Command::new("curl").arg("--version").output().is_err() {
        return skip("curl", "curl is not installed");
    }
    let (cert, key) = (home.file("cert.pem"), home.file("key.pem"));
    let testdata = |name: &str| crate_path("../http-server/src/testdata").join(name);
    let install = |name: &str| {
        fs::copy(testdata(&format!("{name}.key.pem")), &key).unwrap();
        fs::copy(testdata(&format!("{name}.cert.pem")), &cert).unwrap();
    };
    install("one");
    let mut command = home.command(["serve", "--addr", "127.0.0.1:0", "--tls-cert"]);
    command.arg(&cert).arg("--tls-key").arg(&key).env("HOME", home.file("nobody"));
    let server = Server::start(command);
    let port = server.address.rsplit(':').next().unwrap();
    let url = format!("https://localhost:{port}/health");
    let trusts = |certificate: &Path| {
        let mut curl = Command::new("curl");
        curl.args(["--silent", "--fail", "--noproxy", "*", "--max-time", "10", "--cacert"]);
        curl.arg(certificate).arg(&url).output().unwrap().status.success()
    };
    let (one, two) = (testdata("one.cert.pem"), testdata("two.cert.pem"));
    assert!(trusts(&one) && !trusts(&two));
    // A key that does not fit changes nothing.
    fs::copy(testdata("two.key.pem"), &key).unwrap();
    std::thread::sleep(Duration::from_millis(2500));
    assert!(trusts(&one));
    install("two");
    wait_for("the new certificate", || trusts(&two).then_some(()));
    assert!(!trusts(&one));
}
