//! A corpus of replies as models write them, and what the wrapper does around them.

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

/// Answers in order; keeps what it was asked.
struct Canned {
    replies: Mutex<Vec<Result<Reply, Error>>>,
    asked: Mutex<Vec<(Vec<Message>, usize)>>,
    /// What the last reply was to be held to; none where this model cannot be.
    held: Option<Mutex<Option<Shape>>>,
}

impl Canned {
    fn new(mut replies: Vec<Result<Reply, Error>>) -> Self {
        replies.reverse();
        Self { replies: Mutex::new(replies), asked: Mutex::new(Vec::new()), held: None }
    }

    fn held(replies: Vec<Result<Reply, Error>>) -> Self {
        Self { held: Some(Mutex::default()), ..Self::new(replies) }
    }
}

impl Model for Canned {
    fn name(&self) -> &str {
        "canned"
    }

    fn can_be_held(&self) -> bool {
        self.held.is_some()
    }

    async fn complete(&self, request: &Request<'_>, _: &dyn Listener) -> Result<Reply, Error> {
        self.asked.lock().unwrap().push((request.messages.to_vec(), request.tools.len()));
        match &self.held {
            Some(held) => held.lock().unwrap().clone_from(&request.sampling.shape),
            None => assert_eq!(request.sampling.shape, None),
        }
        self.replies.lock().unwrap().pop().expect("a reply is left")
    }
}

fn reply(text: &str, stop: Stop) -> Reply {
    let message = Assistant { text: text.into(), ..Assistant::default() };
    Reply { message, stop, usage: Usage::default(), from_cache: false }
}

fn refusal(message: &str) -> Error {
    Error::Refused { status: 400, message: message.into() }
}

fn ask(model: &Formatted<Canned>, messages: &[Message]) -> Result<Reply, Error> {
    let (tools, sampling) = (tools(), Sampling::default());
    let request = Request { messages, tools: &tools, sampling: &sampling, max_tokens: 100 };
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(model.complete(&request, &Silent))
}

pub(super) fn parse(format: ToolFormat, text: &str, stop: Stop) -> Assistant {
    let model = Formatted::new(Canned::new(vec![Ok(reply(text, stop))]), format);
    ask(&model, &[Message::user("go")]).unwrap().message
}

#[derive(Default)]
struct Case {
    title: String,
    format: ToolFormat,
    cut: bool,
    reply: String,
    /// The tool, and its arguments or words of the refusal.
    calls: Vec<(String, Result<Value, String>)>,
    text: Option<String>,
    said: Option<String>,
}

impl Case {
    fn check(&self) -> Result<(), String> {
        let stop = if self.cut { Stop::Length } else { Stop::End };
        let message = parse(self.format, &self.reply, stop);
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
        match (&self.text, &self.said) {
            (Some(text), _) if message.text != *text => Err(format!("text {:?}", message.text)),
            (_, Some(_)) if message.said != self.said => Err(format!("said {:?}", message.said)),
            _ if self.calls.is_empty() && message.text != self.reply => Err("text changed".into()),
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
            case.reply.push_str(line);
            case.reply.push_str(if crlf { "\r\n" } else { "\n" });
            continue;
        };
        if std::mem::take(&mut reading) {
            let case = cases.last_mut().unwrap();
            case.reply.truncate(case.reply.len() - if crlf { 2 } else { 1 });
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

/// Whole replies of the corpus, cut anywhere: no call may come out of it that the whole one does not hold.
#[test]
fn no_cut_of_the_corpus_gives_half_a_call() {
    for case in CORPUS.iter().flat_map(|(_, text)| cases(text)).filter(|case| !case.cut) {
        let whole: Vec<_> = case.calls.iter().filter_map(|(_, call)| call.as_ref().ok()).collect();
        for end in (0..case.reply.len()).filter(|end| case.reply.is_char_boundary(*end)) {
            let message = parse(case.format, &case.reply[..end], Stop::Length);
            for call in &message.calls {
                let Arguments::Object(map) = &call.arguments else { continue };
                let known = whole.iter().any(|one| **one == Value::Object(map.clone()));
                // Thinking and files show whole calls; a block without a language may come first.
                let command = map.get("command").and_then(Value::as_str).unwrap_or_default();
                let block = case.reply.contains(&format!("```\n{command}\n```"));
                let shown = block || call.name == "submit" && case.reply.contains("submit");
                assert!(known || shown, "{}: {:?} gave {call:?}", case.title, &case.reply[..end]);
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
            said: Some("As I said: <x>".into()),
            calls: vec![call("c", "execute_bash", json!({"command": "no"}))],
            ..Assistant::default()
        }),
        result("c", "done"),
    ]
}

/// What the model behind the wrapper was asked, as plain text.
fn asked(format: ToolFormat) -> (Vec<String>, usize) {
    let model = Formatted::new(Canned::new(vec![Ok(reply("", Stop::End))]), format);
    ask(&model, &history()).unwrap();
    let (messages, tools) = model.model.asked.lock().unwrap().pop().unwrap();
    let texts = messages.iter().map(|message| match message {
        Message::System { text } => format!("system: {text}"),
        Message::User { content } => {
            let parts: Vec<_> = content.iter().filter_map(Content::as_text).collect();
            format!("user: {}", parts.join(" + "))
        }
        Message::Assistant(said) => {
            assert!(said.calls.is_empty() && said.said.is_none());
            format!("assistant: {}", said.text)
        }
        Message::Tool(_) => panic!("a tool's message is left"),
    });
    (texts.collect(), tools)
}

#[test]
fn a_conversation_becomes_plain_text() {
    let (hermes, tools) = asked(ToolFormat::Hermes);
    assert_eq!(tools, 0);
    assert!(hermes[0].starts_with("system: Be brief.\n\n# Tools"), "{}", hermes[0]);
    assert!(
        hermes[0]
            .contains(r#"{"name":"execute_bash","description":"Does execute_bash","parameters""#)
    );
    assert_eq!(hermes[0].matches("{tools}").count(), 0);
    assert_eq!(
        hermes[2],
        "assistant: Two.\n<tool_call>\n{\"arguments\":{\"command\":\"ls\"},\"name\":\"execute_bash\"}\n\
         </tool_call>\n<tool_call>\n{\"arguments\":{},\"name\":\"submit\"}\n</tool_call>"
    );
    assert_eq!(
        hermes[3],
        "user: <tool_response>\na.txt\n</tool_response>\n\n<tool_response>\nnot yet\n</tool_response>\n\nGo on."
    );
    assert_eq!(hermes[4], "assistant: As I said: <x>");
    assert_eq!(hermes.len(), 6);

    let (xml, _) = asked(ToolFormat::Qwen3Coder);
    assert!(
        xml[2].contains(
            "<function=execute_bash>\n<parameter=command>\nls\n</parameter>\n</function>"
        )
    );

    let (fenced, _) = asked(ToolFormat::Fenced);
    assert!(fenced[0].contains("`str_replace_editor`") && !fenced[0].contains("`submit` may"));
    // Examples go before the task, and the last one ends as the work does.
    let task = fenced.iter().position(|message| *message == hermes[1]).unwrap();
    assert!(task > 2 && fenced[1].starts_with("user: "), "{fenced:?}");
    let last = &fenced[task - 1];
    assert!(last.starts_with("assistant: ") && last.ends_with("```bash\nsubmit\n```"));
    assert_eq!(fenced[task + 1], "assistant: Two.\n```bash\nls\n```\n```bash\nsubmit\n```");
    assert_eq!(fenced[task + 2], "user: a.txt\n\nnot yet\n\nGo on.");
}

#[test]
fn native_passes_everything_on() {
    let model = Formatted::new(Canned::new(vec![Ok(reply("", Stop::End))]), ToolFormat::Native);
    ask(&model, &history()).unwrap();
    assert_eq!(*model.model.asked.lock().unwrap(), [(history(), 3)]);
}

#[test]
fn calls_get_ids_that_are_free() {
    let text =
        r#"<tool_call>{"name": "submit"}</tool_call><tool_call>{"name": "submit"}</tool_call>"#;
    let model = Formatted::new(Canned::new(vec![Ok(reply(text, Stop::End))]), ToolFormat::Native);
    let calls = ask(&model, &history()).unwrap().message.calls;
    assert_eq!(calls.iter().map(|call| call.id.as_str()).collect::<Vec<_>>(), ["call_4", "call_5"]);
    assert_eq!(parse(ToolFormat::Native, text, Stop::End).calls[0].id, "call_1");
}

#[test]
fn calls_of_the_server_are_left_alone() {
    let mut native = reply("<tool_call>{\"name\": \"submit\"}</tool_call>", Stop::ToolCalls);
    native.message.calls = vec![ToolCall {
        id: "x".into(),
        name: "execute_bash".into(),
        arguments: Arguments::Object(serde_json::Map::new()),
    }];
    let model = Formatted::new(Canned::new(vec![Ok(native.clone())]), ToolFormat::Auto);
    assert_eq!(ask(&model, &[]).unwrap(), native);
}

#[test]
fn a_server_without_tools_is_asked_in_text_from_then_on() {
    for words in [
        "\"auto\" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set",
        "registry/library/gemma does not support tools",
        "tools param requires --jinja flag",
        "No endpoints found that support tool use",
        "This model's chat template does not handle tools",
        "Function calling is not enabled for this model: unsupported functions",
    ] {
        let call = r#"<tool_call>{"name": "submit"}</tool_call>"#;
        let replies =
            vec![Err(refusal(words)), Ok(reply(call, Stop::End)), Ok(reply("", Stop::End))];
        let model = Formatted::new(Canned::new(replies), ToolFormat::Auto);
        assert_eq!(ask(&model, &[Message::user("go")]).unwrap().message.calls.len(), 1, "{words}");
        ask(&model, &[Message::user("go")]).unwrap();
        let tools: Vec<_> =
            model.model.asked.lock().unwrap().iter().map(|(_, tools)| *tools).collect();
        assert_eq!(tools, [3, 0, 0], "{words}");
    }
}

#[test]
fn a_reply_that_has_to_be_a_call_is_held_to_that() {
    let ask = |format: ToolFormat, canned: Canned, calling: Calling, tools: &[ToolSpec]| {
        let model = Formatted::new(canned, format);
        let sampling = Sampling { calling, ..Sampling::default() };
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
    let said = || vec![Ok(reply("", Stop::End))];
    let tools = tools();
    let submit = &tools[2..];
    let (free, required) = (Calling::Free, Calling::Required);
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
        // A server is asked as ever.
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
        assert!(model.how_to_call(offered).contains(word), "{format}");
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
fn a_fenced_reply_is_settled_once_its_block_is_closed() {
    let reply = "I write it.\n```bash\ncat > a.md <<'E'\n```\nE\necho 'a`b'\n```";
    for end in reply.char_indices().map(|(at, _)| at) {
        assert!(!ToolFormat::Fenced.is_settled(&reply[..end]), "{:?}", &reply[..end]);
    }
    assert!(ToolFormat::Fenced.is_settled(reply));
    assert!(ToolFormat::Fenced.is_settled(&format!("{reply}\nand more")));
    assert!(ToolFormat::Fenced.is_settled("<think>hm</think>\n```sh\nls\n```"));
    for open in ["<think>\n```bash\nls\n```", "```\nls\n```", "```json\n{}\n```", "```bash\n```"] {
        assert!(!ToolFormat::Fenced.is_settled(open), "{open:?}");
    }
    assert!(!ToolFormat::Hermes.is_settled(reply));
}
