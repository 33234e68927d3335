//! How plain answers are built: words of checking and of doubt, steps, lists, headings, a marked end.
//!
//! Counts of patterns in a text, whatever it is about. `docs/analyses.md` lists them.

use serde::{Deserialize, Serialize};

use super::words::is_word;

/// A pattern that is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Pattern {
    /// Words of checking: verify, check, confirm, validate, double-check, sanity, in their forms.
    Verification,
    /// What the model announces to do: "let me", "let's", "let us".
    Announcement,
    /// Words of doubt: wait, actually, however as a sentence's begin, on second thought, mistake.
    Reconsideration,
    /// Headings: lines that begin with `#`, or are bold from end to end.
    Heading,
    /// Lines that begin with a number.
    Numbered,
    /// Lines that begin with a bullet.
    Bullet,
    /// "Step 1" and the like.
    Step,
    /// Sentences that begin with first, second, third, next, then, finally, therefore and the like.
    Sequence,
    /// A marked end: `\boxed{`, "final answer", "the answer is", "in conclusion".
    Conclusion,
}

impl Pattern {
    /// All of them, in the order they are shown.
    pub const ALL: [Self; 9] = [
        Self::Verification,
        Self::Announcement,
        Self::Reconsideration,
        Self::Heading,
        Self::Numbered,
        Self::Bullet,
        Self::Step,
        Self::Sequence,
        Self::Conclusion,
    ];

    /// Its name in files and tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Verification => "verification",
            Self::Announcement => "announcement",
            Self::Reconsideration => "reconsideration",
            Self::Heading => "heading",
            Self::Numbered => "numbered",
            Self::Bullet => "bullet",
            Self::Step => "step",
            Self::Sequence => "sequence",
            Self::Conclusion => "conclusion",
        }
    }
}

/// The patterns of one answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plain {
    /// Words.
    pub words: u64,
    /// How often each pattern occurs, in the order of [`Pattern::ALL`].
    pub counts: [u64; 9],
}

impl Plain {
    /// Counts the patterns of an answer.
    pub fn of(text: &str) -> Self {
        let mut plain = Self::default();
        let mut fenced = false;
        for line in text.lines() {
            // Code in an answer is not its structure.
            if line.trim_start().starts_with("```") {
                fenced = !fenced;
            } else if !fenced {
                plain.line(line.trim());
            }
        }
        plain
    }

    /// How often a pattern occurs.
    pub fn count(&self, pattern: Pattern) -> u64 {
        self.counts[pattern as usize]
    }

    /// Whether the answer speaks of checking itself.
    pub fn verifies(&self) -> bool {
        self.count(Pattern::Verification) > 0
    }

    /// Whether the answer has a visible structure: a heading, or two lines or sentences of one sequence.
    pub fn is_structured(&self) -> bool {
        use Pattern::{Bullet, Heading, Numbered, Sequence, Step};
        self.count(Heading) > 0
            || [Numbered, Bullet, Step, Sequence].iter().any(|pattern| self.count(*pattern) >= 2)
    }

    fn add(&mut self, pattern: Pattern) {
        self.counts[pattern as usize] += 1;
    }

    fn line(&mut self, line: &str) {
        if is_heading(line) {
            self.add(Pattern::Heading);
        }
        let body = match marker(line) {
            Some((pattern, body)) => {
                self.add(pattern);
                body
            }
            None => line,
        };
        self.words += body.split_whitespace().count() as u64;
        for _ in body.matches("\\boxed{") {
            self.add(Pattern::Conclusion);
        }
        self.phrases(&spoken(body));
    }

    /// Counts phrases in words of small letters; `.` stands for the end of a sentence.
    fn phrases(&mut self, words: &[String]) {
        let mut place = Place::Begin;
        let mut at = 0;
        while let Some(rest) = words.get(at..).filter(|rest| !rest.is_empty()) {
            if rest[0] == "." {
                place = Place::Begin;
                at += 1;
                continue;
            }
            let found = PHRASES.iter().find(|phrase| phrase.is_at(rest, place));
            if let Some(phrase) = found {
                self.add(phrase.pattern);
            } else if is_checking(&rest[0]) {
                self.add(Pattern::Verification);
            } else if rest[0] == "step" && rest.get(1).is_some_and(|word| is_number(word)) {
                self.add(Pattern::Step);
            }
            at += found.map_or(1, |phrase| phrase.words.len());
            place = Place::Anywhere;
        }
    }
}

/// Patterns over many answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PlainSummary {
    /// How many answers.
    pub answers: u64,
    /// Words of all.
    pub words: u64,
    /// Answers that speak of checking.
    pub verifying: u64,
    /// Answers with a visible structure.
    pub structured: u64,
    /// How often each pattern occurs in all, in the order of [`Pattern::ALL`].
    pub counts: [u64; 9],
}

impl PlainSummary {
    /// Sums up.
    pub fn of(answers: impl IntoIterator<Item = Plain>) -> Self {
        let mut all = Self::default();
        for answer in answers {
            all.answers += 1;
            all.words += answer.words;
            all.verifying += u64::from(answer.verifies());
            all.structured += u64::from(answer.is_structured());
            all.counts.iter_mut().zip(answer.counts).for_each(|(sum, count)| *sum += count);
        }
        all
    }

    /// How often a pattern occurs in a thousand words.
    pub fn per_thousand_words(&self, pattern: Pattern) -> f64 {
        1000.0 * share(self.counts[pattern as usize], self.words)
    }

    /// The share of answers that speak of checking.
    pub fn verifying_share(&self) -> f64 {
        share(self.verifying, self.answers)
    }

    /// The share of answers with a visible structure.
    pub fn structured_share(&self) -> f64 {
        share(self.structured, self.answers)
    }
}

fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

struct Phrase {
    pattern: Pattern,
    words: &'static [&'static str],
    place: Place,
}

#[derive(Clone, Copy, PartialEq)]
enum Place {
    Anywhere,
    Begin,
}

impl Phrase {
    fn is_at(&self, words: &[String], place: Place) -> bool {
        (place == Place::Begin || self.place == Place::Anywhere)
            && words.len() >= self.words.len()
            && self.words.iter().zip(words).all(|(word, said)| word == said)
    }
}

const fn anywhere(pattern: Pattern, words: &'static [&'static str]) -> Phrase {
    Phrase { pattern, words, place: Place::Anywhere }
}

const fn begin(pattern: Pattern, words: &'static [&'static str]) -> Phrase {
    Phrase { pattern, words, place: Place::Begin }
}

/// Phrases of more than one word, or that count only where a sentence begins. The first that fits counts.
const PHRASES: [Phrase; 38] = [
    anywhere(Pattern::Verification, &["double", "check"]),
    anywhere(Pattern::Verification, &["double", "checking"]),
    anywhere(Pattern::Verification, &["sanity", "check"]),
    anywhere(Pattern::Verification, &["plug", "back"]),
    anywhere(Pattern::Verification, &["plugging", "back"]),
    anywhere(Pattern::Verification, &["substitute", "back"]),
    anywhere(Pattern::Verification, &["substituting", "back"]),
    anywhere(Pattern::Verification, &["make", "sure"]),
    anywhere(Pattern::Announcement, &["let", "me"]),
    anywhere(Pattern::Announcement, &["let", "us"]),
    anywhere(Pattern::Announcement, &["let's"]),
    begin(Pattern::Reconsideration, &["wait"]),
    begin(Pattern::Reconsideration, &["but", "wait"]),
    begin(Pattern::Reconsideration, &["hmm"]),
    begin(Pattern::Reconsideration, &["actually"]),
    begin(Pattern::Reconsideration, &["alternatively"]),
    anywhere(Pattern::Reconsideration, &["on", "second", "thought"]),
    anywhere(Pattern::Reconsideration, &["i", "made", "a", "mistake"]),
    anywhere(Pattern::Reconsideration, &["that's", "not", "right"]),
    begin(Pattern::Sequence, &["first"]),
    begin(Pattern::Sequence, &["firstly"]),
    begin(Pattern::Sequence, &["second"]),
    begin(Pattern::Sequence, &["secondly"]),
    begin(Pattern::Sequence, &["third"]),
    begin(Pattern::Sequence, &["thirdly"]),
    begin(Pattern::Sequence, &["next"]),
    begin(Pattern::Sequence, &["then"]),
    begin(Pattern::Sequence, &["finally"]),
    begin(Pattern::Sequence, &["lastly"]),
    begin(Pattern::Sequence, &["therefore"]),
    begin(Pattern::Sequence, &["thus"]),
    begin(Pattern::Sequence, &["hence"]),
    anywhere(Pattern::Conclusion, &["final", "answer"]),
    anywhere(Pattern::Conclusion, &["the", "answer", "is"]),
    begin(Pattern::Conclusion, &["answer"]),
    begin(Pattern::Conclusion, &["in", "conclusion"]),
    begin(Pattern::Conclusion, &["in", "summary"]),
    begin(Pattern::Conclusion, &["to", "summarize"]),
];

/// Forms of verify, check, confirm and validate.
fn is_checking(word: &str) -> bool {
    const FORMS: [&str; 23] = [
        "verify",
        "verifies",
        "verified",
        "verifying",
        "verification",
        "check",
        "checks",
        "checked",
        "checking",
        "recheck",
        "rechecking",
        "confirm",
        "confirms",
        "confirmed",
        "confirming",
        "confirmation",
        "validate",
        "validates",
        "validated",
        "validating",
        "validation",
        "crosscheck",
        "doublecheck",
    ];
    FORMS.contains(&word)
}

fn is_number(word: &str) -> bool {
    const WORDS: [&str; 6] = ["one", "two", "three", "four", "five", "six"];
    word.bytes().all(|byte| byte.is_ascii_digit()) || WORDS.contains(&word)
}

/// The words of a line in small letters; the end of a sentence is a word of its own.
fn spoken(line: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    let mut word = String::new();
    for c in line.chars().chain([' ']) {
        match c {
            '’' => word.push('\''),
            c if is_word(c) && c != '_' => word.extend(c.to_lowercase()),
            '\'' if !word.is_empty() => word.push('\''),
            c => {
                if !word.is_empty() {
                    words.push(std::mem::take(&mut word));
                }
                if matches!(c, '.' | '!' | '?' | ':' | ';') {
                    words.push(".".into());
                }
            }
        }
    }
    words
}

fn is_heading(line: &str) -> bool {
    let marks = line.bytes().take_while(|byte| *byte == b'#').count();
    let marked = (1..=6).contains(&marks) && line[marks..].starts_with(' ');
    let bold = line
        .strip_prefix("**")
        .and_then(|rest| rest.strip_suffix("**").or(rest.strip_suffix("**:")));
    marked || bold.is_some_and(|inner| !inner.is_empty() && !inner.contains("**"))
}

/// What a line of a list begins with, and the rest of it.
fn marker(line: &str) -> Option<(Pattern, &str)> {
    for bullet in ["- ", "* ", "+ ", "• "] {
        if let Some(rest) = line.strip_prefix(bullet) {
            return Some((Pattern::Bullet, rest));
        }
    }
    let open = line.strip_prefix('(').unwrap_or(line);
    let digits = open.bytes().take_while(u8::is_ascii_digit).count();
    let rest = open[digits..].strip_prefix(['.', ')'])?;
    let fits = (1..=3).contains(&digits) && rest.starts_with(' ');
    fits.then_some((Pattern::Numbered, rest))
}
