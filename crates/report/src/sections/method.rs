//! Where the numbers come from: the runs, their damages, and how everything is computed.

use super::{Block, Cell, Section, Table, scores::blocks};
use crate::{Report, numbers::day};

/// The runs.
pub(super) fn runs(report: &Report) -> Section {
    let mut table = Table::new(
        "The runs this report is made from.",
        &[
            "run",
            "model",
            "begun",
            "program",
            "judge",
            ">asked",
            ">read",
            ">missing",
            ">damaged files",
            ">without events",
        ],
    );
    for run in &report.runs {
        let begun = day(run.started);
        let judge = if run.judge.is_empty() { "–" } else { &run.judge };
        let texts = [run.name.as_str(), &run.model, &begun, &run.program, judge];
        let mut row: Vec<Cell> = texts.map(Cell::text).to_vec();
        let counts = [run.asked, run.read, run.missing, run.damaged.total, run.without_events];
        row.extend(counts.map(Cell::count));
        table.push(row);
    }
    let mut damages = Vec::new();
    for run in &report.runs {
        let named = run.damaged.items.iter().map(|what| format!("{}: {what}", run.name));
        damages.extend(named);
        let rest = run.damaged.total - run.damaged.items.len().min(run.damaged.total);
        if rest > 0 {
            damages.push(format!("{}: {rest} more", run.name));
        }
    }
    let heading =
        (!damages.is_empty()).then(|| Block::Text("Files that could not be read:".into()));
    let list = (!damages.is_empty()).then_some(Block::List(damages));
    Section { id: "runs", title: "Runs", blocks: blocks([table.block(), heading, list]) }
}

/// How everything is computed.
pub(super) fn method(report: &Report) -> Section {
    let list = [
        "Problems are the independent units. Repeats of a problem are one cluster: they add to the precision of that \
         problem's score, not to the number of problems."
            .to_owned(),
        "The standard error of a score is cluster-robust with the factor G/(G−1) for G problems.".to_owned(),
        format!(
            "Intervals drawn anew are percentiles of means over problems drawn with replacement (1,000 to 10,000 times, fewer \
             for many problems; seed {}). They and p-values are the same each time a report is made.",
            report.method.seed
        ),
        "p-values are two-sided. Where every score is 0 or 1 and every problem has one attempt in each mode, McNemar's test \
         is exact. Otherwise the signs of the problems' differences are flipped: in every way up to 16 problems that differ, \
         at random beyond."
            .to_owned(),
        "The least difference a comparison could see is (1.96 + 0.84) standard errors of the difference found. For McNemar's \
         test it is no less than the share of problems that must differ, none of them the other way, for 6 to do so in 80% \
         of studies: fewer cannot show anything."
            .to_owned(),
        "An attempt passes with a score of 1, less a billionth for rounding.".to_owned(),
        "Tokens, time, turns and memory leave out attempts that failed on our side.".to_owned(),
    ];
    Section {
        id: "method",
        title: "How the numbers are made",
        blocks: vec![Block::List(list.to_vec())],
    }
}
