//! Sources: the runs, their unreadable files, and the statistical methods.

use super::{Block, Cell, Section, Table, scores::blocks, settings::of_single};
use crate::{Report, numbers::day};

/// The runs and their unreadable files.
pub(super) fn runs(report: &Report) -> Section {
    let mut table = Table::new(
        "Runs in this report.",
        &[
            "run",
            "model",
            "started",
            "program",
            "judge",
            ">planned",
            ">read",
            ">missing",
            ">unreadable files",
            ">no trajectory",
        ],
    );
    for (at, run) in report.runs.iter().enumerate() {
        // The label of its row says more than the model: runs of one model may differ in settings.
        let system = report.systems.iter().find(|system| system.runs.contains(&at));
        let model = system.map_or(&run.model, |system| &system.label);
        let started = day(run.started);
        let judge = if run.judge.is_empty() { "–" } else { &run.judge };
        let texts = [run.name.as_str(), model, &started, &run.program, judge];
        let mut row: Vec<Cell> = texts.map(Cell::text).to_vec();
        let counts = [run.planned, run.read, run.missing, run.damaged.total, run.without_events];
        row.extend(counts.map(Cell::count));
        table.push(row);
    }
    let mut unreadable = Vec::new();
    for run in &report.runs {
        let named = run.damaged.items.iter().map(|what| format!("{}: {what}", run.name));
        unreadable.extend(named);
        let rest = run.damaged.total - run.damaged.items.len().min(run.damaged.total);
        if rest > 0 {
            unreadable.push(format!("{}: {rest} more", run.name));
        }
    }
    let heading = (!unreadable.is_empty()).then(|| Block::Text("Unreadable files:".into()));
    let list = (!unreadable.is_empty()).then_some(Block::List(unreadable));
    Section {
        id: "runs",
        title: "Runs",
        blocks: blocks([table.block(), of_single(report), heading, list]),
    }
}

/// The statistical methods.
pub(super) fn method(report: &Report) -> Section {
    let list = [
        "Problems are the independent units. Repeats of a problem form one cluster: they make that problem's score more \
         precise, but do not increase the sample size."
            .to_owned(),
        "Scores and differences are over valid attempts. An attempt that failed because of the infrastructure, was cancelled \
         or was not graded is excluded and counted separately, never scored 0."
            .to_owned(),
        "A score is the mean over problems of the mean over their valid attempts; its standard error is that of the problems' \
         means."
            .to_owned(),
        format!(
            "Bootstrap intervals are percentiles over problems resampled with replacement (1,000 to 10,000 resamples, fewer \
             for many problems; seed {}). The same results give the same intervals and p-values.",
            report.method.seed
        ),
        "Differences are paired: the same problem on both sides, repeats averaged first. Problems of the same id whose \
         text or expected answer differs are not paired."
            .to_owned(),
        "p-values are two-sided: the exact McNemar test where all scores are 0 or 1 and every problem has one attempt on \
         each side; otherwise a sign-flip permutation test on the problems' differences, exact where they are multiples of \
         a common unit or at most 16 are nonzero, Monte Carlo with 10,000 draws elsewhere. All p-values shown are \
         Holm-corrected: over all rows of the comparison with the baseline, and over all rows of the effect of the sandbox."
            .to_owned(),
        "An average of tasks weighs every task equally: its interval resamples problems within their task, and its \
         sign-flip test weighs each problem as the average does."
            .to_owned(),
        "The minimum detectable effect (5% significance, 80% power) is 1.96 + 0.84 standard errors of the difference. For \
         the McNemar test it is at least the share of problems that must differ, all in one direction, for 6 discordant \
         pairs with 80% probability; fewer cannot reach p < 0.05."
            .to_owned(),
        "An attempt passes with a score of 1, up to a rounding error of 1e-9.".to_owned(),
        "Tokens, time, turns and memory exclude attempts that failed because of the infrastructure.".to_owned(),
    ];
    Section { id: "method", title: "Statistical methods", blocks: vec![Block::List(list.to_vec())] }
}
