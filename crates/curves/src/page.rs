//! All charts on one HTML page that loads nothing.

use std::fmt::Write;

use plot::{Page, escape, short};

use crate::{
    Chart, Run, Smoothing, Summary,
    chart::{MOST_RUNS, charts, summary},
    draw::inline,
    label::Section,
    sets::before_and_after,
};

/// Draws all charts of some runs on one page, with a table of their numbers below.
pub fn html(runs: &[Run], smoothing: Smoothing) -> String {
    let mut main = String::new();
    let mut section = None;
    for chart in &charts(runs, smoothing) {
        write_chart(&mut main, chart, &mut section);
    }
    if section.is_some() {
        main.push_str("</div></section>\n");
    }
    if let Some(sets) = before_and_after(runs) {
        main.push_str("<section><h2>Validation sets</h2>\n<div class=\"plots\">");
        let _ = writeln!(main, "<figure>{sets}</figure></div></section>");
    }
    write_table(&mut main, &summary(runs));
    let version = env!("CARGO_PKG_VERSION");
    Page {
        title: "Training curves",
        style: include_str!("page.css"),
        script: include_str!("page.js"),
        header: &header(runs),
        main: &main,
        footer: &format!("Written by llm-in-sandbox {version}. The same runs give the same page."),
        ..Page::default()
    }
    .render()
}

fn header(runs: &[Run]) -> String {
    let mut out = "<header><h1>Training curves</h1>\n<p class=\"runs\">".to_owned();
    for (at, run) in runs.iter().take(MOST_RUNS).enumerate() {
        let steps = run.metrics.values().filter_map(|numbers| numbers.keys().next_back());
        let bad = match run.bad_lines {
            0 => String::new(),
            bad => format!(", {bad} unreadable lines"),
        };
        let _ = write!(
            out,
            "<span><svg viewBox=\"0 0 8 8\"><circle class=\"s{at}\" cx=\"4\" cy=\"4\" r=\"4\"/></svg>{} (to step {}{bad})</span>",
            escape(&run.name),
            steps.max().unwrap_or(&0),
        );
    }
    if runs.len() > MOST_RUNS {
        let _ = write!(out, "<span>and {} more, in the table only</span>", runs.len() - MOST_RUNS);
    }
    out + "</p>\n<p class=\"runs\">Faint points are raw values, lines their moving average; bands are 95% intervals.</p></header>\n"
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
        "<section><h2>Summary</h2>\n<p>First and last are means over the first and last tenth of a run's steps.</p>\n\
         <div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"Summary\"><table>\n<thead><tr><th scope=\"col\">Metric</th>\
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

#[cfg(test)]
#[path = "page_tests.rs"]
mod tests;
