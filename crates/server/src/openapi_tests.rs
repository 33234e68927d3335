//! That the document describes exactly the routes of the code.

use std::{collections::BTreeSet, fs, path::Path};

use super::*;

type Routes = BTreeSet<(String, String)>;

/// Routes that are answered before the router.
const BEFORE_ROUTER: [(&str, &str); 3] =
    [("get", "/health"), ("get", "/ready"), ("get", "/metrics")];
const METHODS: [&str; 5] = ["get", "post", "put", "delete", "patch"];

/// The source files of this crate.
fn sources(directory: &Path, found: &mut Vec<(String, String)>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.is_dir() {
            sources(&path, found);
        } else if name.ends_with(".rs") && !name.ends_with("tests.rs") {
            found.push((name, fs::read_to_string(&path).unwrap()));
        }
    }
}

/// What stands between an opening parenthesis, which is left out, and the one that closes it.
fn within_parentheses(text: &str) -> &str {
    let mut depth = 1;
    let end = text.find(|c| {
        depth += match c {
            '(' => 1,
            ')' => -1,
            _ => 0,
        };
        depth == 0
    });
    &text[..end.unwrap_or(text.len())]
}

/// The routes that the code of one file adds to a router.
fn routes_in(text: &str) -> Routes {
    let mut found = Routes::new();
    for rest in text.split(".route(").skip(1) {
        let call = within_parentheses(rest);
        let Some(path) = call.split('"').nth(1).filter(|_| call.trim_start().starts_with('"'))
        else {
            continue;
        };
        let methods = &call[call.find(',').unwrap_or(0)..];
        for method in METHODS {
            let starts = methods.match_indices(&format!("{method}(")).map(|(at, _)| at).any(|at| {
                !methods[..at].ends_with(|c: char| c.is_ascii_alphanumeric() || c == '_')
            });
            if starts {
                found.insert((method.to_owned(), path.to_owned()));
            }
        }
    }
    found
}

/// The procedures that the code of a service compares with.
fn procedures_in(text: &str, service: &str) -> Routes {
    let words = text.split('"').skip(1).step_by(2);
    let is_procedure = |word: &&str| {
        word.starts_with(|c: char| c.is_ascii_uppercase())
            && word.len() > 3
            && word.chars().all(|c| c.is_ascii_alphabetic())
            && text.contains(&format!("\"{word}\" =>"))
                | text.contains(&format!("procedure == \"{word}\""))
    };
    words
        .filter(is_procedure)
        .map(|word| ("post".to_owned(), format!("/{service}/{word}")))
        .collect()
}

/// Whether the document says that a path is internal.
fn is_internal(path: &str) -> bool {
    let internal = |known: &&str| match *known {
        "/" => path == "/",
        prefix => path.starts_with(prefix),
    };
    INTERNAL.iter().any(internal)
}

#[test]
fn only_the_page_has_internal_paths() {
    let mut files = Vec::new();
    sources(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/src")), &mut files);
    for (name, text) in &files {
        let internal = routes_in(text).into_iter().filter(|(_, path)| is_internal(path));
        let internal: Vec<_> = internal.collect();
        assert!(internal.is_empty() || name == "terminal.rs", "{name}: {internal:?}");
    }
    // The routes of the page itself, all of them below these paths.
    let viewer = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../viewer/src/http.rs"));
    let routes = routes_in(&fs::read_to_string(viewer).unwrap());
    assert!(routes.len() >= 3 && routes.iter().all(|(_, path)| is_internal(path)), "{routes:?}");
    let document = document();
    assert_eq!(document["x-internal-paths"], json!(INTERNAL));
    let described = document["paths"].as_object().unwrap();
    assert!(!described.keys().any(|path| is_internal(path)));
}

#[test]
fn the_document_has_the_routes_of_the_code() {
    let mut files = Vec::new();
    sources(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/src")), &mut files);
    let mut routes: Routes = files.iter().flat_map(|(_, text)| routes_in(text)).collect();
    routes.retain(|(_, path)| !is_internal(path));
    routes.extend(BEFORE_ROUTER.map(|(method, path)| (method.to_owned(), path.to_owned())));
    let file = |wanted: &str| &files.iter().find(|(name, _)| name == wanted).unwrap().1;
    let mut inside = procedures_in(file("process.rs"), "process.Process");
    inside.extend(procedures_in(file("filesystem.rs"), "filesystem.Filesystem"));
    for (method, path) in [("get", "/files"), ("post", "/files"), ("get", "/envs")] {
        inside.insert((method.to_owned(), path.to_owned()));
    }
    let described = |of: &dyn Fn(Plane) -> bool| -> Routes {
        let all = PARTS.iter().flat_map(|part| (part.operations)());
        let all = all.filter(|operation| of(operation.plane));
        all.map(|operation| (operation.method.to_owned(), operation.path.to_owned())).collect()
    };
    let compare = |what: &str, code: &Routes, document: &Routes| {
        let missing: Vec<_> = code.difference(document).collect();
        let extra: Vec<_> = document.difference(code).collect();
        assert!(
            missing.is_empty() && extra.is_empty(),
            "{what}: describe {missing:?} in the part's `operations`; not in the code: {extra:?}"
        );
    };
    compare("routes", &routes, &described(&|plane| plane != Plane::Sandbox));
    compare("requests to a sandbox", &inside, &described(&|plane| plane == Plane::Sandbox));
    assert!(routes.len() > 15 && inside.len() > 15, "the code was not read");
}

#[test]
fn the_document_is_the_one_that_is_checked_in() {
    let text = format!("{}\n", serde_json::to_string_pretty(&document()).unwrap());
    let file = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/openapi.json"));
    #[expect(clippy::disallowed_methods, reason = "as in all tests with files to bless")]
    if std::env::var_os("LIS_BLESS").is_some() {
        fs::write(file, &text).unwrap();
    }
    let stored = fs::read_to_string(file).unwrap();
    assert!(stored == text, "{} is out of date; write it with LIS_BLESS=1", file.display());
}

#[test]
fn every_reference_leads_somewhere() {
    let document = document();
    let text = document.to_string();
    for name in text.split("#/components/schemas/").skip(1) {
        let name = name.split('"').next().unwrap();
        assert!(document["components"]["schemas"][name].is_object(), "no schema {name}");
    }
}

#[test]
fn routes_are_found_in_code() {
    let code = r#"Router::new().route("/a/{id}", get(one::<R>).post(two)).route(
        "/b", axum::routing::delete(forget(x))).route("/c", put(get_it))"#;
    let found = routes_in(code);
    let expected = [("delete", "/b"), ("get", "/a/{id}"), ("post", "/a/{id}"), ("put", "/c")];
    let expected = expected.map(|(method, path)| (method.to_owned(), path.to_owned()));
    assert_eq!(found, Routes::from(expected));
}
