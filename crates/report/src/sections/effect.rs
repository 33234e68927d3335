//! The effect of the sandbox: paired differences, their uncertainty, and the minimum detectable effect.

use plot::{IntervalRow, percent, points};

use super::{
    Cell, Section, Table, figure, group, interval, note,
    scores::{blocks, each},
    test,
};
use crate::{Report, numbers::p_value};

/// Paired differences by task.
pub(super) fn effect(report: &Report) -> Section {
    let mut table = Table::new(
        "Paired difference in percentage points, sandbox minus llm, over problems with valid attempts in both modes. 95% \
         confidence intervals: percentile bootstrap over problems, and normal approximation. p is two-sided, from an exact \
         test unless marked, and Holm-corrected for the number of rows. MDE: minimum detectable effect at 5% significance \
         and 80% power. Gained: problems solved only with the sandbox; lost: only without it.",
        &[
            "model",
            "task",
            ">problems",
            ">difference",
            ">95% CI (bootstrap)",
            ">95% CI (normal)",
            ">p (Holm)",
            ">MDE",
            ">gained",
            ">lost",
            "test",
        ],
    );
    let mut rows = Vec::new();
    for (system, task) in each(report) {
        let Some(found) = &task.difference else { continue };
        table.push(vec![
            Cell::text(&*system.label),
            Cell::text(&*task.task),
            Cell::count(found.problems),
            Cell::number(found.difference, points(found.difference)),
            interval(found.bootstrap),
            interval(found.normal),
            Cell::known(task.p_holm, p_value),
            Cell::known(found.minimum_detectable_effect, percent),
            Cell::count(task.gained.total),
            Cell::count(task.lost.total),
            Cell::text(test(found)),
        ]);
        rows.push(IntervalRow {
            group: group(report, &system.label),
            label: task.task.clone(),
            value: found.difference,
            interval: found.bootstrap.or(found.normal),
            note: note(found, task.p_holm),
        });
    }
    let drawing = plot::intervals(&rows, "Paired difference of scores, sandbox minus llm, by task");
    let caption = "Effect of the sandbox in percentage points, with 95% bootstrap confidence intervals and Holm-corrected \
                   p-values. Right of 0 the sandbox helps.";
    Section {
        id: "difference",
        title: "Effect of the sandbox",
        blocks: blocks([table.block(), figure(drawing, caption)]),
    }
}
