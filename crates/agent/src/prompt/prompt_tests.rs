//! What a prompt config may say, what becomes of it, and how it is refused.

use super::*;
use proptest::prelude::*;

/// The shape of the reference's benchmark configs: comments, foreign keys, literal blocks, doubled braces.
const FOREIGN: &str = r#"# a benchmark
dataset: "owner/rows"
config: "letters"
split: "test"

system_prompt: |-
  You count letters.

  <WORKFLOW>
  1. Save the count to {output_dir}/answer.txt
  </WORKFLOW>
  {command_docs}{demo}
  - Only the result within \\boxed{{}}.

instance_prompt: |-
  <problem>
  {problem_statement}
  </problem>

  Use `printf '%s\\n' '\\boxed{{answer}}' > {output_dir}/answer.txt`
  
  Inputs: {input_dir}, work: {working_dir}

output_dir: "/testbed"
working_dir: "/testbed"
"#;

fn with(key: &str, prompt: &str) -> Result<Prompts, PromptError> {
    let json = serde_json::to_string(prompt).unwrap();
    Prompts::parse(&format!("{key}: {json}"))
}

fn refusal(key: &str, prompt: &str) -> String {
    with(key, prompt).unwrap_err().to_string()
}

#[test]
fn a_config_of_the_reference_loads_unchanged() {
    let prompts = Prompts::parse(FOREIGN).unwrap();
    assert_eq!(prompts.unknown, ["dataset", "config", "split"]);
    assert_eq!(prompts.input_dir, Path::new("/testbed/input"));
    assert_eq!(prompts.output_dir, Path::new("/testbed"));

    let rendered = prompts.render("How many r in {word}?\n{{}}", &sandbox::Network::None).unwrap();
    assert_eq!(
        rendered.system,
        "You count letters.\n\n<WORKFLOW>\n1. Save the count to /testbed/answer.txt\n</WORKFLOW>\n\n\
         - Only the result within \\\\boxed{}."
    );
    assert_eq!(
        rendered.user,
        "<problem>\nHow many r in {word}?\n{{}}\n</problem>\n\n\
         Use `printf '%s\\\\n' '\\\\boxed{answer}' > /testbed/answer.txt`\n\n\
         Inputs: /testbed/input, work: /testbed"
    );
}

#[test]
fn what_is_left_out_has_its_default() {
    for text in ["", "# nothing but a remark\n", "{}", "system_prompt:\nworking_dir: ~\n"] {
        assert_eq!(Prompts::parse(text).unwrap(), Prompts::default(), "{text:?}");
    }
    let rendered = Prompts::default().render("{as it is}", &sandbox::Network::None).unwrap();
    assert_eq!(rendered.system, "");
    assert_eq!(rendered.user, "{as it is}");
}

#[test]
fn braces_follow_the_rules_of_format() {
    for (template, expected) in [
        ("{{}}", "{}"),
        ("{{{{", "{{"),
        ("{{{working_dir}}}", "{/testbed}"),
        ("{problem_statement}{problem_statement}", "PP"),
        ("}}{problem_statement}{{", "}P{"),
        ("{{problem_statement}}", "{problem_statement}"),
    ] {
        let rendered =
            with("instance_prompt", template).unwrap().render("P", &sandbox::Network::None);
        assert_eq!(rendered.unwrap().user, expected, "{template:?}");
    }
}

#[test]
fn an_unknown_placeholder_is_an_error_with_its_line_and_the_remedy() {
    assert_eq!(
        refusal("instance_prompt", "one\ntwo {name}"),
        "`instance_prompt`, line 2: unknown placeholder `{name}`; known are {problem_statement}, {input_files}, \
         {working_dir}, {input_dir}, {output_dir}; write {{ and }} for literal braces"
    );
    for bad in [
        "{}",
        "{0}",
        "{problem_statement!r}",
        "{problem_statement:>9}",
        "{problem_statement.upper}",
        "{ problem_statement }",
        "{demo}",
        "{\"a\": {\"b\": 1}}",
    ] {
        let message = refusal("instance_prompt", bad);
        assert!(message.contains("line 1: unknown placeholder"), "{bad}: {message}");
    }
    assert!(refusal("system_prompt", "{problem_statement}").contains("{command_docs}, {demo}"));
}

#[test]
fn an_unmatched_brace_is_an_error_with_its_line_and_the_remedy() {
    assert_eq!(
        refusal("system_prompt", "{{\n\n}"),
        "`system_prompt`, line 3: unmatched }; write }} for a literal brace"
    );
    assert!(refusal("system_prompt", "a { b").contains("line 1: unmatched {;"));
    assert!(refusal("system_prompt", "{{}").contains("unmatched }"));
}

#[test]
fn quotations_in_errors_are_shortened_and_escaped() {
    let message = refusal("system_prompt", &format!("{{\u{1b}[31m{}}}", "x".repeat(5000)));
    assert!(message.len() < 400, "{message}");
    assert!(!message.contains('\u{1b}'));
}

#[test]
fn directories_are_absolute_and_plain() {
    for bad in ["testbed", "", "./x", "/a/../b", "/a\\nb"] {
        let error = Prompts::parse(&format!("output_dir: \"{bad}\"")).unwrap_err();
        assert!(
            matches!(error, PromptError::Directory { key: "output_dir", .. }),
            "{bad}: {error}"
        );
    }
    let odd = Prompts::parse("working_dir: '/a {b} c'\ninstance_prompt: '{working_dir}'").unwrap();
    assert_eq!(odd.render("", &sandbox::Network::None).unwrap().user, "/a {b} c");
}

#[test]
fn what_is_no_mapping_of_text_is_refused() {
    for bad in [
        "just words",
        "- a\n- b",
        "system_prompt: [a]",
        "system_prompt: {a: b}",
        "system_prompt: a\nsystem_prompt: b",
        "system_prompt: |-\n a\n\tb: [",
        "a: 1\n---\nb: 2\n",
    ] {
        let error = Prompts::parse(bad).unwrap_err();
        assert!(matches!(error, PromptError::Yaml(_)), "{bad}: {error}");
    }
}

#[test]
fn an_anchor_may_be_used_again() {
    let prompts = Prompts::parse("x: &a hello\nsystem_prompt: *a\n").unwrap();
    assert_eq!(prompts.system, "hello");
    assert_eq!(prompts.unknown, ["x"]);
}

#[test]
fn hostile_configs_end_soon_and_without_harm() {
    let mut bomb = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x]\n");
    for n in 1..30 {
        let below = format!("*a{}, ", n - 1).repeat(9);
        bomb.push_str(&format!("a{n}: &a{n} [{below}]\n"));
    }
    let nested = format!("x: {}", "[".repeat(100_000));
    let indented: String = (0..1000).map(|n| format!("{}a:\n", " ".repeat(n))).collect();
    let itself = "x: &x [*x]\nsystem_prompt: *x".to_owned();
    let text = "y".repeat(60_000);
    let copies = format!("x: &x {text}\nys: [{}]", "*x, ".repeat(5_000));
    for hostile in [bomb, nested, indented, itself, copies, "&a ".repeat(9_000)] {
        let started = std::time::Instant::now();
        assert!(Prompts::parse(&hostile).is_err());
        assert!(started.elapsed().as_secs() < 5);
    }
    let long = Prompts::parse(&"#".repeat(MAX_CONFIG + 1)).unwrap_err();
    assert!(matches!(long, PromptError::TooLong { .. }));
}

#[test]
fn a_prompt_does_not_grow_without_end() {
    let prompts = with("instance_prompt", &"{problem_statement}".repeat(5_000)).unwrap();
    let error = prompts.render(&"z".repeat(1 << 20), &sandbox::Network::None).unwrap_err();
    assert!(matches!(error, PromptError::Overflow { .. }), "{error}");
}

#[test]
fn errors_do_not_show_the_rest_of_the_file() {
    let error = Prompts::parse("api_key: hush-hush\nsystem_prompt: [").unwrap_err();
    let source = std::error::Error::source(&error).unwrap().to_string();
    assert!(source.contains("line 2"), "{source}");
    assert!(!source.contains("hush"), "{source}");
}

proptest! {
    #[test]
    fn any_text_is_parsed_or_refused(text in "\\PC{0,80}(\n\\PC{0,80}){0,4}") {
        let _ = Prompts::parse(&text);
    }

    #[test]
    fn escaped_text_comes_back_as_it_was(text in "[{}a\n]{0,60}") {
        let template = text.replace('{', "{{").replace('}', "}}");
        let prompts = Prompts { system: template, ..Prompts::default() };
        prop_assert_eq!(prompts.render("", &sandbox::Network::None).unwrap().system, text);
    }

    #[test]
    fn the_statement_goes_in_as_it_is(statement in any::<String>()) {
        let prompts = Prompts { task: "<{problem_statement}>".to_owned(), ..Prompts::default() };
        prop_assert_eq!(prompts.render(&statement, &sandbox::Network::None).unwrap().user, format!("<{statement}>"));
    }
}
