//! A researcher reads episodes of two runs side by side: whatever the models wrote, page and Markdown are inert and bounded.

use lis_report::{
    transcript::{BesidePage, beside_markdown},
    validation::{EpisodePair, EpisodeRecord},
};
use serde_json::{Value, json};
use trajectory::Line;

use crate::renders_episodes::{NASTY, check_page};

fn lines(values: Vec<Value>) -> Vec<Line> {
    let text = values.into_iter().map(|mut value| {
        value["v"] = json!(1);
        value["at"] = json!(0);
        format!("{value}\n")
    });
    trajectory::read(&text.collect::<String>()).unwrap()
}

fn started(text: &str) -> Value {
    let image = json!({"type": "image", "media_type": text, "data": "PHN2Zz4="});
    let content = [vec![json!({"type": "text", "text": text})], vec![image; 60]].concat();
    json!({"kind": "started", "problem_statement": text, "model": text,
           "messages": [{"role": "user", "content": content}]})
}

fn turn(turn: u32, command: &str, output: &str) -> [Value; 2] {
    let call = json!({"id": "1", "name": "execute_bash", "arguments": {"command": command}});
    let message = json!({"role": "tool", "call_id": "1", "name": "execute_bash",
                         "content": [{"type": "text", "text": output}]});
    [
        json!({"kind": "replied", "turn": turn, "message": {"text": "so", "calls": [call]},
               "stop": "tool_calls", "usage": {}, "millis": 1}),
        json!({"kind": "observed", "turn": turn, "message": message, "exit_code": 0, "millis": 1}),
    ]
}

fn pair(text: &str) -> EpisodePair {
    let record = EpisodeRecord {
        id: text.to_owned(),
        answer: text.to_owned(),
        end: text.to_owned(),
        why: Some(text.to_owned()),
        events: Some(text.to_owned()),
        score: Some(0.5),
        seconds: f64::NAN,
        ..EpisodeRecord::default()
    };
    let records = [record.clone(), record];
    EpisodePair { set: text.to_owned(), steps: [0, 9], records, members: [1, 2] }
}

fn page(labels: [&str; 2], pair: &EpisodePair, events: [Option<&[Line]>; 2]) -> String {
    let mut page = BesidePage::new(labels, 1);
    page.add(pair, events);
    page.finish()
}

#[test]
fn turns_of_the_same_number_are_in_one_row() {
    let all = |commands: &[&str]| {
        let turns = commands.iter().zip(1..).flat_map(|(command, at)| turn(at, command, "out"));
        lines([started("Count.")].into_iter().chain(turns).collect())
    };
    let (first, second) = (all(&["ls", "wc -l a"]), all(&["ls", "cat a", "echo 3"]));
    let pair = EpisodePair { set: "small".into(), ..pair("p1") };
    let html = page(["base", "trained"], &pair, [Some(&first), Some(&second)]);
    check_page(&html);
    let rows: Vec<&str> = html.split("<div class=\"pair turn\"").skip(1).collect();
    assert_eq!(rows.len(), 3);
    assert_eq!(rows[0].matches("prompted\"><pre>ls</pre>").count(), 2);
    assert!(rows[0].contains("First different turn"), "before the second row");
    assert!(rows[1].contains("wc -l a") && rows[1].contains("cat a"));
    assert!(rows[2].contains("Ended after 2 turns.") && rows[2].contains("echo 3"));
    // The same prompt is shown once, with a bounded number of its images.
    assert_eq!(html.matches("Prompt: 1 message").count(), 1);
    assert!(html.contains("40 more images of the prompt: not shown."), "{html}");
    assert!(html.contains("episode 1 of 2") && html.contains("step 9"));
    let markdown = beside_markdown(["base", "trained"], &pair, [Some(&first), Some(&second)]);
    assert!(
        markdown.starts_with("### small / p1\n\n```text\nCount.\n```\n\n| | base | trained |\n")
    );
    assert!(markdown.contains(
        "#### Turn 2 (first different turn)\n\nbase:\n\n```text\nso\n$ wc -l a\nout\n```"
    ));
    assert!(markdown.contains("base: ended after 2 turns."), "{markdown}");
}

#[test]
fn hostile_texts_stay_texts() {
    for text in NASTY {
        let events = lines([vec![started(text)], turn(1, text, text).to_vec()].concat());
        let pair = pair(text);
        check_page(&page([text, text], &pair, [Some(&events), None]));
        let fences = "````\n```\n<script>alert(1)</script>\n~~~";
        let events = lines(
            [vec![started(fences)], turn(1, fences, &format!("{text}\n{fences}")).to_vec()]
                .concat(),
        );
        let markdown = beside_markdown([text, text], &pair, [Some(&events), Some(&events)]);
        let mut open: Option<&str> = None;
        for line in markdown.lines() {
            match open {
                Some(marks) if line == marks => open = None,
                Some(_) => {}
                None if line.starts_with("```") => open = Some(line.trim_end_matches("text")),
                None => {
                    let bare = line.replace("\\<", "");
                    assert!(
                        !["<script", "</script", "<img", "<svg", "<!--"]
                            .iter()
                            .any(|tag| bare.contains(tag)),
                        "{line}"
                    );
                }
            }
        }
        assert_eq!(open, None, "a fence is left open");
        let hidden =
            markdown.chars().find(|c| trajectory::is_hidden(*c) && !matches!(c, '\n' | '\t'));
        assert_eq!(hidden, None);
    }
}

#[test]
fn large_episodes_are_bounded() {
    let line = "<\u{202e}x".repeat(1 << 20);
    let turns = (1..=40).flat_map(|at| turn(at, "cat big", &line[..500_000]));
    let many = (41..=3000).flat_map(|at| turn(at, "x", "y"));
    let first = turn(4000, &line, &line);
    let events = lines([started("t")].into_iter().chain(turns).chain(many).chain(first).collect());
    let html = page(["a", "b"], &pair("p"), [Some(&events), Some(&events)]);
    assert!(html.len() < 20 << 20, "{}", html.len());
    assert!(html.contains("characters not shown"));
    let markdown = beside_markdown(["a", "b"], &pair("p"), [Some(&events), Some(&events)]);
    assert!(markdown.len() < 2 << 20, "{}", markdown.len());
    assert!(markdown.contains("more turns: not shown."));
}
