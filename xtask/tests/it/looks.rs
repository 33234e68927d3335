//! Reports and the page have one look: both use one style sheet, and charts have its colors.

use std::collections::BTreeMap;

use crate::texts;

type Colors = BTreeMap<String, (String, String)>;

/// The colors of the look: `--name: light-dark(LIGHT, DARK);`.
fn of_look(style: &str) -> Colors {
    let declared = style.lines().filter_map(|line| {
        let (name, value) = line.trim().strip_prefix("--")?.split_once(": light-dark(")?;
        let (light, dark) = value.strip_suffix(");")?.split_once(", ")?;
        Some((name.to_owned(), (long(light), long(dark))))
    });
    declared.collect()
}

/// The colors of charts, whose files stand alone: two rules for `:root`, the second for dark ones.
fn of_charts(style: &str) -> Colors {
    let rule = |from: usize| {
        let text = style.match_indices(":root{").nth(from).map_or("", |(at, start)| {
            let rest = &style[at + start.len()..];
            rest.split('}').next().unwrap_or_default()
        });
        let declared = text.split(';').filter_map(|it| it.strip_prefix("--")?.split_once(':'));
        let colors = declared.filter(|(_, value)| value.starts_with('#'));
        colors.map(|(name, value)| (name.to_owned(), long(value))).collect::<BTreeMap<_, _>>()
    };
    let dark = rule(1);
    let both = rule(0).into_iter().filter_map(|(name, light)| {
        let dark = dark.get(&name)?.clone();
        Some((name, (light, dark)))
    });
    both.collect()
}

/// `#abc` is `#aabbcc`.
fn long(color: &str) -> String {
    match color.strip_prefix('#').filter(|digits| digits.len() == 3) {
        Some(digits) => format!("#{}", digits.chars().flat_map(|c| [c, c]).collect::<String>()),
        None => color.to_owned(),
    }
}

#[test]
fn reports_and_the_page_have_one_look() {
    let texts = texts();
    let text = |path: &str| &texts.iter().find(|(name, _)| name == path).unwrap().1;
    let look = of_look(text("crates/plot/src/look.css"));
    let page = text("web/src/main.tsx");
    let own = page.find("import './styles/").unwrap();
    let shared = page.find("import '../../crates/plot/src/look.css'").unwrap();
    assert!(shared < own, "the page's own rules come after the look");
    assert!(text("crates/plot/src/page.rs").contains("include_str!(\"look.css\")"));
    let charts = of_charts(text("crates/plot/src/chart.css"));
    assert!(charts.len() >= 10, "{charts:?}");
    for (name, colors) in &charts {
        assert_eq!(Some(colors), look.get(name), "--{name}");
    }
    let others = texts.iter().filter(|(name, _)| {
        name.ends_with(".css") && !["look.css", "chart.css"].iter().any(|it| name.ends_with(it))
    });
    for (name, style) in others.filter(|(name, _)| !name.starts_with("web/dist/")) {
        // Paper has no dark scheme.
        let screen = style.split("@media print").next().unwrap_or_default();
        let again = look.keys().find(|color| screen.contains(&format!("--{color}:")));
        assert_eq!(again, None, "{name} sets a color of the look");
    }
}
