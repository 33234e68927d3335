//! Extracts the answer of a text: tries patterns by priority, the rightmost match first, until one parses.
//!
//! Returns at most one object and the text of the first match.

use std::sync::LazyLock;

use fancy_regex::{Captures, Regex};

use super::boxed::Boxes;
use super::convert::{number, read_latex};
use super::expr::Expr;
use super::normalize::normalize;
use super::patterns::{ENVIRONMENTS, LATEX, Needs, PLAIN, PREFIXES, Pattern, Target};
use super::plain;

/// The extracted object, if a match parsed, and the text of the first match.
#[derive(Debug, Default)]
pub(super) struct Extracted {
    pub(super) object: Option<Expr>,
    pub(super) text: Option<String>,
}

/// Longer texts are searched only near their end, where answers are.
const LONGEST_SEARCHED: usize = 50_000;
/// Most matches considered per pattern.
const MOST_MATCHES: usize = 2000;
/// Longest LaTeX that is parsed.
const LONGEST_READ: usize = 20_000;

struct Match<'t> {
    start: usize,
    end: usize,
    found: Found<'t>,
}

enum Found<'t> {
    /// From the first `\boxed{` to the last brace.
    Boxed(&'t str),
    Pattern(Captures<'t>, Target),
}

/// Extracts the answer of `text` by the given targets.
pub(super) fn extract(text: &str, targets: &[Target]) -> Extracted {
    let mut result = Extracted::default();
    let searched = tail(text);
    let lower = Lower::of(searched);
    for priority in [0, 50, 100, 200, 300] {
        let mut matches = Vec::new();
        for target in targets {
            let patterns: &'static [Pattern] = match target {
                Target::Plain => &PLAIN,
                Target::Latex => &LATEX,
            };
            for pattern in patterns.iter().filter(|pattern| pattern.priority == priority) {
                if lower.meets(pattern.needs) {
                    search(pattern, searched, *target, &mut matches);
                }
            }
            if *target == Target::Latex && priority == 50 {
                matches.extend(boxed(text));
            }
        }
        // Rightmost end first, then leftmost start; among equals the earlier pattern.
        matches.sort_by(|a, b| b.end.cmp(&a.end).then(a.start.cmp(&b.start)));
        for found in matches {
            let (object, text) = match found.found {
                Found::Boxed(latex) => read_boxed(latex),
                Found::Pattern(captures, Target::Plain) => read_plain(&captures),
                Found::Pattern(captures, Target::Latex) => read_environments(&captures),
            };
            if result.text.is_none() && !text.is_empty() {
                result.text = Some(text);
            }
            if object.is_some() {
                result.object = object;
                return result;
            }
        }
    }
    result
}

fn tail(text: &str) -> &str {
    if text.len() <= LONGEST_SEARCHED {
        return text;
    }
    let mut start = text.len() - LONGEST_SEARCHED;
    while !text.is_char_boundary(start) {
        start += 1;
    }
    &text[start..]
}

/// Properties of a text, computed once.
struct Lower {
    text: String,
    later_box: bool,
}

impl Lower {
    fn of(text: &str) -> Self {
        Self {
            text: text.to_lowercase(),
            later_box: text.rfind("\\boxed{").is_some_and(|at| at > 0),
        }
    }

    fn meets(&self, needs: Needs) -> bool {
        match needs {
            Needs::Word(word) => self.text.contains(word),
            Needs::LaterBox => self.later_box,
            Needs::Nothing => true,
        }
    }
}

fn search<'t>(pattern: &Pattern, text: &'t str, target: Target, matches: &mut Vec<Match<'t>>) {
    let Some(regex) = &pattern.regex else { return };
    if target == Target::Latex && !has_environment(text) {
        return;
    }
    for captures in regex.captures_iter(text).take(MOST_MATCHES) {
        let Ok(captures) = captures else { return };
        if let Some(whole) = captures.get(0) {
            matches.push(Match {
                start: whole.start(),
                end: whole.end(),
                found: Found::Pattern(captures, target),
            });
        }
    }
}

fn has_environment(text: &str) -> bool {
    static OPENING: LazyLock<Option<Regex>> =
        LazyLock::new(|| Regex::new(r"\$|\\\[|\\\(|\s\[|\\frac\{").ok());
    OPENING.as_ref().is_none_or(|regex| regex.is_match(text).unwrap_or(true))
}

fn boxed(text: &str) -> Option<Match<'_>> {
    let start = text.find("\\boxed{")?;
    let end = text.rfind('}')? + 1;
    (end > start + "\\boxed{".len() + 1).then(|| Match {
        start,
        end,
        found: Found::Boxed(&text[start..end]),
    })
}

fn read_boxed(latex: &str) -> (Option<Expr>, String) {
    let text = normalize(latex, Boxes::Last);
    (read(&text), text)
}

/// Parses LaTeX, or else the last part of a chain of equations.
fn read(latex: &str) -> Option<Expr> {
    if latex.len() > LONGEST_READ {
        return None;
    }
    if let Some(found) = read_latex(latex, !is_complex(latex)) {
        return Some(found);
    }
    let part = last_equation(latex)?;
    read_latex(part, !is_complex(part))
}

/// Whether a text mentions complex numbers or matrices, so that its symbols may be complex.
fn is_complex(latex: &str) -> bool {
    static SIGNS: LazyLock<Option<Regex>> = LazyLock::new(|| {
        Regex::new(concat!(
            r"\\mathbb\{C\}|\\i\b|\bi\b|\\text\{i\}|\\mathrm\{i\}|\\imath\b|\\det|\\operatorname\{tr\}|\\operatorname\{rank\}",
            r"|\\text\{rank\}|\\arg\{|\\Re\{|\\Im\{|\\operatorname\{Re\}|\\operatorname\{Im\}|\\text\{Re\}|\\text\{Im\}"
        ))
        .ok()
    });
    SIGNS.as_ref().is_some_and(|regex| regex.is_match(latex).unwrap_or(false))
}

/// What follows the last equals sign of three or more parts; lists stay whole.
fn last_equation(latex: &str) -> Option<&str> {
    if latex.contains([',', ';']) {
        return None;
    }
    let bytes = latex.as_bytes();
    let signs: Vec<usize> = (0..bytes.len())
        .filter(|&at| {
            bytes[at] == b'=' && !(at > 0 && matches!(bytes[at - 1], b'\\' | b'<' | b'!' | b'>'))
        })
        .collect();
    if signs.len() < 2 {
        return None;
    }
    latex.get(signs.last()? + 1..)
}

fn read_plain(captures: &Captures) -> (Option<Expr>, String) {
    let get = |name: &str| {
        captures.name(name).map(|found| found.as_str()).filter(|text| !text.is_empty())
    };
    let whole = ["int1", "int2", "int3"].into_iter().find_map(get);
    let decimals = ["dec1", "dec2", "dec3"].into_iter().find_map(get);
    if whole.is_some() || decimals.is_some() {
        let digits: String =
            whole.unwrap_or_default().chars().filter(|c| !matches!(c, ',' | ' ')).collect();
        let digits = digits.trim_start_matches('0');
        let text = format!(
            "{}{}",
            if digits.is_empty() { "0" } else { digits },
            decimals.unwrap_or_default().replace(',', ".")
        );
        let value = number(&text);
        let value = if get("percent").is_some() { value.map(Expr::percent) } else { value };
        return (value, text);
    }
    let text = captures.name("expr").map_or("", |found| found.as_str());
    (plain::read(text), text.to_owned())
}

fn read_environments(captures: &Captures) -> (Option<Expr>, String) {
    let mut objects = Vec::new();
    let mut texts = Vec::new();
    for prefix in PREFIXES {
        let found = ENVIRONMENTS
            .iter()
            .find_map(|name| captures.name(&format!("{prefix}{name}")))
            .filter(|found| !found.as_str().is_empty());
        let Some(found) = found else { continue };
        let text = normalize(found.as_str(), Boxes::All);
        let object = read(&text);
        let percent = captures.name(&format!("{prefix}percent")).is_some();
        objects.push(if percent { object.map(Expr::percent) } else { object });
        texts.push(text);
    }
    if objects.len() > 1 && objects.iter().all(Option::is_some) {
        let mut elements = Vec::new();
        for object in objects.into_iter().flatten() {
            match object {
                Expr::Set(more) => elements.extend(more),
                other => elements.push(other),
            }
        }
        return (Some(Expr::Set(elements)), texts.join(" and "));
    }
    let text = if texts.is_empty() { String::new() } else { texts.swap_remove(0) };
    (objects.into_iter().next().flatten(), text)
}
