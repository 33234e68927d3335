//! Collects episodes of a model: several of each problem, recorded with their scores, for supervised training on those that
//! are right (rejection sampling).
//!
//! Start reading at [`sample`]. [`collect`] plays with any sampler and knows no network. A problem whose episodes are all
//! there is not played again; one that was interrupted starts over, with the same seeds.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    fs, io,
    path::{Path, PathBuf},
    sync::Arc,
};

use policy::{CudaGraphs, Engine, EngineSettings, PrefixSharing};
use problems::{Problem, Task};
use rollout::{
    ChatCodec, EngineParts, Overlong, Reward, Rollout, RolloutEngine, RolloutError, RolloutRequest,
    Sampler,
};
use sandbox::Runtime;
use serde::Serialize;

use crate::{
    config::SampleConfig,
    data,
    draw::bucket_name,
    episodes,
    events::RunEvent,
    file_error::FileError,
    remote::Remote,
    run::RunDirectory,
    scores::{self, Score, ScoreWriter},
    services::{RunOutcome, Services, TrainError},
    setup::Start,
};

/// The file of the summary.
const SUMMARY: &str = "summary.json";

/// The kinds that are listed at the end; the file has all.
const LISTED: usize = 40;

/// Collects episodes of a model here or at a server, those that are not there yet.
pub fn sample<R: Runtime>(
    config: &SampleConfig,
    services: &Services<'_, R>,
) -> Result<RunOutcome, TrainError> {
    let _span = tracing::info_span!("sample", output = %config.output.display()).entered();
    let problems = SampledProblems::load(config, services)?;
    if let Some(settings) = &config.sampler {
        let remote = Remote::connect(settings, &config.model, config.rollout.tokens, services)?;
        remote.note_logprobs(&config.rollout.sampling.params(0), services);
        let directory = RunDirectory::open(&config.output, config)?;
        return remote.play(services, |services| {
            let codec = Arc::clone(&remote.codec);
            collect(config, &directory, problems, codec, &remote.sampler, services)
        });
    }
    let start = Start::from(config);
    let (origin, machine) = start.resolve()?;
    let codec = Arc::new(ChatCodec::load(&config.model)?);
    let net = start.reference(origin, machine)?;
    // Not before: invalid input must not create a directory.
    let directory = RunDirectory::open(&config.output, config)?;
    origin.write(&directory)?;
    let positions = usize::try_from(net.shape().positions).unwrap_or(usize::MAX);
    let settings = EngineSettings {
        slots: problems.slots(config),
        context: config.rollout.tokens.min(positions),
        cuda_graphs: CudaGraphs::Auto,
        memory_limit: None,
        prefix_sharing: if net.device().is_cuda() { PrefixSharing::On } else { PrefixSharing::Off },
    };
    let sampler = Arc::new(Engine::start(&net, settings)?);
    collect(config, &directory, problems, codec, &sampler, services)
}

/// The task and the problems of a configuration.
pub(crate) struct SampledProblems {
    task: Task,
    problems: Vec<Arc<Problem>>,
}

impl SampledProblems {
    /// Loads them; ids are unique.
    pub(crate) fn load<R: Runtime>(
        config: &SampleConfig,
        services: &Services<'_, R>,
    ) -> Result<Self, TrainError> {
        let task = data::task(&config.data.task)?;
        let (problems, notes) = data::problems(&task, &config.data.problems, "data.problems", 1)?;
        notes.iter().for_each(|note| services.note(note));
        let mut seen = HashSet::new();
        let unique = problems.into_iter().filter(|problem| seen.insert(problem.id.clone()));
        let limit = config.data.limit.unwrap_or(usize::MAX);
        Ok(Self { task, problems: unique.take(limit).map(Arc::new).collect() })
    }

    /// Concurrent sequences of the sampler.
    pub(crate) fn slots(&self, config: &SampleConfig) -> usize {
        config.rollout.slots(self.problems.len().saturating_mul(config.rollout.members), 0)
    }
}

/// Plays the problems that are not complete in the directory, with any sampler, and writes the summary.
pub(crate) fn collect<S: Sampler, R: Runtime>(
    config: &SampleConfig,
    directory: &RunDirectory,
    problems: SampledProblems,
    codec: Arc<ChatCodec>,
    sampler: &Arc<S>,
    services: &Services<'_, R>,
) -> Result<RunOutcome, TrainError> {
    let slots = problems.slots(config);
    let SampledProblems { task, problems } = problems;
    let dir = directory.path().join("episodes");
    let members = config.rollout.members;
    let (complete, mut part) = resume(&dir, members).map_err(FileError::new("use", &dir))?;
    let mut summary = Summary::new(&problems, config.data.threshold);
    complete.iter().for_each(|score| summary.add(score));
    let done: HashSet<&str> = complete.iter().map(|score| score.problem.as_str()).collect();
    let pending: Vec<_> =
        problems.iter().filter(|problem| !done.contains(problem.id.as_str())).cloned().collect();
    let (all, mut step) = (problems.len() as u64, (problems.len() - pending.len()) as u64);
    let what = format!("{members} episodes of each of {all} problems");
    services.observer.on_event(RunEvent::Started { step, steps: all, what: &what });
    let engine = rollout_engine(config, slots, task, codec, services).map_err(TrainError::Play)?;
    let collector = Collector { config, services, engine: &engine, sampler };
    // Several times as many as are played at once: the last episodes of a batch leave slots unused.
    let batch = slots.saturating_mul(4).div_ceil(members).max(config.rollout.problems);
    let played = pending.chunks(batch).try_for_each(|batch| {
        let played = collector.play(batch, &dir.join(format!("part-{part:06}")));
        let Batch { scores, metrics } = match played {
            // A few bad problems must not keep a run with others from its end.
            Err(TrainError::Play(error @ RolloutError::AllFailed { .. })) if step > 0 => {
                services.note(&error_text::one_line(&error));
                return Ok(());
            }
            played => played?,
        };
        scores.iter().for_each(|score| summary.add(score));
        (part, step) = (part + 1, step + batch.len() as u64);
        let event = RunEvent::Step { step, steps: all, metrics: &metrics };
        services.observer.on_event(event);
        Ok(())
    });
    if let Err(error) = services.tokio.block_on(engine.close()) {
        services.note(&format!("sandboxes may be left behind: {error}"));
    }
    match played {
        Err(TrainError::Play(RolloutError::Cancelled)) => return Ok(RunOutcome::Stopped(step)),
        played => played?,
    }
    directory.write_json(SUMMARY, &summary)?;
    summary.lines().iter().for_each(|line| services.note(line));
    Ok(RunOutcome::Complete)
}

fn rollout_engine<R: Runtime>(
    config: &SampleConfig,
    slots: usize,
    task: Task,
    codec: Arc<ChatCodec>,
    services: &Services<'_, R>,
) -> Result<RolloutEngine<R>, RolloutError> {
    let episodes = slots.max(config.rollout.episodes_at_once(usize::MAX, 0));
    let settings = config.rollout.engine_settings(Overlong::Keep);
    let settings = rollout::RolloutSettings { episodes, ..settings };
    let runtime = services.runtime.clone();
    let _guard = services.tokio.enter();
    RolloutEngine::new(EngineParts { codec, task, settings, reward: Reward::Grader, runtime })
}

/// Plays batches of problems.
struct Collector<'a, S, R: Runtime> {
    config: &'a SampleConfig,
    services: &'a Services<'a, R>,
    engine: &'a RolloutEngine<R>,
    sampler: &'a Arc<S>,
}

impl<S: Sampler, R: Runtime> Collector<'_, S, R> {
    /// Plays all episodes of some problems into a new directory, with their scores.
    fn play(&self, problems: &[Arc<Problem>], dir: &Path) -> Result<Batch, TrainError> {
        let (members, observer) = (self.config.rollout.members, self.services.observer);
        let request = RolloutRequest {
            problems: problems.to_vec(),
            members: u32::try_from(members).unwrap_or(u32::MAX),
            // Seeds follow from the problem, whatever the batch.
            step: 0,
            params: self.config.rollout.sampling.params(self.config.seed),
            events: Some(dir.to_owned()),
            cancel: self.services.cancel.clone(),
        };
        let mut writer = ScoreWriter::create(dir);
        let (mut done, all) = (0, problems.len() * members);
        let on_rollout = |played: &Rollout| {
            writer.add(played);
            done += 1;
            observer.on_event(RunEvent::Rollout { done, all, what: "sampling" });
        };
        let playing = self.engine.run(self.sampler, &request, on_rollout);
        let groups = self.services.tokio.block_on(playing);
        writer.finish()?;
        let groups = groups.map_err(TrainError::Play)?;
        let scores = scores::read(dir).map_err(FileError::new("read", dir))?;
        Ok(Batch { scores, metrics: episodes::metrics(&groups) })
    }
}

/// A played batch.
struct Batch {
    scores: Vec<Score>,
    metrics: crate::Metrics,
}

/// The episodes of complete problems in a directory, and the number of the next part. What is left of others is removed.
fn resume(dir: &Path, members: usize) -> io::Result<(Vec<Score>, usize)> {
    let entries = match fs::read_dir(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok((Vec::new(), 0)),
        entries => entries?,
    };
    let mut parts: Vec<(usize, PathBuf)> = Vec::new();
    for entry in entries {
        let entry = entry?;
        let name = entry.file_name();
        let number = name.to_str().and_then(|name| name.strip_prefix("part-")?.parse().ok());
        parts.extend(number.map(|number| (number, entry.path())));
    }
    parts.sort();
    let mut complete = Vec::new();
    for (_, part) in &parts {
        let mut scores = scores::read(part)?;
        let mut counts: HashMap<String, (usize, bool)> = HashMap::new();
        for score in &scores {
            let (count, any) = counts.entry(score.problem.clone()).or_default();
            (*count, *any) = (*count + 1, *any || score.score.is_some());
        }
        let is_complete = |score: &Score| counts[&score.problem] == (members, true);
        let before = scores.len();
        scores.retain(is_complete);
        if scores.len() < before || count_logs(part)? > scores.len() {
            scores::replace(part, &scores)?;
            remove_others(part, &scores)?;
        }
        complete.extend(scores);
    }
    Ok((complete, parts.last().map_or(0, |(number, _)| number + 1)))
}

/// The event logs of a part.
fn logs(part: &Path) -> io::Result<Vec<PathBuf>> {
    let mut logs = Vec::new();
    for entry in fs::read_dir(part)? {
        let path = entry?.path();
        let is_log = path.extension().is_some_and(|extension| extension == "jsonl");
        if is_log && path.file_name() != Some(scores::FILE.as_ref()) {
            logs.push(path);
        }
    }
    Ok(logs)
}

fn count_logs(part: &Path) -> io::Result<usize> {
    Ok(logs(part)?.len())
}

/// Removes the event logs that are not among these.
fn remove_others(part: &Path, scores: &[Score]) -> io::Result<()> {
    let kept: HashSet<&str> = scores.iter().map(|score| score.file.as_str()).collect();
    for log in logs(part)? {
        let name = log.file_name().unwrap_or_default().to_string_lossy();
        if !kept.contains(name.as_ref()) {
            fs::remove_file(&log)?;
        }
    }
    Ok(())
}

/// What was collected.
#[derive(Debug, Serialize)]
struct Summary {
    #[serde(flatten)]
    all: Counts,
    /// By kind and level.
    kinds: BTreeMap<String, Counts>,
    #[serde(skip)]
    kind_of: HashMap<String, String>,
    #[serde(skip)]
    threshold: f64,
}

/// Counts of episodes and problems.
#[derive(Debug, Default, PartialEq, Serialize)]
struct Counts {
    /// Episodes with a score.
    episodes: u64,
    /// Of these, right ones.
    right: u64,
    /// Episodes that failed on our side.
    failed: u64,
    /// Problems with a right episode.
    #[serde(serialize_with = "count")]
    solved: HashSet<String>,
}

fn count<S: serde::Serializer>(set: &HashSet<String>, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u64(set.len() as u64)
}

impl Counts {
    fn add(&mut self, score: &Score, threshold: f64) {
        match score.score {
            None => self.failed += 1,
            Some(found) => {
                self.episodes += 1;
                if found >= threshold {
                    self.right += 1;
                    self.solved.insert(score.problem.clone());
                }
            }
        }
    }

    fn describe(&self) -> String {
        let Self { episodes, right, failed, solved } = self;
        let rate = 100.0 * *right as f64 / (*episodes).max(1) as f64;
        let failed =
            if *failed > 0 { format!("; {failed} failed on our side") } else { String::new() };
        format!(
            "{right} of {episodes} episodes are right ({rate:.1}%); solved problems: {}{failed}",
            solved.len()
        )
    }
}

impl Summary {
    fn new(problems: &[Arc<Problem>], threshold: f64) -> Self {
        let kind_of =
            problems.iter().map(|problem| (problem.id.clone(), bucket_name(problem))).collect();
        Self { all: Counts::default(), kinds: BTreeMap::new(), kind_of, threshold }
    }

    fn add(&mut self, score: &Score) {
        // A problem of another limit is not counted.
        let Some(kind) = self.kind_of.get(&score.problem) else { return };
        self.all.add(score, self.threshold);
        self.kinds.entry(kind.clone()).or_default().add(score, self.threshold);
    }

    fn lines(&self) -> Vec<String> {
        let mut lines = vec![self.all.describe()];
        let kinds = self.kinds.iter().filter(|_| self.kinds.len() > 1);
        let shown =
            kinds.take(LISTED).map(|(kind, counts)| format!("{kind}: {}", counts.describe()));
        lines.extend(shown);
        if self.kinds.len() > LISTED {
            lines.push(format!("{} more kinds are in {SUMMARY}", self.kinds.len() - LISTED));
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use rollout::End;

    use super::*;

    fn score(problem: &str, member: u32, score: Option<f64>) -> Score {
        let file = format!("{problem}-{member}.jsonl");
        let problem = problem.to_owned();
        Score { file, problem, member, score, end: End::Submitted, turns: 1, tokens: 9 }
    }

    #[test]
    fn complete_problems_are_kept_and_the_rest_is_removed() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(resume(&dir.path().join("none"), 2).unwrap(), (Vec::new(), 0));
        let part = dir.path().join("part-000004");
        fs::create_dir(&part).unwrap();
        let [a, b] = [score("a", 0, Some(1.0)), score("a", 1, None)];
        let others = [score("b", 0, Some(1.0)), score("c", 0, None), score("c", 1, None)];
        let all: Vec<Score> = [a.clone(), b.clone()].into_iter().chain(others).collect();
        scores::replace(&part, &all).unwrap();
        for name in all.iter().map(|score| score.file.as_str()).chain(["d-0.jsonl"]) {
            fs::write(part.join(name), "{}\n").unwrap();
        }
        let expected = (vec![a, b], 5);
        assert_eq!(resume(dir.path(), 2).unwrap(), expected);
        assert_eq!(count_logs(&part).unwrap(), 2, "half a group, and episodes without a score");
        assert_eq!(resume(dir.path(), 2).unwrap(), expected, "nothing is left to remove");
    }

    #[test]
    fn the_summary_counts_by_kind() {
        let problem = |id: &str, kind: &str| {
            let row = serde_json::json!({
                "id": id, "problem_statement": "?", "ground_truth": "1", "subject": kind, "level": 2,
            });
            Arc::new(Problem::from_row(row).unwrap())
        };
        let mut summary = Summary::new(&[problem("a", "count"), problem("b", "join")], 1.0);
        for score in [
            score("a", 0, Some(1.0)),
            score("a", 1, Some(1.0)),
            score("b", 0, Some(0.9)),
            score("b", 1, None),
            score("elsewhere", 0, Some(1.0)),
        ] {
            summary.add(&score);
        }
        assert_eq!(
            summary.lines(),
            [
                "2 of 3 episodes are right (66.7%); solved problems: 1; 1 failed on our side",
                "count/2: 2 of 2 episodes are right (100.0%); solved problems: 1",
                "join/2: 0 of 1 episodes are right (0.0%); solved problems: 0; 1 failed on our side",
            ]
        );
        let stored = serde_json::to_value(&summary).unwrap();
        assert_eq!(
            (&stored["right"], &stored["kinds"]["count/2"]["solved"]),
            (&2.into(), &1.into())
        );
    }
}
