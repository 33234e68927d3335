//! The program, its spawner or its supervisor, killed at random moments of everything it does with sandboxes.
//!
//! Takes minutes, so it runs only where `LIS_SLOW` is set: `cargo xtask siege`. `LIS_KILL_ROUNDS` is the number of
//! rounds, `LIS_SEED` chooses the moments.

mod ground;

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};

use self::ground::{Ground, Phase};
use super::Dice;
use crate::{
    leaves_nothing_behind::spawner_of,
    support::{Running, setting, skip},
};

const ROUNDS: u64 = 200;
const SEED: u64 = 0x2545_F491_4F6C_DD1D;
/// A program that was killed needs no help: its spawner cleans up. So long that takes at most, on a busy machine.
const CLEAN_UP: Duration = Duration::from_secs(120);

/// Who is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Victim {
    Program,
    Spawner,
    Supervisor,
    /// That of the supervisor.
    ItsSpawner,
}

/// What happened in the rounds of one phase.
#[derive(Default)]
struct Tally {
    rounds: u32,
    /// Rounds in which the victim had ended, or not begun.
    missed: u32,
    pruned: u32,
    slowest: Duration,
}

/// Killed 200 times, in every phase, program, spawner and supervisor leave nothing, after a `prune` where the spawner was
/// killed: no process, mount, control group, loop device, file or socket.
#[test]
fn kills_in_every_phase_leave_nothing() {
    if setting("LIS_SLOW").is_none() {
        return skip("slow", "200 kills take minutes; set LIS_SLOW=1");
    }
    let number = |name: &str, default| {
        setting(name).map_or(default, |text| text.to_str().unwrap().parse().unwrap())
    };
    let Some(ground) = Ground::prepare() else { return };
    let (rounds, seed) = (number("LIS_KILL_ROUNDS", ROUNDS), number("LIS_SEED", SEED));
    let mut dice = Dice(seed);
    let mut tallies: BTreeMap<(&str, Victim), Tally> = BTreeMap::new();
    let mut phases = ground.phases();
    for round in 0..rounds {
        let at = usize::try_from(round).unwrap() % phases.len();
        let (phase, name, typical) = phases[at];
        let victims = victims(phase);
        let victim = victims[usize::try_from(dice.roll(victims.len() as u64)).unwrap()];
        let delay = typical.mul_f64(dice.roll(1100) as f64 / 1000.0);
        let tally = tallies.entry((name, victim)).or_default();
        tally.rounds += 1;
        let what = format!("seed {seed}, round {round}: {victim:?} killed {delay:.1?} into {name}");
        // What ended too early is faster than thought: the machine may be quieter now.
        if let Some(took) = kill_in(&ground, phase, victim, delay, &what, tally) {
            phases[at].2 = took;
        }
    }
    println!("{}", table(&tallies));
}

fn victims(phase: Phase) -> &'static [Victim] {
    match phase {
        Phase::Import => &[Victim::Program],
        phase if phase.is_named() => &[Victim::Program, Victim::Supervisor, Victim::ItsSpawner],
        _ => &[Victim::Program, Victim::Spawner],
    }
}

/// One round. Returns how long the program took if it ended before it could be killed.
fn kill_in(
    ground: &Ground,
    phase: Phase,
    victim: Victim,
    delay: Duration,
    what: &str,
    tally: &mut Tally,
) -> Option<Duration> {
    ground.set_up(phase);
    let started = Instant::now();
    let mut running = Running(ground.command(phase).spawn().unwrap());
    let program = running.0.id();
    let mut took = None;
    while started.elapsed() < delay && took.is_none() {
        std::thread::sleep(delay.saturating_sub(started.elapsed()).min(Duration::from_millis(2)));
        took = running.0.try_wait().unwrap().map(|_| started.elapsed());
    }
    let supervisor = || ground.supervisor();
    let found = match victim {
        Victim::Program => {
            running.0.try_wait().unwrap().is_none().then(|| Pid::from_child(&running.0))
        }
        Victim::Spawner => spawner_of(program),
        Victim::Supervisor => supervisor(),
        Victim::ItsSpawner => {
            supervisor().and_then(|pid| spawner_of(pid.as_raw_nonzero().get().unsigned_abs()))
        }
    };
    if found.is_none_or(|pid| kill_process(pid, Signal::KILL).is_err()) {
        tally.missed += 1;
    }
    // Without its spawner or supervisor it ends by itself.
    if victim != Victim::Program || found.is_none() {
        let deadline = Instant::now() + CLEAN_UP;
        while running.0.try_wait().unwrap().is_none() {
            assert!(Instant::now() < deadline, "{what}: the program did not end");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
    drop(running);
    let began = Instant::now();
    let callers = ground.end_supervisor(what, program);
    if matches!(victim, Victim::Spawner | Victim::ItsSpawner)
        || matches!(phase, Phase::Import | Phase::Save)
    {
        tally.pruned += 1;
        ground.wait_for_processes(what, CLEAN_UP);
        ground.prune(what);
    }
    ground.is_clean(what, &callers, CLEAN_UP);
    tally.slowest = tally.slowest.max(began.elapsed());
    took
}

fn table(tallies: &BTreeMap<(&str, Victim), Tally>) -> String {
    let mut text = format!(
        "{:<18} {:<12} {:>6} {:>7} {:>7} {:>8}\n",
        "phase", "killed", "rounds", "missed", "pruned", "slowest"
    );
    let mut all = 0;
    for ((phase, victim), tally) in tallies {
        all += tally.rounds;
        let Tally { rounds, missed, pruned, slowest } = tally;
        let victim = format!("{victim:?}");
        let slowest = slowest.as_millis();
        let _ = writeln!(
            text,
            "{phase:<18} {victim:<12} {rounds:>6} {missed:>7} {pruned:>7} {slowest:>5} ms"
        );
    }
    let _ = write!(text, "{all} rounds, nothing left");
    text
}
