//! A benchmark of which half of the sandboxes attack: the other half gets the results it gets alone, and the machine
//! keeps what it needs.
//!
//! Takes minutes, so it runs only where `LIS_SLOW` is set: `cargo xtask siege`. `LIS_SIEGE` is the number of
//! concurrent sandboxes.

mod attacks;
mod probes;

use std::{
    fs,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use serde_json::Value;
use testkit::{Keep, MockServer, Received, Turn, bash, submit};

use self::{attacks::ATTACKS, probes::Probes};
use super::{bench, leave_at, resumes::lasting, sum, text};
use crate::support::{Home, code, err, setting, skip, write};

/// Sandboxes at once, unless the variable asks for another number.
const SANDBOXES: usize = 64;
/// Honest attempts for each sandbox that works: the attacks last while several generations of sandboxes come and go.
const GENERATIONS: usize = 4;
/// Each attack has disk space of this size, and may exceed it until it is measured.
const DISK: u64 = 64 << 20;

/// Beside 32 sandboxes that attack what all share, 32 others of the same program get the same results as alone, and the
/// machine's timers, queues, terminals, asynchronous I/O, watches, descriptors in flight and disk space stay available.
#[test]
fn a_benchmark_gets_the_same_results_under_siege() {
    if setting("LIS_SLOW").is_none() {
        return skip("slow", "a siege takes minutes; set LIS_SLOW=1");
    }
    let Some(home) = Home::with_sandboxes() else { return };
    let number = setting("LIS_SIEGE").map_or(SANDBOXES, |n| n.to_str().unwrap().parse().unwrap());
    let attackers = number / 2;
    let honest = (number - attackers) * GENERATIONS;

    let alone = Siege { attackers: 0, honest, concurrency: number - attackers };
    let (quiet, quiet_time) = alone.run(&home, "alone");
    let probes = Probes::start(&home);
    let besieged = Siege { attackers, honest, concurrency: number };
    let (loud, loud_time) = besieged.run(&home, "besieged");
    let probes = probes.stop();

    let (attacked, worked): (Vec<_>, Vec<_>) =
        loud.into_iter().partition(|attempt| text(&attempt["id"]).starts_with("attack"));
    assert_eq!(worked.len(), honest);
    for (alone, besieged) in quiet.iter().zip(&worked) {
        assert_eq!(alone, besieged);
        assert_eq!((&alone["score"], &alone["tries"]), (&1.0.into(), &1.into()), "{alone}");
    }
    assert_eq!(attacked.len(), attackers);
    for n in 0..attackers {
        let file = format!("besieged/trajectories/math/sandbox/attack-{n}.0.jsonl");
        let said = fs::read_to_string(home.file(&file)).unwrap();
        let (name, _) = ATTACKS[n % ATTACKS.len()];
        assert!(said.contains(name), "{name} was not tried");
        for excuse in ["syntax error", "command not found", "Can't locate", "unknown option"] {
            assert!(!said.contains(excuse), "{name} does not work: {excuse}");
        }
    }
    println!(
        "{number} sandboxes, {attackers} of them attacking: {honest} attempts in {loud_time:.1?}, alone {quiet_time:.1?}"
    );
    println!("{probes}");
    assert_eq!(probes.failures, Vec::<String>::new());
    let most = attackers as u64 * DISK * 3;
    assert!(probes.disk_used < most, "{} bytes of {most} were used", probes.disk_used);
    assert_eq!(home.traces(), Vec::<std::path::PathBuf>::new());
}

struct Siege {
    attackers: usize,
    honest: usize,
    concurrency: usize,
}

impl Siege {
    /// Runs the benchmark; what of its attempts does not depend on the clock, and the time it took.
    fn run(&self, home: &Home, name: &str) -> (Vec<Value>, Duration) {
        // Attacks first: the others come and go beside them.
        let attacks = (0..self.attackers).map(attack);
        let rows = attacks.chain((0..self.honest).map(sum)).map(|row| row.to_string() + "\n");
        let data = home.file(&format!("{name}.jsonl"));
        write(&data, rows.collect::<String>());
        let (honest, done) = (self.honest, Arc::new(AtomicUsize::new(0)));
        let server =
            MockServer::answering_and(Keep::Counts, move |asked| turn(asked, honest, &done))
                .unwrap();
        let concurrency = self.concurrency.to_string();
        let mut command = bench(home, &server.base_url(), ["math", "--mode", "sandbox", "--quiet"]);
        command.arg("--data").arg(&data).args(["--output", name, "--max-turns", "100000"]);
        command.args(["--concurrency", &concurrency, "--max-tokens", "100000000", "--compact"]);
        command.args(["--memory", "192M", "--pids", "128", "--disk", &DISK.to_string()]);
        command.args(["--command-timeout", "60"]);
        let started = Instant::now();
        let output = command.output().unwrap();
        assert_eq!(code(&output), 0, "{}", err(&output));
        let took = started.elapsed();
        let mut attempts = lasting(&home.file(name));
        for attempt in &mut attempts {
            // Observations say how long commands took, in more or fewer digits.
            attempt["tokens"] = Value::Null;
            attempt["spent"] = attempt["spent"]["turns"].clone();
        }
        (attempts, took)
    }
}

/// A row whose model attacks.
fn attack(n: usize) -> Value {
    let mut row = sum(n);
    row["id"] = format!("attack-{n}").into();
    row["problem_statement"] = format!("Attack number {n}.").into();
    row
}

/// The model: attacks until all honest attempts have submitted, or works with files and pipes, answers and submits.
fn turn(asked: &Received, honest: usize, done: &AtomicUsize) -> Turn {
    if let Some(n) = number_after(asked, "Attack number ") {
        if done.load(Ordering::Relaxed) >= honest {
            return submit();
        }
        let (name, script) = ATTACKS[n % ATTACKS.len()];
        let script =
            format!("timeout -s KILL 4 bash -c '{script}' >/tmp/said 2>&1; head -c 200 /tmp/said");
        return bash(format!("echo {name}; {script}"));
    }
    let n = number_after(asked, "Sum number ").unwrap();
    match asked.turns() {
        0 => bash(format!(
            "mkdir -p work && seq 1 2000 > work/all && n=$(sort -n work/all | uniq | sed -n {0}p | cat) && \
             perl -MSocket -e 'socketpair(A, B, AF_UNIX, SOCK_STREAM, 0) or die $!; syswrite(A, \"ok\"); sysread(B, $x, 2); \
             print \"$x \"' && echo $((n + 1)) && rm -r work",
            n + 1
        )),
        _ => {
            let said =
                asked.messages().iter().any(|m| m.to_string().contains(&format!("ok {}", n + 2)));
            done.fetch_add(1, Ordering::Relaxed);
            let answer = if said { format!("\\boxed{{{}}}", n + 1) } else { "nothing".into() };
            leave_at("/testbed/answer.txt", &answer)
        }
    }
}

/// The number after a phrase of the conversation.
fn number_after(asked: &Received, phrase: &str) -> Option<usize> {
    let text = asked.body["messages"].to_string();
    let (_, rest) = text.split_once(phrase)?;
    let digits = rest.find(|c: char| !c.is_ascii_digit()).map_or(rest, |end| &rest[..end]);
    digits.parse().ok()
}
