//! A corpus of responses as models write them, and what the wrapper does around them.

use std::sync::Mutex;

use serde_json::{Value, json};
use trajectory::{Arguments, Content, ToolResult, Usage};

use super::*;
use crate::{Sampling, Shape, Silent};

const CORPUS: [(&str, &str); 6] = [
    ("native", include_str!("../tests/corpus/native.txt")),
    ("prose", include_str!("../tests/corpus/prose.txt")),
    ("hermes", include_str!("../tests/corpus/hermes.txt")),
    ("fenced", include_str!("../tests/corpus/fenced.txt")),
    ("cut-off", include_str!("../tests/corpus/cut-off.txt")),
    ("adversarial", include_str!("../tests/corpus/adversarial.txt")),
];

pub(super) fn tools() -> Vec<ToolSpec> {
    let spec = |name: &str, parameters: Value| ToolSpec {
        name: name.into(),
        description: format!("Does {name}"),
        parameters,
    };
    vec![
        spec(
            "execute_bash",
            json!({"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]}),
        ),
        spec(
            "str_replace_editor",
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
            }),
        ),
        spec("submit", json!({"type": "object", "properties": {}})),
    ]
}

/// Responds in order, and records its requests.
struct Canned {
    responses: Mutex<Vec<Result<Response, Error>>>,
    asked: Mutex<Vec<(Vec<Message>, usize)>>,
    /// What the last response was to be held to; none where this model cannot be.
    held: Option<Mutex<Option<Shape>>>,
}

impl Canned {
    fn new(mut responses: Vec<Result<Response, Error>>) -> Self {
        responses.reverse();
        Self { responses: Mutex::new(responses), asked: Mutex::new(Vec::new()), held: None }
    }

    fn held(responses: Vec<Result<Response, Error>>) -> Self {
        Self { held: Some(Mutex::default()), ..Self::new(responses) }
    }
}

impl Model for Canned {
    fn name(&self) -> &str {
        "canned"
    }

    fn supports_shapes(&self) -> bool {
        self.held.is_some()
    }

    async fn complete(&self, request: &Request<'_>, _: &dyn Listener) -> Result<Response, Error> {
        self.asked.lock().unwrap().push((request.messages.to_vec(), request.tools.len()));
        match &self.held {
            Some(held) => held.lock().unwrap().clone_from(&request.sampling.shape),
            None => assert_eq!(request.sampling.shape, None),
        }
        self.responses.lock().unwrap().pop().expect("a reply is left")
    }
}

fn response(text: &str, stop: Stop) -> Response {
    let message = Assistant { text: text.into(), ..Assistant::default() };
    Response { message, stop, usage: Usage::default(), from_cache: false }
}

fn refusal(message: &str) -> Error {
    Error::Refused { status: 400, message: message.into() }
}

fn ask(model: &Formatted<Canned>, messages: &[Message]) -> Result<Response, Error> {
    let (tools, sampling) = (tools(), Sampling::default());
    let request = Request { messages, tools: &tools, sampling: &sampling, max_tokens: 100 };
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(model.complete(&request, &Silent))
}

pub(super) fn parse(format: ToolFormat, text: &str, stop: Stop) -> Assistant {
    let model = Formatted::new(Canned::new(vec![Ok(response(text, stop))]), format);
    ask(&model, &[Message::user("go")]).unwrap().message
}

#[derive(Default)]
struct Case {
    title: String,
    format: ToolFormat,
    cut: bool,
    response: String,
    /// The tool, and its arguments or a part of the error.
    calls: Vec<(String, Result<Value, String>)>,
    /// Whether the block submits after its commands.
    then_submit: bool,
    text: Option<String>,
    said: Option<String>,
}

impl Case {
    fn check(&self) -> Result<(), String> {
        let stop = if self.cut { Stop::Length } else { Stop::End };
        let message = parse(self.format, &self.response, stop);
        if message.calls.len() != self.calls.len() {
            return Err(format!("got {:?}", message.calls));
        }
        for (call, (name, expected)) in message.calls.iter().zip(&self.calls) {
            let right = call.name == *name
                && match (&call.arguments, expected) {
                    (Arguments::Object(map), Ok(expected)) => {
                        Value::Object(map.clone()) == *expected
                    }
                    (Arguments::Malformed { why, .. }, Err(words)) => {
                        words.split('|').any(|words| why.contains(words))
                    }
                    _ => false,
                };
            if !right {
                return Err(format!("got {call:?}"));
            }
        }
        if message.then_submit != self.then_submit {
            return Err(format!("then_submit is {}", message.then_submit));
        }
        match (&self.text, &self.said) {
            (Some(text), _) if message.text != *text => Err(format!("text {:?}", message.text)),
            (_, Some(_)) if message.raw != self.said => Err(format!("said {:?}", message.raw)),
            _ if self.calls.is_empty() && message.text != self.response => {
                Err("text changed".into())
            }
            _ => Ok(()),
        }
    }
}

fn cases(file: &str) -> Vec<Case> {
    let mut cases: Vec<Case> = Vec::new();
    let (mut format, mut cut) = (ToolFormat::Auto, false);
    let (mut reading, mut crlf, mut checked) = (false, false, true);
    for line in file.lines().skip(1) {
        let Some(directive) = line.strip_prefix("@@ ") else {
            assert!(reading, "stray line {line:?}");
            let case = cases.last_mut().unwrap();
            case.response.push_str(line);
            case.response.push_str(if crlf { "\r\n" } else { "\n" });
            continue;
        };
        if std::mem::take(&mut reading) {
            let case = cases.last_mut().unwrap();
            case.response.truncate(case.response.len() - if crlf { 2 } else { 1 });
        }
        let (word, rest) = directive.split_once(' ').unwrap_or((directive, ""));
        if word == "format" {
            format = rest.parse().unwrap();
            continue;
        }
        if word == "stop" {
            cut = rest == "length";
            continue;
        }
        if word == "case" {
            assert!(std::mem::take(&mut checked), "nothing is expected before {rest:?}");
            cases.push(Case { title: rest.into(), format, cut, ..Case::default() });
            continue;
        }
        let case = cases.last_mut().unwrap();
        let (name, value) = rest.split_once(' ').unwrap_or((rest, ""));
        match word {
            "reply" => (reading, crlf) = (true, rest == "crlf"),
            "call" => case.calls.push((name.into(), Ok(serde_json::from_str(value).unwrap()))),
            "refused" => case.calls.push((name.into(), Err(value.into()))),
            "then-submit" => case.then_submit = true,
            "text" => case.text = Some(rest.into()),
            "said" => case.said = Some(serde_json::from_str(rest).unwrap()),
            "none" => {}
            _ => panic!("what is {word:?}?"),
        }
        checked |= matches!(word, "call" | "refused" | "none");
    }
    cases
}

#[test]
fn the_corpus_is_understood() {
    let all: Vec<_> = CORPUS
        .iter()
        .flat_map(|(file, text)| cases(text).into_iter().map(move |case| (file, case)))
        .collect();
    assert!(all.len() >= 80, "only {} cases", all.len());
    let wrong: Vec<_> = all
        .iter()
        .filter_map(|(file, case)| Some(format!("{file}: {}: {}", case.title, case.check().err()?)))
        .collect();
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), all.len(), wrong.join("\n"));
}

/// Whole responses of the corpus, cut anywhere: no call may come out of it that the whole one does not hold.
#[test]
fn no_cut_of_the_corpus_gives_half_a_call() {
    for case in CORPUS.iter().flat_map(|(_, text)| cases(text)).filter(|case| !case.cut) {
        let whole: Vec<_> = case.calls.iter().filter_map(|(_, call)| call.as_ref().ok()).collect();
        for end in (0..case.response.len()).filter(|end| case.response.is_char_boundary(*end)) {
            let message = parse(case.format, &case.response[..end], Stop::Length);
            for call in &message.calls {
                let Arguments::Object(map) = &call.arguments else { continue };
                let known = whole.iter().any(|one| **one == Value::Object(map.clone()));
                // Thinking and files show whole calls; a block without a language may come first.
                let command = map.get("command").and_then(Value::as_str).unwrap_or_default();
                let block = case.response.contains(&format!("```\n{command}\n```"));
                let shown = block || call.name == "submit" && case.response.contains("submit");
                assert!(
                    known || shown,
                    "{}: {:?} gave {call:?}",
                    case.title,
                    &case.response[..end]
                );
            }
        }
    }
}

/// Not in the corpus: cut off behind the inner end, it looks like a whole call.
#[test]
fn a_value_that_holds_the_end_of_a_call_is_not_run_in_part() {
    for (open, key, end) in [
        ("<function=execute_bash>", "<parameter=command>", "</function>"),
        ("<invoke name=\"execute_bash\">", "<parameter name=\"command\">", "</invoke>"),
    ] {
        let inner = format!("cat > a.xml <<'EOF'\n</parameter>\n{end}\nEOF\nrm -r build");
        let text = format!("{open}\n{key}\n{inner}\n</parameter>\n{end}");
        let calls = parse(ToolFormat::Qwen3Coder, &text, Stop::End).calls;
        assert_eq!(calls.len(), 1, "{calls:?}");
        assert!(matches!(calls[0].arguments, Arguments::Malformed { .. }), "{calls:?}");
    }
}

#[test]
fn formats_have_names() {
    for (name, format) in ToolFormat::ALL {
        assert_eq!(name.parse::<ToolFormat>().unwrap(), format);
        assert_eq!(format.to_string(), name);
    }
    assert!("xml".parse::<ToolFormat>().unwrap_err().to_string().contains("fenced"));
    assert_eq!(ToolFormat::suggested("qwen2.5-coder-1.5b"), ToolFormat::Fenced);
    assert_eq!(ToolFormat::suggested("gpt-4o"), ToolFormat::Auto);
}

fn history() -> Vec<Message> {
    let call = |id: &str, name: &str, arguments: Value| ToolCall {
        id: id.into(),
        name: name.into(),
        arguments: Arguments::Object(arguments.as_object().unwrap().clone()),
    };
    let result = |id: &str, text: &str| {
        Message::Tool(ToolResult {
            call_id: id.into(),
            name: "execute_bash".into(),
            content: vec![Content::text(text)],
            is_error: false,
        })
    };
    vec![
        Message::System { text: "Be brief.\n".into() },
        Message::user("Count."),
        Message::Assistant(Assistant {
            text: "Two.".into(),
            calls: vec![
                call("call_9", "execute_bash", json!({"command": "ls"})),
                call("b", "submit", json!({})),
            ],
            ..Assistant::default()
        }),
        result("call_9", "a.txt"),
        result("b", "not yet"),
        Message::user("Go on."),
        Message::Assistant(Assistant {
            text: "As".into(),
            raw: Some("As I said: <x>".into()),
            calls: vec![call("c", "execute_bash", json!({"command": "no"}))],
            ..Assistant::default()
        }),
        result("c", "done"),
    ]
}

/// The messages the wrapped model received, as plain text.
fn asked(format: ToolFormat) -> (Vec<String>, usize) {
    let model = Formatted::new(Canned::new(vec![Ok(response("", Stop::End))]), format);
    ask(&model, &history()).unwrap();
    let (messages, tools) = model.model.asked.lock().unwrap().pop().unwrap();
    let texts = messages.iter().map(|message| match message {
        Message::System { text } => format!("system: {text}"),
        Message::User { content } => {
            let parts: Vec<_> = content.iter().filter_map(Content::as_text).collect();
            format!("user: {}", parts.join(" + "))
        }
        Message::Assistant(message) => {
            assert!(message.calls.is_empty() && message.raw.is_none());
            format!("assistant: {}", message.text)
        }
        Message::Tool(_) => panic!("a tool's message is left"),
    });
    (texts.collect(), tools)
}

#[test]
fn a_conversation_becomes_plain_text() {
    for format in [ToolFormat::Hermes, ToolFormat::Qwen3Coder, ToolFormat::Fenced] {
        let (texts, tools) = asked(format);
        assert_eq!(tools, 0);
        insta::assert_snapshot!(format.to_string(), texts.join("\n-----\n"));
    }
}

#[test]
fn native_passes_everything_on() {
    let model = Formatted::new(Canned::new(vec![Ok(response("", Stop::End))]), ToolFormat::Native);
    ask(&model, &history()).unwrap();
    assert_eq!(*model.model.asked.lock().unwrap(), [(history(), 3)]);
}

#[test]
fn calls_get_ids_that_are_free() {
    let text =
        r#"<tool_call>{"name": "submit"}</tool_call><tool_call>{"name": "submit"}</tool_call>"#;
    let model =
        Formatted::new(Canned::new(vec![Ok(response(text, Stop::End))]), ToolFormat::Native);
    let calls = ask(&model, &history()).unwrap().message.calls;
    assert_eq!(calls.iter().map(|call| call.id.as_str()).collect::<Vec<_>>(), ["call_4", "call_5"]);
    assert_eq!(parse(ToolFormat::Native, text, Stop::End).calls[0].id, "call_1");
}

#[test]
fn calls_of_the_server_are_left_alone() {
    let mut native = response("<tool_call>{\"name\": \"submit\"}</tool_call>", Stop::ToolCalls);
    native.message.calls = vec![ToolCall {
        id: "x".into(),
        name: "execute_bash".into(),
        arguments: Arguments::Object(serde_json::Map::new()),
    }];
    let model = Formatted::new(Canned::new(vec![Ok(native.clone())]), ToolFormat::Auto);
    assert_eq!(ask(&model, &[]).unwrap(), native);
}

#[test]
fn a_server_without_tools_gets_text_from_then_on() {
    for words in [
        "\"auto\" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set",
        "registry/library/gemma does not support tools",
        "tools param requires --jinja flag",
        "No endpoints found that support tool use",
        "This model's chat template does not handle tools",
        "Function calling is not enabled for this model: unsupported functions",
    ] {
        let call = r#"<tool_call>{"name": "submit"}</tool_call>"#;
        let responses =
            vec![Err(refusal(words)), Ok(response(call, Stop::End)), Ok(response("", Stop::End))];
        let model = Formatted::new(Canned::new(responses), ToolFormat::Auto);
        assert_eq!(ask(&model, &[Message::user("go")]).unwrap().message.calls.len(), 1, "{words}");
        ask(&model, &[Message::user("go")]).unwrap();
        let tools: Vec<_> =
            model.model.asked.lock().unwrap().iter().map(|(_, tools)| *tools).collect();
        assert_eq!(tools, [3, 0, 0], "{words}");
    }
}

#[test]
fn a_required_call_is_enforced() {
    let ask = |format: ToolFormat, canned: Canned, tool_choice: ToolChoice, tools: &[ToolSpec]| {
        let model = Formatted::new(canned, format);
        let sampling = Sampling { tool_choice, ..Sampling::default() };
        let messages = [Message::user("go")];
        let request = Request { messages: &messages, tools, sampling: &sampling, max_tokens: 100 };
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(model.complete(&request, &Silent)).unwrap();
        let shape = model.model.held.as_ref().and_then(|held| held.lock().unwrap().clone());
        shape.map(|shape| {
            assert_eq!(shape.before, Before::Nothing);
            shape.opens
        })
    };
    let said = || vec![Ok(response("", Stop::End))];
    let tools = tools();
    let submit = &tools[2..];
    let (free, required) = (ToolChoice::Auto, ToolChoice::Required);
    for (format, offered, opens) in [
        (ToolFormat::Auto, &tools[..], Some("<tool_call>")),
        (ToolFormat::Native, submit, Some("<tool_call>")),
        (ToolFormat::Hermes, &tools[..], Some("<tool_call>")),
        (ToolFormat::Fenced, &tools[..], Some("```")),
        (ToolFormat::Fenced, submit, Some("<tool_call>")),
        (ToolFormat::Qwen3Coder, &tools[..], None),
    ] {
        let held = ask(format, Canned::held(said()), required, offered);
        assert_eq!(held.as_deref(), opens, "{format}");
        assert_eq!(ask(format, Canned::held(said()), free, offered), None, "{format}");
        // A server gets the same request as always.
        assert_eq!(ask(format, Canned::new(said()), required, offered), None, "{format}");
    }
}

#[test]
fn a_reminder_asks_for_calls_as_they_are_read() {
    let tools = tools();
    let mut answering = tools.clone();
    answering[2].parameters["required"] = json!(["answer"]);
    for (format, offered, word) in [
        (ToolFormat::Fenced, &tools[..], "```bash"),
        (ToolFormat::Fenced, &tools[1..], "<tool_call>{"),
        (ToolFormat::Fenced, &answering[..], "<tool_call>{"),
        (ToolFormat::Hermes, &tools[..], "<tool_call>{"),
        (ToolFormat::Qwen3Coder, &tools[..], "<function=NAME>"),
        (ToolFormat::Native, &tools[..], "call one of the tools"),
    ] {
        let model = Formatted::new(Canned::new(Vec::new()), format);
        assert!(model.tool_call_hint(offered).contains(word), "{format}");
    }
}

#[test]
fn other_refusals_are_passed_on() {
    for words in [
        "the model's chat template refuses the conversation: a tool's result must follow a call",
        "messages with role 'tool' must be a response to a preceding message with 'tool_calls'",
        "the model does not exist",
        "temperature is not supported",
        "Invalid schema for function 'execute_bash'",
    ] {
        let model = Formatted::new(Canned::new(vec![Err(refusal(words))]), ToolFormat::Auto);
        assert!(matches!(ask(&model, &[]), Err(Error::Refused { .. })), "{words}");
    }
    let words = "this model does not support tools";
    let model = Formatted::new(Canned::new(vec![Err(refusal(words))]), ToolFormat::Native);
    assert!(matches!(ask(&model, &[]), Err(Error::Refused { .. })));
}

#[test]
fn a_fenced_response_is_settled_once_its_block_is_closed() {
    let response = "I write it.\n```bash\ncat > a.md <<'E'\n```\nE\necho 'a`b'\n```";
    for end in response.char_indices().map(|(at, _)| at) {
        assert!(!ToolFormat::Fenced.is_settled(&response[..end]), "{:?}", &response[..end]);
    }
    assert!(ToolFormat::Fenced.is_settled(response));
    assert!(ToolFormat::Fenced.is_settled(&format!("{response}\nand more")));
    assert!(ToolFormat::Fenced.is_settled("<think>hm</think>\n```sh\nls\n```"));
    for open in ["<think>\n```bash\nls\n```", "```\nls\n```", "```json\n{}\n```", "```bash\n```"] {
        assert!(!ToolFormat::Fenced.is_settled(open), "{open:?}");
    }
    assert!(!ToolFormat::Hermes.is_settled(response));
}
