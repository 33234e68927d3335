//! Snapshots of a small report: the whole Markdown text, and the structure of the HTML page.

use lis_report::{Report, html, markdown, read};

use crate::fabricate::Plan;

fn report() -> Report {
    let plan = Plan {
        model: "small",
        seed: 6,
        problems: 12,
        repeats: 2,
        tasks: vec![("math", 0.3, 0.7), ("chem", 0.5, 0.5)],
        broken: 12,
    };
    let dir = tempfile::tempdir().unwrap();
    let run = plan.write(&dir.path().join("run"));
    Report::of(&read(&[run], dir.path()).unwrap())
}

#[test]
fn markdown_report() {
    insta::assert_snapshot!(markdown(&report()));
}

/// Headings, captions and the number of rows or shapes of each table and figure.
#[test]
fn page_structure() {
    let page = html(&report());
    let text = |part: &str, end: &str| part.split(end).next().unwrap().to_owned();
    let mut lines = Vec::new();
    for part in page.split('<') {
        match part.split_once('>') {
            Some((tag, rest)) if tag.starts_with("h1") || tag.starts_with("h2") => {
                lines.push(format!("# {rest}"));
            }
            Some((tag, _)) if tag.starts_with("svg") => {
                lines.push(format!(
                    "figure: {}",
                    text(part.split("aria-label=\"").nth(1).unwrap(), "\"")
                ));
            }
            Some(("b", rest)) => lines.push(rest.to_owned()),
            Some((tag, _)) if tag.starts_with("table") => {
                let body = page.split(part).nth(1).unwrap();
                let body = text(body, "</table>");
                lines.push(format!("{} rows", body.matches("<tr>").count() - 1));
            }
            _ => {}
        }
    }
    insta::assert_snapshot!(lines.join("\n"));
}
