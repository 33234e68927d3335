//! Texts of models, datasets and servers never become markup, scripts or links, and reports stay bounded.

use lis_report::{Fact, Report, Source, html, markdown};
use proptest::prelude::*;
use results::Mode;

use crate::fabricate::Plan;

const NASTY: [&str; 8] = [
    "</script><img src=x onerror=alert(1)>",
    "\"><svg onload=alert(1)>",
    "javascript:alert(1)",
    "a\u{202e}b\u{2066}c\u{200b}",
    "\0\x1b[31m\r\n| x | y |\n# heading",
    "[click](https://example.com) ![p](https://example.com/p.png) `code` $x$",
    "{{constructor}} ${x} %0a <!-- --> ]]> </style>",
    "' onmouseover='x",
];

fn hostile(texts: &[&str]) -> Source {
    let plan = Plan {
        model: "m",
        seed: 3,
        problems: 8,
        repeats: 1,
        tasks: vec![("math", 0.4, 0.4)],
        broken: 3,
    };
    let mut source = plan.source();
    source.run.model = texts.join(" ");
    source.run.program = texts[0].to_owned();
    source.run.without = texts.iter().map(|text| (*text).to_owned()).collect();
    let attempts = plan.attempts().enumerate().map(|(at, mut attempt)| {
        let text = texts[at % texts.len()];
        attempt.key.task = texts[at % 2 % texts.len()].to_owned();
        attempt.key.id = format!("{text}{at}");
        attempt.answer = text.repeat((20_000 / text.len().max(1)).max(1));
        attempt.ground_truth = text.to_owned();
        attempt.domain = text.to_owned();
        if let trajectory::Outcome::Infrastructure { cause, .. } = &mut attempt.outcome {
            *cause = text.to_owned();
        }
        attempt
    });
    let facts = attempts.map(|attempt| Fact { recorded: true, ..Fact::of(attempt, None, &[]) });
    source.facts = facts.collect();
    source
}

/// Everything between `<` and `>`, and whether it is ours.
fn check_page(page: &str) {
    let allowed = [
        "!doctype",
        "a",
        "b",
        "bdi",
        "body",
        "button",
        "circle",
        "details",
        "div",
        "figcaption",
        "figure",
        "footer",
        "h1",
        "h2",
        "head",
        "header",
        "html",
        "li",
        "line",
        "main",
        "meta",
        "nav",
        "p",
        "polyline",
        "rect",
        "script",
        "section",
        "style",
        "summary",
        "svg",
        "table",
        "tbody",
        "td",
        "text",
        "th",
        "thead",
        "title",
        "tr",
        "ul",
    ];
    let (before, rest) = page.split_once("<script>").unwrap();
    let (script, after) = rest.split_once("</script>").unwrap();
    assert!(!after.contains("<script"), "a second script");
    assert_eq!(script, include_str!("../../src/html/script.js"));
    for tag in before.split('<').skip(1).chain(after.split('<').skip(1)) {
        let (tag, _) = tag.split_once('>').unwrap_or((tag, ""));
        let name = tag.trim_start_matches('/').split([' ', '/']).next().unwrap();
        assert!(allowed.contains(&name), "<{tag}>");
        let attributes: Vec<&str> = tag
            .split(' ')
            .skip(1)
            .filter_map(|word| word.split_once("=\""))
            .map(|(name, _)| name)
            .collect();
        assert!(
            !attributes
                .iter()
                .any(|name| name.starts_with("on") || *name == "src" || *name == "style"),
            "<{tag}>"
        );
        if let Some((_, address)) = tag.split_once("href=\"") {
            assert!(address.starts_with('#') || address.starts_with("./"), "<{tag}>");
        }
    }
    for c in page.chars() {
        let fine = c == '\n' || !c.is_control();
        assert!(
            fine && !('\u{200b}'..='\u{200f}').contains(&c)
                && !('\u{202a}'..='\u{202e}').contains(&c),
            "{c:?}"
        );
    }
}

#[test]
fn a_page_contains_no_foreign_markup() {
    let report = Report::of(&[hostile(&NASTY)]);
    let page = html(&report);
    check_page(&page);
    assert!(page.contains("&lt;img src=x onerror=alert(1)&gt;"));
    assert!(page.contains("\\u{202e}"));
    assert!(page.len() < 400_000, "{}", page.len());
}

#[test]
fn the_page_may_load_nothing() {
    let page = html(&Report::of(&[hostile(&["m"])]));
    let policy = page.split_once("Content-Security-Policy\" content=\"").unwrap().1;
    let policy = policy.split_once("\">").unwrap().0;
    assert!(policy.starts_with("default-src 'none'; style-src 'sha256-"), "{policy}");
    assert!(!policy.contains("unsafe"), "{policy}");
    // A style attribute would be refused by the policy, and an address would need the network.
    assert!(!page.contains(" style=") && !page.contains("http://") && !page.contains("https://"));
    assert!(page.contains("<title>m without m, with and without a sandbox</title>"));
}

#[test]
fn tables_in_markdown_keep_their_shape() {
    let report = Report::of(&[hostile(&NASTY)]);
    let text = markdown(&report);
    let mut columns = None;
    for line in text.lines() {
        if !line.starts_with('|') {
            columns = None;
            continue;
        }
        let bars = line.replace("\\|", "").matches('|').count();
        assert_eq!(*columns.get_or_insert(bars), bars, "{line}");
    }
    let bare = text.replace("\\<", "").replace("\\]", "");
    for markup in ["<img", "<svg", "](https", "\n# heading"] {
        assert!(!bare.contains(markup), "{markup}");
    }
    assert!(!text.chars().any(|c| c.is_control() && c != '\n'));
}

#[test]
fn huge_names_and_answers_stay_small() {
    let long = "x".repeat(1 << 20);
    let report = Report::of(&[hostile(&[&long])]);
    let size = serde_json::to_string(&report).unwrap().len();
    assert!(size < 100_000, "{size}");
    assert!(html(&report).len() < 400_000);
}

#[test]
fn extreme_numbers_do_not_panic() {
    let mut source = hostile(&["m"]);
    for fact in &mut source.facts {
        let attempt = &mut fact.attempt;
        attempt.spent.turns = u32::MAX;
        attempt.tokens.prompt = u64::MAX;
        attempt.tokens.environment = u64::MAX;
        attempt.spent.cost = Some(f64::MAX);
        attempt.started = u64::MAX;
        attempt.wall_ms = u64::MAX;
        attempt.peak_memory = Some(u64::MAX);
    }
    source.run.tasks[0].problems = usize::MAX;
    source.run.tasks[0].repeats = u32::MAX;
    source.run.started = u64::MAX;
    let report = Report::of(&[source]);
    check_page(&html(&report));
    assert!(report.systems[0].tasks.iter().any(|task| task.sandbox.is_some()));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn any_text_is_shown_safely(texts in prop::collection::vec("\\PC{0,20}|[\\x00-\\x7f]{0,20}|[<>&\"'`|_*]{0,12}", 1..4)) {
        let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
        let source = hostile(&texts);
        prop_assert!(source.facts.iter().any(|fact| fact.attempt.key.mode == Mode::Llm));
        let report = Report::of(&[source]);
        check_page(&html(&report));
        let text = markdown(&report);
        for (at, _) in text.match_indices('<') {
            let next = text[at + 1..].chars().next();
            let tag = next.is_some_and(|c| c.is_alphabetic() || "/!?".contains(c));
            prop_assert!(!tag || text[..at].ends_with('\\'), "{}", &text[at..]);
        }
    }
}
