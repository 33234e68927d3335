//! Every key of a configuration is in `docs/training.md`, in the part about its table.
//!
//! Keys come from the structs themselves: serde tells a deserializer the fields of each struct, so that a new one is
//! seen here whatever its default, and whether it is written or not.

use serde::{
    Deserialize, Deserializer,
    de::{DeserializeSeed, Error as _, IntoDeserializer, MapAccess, Visitor, value::Error},
};

use super::*;

/// Follows the keys of `path` into a configuration and leaves the fields of the struct there in `fields`.
struct Probe<'a> {
    path: &'a [&'static str],
    fields: &'a mut Option<&'static [&'static str]>,
}

impl<'de> Deserializer<'de> for Probe<'_> {
    type Error = Error;

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        match self.path {
            [] => {
                *self.fields = Some(fields);
                Err(Error::custom("found"))
            }
            _ => visitor.visit_map(self),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_some(self)
    }

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Error> {
        Err(Error::custom("not a struct"))
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct newtype_struct
        seq tuple tuple_struct map enum identifier ignored_any
    }
}

/// The struct with only the first key of the path.
impl<'de> MapAccess<'de> for Probe<'_> {
    type Error = Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, Error> {
        match self.path {
            [] => Ok(None),
            [first, ..] => seed.deserialize(first.into_deserializer()).map(Some),
        }
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Error> {
        let path = self.path.get(1..).unwrap_or_default();
        seed.deserialize(Probe { path, fields: self.fields })
    }
}

/// The paths of all keys of a configuration, tables included.
fn keys<T: for<'de> Deserialize<'de>>() -> Vec<Vec<&'static str>> {
    let (mut all, mut left) = (Vec::new(), vec![Vec::new()]);
    while let Some(path) = left.pop() {
        let mut fields = None;
        let _ = T::deserialize(Probe { path: &path, fields: &mut fields });
        for key in fields.unwrap_or_default() {
            let key = [&path[..], &[*key]].concat();
            all.push(key.clone());
            left.push(key);
        }
    }
    all
}

/// The parts of the page about a table: from where it is named to the next one.
fn section(page: &str, table: &str) -> String {
    let name = format!("`[{table}]`");
    let mut shown = String::new();
    let mut inside = false;
    for line in page.lines() {
        let begins = line.starts_with("`[") || line.starts_with("| `[") || line.starts_with('#');
        inside = if begins { line.contains(&name) } else { inside };
        if inside {
            shown.push_str(line);
            shown.push('\n');
        }
    }
    shown
}

#[test]
fn every_key_is_documented() {
    let page = include_str!("../../../../docs/training.md");
    let mut all = [keys::<RlConfig>(), keys::<SftConfig>(), keys::<SampleConfig>()].concat();
    // Read by hand as a table or several, which hides their structs.
    let below = |of: Vec<Vec<&'static str>>| {
        of.into_iter().map(|key| [&["validation"], &key[..]].concat()).collect::<Vec<_>>()
    };
    all.extend(below(keys::<ValidationSettings>()));
    all.sort_unstable();
    all.dedup();
    for known in [
        &["model"][..],
        &["rollout", "observation"],
        &["sampler", "api_key_env"],
        &["lora", "rank"],
    ] {
        assert!(all.iter().any(|key| key == known), "the probe no longer finds {known:?}");
    }
    assert!(all.len() > 90, "the probe finds {} keys only", all.len());
    for key in &all {
        let (Some(name), table) = (key.last(), key.first().filter(|_| key.len() > 1)) else {
            panic!()
        };
        let text = match table {
            // The keys of `sampling` are explained once.
            Some(table) if key.len() == 2 => section(page, table),
            _ => page.to_owned(),
        };
        let named = text.contains(&format!("`{name}`")) || page.contains(&format!("`[{name}]`"));
        assert!(named, "docs/training.md does not explain `{}`", key.join("."));
    }
    let (_, sets) = page.split_once("`[[validation]]`, instead of").unwrap();
    for key in keys::<ValidationSet>() {
        let shared = ["every", "problems", "members", "sampling"].contains(&key[0]);
        assert!(shared || sets.contains(&format!("`{}`", key[0])), "{key:?} of a set");
    }
}
