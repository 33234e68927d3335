//! A real registry on this machine, and just enough of a client to fill it.

use std::{
    fs,
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    path::PathBuf,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use lis_image::Digest;
use serde_json::json;

use crate::support::{self, INDEX, MANIFEST, TestImage};

pub(crate) struct Registry {
    child: Child,
    port: u16,
    dir: tempfile::TempDir,
    authorization: Option<&'static str>,
}

/// Whom the registry lets in.
#[derive(Clone, Copy)]
pub(crate) enum Access {
    Everyone,
    /// The user `tester` with the password `let me in`.
    Tester,
}

/// `tester` and `let me in`, as `htpasswd -B` writes it.
const PASSWORDS: &str = include_str!("htpasswd.txt");
const TESTER: &str = "Authorization: Basic dGVzdGVyOmxldCBtZSBpbg==\r\n";

impl Registry {
    /// Starts one, or says why not.
    pub(crate) fn start(access: Access) -> Option<Self> {
        if !support::installed("docker-registry") {
            support::skip(
                "registry",
                "docker-registry is not installed; apt-get install docker-registry",
            );
            return None;
        }
        let dir = tempfile::tempdir().unwrap();
        for _ in 0..5 {
            if let Some(registry) = Self::try_start(&dir, access) {
                let (child, port) = registry;
                let authorization = match access {
                    Access::Everyone => None,
                    Access::Tester => Some(TESTER),
                };
                return Some(Self { child, port, dir, authorization });
            }
        }
        panic!("docker-registry does not start");
    }

    /// The port may be taken between our looking and its binding; then there is another.
    fn try_start(dir: &tempfile::TempDir, access: Access) -> Option<(Child, u16)> {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let mut config = json!({
            "version": 0.1,
            "log": {"level": "error", "accesslog": {"disabled": true}},
            "storage": {"filesystem": {"rootdirectory": dir.path().join("data")}},
            "http": {"addr": format!("127.0.0.1:{port}")},
        });
        if let Access::Tester = access {
            let passwords = dir.path().join("htpasswd");
            fs::write(&passwords, PASSWORDS).unwrap();
            config["auth"] = json!({"htpasswd": {"realm": "test", "path": passwords}});
        }
        // JSON is YAML.
        let file = dir.path().join("config.yml");
        fs::write(&file, config.to_string()).unwrap();
        let mut child = Command::new("docker-registry")
            .arg("serve")
            .arg(&file)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let deadline = Instant::now() + Duration::from_secs(10);
        while Instant::now() < deadline {
            if child.try_wait().unwrap().is_some() {
                return None;
            }
            if TcpStream::connect(("127.0.0.1", port)).is_ok() {
                return Some((child, port));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        let _ = child.kill();
        let _ = child.wait();
        None
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// The name of an image here, for `pull`.
    pub(crate) fn name(&self, rest: &str) -> String {
        format!("127.0.0.1:{}/{rest}", self.port)
    }

    /// Where the registry keeps a blob on disk.
    pub(crate) fn blob_file(&self, digest: &Digest) -> PathBuf {
        let hex = digest.hex();
        self.dir
            .path()
            .join("data/docker/registry/v2/blobs/sha256")
            .join(&hex[..2])
            .join(&hex)
            .join("data")
    }

    pub(crate) fn push(&self, path: &str, tag: &str, image: &TestImage) {
        for blob in image.layers.iter().chain([&image.config]) {
            self.push_blob(path, blob);
        }
        self.push_manifest(path, tag, MANIFEST, &image.manifest);
    }

    /// One name for several images.
    pub(crate) fn push_index(&self, path: &str, tag: &str, images: &[(&TestImage, &str, &str)]) {
        let mut manifests = Vec::new();
        for (image, os, architecture) in images {
            self.push(path, &image.digest().to_string(), image);
            let mut entry = support::descriptor(MANIFEST, &image.manifest);
            entry["platform"] = json!({"os": os, "architecture": architecture});
            manifests.push(entry);
        }
        let index = json!({"schemaVersion": 2, "mediaType": INDEX, "manifests": manifests});
        self.push_manifest(path, tag, INDEX, index.to_string().as_bytes());
    }

    pub(crate) fn push_blob(&self, path: &str, blob: &[u8]) {
        let (status, head) = self.send("POST", &format!("/v2/{path}/blobs/uploads/"), "", b"");
        assert_eq!(status, 202, "{head}");
        let location = head.lines().find_map(|line| line.strip_prefix("Location: ")).unwrap();
        let rest = location.split_once("/v2/").unwrap().1.trim();
        let target = format!("/v2/{rest}&digest={}", Digest::of(blob));
        let (status, head) =
            self.send("PUT", &target, "Content-Type: application/octet-stream\r\n", blob);
        assert_eq!(status, 201, "{head}");
    }

    fn push_manifest(&self, path: &str, tag: &str, kind: &str, bytes: &[u8]) {
        let target = format!("/v2/{path}/manifests/{tag}");
        let (status, head) = self.send("PUT", &target, &format!("Content-Type: {kind}\r\n"), bytes);
        assert_eq!(status, 201, "{head}");
    }

    fn send(&self, method: &str, target: &str, headers: &str, body: &[u8]) -> (u16, String) {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let authorization = self.authorization.unwrap_or_default();
        let head = format!(
            "{method} {target} HTTP/1.1\r\nHost: 127.0.0.1:{}\r\nConnection: close\r\n\
             {authorization}{headers}Content-Length: {}\r\n\r\n",
            self.port,
            body.len()
        );
        stream.write_all(head.as_bytes()).unwrap();
        stream.write_all(body).unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        let answer = String::from_utf8_lossy(&answer).into_owned();
        let status = answer.split(' ').nth(1).unwrap().parse().unwrap();
        (status, answer)
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
