//! Output of commands: two streams, every byte, any amount, without waiting for background processes.

use std::time::{Duration, Instant};

use sandbox::{OutputCap, Runtime, ShellCommand, Status};

use crate::{
    Harness,
    harness::slow,
    support::{MemoryWatch, has, ok, run_shell, running, sh, sh_within, wait_for},
};

/// Standard output and standard error arrive apart.
pub async fn streams_are_kept_apart<R: Runtime>(h: &Harness<R>) {
    let sandbox = h.sandbox().await;
    let output = sh(&sandbox, "for i in 1 2 3; do echo out $i; echo err $i >&2; done").await;
    assert_eq!(output.stdout.text(), "out 1\nout 2\nout 3\n");
    assert_eq!(output.stderr.text(), "err 1\nerr 2\nerr 3\n");
}

/// Bytes that are not text arrive as they were written.
pub async fn bytes_are_exact<R: Runtime>(h: &Harness<R>) {
    let sandbox = h.sandbox().await;
    let script = r"printf '\xff\xfe\0mid\0\r\n\x80'; printf '\0\xc3' >&2";
    let output = sh(&sandbox, script).await;
    assert_eq!(output.stdout.head, b"\xff\xfe\0mid\0\r\n\x80");
    assert_eq!(output.stderr.head, b"\0\xc3");
    let script = r"for i in {0..255}; do printf -v x '\\x%02x' $i; printf $x; done";
    let all: Vec<u8> = (0..=255).collect();
    assert_eq!(sh(&sandbox, script).await.stdout.head, all);
}

/// Of long output the start, the end and the true size are kept.
pub async fn long_output_keeps_head_and_tail<R: Runtime>(h: &Harness<R>) {
    let sandbox = h.sandbox().await;
    let mut command = ShellCommand::new("seq 1 500000; seq 1 10 >&2");
    command.cap = OutputCap { head: 1000, tail: 500 };
    let output = run_shell(&sandbox, command).await;
    let all: String = (1..=500_000).map(|n| format!("{n}\n")).collect();
    assert_eq!(output.stdout.total, all.len() as u64);
    assert_eq!(output.stdout.head, &all.as_bytes()[..1000]);
    assert_eq!(output.stdout.tail, &all.as_bytes()[all.len() - 500..]);
    assert_eq!(output.stderr.omitted(), 0);
    assert!(output.stderr.text().ends_with("10\n"));
}

/// 300 MB of output take bounded memory.
pub async fn flood_costs_no_memory<R: Runtime>(h: &Harness<R>) {
    flood(h, 300 << 20).await;
}

/// So do 10 GB, if `LIS_SLOW` is set.
pub async fn ten_gigabytes_pass<R: Runtime>(h: &Harness<R>) {
    if slow() {
        flood(h, 10 << 30).await;
    } else {
        crate::skip("slow", "10 GB take minutes; set LIS_SLOW=1");
    }
}

async fn flood<R: Runtime>(h: &Harness<R>, bytes: u64) {
    let sandbox = h.sandbox().await;
    let memory = MemoryWatch::start();
    let script = format!("head -c {bytes} /dev/zero; echo done");
    let output = sh_within(&sandbox, script, Duration::from_secs(1500)).await;
    assert_eq!(output.status, Status::Exited(0));
    assert_eq!(output.stdout.total, bytes + 5);
    assert!(output.stdout.tail.ends_with(b"\0done\n"));
    let cap = OutputCap::default();
    assert_eq!((output.stdout.head.len(), output.stdout.tail.len()), (cap.head, cap.tail));
    memory.grew_at_most(64);
}

/// Both streams may be full at the same time.
pub async fn both_streams_flood_at_once<R: Runtime>(h: &Harness<R>) {
    let sandbox = h.sandbox().await;
    let script = "head -c 20M /dev/zero & head -c 20M /dev/zero >&2 & wait";
    let output = sh(&sandbox, script).await;
    assert_eq!((output.stdout.total, output.stderr.total), (20 << 20, 20 << 20));
}

/// A process in the background neither delays the return nor dies with it.
pub async fn background_process_does_not_block<R: Runtime>(h: &Harness<R>) {
    let sandbox = h.sandbox().await;
    let start = Instant::now();
    let output = sh(&sandbox, "sleep 35001 & pid=$!; echo started").await;
    assert_eq!(output.stdout.text(), "started\n");
    assert!(start.elapsed() < Duration::from_secs(60), "took {:?}", start.elapsed());
    assert_eq!(running(&sandbox, "sleep 35001").await, 1);
    ok(&sandbox, "kill -0 $pid && kill $pid").await;
    wait_for("the process is gone", Duration::from_secs(60), async || {
        running(&sandbox, "sleep 35001").await == 0
    })
    .await;
}

/// What a background process writes later is not part of a later command's output.
pub async fn background_output_stays_with_its_command<R: Runtime>(h: &Harness<R>) {
    let sandbox = h.sandbox().await;
    // Soon after, and again when its output is not read any more, with more than a pipe holds.
    // A builtin does the writing: a signal for a broken pipe would end the writer itself.
    let late = "(sleep 0.7; echo late; echo late >&2; sleep 3
                 for i in {1..6000}; do echo \"late line $i with many more words than it would need\"; done
                 for i in {1..6000}; do echo \"late line $i with many more words than it would need\"; done >&2
                 touch /tmp/lived) & echo soon";
    assert_eq!(ok(&sandbox, late).await, "soon\n");
    let output = sh(&sandbox, "sleep 1.5; echo mine").await;
    assert_eq!((&*output.stdout.text(), &*output.stderr.text()), ("mine\n", ""));
    // Writing without a reader must neither have killed nor blocked it.
    wait_for("the writer is through", Duration::from_secs(60), async || {
        sh(&sandbox, "[ -e /tmp/lived ]").await.status.success()
    })
    .await;
}

/// A server started by one command answers the next ones.
pub async fn background_server_answers_later<R: Runtime>(h: &Harness<R>) {
    let sandbox = h.sandbox().await;
    if !has(&sandbox, "perl").await {
        return;
    }
    ok(
        &sandbox,
        r#"cat > /tmp/server.pl <<'END'
use IO::Socket::INET;
my $s = IO::Socket::INET->new(Listen => 9, LocalAddr => '127.0.0.1', LocalPort => 8123, ReuseAddr => 1) or die;
while (my $c = $s->accept) { my $line = <$c>; print $c "you said $line"; close $c; }
END
perl /tmp/server.pl & "#,
    )
    .await;
    let ask = r#"exec 5<>/dev/tcp/127.0.0.1/8123 && echo "hi" >&5 && cat <&5"#;
    wait_for("the server answers", Duration::from_secs(60), async || {
        sh(&sandbox, format!("({ask}) 2>/dev/null")).await.stdout.text() == "you said hi\n"
    })
    .await;
    assert_eq!(ok(&sandbox, format!("({ask})")).await, "you said hi\n");
}

/// What a command wrote before it was stopped is not lost.
pub async fn output_before_a_timeout_is_kept<R: Runtime>(h: &Harness<R>) {
    let sandbox = h.sandbox().await;
    let script = "echo so far; echo so bad >&2; sleep 1000";
    let output = sh_within(&sandbox, script, Duration::from_secs(1)).await;
    assert_eq!(output.status, Status::TimedOut);
    assert_eq!((&*output.stdout.text(), &*output.stderr.text()), ("so far\n", "so bad\n"));
    assert!(output.duration >= Duration::from_secs(1), "{:?}", output.duration);
}
