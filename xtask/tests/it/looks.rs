//! Reports and the page have one look: their colors are the same.

use std::collections::BTreeMap;

use crate::texts;

type Colors = BTreeMap<String, (String, String)>;

/// The colors of the page: `--name: light-dark(LIGHT, DARK);`.
fn of_page(style: &str) -> Colors {
    let declared = style.lines().filter_map(|line| {
        let (name, value) = line.trim().strip_prefix("--")?.split_once(": light-dark(")?;
        let (light, dark) = value.strip_suffix(");")?.split_once(", ")?;
        Some((name.to_owned(), (long(light), long(dark))))
    });
    declared.collect()
}

/// The colors of reports: two rules for `:root`, the second for dark ones.
fn of_reports(style: &str) -> Colors {
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
fn reports_have_the_colors_of_the_page() {
    let texts = texts();
    let text = |path: &str| &texts.iter().find(|(name, _)| name == path).unwrap().1;
    let page = of_page(text("web/src/styles/base.css"));
    let files = [
        ("crates/plot/src/chart.css", 10),
        ("crates/plot/src/page.css", 3),
        ("crates/report/src/transcript/style.css", 5),
    ];
    for (file, least) in files {
        let reports = of_reports(text(file));
        let shared: Vec<_> = reports.iter().filter(|(name, _)| page.contains_key(*name)).collect();
        assert!(shared.len() >= least, "{file}: {shared:?}");
        for (name, colors) in shared {
            assert_eq!(Some(colors), page.get(name), "{file}: --{name}");
        }
    }
}
