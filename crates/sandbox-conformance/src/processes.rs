//! Single programs, started apart from the shell: arguments, streams, codes, signals, terminals.

use std::time::{Duration, Instant};

use sandbox::{Cause, Error, Process, Runtime, Sandbox, Spec, Status, Streams, TerminalSize};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    sync::watch,
};

use crate::{
    Harness,
    support::{ok, process_ok, run_process, running, wait_for},
};

/// No character of an argument means anything on the way.
pub async fn arguments_arrive_as_they_are<R: Runtime>(h: &Harness<R>) {
    let sandbox = h.sandbox().await;
    let odd =
        ["", "a b", "*", "$HOME", "`id`", "'", "\"", "\\", "-n", "--", "two\nlines", "雪", "a=b"];
    let argv: Vec<&str> = ["printf", "<%s>"].into_iter().chain(odd).collect();
    let expected: String = odd.iter().map(|arg| format!("<{arg}>")).collect();
    assert_eq!(process_ok(&sandbox, &argv).await, expected);
}

/// A megabyte in is a megabyte out.
pub async fn standard_input_streams_through<R: Runtime>(h: &Harness<R>) {
    let sandbox = h.sandbox().await;
    let bytes: Vec<u8> = (0..1_000_003_u32).map(|i| ((i * 31) >> 3) as u8).collect();
    let ran = run_process(&sandbox, &Process::new(["cat"]), Some(bytes.clone())).await;
    assert_eq!(ran.exit.status, Status::Exited(0));
    assert!(ran.stdout == bytes, "{} bytes came back", ran.stdout.len());
    // A program that reads nothing must not block the caller.
    let ran = run_process(&sandbox, &Process::new(["true"]), Some(bytes)).await;
    assert_eq!(ran.exit.status, Status::Exited(0));
}

/// Exit codes arrive.
pub async fn exit_codes_pass<R: Runtime>(h: &Harness<R>) {
    let sandbox = h.sandbox().await;
    for code in [0, 1, 42, 127, 255] {
        let process = Process::new(["bash", "-c", &format!("echo e >&2; exit {code}")]);
        let ran = run_process(&sandbox, &process, None).await;
        assert_eq!((ran.exit.status, ran.exit.cause), (Status::Exited(code), None));
        assert_eq!((ran.stdout.as_slice(), ran.stderr.as_slice()), (&b""[..], &b"e\n"[..]));
    }
}

/// Death by a signal is reported.
pub async fn signals_are_reported<R: Runtime>(h: &Harness<R>) {
    let sandbox = h.sandbox().await;
    for signal in [9, 15, 11] {
        let process = Process::new(["bash", "-c", &format!("kill -{signal} $$; sleep 5")]);
        let ran = run_process(&sandbox, &process, None).await;
        assert_eq!(ran.exit.status, Status::Signaled(signal));
        assert_eq!(ran.exit.status.code(), 128 + signal);
    }
    if h.caps.exact_signals.or_skip("exact_signals") {
        let ran = run_process(&sandbox, &Process::new(["bash", "-c", "exit 137"]), None).await;
        assert_eq!(ran.exit.status, Status::Exited(137));
    }
}

/// An unknown program is exit code 127 and a message.
pub async fn missing_program_is_127<R: Runtime>(h: &Harness<R>) {
    let sandbox = h.sandbox().await;
    for name in ["no-such-program", "/no/such/program"] {
        let ran = run_process(&sandbox, &Process::new([name, "arg"]), None).await;
        assert_eq!(ran.exit.status, Status::Exited(127));
        let message = String::from_utf8_lossy(&ran.stderr).into_owned();
        assert!(message.contains(name), "`{message}`");
        assert_eq!(ran.stdout, b"");
    }
}

/// A file that may not be executed is exit code 126 and a message.
pub async fn file_without_permission_is_126<R: Runtime>(h: &Harness<R>) {
    let sandbox = h.sandbox().await;
    ok(&sandbox, "echo 'echo hi' > /tmp/plain; chmod 644 /tmp/plain").await;
    for name in ["/tmp/plain", "/tmp"] {
        let ran = run_process(&sandbox, &Process::new([name]), None).await;
        assert_eq!(ran.exit.status, Status::Exited(126), "{name}");
        assert!(!ran.stderr.is_empty(), "{name}");
    }
}

/// Directory and variables are the sandbox's, unless the process has its own.
pub async fn directory_and_environment_are_set<R: Runtime>(h: &Harness<R>) {
    let env = vec![("COMMON".into(), "spec".into()), ("ONLY".into(), "spec".into())];
    let sandbox = h.create(&Spec { env, workdir: "/where".into(), ..h.spec() }).await;
    let show = ["bash", "-c", r#"pwd; echo "$COMMON $ONLY ${MORE-none}""#];
    assert_eq!(process_ok(&sandbox, &show).await, "/where\nspec spec none\n");
    let mut process = Process::new(show);
    process.env = vec![("COMMON".into(), "own".into()), ("MORE".into(), "a b".into())];
    process.workdir = Some("/usr".into());
    let ran = run_process(&sandbox, &process, None).await;
    assert_eq!(ran.out(), "/usr\nown spec a b\n");
}

/// A process that runs past its time is killed with everything it started.
pub async fn process_timeout_kills<R: Runtime>(h: &Harness<R>) {
    let sandbox = h.sandbox().await;
    let script =
        "trap '' TERM; echo so far; setsid sleep 36001 & env -i setsid -f sleep 36002; sleep 36003";
    let mut process = Process::new(["bash", "-c", script]);
    process.timeout = Some(Duration::from_secs(1));
    let start = Instant::now();
    let ran = run_process(&sandbox, &process, None).await;
    assert_eq!((ran.exit.status, ran.exit.cause), (Status::TimedOut, Some(Cause::Timeout)));
    assert_eq!(ran.out(), "so far\n");
    assert!(start.elapsed() < Duration::from_secs(60), "took {:?}", start.elapsed());
    for n in 36001..=36003 {
        assert_eq!(running(&sandbox, &format!("sleep {n}")).await, 0, "sleep {n} lives on");
    }
}

/// Nothing a shell command defined changes a process.
pub async fn shell_state_does_not_leak<R: Runtime>(h: &Harness<R>) {
    let sandbox = h.sandbox().await;
    let define = "echo() { printf trapped; }; export -f echo; alias cat=false; export LEAK=1 BASH_ENV=/tmp/e; \
                  printf 'printf trapped\\n' > /tmp/e; printf() { false; }; cd /usr; PATH=/tmp:$PATH; umask 077";
    ok(&sandbox, define).await;
    let script = r#"echo "${LEAK-clean}"; pwd; umask"#;
    assert_eq!(process_ok(&sandbox, &["bash", "-c", script]).await, "clean\n/testbed\n0022\n");
    assert_eq!(process_ok(&sandbox, &["echo", "plain"]).await, "plain\n");
}

/// Without input there is the end of it.
pub async fn no_input_is_end_of_file<R: Runtime>(h: &Harness<R>) {
    let sandbox = h.sandbox().await;
    assert_eq!(process_ok(&sandbox, &["bash", "-c", "cat; echo end"]).await, "end\n");
}

/// A process that writes for ever ends with its time.
pub async fn endless_output_is_cut_by_the_timeout<R: Runtime>(h: &Harness<R>) {
    let sandbox = h.sandbox().await;
    let mut process = Process::new(["yes"]);
    process.timeout = Some(Duration::from_secs(1));
    let start = Instant::now();
    let exit = sandbox.process(&process, Streams::discard()).await.expect("it runs");
    assert_eq!(exit.status, Status::TimedOut);
    assert!(start.elapsed() < Duration::from_secs(60), "took {:?}", start.elapsed());
    assert_eq!(running(&sandbox, "yes").await, 0);
}

/// Terminal mode gives a real terminal, in and out.
pub async fn terminal_is_a_terminal<R: Runtime>(h: &Harness<R>) {
    let sandbox = h.sandbox().await;
    let script = "tty; stty size; read -r line; echo \"got $line\"; exit 5";
    let (shown, status) = in_terminal(&sandbox, script, async |mut input, _| {
        input.write_all(b"typed\n").await.expect("it takes input");
        input
    })
    .await;
    assert!(shown.contains("/dev/pts/"), "`{shown}`");
    assert!(shown.contains("40 100"), "`{shown}`");
    assert!(shown.contains("got typed"), "`{shown}`");
    assert_eq!(status, Status::Exited(5));
}

/// A terminal follows changes of its size.
pub async fn terminal_follows_its_size<R: Runtime>(h: &Harness<R>) {
    let sandbox = h.sandbox().await;
    let script = "for i in {1..100}; do s=$(stty size); [ \"$s\" = '50 120' ] && break; sleep 0.1; done; echo \"now $s\"";
    let (shown, status) = in_terminal(&sandbox, script, async |input, size| {
        tokio::time::sleep(Duration::from_millis(300)).await;
        size.send(TerminalSize { rows: 50, cols: 120 }).expect("it listens");
        input
    })
    .await;
    assert!(shown.contains("now 50 120"), "`{shown}`");
    assert_eq!(status, Status::Exited(0));
}

/// Runs a script in a terminal of 40 lines with input; returns what was shown and how it ended.
pub(crate) async fn in_terminal(
    sandbox: &impl Sandbox,
    script: &str,
    typist: impl AsyncFnOnce(
        tokio::io::DuplexStream,
        watch::Sender<TerminalSize>,
    ) -> tokio::io::DuplexStream,
) -> (String, Status) {
    let (keyboard, input) = tokio::io::duplex(1024);
    let (output, mut screen) = tokio::io::duplex(1024);
    let (resize, size) = watch::channel(TerminalSize { rows: 40, cols: 100 });
    let streams = Streams::Terminal { input: Box::new(input), output: Box::new(output), size };
    let process = Process::new(["bash", "-c", script]);
    let mut shown = Vec::new();
    let (exit, _keyboard, _) = tokio::join!(
        sandbox.process(&process, streams),
        typist(keyboard, resize),
        screen.read_to_end(&mut shown)
    );
    (String::from_utf8_lossy(&shown).into_owned(), exit.expect("it runs").status)
}

/// Processes do not wait for each other, nor for the shell.
pub async fn processes_run_side_by_side<R: Runtime>(h: &Harness<R>) {
    let sandbox = h.sandbox().await;
    // Each waits for the file another one makes; one after the other they would never end.
    let script =
        "touch /tmp/$0; for i in {1..200}; do [ -e /tmp/$1 ] && exit 0; sleep 0.1; done; exit 1";
    let argv = |a, b| ["bash", "-c", script, a, b];
    let (one, two) = (argv("a", "b"), argv("b", "c"));
    tokio::join!(
        process_ok(&sandbox, &one),
        process_ok(&sandbox, &two),
        ok(
            &sandbox,
            "touch /tmp/c; for i in {1..200}; do [ -e /tmp/a ] && break; sleep 0.1; done; [ -e /tmp/a ]"
        )
    );
}

/// What cannot be a program is the caller's fault.
pub async fn bad_process_is_refused<R: Runtime>(h: &Harness<R>) {
    let sandbox = h.sandbox().await;
    for argv in [vec![], vec![""], vec!["echo", "a\0b"]] {
        let refused = sandbox.process(&Process::new(argv), Streams::discard()).await;
        assert!(matches!(refused, Err(Error::BadRequest(_))), "{refused:?}");
    }
}

/// A child that keeps the streams open does not keep its ended parent's caller waiting.
pub async fn background_child_does_not_hold_a_process<R: Runtime>(h: &Harness<R>) {
    let sandbox = h.sandbox().await;
    let start = Instant::now();
    let said = process_ok(&sandbox, &["bash", "-c", "sleep 37001 & echo left"]).await;
    assert_eq!(said, "left\n");
    assert!(start.elapsed() < Duration::from_secs(60), "took {:?}", start.elapsed());
    // The child may not have become `sleep` yet.
    let lives = async || running(&sandbox, "sleep 37001").await == 1;
    wait_for("the child runs", Duration::from_secs(20), lives).await;
}
