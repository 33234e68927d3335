//! Counts the places where a text checks its own result, unlike those that only contain a word of checking: "let's confirm
//! this with code", not "a test to confirm the diagnosis" nor "check if n is prime".

/// Verbs of checking.
const VERBS: [&str; 16] = [
    "verify",
    "verifies",
    "verified",
    "verifying",
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
    "validate",
    "validating",
];

/// Words that may stand between "let's" and the verb, or between the verb and its object.
const ADVERBS: [&str; 8] = ["now", "also", "quickly", "manually", "again", "then", "first", "just"];

/// Objects that are the text's own work, after "the".
const OWN: [&str; 18] = [
    "answer",
    "answers",
    "arithmetic",
    "calculation",
    "calculations",
    "computation",
    "computations",
    "count",
    "counts",
    "logic",
    "math",
    "reasoning",
    "result",
    "results",
    "solution",
    "steps",
    "total",
    "work",
];

/// Phrases of two words that always count.
const PHRASES: [[&str; 2]; 8] = [
    ["double", "check"],
    ["double", "checking"],
    ["sanity", "check"],
    ["plug", "back"],
    ["plugging", "back"],
    ["substitute", "back"],
    ["substituting", "back"],
    ["as", "verification"],
];

/// The number of self-checks in the lower-case words of a line; `.` stands for the end of a sentence.
pub(super) fn count(words: &[String]) -> u64 {
    let mut found = 0;
    let mut at = 0;
    while at < words.len() {
        let is_phrase = PHRASES.iter().any(|phrase| starts(&words[at..], phrase));
        if is_phrase || (VERBS.contains(&words[at].as_str()) && is_own(words, at)) {
            found += 1;
            // The rest of the same phrase does not count again.
            at += 1;
        }
        at += 1;
    }
    found
}

/// Whether the verb at a position is about the text's own work: announced ("let me check"), with such an object ("verify
/// our calculations"), or concluding ("this confirms").
fn is_own(words: &[String], at: usize) -> bool {
    let before: Vec<&str> = skip_adverbs(words[..at].iter().rev()).take(2).collect();
    let after: Vec<&str> = skip_adverbs(words[at + 1..].iter()).take(2).collect();
    let announced = matches!(before[..], ["let's", ..] | ["me" | "us", "let"]);
    let concluding = matches!(before[..], ["this", ..]) && words[at].ends_with('s');
    let object = match after[..] {
        ["this" | "these" | "our" | "my", ..] => true,
        ["the", noun] => OWN.contains(&noun),
        _ => false,
    };
    announced || concluding || object
}

fn skip_adverbs<'a>(words: impl Iterator<Item = &'a String>) -> impl Iterator<Item = &'a str> {
    words.map(String::as_str).skip_while(|word| ADVERBS.contains(word))
}

fn starts(words: &[String], phrase: &[&str]) -> bool {
    words.len() >= phrase.len() && words.iter().zip(phrase).all(|(word, said)| word == said)
}
