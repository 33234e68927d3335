//! Interprets an object of an input file: its documents and questions, under the names of common data sets.
//!
//! Objects are untrusted: every field may be missing, of another type or huge. Nothing is repaired; what is not
//! understood is reported.

use serde_json::{Map, Value};

use super::choices;

const DOCUMENTS: [&str; 9] = [
    "documents",
    "document",
    "contexts",
    "context",
    "passages",
    "passage",
    "article",
    "story",
    "text",
];
const QUESTIONS: [&str; 3] = ["qas", "questions", "qa"];
const QUESTION: [&str; 3] = ["question", "query", "problem"];
const ANSWER: [&str; 6] = ["answers", "answer", "answerKey", "answer_key", "target", "label"];
const CHOICES: [&str; 2] = ["choices", "options"];

/// The maximum size of a document, in bytes.
const MAX_DOCUMENT_BYTES: usize = 1 << 20;
/// The maximum number of documents of a context.
const MAX_DOCUMENTS: usize = 200;
/// The maximum size of a question with its choices, and of an answer, in bytes.
const MAX_QUESTION_BYTES: usize = 16 << 10;
/// The maximum number of answers to a question; further ones are ignored.
const MAX_ANSWERS: usize = 100;
/// The maximum number of questions of a context.
const MAX_QUESTIONS: usize = 10_000;

/// Documents that belong together, with questions about them. There may be no document at all.
#[derive(Clone, Debug)]
pub(super) struct Context {
    /// The index of the input file.
    pub(super) input: usize,
    /// The line in it.
    pub(super) line: u64,
    /// The title of the whole it is a part of.
    pub(super) title: Option<String>,
    pub(super) documents: Vec<String>,
    pub(super) questions: Vec<Question>,
}

/// A question with its correct answer.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Question {
    pub(super) text: String,
    pub(super) right: CorrectAnswer,
    /// The domain given by the input.
    pub(super) domain: Option<String>,
}

/// The correct answer of a question.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum CorrectAnswer {
    /// Any of these texts; at least one.
    Text(Vec<String>),
    /// Some of these choices, by index.
    Choices { choices: Vec<String>, right: Vec<usize> },
}

/// Why an entry is skipped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Fault {
    /// The category, as a phrase after a number; a key of the manifest.
    pub(super) reason: &'static str,
    pub(super) why: String,
}

impl Fault {
    pub(super) fn broken(why: String) -> Self {
        Self { reason: "that cannot be read", why }
    }

    pub(super) fn too_long(why: String) -> Self {
        Self { reason: "that are too long", why }
    }

    pub(super) fn unanswered(why: impl Into<String>) -> Self {
        Self { reason: "without an answer", why: why.into() }
    }

    fn shape(why: impl Into<String>) -> Self {
        Self { reason: "of an unknown shape", why: why.into() }
    }
}

/// The contexts of an object (several for articles with paragraphs), and what was skipped.
pub(super) fn contexts(value: &Value, input: usize, line: u64) -> (Vec<Context>, Vec<Fault>) {
    let (mut contexts, mut faults) = (Vec::new(), Vec::new());
    let Value::Object(object) = value else {
        return (contexts, vec![Fault::broken("it is not an object".into())]);
    };
    let title = named(object.get("title")).map(str::to_owned);
    let parts: Vec<&Map<String, Value>> = match object.get("paragraphs") {
        Some(Value::Array(parts)) => parts.iter().filter_map(Value::as_object).collect(),
        _ => vec![object],
    };
    for part in parts {
        let documents = match documents(part) {
            Ok(documents) => documents,
            Err(fault) => {
                faults.push(fault);
                continue;
            }
        };
        let questions = questions(part, &mut faults);
        if !questions.is_empty() {
            contexts.push(Context { input, line, title: title.clone(), documents, questions });
        }
    }
    (contexts, faults)
}

fn first<'a>(object: &'a Map<String, Value>, keys: &[&str]) -> Option<&'a Value> {
    keys.iter().find_map(|key| object.get(*key).filter(|value| !value.is_null()))
}

/// The documents: one text, a list of texts or of titled texts, or parallel lists of titles and sentences.
fn documents(object: &Map<String, Value>) -> Result<Vec<String>, Fault> {
    let found = match first(object, &DOCUMENTS) {
        None => return Ok(Vec::new()),
        Some(Value::Array(list)) => list.iter().map(document).collect(),
        Some(Value::Object(columns)) => match (columns.get("title"), columns.get("sentences")) {
            (Some(Value::Array(titles)), Some(Value::Array(texts))) => {
                titles.iter().zip(texts).map(|(title, text)| titled(Some(title), text)).collect()
            }
            _ => document(&Value::Object(columns.clone())).map(|text| vec![text]),
        },
        Some(other) => document(other).map(|text| vec![text]),
    };
    let found: Option<Vec<String>> = found;
    let Some(mut found) = found else {
        return Err(Fault::shape("its documents are neither texts nor objects with `text`"));
    };
    found.retain(|text| !text.trim().is_empty());
    if found.len() > MAX_DOCUMENTS {
        return Err(Fault::too_long(format!(
            "it has {} documents, more than {MAX_DOCUMENTS}",
            found.len()
        )));
    }
    match found.iter().map(String::len).max() {
        Some(size) if size > MAX_DOCUMENT_BYTES => Err(Fault::too_long(format!(
            "it has a document of {size} bytes, more than {MAX_DOCUMENT_BYTES}"
        ))),
        _ => Ok(found),
    }
}

fn document(value: &Value) -> Option<String> {
    match value {
        Value::Object(object) => titled(
            object.get("title"),
            first(object, &["text", "content", "paragraph_text", "document", "sentences"])?,
        ),
        Value::Array(pair) => match &pair[..] {
            [title @ Value::String(_), sentences @ Value::Array(_)] => {
                titled(Some(title), sentences)
            }
            _ => titled(None, value),
        },
        other => titled(None, other),
    }
}

/// A text under its title; a list of sentences is joined.
fn titled(title: Option<&Value>, text: &Value) -> Option<String> {
    let text = match text {
        Value::String(text) => text.clone(),
        Value::Array(sentences) => {
            let sentences: Option<Vec<&str>> = sentences.iter().map(Value::as_str).collect();
            sentences?.iter().map(|sentence| sentence.trim()).collect::<Vec<_>>().join(" ")
        }
        _ => return None,
    };
    Some(match named(title) {
        Some(title) => format!("{title}\n\n{text}"),
        None => text,
    })
}

/// A title that is not empty.
fn named(title: Option<&Value>) -> Option<&str> {
    title.and_then(Value::as_str).map(str::trim).filter(|title| !title.is_empty())
}

fn questions(object: &Map<String, Value>, faults: &mut Vec<Fault>) -> Vec<Question> {
    let domain = object.get("domain");
    let asked: Vec<Result<Question, Fault>> = match first(object, &QUESTIONS) {
        Some(Value::Array(list)) if list.len() > MAX_QUESTIONS => {
            let why = format!("it has {} questions, more than {MAX_QUESTIONS}", list.len());
            vec![Err(Fault::too_long(why))]
        }
        Some(Value::Array(list)) => list
            .iter()
            .enumerate()
            .map(|(at, asked)| match asked {
                Value::Object(asked) => question(asked, domain),
                Value::String(text) => from_columns(object, text, at, domain),
                _ => Err(Fault::shape("a question is neither a text nor an object")),
            })
            .collect(),
        Some(_) => vec![Err(Fault::shape("its questions are no list"))],
        None => vec![question(object, domain)],
    };
    let mut questions = Vec::new();
    for asked in asked {
        match asked {
            Ok(question) => questions.push(question),
            Err(fault) => faults.push(fault),
        }
    }
    questions
}

/// A question of parallel lists of texts, answers and choices.
fn from_columns(
    object: &Map<String, Value>,
    text: &str,
    at: usize,
    domain: Option<&Value>,
) -> Result<Question, Fault> {
    let own = |keys: &[&str]| first(object, keys).and_then(|list| list.get(at));
    checked(text, own(&ANSWER), own(&CHOICES), domain)
}

fn question(object: &Map<String, Value>, domain: Option<&Value>) -> Result<Question, Fault> {
    let Some(text) = first(object, &QUESTION).and_then(Value::as_str) else {
        return Err(Fault::shape(format!("there is no text under any of {}", QUESTION.join(", "))));
    };
    if object.get("is_impossible") == Some(&Value::Bool(true)) {
        return Err(Fault::unanswered("it is marked as impossible to answer"));
    }
    let domain = object.get("domain").or(domain);
    checked(text, first(object, &ANSWER), first(object, &CHOICES), domain)
}

fn checked(
    text: &str,
    answer: Option<&Value>,
    choices: Option<&Value>,
    domain: Option<&Value>,
) -> Result<Question, Fault> {
    let text = text.trim();
    if text.is_empty() {
        return Err(Fault::shape("a question is empty"));
    }
    let Some(answer) = answer else { return Err(Fault::unanswered("it has no answer")) };
    let right = match choices {
        Some(choices) => choices::read(choices, answer)?,
        None => CorrectAnswer::Text(answers(answer)),
    };
    let (size, longest) = match &right {
        CorrectAnswer::Text(answers) if answers.is_empty() => {
            return Err(Fault::unanswered("its answer is empty"));
        }
        CorrectAnswer::Text(answers) => (0, answers.iter().map(String::len).max().unwrap_or(0)),
        CorrectAnswer::Choices { choices, .. } => (choices.iter().map(String::len).sum(), 0),
    };
    if text.len() + size > MAX_QUESTION_BYTES || longest > MAX_QUESTION_BYTES {
        return Err(Fault::too_long(format!(
            "a question or an answer has more than {MAX_QUESTION_BYTES} bytes"
        )));
    }
    let domain = match domain {
        None | Some(Value::Null) => None,
        Some(Value::String(domain)) => Some(domain.clone()),
        Some(_) => return Err(Fault::shape("its domain is not text")),
    };
    Ok(Question { text: text.to_owned(), right, domain })
}

/// All accepted texts, up to the maximum.
pub(super) fn answers(value: &Value) -> Vec<String> {
    let mut found = Vec::new();
    collect(value, 4, &mut found);
    found.truncate(MAX_ANSWERS);
    found
}

fn collect(value: &Value, depth: usize, found: &mut Vec<String>) {
    match value {
        Value::String(text) => {
            // Worked solutions end with the result after this mark (GSM8K).
            let result =
                text.rsplit_once("\n#### ").map_or(text.as_str(), |(_, result)| result).trim();
            if !result.is_empty() {
                found.push(result.to_owned());
            }
        }
        Value::Number(number) => found.push(number.to_string()),
        Value::Bool(truth) => found.push(if *truth { "yes" } else { "no" }.to_owned()),
        Value::Array(list) if depth > 0 => {
            list.iter().for_each(|value| collect(value, depth - 1, found))
        }
        Value::Object(object) if depth > 0 => {
            if let Some(text) = object.get("text") {
                collect(text, depth - 1, found);
            }
        }
        _ => {}
    }
}
