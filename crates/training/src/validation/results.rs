//! The stored results of a validation: a record per episode, then the settings and metrics of the set, which say that it
//! is complete.

use std::{fs, io, path::Path, sync::Arc};

use problems::Problem;
use report::{
    stats,
    validation::{EpisodeRecord, MeasuredSet, SetInfo, VERSION, step_directory},
};
use rollout::{End, Group, Rollout};
use serde_json::{Map, Value, json};
use trajectory::escape_hidden;

use crate::{config::ResolvedSet, episodes, metrics::Metrics};

/// The maximum size of the description of a set, in bytes.
const MAX_INFO_BYTES: u64 = 1 << 20;

/// Settings of the rollout that say nothing about a set: what they are replaced by, and how much is done at once.
const OF_TRAINING: [&str; 5] = ["problems", "members", "sampling", "slots", "sandboxes"];

/// What the results of a set depend on, besides weights and data.
#[derive(Clone, Copy)]
pub(super) struct Settings<'a> {
    pub(super) set: &'a ResolvedSet,
    pub(super) seed: u64,
}

/// What became of a set.
pub(super) struct Results<'a> {
    pub(super) problems: &'a [Arc<Problem>],
    pub(super) groups: &'a [Group],
    pub(super) metrics: &'a Metrics,
}

impl Settings<'_> {
    fn file_name(&self) -> &str {
        MeasuredSet::file_name(self.set.name.as_deref())
    }

    fn to_map(self) -> Map<String, Value> {
        let rollout = serde_json::to_value(&self.set.rollout).unwrap_or_default();
        let rollout = rollout.as_object().cloned().unwrap_or_default();
        let mut map: Map<String, Value> =
            rollout.into_iter().filter(|(key, _)| !OF_TRAINING.contains(&key.as_str())).collect();
        let settings = &self.set.settings;
        map.insert("task".into(), json!(self.set.task));
        map.insert("data".into(), json!(self.set.data));
        map.insert("problems".into(), json!(settings.problems));
        map.insert("members".into(), json!(settings.members));
        map.insert("sampling".into(), json!(settings.sampling));
        map.insert("seed".into(), json!(self.seed));
        map
    }
}

/// A mean of a set: its name, its value for an episode, and whether its standard error is a metric too.
type Mean = (&'static str, fn(&Rollout) -> Option<f64>, bool);

/// The means over problems.
const MEANS: [Mean; 12] = [
    ("reward_mean", |played| played.reward, false),
    ("raw_reward_mean", score, true),
    ("success", success, true),
    ("turns_mean", |played| valid(played, f64::from(played.turns)), false),
    ("response_tokens_mean", |played| valid(played, played.response_tokens as f64), false),
    ("env_tokens_mean", |played| valid(played, played.environment_tokens as f64), false),
    ("prompt_tokens_mean", |played| valid(played, played.prompt_tokens as f64), false),
    ("end/submitted", |played| ended(played, End::Submitted), false),
    ("end/max_turns", |played| ended(played, End::MaxTurns), false),
    ("end/truncated", |played| ended(played, End::Truncated), false),
    ("end/timeout", |played| ended(played, End::Timeout), false),
    ("end/no_calls", |played| ended(played, End::NoCalls), false),
];

/// The metrics of a set. Means are over problems, each by the mean of its episodes with a score, and so have the standard
/// errors clustered by problem that comparisons use: a lost episode does not shift weight to other problems.
pub(super) fn metrics(groups: &[Group]) -> Metrics {
    let mut metrics = episodes::metrics(groups);
    for (name, of, has_error) in MEANS {
        let problems = groups.iter().map(|group| group.members.iter().filter_map(of).collect());
        let Some(found) = stats::clustered(&problems.collect::<Vec<Vec<f64>>>()) else { continue };
        metrics.set(name, found.mean);
        if let Some(se) = found.se.filter(|_| has_error) {
            metrics.add(format!("{name}_se"), se);
        }
    }
    let is_lost = |group: &&Group| group.members.iter().all(|played| score(played).is_none());
    metrics.add("problems_left", groups.iter().filter(is_lost).count() as f64);
    metrics
}

/// A value of an episode that did not fail on our side.
fn valid(played: &Rollout, value: f64) -> Option<f64> {
    played.reward.map(|_| value)
}

fn ended(played: &Rollout, end: End) -> Option<f64> {
    valid(played, f64::from(u8::from(played.end == end)))
}

fn score(played: &Rollout) -> Option<f64> {
    played.raw_reward.map(|raw| raw.clamp(0.0, 1.0))
}

fn success(played: &Rollout) -> Option<f64> {
    played.raw_reward.map(|raw| f64::from(u8::from(raw >= 1.0)))
}

impl Results<'_> {
    /// Writes the episodes, then the description.
    pub(super) fn write(&self, run: &Path, step: u64, settings: Settings<'_>) -> io::Result<()> {
        let dir = step_directory(run, step);
        fs::create_dir_all(&dir)?;
        let name = settings.file_name();
        let mut lines = String::new();
        for (problem, group) in self.problems.iter().zip(self.groups) {
            let digest = digest(problem);
            for played in &group.members {
                let line = serde_json::to_string(&record(run, problem, &digest, played))?;
                lines.push_str(&escape_hidden(&line));
                lines.push('\n');
            }
        }
        atomic_file::write_durable(dir.join(format!("{name}.jsonl")), &lines)?;
        let metrics = self.metrics.iter().map(|(name, value)| (name.to_owned(), json!(value)));
        let info = SetInfo {
            version: VERSION,
            name: settings.set.name.clone(),
            step,
            settings: settings.to_map(),
            metrics: metrics.collect(),
        };
        let text = serde_json::to_vec_pretty(&info)?;
        atomic_file::write_durable(dir.join(format!("{name}.json")), text)
    }
}

fn record(run: &Path, problem: &Problem, digest: &str, played: &Rollout) -> EpisodeRecord {
    let kind = problem.extra.get("kind").and_then(Value::as_str).map(str::to_owned);
    let level = match problem.extra.get("level") {
        Some(Value::String(level)) => Some(level.clone()),
        Some(Value::Number(level)) => Some(level.to_string()),
        _ => None,
    };
    let events = played.file.as_deref().map(|file| file.strip_prefix(run).unwrap_or(file));
    let end = serde_json::to_value(played.end).unwrap_or_default();
    let record = EpisodeRecord {
        id: problem.id.clone(),
        kind: kind.or_else(|| problem.subject.clone()),
        level,
        digest: digest.to_owned(),
        member: played.member,
        answer: played.answer.clone(),
        answer_bytes: 0,
        score: score(played),
        reward: played.reward,
        success: success(played) == Some(1.0),
        turns: played.turns,
        response_tokens: played.response_tokens as u64,
        environment_tokens: played.environment_tokens as u64,
        prompt_tokens: played.prompt_tokens as u64,
        end: end.as_str().unwrap_or_default().to_owned(),
        why: played.why.clone(),
        seconds: played.wall_ms as f64 / 1000.0,
        events: events.map(|file| file.to_string_lossy().into_owned()),
    };
    record.bounded()
}

/// A digest of what a model is asked and graded by, as 16 hexadecimal digits.
fn digest(problem: &Problem) -> String {
    let texts = [&problem.statement, &problem.ground_truth];
    let texts = texts.into_iter().chain(problem.files.iter().flat_map(|(name, text)| [name, text]));
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for text in texts {
        // The length keeps neighboring texts apart.
        for byte in text.bytes().chain((text.len() as u64).to_le_bytes()) {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }
    format!("{hash:016x}")
}

/// The metrics of a set that has been completed at this step with these settings.
pub(super) fn completed(run: &Path, step: u64, settings: Settings<'_>) -> Option<Metrics> {
    let path = step_directory(run, step).join(format!("{}.json", settings.file_name()));
    let size = fs::symlink_metadata(&path).ok().filter(fs::Metadata::is_file)?.len();
    let text = (size <= MAX_INFO_BYTES).then(|| fs::read(&path).ok())??;
    let info: SetInfo = serde_json::from_slice(&text).ok()?;
    // As they would be read: numbers may change in the last bit.
    let ours = serde_json::to_vec(&settings.to_map()).ok()?;
    let ours: Map<String, Value> = serde_json::from_slice(&ours).ok()?;
    if info.version != VERSION || info.settings != ours {
        return None;
    }
    let mut metrics = Metrics::default();
    for (name, value) in &info.metrics {
        metrics.add(name, value.as_f64()?);
    }
    Some(metrics)
}

/// Removes the results of steps that a resumed run will repeat.
pub(crate) fn remove_after(run: &Path, step: u64) -> io::Result<()> {
    let entries = match fs::read_dir(run.join("validation")) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries?,
    };
    for entry in entries {
        let entry = entry?;
        let name = entry.file_name();
        let of: Option<u64> =
            name.to_str().and_then(|name| name.strip_prefix("step-")?.parse().ok());
        if of.is_some_and(|of| of > step) {
            fs::remove_dir_all(entry.path())?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::episodes::tests::scored;

    #[test]
    fn a_lost_episode_does_not_shift_the_mean() {
        let group = |scores: &[Option<f64>]| Group {
            problem: "p".into(),
            members: scores
                .iter()
                .map(|score| Rollout { raw_reward: *score, reward: *score, ..scored(0.0) })
                .collect(),
        };
        let groups = [
            group(&[Some(1.0), None, None, None]),
            group(&[Some(0.0), Some(0.0), Some(0.0), Some(0.0)]),
            group(&[None; 4]),
        ];
        let found = metrics(&groups);
        let value = |name: &str| found.get(name).unwrap();
        // Over episodes it would be a fifth.
        assert_eq!(
            (value("success"), value("raw_reward_mean"), value("reward_mean")),
            (0.5, 0.5, 0.5)
        );
        assert_eq!(value("success_se"), 0.5);
        assert_eq!((value("episodes_left"), value("problems_left")), (7.0, 1.0));
        assert_eq!(found.iter().filter(|(name, _)| *name == "success").count(), 1);
    }
}
