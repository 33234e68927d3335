//! The validation sets of a run: one without a name, or several named ones, each with its own task and limits.

use std::{collections::HashSet, fmt, path::PathBuf};

use model::ToolFormat;
use rollout::{Documents, Mode};
use serde::{
    Deserialize, Deserializer, Serialize,
    de::{MapAccess, SeqAccess, Visitor, value::MapAccessDeserializer},
};

use super::{
    ConfigError, MAX_EPISODES, RlConfig, RolloutSettings, SamplingSettings, ValidationSettings,
    check,
};

/// The maximum number of sets.
const MAX_SETS: usize = 64;

/// The maximum length of a set's name, in bytes.
const MAX_NAME: usize = 64;

/// Names of metrics below `validation/` that a set's name would be mistaken for.
const RESERVED: [&str; 3] = ["end", "use", "seconds"];

/// `[validation]`, one set whose files are `data.validation`; or `[[validation]]`, several named sets.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Validation {
    /// One set without a name.
    One(ValidationSettings),
    /// Named sets.
    Sets(Vec<ValidationSet>),
}

impl Default for Validation {
    fn default() -> Self {
        Self::One(ValidationSettings::default())
    }
}

/// A named set of held-out problems. What is absent is that of the run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ValidationSet {
    /// Its name: lower-case letters, digits, `.`, `_` and `-`.
    pub name: String,
    /// The task: the name of a built-in one, or a folder. Default: `data.task`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<String>,
    /// Files of problems. Default: the file that the task's folder names.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub data: Vec<PathBuf>,
    /// The number of steps between validations; 0 for never. There is also one before the first step and one after the
    /// last.
    #[serde(default = "default_every")]
    pub every: u64,
    /// The number of problems, from the first; 0 for all.
    #[serde(default)]
    pub problems: usize,
    /// Episodes per problem.
    #[serde(default = "default_members")]
    pub members: usize,
    /// How tokens are drawn.
    #[serde(default = "default_sampling")]
    pub sampling: SamplingSettings,
    /// `sandbox` or `llm`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<Mode>,
    /// Where documents are given: `files` or `prompt`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context: Option<Documents>,
    /// The tool-call format.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub format: Option<ToolFormat>,
    /// Maximum responses per episode.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turns: Option<u32>,
    /// Maximum tokens per episode.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens: Option<usize>,
    /// Maximum tokens per response.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens_per_reply: Option<usize>,
    /// Maximum characters of an observation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observation: Option<usize>,
    /// Time limit of a command, in seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command_timeout: Option<f64>,
    /// Time limit of an episode, in seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<f64>,
}

/// A set with everything that the configuration leaves to the run filled in.
#[derive(Clone, Debug, PartialEq)]
pub struct ResolvedSet {
    /// Its name; `None` for the set of `[validation]`.
    pub name: Option<String>,
    /// The task: the name of a built-in one, or a folder.
    pub task: String,
    /// Files of problems; empty for the file that the task's folder names.
    pub data: Vec<PathBuf>,
    /// When it is measured, and how much of it.
    pub settings: ValidationSettings,
    /// How its episodes are played.
    pub rollout: RolloutSettings,
}

impl ResolvedSet {
    /// The configuration key of its files, for messages.
    pub(crate) fn data_key(&self) -> String {
        match &self.name {
            None => "data.validation".to_owned(),
            Some(name) => format!("validation.{name}.data"),
        }
    }
}

impl RlConfig {
    /// The sets that this run measures.
    pub fn validation_sets(&self) -> Vec<ResolvedSet> {
        let sets = match &self.validation {
            Validation::One(_) if self.data.validation.is_empty() => Vec::new(),
            Validation::One(settings) => vec![ResolvedSet {
                name: None,
                task: self.data.task.clone(),
                data: self.data.validation.clone(),
                settings: settings.clone(),
                rollout: self.rollout.clone(),
            }],
            Validation::Sets(sets) => sets.iter().map(|set| set.resolve(self)).collect(),
        };
        let is_measured = |set: &ResolvedSet| set.settings.every > 0 || self.steps == 0;
        sets.into_iter().filter(is_measured).collect()
    }

    /// Episodes of a training step.
    pub fn training_episodes(&self) -> usize {
        if self.steps == 0 { 0 } else { self.rollout.episodes() }
    }

    /// Whether any episode of the run has a sandbox.
    pub fn plays_in_sandboxes(&self) -> bool {
        let trains = self.steps > 0 && self.rollout.mode == Mode::Sandbox;
        trains || self.validation_sets().iter().any(|set| set.rollout.mode == Mode::Sandbox)
    }

    pub(super) fn check_validation(&self) -> Result<(), ConfigError> {
        let sets = match &self.validation {
            Validation::One(settings) => return settings.check(),
            Validation::Sets(sets) => sets,
        };
        let alone = self.data.validation.is_empty();
        check("data.validation", "both", alone, "absent where there are `[[validation]]` sets")?;
        check("validation", sets.len(), sets.len() <= MAX_SETS, "at most 64 sets")?;
        let mut names = HashSet::new();
        for set in sets {
            let name = &set.name;
            check(
                "validation.name",
                name,
                is_name(name),
                "lower-case letters, digits, `.`, `_` and `-`, and not a name of metrics such as `end`",
            )?;
            check("validation.name", name, names.insert(name), "different for every set")?;
            let checked = set.resolve(self).check();
            checked
                .map_err(|source| ConfigError::Set { name: name.clone(), source: source.into() })?;
        }
        Ok(())
    }
}

impl ResolvedSet {
    fn check(&self) -> Result<(), ConfigError> {
        let problems = self.settings.problems;
        check("validation.problems", problems, problems <= MAX_EPISODES, "at most 65536")?;
        self.settings.check()?;
        self.rollout.check()
    }
}

impl ValidationSet {
    fn resolve(&self, config: &RlConfig) -> ResolvedSet {
        let run = &config.rollout;
        ResolvedSet {
            name: Some(self.name.clone()),
            task: self.task.clone().unwrap_or_else(|| config.data.task.clone()),
            data: self.data.clone(),
            settings: ValidationSettings {
                every: self.every,
                problems: self.problems,
                members: self.members,
                sampling: self.sampling.clone(),
            },
            rollout: RolloutSettings {
                mode: self.mode.unwrap_or(run.mode),
                context: self.context.unwrap_or(run.context),
                format: self.format.unwrap_or(run.format),
                turns: self.turns.unwrap_or(run.turns),
                tokens: self.tokens.unwrap_or(run.tokens),
                tokens_per_reply: self.tokens_per_reply.unwrap_or(run.tokens_per_reply),
                observation: self.observation.unwrap_or(run.observation),
                command_timeout: self.command_timeout.unwrap_or(run.command_timeout),
                timeout: self.timeout.unwrap_or(run.timeout),
                ..run.clone()
            },
        }
    }
}

/// Names become file names and parts of metrics' names.
fn is_name(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "._-".contains(c);
    let begins = name.starts_with(|c: char| c.is_ascii_alphanumeric());
    begins && name.len() <= MAX_NAME && name.chars().all(plain) && !RESERVED.contains(&name)
}

fn default_every() -> u64 {
    ValidationSettings::default().every
}

fn default_members() -> usize {
    ValidationSettings::default().members
}

fn default_sampling() -> SamplingSettings {
    ValidationSettings::default().sampling
}

// By hand, since errors of an untagged enum name neither key nor line.
impl<'de> Deserialize<'de> for Validation {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(TableOrTables)
    }
}

struct TableOrTables;

impl<'de> Visitor<'de> for TableOrTables {
    type Value = Validation;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a table `[validation]` or tables `[[validation]]`")
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Validation, A::Error> {
        ValidationSettings::deserialize(MapAccessDeserializer::new(map)).map(Validation::One)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut sequence: A) -> Result<Validation, A::Error> {
        let mut sets = Vec::new();
        while let Some(set) = sequence.next_element()? {
            sets.push(set);
        }
        Ok(Validation::Sets(sets))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINIMAL: &str = "model = \"m\"\noutput = \"o\"\nsteps = 3\n[data]\ntrain = [\"t.jsonl\"]\n\
                           [rollout]\nturns = 6\ntokens = 4096\n";

    const SETS: &str = "[[validation]]\nname = \"math\"\ntask = \"math\"\ndata = [\"m.jsonl\"]\n\
                        [[validation]]\nname = \"math-plain\"\ntask = \"math\"\ndata = [\"m.jsonl\"]\nmode = \"llm\"\n\
                        context = \"prompt\"\ntokens = 2048\nevery = 0\nsampling = { temperature = 0.0 }\n";

    fn parse(sets: &str, overrides: &[&str]) -> Result<RlConfig, ConfigError> {
        let overrides: Vec<String> = overrides.iter().map(|text| (*text).to_owned()).collect();
        RlConfig::parse(&format!("{MINIMAL}{sets}"), &overrides)
    }

    #[test]
    fn a_set_has_the_limits_of_the_run_unless_it_says_otherwise() {
        let config = parse(SETS, &["steps=0"]).unwrap();
        let sets = config.validation_sets();
        let shown = sets.iter().map(|set| {
            let RolloutSettings { mode, turns, tokens, .. } = set.rollout;
            (set.name.as_deref().unwrap(), mode, turns, tokens, set.settings.sampling.temperature)
        });
        let expected =
            [("math", Mode::Sandbox, 6, 4096, 0.7), ("math-plain", Mode::Llm, 6, 2048, 0.0)];
        assert_eq!(shown.collect::<Vec<_>>(), expected);
        assert!(config.plays_in_sandboxes());
        // A set that is never due is not loaded, unless measuring is all the run does.
        assert_eq!(parse(SETS, &[]).unwrap().validation_sets().len(), 1);
        let written = serde_json::to_value(&config).unwrap();
        assert_eq!(serde_json::from_value::<RlConfig>(written).unwrap(), config);
    }

    #[test]
    fn one_set_keeps_its_old_form() {
        let config = parse("[validation]\nevery = 5\n", &["data.validation=[\"v\"]"]).unwrap();
        let [set] = &config.validation_sets()[..] else { panic!() };
        assert_eq!((set.name.as_deref(), set.settings.every, set.rollout.turns), (None, 5, 6));
        assert_eq!(serde_json::to_value(&config).unwrap()["validation"]["every"], 5);
        assert!(parse("", &[]).unwrap().validation_sets().is_empty());
    }

    #[test]
    fn overrides_name_a_set() {
        let config = parse(SETS, &["validation.math.problems=7"]).unwrap();
        assert_eq!(config.validation_sets()[0].settings.problems, 7);
        let dotted = SETS.replace("math-plain", "math.v2");
        let overrides = ["validation.math.v2.problems=8", "validation.math.v2.sampling.top_k=3"];
        let config = parse(&dotted, &[&overrides[..], &["steps=0"]].concat()).unwrap();
        let set = &config.validation_sets()[1].settings;
        assert_eq!((set.problems, set.sampling.top_k), (8, 3));
        let error = parse(SETS, &["validation.maths.problems=7"]).unwrap_err().to_string();
        assert!(error.ends_with("names no validation set; there are math, math-plain"), "{error}");
    }

    #[test]
    fn bad_sets_are_named() {
        let second = |name: &str| SETS.replace("math-plain", name);
        let error = |sets: &str, overrides: &[&str]| {
            error_text::chain(&parse(sets, overrides).unwrap_err())
        };
        for name in ["", "..", "a/b", "end", "A"] {
            let text = error(&second(name), &[]);
            assert!(text.contains("validation.name"), "{name}: {text}");
        }
        assert!(error(&second("math"), &[]).contains("different"));
        assert!(error(SETS, &["data.validation=[\"v\"]"]).contains("data.validation"));
        let text = error(SETS, &["validation.math-plain.turns=0"]);
        assert!(text.contains("math-plain") && text.contains("rollout.turns"), "{text}");
        let text = error(&SETS.replace("mode", "mood"), &[]);
        assert!(text.contains("mood") && text.contains("line 17"), "{text}");
        assert!(error("[validation]\nevry = 3\n", &[]).contains("evry"));
    }
}
