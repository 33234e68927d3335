//! What it costs: tokens by who wrote them, time, memory and money.

use results::Mode;

use super::{
    Cell, Section, Table, figure, group,
    scores::{blocks, curve_label, each, modes},
};
use crate::{
    Report,
    data::ModeReport,
    numbers::{bytes, count, dollars, percent, seconds, short_count},
    plot::{self, Journey, StackRow},
};

/// Tokens by who wrote them.
pub(super) fn tokens(report: &Report) -> Section {
    let mut table = Table::new(
        "Tokens of a mean attempt, each counted once however often it was sent: the first messages (prompt), what the model \
         wrote, what the computer answered (environment). “sandbox/llm” is the ratio of the totals over problems tried both ways.",
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
    let (mut rows, mut journeys) = (Vec::new(), Vec::new());
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
                parts: [tokens.prompt, tokens.model, tokens.environment],
            });
        }
        let end = |found: &ModeReport| Some((found.tokens?.total, found.score?.mean));
        journeys.push(Journey {
            label: curve_label(report, system, task),
            from: task.llm.as_ref().and_then(end),
            to: task.sandbox.as_ref().and_then(end),
        });
    }
    let names = ["prompt", "model", "environment"];
    let stacks = plot::stacks(&rows, names, "Tokens of a mean attempt by who wrote them");
    let scatter = plot::scatter(&journeys, "Score against tokens, without and with a computer");
    Section {
        id: "tokens",
        title: "Tokens",
        blocks: blocks([
            table.block(),
            figure(stacks, "Tokens of a mean attempt, by who wrote them."),
            figure(
                scatter,
                "What a score costs: mean score against the tokens of a mean attempt. A line joins the two modes of a task.",
            ),
        ]),
    }
}

/// Time, memory and money.
pub(super) fn resources(report: &Report) -> Section {
    let mut table = Table::new(
        "Time of an attempt is that of the model and the tools, without waiting for either; “execution %” is the share of running tools in the time of models and tools. Rates count the \
         minutes in which at least one attempt was under way, so they depend on how many ran at once. Memory is the most a \
         sandbox had in use.",
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
            ">most memory",
            ">cost",
        ],
    );
    for (system, task) in each(report) {
        for (mode, found) in modes(task) {
            let Some(time) = &found.time else { continue };
            let rate = |rate: f64| {
                if rate < 100.0 { format!("{rate:.1}") } else { short_count(rate) }
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
    Section { id: "resources", title: "Time, memory, money", blocks: blocks([table.block()]) }
}
