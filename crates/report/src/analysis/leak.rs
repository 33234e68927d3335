//! Leakage check: turns that retrieved content with the name of the benchmark or the answer.
//!
//! Only content from other machines can leak. Files are tracked: a page that one turn downloads and another reads counts
//! as retrieved. A finding is a reason to review the turn, not a verdict.

use std::collections::HashSet;

use serde::{Deserialize, Serialize};

use super::{
    code::Code,
    command::Command,
    fold::snippet,
    network::{Wanted, wanted},
    patterns::FETCHING,
    script::{Script, written},
    target::{LeakTarget, Matcher},
    turn::Turn,
    words::has_any,
};

/// A suspicious turn.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Leak {
    /// The turn, from 1.
    pub turn: u32,
    /// Why.
    #[serde(flatten)]
    pub why: LeakReason,
    /// Excerpt, safe to show.
    pub snippet: String,
    /// Whether the request failed, so that nothing was retrieved.
    pub failed: bool,
}

/// Why a turn is suspicious.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "why", rename_all = "snake_case")]
pub enum LeakReason {
    /// It requests or retrieves something that names the benchmark.
    Benchmark {
        /// The name.
        name: String,
    },
    /// The retrieved content contains the answer.
    Answer {
        /// Whether the model had given or seen the answer before.
        known_before: bool,
    },
    /// It requests a dataset.
    Dataset,
}

/// Findings per episode, at most.
const MOST: usize = 50;

/// Longest file name tracked, in bytes.
const LONGEST_NAME: usize = 100;

/// Finds the suspicious turns of an episode.
pub fn leaks(turns: &[Turn<'_>], target: &LeakTarget<'_>) -> Vec<Leak> {
    let matcher = Matcher::of(target);
    let mut trail = Trail::default();
    let mut found = Vec::new();
    let mut known = None;
    for (at, turn) in turns.iter().enumerate() {
        let reached = trail.follow(&Script::of(turn));
        if reached == Reached::Nothing || found.len() >= MOST {
            continue;
        }
        let failed = turn.observed.iter().any(|text| is_refused(text));
        let mut find = |why, text: &str, start, end| {
            let snippet = snippet(text, start, end);
            found.push(Leak { turn: turn.number, why, snippet, failed });
        };
        let texts = written(turn);
        let named =
            texts.iter().chain(&turn.observed).find_map(|text| Some((*text, matcher.name(text)?)));
        if let Some((text, (name, start, end))) = named {
            find(LeakReason::Benchmark { name: name.to_owned() }, text, start, end);
        }
        if reached == Reached::Fetched
            && let Some((text, start, end)) = texts.iter().find_map(|text| dataset(text))
        {
            find(LeakReason::Dataset, text, start, end);
        }
        let mut fetched = turn.observed.iter().filter(|_| reached == Reached::Fetched);
        let shown = fetched.find_map(|text| Some((*text, matcher.answer(text)?)));
        if let Some((text, (start, end))) = shown {
            let known = *known.get_or_insert_with(|| first_given(turns, &matcher));
            let known_before = known < (at, Moment::Seen);
            find(LeakReason::Answer { known_before }, text, start, end);
        }
    }
    found.truncate(MOST);
    found
}

/// Origin of content.
#[derive(Clone, Copy, PartialEq)]
enum Reached {
    /// The sandbox itself.
    Nothing,
    /// A package registry.
    Packages,
    /// Another machine, in this or an earlier turn.
    Fetched,
}

#[derive(Clone, Copy, PartialEq, PartialOrd)]
enum Moment {
    Said,
    Seen,
    Never,
}

/// Turn in which the model first gave or saw the answer.
fn first_given(turns: &[Turn<'_>], matcher: &Matcher) -> (usize, Moment) {
    for (at, turn) in turns.iter().enumerate() {
        if matcher.gives(turn.said) || written(turn).iter().any(|text| matcher.gives(text)) {
            return (at, Moment::Said);
        }
        if turn.observed.iter().any(|text| matcher.gives(text)) {
            return (at, Moment::Seen);
        }
    }
    (turns.len(), Moment::Never)
}

/// Files that contain retrieved content, or programs that retrieve it.
#[derive(Default)]
struct Trail {
    fetched: HashSet<String>,
    /// Names used before; a name is tracked only from its first use.
    met: HashSet<String>,
}

impl Trail {
    /// Origin of what a turn sees.
    fn follow(&mut self, script: &Script) -> Reached {
        let wants: Vec<_> = script.commands.iter().map(wanted).collect();
        let programs = || script.programs.iter().map(|(_, code)| code);
        let fetching: Vec<&Code> =
            programs().filter(|code| has_any(&code.code, &FETCHING)).collect();
        let fetches = wants.contains(&Some(Wanted::Data)) || !fetching.is_empty();
        let mentioned: Vec<&str> = mentioned(script);
        let reads = mentioned.iter().any(|name| self.fetched.contains(*name));
        if fetches {
            let stored = script.commands.iter().flat_map(|command| &command.writes);
            let asking =
                script.commands.iter().zip(&wants).filter(|(_, want)| **want == Some(Wanted::Data));
            let asked = asking.clone().flat_map(|(command, _)| &command.args);
            let texts = fetching.iter().flat_map(|code| code.texts.iter().map(|(_, text)| text));
            let names = stored.chain(asked).chain(texts).filter_map(|text| file_name(text));
            let new = names.filter(|name| !self.met.contains(*name)).map(str::to_owned);
            self.fetched.extend(new);
            let clones = asking.filter_map(|(command, _)| repository(command));
            let files = fetching.iter().filter_map(|code| code.file.as_deref().and_then(file_name));
            self.fetched.extend(clones.chain(files).map(str::to_owned));
        }
        for name in script.written.iter().filter_map(|path| file_name(path)) {
            if !fetching.iter().any(|code| code.file.as_deref().and_then(file_name) == Some(name)) {
                self.fetched.remove(name);
            }
        }
        self.met.extend(mentioned.into_iter().map(str::to_owned));
        match (fetches || reads, wants.contains(&Some(Wanted::Packages))) {
            (true, _) => Reached::Fetched,
            (false, true) => Reached::Packages,
            (false, false) => Reached::Nothing,
        }
    }
}

/// Path components named by commands, programs and the editor.
fn mentioned(script: &Script) -> Vec<&str> {
    let args = script.commands.iter().flat_map(|command| &command.args);
    let names = script.commands.iter().map(|command| &command.name);
    let texts =
        script.programs.iter().flat_map(|(_, code)| code.texts.iter().map(|(_, text)| text));
    let all = args.chain(names).chain(texts).chain(&script.viewed);
    all.flat_map(|text| text.split(['/', ' ', '=', ',', '\'', '"', '(', ')']))
        .filter(|part| part.len() >= 3 && part.len() <= LONGEST_NAME)
        .collect()
}

/// File name at the end of a path or URL; none for the answer file, which is the model's own.
fn file_name(text: &str) -> Option<&str> {
    let name = last_part(text)?;
    (name.contains('.') && name != "answer.txt").then_some(name)
}

/// Directory of a cloned repository.
fn repository(command: &Command) -> Option<&str> {
    let clones = command.name == "git" && command.args.iter().any(|arg| arg == "clone");
    let last = command.args.last().filter(|_| clones)?;
    let name = last_part(last)?;
    Some(name.strip_suffix(".git").unwrap_or(name))
}

fn last_part(text: &str) -> Option<&str> {
    let path = text.split(['?', '#']).next()?.trim_end_matches('/');
    let name = path.rsplit('/').next()?;
    let fits = (3..=LONGEST_NAME).contains(&name.len()) && !name.contains(char::is_whitespace);
    fits.then_some(name)
}

/// URLs and calls of dataset hosts.
const DATASETS: [&str; 8] = [
    "huggingface.co/datasets",
    "hf.co/datasets",
    "datasets-server.huggingface.co",
    "load_dataset(",
    "repo-type dataset",
    "repo_type=\"dataset\"",
    "kaggle datasets",
    "repo_type='dataset'",
];

/// Position where a text requests a dataset.
fn dataset(text: &str) -> Option<(&str, usize, usize)> {
    let named = DATASETS.iter().find_map(|name| Some((text.find(name)?, name.len())));
    let found = named.or_else(|| {
        ["raw.githubusercontent.com/", "github.com/"].iter().find_map(|host| {
            text.match_indices(host).find_map(|(start, _)| {
                let address = address(&text[start..]);
                let data = [".jsonl", ".parquet", ".csv", ".tsv", ".json", ".arrow"];
                data.iter().any(|kind| address.ends_with(kind)).then_some((start, address.len()))
            })
        })
    });
    found.map(|(start, length)| (text, start, start + length))
}

/// URL at the beginning of a text, of bounded length.
fn address(text: &str) -> &str {
    const LONGEST: usize = 500;
    let ends = |c: char| c.is_whitespace() || "\"'`|;)>?".contains(c);
    let end = text.char_indices().take(LONGEST).find(|(_, c)| ends(*c));
    match end {
        Some((end, _)) => &text[..end],
        None if text.chars().nth(LONGEST).is_some() => "",
        None => text,
    }
}

/// Messages of programs without network access.
const REFUSALS: [&str; 9] = [
    "could not resolve",
    "unable to resolve",
    "name resolution",
    "name or service not known",
    "network is unreachable",
    "connection refused",
    "max retries exceeded",
    "no route to host",
    "tunnel connection failed",
];

fn is_refused(text: &str) -> bool {
    let text = text.to_ascii_lowercase();
    REFUSALS.iter().any(|refusal| text.contains(refusal))
}
