//! Regular expressions that extract answers from text: numbers, plain expressions and LaTeX environments, bare or after
//! words such as "final answer is", each with its priority.

use std::sync::LazyLock;

use fancy_regex::{Regex, RegexBuilder};

/// Backtracking steps per search; a search that needs more finds nothing.
const BACKTRACKS: usize = 300_000;

/// What is extracted from a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// Numbers and plain arithmetic.
    Plain,
    /// LaTeX in math delimiters or boxes.
    Latex,
}

/// A pattern, and a cheap condition under which it is tried.
#[derive(Debug)]
pub(super) struct Pattern {
    pub(super) regex: Option<Regex>,
    pub(super) priority: u32,
    pub(super) needs: Needs,
}

/// A cheap necessary condition on the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Needs {
    /// A word, in any case.
    Word(&'static str),
    /// A box that is not at the start.
    LaterBox,
    Nothing,
}

/// Names of the groups that capture LaTeX, after their prefix.
pub(super) const ENVIRONMENTS: [&str; 6] = ["DD", "DB", "ID", "IP", "IB", "FR"];
/// Prefixes of the groups of one match: up to six environments joined by words.
pub(super) const PREFIXES: [&str; 6] = ["a", "b", "c", "d", "e", "f"];

/// End of the text, optionally before a last line break.
const END: &str = r"(?=\n?\z)";

/// Patterns for numbers and plain expressions.
pub(super) static PLAIN: LazyLock<Vec<Pattern>> = LazyLock::new(|| {
    let number = concat!(
        r"(?<!\d)(?:(?P<int1>-?[1-9]\d{0,2}(?:[ ,]\d{3})+)(?P<dec1>\.\d+)?",
        r"|(?P<int2>-?\d+)(?P<dec2>[.,]\d+)|(?P<dec3>\.\d+)|(?P<int3>-?\d+))",
        r"(?P<percent>\s*(?:%|[Pp]ercent|\s*[Pp]ercentage|\s*[Pp]ct))?"
    );
    let operators = r"+\-*×/^()÷";
    let any = format!(r"[\d.\s{operators}]");
    let expression = format!(r"(?P<expr>-?\(?-?\d{any}*[{operators}]{any}+\)?)");
    let before = r"(?:\A|\s|=)(?:\*\*)?";
    let after = format!(r"(?:\*\*)?(?:\.|,|:|\s|\)|\$|{END})");
    let framed = format!("(?:{before}{expression}{after})");
    let money = r"[$€£¥₹₽₪₩₫฿₡₢₣₤₥₦₧₨₭₮₯₰₱₲₳₴₵₶₷₸₺₻₼₾₿]";
    let numbers = format!("(?:{before}{money}?{number})");
    let either = format!("(?:{framed}|{numbers})");
    let lead = r"(?:.{0,100}=\s*|.{0,50}?)";
    [
        (
            format!(r"(?i:final answer is):?\s*{either}\.?\s?I hope"),
            0,
            Needs::Word("final answer is"),
        ),
        (format!(r"(?i:final answer.{{0,100}}?)\s+is:?{either}"), 50, Needs::Word("final answer")),
        (format!(r"(?i:answer):{lead}{either}(?!\s*=)"), 100, Needs::Word("answer")),
        (format!(r"(?i:answer){lead}{either}(?!\s*=)"), 200, Needs::Word("answer")),
        (framed, 300, Needs::Nothing),
        (numbers, 300, Needs::Nothing),
    ]
    .map(|(source, priority, needs)| Pattern { regex: compile(&source), priority, needs })
    .into()
});

/// Patterns for LaTeX environments. The bare box is not among them: it is found without a pattern.
pub(super) static LATEX: LazyLock<Vec<Pattern>> = LazyLock::new(|| {
    let list = listed(Content::Any);
    let boxes = listed(Content::Box);
    [
        (
            format!(r"(?s)(?i:final answer is):?\s*{list}\.?\s?I hope"),
            0,
            Needs::Word("final answer is"),
        ),
        (
            format!(r"(?s)(?i:final answer.{{0,100}}?)\s+is:?\s*{list}"),
            50,
            Needs::Word("final answer"),
        ),
        (format!("(?s){boxes}"), 50, Needs::LaterBox),
        (format!(r"(?s)(?i:answer):.{{0,50}}?{list}"), 100, Needs::Word("answer")),
        (format!(r"(?s)(?i:answer).{{0,50}}?{list}"), 200, Needs::Word("answer")),
        (format!("(?s){list}"), 300, Needs::Nothing),
    ]
    .map(|(source, priority, needs)| Pattern { regex: compile(&source), priority, needs })
    .into()
});

/// What an environment must contain.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Content {
    Any,
    Box,
}

/// Up to six environments joined by commas and words.
fn listed(content: Content) -> String {
    let mut source = format!("(?:{}", environment(PREFIXES[0], content));
    let blank = if content == Content::Box { r"\s*" } else { "" };
    for prefix in &PREFIXES[1..] {
        source.push_str(&format!(
            r"{blank}(?:\s*(?:,?and|,?or|,)\s*{})?",
            environment(prefix, content)
        ));
    }
    source.push(')');
    source
}

fn environment(prefix: &str, content: Content) -> String {
    let inside = |one: &str| match content {
        Content::Any => format!("{one}+?"),
        Content::Box => format!(r"{one}*?\\boxed\{{{one}+?\}}{one}*?"),
    };
    let named = |name: &str, one: &str| format!("(?P<{prefix}{name}>{})", inside(one));
    let mut parts = vec![
        format!(r"(?<!\\)\$\${}(?<!\\)\$\$", named("DD", r"(?:[^$]|\$(?!\$))")),
        format!(r"(?<!\\)\\\[{}(?<!\\)\\\]", named("DB", r"(?:[^\\]|\\(?!\]))")),
        format!(r"(?<!\\)(?<!\d)\${}(?<!\\)\$", named("ID", r"(?:\\[$]|[^\n$])")),
        format!(r"(?<!\\)\\\({}(?<!\\)\\\)", named("IP", r"(?:[^\\\n]|\\(?!\)))")),
        format!(r"\s\[{}\]\s", named("IB", r"[^\n\]\[]")),
    ];
    if content == Content::Any {
        let number = r"-?\d+(?:[.,]\d+)?";
        parts.push(format!(r"(?P<{prefix}FR>-?\\frac\{{{number}\}}\{{{number}\}})"));
    }
    format!(
        r"(?:(?:{})\s*(?P<{prefix}percent>(?:\\?%|[Pp]ercent|[Pp]ercentage|[Pp]ct))?)",
        parts.join("|")
    )
}

fn compile(source: &str) -> Option<Regex> {
    let built = RegexBuilder::new(source).backtrack_limit(BACKTRACKS).build();
    debug_assert!(built.is_ok(), "{source}: {:?}", built.err());
    built.ok()
}
