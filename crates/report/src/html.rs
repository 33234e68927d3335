//! Renders a report as one self-contained HTML page. Texts of models and datasets are escaped here and never reach
//! style, script or the host of a link.

use std::fmt::Write;

use plot::{Page, escape};

use crate::{
    Report,
    sections::{Align, Block, Cell, Coverage, Figure, Section, Table, sections, title},
};

/// Longer texts wrap.
const LONG: usize = 36;

/// Tables with more rows scroll.
const TALL: usize = 30;

/// Renders a report as one HTML page.
pub fn html(report: &Report) -> String {
    let sections = sections(report);
    let mut header = format!(
        "<a class=\"skip-link\" href=\"#summary\">Skip to the summary</a>\n\
         <header><h1>{}</h1>\n<p class=\"models\">{}</p></header>\n",
        title(report),
        names(report)
    );
    contents(&mut header, &sections);
    let mut main = String::new();
    let mut counter = Counter::default();
    sections.iter().for_each(|section| write_section(&mut main, section, &mut counter));
    let program = &report.program;
    Page {
        title: &page_title(report),
        style: include_str!("html/style.css"),
        script: include_str!("html/script.js"),
        header: &header,
        main: &main,
        footer: &format!(
            "Written by llm-in-sandbox {program}. The same results give the same page."
        ),
        ..Page::default()
    }
    .render()
}

/// A path as a link relative to the page. All but the plainest characters are encoded, so that no name can be read as
/// a scheme, a host or a fragment.
pub(crate) fn href(path: &str) -> String {
    let mut out = "./".to_owned();
    for byte in path.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'/' => {
                out.push(byte.into())
            }
            other => {
                let _ = write!(out, "%{other:02X}");
            }
        }
    }
    out
}

/// Numbers of figures and tables so far.
#[derive(Default)]
struct Counter {
    figures: usize,
    tables: usize,
}

fn page_title(report: &Report) -> String {
    let first = report.systems.first().map_or("no results", |system| system.label.as_str());
    match (report.systems.len(), Coverage::of(report)) {
        (0, _) | (1, Coverage::Nothing) => first.to_owned(),
        (1, Coverage::Both) => format!("{first}, with and without a sandbox"),
        (1, Coverage::Sandbox) => format!("{first}, with a sandbox"),
        (1, Coverage::Llm) => format!("{first}, without a sandbox"),
        (2, _) => format!("{first} and {} compared", report.systems[1].label),
        (more, _) => format!("{first} and {} more compared", more - 1),
    }
}

fn names(report: &Report) -> String {
    let shown = report.systems.iter().take(12).map(|system| bdi(&system.label));
    let mut names = shown.collect::<Vec<_>>().join(" · ");
    if report.systems.len() > 12 {
        let _ = write!(names, " · and {} more", report.systems.len() - 12);
    }
    names
}

fn contents(out: &mut String, sections: &[Section]) {
    out.push_str("<nav aria-label=\"Contents\"><ul>\n");
    for section in sections {
        let _ = writeln!(out, "<li><a href=\"#{}\">{}</a></li>", section.id, escape(section.title));
    }
    out.push_str("</ul></nav>\n");
}

fn write_section(out: &mut String, section: &Section, counter: &mut Counter) {
    let (id, title) = (section.id, escape(section.title));
    let _ = writeln!(
        out,
        "<section id=\"{id}\" aria-labelledby=\"{id}-title\">\n<h2 id=\"{id}-title\">{title}</h2>"
    );
    for block in &section.blocks {
        match block {
            Block::Text(text) => {
                let _ = writeln!(out, "<p>{}</p>", bdi(text));
            }
            Block::List(points) => {
                out.push_str("<ul>\n");
                for point in points {
                    let _ = writeln!(out, "<li>{}</li>", bdi(point));
                }
                out.push_str("</ul>\n");
            }
            Block::Folded(heading, text) => {
                let (heading, text) = (bdi(heading), bdi(text));
                let _ =
                    writeln!(out, "<details><summary>{heading}</summary><p>{text}</p></details>");
            }
            Block::Table(table) => write_table(out, table, counter),
            Block::Figure(figure) => write_figure(out, figure, counter),
        }
    }
    out.push_str("</section>\n");
}

fn write_figure(out: &mut String, figure: &Figure, counter: &mut Counter) {
    counter.figures += 1;
    let (number, caption) = (counter.figures, bdi(&figure.caption));
    let _ = writeln!(
        out,
        "<figure><div class=\"plot\">{}</div><figcaption><b>Figure {number}.</b> {caption}</figcaption></figure>",
        figure.svg
    );
}

fn write_table(out: &mut String, table: &Table, counter: &mut Counter) {
    counter.tables += 1;
    let (number, caption) = (counter.tables, bdi(&table.caption));
    let long = if table.rows.len() > TALL { " long" } else { "" };
    let _ = write!(
        out,
        "<div class=\"table\">\n<p class=\"caption\" id=\"t{number}\"><b>Table {number}.</b> {caption}</p>\n\
         <div class=\"scroll{long}\" tabindex=\"0\" role=\"region\" aria-labelledby=\"t{number}\">\
         <table aria-labelledby=\"t{number}\">\n<thead><tr>"
    );
    for column in &table.columns {
        let class = number_class(column.align);
        let _ = write!(out, "<th scope=\"col\"{class}>{}</th>", bdi(&column.name));
    }
    out.push_str("</tr></thead>\n<tbody>\n");
    for row in &table.rows {
        out.push_str("<tr>");
        for (cell, column) in row.iter().zip(&table.columns) {
            write_cell(out, cell, column.align);
        }
        out.push_str("</tr>\n");
    }
    out.push_str("</tbody></table></div></div>\n");
}

fn write_cell(out: &mut String, cell: &Cell, align: Align) {
    let value = cell.value.filter(|value| value.is_finite());
    let value = value.map(|value| format!(" data-v=\"{value}\"")).unwrap_or_default();
    let text = bdi(&cell.text);
    let text = match &cell.link {
        Some(path) => format!("<a href=\"{}\">{text}</a>", href(path)),
        None => text,
    };
    let long = align == Align::Left && cell.text.chars().count() > LONG;
    let class = if long { " class=\"w\"" } else { number_class(align) };
    let _ = write!(out, "<td{class}{value}>{text}</td>");
}

fn number_class(align: Align) -> &'static str {
    match align {
        Align::Left => "",
        Align::Right => " class=\"n\"",
    }
}

/// Isolates a text whose writing direction could reorder its surroundings.
fn bdi(text: &str) -> String {
    if text.is_ascii() { escape(text) } else { format!("<bdi>{}</bdi>", escape(text)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_escaped_and_isolated() {
        assert_eq!(bdi("é<"), "<bdi>é&lt;</bdi>");
    }

    #[test]
    fn paths_never_link_elsewhere() {
        assert_eq!(href("javascript:alert(1)"), "./javascript%3Aalert%281%29");
        assert_eq!(href("//evil/x"), ".///evil/x");
        assert_eq!(href("../a b/%2E.0.jsonl"), "./../a%20b/%252E.0.jsonl");
        assert_eq!(href("a\"><b>?#"), "./a%22%3E%3Cb%3E%3F%23");
    }
}
