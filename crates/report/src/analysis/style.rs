//! Style of answers without a sandbox: words of verification and doubt, steps, lists, headings, a marked conclusion.
//!
//! Counts patterns whatever a text is about. `docs/analyses.md` lists them.

use serde::{Deserialize, Serialize};

use super::{self_check, words::is_word};

/// A counted pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StylePattern {
    /// Verification: verify, check, confirm, validate, double-check, sanity, in their forms.
    Verification,
    /// Announcements: "let me", "let's", "let us".
    Announcement,
    /// Doubt: wait, actually, however at the start of a sentence, on second thought, mistake.
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
    /// Conclusion: `\boxed{`, "final answer", "the answer is", "in conclusion".
    Conclusion,
}

impl StylePattern {
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

    /// Name in files and tables.
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
pub struct AnswerStyle {
    /// Words.
    pub words: u64,
    /// Occurrences of each pattern, in the order of [`StylePattern::ALL`].
    pub counts: [u64; 9],
    /// Places where the answer checks its own result.
    #[serde(default)]
    pub self_checks: u64,
}

impl AnswerStyle {
    /// Counts the patterns of an answer.
    pub fn of(text: &str) -> Self {
        let mut style = Self::default();
        let mut fenced = false;
        for line in text.lines() {
            // Code blocks are not structure of the answer.
            if line.trim_start().starts_with("```") {
                fenced = !fenced;
            } else if !fenced {
                style.line(line.trim());
            }
        }
        style
    }

    /// Occurrences of a pattern.
    pub fn count(&self, pattern: StylePattern) -> u64 {
        self.counts[pattern as usize]
    }

    /// Whether the answer mentions verification.
    pub fn verifies(&self) -> bool {
        self.count(StylePattern::Verification) > 0
    }

    /// Whether the answer checks its own result, or announces it.
    pub fn checks_itself(&self) -> bool {
        self.self_checks > 0
    }

    /// Whether the answer has a visible structure: a heading, or two lines or sentences of one sequence.
    pub fn is_structured(&self) -> bool {
        use StylePattern::{Bullet, Heading, Numbered, Sequence, Step};
        self.count(Heading) > 0
            || [Numbered, Bullet, Step, Sequence].iter().any(|pattern| self.count(*pattern) >= 2)
    }

    fn add(&mut self, pattern: StylePattern) {
        self.counts[pattern as usize] += 1;
    }

    fn line(&mut self, line: &str) {
        if is_heading(line) {
            self.add(StylePattern::Heading);
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
            self.add(StylePattern::Conclusion);
        }
        let words = spoken(body);
        self.self_checks += self_check::count(&words);
        self.phrases(&words);
    }

    /// Counts phrases in lower-case words; `.` stands for the end of a sentence.
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
                self.add(StylePattern::Verification);
            } else if rest[0] == "step" && rest.get(1).is_some_and(|word| is_number(word)) {
                self.add(StylePattern::Step);
            }
            at += found.map_or(1, |phrase| phrase.words.len());
            place = Place::Anywhere;
        }
    }
}

/// Pattern counts over many answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StyleSummary {
    /// Number of answers.
    pub answers: u64,
    /// Words in total.
    pub words: u64,
    /// Answers that mention verification.
    pub verifying: u64,
    /// Answers that check their own result.
    #[serde(default)]
    pub self_checking: u64,
    /// Answers with a visible structure.
    pub structured: u64,
    /// Occurrences of each pattern in total, in the order of [`StylePattern::ALL`].
    pub counts: [u64; 9],
}

impl StyleSummary {
    /// Sums over answers.
    pub fn of(answers: impl IntoIterator<Item = AnswerStyle>) -> Self {
        let mut all = Self::default();
        for answer in answers {
            all.answers += 1;
            all.words += answer.words;
            all.verifying += u64::from(answer.verifies());
            all.self_checking += u64::from(answer.checks_itself());
            all.structured += u64::from(answer.is_structured());
            all.counts.iter_mut().zip(answer.counts).for_each(|(sum, count)| *sum += count);
        }
        all
    }

    /// Occurrences of a pattern per thousand words.
    pub fn per_thousand_words(&self, pattern: StylePattern) -> f64 {
        1000.0 * share(self.counts[pattern as usize], self.words)
    }

    /// Share of answers that mention verification.
    pub fn verifying_share(&self) -> f64 {
        share(self.verifying, self.answers)
    }

    /// Share of answers that check their own result.
    pub fn self_checking_share(&self) -> f64 {
        share(self.self_checking, self.answers)
    }

    /// Share of answers with a visible structure.
    pub fn structured_share(&self) -> f64 {
        share(self.structured, self.answers)
    }
}

fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

struct Phrase {
    pattern: StylePattern,
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

const fn anywhere(pattern: StylePattern, words: &'static [&'static str]) -> Phrase {
    Phrase { pattern, words, place: Place::Anywhere }
}

const fn begin(pattern: StylePattern, words: &'static [&'static str]) -> Phrase {
    Phrase { pattern, words, place: Place::Begin }
}

/// Phrases of several words, or that count only at the start of a sentence. The first match counts.
const PHRASES: [Phrase; 38] = [
    anywhere(StylePattern::Verification, &["double", "check"]),
    anywhere(StylePattern::Verification, &["double", "checking"]),
    anywhere(StylePattern::Verification, &["sanity", "check"]),
    anywhere(StylePattern::Verification, &["plug", "back"]),
    anywhere(StylePattern::Verification, &["plugging", "back"]),
    anywhere(StylePattern::Verification, &["substitute", "back"]),
    anywhere(StylePattern::Verification, &["substituting", "back"]),
    anywhere(StylePattern::Verification, &["make", "sure"]),
    anywhere(StylePattern::Announcement, &["let", "me"]),
    anywhere(StylePattern::Announcement, &["let", "us"]),
    anywhere(StylePattern::Announcement, &["let's"]),
    begin(StylePattern::Reconsideration, &["wait"]),
    begin(StylePattern::Reconsideration, &["but", "wait"]),
    begin(StylePattern::Reconsideration, &["hmm"]),
    begin(StylePattern::Reconsideration, &["actually"]),
    begin(StylePattern::Reconsideration, &["alternatively"]),
    anywhere(StylePattern::Reconsideration, &["on", "second", "thought"]),
    anywhere(StylePattern::Reconsideration, &["i", "made", "a", "mistake"]),
    anywhere(StylePattern::Reconsideration, &["that's", "not", "right"]),
    begin(StylePattern::Sequence, &["first"]),
    begin(StylePattern::Sequence, &["firstly"]),
    begin(StylePattern::Sequence, &["second"]),
    begin(StylePattern::Sequence, &["secondly"]),
    begin(StylePattern::Sequence, &["third"]),
    begin(StylePattern::Sequence, &["thirdly"]),
    begin(StylePattern::Sequence, &["next"]),
    begin(StylePattern::Sequence, &["then"]),
    begin(StylePattern::Sequence, &["finally"]),
    begin(StylePattern::Sequence, &["lastly"]),
    begin(StylePattern::Sequence, &["therefore"]),
    begin(StylePattern::Sequence, &["thus"]),
    begin(StylePattern::Sequence, &["hence"]),
    anywhere(StylePattern::Conclusion, &["final", "answer"]),
    anywhere(StylePattern::Conclusion, &["the", "answer", "is"]),
    begin(StylePattern::Conclusion, &["answer"]),
    begin(StylePattern::Conclusion, &["in", "conclusion"]),
    begin(StylePattern::Conclusion, &["in", "summary"]),
    begin(StylePattern::Conclusion, &["to", "summarize"]),
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

/// Lower-case words of a line; the end of a sentence is a separate word.
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

/// The list marker of a line, and the rest.
fn marker(line: &str) -> Option<(StylePattern, &str)> {
    for bullet in ["- ", "* ", "+ ", "• "] {
        if let Some(rest) = line.strip_prefix(bullet) {
            return Some((StylePattern::Bullet, rest));
        }
    }
    let open = line.strip_prefix('(').unwrap_or(line);
    let digits = open.bytes().take_while(u8::is_ascii_digit).count();
    let rest = open[digits..].strip_prefix(['.', ')'])?;
    let fits = (1..=3).contains(&digits) && rest.starts_with(' ');
    fits.then_some((StylePattern::Numbered, rest))
}
