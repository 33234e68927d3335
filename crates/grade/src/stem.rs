//! The Porter stemmer with the extensions of NLTK, used by ROUGE-L.
//!
//! For words of letters and digits; a stem need not be a word.

/// The stem of a word, in lower case.
pub fn stem(word: &str) -> String {
    let lower: String = word.to_lowercase();
    if let Some((_, stem)) = IRREGULAR.iter().find(|(form, _)| *form == lower) {
        return (*stem).to_owned();
    }
    if word.chars().nth(2).is_none() {
        return lower;
    }
    let mut word = Word(lower.chars().collect());
    plural(&mut word);
    past_or_progressive(&mut word);
    final_y(&mut word);
    double_suffix(&mut word);
    word.first_rule(&STEP_3, |stem| measure(stem) > 0);
    long_stem_suffix(&mut word);
    final_e(&mut word);
    if word.ends("ll") && measure(&word.0[..word.0.len() - 1]) > 1 {
        word.0.pop();
    }
    word.0.into_iter().collect()
}

/// Irregular forms.
const IRREGULAR: [(&str, &str); 16] = [
    ("sky", "sky"),
    ("skies", "sky"),
    ("dying", "die"),
    ("lying", "lie"),
    ("tying", "tie"),
    ("news", "news"),
    ("innings", "inning"),
    ("inning", "inning"),
    ("outings", "outing"),
    ("outing", "outing"),
    ("cannings", "canning"),
    ("canning", "canning"),
    ("howe", "howe"),
    ("proceed", "proceed"),
    ("exceed", "exceed"),
    ("succeed", "succeed"),
];

/// A suffix and its replacement.
type Rule = (&'static str, &'static str);

const STEP_1A: [Rule; 4] = [("sses", "ss"), ("ies", "i"), ("ss", "ss"), ("s", "")];

const STEP_2: [Rule; 21] = [
    ("ational", "ate"),
    ("tional", "tion"),
    ("enci", "ence"),
    ("anci", "ance"),
    ("izer", "ize"),
    ("bli", "ble"),
    ("alli", "al"),
    ("entli", "ent"),
    ("eli", "e"),
    ("ousli", "ous"),
    ("ization", "ize"),
    ("ation", "ate"),
    ("ator", "ate"),
    ("alism", "al"),
    ("iveness", "ive"),
    ("fulness", "ful"),
    ("ousness", "ous"),
    ("aliti", "al"),
    ("iviti", "ive"),
    ("biliti", "ble"),
    ("fulli", "ful"),
];

const STEP_3: [Rule; 7] = [
    ("icate", "ic"),
    ("ative", ""),
    ("alize", "al"),
    ("iciti", "ic"),
    ("ical", "ic"),
    ("ful", ""),
    ("ness", ""),
];

/// Dropped after long stems. `ion` has a condition of its own.
const STEP_4: [&str; 19] = [
    "al", "ance", "ence", "er", "ic", "able", "ible", "ant", "ement", "ment", "ent", "ion", "ou",
    "ism", "ate", "iti", "ous", "ive", "ize",
];

/// A word being stemmed.
struct Word(Vec<char>);

impl Word {
    fn ends(&self, suffix: &str) -> bool {
        self.without(suffix).is_some()
    }

    /// The part before a suffix, where the word has it. Suffixes are ASCII.
    fn without(&self, suffix: &str) -> Option<&[char]> {
        let at = self.0.len().checked_sub(suffix.len())?;
        let (stem, end) = self.0.split_at(at);
        end.iter().copied().eq(suffix.chars()).then_some(stem)
    }

    fn replace(&mut self, suffix: &str, with: &str) {
        self.0.truncate(self.0.len().saturating_sub(suffix.len()));
        self.0.extend(with.chars());
    }

    /// Applies the first rule whose suffix matches, unless its stem does not qualify. Returns whether one matched.
    fn first_rule(&mut self, rules: &[Rule], qualifies: impl Fn(&[char]) -> bool) -> bool {
        for (suffix, with) in rules {
            if let Some(stem) = self.without(suffix) {
                if qualifies(stem) {
                    self.replace(suffix, with);
                }
                return true;
            }
        }
        false
    }
}

fn plural(word: &mut Word) {
    if word.ends("ies") && word.0.len() == 4 {
        word.0.pop();
    } else {
        word.first_rule(&STEP_1A, |_| true);
    }
}

fn past_or_progressive(word: &mut Word) {
    if word.ends("ied") {
        let with = if word.0.len() == 4 { "ie" } else { "i" };
        return word.replace("ied", with);
    }
    if let Some(stem) = word.without("eed") {
        if measure(stem) > 0 {
            word.0.pop();
        }
        return;
    }
    let Some(suffix) = ["ed", "ing"].into_iter().find(|suffix| {
        word.without(suffix).is_some_and(|stem| consonants(stem).any(|consonant| !consonant))
    }) else {
        return;
    };
    word.replace(suffix, "");
    if word.first_rule(&[("at", "ate"), ("bl", "ble"), ("iz", "ize")], |_| true) {
        return;
    }
    if ends_double_consonant(&word.0) {
        if !word.0.last().is_some_and(|last| matches!(last, 'l' | 's' | 'z')) {
            word.0.pop();
        }
    } else if measure(&word.0) == 1 && ends_short(&word.0) {
        word.0.push('e');
    }
}

fn final_y(word: &mut Word) {
    let after_consonant = |stem: &[char]| {
        stem.len() > 1 && consonants(stem).last().is_some_and(|consonant| consonant)
    };
    word.first_rule(&[("y", "i")], after_consonant);
}

fn double_suffix(word: &mut Word) {
    // The rest of `alli` may end in another suffix.
    if word.without("alli").is_some_and(|stem| measure(stem) > 0) {
        word.replace("alli", "al");
    }
    if word.first_rule(&STEP_2, |stem| measure(stem) > 0) {
        return;
    }
    // The l counts as part of the stem, so that short ones such as `geo` qualify.
    if word.ends("logi") && measure(&word.0[..word.0.len() - 3]) > 0 {
        word.0.pop();
    }
}

fn long_stem_suffix(word: &mut Word) {
    let Some(suffix) = STEP_4.iter().find(|suffix| word.ends(suffix)) else { return };
    let stem = &word.0[..word.0.len() - suffix.len()];
    let after_s_or_t = || stem.last().is_some_and(|last| matches!(last, 's' | 't'));
    if measure(stem) > 1 && (*suffix != "ion" || after_s_or_t()) {
        word.replace(suffix, "");
    }
}

fn final_e(word: &mut Word) {
    let Some(stem) = word.without("e") else { return };
    let measure = measure(stem);
    if measure > 1 || measure == 1 && !ends_short(stem) {
        word.0.pop();
    }
}

/// For each letter whether it is a consonant; y is one at the start and after a vowel.
fn consonants(word: &[char]) -> impl Iterator<Item = bool> {
    word.iter().scan(false, |before, char| {
        *before = match char {
            'a' | 'e' | 'i' | 'o' | 'u' => false,
            'y' => !*before,
            _ => true,
        };
        Some(*before)
    })
}

/// Porter's measure: how often consonants follow vowels.
fn measure(stem: &[char]) -> usize {
    let mut after_vowel = false;
    let mut count = 0;
    for consonant in consonants(stem) {
        count += usize::from(consonant && after_vowel);
        after_vowel = !consonant;
    }
    count
}

fn ends_double_consonant(word: &[char]) -> bool {
    let doubled = word.len() >= 2 && word[word.len() - 1] == word[word.len() - 2];
    doubled && consonants(word).last() == Some(true)
}

/// Ends in consonant, vowel, consonant other than w, x, y; or is a vowel and a consonant.
fn ends_short(word: &[char]) -> bool {
    let flags: Vec<bool> = consonants(word).collect();
    match flags.as_slice() {
        [false, true] => true,
        [.., true, false, true] => !word.last().is_some_and(|last| matches!(last, 'w' | 'x' | 'y')),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suffixes_are_stripped() {
        for (word, expected) in [
            ("caresses", "caress"),
            ("ponies", "poni"),
            ("ties", "tie"),
            ("cats", "cat"),
            ("feed", "feed"),
            ("agreed", "agre"),
            ("plastered", "plaster"),
            ("bled", "bled"),
            ("motoring", "motor"),
            ("sing", "sing"),
            ("conflated", "conflat"),
            ("hopping", "hop"),
            ("falling", "fall"),
            ("failing", "fail"),
            ("filing", "file"),
            ("happy", "happi"),
            ("enjoy", "enjoy"),
            ("relational", "relat"),
            ("radically", "radic"),
            ("geology", "geolog"),
            ("adoption", "adopt"),
            ("controll", "control"),
            ("syzygy", "syzygi"),
            ("DYING", "die"),
            ("as", "as"),
            ("died", "die"),
        ] {
            assert_eq!(stem(word), expected, "{word}");
        }
    }

    #[test]
    fn measures_count_vowels_before_consonants() {
        for (word, expected) in
            [("tr", 0), ("tree", 0), ("by", 0), ("trouble", 1), ("ivy", 1), ("orrery", 2), ("", 0)]
        {
            assert_eq!(measure(&word.chars().collect::<Vec<_>>()), expected, "{word}");
        }
    }
}
