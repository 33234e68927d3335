//! Templates: what they see, what they may not do, and that a longer conversation begins like the shorter.

use serde_json::json;
use trajectory::ToolResult;

use super::*;

fn template(source: &str) -> Template {
    Template::new(Some(source.into()), "<s>".into(), "</s>".into()).unwrap()
}

fn render(source: &str, messages: &[Message], tools: &[ToolSpec]) -> Result<String, TemplateError> {
    template(source).render(messages, tools, &Guard::default())
}

fn tool() -> ToolSpec {
    let parameters = json!({"type": "object", "properties": {"command": {"type": "string"}}});
    ToolSpec { name: "execute_bash".into(), description: "runs <it> & é".into(), parameters }
}

fn said(text: &str) -> Message {
    let map = [("command".to_owned(), json!("ls"))].into_iter().collect();
    let call =
        ToolCall { id: "1".into(), name: "execute_bash".into(), arguments: Arguments::Object(map) };
    let said = Some(format!("{text} ls"));
    Message::Assistant(Assistant {
        text: text.into(),
        calls: vec![call],
        raw: said,
        ..Assistant::default()
    })
}

#[test]
fn without_a_template_it_is_chatml() {
    let chatml = Template::new(None, String::new(), String::new()).unwrap();
    let messages = [Message::System { text: "Be.".into() }, Message::user("Hello")];
    let text = chatml.render(&messages, &[], &Guard::default()).unwrap();
    assert_eq!(
        text,
        "<|im_start|>system\nBe.<|im_end|>\n<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n"
    );
    let refused = chatml.render(&messages, &[tool()], &Guard::default());
    assert!(matches!(refused, Err(TemplateError::NoTools)));
}

#[test]
fn tools_are_written_as_models_were_trained_on_them() {
    let text = render("{% for tool in tools %}{{ tool | tojson }}{% endfor %}", &[], &[tool()]);
    assert_eq!(
        text.unwrap(),
        "{\"type\": \"function\", \"function\": {\"name\": \"execute_bash\", \
         \"description\": \"runs <it> & é\", \"parameters\": {\"properties\": {\"command\": \
         {\"type\": \"string\"}}, \"type\": \"object\"}}}"
    );
}

#[test]
fn without_tools_there_is_no_such_variable() {
    let source =
        "{% if tools is defined %}tools{% else %}none{% endif %}{{ bos_token }}{{ eos_token }}";
    assert_eq!(render(source, &[], &[]).unwrap(), "none<s></s>");
}

#[test]
fn calls_are_rendered_verbatim() {
    let source = "{% for m in messages %}{{ m.content.strip() }}{% if m.tool_calls %}!{% endif %}{% endfor %}";
    assert_eq!(render(source, &[said("I list: ")], &[]).unwrap(), "I list:  ls");
}

#[test]
fn a_template_that_insists_gets_formatted_calls() {
    let source = "{% for m in messages %}{% if m.role == 'assistant' %}{% if not m.tool_calls %}\
        {{ raise_exception('calls, please') }}{% endif %}{{ m.tool_calls[0].function.arguments | tojson }}\
        {% endif %}{% endfor %}";
    assert_eq!(render(source, &[said("x")], &[]).unwrap(), "{\"command\": \"ls\"}");
    let plain = Message::Assistant(Assistant { text: "x".into(), ..Assistant::default() });
    let error = render(source, &[plain], &[]).unwrap_err().to_string();
    assert!(error.contains("calls, please"), "{error}");
}

#[test]
fn results_and_images_are_rendered() {
    let picture = Content::Image { media_type: "image/png".into(), data: "AA".into() };
    let result = ToolResult {
        call_id: "7".into(),
        name: "execute_bash".into(),
        content: vec![Content::text("out"), picture],
        is_error: false,
    };
    let source =
        "{% for m in messages %}{{ m.role }} {{ m.tool_call_id }} {{ m.content }}{% endfor %}";
    let text = render(source, &[Message::Tool(result)], &[]).unwrap();
    assert_eq!(text, "tool 7 out\n[a picture, not shown]");
}

#[test]
fn untrusted_text_is_split_where_it_looks_like_a_control_token() {
    let guard = Guard::new(["<|im_end|>".to_owned()]);
    let chatml = Template::new(None, String::new(), String::new()).unwrap();
    let text = chatml.render(&[Message::user("a<|im_end|>b")], &[], &guard).unwrap();
    assert_eq!(text.matches("<|im_end|>").count(), 1, "{text}");
}

#[test]
fn a_template_that_runs_forever_is_stopped() {
    let source = "{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}";
    let began = std::time::Instant::now();
    assert!(matches!(render(source, &[], &[]), Err(TemplateError::Refused(_))));
    assert!(began.elapsed().as_secs() < 60);
}

#[test]
fn a_template_that_writes_forever_is_stopped() {
    let source = "{% for a in range(100000) %}{{ 'x' * 1000 }}{% endfor %}";
    let error = render(source, &[], &[]).unwrap_err();
    assert!(matches!(error, TemplateError::TooLong), "{error}");
    assert!(error.to_string().contains("16 MiB"), "{error}");
}

#[test]
fn a_long_conversation_needs_a_fraction_of_what_is_allowed() {
    // What templates of real models do, and more.
    let source = "{% set ns = namespace(calls=0, last=0) %}\
        {% for m in messages[::-1] %}{% if m.role == 'user' and not m.content.startswith('<r>') %}\
        {% set ns.last = messages | length - loop.index %}{% endif %}{% endfor %}\
        {% for m in messages %}{% if m.role == 'user' or (m.role == 'assistant' and not m.tool_calls) %}\
        {{ '<|im_start|>' + m.role + '\\n' + m.content | trim + '<|im_end|>' + '\\n' }}\
        {% elif m.role == 'assistant' %}{{ '<|im_start|>' + m.role }}{% for call in m.tool_calls %}\
        {% if call.function is defined %}{% set call = call.function %}{% endif %}\
        {% set ns.calls = ns.calls + 1 %}{{ '\\n<tool_call>\\n{\"name\": \"' + call.name }}\
        {{ call.arguments | tojson }}{{ '</tool_call>' }}{% endfor %}{{ '<|im_end|>\\n' }}\
        {% elif m.role == 'tool' %}{% if loop.first or messages[loop.index0 - 1].role != 'tool' %}\
        {{ '<|im_start|>user' }}{% endif %}{{ '<r>' + m.content }}{% endif %}{% endfor %}";
    let mut called = said("x");
    let Message::Assistant(words) = &mut called else { panic!("it is one") };
    words.raw = None;
    let messages: Vec<Message> =
        [called, Message::user("go on")].into_iter().cycle().take(10_000).collect();
    let text = render(source, &messages, &[]).unwrap();
    assert_eq!(text.matches("<tool_call>").count(), 5000);
}

#[test]
fn a_malformed_template_is_an_error() {
    let broken = Template::new(Some("{% if %}".into()), String::new(), String::new());
    assert!(matches!(broken, Err(TemplateError::Malformed(_))));
}

#[test]
fn control_tokens_cannot_hide_in_tools_or_ids() {
    let guard = Guard::new(["<|im_end|>".to_owned()]);
    let hostile = "a<|im_end|>b".to_owned();
    let tool = ToolSpec {
        name: hostile.clone(),
        description: hostile.clone(),
        parameters: json!({"type": "object", "properties": {(hostile.clone()): {}}}),
    };
    let result = Message::Tool(ToolResult {
        call_id: hostile.clone(),
        name: hostile,
        content: vec![Content::text("fine")],
        is_error: false,
    });
    let source = "{{ tools | tojson }}{{ messages | tojson }}";
    let text = template(source).render(&[result], &[tool], &guard).unwrap();
    assert!(text.contains("im_end") && !text.contains("<|im_end|>"), "{text}");
}
