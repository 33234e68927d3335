//! `execute_bash` in a real sandbox: the observation of exit status and output.
//!
//! Where a limit is not enforced on this machine, the test of its message is skipped visibly.

use std::time::{Duration, Instant};

use sandbox::{ByteSize, Limits, Spec};
use serde_json::json;

use crate::sandboxes::with_sandbox;

#[test]
fn streams_and_exit_code_are_separate() {
    with_sandbox(&Spec::default(), async |hand| {
        let seen = hand.bash("echo out; echo err >&2; exit 3").await;
        assert_eq!(seen, "[exit code 3]\n[stdout]\nout\n[stderr]\nerr");
        assert_eq!(hand.bash("true").await, "[exit code 0]\n(no output)");
        assert_eq!(hand.bash("echo only >&2").await, "[exit code 0]\n[stderr]\nonly");
        let seen = hand.observe("execute_bash", json!({"command": "exit 7"})).await;
        assert_eq!((seen.exit_code, seen.is_error), (Some(7), false));
        let seen = hand.bash("kill -SEGV $BASHPID").await;
        assert!(seen.starts_with("[killed by signal 11 (SIGSEGV)]"), "{seen}");
    });
}

#[test]
fn the_shell_keeps_its_state() {
    with_sandbox(&Spec::default(), async |hand| {
        hand.bash("mkdir -p /tmp/a && cd /tmp/a && word=kept; f() { echo $word; }").await;
        assert_eq!(hand.bash("f; pwd").await, "[exit code 0]\n[stdout]\nkept\n/tmp/a");
    });
}

#[test]
fn a_slow_command_is_killed_and_the_shell_survives() {
    with_sandbox(&Spec::default(), async |mut hand| {
        hand.bash("word=former; cd /usr").await;
        hand.tools.timeout = Duration::from_millis(1500);
        let begun = Instant::now();
        let seen = hand.bash("echo begun; word=latter; cd /tmp; sleep 1000").await;
        assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", begun.elapsed());
        assert!(seen.contains("killed after 1.5 s") && seen.ends_with("[stdout]\nbegun"), "{seen}");
        assert!(seen.contains("from before the command"), "{seen}");
        assert_eq!(hand.bash("echo $word; pwd").await, "[exit code 0]\n[stdout]\nformer\n/usr");
    });
}

#[test]
fn terminal_sequences_are_removed() {
    with_sandbox(&Spec::default(), async |hand| {
        let script =
            r"printf '\e[31mred\e[0m\r\n'; printf ' 10%%\r 99%%\r100%%\n'; printf 'caf\xe9\n'";
        let seen = hand.bash(script).await;
        assert_eq!(seen, "[exit code 0]\n[stdout]\nred\n100%\ncaf\u{fffd}");
        let seen = hand.bash("head -c 100 /bin/bash").await;
        assert!(seen.contains("[stdout: not text; "), "{seen}");
        assert!(!seen.contains('\0'), "{seen}");
    });
}

#[test]
fn long_output_is_saved_to_a_file() {
    with_sandbox(&Spec::default(), async |hand| {
        let seen = hand.bash("seq 1 100000; seq 1 50000 >&2").await;
        assert!(seen.chars().count() < 25_500, "{}", seen.len());
        for (name, last) in [("stdout", 100_000), ("stderr", 50_000)] {
            let whole: String = (1..=last).map(|n| format!("{n}\n")).collect();
            let file = format!("/tmp/outputs/1.{name}.txt");
            assert_eq!(hand.read(&file).await, whole.as_bytes());
            assert!(seen.contains(&format!("[{name}]\n1\n2\n3\n")), "{seen}");
            assert!(seen.contains(&format!("{}\n{last}", last - 1)), "{seen}");
            assert!(seen.contains(&file), "{seen}");
        }
        // The advice works: it shows the first line that is left out.
        let marker = seen.lines().find(|line| line.starts_with("[... lines ")).expect("a marker");
        let first = marker["[... lines ".len()..].split('-').next().expect("a number");
        assert!(!seen.contains(&format!("\n{first}\n")), "{seen}");
        let advice = marker.split("read with: ").nth(1).expect("advice").trim_end_matches(" ...]");
        let part = hand.bash(advice).await;
        assert!(part.starts_with(&format!("[exit code 0]\n[stdout]\n{first}\n")), "{part}");
    });
}

#[test]
fn a_very_long_line_is_cut_inside() {
    with_sandbox(&Spec::default(), async |hand| {
        let seen = hand.bash("head -c 300000 /dev/zero | tr '\\0' x; printf END").await;
        assert!(seen.ends_with("xEND") && seen.len() < 13_000, "{} bytes", seen.len());
        assert!(
            seen.contains("[... 288003 bytes inside line 1 are left out; all is in "),
            "{seen}"
        );
        let advice = seen.split("read with: ").nth(1).and_then(|rest| rest.split(" ...]").next());
        let part = hand.bash(advice.expect("advice")).await;
        assert_eq!(part, format!("[exit code 0]\n[stdout]\n{}", "x".repeat(4000)));
    });
}

#[test]
fn output_beyond_the_capture_limit_is_counted() {
    with_sandbox(&Spec::default(), async |hand| {
        let seen = hand.bash("head -c 20000000 /dev/zero | tr '\\0' '\\n'; echo end").await;
        let expected = "of all 20000004 bytes only the first 8388608 and the last 8388608 were kept; \
                    the kept part is in /tmp/outputs/1.stdout.txt";
        assert!(seen.contains(expected) && seen.ends_with("\nend"), "{seen}");
        let kept = hand.read("/tmp/outputs/1.stdout.txt").await;
        let lost = "\n[... 3222788 bytes were not kept ...]\n";
        assert_eq!(kept.len(), (16 << 20) + lost.len());
        assert!(kept[8 << 20..].starts_with(lost.as_bytes()));
    });
}

#[test]
fn output_that_cannot_be_saved_is_reported() {
    with_sandbox(&Spec::default(), async |mut hand| {
        hand.tools.spill = "/proc/outputs".into();
        let seen = hand.bash("seq 1 100000").await;
        assert!(seen.contains("could not be kept in a file: "), "{seen}");
        assert!(seen.ends_with("\n100000"), "{seen}");
    });
}

#[test]
fn a_full_disk_is_reported() {
    let limits = Limits { disk: Some(ByteSize::mib(4)), ..Limits::default() };
    with_sandbox(&Spec { limits, ..Spec::default() }, async |hand| {
        let seen = hand.bash("head -c 50000000 /dev/zero > big").await;
        assert!(seen.contains("[disk full: "), "{seen}");
        hand.bash("rm big").await;
        let seen = hand.bash("seq 1 1000000").await;
        assert!(seen.contains("could not be kept in a file: File too large"), "{seen}");
        assert!(seen.ends_with("\n1000000"), "{seen}");
        hand.write("/testbed/file", b"old").await;
        let text = "x".repeat(5 << 20);
        let error =
            hand.refused(json!({"command": "create", "path": "file", "file_text": text})).await;
        assert_eq!(error, "/testbed/file: not written: File too large");
        assert_eq!(hand.read("/testbed/file").await, b"old");
    });
}

#[test]
fn running_out_of_memory_is_reported() {
    let limits = Limits { memory: Some(ByteSize::mib(64)), ..Limits::default() };
    with_sandbox(&Spec { limits, ..Spec::default() }, async |hand| {
        if !hand.enforces(&sandbox::Layer::MemoryLimit, "cgroup") {
            return;
        }
        let seen = hand.bash("head -c 300000000 /dev/zero | tail -c 250000000 | wc -c").await;
        assert!(seen.contains("[out of memory: "), "{seen}");
    });
}
