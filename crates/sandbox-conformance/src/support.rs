//! Helpers of the cases: run and check, wait with a bound, measure the memory of the test, serve HTTP.

use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use sandbox::{ExecOutput, Exit, Process, Sandbox, ShellCommand, Status, Streams};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
};

use crate::harness::{chain, patience};

/// Evaluates a script, whatever its result.
pub(crate) async fn sh(sandbox: &impl Sandbox, script: impl Into<Vec<u8>>) -> ExecOutput {
    let command = ShellCommand::new(script).timeout(Duration::from_secs(100) * patience());
    run_shell(sandbox, command).await
}

/// Evaluates a script with a time limit.
pub(crate) async fn sh_within(
    sandbox: &impl Sandbox,
    script: impl Into<Vec<u8>>,
    timeout: Duration,
) -> ExecOutput {
    run_shell(sandbox, ShellCommand::new(script).timeout(timeout)).await
}

pub(crate) async fn run_shell(sandbox: &impl Sandbox, command: ShellCommand) -> ExecOutput {
    sandbox.shell(&command).await.unwrap_or_else(|e| panic!("shell: {}", chain(&e)))
}

/// Evaluates a script that must succeed; its standard output.
pub(crate) async fn ok(sandbox: &impl Sandbox, script: impl Into<Vec<u8>>) -> String {
    let script = script.into();
    let shown = String::from_utf8_lossy(&script[..script.len().min(400)]).into_owned();
    let output = sh(sandbox, script).await;
    assert!(
        output.status.success(),
        "`{shown}` ended with {:?}, stdout `{}`, stderr `{}`",
        output.status,
        output.stdout.text(),
        output.stderr.text()
    );
    output.stdout.text().into_owned()
}

/// Whether the sandbox has a program; prints a skip if not.
pub(crate) async fn has(sandbox: &impl Sandbox, program: &str) -> bool {
    let found = sh(sandbox, format!("command -v {program} >/dev/null")).await.status.success();
    if !found {
        crate::skip(program, &format!("the image has no {program}"));
    }
    found
}

/// Counts the processes inside with exactly this command line.
pub(crate) async fn running(sandbox: &impl Sandbox, command_line: &str) -> usize {
    // Builtins only, so that counting starts no process that could be counted.
    let script = format!(
        r#"n=0; for f in /proc/[0-9]*/cmdline; do
            mapfile -d '' words 2>/dev/null <"$f" || continue
            [[ "${{words[*]}}" == '{command_line}' ]] && n=$((n+1))
        done 2>/dev/null; echo "$n"; unset n f words"#
    );
    ok(sandbox, script).await.trim().parse().expect("a number")
}

/// What a process wrote, and how it ended.
pub(crate) struct Ran {
    pub(crate) exit: Exit,
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: Vec<u8>,
}

impl Ran {
    pub(crate) fn out(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }
}

/// Runs a process with this input and collects its output.
pub(crate) async fn run_process(
    sandbox: &impl Sandbox,
    process: &Process,
    stdin: Option<Vec<u8>>,
) -> Ran {
    let (stdout, mut from_stdout) = tokio::io::duplex(64 << 10);
    let (stderr, mut from_stderr) = tokio::io::duplex(64 << 10);
    let streams = Streams::Pipes {
        stdin: stdin.map(|bytes| Box::new(std::io::Cursor::new(bytes)) as sandbox::Input),
        stdout: Box::new(stdout),
        stderr: Box::new(stderr),
    };
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let (exit, _, _) = tokio::join!(
        sandbox.process(process, streams),
        from_stdout.read_to_end(&mut out),
        from_stderr.read_to_end(&mut err)
    );
    let exit = exit.unwrap_or_else(|e| panic!("process {:?}: {}", process.argv, chain(&e)));
    Ran { exit, stdout: out, stderr: err }
}

/// A process that must succeed; its standard output.
pub(crate) async fn process_ok(sandbox: &impl Sandbox, argv: &[&str]) -> String {
    let ran = run_process(sandbox, &Process::new(argv.iter().copied()), None).await;
    assert_eq!(
        ran.exit.status,
        Status::Exited(0),
        "{argv:?}: {}",
        String::from_utf8_lossy(&ran.stderr)
    );
    ran.out()
}

/// The whole of a file inside.
pub(crate) async fn read(sandbox: &impl Sandbox, path: impl AsRef<Path>) -> Vec<u8> {
    let path = path.as_ref();
    let mut input = sandbox
        .read_file(path)
        .await
        .unwrap_or_else(|e| panic!("read {}: {}", path.display(), chain(&e)));
    let mut bytes = Vec::new();
    input.read_to_end(&mut bytes).await.expect("the file streams to its end");
    bytes
}

/// Writes a file inside.
pub(crate) async fn write(sandbox: &impl Sandbox, path: impl AsRef<Path>, contents: &[u8]) {
    let path = path.as_ref();
    sandbox
        .write_file(path, contents)
        .await
        .unwrap_or_else(|e| panic!("write {}: {}", path.display(), chain(&e)));
}

/// Waits until something holds; fails after the bound.
pub(crate) async fn wait_for(what: &str, bound: Duration, mut holds: impl AsyncFnMut() -> bool) {
    let (start, bound) = (Instant::now(), bound * patience());
    while !holds().await {
        assert!(start.elapsed() < bound, "after {bound:?} still waiting until {what}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Measures how far the memory of this process grows.
pub(crate) struct MemoryWatch {
    before: Option<u64>,
}

impl MemoryWatch {
    /// Starts from the present size.
    pub(crate) fn start() -> Self {
        // Resets the peak; without it the peak of earlier work would count.
        let _ = std::fs::write("/proc/self/clear_refs", "5");
        Self { before: status_kib("VmRSS:") }
    }

    /// Fails when the peak since the start lies further above it than this.
    pub(crate) fn grew_at_most(&self, mib: u64) {
        let (Some(before), Some(peak)) = (self.before, status_kib("VmHWM:")) else {
            return crate::skip("procfs", "this system does not report the memory of a process");
        };
        let grown = peak.saturating_sub(before) / 1024;
        assert!(grown <= mib, "our memory grew by {grown} MiB, more than {mib} MiB");
    }
}

fn status_kib(field: &str) -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with(field))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

/// A small HTTP server on this machine that counts connections.
pub(crate) struct Server {
    pub(crate) port: u16,
    hits: Arc<AtomicUsize>,
    task: tokio::task::JoinHandle<()>,
}

impl Server {
    /// Serves on an address of this machine.
    pub(crate) async fn start(address: &str) -> Self {
        let listener = TcpListener::bind((address, 0)).await.expect("a free port");
        let port = listener.local_addr().expect("its address").port();
        let hits = Arc::new(AtomicUsize::new(0));
        let seen = Arc::clone(&hits);
        let task = tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                seen.fetch_add(1, Ordering::SeqCst);
                tokio::spawn(async move {
                    let mut request = Vec::new();
                    while !request.windows(4).any(|end| end == b"\r\n\r\n") {
                        match stream.read_buf(&mut request).await {
                            Ok(0) | Err(_) => return,
                            Ok(_) => {}
                        }
                    }
                    let reply = "HTTP/1.1 200 OK\r\nContent-Length: 16\r\nConnection: close\r\n\r\n\
                                 host server here";
                    let _ = stream.write_all(reply.as_bytes()).await;
                    let _ = stream.shutdown().await;
                });
            }
        });
        Self { port, hits, task }
    }

    /// How many connections arrived.
    pub(crate) fn hits(&self) -> usize {
        self.hits.load(Ordering::SeqCst)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}
