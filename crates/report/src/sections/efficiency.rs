//! Cost: tokens by origin, time, memory and money.

use plot::{Color, PointPair, StackRow, compact, count, percent};
use results::Mode;

use super::{
    Cell, Coverage, MODES, Section, Table, figure, group,
    scores::{blocks, curve_label, each, modes},
};
use crate::{
    Report,
    data::ModeReport,
    numbers::{bytes, dollars, seconds},
};

/// Tokens by origin.
pub(super) fn tokens(report: &Report) -> Section {
    let mut table = Table::new(
        "Mean tokens per attempt, each counted once however often it was sent: first messages (prompt), responses (model), \
         observations (environment). “sandbox/llm” is the ratio of totals over problems attempted in both modes.",
        &[
            "model",
            "task",
            "mode",
            ">prompt",
            ">model",
            ">environment",
            ">total",
            ">environment %",
            ">sandbox/llm",
        ],
    );
    let (mut rows, mut pairs) = (Vec::new(), Vec::new());
    for (system, task) in each(report) {
        for (mode, found) in modes(task) {
            let Some(tokens) = &found.tokens else { continue };
            let ratio = task.token_ratio.filter(|_| mode == Mode::Sandbox);
            let mut row =
                vec![Cell::text(&*system.label), Cell::text(&*task.task), Cell::text(mode.name())];
            let amounts = [tokens.prompt, tokens.model, tokens.environment, tokens.total];
            row.extend(amounts.map(|amount| Cell::number(amount, count(amount))));
            row.push(Cell::known(tokens.environment_share, percent));
            row.push(Cell::known(ratio, |ratio| format!("{ratio:.2}")));
            table.push(row);
            rows.push(StackRow {
                group: group(report, &system.label),
                label: format!("{}, {}", task.task, mode.name()),
                parts: vec![tokens.prompt, tokens.model, tokens.environment],
            });
        }
        let end = |found: &ModeReport| Some((found.tokens?.total, found.score?.mean));
        pairs.push(PointPair {
            label: curve_label(report, system, task),
            from: task.llm.as_ref().and_then(end),
            to: task.sandbox.as_ref().and_then(end),
        });
    }
    let parts =
        [(Color::Pale, "prompt"), (Color::Series(1), "model"), (Color::Series(2), "environment")];
    let stacks = plot::stacks(&rows, &parts, "Mean tokens per attempt by origin");
    let scatter = plot::scatter(
        &pairs,
        MODES,
        "mean tokens per attempt (log scale)",
        &Coverage::of(report).naming_modes("Score against tokens"),
    );
    Section {
        id: "tokens",
        title: "Tokens",
        blocks: blocks([
            table.block(),
            figure(stacks, "Mean tokens per attempt, by origin."),
            figure(
                scatter,
                match Coverage::of(report) {
                    Coverage::Both => {
                        "Mean score against mean tokens per attempt. A line joins the two modes of a task."
                    }
                    _ => "Mean score against mean tokens per attempt.",
                },
            ),
        ]),
    }
}

/// Time, memory and cost.
pub(super) fn resources(report: &Report) -> Section {
    let mut table = Table::new(
        "Time per attempt in the model and in tools, without queueing; “execution %” is the share of tools. Rates are per \
         minute with at least one attempt running, so they depend on concurrency. Memory is the peak of a sandbox.",
        &[
            "model",
            "task",
            "mode",
            ">mean time",
            ">median time",
            ">execution %",
            ">model calls/min",
            ">attempts/min",
            ">mean peak memory",
            ">maximum memory",
            ">cost",
        ],
    );
    for (system, task) in each(report) {
        for (mode, found) in modes(task) {
            let Some(time) = &found.time else { continue };
            let rate = |rate: f64| {
                if rate < 100.0 { format!("{rate:.1}") } else { compact(rate) }
            };
            let cost = found.cost.map(|cost| cost.total);
            table.push(vec![
                Cell::text(&*system.label),
                Cell::text(&*task.task),
                Cell::text(mode.name()),
                Cell::number(time.mean_s, seconds(time.mean_s)),
                Cell::number(time.median_s, seconds(time.median_s)),
                Cell::known(time.execution_share, percent),
                Cell::known(time.calls_per_minute, rate),
                Cell::known(time.attempts_per_minute, rate),
                Cell::known(found.memory.map(|memory| memory.mean), bytes),
                Cell::known(found.memory.map(|memory| memory.max as f64), bytes),
                Cell::known(cost, dollars),
            ]);
        }
    }
    Section { id: "resources", title: "Time, memory, cost", blocks: blocks([table.block()]) }
}
