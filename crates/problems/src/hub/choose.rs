//! Which files of a data set hold the rows of a configuration and split, by naming convention.

use super::Source;

/// The files, sorted; all of one format, Parquet preferred.
pub(super) fn files(names: &[String], source: &Source) -> Vec<String> {
    for rule in [in_config_directory, named_as_config, in_default_config] {
        for ending in [".parquet", ".jsonl", ".json"] {
            let fits =
                |name: &&String| is_plain(name) && name.ends_with(ending) && rule(name, source);
            let mut found: Vec<String> = names.iter().filter(fits).cloned().collect();
            if !found.is_empty() {
                found.sort();
                return found;
            }
        }
    }
    Vec::new()
}

/// Whether a text is a relative path that means the same on every system and in an address.
pub(super) fn is_plain(name: &str) -> bool {
    let part = |part: &str| {
        let plain =
            |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'=');
        !part.is_empty() && !part.starts_with('.') && part.bytes().all(plain)
    };
    name.len() <= 512 && name.split('/').all(part)
}

/// `math/test-00000-of-00001.parquet`, `data/math/test.jsonl`, `math/test/0000.parquet`.
fn in_config_directory(name: &str, source: &Source) -> bool {
    let directories = name.rsplit_once('/').map_or("", |(directories, _)| directories);
    directories.split('/').any(|part| part == source.config) && has_split(name, &source.split)
}

/// `math.jsonl`, `test/math.json`.
fn named_as_config(name: &str, source: &Source) -> bool {
    let (directories, file) = name.rsplit_once('/').unwrap_or(("", name));
    let stem = file.rsplit_once('.').map_or(file, |(stem, _)| stem);
    let other_split = ["train", "test", "validation", "dev"]
        .iter()
        .any(|split| *split != source.split && directories.split('/').any(|part| part == *split));
    stem == source.config && !other_split
}

/// `data/test-00000-of-00001.parquet` in data sets with only one configuration.
fn in_default_config(name: &str, source: &Source) -> bool {
    source.config == "default" && has_split(name, &source.split)
}

fn has_split(name: &str, split: &str) -> bool {
    let starts = |part: &str| {
        let rest = part.strip_prefix(split);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['-', '.', '_']))
    };
    name.split('/').any(starts)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(names: &[&str], config: &str, split: &str) -> Vec<String> {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let source = Source { dataset: "o/d".into(), config: config.into(), split: split.into() };
        files(&names, &source)
    }

    #[test]
    fn conventional_names_are_found() {
        let names = [
            "README.md",
            "math/test-00001-of-00002.parquet",
            "math/test-00000-of-00002.parquet",
            "math/train-00000-of-00001.parquet",
            "math/test.jsonl",
            "mathematics/test.parquet",
            "physics/test/0000.parquet",
            "train/chem.json",
            "test/chem.json",
            "biomed.jsonl",
        ];
        let shards = ["math/test-00000-of-00002.parquet", "math/test-00001-of-00002.parquet"];
        assert_eq!(chosen(&names, "math", "test"), shards);
        assert_eq!(chosen(&names, "physics", "test"), ["physics/test/0000.parquet"]);
        assert_eq!(chosen(&names, "chem", "test"), ["test/chem.json"]);
        assert_eq!(chosen(&names, "biomed", "test"), ["biomed.jsonl"]);
        assert!(chosen(&names, "swe", "test").is_empty());
        let only = ["data/test-00000-of-00001.parquet", "data/testing.parquet"];
        assert_eq!(chosen(&only, "default", "test"), [only[0]]);
    }

    #[test]
    fn hostile_names_are_refused() {
        for name in [
            "../math/test.json",
            "/math/test.json",
            "math/../test.json",
            "math//test.json",
            "math/test?.json",
        ] {
            assert!(chosen(&[name], "math", "test").is_empty(), "{name}");
        }
    }
}
