//! End to end with a real model: llama.cpp's server, a small Qwen model, a real sandbox.
//!
//! Reads `LIS_TEST_GGUF` (the model's file) and `LIS_TEST_LLAMA` (a directory with the Python package
//! `xllamacpp`).

mod local;

use std::{
    io::{BufRead, BufReader},
    process::{Child, Command, Stdio},
};

use crate::{
    episodes::{check_record, run},
    support::{Home, code, crate_path, err, out, setting, skip},
};

/// The server; it ends with the test.
struct Server {
    child: Child,
    url: String,
}

impl Server {
    fn start() -> Option<Self> {
        let (Some(model), Some(package)) = (setting("LIS_TEST_GGUF"), setting("LIS_TEST_LLAMA"))
        else {
            skip("llama", "LIS_TEST_GGUF and LIS_TEST_LLAMA name no model and no server");
            return None;
        };
        let script = crate_path("tests/real-server/llama_server.py");
        let mut child = Command::new("/usr/bin/python3")
            .arg(script)
            .arg(model)
            .arg("2")
            .env("PYTHONPATH", package)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert!(line.starts_with("http://"), "the server said `{line}`");
        Some(Self { child, url: format!("{}/v1", line.trim()) })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_small_model_sums_the_primes() {
    let Some(home) = Home::with_sandboxes() else { return };
    let Some(server) = Server::start() else { return };
    let task = "What is the sum of all prime numbers below 1000?";
    let args = [task, "--temperature", "0", "--seed", "1", "--max-turns", "10"];
    let mut command = run(&home, &server.url, args);
    command.args(["--model", "qwen2.5-coder-1.5b-instruct", "--max-tokens-per-call", "1000"]);
    let output = command.output().unwrap();
    assert_eq!((code(&output), out(&output).as_str()), (0, "76127\n"), "{}", err(&output));
    check_record(&home, &output, "submitted");
}
