//! Whatever a model writes: no panic, no long wait, no half a command.

use std::time::{Duration, Instant};

use proptest::prelude::*;
use serde_json::json;
use trajectory::{Arguments, Stop};

use super::{ToolCall, ToolFormat, tests::parse, xml};

const TEXT_FORMATS: [ToolFormat; 4] =
    [ToolFormat::Native, ToolFormat::Hermes, ToolFormat::Qwen3Coder, ToolFormat::Fenced];

#[test]
fn a_quarter_megabyte_of_marks_takes_no_time() {
    let units = [
        "{",
        "[",
        "\n{",
        "\n{\"",
        "\n{/*",
        "\n{\"\"\"",
        "\n{'a': '",
        "\n```\n",
        "```",
        "\n```json\n{",
        "\n```bash\n",
        "\n```bash\ncat <<EOF\n",
        "\n```bash\necho '\n```\n",
        "<tool_call>",
        "<tool_call>{",
        "<tool_call>{/*",
        "<tool_call>{\"name\": \"",
        "<tool_call>execute_bash{",
        "<function=execute_bash>",
        "<function=x><parameter=a>",
        "<function=execute_bash><parameter=command>",
        "<function=execute_bash><parameter=command>x</parameter>",
        "<parameter=command>\n",
        "</parameter>",
        "</think>\n",
        "[TOOL_CALLS]",
        "<tool_call>submit<arg_key>a</arg_key><arg_value>",
        "<invoke name=submit><parameter name=a>",
        "[TOOL_CALLS]execute_bash{",
        "execute_bash",
        "$(",
        "\"$(",
        "<<A",
        "\\",
        "'",
        "\u{1f600}",
    ];
    for unit in units {
        for format in [ToolFormat::Native, ToolFormat::Fenced] {
            // A tool's name somewhere makes guesses worthwhile.
            let text = unit.repeat((1 << 18) / unit.len()) + "\n\"execute_bash\"";
            takes_no_time(format, &text);
        }
    }
}

#[test]
fn a_megabyte_of_ends_takes_no_time() {
    let ends: String = (0..100_000).map(|number| format!("END_{number}\n")).collect();
    takes_no_time(ToolFormat::Fenced, &format!("```python\n{ends}```"));
    let tags = "</think>\n".repeat(100_000);
    takes_no_time(ToolFormat::Native, &format!("<parameter=a>\n{tags}"));
}

fn takes_no_time(format: ToolFormat, text: &str) {
    let start = Instant::now();
    parse(format, text, Stop::End);
    let (took, head) = (start.elapsed(), text.get(..40).unwrap_or_default());
    assert!(took < Duration::from_secs(10), "{head:?} {format}: {took:?}");
}

fn any_text() -> impl Strategy<Value = String> {
    let parts = prop::sample::select(vec![
        "{",
        "}",
        "[",
        "]",
        "\"",
        "'",
        "\\",
        ":",
        ",",
        "\n",
        " ",
        "```",
        "```bash\n",
        "```json\n",
        "\n```\n",
        "<tool_call>",
        "</tool_call>",
        "<function=execute_bash>",
        "</function>",
        "<parameter=command>",
        "</parameter>",
        "\"name\"",
        "\"execute_bash\"",
        "\"arguments\"",
        "\"command\"",
        "ls",
        "submit",
        "<<EOF",
        "EOF",
        "$(",
        "é",
        "😀",
        "<think>",
        "</think>",
        "[TOOL_CALLS]",
        "<tool_call>submit<arg_key>a</arg_key><arg_value>",
        "<invoke name=submit><parameter name=a>",
        "python",
        "\r\n",
        "#",
        "/*",
    ]);
    proptest::collection::vec(parts, 0..40).prop_map(|parts| parts.concat())
}

/// Commands that bash reads as one whole, with all that could confuse a reader.
fn any_command() -> impl Strategy<Value = String> {
    let line = prop::sample::select(vec![
        "ls -la",
        "echo 'it'",
        "echo \"</tool_call>\"",
        "grep '<parameter=' f",
        "echo '}}'",
        "x=$((1 << 2))",
        "cat > a.md <<'EOF'\n```bash\nls\n```\nEOF",
        "cat <<E1 <<-E2\na\nE1\n\tb\n\tE2",
        "# don't\ntrue",
        "echo \"$(cat <<'X'\nit's\nX\n)\"",
        "printf '%s\\n' \\\n  a b",
        "echo 😀 é",
        "echo '{\"name\": \"submit\"}'",
        "echo \"a\n```python\nb\n```\nc\"",
        "python3 -c 'print(1)'",
        "grep -c '</think>' log",
    ]);
    proptest::collection::vec(line, 1..5).prop_map(|lines| lines.join("\n"))
}

fn command_of(arguments: &Arguments) -> Option<&str> {
    match arguments {
        Arguments::Object(map) => map.get("command")?.as_str(),
        Arguments::Malformed { .. } => None,
    }
}

fn written(format: ToolFormat, command: &str) -> String {
    let arguments = json!({"command": command});
    match format {
        ToolFormat::Qwen3Coder => {
            let map = arguments.as_object().unwrap().clone();
            let arguments = Arguments::Object(map);
            let call = ToolCall { id: "1".into(), name: "execute_bash".into(), arguments };
            let mut out = String::new();
            xml::write(&call, &mut out);
            out
        }
        ToolFormat::Fenced => format!("```bash\n{command}\n```"),
        _ => {
            let call = json!({"name": "execute_bash", "arguments": arguments});
            format!("<tool_call>\n{call}\n</tool_call>")
        }
    }
}

fn cut(text: &str, at: prop::sample::Index) -> &str {
    &text[..text.floor_char_boundary(at.index(text.len()))]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn nothing_makes_it_panic(text in any_text(), format in prop::sample::select(&TEXT_FORMATS[..])) {
        for stop in [Stop::End, Stop::Length] {
            let message = parse(format, &text, stop);
            if let Some(raw) = &message.raw {
                prop_assert!(text.starts_with(raw.as_str()));
            }
            prop_assert!(message.calls.iter().all(|call| !call.name.is_empty()));
        }
    }

    #[test]
    fn what_is_written_is_read(
        command in any_command(),
        format in prop::sample::select(&TEXT_FORMATS[..]),
        prose in prop::sample::select(vec!["", "First, I look.\n\n", "It's \"quoted\":\n"]),
        after in prop::sample::select(vec!["", "\n\nThat is it.", "\n"]),
    ) {
        let text = format!("{prose}{}{after}", written(format, &command));
        let message = parse(format, &text, Stop::End);
        prop_assert_eq!(message.calls.len(), 1, "{}: {:?}", text, message.calls);
        prop_assert_eq!(command_of(&message.calls[0].arguments), Some(command.as_str()), "{}", text);
        prop_assert_eq!(message.text.as_str(), prose.trim());
    }

    #[test]
    fn a_response_that_was_cut_off_contains_no_half_command(
        command in any_command(),
        format in prop::sample::select(&TEXT_FORMATS[..]),
        at in any::<prop::sample::Index>(),
    ) {
        let whole = written(format, &command);
        let message = parse(format, cut(&whole, at), Stop::Length);
        for call in &message.calls {
            if let Some(read) = command_of(&call.arguments) {
                prop_assert_eq!(read, command.as_str(), "{}", cut(&whole, at));
            }
        }
    }

    #[test]
    fn a_finished_response_contains_no_half_string(
        command in any_command(),
        format in prop::sample::select(&[ToolFormat::Native, ToolFormat::Qwen3Coder][..]),
        at in any::<prop::sample::Index>(),
    ) {
        let whole = written(format, &command);
        let message = parse(format, cut(&whole, at), Stop::End);
        for call in &message.calls {
            if let Some(read) = command_of(&call.arguments) {
                prop_assert_eq!(read, command.as_str(), "{}", cut(&whole, at));
            }
        }
    }

    #[test]
    fn other_arguments_survive_xml(text in "[ -~\\n\\té]{0,60}", line in any::<u16>()) {
        let value = json!({"command": "insert", "path": "/a b", "new_str": text, "insert_line": line});
        let arguments = Arguments::Object(value.as_object().unwrap().clone());
        let call = ToolCall { id: "1".into(), name: "str_replace_editor".into(), arguments };
        let mut out = String::new();
        xml::write(&call, &mut out);
        let message = parse(ToolFormat::Qwen3Coder, &out, Stop::End);
        prop_assert_eq!(&message.calls[0].arguments, &call.arguments);
    }
}
