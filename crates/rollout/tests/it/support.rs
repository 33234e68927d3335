//! Real sandboxes, problems with files, and what is asked of a group.

use std::{
    env,
    error::Error,
    future::Future,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use problems::{Problem, Task};
use rollout::{Choice, Method, Order, Reward, Scene, Segment, Speech, Stage};
use sandbox::Runtime;
use sandbox_native::{Launcher, NativeOptions, NativeRuntime};
use serde_json::json;
use vocabulary::Vocabulary;

/// Runs a test in bounded time with a runtime; says why where none can be had.
pub(crate) fn with_runtime<F: Future<Output = ()>>(test: impl FnOnce(Arc<NativeRuntime>) -> F) {
    in_time(async {
        let launcher = Launcher { program: spawner(), args: Vec::new() };
        match NativeRuntime::start(NativeOptions { home: home(), launcher }).await {
            Err(error) => skip("userns", &chain(&error)),
            Ok(runtime) => test(Arc::new(runtime)).await,
        }
    });
}

/// Runs a test in bounded time.
pub(crate) fn in_time(test: impl Future<Output = ()>) {
    let tokio =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    tokio.block_on(async {
        let bound = Duration::from_secs(180);
        assert!(tokio::time::timeout(bound, test).await.is_ok(), "took too long");
    });
}

/// A language in which every byte is a token.
pub(crate) fn bytes() -> Arc<Speech> {
    Arc::new(Speech::new(Vocabulary::bytes().unwrap()).unwrap())
}

/// The same with another chat template.
pub(crate) fn templated(template: &str) -> Arc<Speech> {
    let dir = tempfile::tempdir().unwrap();
    Vocabulary::bytes().unwrap().save(dir.path()).unwrap();
    std::fs::write(dir.path().join("chat_template.jinja"), template).unwrap();
    Arc::new(Speech::load(dir.path()).unwrap())
}

/// The language of a real model, or none, said aloud.
pub(crate) fn real() -> Option<Arc<Speech>> {
    match variable("LIS_TEST_TINY_GGUF") {
        Some(path) => Some(Arc::new(Speech::load(Path::new(&path)).unwrap())),
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

pub(crate) fn method() -> Method {
    Method { sandboxes: 4, ahead: 0, wait: Duration::from_millis(10), ..Method::default() }
}

pub(crate) fn stage<R: Runtime>(
    speech: &Arc<Speech>,
    runtime: &Arc<R>,
    method: Method,
    reward: Reward,
) -> Stage<R> {
    let (speech, runtime) = (Arc::clone(speech), Some(Arc::clone(runtime)));
    Stage::new(Scene { speech, task: task(), method, reward, runtime }).unwrap()
}

pub(crate) fn order(problems: &[Arc<Problem>], members: u32) -> Order {
    let choice = Choice { temperature: 1.0, top_p: 1.0, top_k: None, seed: 7 };
    let problems = problems.to_vec();
    Order { problems, members, step: 3, choice, events: None, watch: forever() }
}

/// Nobody stops it.
pub(crate) fn forever() -> agent::Watch {
    agent::stopper().1
}

/// The parts of a segment that were sampled.
pub(crate) fn said(speech: &Speech, segment: &Segment) -> Vec<String> {
    let both: Vec<_> = segment.tokens.iter().copied().zip(&segment.sampled).collect();
    let runs = both.chunk_by(|one, two| one.1 == two.1).filter(|run| *run[0].1);
    runs.map(|run| {
        let tokens: Vec<u32> = run.iter().map(|(token, _)| *token).collect();
        speech.vocabulary().decode(&tokens)
    })
    .collect()
}

/// Announces that a test does not run, or fails it where `LIS_REQUIRE` asks for the capability.
pub(crate) fn skip(capability: &str, reason: &str) {
    let required = variable("LIS_REQUIRE").unwrap_or_default();
    let required = required.split(',').any(|name| name.trim() == capability);
    assert!(!required, "{capability} is required, but: {reason}");
    eprintln!("skip: {capability}: {reason}");
}

#[expect(clippy::disallowed_methods, reason = "how tests are run is told by the environment")]
fn variable(name: &str) -> Option<String> {
    env::var(name).ok()
}

fn chain(error: &dyn Error) -> String {
    let source = error.source().map(|source| format!(": {}", chain(source))).unwrap_or_default();
    format!("{error}{source}")
}

/// The program that makes sandboxes, built beside this test.
fn spawner() -> PathBuf {
    let test = env::current_exe().unwrap();
    let built = test.parent().unwrap().parent().unwrap();
    let program = built.join("examples/lis-rollout-spawner");
    assert!(program.exists(), "first build it: cargo build -p rollout --examples");
    program
}

/// It must outlive the spawner, which outlives the test a little, so each test removes the homes of tests that are
/// over.
fn home() -> PathBuf {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let user = std::os::unix::fs::MetadataExt::uid(&std::fs::metadata("/proc/self").unwrap());
    let all = env::temp_dir().join(format!("lis-rollout-homes-{user}"));
    std::fs::create_dir_all(&all).unwrap();
    for entry in std::fs::read_dir(&all).unwrap().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let owner = name.split('-').next().unwrap_or_default();
        if !Path::new("/proc").join(owner).exists() {
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let home = all.join(format!("{}-{number}", std::process::id()));
    std::fs::create_dir(&home).unwrap();
    home
}
