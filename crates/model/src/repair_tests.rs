//! What the reader forgives, what it refuses, and that no way of writing gives half a command.

use std::time::{Duration, Instant};

use proptest::prelude::*;
use serde_json::{Map, json};

use super::*;

fn bash() -> Value {
    json!({"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]})
}

fn editor() -> Value {
    json!({
        "type": "object",
        "properties": {
            "command": {"type": "string", "enum": ["view", "create", "str_replace", "insert"]},
            "path": {"type": "string"},
            "file_text": {"type": "string"},
            "old_str": {"type": "string"},
            "new_str": {"type": "string"},
            "insert_line": {"type": "integer"},
            "view_range": {"type": "array", "items": {"type": "integer"}},
        },
        "required": ["command", "path"],
    })
}

fn submit() -> Value {
    json!({"type": "object", "properties": {}})
}

#[track_caller]
fn check(schema: &Value, text: &str, expected: Value) {
    let Value::Object(expected) = expected else { panic!("expected an object") };
    assert_eq!(arguments(text, schema, Ending::Finished), Arguments::Object(expected), "{text}");
}

#[track_caller]
fn refuse(schema: &Value, text: &str, ending: Ending, words: &str) {
    match arguments(text, schema, ending) {
        Arguments::Malformed { why, .. } => assert!(why.contains(words), "{text}: {why}"),
        Arguments::Object(map) => panic!("{text} was read as {map:?}"),
    }
}

#[test]
fn other_ways_of_writing_are_forgiven() {
    let ls = || json!({"command": "ls"});
    for text in [
        r#"{"command": "ls"}"#,
        r"{'command': 'ls'}",
        r#"{command: "ls"}"#,
        r#"{"command": "ls",}"#,
        r#"{"command": "ls", }  "#,
        "{\"command\": `ls`}",
        "{\"command\": \"\"\"ls\"\"\"}",
        "{'command': '''ls'''}",
        "// the call\n{\"command\": /* list */ \"ls\" # done\n}",
        "```json\n{\"command\": \"ls\"}\n```",
        "```\n{\"command\": \"ls\"\n```",
        r#"{"command": "ls"} This lists the "files"."#,
        r#"{"command": "ls"}}"#,
        r#"{"command": "ls""#,
        r#""{\"command\": \"ls\"}""#,
        r#""ls""#,
        r#"[{"command": "ls"}]"#,
        r#"{"arguments": {"command": "ls"}}"#,
        r#"{"parameters": {"cmd": "ls"}}"#,
        r#"{"input": "{\"command\": \"ls\"}"}"#,
        r#"{"input": "ls"}"#,
        r#"{"script": "ls"}"#,
    ] {
        check(&bash(), text, ls());
    }
}

#[test]
fn strings_are_unescaped() {
    check(&bash(), "{\"command\": \"a\nb\tc\"}", json!({"command": "a\nb\tc"}));
    check(&bash(), r#"{"command": "grep '\d+\.' f"}"#, json!({"command": r"grep '\d+\.' f"}));
    check(&bash(), r#"{"command": "echo \'hi\'"}"#, json!({"command": "echo 'hi'"}));
    check(&bash(), r#"{"command": "echo 'it'\''s'"}"#, json!({"command": r"echo 'it'\''s'"}));
    check(&bash(), "{\"command\": \"ls \\\n -l\"}", json!({"command": "ls \\\n -l"}));
    check(&bash(), r#"{"command": "\u00e9 \ud83d\ude00 \u12"}"#, json!({"command": "é 😀 \\u12"}));
    check(&bash(), r#"{"command": "\ud83d!"}"#, json!({"command": "\u{fffd}!"}));
    check(&bash(), "{\"command\": \"a\r\nb\"}", json!({"command": "a\r\nb"}));
}

#[test]
fn values_take_the_types_of_the_schema() {
    check(&bash(), r#"{"command": 5}"#, json!({"command": "5"}));
    check(&bash(), r#"{"command": True}"#, json!({"command": "true"}));
    check(
        &editor(),
        r#"{"command": "insert", "path": "/a", "insert_line": "3", "new_str": 1.10}"#,
        json!({"command": "insert", "path": "/a", "insert_line": 3, "new_str": "1.10"}),
    );
    check(
        &editor(),
        r#"{"command": "view", "path": "/a", "view_range": "[1, 5]", "old_str": None, "x": [1]}"#,
        json!({"command": "view", "path": "/a", "view_range": [1, 5], "x": [1]}),
    );
    check(
        &editor(),
        r#"{"command": "view", "path": "/a", "view_range": ["1", 5.0]}"#,
        json!({"command": "view", "path": "/a", "view_range": [1, 5]}),
    );
    check(&submit(), "", json!({}));
    check(&submit(), "null", json!({}));
    check(&submit(), "{}", json!({}));
}

#[test]
fn other_names_are_understood_where_the_right_one_is_absent() {
    check(
        &editor(),
        r#"{"action": "create", "file_path": "/a", "content": "x"}"#,
        json!({"command": "create", "path": "/a", "file_text": "x"}),
    );
    check(&bash(), r#"{"command": "ls", "code": "rm"}"#, json!({"command": "ls", "code": "rm"}));
    // An editor's command is one of four names: a script is not.
    check(&editor(), r#"{"code": "ls", "path": "/a"}"#, json!({"code": "ls", "path": "/a"}));
}

#[test]
fn half_a_call_is_refused() {
    for text in [
        r#"{"command": "rm -rf /tmp/x"#,
        r#"{"command": "rm -rf /tmp/x\"#,
        r#"{"command": "ls","#,
        r#"{"command":"#,
        r#"{"#,
        "{\"command\": \"\"\"ls",
        r#""{\"command\": \"l""#,
        r#"{"command": "ls" /* "#,
    ] {
        refuse(&bash(), text, Ending::Finished, "Nothing was run");
        refuse(&bash(), text, Ending::CutOff, "cut off");
    }
    refuse(&bash(), r#"{"command": "ls""#, Ending::CutOff, "cut off");
    refuse(&bash(), "", Ending::CutOff, "cut off");
    refuse(
        &editor(),
        r#"{"command": "view", "path": "/a", "view_range": [1, 1"#,
        Ending::Finished,
        "ends before",
    );
}

#[test]
fn an_unescaped_quotation_mark_does_not_shorten_a_command() {
    for text in [
        r#"{"command": "echo "hi""}"#,
        r#"{"command": "echo "}"}"#,
        r#"{"command": "f() { echo "} ; }"}"#,
        r#"{"command": "printf "} %s" x"}"#,
    ] {
        refuse(&bash(), text, Ending::Finished, "quotation mark");
    }
}

#[test]
fn what_cannot_be_read_is_refused_with_a_remedy() {
    refuse(&bash(), "ls -la", Ending::Finished, r#"such as {"command": "..."}"#);
    refuse(&bash(), r#"{"command": ls}"#, Ending::Finished, "strings need quotation marks");
    refuse(&bash(), r#"{"command": "a"}{"command": "b"}"#, Ending::Finished, "several objects");
    refuse(&bash(), "[1, 2]", Ending::Finished, "a list");
    refuse(&editor(), r#""/a""#, Ending::Finished, "a string");
    refuse(&bash(), &"[".repeat(1 << 20), Ending::Finished, "too deeply");
    refuse(&bash(), &" ".repeat(MAX_LENGTH + 1).replacen(' ', "{", 1), Ending::Finished, "");
}

#[test]
fn a_megabyte_of_anything_takes_no_time() {
    for unit in ["{", "[", "\"", "'", "\\", "{\"a\":", "/*", "{'a", "```", "{\"a\": \"\"\"", "\\u"]
    {
        let text = format!("{{\"a\": {}", unit.repeat((1 << 20) / unit.len()));
        let start = Instant::now();
        arguments(&text, &bash(), Ending::Finished);
        assert!(start.elapsed() < Duration::from_secs(2), "{unit}: {:?}", start.elapsed());
    }
}

fn any_map() -> impl Strategy<Value = Map<String, Value>> {
    let text = proptest::string::string_regex("[ -~\\n\\té😀'\"\\\\{}\\[\\]`]{0,40}").unwrap();
    let value = prop_oneof![
        4 => text.prop_map(Value::String),
        1 => any::<i64>().prop_map(Value::from),
        1 => any::<bool>().prop_map(Value::Bool),
        1 => proptest::collection::vec(any::<i32>().prop_map(Value::from), 0..4).prop_map(Value::Array),
    ];
    // Keys that are neither wrappers nor synonyms stay what they are.
    proptest::collection::btree_map("k[a-z]{0,5}", value, 0..5)
        .prop_map(|map| map.into_iter().collect())
}

/// Ways in which models write what they should have written as JSON.
fn mangle(json: &str, way: usize) -> String {
    match way {
        0 => json.to_owned(),
        1 => format!("```json\n{json}\n```"),
        2 => serde_json::to_string(json).unwrap(),
        3 => format!("{{\"arguments\": {json}}}"),
        4 => format!("{{\"parameters\": {}}}", serde_json::to_string(json).unwrap()),
        5 => format!("{json}\n\nThat is all."),
        6 => format!("/* call */ {json} // done"),
        7 => json.replace("\\n", "\n").replace("\\t", "\t"),
        8 => format!("[{json}]"),
        9 => format!("{}, }}", json.strip_suffix('}').unwrap()),
        10 => json.strip_suffix('}').unwrap().to_owned(),
        _ => format!("\u{20}\r\n{json}}}"),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn nothing_makes_it_panic(text in "\\PC{0,200}", whole in any::<bool>()) {
        let ending = if whole { Ending::Finished } else { Ending::CutOff };
        arguments(&text, &editor(), ending);
    }

    #[test]
    fn brackets_and_quotes_do_not_make_it_panic(text in "[{}\\[\\]\"'`\\\\:,#/*nu0-9aé ]{0,80}") {
        arguments(&text, &bash(), Ending::Finished);
    }

    #[test]
    fn a_mangled_call_is_the_same_call(map in any_map(), way in 0_usize..12) {
        let json = serde_json::to_string(&map).unwrap();
        // Escaped backslashes before n would become line breaks; numbers at the end are not closed by
        // themselves; an empty object has no comma and no way to lack its bracket.
        let clashes = match way {
            7 => json.contains("\\\\"),
            9 | 10 => map.is_empty() || map.values().next_back().is_some_and(Value::is_number),
            _ => false,
        };
        prop_assume!(!clashes);
        let text = mangle(&json, way);
        prop_assert_eq!(
            arguments(&text, &json!({}), Ending::Finished),
            Arguments::Object(map),
            "{}", text
        );
    }

    #[test]
    fn python_writing_is_the_same_call(words in proptest::collection::vec("[a-z \"]{0,9}", 0..4)) {
        let python: Vec<_> = words.iter().enumerate().map(|(at, word)| format!("'k{at}': '{word}'")).collect();
        let expected = words.iter().enumerate().map(|(at, word)| (format!("k{at}"), json!(word)));
        let text = format!("{{{}}}", python.join(", "));
        prop_assert_eq!(
            arguments(&text, &json!({}), Ending::Finished),
            Arguments::Object(expected.collect())
        );
    }

    #[test]
    fn a_prefix_is_never_a_call(map in any_map(), cut in any::<prop::sample::Index>(), way in prop::sample::select(vec![0, 1, 2, 3, 4, 7, 8])) {
        let json = serde_json::to_string(&map).unwrap();
        let text = mangle(&json, way);
        let body = text.trim_end_matches("\n```");
        let mut end = cut.index(body.len());
        while !body.is_char_boundary(end) {
            end -= 1;
        }
        let read = arguments(&body[..end], &json!({}), Ending::CutOff);
        prop_assert!(matches!(read, Arguments::Malformed { .. }), "{} gave {read:?}", &body[..end]);
    }

    #[test]
    fn no_prefix_holds_a_shorter_string(map in any_map(), cut in any::<prop::sample::Index>()) {
        let json = serde_json::to_string(&map).unwrap();
        let mut end = cut.index(json.len());
        while !json.is_char_boundary(end) {
            end -= 1;
        }
        if let Arguments::Object(read) = arguments(&json[..end], &json!({}), Ending::Finished) {
            for (key, value) in read {
                prop_assert_eq!(map.get(&key), Some(&value));
            }
        }
    }
}
