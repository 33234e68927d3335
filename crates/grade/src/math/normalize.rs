//! Normalizes a LaTeX answer before parsing: opens boxes, removes decoration and units, repairs malformed fractions and
//! roots, in the order of the reference.
//!
//! Works on text and never fails; what it cannot repair stays as it is.

use std::borrow::Cow;
use std::sync::LazyLock;

use fancy_regex::{Captures, Regex};

use super::boxed::{self, Boxes};

/// Normalizes a LaTeX answer.
pub(super) fn normalize(latex: &str, boxes: Boxes) -> String {
    let mut text = boxed::contents(latex, boxes);
    text = basic(&text);
    text = without_units(text);
    if text.starts_with('.') {
        text.insert(0, '0');
    }
    if text == "0.5" {
        text = "\\frac{1}{2}".to_owned();
    }
    text = repair_operators(text);
    text = brace_roots(&text);
    text = brace_fractions(&text);
    text = slash_to_fraction(text);
    text.trim_matches(super::is_space).to_owned()
}

/// Builds a pattern of this module. All are constants, so a failure is a bug that the tests would show.
fn pattern(source: &str) -> Option<Regex> {
    let built = fancy_regex::RegexBuilder::new(source).backtrack_limit(200_000).build();
    debug_assert!(built.is_ok(), "{source}: {:?}", built.err());
    built.ok()
}

/// Replaces every match; a search beyond its limit counts as no match.
fn replace(regex: Option<&Regex>, text: String, with: impl Fn(&Captures) -> String) -> String {
    let Some(regex) = regex else { return text };
    if !regex.is_match(&text).unwrap_or(false) {
        return text;
    }
    let mut out = String::with_capacity(text.len());
    let mut last = 0;
    for captures in regex.captures_iter(&text) {
        let Ok(captures) = captures else { return text };
        let Some(whole) = captures.get(0) else { return text };
        out.push_str(&text[last..whole.start()]);
        out.push_str(&with(&captures));
        last = whole.end();
    }
    out.push_str(&text[last..]);
    out
}

fn group<'t>(captures: &Captures<'t>, index: usize) -> &'t str {
    captures.get(index).map_or("", |found| found.as_str())
}

static LEFT: LazyLock<Option<Regex>> = LazyLock::new(|| {
    pattern(
        r"\\m?left(\\\{|\{|\\\||\||\[|\(|\\rbracl|\\lgroup|\\lbrace|\\lbrack|\\vert|\\lvert|\\lceil|\\lfloor|\\langle|\\llcorner|\\ulcorner)",
    )
});
static RIGHT: LazyLock<Option<Regex>> = LazyLock::new(|| {
    pattern(
        r"\\m?right(\\\}|\}|\\\||\||\]|\)|\\rbrack|\\rgroup|\\rbrace|\\vert|\\rvert|\\rceil|\\rfloor|\\rangle|\\lrcorner|\\urcorner)",
    )
});
static FALLING: LazyLock<Option<Regex>> =
    LazyLock::new(|| pattern(r"\(([a-zA-Z0-9+\-*/\\ ]+?)\)_\{([a-zA-Z0-9+\-*/\\ ]+?)\}"));
static DOUBLED: LazyLock<Option<Regex>> = LazyLock::new(|| pattern(r"\\\\(?=[a-zA-Z])"));

fn basic(text: &str) -> String {
    let mut text = Cow::Borrowed(text);
    for (from, to) in [
        (r"\mathrm{T}", "T"),
        (r"\mathrm{d}", "d"),
        (r"{\rm d}", "d"),
        (r"\left[\begin{matrix}", r"\begin{bmatrix}"),
        (r"\end{matrix}\right]", r"\end{bmatrix}"),
    ] {
        if text.contains(from) {
            text = Cow::Owned(text.replace(from, to));
        }
    }
    let mut text = text.into_owned();
    if text.contains("left") {
        text = replace(LEFT.as_ref(), text, |found| group(found, 1).to_owned());
    }
    if text.contains("right") {
        text = replace(RIGHT.as_ref(), text, |found| group(found, 1).to_owned());
    }
    if text.contains(")_{") {
        text = replace(FALLING.as_ref(), text, |found| {
            let (n, k) = (group(found, 1), group(found, 2));
            format!("\\frac{{({n})!}}{{(({n})-({k}))!}}")
        });
    }
    if text.contains(['$', '"', '\'', '\\']) {
        text = without_decoration(&text);
    }
    text = rewrite(text);
    if text.contains(['\n', '\t']) {
        text = text.replace(['\n', '\t'], " ");
    }
    if text.contains("\\\\") && !text.contains("matrix") {
        text = replace(DOUBLED.as_ref(), text, |_| "\\".to_owned());
    }
    text
}

/// Drops quotes, dollar signs, negative space, empty text and display commands.
fn without_decoration(text: &str) -> String {
    let blank = |rest: &str| rest.trim_start_matches(super::is_space).len();
    let removed = |at: usize| -> usize {
        let rest = &text[at..];
        match rest.as_bytes()[0] {
            b'$' => 1,
            b'"' | b'\'' => usize::from(!text[..at].ends_with('\\')),
            b'\\' => {
                for fixed in ["\\mathrm{th}", "\\$", "\\displaystyle"] {
                    if rest.starts_with(fixed) {
                        return fixed.len();
                    }
                }
                if let Some(after) = rest.strip_prefix("\\!") {
                    return rest.len() - blank(after);
                }
                let empty = rest
                    .strip_prefix("\\text")
                    .and_then(|after| after.trim_start_matches(super::is_space).strip_prefix('{'))
                    .and_then(|after| after.trim_start_matches(super::is_space).strip_prefix('}'));
                empty.map_or(0, |after| rest.len() - after.len())
            }
            _ => 0,
        }
    };
    let mut out = String::with_capacity(text.len());
    let mut at = 0;
    while let Some(c) = text[at..].chars().next() {
        match removed(at) {
            0 => {
                out.push(c);
                at += c.len_utf8();
            }
            length => at += length,
        }
    }
    out
}

/// Alternatives tried in this order at each position, with their replacements.
const REWRITES: [(&str, &str); 20] = [
    (r"\\math(?:rm|it|bf)", "\\text"),
    (r"\\text(?:normal|bf|it|rm)", "\\text"),
    (r"\\(?:d|t|c)frac", "\\frac"),
    (r"\s\.", " 0."),
    (r"\{\.", "{0."),
    (r"~=", "\\approx"),
    (r"\s*\{\s*,\s*\}", ","),
    (r"(?<![a-zA-Z]),?\s*(?:and|or)(?![a-zA-Z])", ","),
    (r",?\s*\\text\{\s*(?:and|or)\s*\}", ","),
    (r"(?<!\\)\\\s", " "),
    (r"infinity", "\\infty"),
    (r",?\\ldots", " "),
    (r"\s*\bpercentage\b", "\\%"),
    (r"\\text\{percentage\}", "%"),
    (r"\s*\bpercent\b", "\\%"),
    (r"\\text\{percent\}", "%"),
    (r"\s*\bpct\b", "\\%"),
    (r"\\text\{pct\}", "%"),
    (r"(?<!\\)inf(?!inity)", "\\infty"),
    (r" sqrt", "\\sqrt"),
];

static REWRITE: LazyLock<Option<Regex>> = LazyLock::new(|| {
    let parts: Vec<String> = REWRITES.iter().map(|(from, _)| format!("({from})")).collect();
    pattern(&parts.join("|"))
});
/// A cheap test that rules out most texts before the alternation above runs.
static REWRITE_HINT: LazyLock<Option<Regex>> = LazyLock::new(|| {
    pattern(r"\\math|\\text|frac|\s\.|\{\.|~=|,\s*\}|and|or|\\\s|inf|\\ldots|percent|pct| sqrt")
});

fn rewrite(text: String) -> String {
    let wanted = REWRITE_HINT.as_ref().is_none_or(|hint| hint.is_match(&text).unwrap_or(true));
    if !wanted {
        return text;
    }
    replace(REWRITE.as_ref(), text, |found| {
        let index = (1..found.len()).find(|&index| found.get(index).is_some()).unwrap_or(1);
        REWRITES[index - 1].1.to_owned()
    })
}

static TEXT_UNIT: LazyLock<Option<Regex>> =
    LazyLock::new(|| pattern(r"(\\(?:text|mbox)\{.*?\})(\^\d|\{\^\d\})?$"));
static UNIT: LazyLock<Option<Regex>> =
    LazyLock::new(|| pattern(&format!(r"(\d|\}}|\s)\s*(?:(?:{UNITS})(?:s|es)?)\s*$")));

/// Words the reference drops at the end of an answer; a dot stands for any character, as it does there.
const UNITS: &str = "integerpoint|feet|sue|digit|pound|meal|edge|student|children ticket|multiple|east|degree|mph|kmph|ft|\
m square| m east|sq m|deg|mile|q .|monkey|prime|ratio|profit of rs|rd|o|gm|p . m|lb|tile|per|dm|lt|gain|ab|way|west|a .|b .|\
c .|d .|e .|f .|g .|h .|t|h|no change|men|soldier|pie|bc|excess|st|inches|noon|cent|by|gal|kmh|c|acre|rise|a . m|th|π r 2|sq|\
mark|l|toy|coin|sq . m|gallon|° f|profit|minw|yr|women|am|pm|hr|cu cm|square|v â € ™|are|rupee|rounds|cubic|cc|mtr|s|ohm|\
number|day|hour|minute|min|second|man|woman|sec|cube|mt|sq inch|mp|∏ cm ³|hectare|more|unit|cu . m|cm 2|rs .|rs|kg|g|\
month|km|m|cm|mm|apple|liter|loss|yard|pure|year|increase|decrease|d|less|Surface|litre|pi sq m|s .|metre|meter|inch";

fn without_units(text: String) -> String {
    let mut text = text;
    let worded = text.contains("\\text") || text.contains("\\mbox");
    let shorter = replace(TEXT_UNIT.as_ref().filter(|_| worded), text.clone(), |_| String::new());
    let shorter = shorter.trim_matches(super::is_space);
    if !shorter.is_empty() && shorter != text {
        text = shorter.to_owned();
    }
    for _ in 0..2 {
        let shorter = replace(UNIT.as_ref(), text.clone(), |found| group(found, 1).to_owned());
        if shorter == text || shorter.is_empty() {
            break;
        }
        text = shorter;
    }
    text
}

static REPAIRS: LazyLock<Vec<(Option<Regex>, &'static str, &'static str)>> = LazyLock::new(|| {
    [
        (r"\^\s?\((.*?)\)", "^", "^{1}"),
        (r"sqrt\s?\((.*?)\)", "sqrt", "\\sqrt{1}"),
        (r"\\frac\s?(\d)\s?(\d+)", "\\frac", "\\frac{1}{2}"),
        (r"\\log_\s?(\d)\s?(\d+)", "\\log_", "\\log_{1}{2}"),
        (r"\\frac\s?\{(.*?)\}\s?(\d)", "\\frac", "\\frac{1}{2}"),
        (r"\\frac\s?(\d)\s?\{(.*?)\}", "\\frac", "\\frac{1}{2}"),
        (r"\\sqrt\s?(\d)", "\\sqrt", "\\sqrt{1}"),
    ]
    .map(|(from, hint, to)| (pattern(from), hint, to))
    .into()
});

fn repair_operators(text: String) -> String {
    let mut text = text;
    for (regex, hint, shape) in REPAIRS.iter() {
        if text.contains(hint) {
            text = replace(regex.as_ref(), text, |found| {
                let head = shape.split('{').next().unwrap_or_default();
                let mut out = format!("{head}{{{}}}", group(found, 1));
                if shape.ends_with("{2}") {
                    out.push_str(&format!("{{{}}}", group(found, 2)));
                }
                out
            });
        }
    }
    if text.contains(" sqrt") { text.replace(" sqrt", "\\sqrt") } else { text }
}

fn brace_roots(text: &str) -> String {
    let mut parts = text.split("\\sqrt");
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let part = part.trim_start_matches(super::is_space);
        out.push_str("\\sqrt");
        match part.chars().next() {
            Some(first) if first != '{' && first != '[' => {
                out.push('{');
                out.push(first);
                out.push('}');
                out.push_str(&part[first.len_utf8()..]);
            }
            _ => out.push_str(part),
        }
    }
    out
}

fn brace_fractions(text: &str) -> String {
    let mut parts = text.split("\\frac");
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let part = part.trim_start_matches(super::is_space);
        out.push_str("\\frac");
        if part.starts_with('{') {
            out.push_str(part);
            continue;
        }
        let mut chars = part.chars();
        let (Some(top), Some(bottom)) = (chars.next(), chars.next()) else {
            return text.to_owned();
        };
        out.push('{');
        out.push(top);
        out.push('}');
        if bottom == '{' {
            out.push('{');
        } else {
            out.push('{');
            out.push(bottom);
            out.push('}');
        }
        out.push_str(chars.as_str());
    }
    out
}

fn slash_to_fraction(text: String) -> String {
    match text.split_once('/') {
        Some((top, bottom)) if is_plain_integer(top) && is_plain_integer(bottom) => {
            format!("\\frac{{{top}}}{{{bottom}}}")
        }
        _ => text,
    }
}

fn is_plain_integer(text: &str) -> bool {
    let digits = text.strip_prefix('-').unwrap_or(text);
    // Python rejects integers of more than 4300 digits, so such a fraction stays as it is.
    !digits.is_empty()
        && digits.len() <= 4300
        && digits.bytes().all(|byte| byte.is_ascii_digit())
        && (!digits.starts_with('0') || text == "0")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repairs_what_answers_get_wrong() {
        for (from, to) in [
            (r"\boxed{\frac12}", r"\frac{1}{2}"),
            (r"\boxed{\sqrt9}", r"\sqrt{9}"),
            (r"\boxed{186m}", "186"),
            (r"\boxed{5 \text{ cm}^2}", "5"),
            (r"\boxed{-3/4}", r"\frac{-3}{4}"),
            (r"\boxed{0.5}", r"\frac{1}{2}"),
            (r"\boxed{\left(1,2\right)}", "(1,2)"),
            (r"\boxed{3{,}220}", "3,220"),
            (r"\boxed{x=1 \text{ or } x=2}", "x=1, x=2"),
            (r"\boxed{18.0 percent}", r"18.0\%"),
            (r"\boxed{\$5}", "5"),
        ] {
            assert_eq!(normalize(from, Boxes::Last), to, "{from}");
        }
    }
}
