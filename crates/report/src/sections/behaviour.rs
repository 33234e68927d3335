//! What models did: turns, use of the sandbox, and the style of answers without one.

use plot::{Bar, BarRow, Color, Panel, count, percent};

use super::{
    Cell, Column, Section, Table, figure, group,
    scores::{blocks, curve_label, each},
};
use crate::{
    Report,
    analysis::{Counts, StylePattern},
};

/// Turns per attempt.
pub(super) fn turns(report: &Report) -> Section {
    let mut table = Table::new(
        "Turns per sandbox attempt: one per response of the model.",
        &["model", "task", ">mean turns", ">median", ">maximum"],
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
    let drawing = plot::histograms(&panels, ["turns", "attempts"], "Attempts by number of turns");
    let caption = "Sandbox attempts by number of turns; the dashed line marks the mean.";
    Section {
        id: "turns",
        title: "Turns",
        blocks: blocks([table.block(), figure(drawing, caption)]),
    }
}

/// Use of the sandbox.
pub(super) fn capabilities(report: &Report) -> Section {
    let mut table = Table::new(
        "Percentage of turns that use a capability: external resources, files, computation. Classified by the paper's \
         patterns, and by the commands and programs a turn runs (marked *).",
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
            let colors = [Color::Pale, Color::Series(1), Color::Series(2)];
            let names = ["external", "files", "computation"];
            let bars = colors.into_iter().zip(names).zip(rates(&found.paper));
            let bars =
                bars.map(|((color, name), value)| Bar { color, name, value, interval: None });
            rows.push(BarRow {
                group: group(report, &system.label),
                label: domain.domain.clone(),
                bars: bars.collect(),
            });
        }
    }
    let drawing = plot::bars(&rows, "Percentage of turns that use each capability, by domain");
    let caption = "Percentage of turns that use each capability, by domain (the paper's patterns).";
    Section {
        id: "capabilities",
        title: "Sandbox use",
        blocks: blocks([table.block(), figure(drawing, caption)]),
    }
}

/// Style of answers without a sandbox.
pub(super) fn answers(report: &Report) -> Section {
    let mut table = Table::new(
        "Style of answers without a sandbox: the percentage with a word of checking, that check their own result, and that \
         have a visible structure; then occurrences of each pattern per thousand words.",
        &["model", "task", ">answers", ">mean words", ">checking", ">self-checks", ">structured"],
    );
    table
        .columns
        .extend(StylePattern::ALL.map(|pattern| Column::new(&format!(">{}", pattern.name()))));
    for (system, task) in each(report) {
        let Some(found) = &task.answers else { continue };
        let mut row = vec![Cell::text(&*system.label), Cell::text(&*task.task)];
        let words = found.words as f64 / found.answers.max(1) as f64;
        row.extend([Cell::count(found.answers as usize), Cell::number(words, count(words))]);
        let shares =
            [found.verifying_share(), found.self_checking_share(), found.structured_share()];
        row.extend(shares.map(|share| Cell::number(share, percent(share))));
        let rates = StylePattern::ALL.map(|pattern| found.per_thousand_words(pattern));
        row.extend(rates.map(|rate| Cell::number(rate, format!("{rate:.1}"))));
        table.push(row);
    }
    Section {
        id: "answers",
        title: "Style of answers without a sandbox",
        blocks: blocks([table.block()]),
    }
}
