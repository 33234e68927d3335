//! One question into one row: its context in files with names that tell nothing, among documents of others.
//!
//! Which questions there are, and on which side, is decided already.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write,
};

use super::{
    Placement, PrepareSettings, choices, find,
    pool::{Asked, Entry, LARGEST_ROW, Place, Pool, domain, qa_type, truth},
    shape::{Question, Right},
};
use crate::{
    Row,
    dice::Dice,
    text::{normal, parts},
};

/// Documents longer than this are cut into parts of about the second number, in bytes.
const PARTS: (usize, usize) = (12_000, 8_000);
/// An example may have this many bytes.
const LONGEST_EXAMPLE: usize = 600;
/// Examples are looked for among so many questions before.
const MOST_BEFORE: usize = 200;
/// Others are chosen among at least so many documents, those nearest in length.
const CHOICE: usize = 8;
/// Names of files, before their number.
const STYLES: [&str; 8] =
    ["text-", "document_", "", "file-", "paper-", "page-", "source_", "item-"];
/// Stands for letters among the first numbers of files.
const LETTERS: usize = 0;

/// Makes the rows of one side.
pub(super) struct Builder<'a> {
    pool: &'a Pool,
    settings: &'a PrepareSettings,
    /// Documents of this side, with their groups.
    around: Vec<(usize, usize)>,
    /// Rows so far with fewer documents of others than were asked for.
    pub(super) fewer: u64,
}

impl<'a> Builder<'a> {
    pub(super) fn new(pool: &'a Pool, settings: &'a PrepareSettings, places: &[Place]) -> Self {
        let entries: BTreeSet<usize> = places.iter().map(|(entry, _)| *entry).collect();
        let entries = entries.into_iter().map(|at| &pool.entries[at]);
        let around: BTreeSet<(usize, usize)> = entries
            .flat_map(|entry| entry.documents.iter().map(|document| (*document, entry.group)))
            .collect();
        let mut around: Vec<(usize, usize)> = around.into_iter().collect();
        // By content, so that the order of the inputs does not matter.
        let order = |at: usize| (pool.documents[at].text.len(), &pool.documents[at].key);
        around.sort_by(|a, b| order(a.0).cmp(&order(b.0)));
        Self { pool, settings, around, fewer: 0 }
    }

    pub(super) fn row(&mut self, (entry, number): Place) -> Row {
        let entry = &self.pool.entries[entry];
        let Asked { question, key } = &entry.questions[number];
        let mut dice = Dice::new(self.settings.seed, &["row", key]);
        let answer = truth(question);
        let documents = self.documents(entry, &mut dice);
        let texts: Vec<&str> =
            documents.iter().map(|at| self.pool.documents[*at].text.as_str()).collect();
        let statement = format!("{}{}", self.examples(entry, number), asked(question));
        let (input_files, problem_statement) = match self.settings.context {
            Placement::Files => (named(&texts, &words_of(question), &mut dice), statement),
            Placement::Prompt => (BTreeMap::new(), with_texts(&texts, &statement)),
        };
        let demonstration = match &question.right {
            Right::Text(_) => {
                find::demonstration(&question.text, &answer, &input_files).unwrap_or_default()
            }
            Right::Choices { .. } => Vec::new(),
        };
        let answers = match &question.right {
            Right::Text(answers) if answers.len() > 1 => answers.clone(),
            _ => Vec::new(),
        };
        let subject = self.pool.sources[entry.input].clone();
        Row {
            id: format!("{subject}-{key}"),
            domain: domain(question, &entry.documents).to_owned(),
            qa_type: qa_type(question).to_owned(),
            subject,
            level: None,
            problem_statement,
            ground_truth: answer,
            answers,
            input_files,
            demonstration,
        }
    }

    /// The entry's own documents; a single one is joined by others of about its length from other groups, as far as they
    /// fit. Any order.
    fn documents(&mut self, entry: &Entry, dice: &mut Dice) -> Vec<usize> {
        let mut documents = entry.documents.clone();
        if let [own] = documents[..] {
            let size = |at: usize| self.pool.documents[at].text.len();
            let mut total = size(own);
            let mut others = dice.several(&self.alike(own, entry.group), self.settings.distractors);
            others.retain(|at| {
                total += size(*at);
                total <= LARGEST_ROW
            });
            self.fewer += u64::from(others.len() < self.settings.distractors);
            documents.extend(others);
        }
        dice.shuffle(&mut documents);
        documents
    }

    /// The documents of other groups nearest to this one in length: how many files a document becomes must not tell it
    /// apart.
    fn alike(&self, own: usize, own_group: usize) -> Vec<usize> {
        let length = |at: usize| self.pool.documents[at].text.len() as f64;
        let apart =
            |document: &(usize, usize)| (length(document.0).ln_1p() - length(own).ln_1p()).abs();
        let place = self.around.partition_point(|(at, _)| length(*at) < length(own));
        let (mut shorter, mut longer) =
            (self.around[..place].iter().rev().peekable(), self.around[place..].iter().peekable());
        let mut near = Vec::new();
        while near.len() < self.settings.distractors.max(CHOICE) {
            let next = match (shorter.peek(), longer.peek()) {
                (Some(one), Some(other)) if apart(one) <= apart(other) => shorter.next(),
                (Some(_), None) => shorter.next(),
                _ => longer.next(),
            };
            let Some((at, group)) = next else { break };
            if *group != own_group {
                near.push(*at);
            }
        }
        near
    }

    /// Earlier questions of the same context with their answers, as far as they do not hold this answer, nor are most of
    /// it.
    fn examples(&self, entry: &Entry, number: usize) -> String {
        let own = words_of(&entry.questions[number].question);
        let tells = |text: &str| {
            let text = normal(text);
            own.iter().any(|word| within(&text, word))
        };
        let most = |answer: &str| {
            let answer = normal(answer);
            own.iter().any(|word| 2 * answer.len() >= word.len() && within(word, &answer))
        };
        let fits = |example: &(&str, String)| {
            let (question, answer) = example;
            question.len() + answer.len() <= LONGEST_EXAMPLE
                && !tells(question)
                && !tells(answer)
                && !most(answer)
        };
        let before = &entry.questions[number.saturating_sub(MOST_BEFORE)..number];
        let earlier = before.iter().rev().map(|asked| {
            let question = &asked.question;
            (question.text.as_str(), told(question))
        });
        let mut examples: Vec<(&str, String)> =
            earlier.filter(fits).take(self.settings.examples).collect();
        examples.reverse();
        if examples.is_empty() {
            return String::new();
        }
        let mut text = "Questions of the same kind with their answers:\n\n".to_owned();
        for (question, answer) in examples {
            let _ = write!(text, "Question: {question}\nAnswer: {answer}\n\n");
        }
        text + "The question to answer:\n\n"
    }
}

/// The answer in words.
fn told(question: &Question) -> String {
    match &question.right {
        Right::Text(_) => truth(question),
        Right::Choices { choices, right } => {
            right.iter().map(|at| choices[*at].as_str()).collect::<Vec<_>>().join("; ")
        }
    }
}

/// What must stand neither in examples nor in names of files, in normal form.
fn words_of(question: &Question) -> Vec<String> {
    match &question.right {
        Right::Text(answers) => answers.iter().map(|answer| normal(answer)).collect(),
        Right::Choices { choices, right } => right.iter().map(|at| normal(&choices[*at])).collect(),
    }
}

/// Whether whole words stand within a text; both in normal form.
fn within(text: &str, words: &str) -> bool {
    words.len() <= text.len() && format!(" {text} ").contains(&format!(" {words} "))
}

fn asked(question: &Question) -> String {
    let Right::Choices { choices, right } = &question.right else { return question.text.clone() };
    let mut text = format!("{}\n\n", question.text);
    for (at, choice) in choices.iter().enumerate() {
        let _ = writeln!(text, "{}. {choice}", choices::letter(at));
    }
    let form = match right.len() {
        1 => "Answer with the letter of the right choice.",
        _ => {
            "More than one choice is right. Answer with all their letters, with commas between them."
        }
    };
    text + "\n" + form
}

fn with_texts(texts: &[&str], statement: &str) -> String {
    let count = texts.len();
    let mut told = String::new();
    for (text, at) in texts.iter().zip(1..) {
        let _ = write!(
            told,
            "--- text {at} of {count} ---\n{}\n--- end of text {at} ---\n\n",
            text.trim_end()
        );
    }
    told + statement
}

/// Files with names that tell nothing: a word that is the same for all and letters, or numbers in no order. Where one
/// would hold an answer, others are tried, large numbers at last.
fn named(texts: &[&str], answers: &[String], dice: &mut Dice) -> BTreeMap<String, String> {
    let mut styles = STYLES;
    dice.shuffle(&mut styles);
    let mut firsts = vec![1, 11, 1001];
    if texts.len() <= 26 {
        firsts.insert(usize::from(!dice.once_in(3)), LETTERS);
    }
    let tells = |name: &str| {
        let name = normal(name);
        answers.iter().any(|answer| within(&name, answer))
    };
    let mut files = Vec::new();
    for (first, style) in firsts.iter().flat_map(|first| styles.map(|style| (*first, style))) {
        files =
            texts.iter().enumerate().flat_map(|(at, text)| filed(style, first, at, text)).collect();
        if !files.iter().any(|(name, _)| tells(name)) {
            break;
        }
    }
    let ended =
        |part: &str| if part.ends_with('\n') { part.to_owned() } else { format!("{part}\n") };
    files.into_iter().map(|(name, part)| (name, ended(part))).collect()
}

/// A document as one file, or as several where it is long.
fn filed<'a>(style: &str, first: usize, at: usize, text: &'a str) -> Vec<(String, &'a str)> {
    let name = match first {
        LETTERS => format!("{style}{}", char::from(b'a' + at as u8)),
        first => format!("{style}{}", first + at),
    };
    let cut = parts(text, PARTS.0, PARTS.1);
    match cut[..] {
        [whole] => vec![(format!("{name}.txt"), whole)],
        _ => (first.max(1)..)
            .zip(cut)
            .map(|(number, part)| (format!("{name}-part-{number:02}.txt"), part))
            .collect(),
    }
}
