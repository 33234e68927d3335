//! Real sandboxes, problems with files, and what is asked of a group.

use std::{future::Future, path::Path, sync::Arc, time::Duration};

use attempt::{LimitSettings, RetryPolicy};
use lis_rollout::{
    ChatCodec, EngineParts, Reward, RolloutEngine, RolloutRequest, RolloutSettings, SamplingParams,
    Segment,
};
use problems::{Problem, Task};
use sandbox::Runtime;
use sandbox_native::NativeRuntime;
use sandbox_testkit::{Spawner, skip};
use serde_json::json;
use vocabulary::Vocabulary;

/// Runs a test in bounded time with a runtime; says why where none can be had.
pub(crate) fn with_runtime<F: Future<Output = ()>>(test: impl FnOnce(Arc<NativeRuntime>) -> F) {
    let spawner = Spawner::Example("lis-rollout-spawner");
    sandbox_testkit::with_runtime(spawner, BOUND, async |runtime| test(Arc::new(runtime)).await);
}

/// Runs a test in bounded time.
pub(crate) fn in_time(test: impl Future<Output = ()>) {
    sandbox_testkit::within(BOUND, test);
}

const BOUND: Duration = Duration::from_secs(180);

/// A language in which every byte is a token.
pub(crate) fn bytes() -> Arc<ChatCodec> {
    Arc::new(ChatCodec::new(Vocabulary::bytes().unwrap()).unwrap())
}

/// The same with another chat template.
pub(crate) fn templated(template: &str) -> Arc<ChatCodec> {
    let dir = tempfile::tempdir().unwrap();
    Vocabulary::bytes().unwrap().save(dir.path()).unwrap();
    std::fs::write(dir.path().join("chat_template.jinja"), template).unwrap();
    Arc::new(ChatCodec::load(dir.path()).unwrap())
}

/// The language of a real model, or none, said aloud.
pub(crate) fn real() -> Option<Arc<ChatCodec>> {
    match variable("LIS_TEST_TINY_GGUF") {
        Some(path) => Some(Arc::new(ChatCodec::load(Path::new(&path)).unwrap())),
        None => {
            skip("gguf", "LIS_TEST_TINY_GGUF names no file");
            None
        }
    }
}

/// A problem whose answer stands in a file.
pub(crate) fn problem(id: &str, number: u32) -> Arc<Problem> {
    let row = json!({
        "id": id,
        "domain": "instruct_pretrain",
        "problem_statement": format!("Which number stands in the file? ({id})"),
        "ground_truth": number.to_string(),
        "input_files": {"number.txt": format!("the number is {number}\n")},
    });
    Arc::new(Problem::from_row(row).unwrap())
}

/// A block of commands as replies hold it.
pub(crate) fn block(commands: &str) -> String {
    format!("```bash\n{commands}\n```")
}

/// Leaves an answer.
pub(crate) fn answering(answer: &str) -> String {
    let output = task().prompts.output_dir;
    block(&format!("echo {answer} > {}/answer.txt", output.display()))
}

pub(crate) fn task() -> Task {
    Task::builtin("instruct_pretrain").unwrap()
}

/// The settings with other limits.
pub(crate) fn limited(limits: LimitSettings) -> RolloutSettings {
    let mut settings = settings();
    settings.attempt.limits = limits;
    settings
}

pub(crate) fn settings() -> RolloutSettings {
    let retry = RetryPolicy { first_wait: Duration::from_millis(10), ..RetryPolicy::default() };
    RolloutSettings { sandboxes: 4, warm: 0, retry, ..RolloutSettings::default() }
}

pub(crate) fn engine<R: Runtime>(
    codec: &Arc<ChatCodec>,
    runtime: &Arc<R>,
    settings: RolloutSettings,
    reward: Reward,
) -> RolloutEngine<R> {
    let (codec, runtime) = (Arc::clone(codec), Some(Arc::clone(runtime)));
    RolloutEngine::new(EngineParts { codec, task: task(), settings, reward, runtime }).unwrap()
}

pub(crate) fn request(problems: &[Arc<Problem>], members: u32) -> RolloutRequest {
    let params = SamplingParams { temperature: 1.0, top_p: 1.0, top_k: None, seed: 7 };
    let problems = problems.to_vec();
    RolloutRequest { problems, members, step: 3, params, events: None, cancel: forever() }
}

/// Nobody stops it.
pub(crate) fn forever() -> tokio_util::sync::CancellationToken {
    tokio_util::sync::CancellationToken::new()
}

/// The parts of a segment that were sampled.
pub(crate) fn said(codec: &ChatCodec, segment: &Segment) -> Vec<String> {
    let both: Vec<_> = segment.tokens.iter().copied().zip(&segment.sampled).collect();
    let runs = both.chunk_by(|one, two| one.1 == two.1).filter(|run| *run[0].1);
    runs.map(|run| {
        let tokens: Vec<u32> = run.iter().map(|(token, _)| *token).collect();
        codec.vocabulary().decode(&tokens)
    })
    .collect()
}

fn variable(name: &str) -> Option<String> {
    sandbox_testkit::setting(name)?.into_string().ok()
}
