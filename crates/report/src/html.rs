//! The report as one page that needs nothing else: styles, script and figures are in it, and it may load
//! nothing. Texts of models and rows are escaped here and nowhere reach style, script or an address.

use std::fmt::Write;

use base64::{Engine, prelude::BASE64_STANDARD};
use sha2::{Digest, Sha256};

use crate::{
    Report,
    sections::{Align, Block, Cell, Figure, Section, Table, sections},
};

const STYLE: &str = include_str!("html/style.css");
const SCRIPT: &str = include_str!("html/script.js");

/// Texts with more characters are broken into lines.
const LONG: usize = 36;

/// Tables with more rows scroll below their heading.
const TALL: usize = 30;

/// The page.
pub fn html(report: &Report) -> String {
    let sections = sections(report);
    let title = title(report);
    let mut out = String::new();
    // Only the style and the script whose hashes are given here take effect, whatever else gets into the page.
    let _ = write!(
        out,
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src '{}'; script-src '{}'; \
         base-uri 'none'; form-action 'none'\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         <title>{}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n\
         <a class=\"skip\" href=\"#summary\">Skip to the summary</a>\n<header><h1>With and without a computer</h1>\n<p class=\"models\">{}</p></header>\n",
        hash(STYLE),
        hash(SCRIPT),
        escape(&title),
        names(report),
    );
    contents(&mut out, &sections);
    out.push_str("<main>\n");
    let mut counter = Counter::default();
    sections.iter().for_each(|section| write_section(&mut out, section, &mut counter));
    let _ = write!(
        out,
        "</main>\n<footer><p>Made by llm-in-sandbox {}. The same results give the same page.</p></footer>\n\
         <script>{SCRIPT}</script>\n</body>\n</html>\n",
        escape(&report.program)
    );
    out
}

/// Text for the page, in elements and in attributes.
pub(crate) fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            c => out.push(c),
        }
    }
    out
}

/// A path as an address relative to the page. Everything but the plainest characters is encoded, so that no
/// name can pass for a scheme, a host or a fragment.
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

/// Figures and tables are numbered through.
#[derive(Default)]
struct Counter {
    figures: usize,
    tables: usize,
}

fn title(report: &Report) -> String {
    let first = report.systems.first().map_or("no results", |system| system.label.as_str());
    match report.systems.len() {
        0 | 1 => format!("{first}, with and without a computer"),
        more => format!("{first} and {} more, with and without a computer", more - 1),
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

/// A text whose direction of writing cannot reorder what is around it.
fn bdi(text: &str) -> String {
    if text.is_ascii() { escape(text) } else { format!("<bdi>{}</bdi>", escape(text)) }
}

fn hash(text: &str) -> String {
    format!("sha256-{}", BASE64_STANDARD.encode(Sha256::digest(text)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_text_becomes_markup() {
        assert_eq!(
            escape("</td><img onerror='x'>&\""),
            "&lt;/td&gt;&lt;img onerror=&#39;x&#39;&gt;&amp;&quot;"
        );
        assert_eq!(bdi("é<"), "<bdi>é&lt;</bdi>");
    }

    #[test]
    fn no_path_becomes_an_address_elsewhere() {
        assert_eq!(href("javascript:alert(1)"), "./javascript%3Aalert%281%29");
        assert_eq!(href("//evil/x"), ".///evil/x");
        assert_eq!(href("../a b/%2E.0.jsonl"), "./../a%20b/%252E.0.jsonl");
        assert_eq!(href("a\"><b>?#"), "./a%22%3E%3Cb%3E%3F%23");
    }
}
