//! What a reader should look at: turns that may have met the answer, and attempts that did not pass.

use super::{Block, Cell, Section, Table, scores::blocks};
use crate::{
    Report,
    data::{Kind, Place},
    numbers::{count, percent},
};

/// Turns that may have met the answer.
pub(super) fn leaks(report: &Report) -> Section {
    let leaks = &report.leaks;
    let mut table = Table::new(
        listed(
            "Turns that fetched something from outside which holds the right answer or names the benchmark. Each is a reason to \
             look, not a proof.",
            leaks.items.len(),
            leaks.total,
        ),
        &["model", "attempt", ">turn", "why", "seen"],
    );
    for leak in &leaks.items {
        let mut row = attempt(report, &leak.place);
        row.push(Cell::count(leak.turn as usize));
        row.extend([&leak.why, &leak.seen].map(|text| Cell::text(text.as_str())));
        table.push(row);
    }
    let looked: usize = report.systems.iter().flat_map(|s| &s.domains).map(|d| d.attempts).sum();
    let clean = (leaks.total == 0 && looked > 0).then(|| {
        Block::Text(format!(
            "No turn of {} attempts fetched something from outside that holds the right answer or names the benchmark.",
            count(looked as f64)
        ))
    });
    Section { id: "leakage", title: "Leakage check", blocks: blocks([clean, table.block()]) }
}

/// Attempts that did not pass.
pub(super) fn failures(report: &Report) -> Section {
    let failures = &report.failures;
    let mut table = Table::new(
        listed(
            "Attempts that did not pass; of each task and mode first what failed on our side, then what has no score, then what was right without a \
             computer and wrong with one, then the rest. “other mode” is the mean score of the same problem there. The attempt \
             leads to its record.",
            failures.items.len(),
            failures.total,
        ),
        &[
            "model",
            "attempt",
            "kind",
            "ended",
            ">score",
            ">other mode",
            "answer or cause",
            "expected",
        ],
    );
    for failure in &failures.items {
        let mut row = attempt(report, &failure.place);
        let kind = match failure.kind {
            Kind::Infrastructure => "failed here",
            Kind::Ungraded => "no score",
            Kind::LostWithComputer => "lost with computer",
            Kind::Wrong => "wrong",
        };
        let said = if failure.cause.is_empty() { &failure.answer } else { &failure.cause };
        row.extend([
            Cell::text(kind),
            Cell::text(&*failure.outcome),
            Cell::known(failure.score, percent),
            Cell::known(failure.other_mode, percent),
            Cell::text(if said.is_empty() { "(nothing)" } else { said }),
            Cell::text(&*failure.expected),
        ]);
        table.push(row);
    }
    Section { id: "failures", title: "Failures", blocks: blocks([table.block()]) }
}

fn attempt(report: &Report, place: &Place) -> Vec<Cell> {
    let label = report.systems.get(place.system).map(|system| system.label.as_str());
    let Place { task, mode, id, repeat, trajectory, .. } = place;
    let name = format!("{task} {mode} {id} #{repeat}");
    let link = trajectory.clone();
    vec![Cell::text(label.unwrap_or_default()), Cell { text: name, value: None, link }]
}

fn listed(caption: &str, shown: usize, total: usize) -> String {
    match total > shown {
        true => {
            format!("{caption} {} of {} are listed.", count(shown as f64), count(total as f64))
        }
        false => caption.to_owned(),
    }
}
