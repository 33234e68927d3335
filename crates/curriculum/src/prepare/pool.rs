//! All contexts, without duplicate documents and questions, in groups that share a document or a title.
//!
//! Decides which questions are for training and which for validation; builds no rows.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::{
    PrepareSettings,
    shape::{Context, CorrectAnswer, Fault, Question},
};
use crate::{
    Manifest,
    rng::hash_labels,
    text::{folded, normal, short_digest},
};

/// The maximum total size of the documents of a row, in bytes.
pub(super) const MAX_ROW_BYTES: usize = 8 << 20;

/// Contexts without duplicates.
pub(super) struct Pool {
    /// All distinct documents.
    pub(super) documents: Vec<Document>,
    pub(super) entries: Vec<Entry>,
    /// The names of the input files, without extension.
    pub(super) sources: Vec<String>,
}

/// A document.
pub(super) struct Document {
    pub(super) text: String,
    /// A digest of its normal form.
    pub(super) key: String,
}

/// A context, with the questions of all contexts of the same documents.
pub(super) struct Entry {
    pub(super) input: usize,
    /// The indices of its documents.
    pub(super) documents: Vec<usize>,
    pub(super) questions: Vec<KeyedQuestion>,
    /// Entries of the same group are in the same partition.
    pub(super) group: usize,
}

/// A question and the digest that identifies it.
pub(super) struct KeyedQuestion {
    pub(super) question: Question,
    pub(super) key: String,
}

/// The index of a question: entry and number.
pub(super) type QuestionIndex = (usize, usize);

/// The questions of each partition.
pub(super) struct Selection {
    pub(super) train: Vec<QuestionIndex>,
    pub(super) validation: Vec<QuestionIndex>,
}

impl Pool {
    /// Merges contexts. Skips duplicate questions, those whose own answer the grader rejects, and those with too large
    /// documents.
    pub(super) fn of(mut contexts: Vec<Context>, manifest: &mut Manifest) -> Self {
        let files: Vec<String> = manifest.inputs.iter().map(|input| input.file.clone()).collect();
        // By content, so that the order of the inputs does not matter where they overlap.
        contexts.sort_by(|a, b| content(a, &files).cmp(&content(b, &files)));
        let mut pool = Self {
            documents: Vec::new(),
            entries: Vec::new(),
            sources: files.iter().map(|file| stem(file)).collect(),
        };
        let mut seen = Seen::default();
        let mut groups = Groups::default();
        for context in contexts {
            let documents = pool.documents(context.documents, &mut seen);
            let size: usize = documents.iter().map(|at| pool.documents[*at].text.len()).sum();
            let mut fresh = Vec::new();
            for question in context.questions {
                let key = pool.key(&documents, &question);
                let fault = if size > MAX_ROW_BYTES {
                    let why = format!("its documents have {size} bytes, more than {MAX_ROW_BYTES}");
                    Some(Fault::too_long(why))
                } else if !seen.questions.insert(key.clone()) {
                    let why = format!("it repeats a question: {}", shown(&question.text));
                    Some(Fault { reason: "that repeat others", why })
                } else {
                    let fault = |why| Fault { reason: "that no grader accepts", why };
                    gradable(&question, &documents).err().map(fault)
                };
                match fault {
                    Some(Fault { reason, why }) => {
                        manifest.skip(reason, &files[context.input], context.line, why);
                    }
                    None => fresh.push(KeyedQuestion { question, key }),
                }
            }
            if fresh.is_empty() {
                continue;
            }
            let mut same = documents.clone();
            same.sort_unstable();
            let at = match seen.entries.get(&same).copied().filter(|_| !documents.is_empty()) {
                Some(at) => at,
                None => {
                    let entry =
                        Entry { input: context.input, documents, questions: Vec::new(), group: 0 };
                    pool.entries.push(entry);
                    seen.entries.insert(same.clone(), pool.entries.len() - 1);
                    pool.entries.len() - 1
                }
            };
            pool.entries[at].questions.extend(fresh);
            let title = context.title.map(|title| format!("title {title}"));
            groups
                .join(at, same.iter().map(|document| format!("document {document}")).chain(title));
        }
        for (at, entry) in pool.entries.iter_mut().enumerate() {
            entry.group = groups.root(at);
        }
        pool
    }

    fn documents(&mut self, texts: Vec<String>, seen: &mut Seen) -> Vec<usize> {
        let mut places = Vec::new();
        for text in texts {
            let key = short_digest(&[&normal(&text)]);
            let place = *seen.documents.entry(key.clone()).or_insert_with(|| {
                self.documents.push(Document { text, key });
                self.documents.len() - 1
            });
            if !places.contains(&place) {
                places.push(place);
            }
        }
        places
    }

    /// The digest that identifies a question: its documents, text and choices.
    fn key(&self, documents: &[usize], question: &Question) -> String {
        let mut keys: Vec<String> =
            documents.iter().map(|at| self.documents[*at].key.clone()).collect();
        keys.sort_unstable();
        keys.push(folded(&question.text));
        if let CorrectAnswer::Choices { choices, .. } = &question.right {
            keys.extend(choices.iter().map(|choice| folded(choice)));
        }
        short_digest(&keys.iter().map(String::as_str).collect::<Vec<_>>())
    }

    /// The questions for training and for validation, in the order of the output.
    pub(super) fn select(&self, settings: &PrepareSettings, manifest: &mut Manifest) -> Selection {
        let seed = settings.seed;
        let key =
            |(entry, number): &QuestionIndex| self.entries[*entry].questions[*number].key.as_str();
        let all = self.entries.iter().enumerate();
        let mut places: Vec<QuestionIndex> = all
            .flat_map(|(at, entry)| (0..entry.questions.len()).map(move |number| (at, number)))
            .collect();
        if let Some(limit) = settings.limit.filter(|limit| *limit < places.len()) {
            places.sort_by_cached_key(|place| hash_labels(seed, &["limit", key(place)]));
            for _ in limit..places.len() {
                *manifest.left_out.entry("beyond the limit").or_default() += 1;
            }
            places.truncate(limit);
        }
        places.sort_by_cached_key(|place| (hash_labels(seed, &["order", key(place)]), *place));
        let held_out = self.held_out(&places, settings);
        let (validation, train) = places
            .into_iter()
            .partition(|(entry, _)| held_out.contains(&self.entries[*entry].group));
        Selection { train, validation }
    }

    /// The groups for validation: about as many questions as requested, and never all groups.
    fn held_out(&self, places: &[QuestionIndex], settings: &PrepareSettings) -> HashSet<usize> {
        let mut groups: BTreeMap<usize, (usize, &str)> = BTreeMap::new();
        for (entry, number) in places {
            let entry = &self.entries[*entry];
            let key = entry.questions[*number].key.as_str();
            let group = groups.entry(entry.group).or_insert((0, key));
            *group = (group.0 + 1, group.1.min(key));
        }
        let wanted = (places.len() as f64 * settings.validation).round() as usize;
        if groups.len() < 2 || wanted == 0 {
            return HashSet::new();
        }
        let mut order: Vec<(usize, usize, u64)> = groups
            .iter()
            .map(|(group, (size, key))| {
                (*group, *size, hash_labels(settings.seed, &["group", key]))
            })
            .collect();
        order.sort_unstable_by_key(|(_, _, at)| *at);
        let (mut held_out, mut taken) = (HashSet::new(), 0);
        for (group, size, _) in &order {
            if taken < wanted
                && taken + size <= wanted + wanted / 2 + 1
                && held_out.len() + 1 < order.len()
            {
                held_out.insert(*group);
                taken += size;
            }
        }
        if held_out.is_empty() {
            held_out.extend(
                order.iter().min_by_key(|(_, size, at)| (*size, *at)).map(|(group, _, _)| *group),
            );
        }
        held_out
    }
}

/// What was seen before.
#[derive(Default)]
struct Seen {
    documents: HashMap<String, usize>,
    questions: HashSet<String>,
    entries: HashMap<Vec<usize>, usize>,
}

/// Union-find: entries that share a mark end up in one group.
#[derive(Default)]
struct Groups {
    parents: Vec<usize>,
    holders: HashMap<String, usize>,
}

impl Groups {
    fn join(&mut self, entry: usize, marks: impl Iterator<Item = String>) {
        while self.parents.len() <= entry {
            self.parents.push(self.parents.len());
        }
        for mark in marks {
            let holder = *self.holders.entry(mark).or_insert(entry);
            let (one, other) = (self.root(holder), self.root(entry));
            self.parents[one.max(other)] = one.min(other);
        }
    }

    fn root(&mut self, entry: usize) -> usize {
        let mut at = entry;
        while self.parents[at] != at {
            self.parents[at] = self.parents[self.parents[at]];
            at = self.parents[at];
        }
        at
    }
}

/// The content of a context, for sorting.
fn content<'a>(context: &'a Context, files: &'a [String]) -> impl Ord + 'a {
    let Context { input, title, documents, questions, .. } = context;
    (documents, questions, title, &files[*input])
}

/// The domain of a question, which selects its grader. Without documents, numbers are graded exactly; all else may be
/// partly correct.
pub(super) fn domain<'a>(question: &'a Question, documents: &[usize]) -> &'a str {
    let number = || truth(question).replace(',', "").parse().is_ok_and(f64::is_finite);
    match &question.domain {
        Some(domain) => domain,
        None if documents.is_empty() && number() => "math",
        None => "instruct_pretrain",
    }
}

/// The type of a question, as the grader names it.
pub(super) fn qa_type(question: &Question) -> &'static str {
    match question.right {
        CorrectAnswer::Text(_) => "Free-form",
        CorrectAnswer::Choices { .. } => "Multiple Choice",
    }
}

/// The reference answer: the most frequent one, the first of those; letters for choices.
pub(super) fn truth(question: &Question) -> String {
    match &question.right {
        CorrectAnswer::Choices { right, .. } => {
            let letters: Vec<String> =
                right.iter().map(|at| super::choices::letter(*at).to_string()).collect();
            letters.join(", ")
        }
        CorrectAnswer::Text(answers) => {
            let mut often: HashMap<String, usize> = HashMap::new();
            for answer in answers {
                *often.entry(folded(answer)).or_default() += 1;
            }
            let best = answers.iter().rev().max_by_key(|answer| often.get(&folded(answer)));
            best.cloned().unwrap_or_default()
        }
    }
}

/// Whether the grader gives the reference answer the full score.
fn gradable(question: &Question, documents: &[usize]) -> Result<(), String> {
    let truth = truth(question);
    let row = grade::context::Row {
        domain: domain(question, documents),
        qa_type: Some(qa_type(question)),
        ground_truth: &truth,
        agent_answer: &truth,
    };
    match grade::context::reward(&row) {
        Ok(1.0) => Ok(()),
        Ok(score) => Err(format!("its own answer {} would score {score}", shown(&truth))),
        Err(error) => Err(error.to_string()),
    }
}

/// An input text for a message: quoted, escaped, truncated.
fn shown(text: &str) -> String {
    let start: String = text.chars().take(60).collect();
    let more = if start.len() < text.len() { "…" } else { "" };
    format!("`{}{more}`", start.escape_debug())
}

/// A file name without extension, as a part of ids.
fn stem(file: &str) -> String {
    let stem = file.rsplit_once('.').map_or(file, |(stem, _)| stem);
    let plain = stem
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() || c == '_' || c == '-' { c } else { '_' });
    plain.take(60).collect()
}
