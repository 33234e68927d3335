//! The effect of the sandbox: paired differences, their uncertainty, and the minimum detectable effect.

use plot::{IntervalRow, percent, points};

use super::{
    Cell, Section, Table, figure, group,
    scores::{blocks, each},
};
use crate::{
    Report,
    numbers::{p_text, p_value},
    stats::{Paired, Test},
};

/// Paired differences by task.
pub(super) fn compare(report: &Report) -> Section {
    let mut table = Table::new(
        "Paired difference in percentage points, sandbox minus llm, over problems with valid attempts in both modes. 95% \
         confidence intervals: percentile bootstrap over problems, and normal approximation. “p (Holm)” is corrected for \
         the number of the model's tasks. MDE: minimum detectable effect at 5% significance and 80% power.",
        &[
            "model",
            "task",
            ">problems",
            ">better",
            ">worse",
            ">difference",
            ">95% CI (bootstrap)",
            ">95% CI (normal)",
            ">p",
            ">p (Holm)",
            "test",
            ">MDE",
        ],
    );
    let mut rows = Vec::new();
    for (system, task) in each(report) {
        let Some(found) = &task.difference else { continue };
        table.push(vec![
            Cell::text(&*system.label),
            Cell::text(&*task.task),
            Cell::count(found.problems),
            Cell::count(found.better),
            Cell::count(found.worse),
            Cell::number(found.difference, points(found.difference)),
            interval(found.bootstrap),
            interval(found.normal),
            Cell::number(found.p, p_value(found.p)),
            Cell::known(task.p_holm, p_value),
            Cell::text(test(found)),
            Cell::known(found.minimum_detectable_effect, percent),
        ]);
        rows.push(IntervalRow {
            group: group(report, &system.label),
            label: task.task.clone(),
            value: found.difference,
            interval: found.bootstrap.or(found.normal),
            note: note(found),
        });
    }
    let drawing = plot::intervals(&rows, "Paired difference of scores, sandbox minus llm, by task");
    let caption = "Effect of the sandbox in percentage points, with 95% bootstrap confidence intervals. Right of 0 the \
                   sandbox helps.";
    Section {
        id: "difference",
        title: "Effect of the sandbox",
        blocks: blocks([table.block(), figure(drawing, caption)]),
    }
}

fn interval(found: Option<[f64; 2]>) -> Cell {
    let shown =
        |[low, high]: [f64; 2]| Cell::number(low, format!("{} to {}", points(low), points(high)));
    found.map_or_else(Cell::none, shown)
}

fn test(found: &Paired) -> &'static str {
    match found.test {
        Test::Mcnemar => "exact McNemar",
        Test::SignFlipsExact => "sign-flip permutation, exact",
        Test::SignFlips => "sign-flip permutation",
    }
}

fn note(found: &Paired) -> String {
    format!("{}  {}", points(found.difference), p_text(found.p))
}
