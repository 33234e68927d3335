//! Starving and killing PID 1: commands use up processor time, processes and memory, and the sandbox still answers.

use std::time::{Duration, Instant};

use sandbox::{ByteSize, Cause, Limits, Sandbox, Spec, Status};
use sandbox_conformance::patience;

use super::{Ground, SCRIPT, ok, on_the_host, sh_within, soon, store};

/// As many loops as make everything in the same group wait for seconds.
const LOOPS: &str = "for i in {1..250}; do (while :; do :; done) & done 2>/dev/null; wait";
/// How late a time limit may take effect besides what it takes on this machine without any load, where the command gets
/// 200 ms to end by itself: more than 128 processes get only 50 ms, but all of them have to be scheduled once to die.
const TOLERANCE: Duration = Duration::from_millis(250);

/// How much later than its time limit a command was reported as timed out.
async fn delay(sandbox: &impl Sandbox, script: &str, limit: Duration) -> Duration {
    let start = Instant::now();
    let output = sh_within(sandbox, script, limit).await;
    assert_eq!((output.status, output.cause), (Status::TimedOut, Some(Cause::Timeout)));
    start.elapsed().saturating_sub(limit)
}

/// How long PID 1 takes to answer a request that needs nothing but PID 1: the worst of some.
async fn latency(sandbox: &impl Sandbox) -> Duration {
    let mut worst = Duration::ZERO;
    for _ in 0..25 {
        let start = Instant::now();
        soon("peak memory", sandbox.peak_memory()).await.unwrap();
        worst = worst.max(start.elapsed());
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    worst
}

/// Busy loops do not delay a time limit, and PID 1 of their sandbox answers as fast as that of an idle one.
#[test]
fn busy_loops_do_not_starve_pid_1() {
    on_the_host(async |h| {
        let (sandbox, idle) = (h.sandbox().await, h.sandbox().await);
        let limit = Duration::from_secs(2);
        let usual = delay(&sandbox, "sleep 100", Duration::from_millis(300)).await;
        let (late, latencies) = tokio::join!(delay(&sandbox, LOOPS, limit), async {
            // The loops have started by then.
            tokio::time::sleep(limit / 2).await;
            tokio::join!(latency(&sandbox), latency(&idle))
        });
        assert!(late < usual + TOLERANCE * patience(), "{late:?} late, {usual:?} without load");
        let (busy, idle) = latencies;
        assert!(
            busy < idle * 3 + Duration::from_millis(50) * patience(),
            "{busy:?}, an idle one {idle:?}"
        );
    });
}

/// 250 busy loops; 100 processes that fork all the time, each child in place of its parent, so that PID 1 has orphans to reap
/// without end; and a fork bomb that takes every other process there may be. All begin at the same moment.
const BOMB: &str = "pipe(my $begin, my $hold); for my $number (1..350) { next if fork; close $hold; sysread $begin, my $end, 1; \
    1 while $number <= 250; while (1) { exit if fork } } close $hold; while (1) { fork }";

/// How late the time limit of a bomb took effect: of a shell command, or of a program.
async fn delay_of_bomb(sandbox: &impl Sandbox, program: bool, limit: Duration) -> Duration {
    let bombed = async {
        if !program {
            return delay(sandbox, "perl /tmp/bomb.pl", limit).await;
        }
        let bomb = sandbox::Process::new(["perl", "/tmp/bomb.pl"]);
        let bomb = sandbox::Process { timeout: Some(limit), ..bomb };
        let start = Instant::now();
        let ended = sandbox.process(&bomb, sandbox::Streams::discard());
        assert_eq!(soon("a program", ended).await.unwrap().cause, Some(Cause::Timeout));
        start.elapsed().saturating_sub(limit)
    };
    let (late, processes) = tokio::join!(bombed, async {
        tokio::time::sleep(limit / 2).await;
        let listed = soon("list", sandbox.list("/proc".as_ref())).await.unwrap();
        let is_process = |name: &str| name.bytes().all(|byte| byte.is_ascii_digit());
        listed.iter().filter(|entry| entry.name.to_str().is_some_and(is_process)).count()
    });
    assert!(processes > 400, "the bomb did not go off: {processes} processes");
    // Nothing of it is left.
    assert_eq!(ok(sandbox, "cat /proc/[0-9]*/comm | grep -c perl; true").await, "0\n");
    late
}

/// Nor does a fork bomb with 250 busy loops delay a time limit, of a shell command or of a program. What else this machine does
/// may delay one of three a little; a PID 1 that starves is late each time, and by seconds.
#[test]
fn a_fork_bomb_does_not_delay_a_time_limit() {
    on_the_host(async |h| {
        if !h.caps.pids_limit.or_skip("pids_limit") {
            return;
        }
        let sandbox = h.sandbox().await;
        let limit = Duration::from_secs(2);
        let usual = delay(&sandbox, "sleep 100", Duration::from_millis(300)).await;
        store(&sandbox, "/tmp/bomb.pl", BOMB).await;
        for program in [false, true] {
            let mut all = Vec::new();
            while all.len() < 3 && all.iter().all(|late| *late >= usual + TOLERANCE * patience()) {
                all.push(delay_of_bomb(&sandbox, program, limit).await);
            }
            println!("{all:?} late, {usual:?} without load");
            let (least, most) = (all.iter().min().unwrap(), all.iter().max().unwrap());
            assert!(*least < usual + TOLERANCE * patience(), "{all:?}, {usual:?} without load");
            assert!(*most < usual + TOLERANCE * 4 * patience(), "{all:?}, {usual:?} without load");
        }
    });
}

/// Files are written and read while commands use all processor time and every process they may have.
#[test]
fn file_workers_need_nothing_of_the_commands() {
    on_the_host(async |h| {
        if !h.caps.pids_limit.or_skip("pids_limit") {
            return;
        }
        let limits = Limits { pids: Some(60), ..Limits::default() };
        let sandbox = h.create(&Spec { limits, ..h.spec() }).await;
        let loops = "for i in {1..70}; do (while :; do :; done) & done 2>/dev/null; wait";
        let work = async {
            tokio::time::sleep(Duration::from_millis(700)).await;
            let start = Instant::now();
            for i in 0..5 {
                store(&sandbox, &format!("/testbed/f{i}"), "text").await;
            }
            let listed = soon("list", sandbox.list("/testbed".as_ref())).await.unwrap();
            (listed.len(), start.elapsed())
        };
        let (_, (files, took)) =
            tokio::join!(sh_within(&sandbox, loops, Duration::from_secs(2)), work);
        assert_eq!(files, 5);
        assert!(took < Duration::from_millis(500) * patience(), "it took {took:?}");
    });
}

fn small_memory(h: &Ground<'_>) -> Spec {
    let limits = Limits { memory: Some(ByteSize::mib(32)), ..Limits::default() };
    Spec { limits, ..h.spec() }
}

/// Memory that outlives its processes makes the kernel kill every command, but not PID 1, and later commands run.
#[test]
fn memory_without_a_process_does_not_end_the_sandbox() {
    on_the_host(async |h| {
        if !h.caps.memory_limit.or_skip("memory_limit") {
            return;
        }
        let shared = r#"for my $size (1 << 20, 1 << 16, 1 << 12) { while (defined(my $id = shmget(0, $size, 01600))) {
            shmwrite($id, "x" x $size, 0, $size) } }"#;
        let messages = r#"while (defined(my $id = msgget(0, 01600))) {
            for (1..8) { msgsnd($id, pack("l! a*", 1, "x" x 2000), 04000) or last } }"#;
        for fill in [shared, messages] {
            let sandbox = h.create(&small_memory(h)).await;
            store(&sandbox, "/tmp/fill.pl", fill).await;
            // Again and again: each time the kernel finds less to free besides.
            for _ in 0..3 {
                let script = "for i in {1..6}; do perl /tmp/fill.pl; done";
                let output = sh_within(&sandbox, script, SCRIPT).await;
                assert_eq!(
                    (output.status.code(), output.cause),
                    (137, Some(Cause::Oom)),
                    "{output:?}"
                );
            }
            // The kernel may have killed the shell in place of the last one, which then fills memory in the background.
            let wait =
                "while cat /proc/[0-9]*/comm 2>/dev/null | grep -q perl; do sleep 0.01; done";
            for _ in 0..20 {
                if sh_within(&sandbox, wait, SCRIPT).await.status.success() {
                    break;
                }
            }
            // PID 1 itself needs memory for a long one.
            let long = format!("echo works | cat; : {}", "x".repeat(2 << 20));
            assert_eq!(ok(&sandbox, &long).await, "works\n");
            soon("destroy", sandbox.destroy()).await.unwrap();
        }
    });
}

/// A command that is too large dies alone, as a shell command and as a program: what ran before it goes on.
#[test]
fn a_command_that_fills_memory_dies_alone() {
    on_the_host(async |h| {
        if !h.caps.memory_limit.or_skip("memory_limit") {
            return;
        }
        let sandbox = h.create(&small_memory(h)).await;
        let behind = ok(&sandbox, "kept=1; sleep 1000 >/dev/null 2>&1 & echo $!").await;
        // Its score is as low as it can make it.
        let fill = "echo 0 > /proc/self/oom_score_adj; exec perl -e 'my $x = q(x) x (200 << 20); print qq(all\\n)'";
        let output =
            sh_within(&sandbox, &format!("bash -c '{}'", fill.replace('\'', r"'\''")), SCRIPT)
                .await;
        assert_eq!((output.status.code(), output.cause), (137, Some(Cause::Oom)), "{output:?}");
        let process = sandbox::Process::new(["bash", "-c", fill]);
        let exit = soon("a program", sandbox.process(&process, sandbox::Streams::discard())).await;
        let exit = exit.unwrap();
        assert_eq!((exit.status.code(), exit.cause), (137, Some(Cause::Oom)), "{exit:?}");
        let after = format!("echo $kept; kill -0 {} && echo runs", behind.trim());
        assert_eq!(ok(&sandbox, &after).await, "1\nruns\n");
    });
}

/// A command whose first process the kernel kills for the lack of memory ends as a whole: what it started does not go on
/// without it. What ran before goes on.
#[test]
fn a_command_out_of_memory_ends_as_a_whole() {
    on_the_host(async |h| {
        if !h.caps.memory_limit.or_skip("memory_limit") {
            return;
        }
        let sandbox = h.create(&small_memory(h)).await;
        ok(&sandbox, "kept=1; sleep 1000 >/dev/null 2>&1 & echo $! > /tmp/before").await;
        // The shell itself grows. One of those that it started leaves its session, one is orphaned.
        let fill = "sleep 1001 >/dev/null 2>&1 & echo $! > /tmp/started; \
                    setsid sleep 1002 >/dev/null 2>&1 & echo $! >> /tmp/started; \
                    (sleep 1003 >/dev/null 2>&1 & echo $! >> /tmp/started); \
                    x=xxxxxxxxxxxxxxxx; while :; do x=$x$x; done";
        let look = "for pid in $(cat /tmp/started); do kill -0 $pid 2>/dev/null && echo $pid runs; done; \
                    wc -l < /tmp/started; kill -0 $(cat /tmp/before) && echo $kept";
        let output = sh_within(&sandbox, fill, SCRIPT).await;
        assert_eq!((output.status.code(), output.cause), (137, Some(Cause::Oom)), "{output:?}");
        assert_eq!(ok(&sandbox, look).await, "3\n1\n");
        let process = sandbox::Process::new(["bash", "-c", fill]);
        let exit = soon("a program", sandbox.process(&process, sandbox::Streams::discard())).await;
        let exit = exit.unwrap();
        assert_eq!((exit.status.code(), exit.cause), (137, Some(Cause::Oom)), "{exit:?}");
        assert_eq!(ok(&sandbox, look).await, "3\n1\n");
    });
}
