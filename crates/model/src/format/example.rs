//! Example tasks shown to small models before their own, in the directories of their own. They follow what
//! they see done more than what they are told, down to the paths.

use trajectory::{Assistant, Content, Message};

/// Where input and output lie, unless the task says otherwise.
const USUAL: (&str, &str) = ("/testbed/input", "/testbed/output");

/// Longer paths are none.
const LONGEST: usize = 200;

/// Short tasks and how they went.
pub(super) fn example(task: &Message) -> impl Iterator<Item = Message> {
    let (input, output) = directories(task);
    let parts = include_str!("../../prompts/fenced-example.txt").split("=== ");
    parts.filter_map(move |part| {
        let (role, text) = part.split_once('\n')?;
        let text = text.trim_end().replace("{input}", &input).replace("{output}", &output);
        Some(match role {
            "user" => Message::user(text),
            _ => Message::Assistant(Assistant { text, ..Assistant::default() }),
        })
    })
}

/// The directories a task names: that of `answer.txt`, and another one.
fn directories(task: &Message) -> (String, String) {
    let Message::User { content } = task else { return (USUAL.0.into(), USUAL.1.into()) };
    let text: String = content.iter().filter_map(Content::as_text).collect();
    let paths: Vec<&str> = text
        .split(|c: char| c.is_whitespace() || "\"'`(),;:".contains(c))
        .map(|word| word.trim_end_matches(['.', '/']))
        .filter(|word| word.starts_with('/') && (2..=LONGEST).contains(&word.len()))
        .collect();
    let output = paths.iter().find_map(|path| path.strip_suffix("/answer.txt")).unwrap_or(USUAL.1);
    let is_input = |path: &&&str| **path != output && !path.ends_with("/answer.txt");
    let input = paths.iter().rfind(is_input).map_or(USUAL.0, |path| *path);
    (input.to_owned(), output.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn examples_lie_where_the_task_does() {
        let told = |text: &str| directories(&Message::user(text));
        let pair = |input: &str, output: &str| (input.to_owned(), output.to_owned());
        let general = "Sum.\n\nWrite the answer to /a/out/answer.txt: alone. Put files into\n/a/out under \
                       their names. Input files, if any, lie in\n/a/in.";
        assert_eq!(told(general), pair("/a/in", "/a/out"));
        assert_eq!(
            told("Look into /w/documents and write /w/answer.txt."),
            pair("/w/documents", "/w")
        );
        assert_eq!(told("What is 1/2?"), pair(USUAL.0, USUAL.1));
        let texts: Vec<String> = example(&Message::user(general))
            .map(|message| match message {
                Message::User { content } => content.iter().filter_map(Content::as_text).collect(),
                Message::Assistant(said) => said.text,
                _ => String::new(),
            })
            .collect();
        let all = texts.join("\n");
        assert!(all.contains("/a/out/answer.txt") && !all.contains("{output}"), "{all}");
    }
}
