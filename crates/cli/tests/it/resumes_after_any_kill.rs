//! Killed at random moments and resumed each time, a run ends as if nothing had happened: every command
//! had its effect exactly once.

use std::{fs, time::Duration};

use rustix::process::Signal;
use testkit::{MockServer, bash, submit};

use crate::{
    episodes::{json, kinds, run},
    support::{Home, Running, wait_for},
};

const STEPS: usize = 8;
const ROUNDS: u64 = 5;

#[test]
fn random_moment_kills_of_a_run_change_nothing() {
    let Some(home) = Home::with_sandboxes() else { return };
    let server = MockServer::answering(|asked| {
        let spoken = asked.turns();
        let turn = match spoken {
            STEPS => bash("cd /testbed/output && paste -sd' ' list > answer.txt"),
            _ if spoken > STEPS => submit(),
            _ => bash(format!("echo {spoken} >> /testbed/output/list; sleep 0.02")),
        };
        turn.after(Duration::from_millis(5))
    })
    .unwrap();
    let expected = (0..STEPS).map(|step| step.to_string()).collect::<Vec<_>>().join(" ");
    let mut seed = 0x9E37_79B9_7F4A_7C15_u64;
    let mut kills = 0;
    for round in 0..ROUNDS {
        let out = home.file("out");
        let mut command = run(&home, &server.base_url(), ["Make a list", "--quiet"]);
        loop {
            let before = server.count();
            let mut running = Running(command.spawn().unwrap());
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            // Some requests further, and then anywhere within a step: no machine is too slow or too fast for that.
            let wanted = before + usize::try_from(seed % 5).unwrap();
            wait_for("progress", || {
                let ended = running.0.try_wait().unwrap().is_some();
                (ended || server.count() >= wanted).then_some(())
            });
            std::thread::sleep(Duration::from_millis((seed >> 32) % 40));
            if running.0.try_wait().unwrap().is_none() {
                running.signal(Signal::KILL);
                kills += 1;
            }
            let ended = running.0.wait().unwrap();
            wait_for("clean-up", || home.traces().is_empty().then_some(()));
            let folder = fs::read_dir(&out).ok().and_then(|mut runs| runs.next());
            let folder = folder.map(|entry| entry.unwrap().path());
            let summary = folder.as_ref().map(|folder| folder.join("run.json"));
            // The last thing that is written: killed after it, the run is complete.
            if let Some(summary) = summary.filter(|summary| summary.exists()) {
                let summary = json(&summary);
                assert_eq!(summary["outcome"], "submitted", "round {round}");
                assert_eq!(summary["answer"], expected.as_str(), "round {round}");
                break;
            }
            assert_eq!(ended.code(), None, "round {round}: it was not the kill that ended it");
            // Killed before the episode began, there is nothing to go on from.
            let begun = folder.as_ref().is_some_and(|folder| {
                folder.join("events.jsonl").exists() && !kinds_of(folder).is_empty()
            });
            command = match folder {
                Some(folder) if begun => {
                    let mut command = home.command(["run", "--quiet", "--resume"]);
                    command.arg(folder);
                    command
                }
                _ => {
                    let _ = fs::remove_dir_all(&out);
                    run(&home, &server.base_url(), ["Make a list", "--quiet"])
                }
            };
        }
        fs::remove_dir_all(&out).unwrap();
    }
    assert!(kills > 3, "only {kills} kills: the moments are badly chosen");
}

/// The kinds of the whole lines; the last one may be cut off.
fn kinds_of(folder: &std::path::Path) -> Vec<String> {
    let path = folder.join("events.jsonl");
    let text = fs::read_to_string(&path).unwrap();
    let whole = text.rfind('\n').map_or("", |end| &text[..=end]);
    if whole.len() == text.len() {
        kinds(folder)
    } else {
        whole.lines().map(str::to_owned).collect()
    }
}
