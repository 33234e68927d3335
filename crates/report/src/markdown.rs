//! Renders a report as Markdown, without figures.

use crate::{
    Report,
    sections::{Align, Block, Cell, Section, Table, sections, summary, title},
};

/// Renders the whole report.
pub fn markdown(report: &Report) -> String {
    write(report, &sections(report))
}

/// Renders the summary, the scores and the differences.
pub fn markdown_summary(report: &Report) -> String {
    write(report, &summary(report))
}

fn write(report: &Report, sections: &[Section]) -> String {
    let mut out = format!("# {}\n", title(report));
    for section in sections {
        out.push_str(&format!("\n## {}\n", section.title));
        for block in &section.blocks {
            match block {
                Block::Text(text) => out.push_str(&format!("\n{}\n", plain(text))),
                Block::List(points) => {
                    out.push('\n');
                    points.iter().for_each(|point| out.push_str(&format!("- {}\n", plain(point))));
                }
                Block::Folded(heading, text) => {
                    out.push_str(&format!("\n{}: {}.\n", plain(heading), plain(text)));
                }
                Block::Table(table) => write_table(&mut out, table),
                Block::Figure(_) => {}
            }
        }
    }
    out
}

fn write_table(out: &mut String, table: &Table) {
    let heads = table.columns.iter().map(|column| plain(&column.name)).collect::<Vec<_>>();
    let rules = table.columns.iter().map(|column| match column.align {
        Align::Left => "---",
        Align::Right => "---:",
    });
    out.push_str(&format!("\n| {} |\n", heads.join(" | ")));
    out.push_str(&format!("|{}|\n", rules.collect::<Vec<_>>().join("|")));
    for row in &table.rows {
        let cells = row.iter().map(cell).collect::<Vec<_>>();
        out.push_str(&format!("| {} |\n", cells.join(" | ")));
    }
    out.push_str(&format!("\n{}\n", plain(&table.caption)));
}

fn cell(cell: &Cell) -> String {
    match &cell.link {
        Some(path) => format!("[{}]({})", plain(&cell.text), crate::html::href(path)),
        None => plain(&cell.text),
    }
}

/// Escapes whatever could be markup. Underscores within words stay: they are not markup there.
pub(crate) fn plain(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut before = ' ';
    let mut rest = text.chars().peekable();
    while let Some(c) = rest.next() {
        let inside = before.is_alphanumeric() && rest.peek().is_some_and(|c| c.is_alphanumeric());
        let escaped = match c {
            '_' => !inside,
            '\\' | '`' | '*' | '[' | ']' | '|' | '&' | '~' | '$' => true,
            // A tag begins with a letter or one of these; `<0.001` is not one.
            '<' => rest.peek().is_some_and(|c| c.is_alphabetic() || "/!?".contains(*c)),
            '>' => out.trim().is_empty(),
            // Begins an image only before a bracket.
            '!' => rest.peek() == Some(&'['),
            '#' => before == ' ' && out.trim().is_empty(),
            _ => false,
        };
        if escaped {
            out.push('\\');
        }
        // A line break would end the cell.
        out.push(if c == '\n' || c == '\r' { ' ' } else { c });
        before = c;
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markup_is_escaped() {
        assert_eq!(plain("instruct_follow _x_"), "instruct_follow \\_x\\_");
        assert_eq!(plain("a|b\nc"), "a\\|b c");
        assert_eq!(plain("<img src=x>"), "\\<img src=x>");
        assert_eq!(plain("[a](javascript:x) ![b](c)"), "\\[a\\](javascript:x) \\!\\[b\\](c)");
        assert_eq!(plain("p <0.001 > # quote"), "p <0.001 > # quote");
        assert_eq!(plain("> quote"), "\\> quote");
        assert_eq!(plain("95% ± 1.2, Qwen/Qwen3-32B"), "95% ± 1.2, Qwen/Qwen3-32B");
    }
}
