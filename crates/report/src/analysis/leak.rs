//! Whether a model came upon its problem: turns that fetched something with the benchmark's name or the answer.
//!
//! Only what came from other machines can leak. Files are followed: a page that one turn stores and another reads
//! was fetched all the same. A finding is a reason to look at the turn, no verdict.

use std::collections::HashSet;

use serde::{Deserialize, Serialize};

use super::{
    code::Code,
    command::Command,
    exam::{Exam, Sought},
    fold::snippet,
    network::{Wanted, wanted},
    patterns::FETCHING,
    script::{Script, written},
    turn::Turn,
    words::has_any,
};

/// A turn to look at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Leak {
    /// The turn, from 1.
    pub turn: u32,
    /// Why.
    #[serde(flatten)]
    pub why: Why,
    /// The place, without what could disturb a page or a terminal.
    pub snippet: String,
    /// The network refused: it was tried, and nothing came.
    pub failed: bool,
}

/// Why a turn is to be looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "why", rename_all = "snake_case")]
pub enum Why {
    /// It asks for, or gets, something that names the benchmark.
    Benchmark {
        /// The name.
        name: String,
    },
    /// What it gets holds the answer.
    Answer {
        /// The model had given the answer or seen it before.
        known_before: bool,
    },
    /// It asks for a dataset.
    Dataset,
}

/// More findings of one episode say nothing new.
const MOST: usize = 50;

/// Names of files are shorter.
const LONGEST_NAME: usize = 100;

/// The turns of an episode to look at.
pub fn leaks(turns: &[Turn<'_>], exam: &Exam<'_>) -> Vec<Leak> {
    let sought = Sought::of(exam);
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
            texts.iter().chain(&turn.observed).find_map(|text| Some((*text, sought.name(text)?)));
        if let Some((text, (name, start, end))) = named {
            find(Why::Benchmark { name: name.to_owned() }, text, start, end);
        }
        if reached == Reached::Fetched
            && let Some((text, start, end)) = texts.iter().find_map(|text| dataset(text))
        {
            find(Why::Dataset, text, start, end);
        }
        let mut fetched = turn.observed.iter().filter(|_| reached == Reached::Fetched);
        let shown = fetched.find_map(|text| Some((*text, sought.answer(text)?)));
        if let Some((text, (start, end))) = shown {
            let known = *known.get_or_insert_with(|| first_given(turns, &sought));
            let known_before = known < (at, Moment::Seen);
            find(Why::Answer { known_before }, text, start, end);
        }
    }
    found.truncate(MOST);
    found
}

/// Where something comes from.
#[derive(Clone, Copy, PartialEq)]
enum Reached {
    /// The sandbox itself.
    Nothing,
    /// A store of packages.
    Packages,
    /// Other machines, now or in an earlier turn.
    Fetched,
}

#[derive(Clone, Copy, PartialEq, PartialOrd)]
enum Moment {
    Said,
    Seen,
    Never,
}

/// When the model first gave or saw the answer.
fn first_given(turns: &[Turn<'_>], sought: &Sought) -> (usize, Moment) {
    for (at, turn) in turns.iter().enumerate() {
        if sought.gives(turn.said) || written(turn).iter().any(|text| sought.gives(text)) {
            return (at, Moment::Said);
        }
        if turn.observed.iter().any(|text| sought.gives(text)) {
            return (at, Moment::Seen);
        }
    }
    (turns.len(), Moment::Never)
}

/// The files that hold what was fetched, or that fetch.
#[derive(Default)]
struct Trail {
    fetched: HashSet<String>,
    /// Names that were there before; a name is followed only from its first use.
    met: HashSet<String>,
}

impl Trail {
    /// Where what a turn sees comes from.
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

/// Parts of paths that commands, programs and the editor name.
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

/// The name of a file at the end of a path or an address. The answer's own file is the model's.
fn file_name(text: &str) -> Option<&str> {
    let name = last_part(text)?;
    (name.contains('.') && name != "answer.txt").then_some(name)
}

/// The directory of a cloned repository.
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

/// Addresses and calls of collections of data.
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

/// Where a text asks for a dataset.
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

/// An address at the beginning of a text. Longer ones are none.
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

/// How programs say that the network is closed.
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
