//! Few-shot examples shown to small models before their own task, with its directories: small models follow examples
//! more than instructions, down to the paths.

use trajectory::{Assistant, Content, Message};

/// The default output directory.
const OUTPUT: &str = "/testbed/output";

/// Maximum bytes of a path.
const MAX_PATH: usize = 200;

/// An example episode for a task like this one: with input files, or without.
pub(super) fn example(task: &Message) -> impl Iterator<Item = Message> {
    let (input, output) = directories(task);
    let text = match input {
        Some(_) => include_str!("../../prompts/fenced-files.txt"),
        None => include_str!("../../prompts/fenced-example.txt"),
    };
    let input = input.unwrap_or_default();
    text.split("=== ").filter_map(move |part| {
        let (role, text) = part.split_once('\n')?;
        let text = text.trim_end().replace("{input}", &input).replace("{output}", &output);
        Some(match role {
            "user" => Message::user(text),
            _ => Message::Assistant(Assistant { text, ..Assistant::default() }),
        })
    })
}

/// The input directory a task names, if any, and the directory of `answer.txt`.
fn directories(task: &Message) -> (Option<String>, String) {
    let Message::User { content } = task else { return (None, OUTPUT.into()) };
    let text: String = content.iter().filter_map(Content::as_text).collect();
    let paths: Vec<&str> = text
        .split(|c: char| c.is_whitespace() || "\"'`(),;:".contains(c))
        .map(|word| word.trim_end_matches(['.', '/']))
        .filter(|word| word.starts_with('/') && (2..=MAX_PATH).contains(&word.len()))
        .collect();
    let output = paths.iter().find_map(|path| path.strip_suffix("/answer.txt")).unwrap_or(OUTPUT);
    let is_input = |path: &&&str| **path != output && !path.ends_with("/answer.txt");
    let input = paths.iter().rfind(is_input).map(|path| (*path).to_owned());
    (input, output.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn examples_lie_where_the_task_does() {
        let told = |text: &str| directories(&Message::user(text));
        let pair =
            |input: Option<&str>, output: &str| (input.map(str::to_owned), output.to_owned());
        let with = "Sum.\n\nWrite the answer to /a/out/answer.txt: alone. Put files into\n/a/out under \
                    their names. Input files in /a/in:\n- x.csv (1 kB)";
        let without =
            "Sum.\n\nWrite the answer to /a/out/answer.txt: alone. Put files into /a/out.";
        assert_eq!(told(with), pair(Some("/a/in"), "/a/out"));
        assert_eq!(told(without), pair(None, "/a/out"));
        assert_eq!(
            told("Look into /w/documents and write /w/answer.txt."),
            pair(Some("/w/documents"), "/w")
        );
        assert_eq!(told("What is 1/2?"), pair(None, OUTPUT));
        let all = |task: &str| {
            let task = Message::user(task);
            let texts = example(&task).map(|message| match message {
                Message::User { content } => content.iter().filter_map(Content::as_text).collect(),
                Message::Assistant(message) => message.text,
                _ => String::new(),
            });
            texts.collect::<Vec<_>>().join("\n")
        };
        let (with, without) = (all(with), all(without));
        assert!(with.contains("/a/out/answer.txt") && with.contains("/a/in/"), "{with}");
        assert!(without.contains("/a/out/answer.txt") && !without.contains("/a/in"), "{without}");
        assert!(!with.contains("put}") && !without.contains("put}"), "{with}{without}");
    }
}
