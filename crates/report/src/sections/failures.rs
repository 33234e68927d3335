//! Turns that may have retrieved the answer, and attempts that did not pass.

use plot::{count, percent};

use super::{Block, Cell, Coverage, Section, Table, scores::blocks};
use crate::{
    Report,
    data::{AttemptRef, FailureKind},
};

/// Turns that may have retrieved the answer.
pub(super) fn leaks(report: &Report) -> Section {
    let leaks = &report.leaks;
    let mut table = Table::new(
        listed(
            "Turns that retrieved external content which contains the expected answer or names the benchmark. Each needs a \
             review; none is proof.",
            leaks.items.len(),
            leaks.total,
        ),
        &["model", "attempt", ">turn", "why", "seen"],
    );
    for leak in &leaks.items {
        let mut row = attempt(report, &leak.attempt);
        row.push(Cell::count(leak.turn as usize));
        row.extend([&leak.why, &leak.seen].map(|text| Cell::text(text.as_str())));
        table.push(row);
    }
    let checked: usize = report.systems.iter().flat_map(|s| &s.domains).map(|d| d.attempts).sum();
    let clean = (leaks.total == 0 && checked > 0).then(|| {
        Block::Text(format!(
            "No turn of {} attempts retrieved external content that contains the expected answer or names the benchmark.",
            count(checked as f64)
        ))
    });
    Section { id: "leakage", title: "Leakage check", blocks: blocks([clean, table.block()]) }
}

/// Attempts that did not pass.
pub(super) fn failures(report: &Report) -> Section {
    let failures = &report.failures;
    let caption = match Coverage::of(report) {
        Coverage::Both => {
            "Attempts that did not pass, by task and mode: infrastructure failures first, then attempts that are not graded, \
             then problems solved without a sandbox only, then the rest. “other mode” is the mean score of the same problem \
             there. The attempt links to its episode."
        }
        _ => {
            "Attempts that did not pass, by task: infrastructure failures first, then attempts that are not graded, then the \
             rest. The attempt links to its episode."
        }
    };
    let mut table = Table::new(
        listed(caption, failures.items.len(), failures.total),
        &[
            "model",
            "attempt",
            "kind",
            "outcome",
            ">score",
            ">other mode",
            "answer or cause",
            "expected",
        ],
    );
    for failure in &failures.items {
        let mut row = attempt(report, &failure.attempt);
        let kind = match failure.kind {
            FailureKind::Infrastructure => "failed (infrastructure)",
            FailureKind::Ungraded => "not graded",
            FailureKind::LostWithSandbox => "lost with sandbox",
            FailureKind::Wrong => "wrong",
        };
        let text = if failure.cause.is_empty() { &failure.answer } else { &failure.cause };
        row.extend([
            Cell::text(kind),
            Cell::text(&*failure.outcome),
            Cell::known(failure.score, percent),
            Cell::known(failure.other_mode, percent),
            Cell::text(if text.is_empty() { "(empty)" } else { text }),
            Cell::text(&*failure.expected),
        ]);
        table.push(row);
    }
    Section { id: "failures", title: "Failures", blocks: blocks([table.block()]) }
}

fn attempt(report: &Report, attempt: &AttemptRef) -> Vec<Cell> {
    let label = report.systems.get(attempt.system).map(|system| system.label.as_str());
    let AttemptRef { task, mode, id, repeat, .. } = attempt;
    let name = format!("{task} {mode} {id} #{repeat}");
    let link = attempt.link().map(str::to_owned);
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
