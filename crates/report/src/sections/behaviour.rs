//! What models did: turns, capabilities of the computer, and how plain answers are written.

use super::{
    Cell, Column, Section, Table, figure, group,
    scores::{blocks, curve_label, each},
};
use crate::{
    Report,
    analysis::{Counts, Pattern},
    numbers::{count, percent},
    plot::{self, Bar, BarRow, Ink, Panel},
};

/// How often the model replied.
pub(super) fn turns(report: &Report) -> Section {
    let mut table = Table::new(
        "Replies of the model in an attempt with a computer.",
        &["model", "task", ">mean turns", ">median", ">most"],
    );
    let mut panels = Vec::new();
    for (system, task) in each(report) {
        let found = task.sandbox.as_ref().and_then(|found| found.turns.as_ref());
        let Some(turns) = found else { continue };
        table.push(vec![
            Cell::text(&*system.label),
            Cell::text(&*task.task),
            Cell::number(turns.mean, format!("{:.1}", turns.mean)),
            Cell::number(turns.median, format!("{:.1}", turns.median)),
            Cell::count(turns.most as usize),
        ]);
        panels.push(Panel {
            title: curve_label(report, system, task),
            bins: turns.histogram.iter().map(|bin| (bin.from, bin.to, bin.count)).collect(),
            mean: turns.mean,
        });
    }
    let drawing = plot::histograms(&panels, "Attempts by their number of turns");
    let caption = "Attempts with a computer by their number of turns; the line marks the mean.";
    Section {
        id: "turns",
        title: "Turns",
        blocks: blocks([table.block(), figure(drawing, caption)]),
    }
}

/// What the computer was used for.
pub(super) fn capabilities(report: &Report) -> Section {
    let mut table = Table::new(
        "Share of turns, in percent, that use a capability: resources from outside the sandbox, files, computation. By the \
         paper's list of patterns, and by what the commands and programs of the turn do (marked *).",
        &[
            "model",
            "domain",
            ">attempts",
            ">turns",
            ">external",
            ">files",
            ">computation",
            ">external*",
            ">files*",
            ">computation*",
        ],
    );
    let mut rows = Vec::new();
    for system in &report.systems {
        for domain in &system.domains {
            let found = &domain.capabilities;
            let rates = |counts: &Counts| {
                [counts.external_rate(), counts.file_rate(), counts.computation_rate()]
            };
            let mut row = vec![Cell::text(&*system.label), Cell::text(&*domain.domain)];
            row.extend([Cell::count(domain.attempts), Cell::count(found.paper.turns as usize)]);
            let shares = rates(&found.paper).into_iter().chain(rates(&found.extended));
            row.extend(shares.map(|share| Cell::number(share, percent(share))));
            table.push(row);
            let inks =
                [(Ink::First, "external"), (Ink::Second, "files"), (Ink::Third, "computation")];
            let bars = inks.into_iter().zip(rates(&found.paper));
            let bars = bars.map(|((ink, name), value)| Bar { ink, name, value, interval: None });
            rows.push(BarRow {
                group: group(report, &system.label),
                label: domain.domain.clone(),
                bars: bars.collect(),
            });
        }
    }
    let drawing = plot::bars(&rows, "Share of turns that use each capability, by domain");
    let caption =
        "Share of turns that use each capability, by domain, by the paper's list of patterns.";
    Section {
        id: "capabilities",
        title: "What the computer was used for",
        blocks: blocks([table.block(), figure(drawing, caption)]),
    }
}

/// How plain answers are written.
pub(super) fn answers(report: &Report) -> Section {
    let mut table = Table::new(
        "Patterns in plain answers, without a computer: the share of answers that speak of checking themselves and of those \
         with a visible structure, in percent; then how often each pattern occurs in a thousand words.",
        &["model", "task", ">answers", ">words each", ">checking", ">structured"],
    );
    table.columns.extend(Pattern::ALL.map(|pattern| Column::new(&format!(">{}", pattern.name()))));
    for (system, task) in each(report) {
        let Some(found) = &task.answers else { continue };
        let mut row = vec![Cell::text(&*system.label), Cell::text(&*task.task)];
        let words = found.words as f64 / found.answers.max(1) as f64;
        row.extend([Cell::count(found.answers as usize), Cell::number(words, count(words))]);
        let shares = [found.verifying_share(), found.structured_share()];
        row.extend(shares.map(|share| Cell::number(share, percent(share))));
        let rates = Pattern::ALL.map(|pattern| found.per_thousand_words(pattern));
        row.extend(rates.map(|rate| Cell::number(rate, format!("{rate:.1}"))));
        table.push(row);
    }
    Section {
        id: "answers",
        title: "How plain answers are written",
        blocks: blocks([table.block()]),
    }
}
