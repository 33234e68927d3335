//! The page of an episode. Knows the order of its parts; the parts are written by the modules beside it.

use std::fmt::Write;

use plot::{Images, Page, count};
use serde::Deserialize;
use serde_json::Value;
use trajectory::{Content, Message, Step, Trajectory, Usage};

use super::{
    Episode, Notice, call,
    cut::{Look, Room, write},
    facts,
    picture::{Gallery, Picture},
    text::{counted, escaped, isolated, size, time},
    turns::{Plan, Turn, plan, turns},
};
use crate::{
    numbers::{day, dollars},
    text::excerpt,
};

/// Bytes of one text outside the turns.
const ROOM: usize = 32 << 10;
/// Characters of the title.
const TITLE: usize = 120;
/// Initial messages and files that are shown.
const MESSAGES: usize = 20;
/// Images of these messages that are shown, or named where they do not fit.
const PROMPT_IMAGES: usize = 20;
const FILES: usize = 500;

/// Renders an episode as one HTML page of at most about 8 MB, and 16 MB more where it has images.
pub fn page(episode: &Episode<'_>) -> String {
    let turns = turns(episode.trajectory);
    let title = title(episode);
    let mut header = format!(
        "<a class=\"skip-link\" href=\"#steps\">Skip to the steps</a>\n<header><p class=\"kind\">{}</p><h1>{}</h1>\n\
         <p class=\"models\">{}</p></header>\n",
        if episode.attempt.is_some() { "Attempt" } else { "Episode" },
        isolated(&title),
        isolated(&origin(episode)),
    );
    facts::facts(&mut header, episode, &turns);
    let room = Room { most: ROOM, source: episode.source };
    let mut gallery = Gallery::default();
    let parts = [
        ("task", "Task", task(episode, room, &mut gallery)),
        ("result", "Result", result(episode, room)),
        ("steps", "Steps", steps(episode, &turns, &mut gallery)),
        ("files", "Files", files(episode, room, &mut gallery)),
        ("settings", "Settings", settings(episode, room)),
    ];
    let parts = parts.into_iter().filter(|(_, _, content)| !content.is_empty());
    let (mut main, mut links) = (String::new(), String::new());
    for (id, name, content) in parts {
        let _ = write!(links, "<li><a href=\"#{id}\">{name}</a></li>");
        let _ = writeln!(
            main,
            "<section id=\"{id}\" aria-labelledby=\"{id}-title\">\n<h2 id=\"{id}-title\">{name}</h2>\n{content}</section>"
        );
    }
    let _ = writeln!(header, "<nav aria-label=\"Contents\"><ul>{links}</ul></nav>");
    let source = match episode.source {
        "" => String::new(),
        source => format!(" The complete record is in {}.", excerpt(source, 300)),
    };
    Page {
        title: &title,
        style: include_str!("style.css"),
        script: include_str!("script.js"),
        images: Images::Inline,
        header: &header,
        main: &main,
        footer: &format!("Written by llm-in-sandbox.{source}"),
    }
    .render()
}

/// The attempt, else the start of the task.
fn title(episode: &Episode<'_>) -> String {
    match episode.attempt {
        Some(attempt) => {
            let key = &attempt.key;
            let (task, id) = (excerpt(&key.task, TITLE), excerpt(&key.id, TITLE));
            format!("{task} {} {id} #{}", key.mode, key.repeat)
        }
        None => match excerpt(&episode.trajectory.problem_statement, TITLE) {
            empty if empty.is_empty() => "Episode".to_owned(),
            title => title,
        },
    }
}

/// Model, day and program.
fn origin(episode: &Episode<'_>) -> String {
    let known = |key: &str| episode.trajectory.metadata.get(key);
    let text = |key: &str| known(key).and_then(Value::as_str).map(|text| excerpt(text, TITLE));
    let day = day(known("started").and_then(Value::as_u64).unwrap_or(0));
    let program = text("program").filter(|text| !text.is_empty());
    let parts = [text("model"), Some(day), program.map(|text| format!("llm-in-sandbox {text}"))];
    let parts: Vec<String> = parts.into_iter().flatten().filter(|part| !part.is_empty()).collect();
    parts.join(" · ")
}

fn task(episode: &Episode<'_>, room: Room<'_>, gallery: &mut Gallery) -> String {
    let mut out = String::new();
    let statement = match episode.attempt {
        Some(attempt) if !attempt.problem_statement.is_empty() => &attempt.problem_statement,
        _ => &episode.trajectory.problem_statement,
    };
    write(&mut out, Look::Prose, statement, room);
    prompt(&mut out, episode.trajectory, room, gallery);
    out
}

/// Writes the initial messages, folded.
pub(super) fn prompt(
    out: &mut String,
    trajectory: &Trajectory,
    room: Room<'_>,
    gallery: &mut Gallery,
) {
    let messages = trajectory.metadata.get("messages");
    let messages: Vec<Message> =
        messages.and_then(|messages| Vec::deserialize(messages).ok()).unwrap_or_default();
    if messages.is_empty() {
        return;
    }
    let number = counted(messages.len(), "message");
    let _ = write!(out, "<details class=\"fold\"><summary>Prompt: {number}</summary>");
    let mut left = PROMPT_IMAGES;
    for message in messages.iter().take(MESSAGES) {
        let (role, text) = message_text(message);
        let _ = write!(out, "<div class=\"prompt\"><h3 class=\"label\">{role}</h3>");
        write(out, Look::Code, &text, room);
        for data in images(message).take(left) {
            gallery.recorded(out, "the prompt", data);
        }
        let hidden = images(message).count().saturating_sub(left);
        left = left.saturating_sub(images(message).count());
        if hidden > 0 {
            let more = counted(hidden, "more image");
            let _ = write!(out, "<p class=\"cut\">{more} of the prompt: not shown.</p>");
        }
        out.push_str("</div>");
    }
    if messages.len() > MESSAGES {
        let more = counted(messages.len() - MESSAGES, "more message");
        let _ = write!(out, "<p class=\"cut\">{more}: not shown.</p>");
    }
    out.push_str("</details>\n");
}

/// The images of a message, in base64.
fn images(message: &Message) -> impl Iterator<Item = &str> {
    let content: &[Content] = match message {
        Message::User { content } => content,
        Message::Tool(result) => &result.content,
        Message::System { .. } | Message::Assistant(_) => &[],
    };
    content.iter().filter_map(|part| match part {
        Content::Image { data, .. } => Some(data.as_str()),
        Content::Text { .. } => None,
    })
}

fn message_text(message: &Message) -> (&'static str, String) {
    let text = |content: &[Content]| {
        let parts = content.iter().map(|part| match part {
            Content::Text { text } => text.clone(),
            Content::Image { media_type, .. } => format!("[image: {media_type}]"),
        });
        parts.collect::<Vec<_>>().join("\n")
    };
    match message {
        Message::System { text } => ("System", text.clone()),
        Message::User { content } => ("User", text(content)),
        Message::Assistant(message) => ("Assistant", message.text.clone()),
        Message::Tool(result) => ("Tool", text(&result.content)),
    }
}

fn result(episode: &Episode<'_>, room: Room<'_>) -> String {
    let mut out = String::new();
    facts::result(&mut out, episode, room);
    out
}

fn steps(episode: &Episode<'_>, turns: &[Turn<'_>], gallery: &mut Gallery) -> String {
    let mut out = String::new();
    if !episode.recorded {
        out.push_str("<p class=\"notice\">No trajectory was recorded.</p>\n");
    }
    notices(&mut out, episode.notices.iter().filter(|notice| notice.turn == 0));
    let Plan { room, head, tail } = plan(turns);
    let room = Room { most: room, source: episode.source };
    let (first, rest) = turns.split_at(head);
    let (hidden, last) = rest.split_at(rest.len() - tail);
    first.iter().for_each(|turn| write_turn(&mut out, turn, episode, room, gallery));
    if let (Some(from), Some(to)) = (hidden.first(), hidden.last()) {
        let _ = writeln!(
            out,
            "<p class=\"notice\">Steps {} to {} are not shown: the page would be too large.{}</p>",
            count(from.first as f64),
            count(to.last() as f64),
            match episode.source {
                "" => String::new(),
                source => format!(" They are in {}.", isolated(&excerpt(source, 300))),
            }
        );
    }
    last.iter().for_each(|turn| write_turn(&mut out, turn, episode, room, gallery));
    // A turn whose requests all failed has no response.
    let end = turns.iter().filter_map(|turn| turn.number).max().unwrap_or(0);
    notices(&mut out, episode.notices.iter().filter(|it| it.turn > 0 && u64::from(it.turn) > end));
    out
}

fn write_turn(
    out: &mut String,
    turn: &Turn<'_>,
    episode: &Episode<'_>,
    room: Room<'_>,
    gallery: &mut Gallery,
) {
    let [response, ..] = turn.steps else { return };
    let anchor = match turn.number {
        Some(number) => format!("turn-{number}"),
        None => format!("turn-of-step-{}", turn.first),
    };
    let alone = turn.steps.len() == 1;
    let step = if alone { format!(" id=\"step-{}\"", turn.first) } else { String::new() };
    let _ = writeln!(
        out,
        "<article class=\"turn\" id=\"{anchor}\"><h3 class=\"turn-head\"{step}><a class=\"turn-number\" href=\"#{anchor}\">{}</a><small>{}</small></h3>",
        turn.title(),
        call_facts(response)
    );
    turn_body(out, turn, (episode.notices, episode.pictures), alone, room, gallery);
    out.push_str("</article>\n");
}

/// Writes a turn without its heading. Steps have anchors and numbers of their own where they are not `alone`.
pub(super) fn turn_body(
    out: &mut String,
    turn: &Turn<'_>,
    (all_notices, pictures): (&[Notice], &[Picture]),
    alone: bool,
    room: Room<'_>,
    gallery: &mut Gallery,
) {
    let [response, ..] = turn.steps else { return };
    let is_here = |number: u32| Some(u64::from(number)) == turn.number;
    notices(out, all_notices.iter().filter(|notice| is_here(notice.turn)));
    if !response.reasoning_content.trim().is_empty() {
        out.push_str("<div class=\"thinking\"><span class=\"label\">Thinking</span>");
        write(out, Look::Prose, response.reasoning_content.trim(), room);
        out.push_str("</div>\n");
    }
    if !response.thought.trim().is_empty() {
        out.push_str("<div class=\"said\">");
        write(out, Look::Prose, response.thought.trim(), room);
        out.push_str("</div>\n");
    }
    if response.metadata.get("cut_off").is_some() {
        out.push_str("<p class=\"notice\">The response was cut off at its token limit.</p>\n");
    }
    for (number, step) in (turn.first..).zip(turn.shown()) {
        call::step(out, number, alone, step, room);
        out.push('\n');
    }
    if turn.shown().len() < turn.steps.len() {
        let more = counted(turn.steps.len() - turn.shown().len(), "more step");
        let _ = writeln!(out, "<p class=\"notice\">{more} of this turn: not shown.</p>");
    }
    for Picture { name, data, .. } in pictures.iter().filter(|it| is_here(it.turn)) {
        gallery.recorded(out, name, data);
    }
}

/// Duration, tokens and cost of a call to the model.
pub(super) fn call_facts(step: &Step) -> String {
    let known = |key: &str| step.metadata.get(key);
    let mut parts = Vec::new();
    let seconds = known("exec_time").and_then(Value::as_f64);
    if let Some(seconds) = seconds.filter(|seconds| seconds.is_finite() && *seconds >= 0.0) {
        parts.push(format!("model {}", time((seconds * 1000.0) as u64)));
    }
    if let Some(usage) = known("usage").and_then(|usage| Usage::deserialize(usage).ok()) {
        let (input, output) = (count(usage.input as f64), count(usage.output as f64));
        parts.push(format!("{input} in, {output} out"));
    }
    let cost = known("cost").and_then(Value::as_f64).filter(|cost| cost.is_finite());
    parts.extend(cost.map(dollars));
    if known("from_cache").is_some() {
        parts.push("from the cache".to_owned());
    }
    parts.join(" · ")
}

fn notices<'a>(out: &mut String, notices: impl Iterator<Item = &'a Notice>) {
    for notice in notices {
        let _ = writeln!(out, "<p class=\"notice\">{}</p>", isolated(&notice.text));
    }
}

fn files(episode: &Episode<'_>, room: Room<'_>, gallery: &mut Gallery) -> String {
    let mut out = String::new();
    let shown = episode.files.len().min(FILES);
    for file in &episode.files[..shown] {
        let head = format!(
            "<code>{}</code> <span class=\"soft\">{}</span>",
            isolated(&excerpt(&file.path, 300)),
            size(file.size)
        );
        match file.preview.as_deref().filter(|text| !text.trim().is_empty()) {
            Some(text) => {
                let _ = write!(out, "<details class=\"file\"><summary>{head}</summary>");
                write(&mut out, Look::Code, text, room);
                if (text.len() as u64) < file.size {
                    out.push_str("<p class=\"cut\">The rest is not shown.</p>");
                }
                out.push_str("</details>\n");
            }
            None => {
                let _ = writeln!(out, "<p class=\"file\">{head}</p>");
                if let Some(image) = &file.image {
                    gallery.show(&mut out, &file.path, image);
                }
            }
        }
    }
    let all = episode.file_count.max(episode.files.len());
    if all > shown {
        let _ =
            writeln!(out, "<p class=\"cut\">{} not listed.</p>", counted(all - shown, "more file"));
    }
    out
}

fn settings(episode: &Episode<'_>, room: Room<'_>) -> String {
    let mut out = String::new();
    for (key, name) in [("settings", "Settings"), ("protection", "Protection of the sandbox")] {
        let value = episode.trajectory.metadata.get(key).filter(|value| !value.is_null());
        if let Some(text) = value.and_then(|value| serde_json::to_string_pretty(value).ok()) {
            let _ = write!(out, "<details class=\"fold\"><summary>{}</summary>", escaped(name));
            write(&mut out, Look::Code, &text, room);
            out.push_str("</details>\n");
        }
    }
    out
}
