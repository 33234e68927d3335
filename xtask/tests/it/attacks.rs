//! The attacks that the pages on security name exist.

use crate::{none, texts};

/// The pages that name attacks.
const PAGES: [&str; 2] = ["docs/security.md", "docs/attacks.md"];
/// How the pages name them, and where they are: those on the native runtime, and those on containers.
const SOURCES: [(&str, &str); 2] = [
    ("security::", "crates/sandbox-native/tests/it/security/"),
    ("docker::", "crates/sandbox-docker/tests/it/security/"),
];

/// What is wrong with the names `PREFIX::MODULE::TEST` of a page. `source` returns the text of a module.
fn complaints<'a>(
    page: &str,
    prefix: &str,
    source: impl Fn(&str) -> Option<&'a str>,
) -> Vec<String> {
    let names = page.split('`').skip(1).step_by(2).filter_map(|name| name.strip_prefix(prefix));
    names
        .filter_map(|name| {
            let (module, test) = name.split_once("::").map_or((name, None), |(m, t)| (m, Some(t)));
            let Some(text) = source(module) else { return Some(format!("no module {module}")) };
            let test = test?;
            (!text.contains(&format!("#[test]\nfn {test}("))).then(|| format!("no test {name}"))
        })
        .collect()
}

#[test]
fn named_attacks_exist() {
    let texts = texts();
    let text = |path: &str| texts.iter().find(|(name, _)| name == path).map(|(_, t)| t.as_str());
    for page in PAGES {
        let page = text(page).unwrap();
        assert!(page.contains("`security::"), "the page names no attack");
        for (prefix, sources) in SOURCES {
            none(&complaints(page, prefix, |module| text(&format!("{sources}{module}.rs"))));
        }
    }
}

#[test]
fn missing_attacks_are_seen() {
    let source = |module: &str| (module == "links").then_some("#[test]\nfn nothing_leaves() {}");
    let page = "see `security::links::nothing_leaves`, `security::links`, `security::links::gone`, `security::x::y`";
    assert_eq!(complaints(page, "security::", source), ["no test links::gone", "no module x"]);
}
