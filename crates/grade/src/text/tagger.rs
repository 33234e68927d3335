//! Part-of-speech tagging with NLTK's averaged perceptron for English.
//!
//! Greedy from left to right: a tag depends on the two tags before it and on the words two to
//! either side.

use std::{collections::HashMap, sync::LazyLock};

use super::chars::is_digit;

const TABLES: &[u8] = include_bytes!("../../data/tagger.bin");

/// A feature's name and its weights in the flat tables of [`Model`].
struct Feature {
    name: (u32, u32),
    weights: (u32, u32),
}

struct Model {
    tags: Vec<&'static str>,
    known: HashMap<&'static str, usize>,
    /// Sorted by name.
    features: Vec<Feature>,
    names: Vec<u8>,
    weights: Vec<(u8, f64)>,
}

static MODEL: LazyLock<Model> = LazyLock::new(|| Model::read(TABLES).unwrap_or_else(Model::empty));

/// The tags of the first tokens of a text.
pub(crate) fn tags<T: AsRef<str>>(tokens: &[T], limit: usize) -> Vec<&'static str> {
    let mut found: Vec<&'static str> = Vec::new();
    for (at, token) in tokens.iter().take(limit).enumerate() {
        let word = token.as_ref();
        let tag = match MODEL.known.get(word) {
            Some(tag) => MODEL.tags[*tag],
            None => {
                let before = |back: usize| at.checked_sub(back).map(|at| found[at]);
                let last = before(1).unwrap_or("-START-");
                // Before the second token comes the first of the two start marks, not the second.
                let last_but_one =
                    before(2).unwrap_or(if at == 1 { "-START-" } else { "-START2-" });
                MODEL.best(&Scene::new(tokens, at), word, last, last_but_one)
            }
        };
        found.push(tag);
    }
    found
}

/// The words around a token, normalized as in the model.
struct Scene {
    /// From two before to two after.
    words: [String; 5],
}

impl Scene {
    fn new<T: AsRef<str>>(tokens: &[T], at: usize) -> Self {
        let word = |offset: usize| {
            // Two start marks come before the tokens, two end marks after them.
            match (at + offset).checked_sub(2) {
                None => ["-START-", "-START2-"][at + offset].to_owned(),
                Some(index) => match tokens.get(index) {
                    Some(token) => normal(token.as_ref()),
                    None => ["-END-", "-END2-"][index - tokens.len()].to_owned(),
                },
            }
        };
        Self { words: [0, 1, 2, 3, 4].map(word) }
    }
}

impl Model {
    fn best(&self, scene: &Scene, word: &str, last: &str, last_but_one: &str) -> &'static str {
        let [two_before, before, here, after, two_after] =
            scene.words.each_ref().map(String::as_str);
        let first = word.char_indices().nth(1).map_or(word, |(end, _)| &word[..end]);
        // Sums of fractions depend on their order, so the order is the original's.
        let features: [&[&str]; 14] = [
            &["bias"],
            &["i suffix", suffix(word)],
            &["i pref1", first],
            &["i-1 tag", last],
            &["i-2 tag", last_but_one],
            &["i tag+i-2 tag", last, last_but_one],
            &["i word", here],
            &["i-1 tag+i word", last, here],
            &["i-1 word", before],
            &["i-1 suffix", suffix(before)],
            &["i-2 word", two_before],
            &["i+1 word", after],
            &["i+1 suffix", suffix(after)],
            &["i+2 word", two_after],
        ];
        let mut scores = vec![0.0; self.tags.len()];
        for parts in features {
            for (tag, weight) in self.weights_of(parts.join(" ").as_bytes()) {
                scores[usize::from(*tag)] += weight;
            }
        }
        let better = |best: usize, tag: usize| if scores[tag] >= scores[best] { tag } else { best };
        (0..scores.len()).reduce(better).map_or("", |tag| self.tags[tag])
    }

    fn weights_of(&self, name: &[u8]) -> &[(u8, f64)] {
        let name_of =
            |feature: &Feature| &self.names[feature.name.0 as usize..feature.name.1 as usize];
        match self.features.binary_search_by(|feature| name_of(feature).cmp(name)) {
            Ok(index) => {
                let (start, end) = self.features[index].weights;
                &self.weights[start as usize..end as usize]
            }
            Err(_) => &[],
        }
    }

    fn empty() -> Self {
        let (tags, features, names, weights) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        Self { tags, known: HashMap::new(), features, names, weights }
    }

    fn read(table: &'static [u8]) -> Option<Self> {
        let mut table = Table(table);
        let mut model = Self::empty();
        for _ in 0..table.number()? {
            model.tags.push(table.text()?);
        }
        for _ in 0..table.number()? {
            model.known.insert(table.text()?, table.number()?);
        }
        let mut name = Vec::new();
        for _ in 0..table.number()? {
            let shared = table.number()?;
            name.truncate(shared);
            name.extend(table.bytes()?);
            let (name_start, start) = (model.names.len() as u32, model.weights.len() as u32);
            model.names.extend(&name);
            for _ in 0..table.number()? {
                let tag = u8::try_from(table.number()?).ok()?;
                let folded = i32::try_from(table.number()?).ok()?;
                let thousandths = (folded >> 1) ^ -(folded & 1);
                model.weights.push((tag, f64::from(thousandths) / 1000.0));
            }
            model.features.push(Feature {
                name: (name_start, model.names.len() as u32),
                weights: (start, model.weights.len() as u32),
            });
        }
        Some(model)
    }
}

/// Numbers of seven bits a byte, and texts that follow their length.
struct Table(&'static [u8]);

impl Table {
    fn number(&mut self) -> Option<usize> {
        let (mut number, mut shift) = (0, 0);
        loop {
            let (byte, rest) = self.0.split_first()?;
            self.0 = rest;
            number |= usize::from(byte & 127).checked_shl(shift)?;
            shift += 7;
            if byte & 128 == 0 {
                return Some(number);
            }
        }
    }

    fn bytes(&mut self) -> Option<&'static [u8]> {
        let length = self.number()?;
        let (bytes, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(bytes)
    }

    fn text(&mut self) -> Option<&'static str> {
        std::str::from_utf8(self.bytes()?).ok()
    }
}

fn normal(word: &str) -> String {
    if word.contains('-') && !word.starts_with('-') {
        return "!HYPHEN".to_owned();
    }
    if word.starts_with(is_digit) {
        let year = word.chars().count() == 4 && word.chars().all(is_digit);
        return if year { "!YEAR" } else { "!DIGITS" }.to_owned();
    }
    word.to_lowercase()
}

/// The last three characters.
fn suffix(word: &str) -> &str {
    word.char_indices().nth_back(2).map_or(word, |(at, _)| &word[at..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_whole() {
        let model = Model::read(TABLES).unwrap();
        assert_eq!((model.tags.len(), model.known.len(), model.features.len()), (45, 1549, 75_447));
        assert!(model.tags.is_sorted());
    }

    #[test]
    fn tags_of_a_sentence() {
        let tokens = ["Make", "a", "list", "of", "1999", "."];
        assert_eq!(tags(&tokens, 9), ["VB", "DT", "NN", "IN", "CD", "."]);
        assert_eq!(tags(&tokens, 1), ["VB"]);
        assert!(tags::<&str>(&[], 1).is_empty());
    }

    #[test]
    fn words_are_made_alike() {
        let forms = ["Well-known", "-x", "1999", "٣٤٥٦", "7up", "A"].map(normal);
        assert_eq!(forms, ["!HYPHEN", "-x", "!YEAR", "!YEAR", "!DIGITS", "a"]);
        assert_eq!((suffix("naïve"), suffix("ab"), suffix("")), ("ïve", "ab", ""));
    }
}
