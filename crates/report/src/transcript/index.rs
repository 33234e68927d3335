//! The list of the pages of a run.

use std::fmt::Write;

use plot::{Page, count};
use results::AttemptRecord;

use super::text::{counted, isolated};
use crate::{html::href, text::excerpt};

/// Attempts listed.
const ROWS: usize = 10_000;
/// Characters of a cell.
const CELL: usize = 120;

/// An attempt and its page.
#[derive(Clone, Debug)]
pub struct IndexRow {
    /// Task, mode, problem and number.
    pub name: [String; 4],
    /// How it ended, in words.
    pub outcome: String,
    /// From 0 to 1, where it is graded.
    pub score: Option<f64>,
    /// Turns.
    pub turns: u32,
    /// Name of the page.
    pub page: String,
}

impl IndexRow {
    /// The row of an attempt.
    pub fn new(attempt: &AttemptRecord, outcome: String, page: String) -> Self {
        let key = &attempt.key;
        let repeat = format!("#{}", key.repeat);
        Self {
            name: [&key.task, key.mode.name(), &key.id, &repeat].map(|text| excerpt(text, CELL)),
            outcome: excerpt(&outcome, CELL),
            score: attempt.score,
            turns: attempt.spent.turns,
            page,
        }
    }
}

/// Renders the list as one HTML page.
pub fn index(title: &str, rows: &[IndexRow]) -> String {
    let title = excerpt(title, CELL);
    let header = format!(
        "<header><p class=\"kind\">Benchmark run</p><h1>{}</h1>\n<p class=\"models\">{}</p></header>\n",
        isolated(&title),
        counted(rows.len(), "attempt")
    );
    let mut main = "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"Attempts\"><table>\n<thead><tr>\
                    <th scope=\"col\">attempt</th><th scope=\"col\">outcome</th><th scope=\"col\" class=\"n\">score</th>\
                    <th scope=\"col\" class=\"n\">turns</th></tr></thead>\n<tbody>\n"
        .to_owned();
    for row in rows.iter().take(ROWS) {
        let score = row.score.map_or_else(|| "–".to_owned(), |score| format!("{score:.3}"));
        let _ = writeln!(
            main,
            "<tr><td><a href=\"{}\">{}</a></td><td>{}</td><td class=\"n\">{score}</td><td class=\"n\">{}</td></tr>",
            href(&row.page),
            isolated(&row.name.join(" ")),
            isolated(&row.outcome),
            count(f64::from(row.turns)),
        );
    }
    main.push_str("</tbody></table></div>\n");
    if rows.len() > ROWS {
        let more = counted(rows.len() - ROWS, "more attempt");
        let _ = writeln!(
            main,
            "<p class=\"cut\">{more} not listed; their pages are in this directory.</p>"
        );
    }
    Page {
        title: &title,
        style: include_str!("style.css"),
        script: "",
        header: &header,
        main: &main,
        footer: "Written by llm-in-sandbox.",
        ..Page::default()
    }
    .render()
}
