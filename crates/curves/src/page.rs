//! All charts on one page that needs nothing else and may load nothing.
//!
//! Names of runs and figures come from anywhere; they are escaped here and reach neither style nor script.

use std::fmt::Write;

use base64::{Engine, prelude::BASE64_STANDARD};
use sha2::{Digest, Sha256};

use crate::{
    Chart, Run, Smoothing, Summary,
    chart::{MOST_RUNS, charts, summary},
    draw::{self, inline},
    known::Section,
    number::short,
};

const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");

/// The page.
pub fn html(runs: &[Run], smoothing: Smoothing) -> String {
    let style = [draw::STYLE, STYLE].concat();
    let charts = charts(runs, smoothing);
    let mut out = String::new();
    // Only the style and the script whose hashes are given here take effect, whatever else gets into the page.
    let _ = write!(
        out,
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src '{}'; script-src '{}'; \
         base-uri 'none'; form-action 'none'\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         <title>Training curves</title>\n<style>{style}</style>\n</head>\n<body>\n\
         <header><h1>Training curves</h1>\n",
        hash(&style),
        hash(SCRIPT),
    );
    write_runs(&mut out, runs);
    out.push_str("</header>\n<main>\n");
    let mut section = None;
    for chart in &charts {
        write_chart(&mut out, chart, &mut section);
    }
    if section.is_some() {
        out.push_str("</div></section>\n");
    }
    write_table(&mut out, &summary(runs));
    let _ = write!(
        out,
        "</main>\n<footer><p>Made by llm-in-sandbox {}. The same runs give the same page.</p></footer>\n\
         <script>{SCRIPT}</script>\n</body>\n</html>\n",
        env!("CARGO_PKG_VERSION")
    );
    out
}

/// Text for elements and attributes.
pub(crate) fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            // XML, which SVG files are, has no way to write these.
            c if c.is_control() && !matches!(c, '\n' | '\t') => out.push('\u{fffd}'),
            '\u{fffe}' | '\u{ffff}' => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}

fn write_runs(out: &mut String, runs: &[Run]) {
    out.push_str("<p class=\"runs\">");
    for (at, run) in runs.iter().take(MOST_RUNS).enumerate() {
        let steps =
            run.figures.values().filter_map(|figure| figure.keys().next_back()).max().unwrap_or(&0);
        let bad = match run.bad_lines {
            0 => String::new(),
            bad => format!(", {bad} lines unread"),
        };
        let _ = write!(
            out,
            "<span><i class=\"b{at}\"></i>{} (to step {steps}{bad})</span>",
            escape(&run.name)
        );
    }
    if runs.len() > MOST_RUNS {
        let _ = write!(out, "<span>and {} more, in the table only</span>", runs.len() - MOST_RUNS);
    }
    out.push_str("</p>\n<p class=\"runs\">Faint points are the numbers as they were, lines their moving mean.</p>\n");
}

fn write_chart(out: &mut String, chart: &Chart, section: &mut Option<Section>) {
    if *section != Some(chart.section) {
        if section.is_some() {
            out.push_str("</div></section>\n");
        }
        let _ = writeln!(out, "<section><h2>{}</h2>\n<div class=\"plots\">", chart.section.title());
        *section = Some(chart.section);
    }
    let _ = writeln!(out, "<figure>{}</figure>", inline(chart));
}

fn write_table(out: &mut String, rows: &[Summary]) {
    out.push_str(
        "<section><h2>In numbers</h2>\n<p>First and last are means over a tenth of a run's steps.</p>\n\
         <div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"In numbers\"><table>\n<thead><tr><th scope=\"col\">Figure</th>\
         <th scope=\"col\">Run</th><th scope=\"col\" class=\"n\">Steps</th><th scope=\"col\" class=\"n\">First</th><th scope=\"col\" class=\"n\">Last</th>\
         <th scope=\"col\" class=\"n\">Lowest</th><th scope=\"col\" class=\"n\">Highest</th></tr></thead>\n<tbody>\n",
    );
    for row in rows {
        let _ = write!(
            out,
            "<tr><td>{}</td><td>{}</td><td class=\"n\">{} to {}</td>",
            escape(&row.title),
            escape(&row.run),
            row.steps[0],
            row.steps[1]
        );
        for number in [row.first, row.last, row.lowest, row.highest] {
            let _ = write!(out, "<td class=\"n\">{}</td>", short(number));
        }
        out.push_str("</tr>\n");
    }
    out.push_str("</tbody></table></div></section>\n");
}

fn hash(text: &str) -> String {
    format!("sha256-{}", BASE64_STANDARD.encode(Sha256::digest(text)))
}

#[cfg(test)]
#[path = "page_tests.rs"]
mod tests;
