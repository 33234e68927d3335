//! Builds a row from a question: its context in files with uninformative names, among distractors. The texts of rows are
//! training data: they stay byte-identical.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write,
};

use super::{
    Placement, PrepareSettings, choices, find,
    pool::{Entry, KeyedQuestion, MAX_ROW_BYTES, Pool, QuestionIndex, domain, qa_type, truth},
    shape::{CorrectAnswer, Question},
};
use crate::{
    Row,
    rng::Rng,
    text::{normal, parts},
};

/// Documents longer than the first number are split into parts of about the second, in bytes.
const PARTS: (usize, usize) = (12_000, 8_000);
/// The maximum size of an example, in bytes.
const MAX_EXAMPLE_BYTES: usize = 600;
/// The number of earlier questions among which examples are searched.
const MAX_EARLIER: usize = 200;
/// Distractors are drawn from at least this many documents, those nearest in length.
const MIN_CANDIDATES: usize = 8;
/// Prefixes of file names, before the number.
const STYLES: [&str; 8] =
    ["text-", "document_", "", "file-", "paper-", "page-", "source_", "item-"];
/// Stands for letters instead of numbers.
const LETTERS: usize = 0;

/// Builds the rows of one partition.
pub(super) struct Builder<'a> {
    pool: &'a Pool,
    settings: &'a PrepareSettings,
    /// The documents of this partition, with their groups.
    around: Vec<(usize, usize)>,
    /// Rows so far with fewer distractors than requested.
    pub(super) fewer: u64,
}

impl<'a> Builder<'a> {
    pub(super) fn new(
        pool: &'a Pool,
        settings: &'a PrepareSettings,
        places: &[QuestionIndex],
    ) -> Self {
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

    pub(super) fn row(&mut self, (entry, number): QuestionIndex) -> Row {
        let entry = &self.pool.entries[entry];
        let KeyedQuestion { question, key } = &entry.questions[number];
        let mut rng = Rng::new(self.settings.seed, &["row", key]);
        let answer = truth(question);
        let documents = self.documents(entry, &mut rng);
        let texts: Vec<&str> =
            documents.iter().map(|at| self.pool.documents[*at].text.as_str()).collect();
        let statement = format!("{}{}", self.examples(entry, number), asked(question));
        let (input_files, problem_statement) = match self.settings.context {
            Placement::Files => (named(&texts, &words_of(question), &mut rng), statement),
            Placement::Prompt => (BTreeMap::new(), with_texts(&texts, &statement)),
        };
        let demonstration = match &question.right {
            CorrectAnswer::Text(_) => {
                find::demonstration(&question.text, &answer, &input_files).unwrap_or_default()
            }
            CorrectAnswer::Choices { .. } => Vec::new(),
        };
        let answers = match &question.right {
            CorrectAnswer::Text(answers) if answers.len() > 1 => answers.clone(),
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

    /// The entry's own documents; a single one is joined by distractors of about its length from other groups, as far as
    /// they fit. Shuffled.
    fn documents(&mut self, entry: &Entry, rng: &mut Rng) -> Vec<usize> {
        let mut documents = entry.documents.clone();
        if let [own] = documents[..] {
            let size = |at: usize| self.pool.documents[at].text.len();
            let mut total = size(own);
            let mut others = rng.sample(&self.alike(own, entry.group), self.settings.distractors);
            others.retain(|at| {
                total += size(*at);
                total <= MAX_ROW_BYTES
            });
            self.fewer += u64::from(others.len() < self.settings.distractors);
            documents.extend(others);
        }
        rng.shuffle(&mut documents);
        documents
    }

    /// The documents of other groups nearest to this one in length: the number of files of a document must not reveal
    /// it.
    fn alike(&self, own: usize, own_group: usize) -> Vec<usize> {
        let length = |at: usize| self.pool.documents[at].text.len() as f64;
        let apart =
            |document: &(usize, usize)| (length(document.0).ln_1p() - length(own).ln_1p()).abs();
        let place = self.around.partition_point(|(at, _)| length(*at) < length(own));
        let (mut shorter, mut longer) =
            (self.around[..place].iter().rev().peekable(), self.around[place..].iter().peekable());
        let mut near = Vec::new();
        while near.len() < self.settings.distractors.max(MIN_CANDIDATES) {
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

    /// Earlier questions of the same context with their answers, as far as they do not contain this answer, nor most of
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
            question.len() + answer.len() <= MAX_EXAMPLE_BYTES
                && !tells(question)
                && !tells(answer)
                && !most(answer)
        };
        let before = &entry.questions[number.saturating_sub(MAX_EARLIER)..number];
        let earlier = before.iter().rev().map(|asked| {
            let question = &asked.question;
            (question.text.as_str(), answer_text(question))
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

/// The text of the answer.
fn answer_text(question: &Question) -> String {
    match &question.right {
        CorrectAnswer::Text(_) => truth(question),
        CorrectAnswer::Choices { choices, right } => {
            right.iter().map(|at| choices[*at].as_str()).collect::<Vec<_>>().join("; ")
        }
    }
}

/// The answers that must appear neither in examples nor in file names, in normal form.
fn words_of(question: &Question) -> Vec<String> {
    match &question.right {
        CorrectAnswer::Text(answers) => answers.iter().map(|answer| normal(answer)).collect(),
        CorrectAnswer::Choices { choices, right } => {
            right.iter().map(|at| normal(&choices[*at])).collect()
        }
    }
}

/// Whether a text contains a sequence of whole words; both in normal form.
fn within(text: &str, words: &str) -> bool {
    words.len() <= text.len() && format!(" {text} ").contains(&format!(" {words} "))
}

fn asked(question: &Question) -> String {
    let CorrectAnswer::Choices { choices, right } = &question.right else {
        return question.text.clone();
    };
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
    let mut rendered = String::new();
    for (text, at) in texts.iter().zip(1..) {
        let _ = write!(
            rendered,
            "--- text {at} of {count} ---\n{}\n--- end of text {at} ---\n\n",
            text.trim_end()
        );
    }
    rendered + statement
}

/// Files with uninformative names: a common prefix with letters or numbers. Where a name would contain an answer, others
/// are tried, large numbers last.
fn named(texts: &[&str], answers: &[String], rng: &mut Rng) -> BTreeMap<String, String> {
    let mut styles = STYLES;
    rng.shuffle(&mut styles);
    let mut firsts = vec![1, 11, 1001];
    if texts.len() <= 26 {
        firsts.insert(usize::from(!rng.one_in(3)), LETTERS);
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
