//! Prices, context lengths and image support of models: an embedded table, and the user's own merged over it.
//!
//! A model that is not in the table has no price; similar names do not match.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use trajectory::Usage;

/// The embedded table.
const TABLE: &str = include_str!("../data/prices.json");

/// Prices are per this many tokens.
const MILLION: f64 = 1e6;

/// Prefixes of model names: vendors, and routers that forward requests at the vendor's price.
const VENDORS: [&str; 22] = [
    "anthropic",
    "cohere",
    "dashscope",
    "deepseek",
    "gemini",
    "google",
    "minimax",
    "mistral",
    "mistralai",
    "models",
    "moonshot",
    "moonshotai",
    "openai",
    "openrouter",
    "qwen",
    "vertex_ai",
    "x-ai",
    "xai",
    "z-ai",
    "zai",
    "zai-org",
    "zhipuai",
];

/// A model's price in dollars per million tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Price {
    /// Input tokens that were not cached.
    pub input: f64,
    /// Input tokens read from the server's cache.
    pub cached: f64,
    /// Input tokens written to the server's cache.
    pub cache_write: f64,
    /// Output tokens, including thinking.
    pub output: f64,
}

impl Price {
    /// The cost of one call in dollars.
    pub fn cost(&self, usage: &Usage) -> f64 {
        // A server may report more cached than input tokens.
        let cached = usage.cached.min(usage.input);
        let written = usage.cache_writes.min(usage.input - cached);
        let fresh = usage.input - cached - written;
        let parts = [
            (fresh, self.input),
            (cached, self.cached),
            (written, self.cache_write),
            (usage.output, self.output),
        ];
        parts.iter().map(|(tokens, price)| *tokens as f64 * price).sum::<f64>() / MILLION
    }
}

/// Known models by name.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Prices {
    as_of: Option<String>,
    models: BTreeMap<String, Entry>,
}

/// A price table cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum PriceError {
    /// It does not have the expected JSON format.
    #[error("the price table is malformed")]
    Format(#[source] serde_json::Error),
    /// A price is negative or not finite.
    #[error("the price of `{0}` is not a valid amount")]
    Amount(String),
    /// A model has only some of the required prices.
    #[error("`{0}` needs both an input and an output price, or neither")]
    Half(String),
}

impl Prices {
    /// The embedded table.
    pub fn embedded() -> Self {
        // A test parses it; if it failed, every price would merely be unknown.
        Self::parse(TABLE).unwrap_or_default()
    }

    /// Reads a table: `{"models": {"NAME": {"input": 2.5, "cached": 1.25, "output": 10, "images": true}}}`.
    ///
    /// Per model: `input` and `output` in dollars per million tokens, `cached` and `cache_write` where they
    /// differ from `input`, `context` in tokens, `images`. All may be absent.
    pub fn parse(text: &str) -> Result<Self, PriceError> {
        let Table { as_of, models, .. } = serde_json::from_str(text).map_err(PriceError::Format)?;
        let models = models.into_iter().map(|(name, row)| {
            let entry = row.entry(&name)?;
            Ok((name, entry))
        });
        Ok(Self { as_of, models: models.collect::<Result<_, PriceError>>()? })
    }

    /// Merges another table over this one; what the other leaves out stays.
    pub fn merge(&mut self, other: Self) {
        for (name, new) in other.models {
            let known = self.models.entry(name).or_default();
            known.price = new.price.or(known.price);
            known.context = new.context.or(known.context);
            known.images = new.images.or(known.images);
        }
    }

    /// The date of the table. Prices change.
    pub fn as_of(&self) -> Option<&str> {
        self.as_of.as_deref()
    }

    /// The price of a model.
    pub fn price(&self, name: &str) -> Option<Price> {
        self.find(name, |entry| entry.price)
    }

    /// The context length of a model in tokens, output included.
    pub fn context(&self, name: &str) -> Option<u64> {
        self.find(name, |entry| entry.context)
    }

    /// Whether a model accepts images.
    pub fn accepts_images(&self, name: &str) -> Option<bool> {
        self.find(name, |entry| entry.images)
    }

    /// Looks up the name, then the name without its date, then both without the vendor prefix.
    fn find<T>(&self, name: &str, want: impl Fn(&Entry) -> Option<T>) -> Option<T> {
        let know = |name: &str| self.models.get(name).and_then(&want);
        let mut name = name.trim();
        loop {
            let found = know(name).or_else(|| without_date(name).and_then(know));
            if found.is_some() {
                return found;
            }
            let (vendor, rest) = name.split_once('/')?;
            if !VENDORS.iter().any(|known| vendor.eq_ignore_ascii_case(known)) {
                return None;
            }
            name = rest;
        }
    }
}

/// One model's entry.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Entry {
    price: Option<Price>,
    context: Option<u64>,
    images: Option<bool>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    /// For human readers.
    #[serde(default, rename = "notice")]
    _notice: String,
    #[serde(default)]
    as_of: Option<String>,
    models: BTreeMap<String, Row>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    input: Option<f64>,
    cached: Option<f64>,
    cache_write: Option<f64>,
    output: Option<f64>,
    context: Option<u64>,
    images: Option<bool>,
}

impl Row {
    fn entry(self, name: &str) -> Result<Entry, PriceError> {
        let Self { input, cached, cache_write, output, context, images } = self;
        let amounts = [input, cached, cache_write, output];
        if amounts.iter().flatten().any(|amount| !amount.is_finite() || *amount < 0.0) {
            return Err(PriceError::Amount(name.to_owned()));
        }
        let price = match (input, output) {
            (Some(input), Some(output)) => Some(Price {
                input,
                cached: cached.unwrap_or(input),
                cache_write: cache_write.unwrap_or(input),
                output,
            }),
            (None, None) if cached.is_none() && cache_write.is_none() => None,
            _ => return Err(PriceError::Half(name.to_owned())),
        };
        Ok(Entry { price, context, images })
    }
}

/// The name without its release date at the end: `-20250929`, `@20250929`, `-2024-08-06`, `-latest`.
fn without_date(name: &str) -> Option<&str> {
    if let Some(rest) = name.strip_suffix("-latest") {
        return Some(rest);
    }
    [8, 10].into_iter().find_map(|length| {
        let (rest, date) = name.split_at_checked(name.len().checked_sub(length)?)?;
        let rest = rest.strip_suffix(['-', '@'])?;
        (!rest.is_empty() && is_date(date)).then_some(rest)
    })
}

/// Whether this is a date of this century, with or without dashes.
fn is_date(text: &str) -> bool {
    let digits = match text.as_bytes() {
        [y1, y2, y3, y4, b'-', m1, m2, b'-', d1, d2] => [*y1, *y2, *y3, *y4, *m1, *m2, *d1, *d2],
        [y1, y2, y3, y4, m1, m2, d1, d2] => [*y1, *y2, *y3, *y4, *m1, *m2, *d1, *d2],
        _ => return false,
    };
    if !digits.iter().all(u8::is_ascii_digit) {
        return false;
    }
    let number = |tens: u8, ones: u8| (tens - b'0') * 10 + (ones - b'0');
    let [y1, y2, _, _, m1, m2, d1, d2] = digits;
    number(y1, y2) == 20 && (1..=12).contains(&number(m1, m2)) && (1..=31).contains(&number(d1, d2))
}

#[cfg(test)]
#[path = "price/price_tests.rs"]
mod tests;
