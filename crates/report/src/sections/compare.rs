//! What the computer adds: paired differences, how sure they are, and what could have been seen.

use super::{
    Cell, Section, Table, figure, group,
    scores::{blocks, each},
};
use crate::{
    Report,
    numbers::{p_said, p_value, percent, points},
    plot::{self, ForestRow},
    stats::{Paired, Test},
};

/// Differences by task.
pub(super) fn compare(report: &Report) -> Section {
    let mut table = Table::new(
        "Score with a computer minus score without, in percentage points, over problems tried both ways. Intervals (95%): by \
         drawing problems anew, and from the standard error. “p (Holm)” is corrected for the number of a model's tasks. \
         “could see” is the least true difference that as many problems would show in 80% of studies.",
        &[
            "model",
            "task",
            ">problems",
            ">better",
            ">worse",
            ">difference",
            ">95% drawn anew",
            ">95% normal",
            ">p",
            ">p (Holm)",
            "test",
            ">could see",
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
            Cell::known(found.detectable, percent),
        ]);
        rows.push(ForestRow {
            group: group(report, &system.label),
            label: task.task.clone(),
            value: found.difference,
            interval: found.bootstrap.or(found.normal),
            note: note(found),
        });
    }
    let drawing =
        plot::forest(&rows, "Difference of scores, with a computer minus without, by task");
    let caption = "What the computer adds, in percentage points. Whiskers are 95% intervals from drawing problems anew; \
                   right of the line at 0 the computer helps.";
    Section {
        id: "difference",
        title: "What the computer adds",
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
        Test::Mcnemar => "McNemar, exact",
        Test::SignFlipsExact => "sign flips, exact",
        Test::SignFlips => "sign flips",
    }
}

fn note(found: &Paired) -> String {
    format!("{}  {}", points(found.difference), p_said(found.p))
}
