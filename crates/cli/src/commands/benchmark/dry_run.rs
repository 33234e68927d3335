//! `benchmark --dry-run`: checks tasks without a model and shows what was found.

use std::{collections::BTreeSet, sync::Arc};

use benchmark::{AnswerCheck, DryRun, Plan, PromptCheck, TaskCheck, TaskProblems};
use results::Mode;
use serde_json::{Value, json};
use startup::Signals;
use trajectory::{Content, Message};

use super::{
    BenchmarkArgs,
    images::MissingImages,
    load::{self, Loaded},
    settings::{BenchmarkSettings, ConcurrencyArgs},
    show::OutputMode,
};
use crate::{
    args::model::ModelArgs,
    console::{output, sanitize},
    exit::Exit,
    runtime,
    settings::Settings,
};

/// Problems whose right answer gets no full score that are shown one by one.
const MAX_SHOWN: usize = 10;

/// Lines of one message that are shown without `-v`.
const MAX_PROMPT_LINES: usize = 60;

/// Checks the tasks; the exit code says whether everything works.
pub(crate) async fn run(
    mut args: BenchmarkArgs,
    mode: OutputMode,
    settings: &Settings,
    signals: &mut Signals,
) -> anyhow::Result<Exit> {
    let (json, verbose) = (args.json, settings.is_logging());
    let concurrency = ConcurrencyArgs::of(&args);
    // No model is called: neither its name nor its key matters.
    args.model = ModelArgs { model: Some("local:none".into()), ..ModelArgs::default() };
    let (mut benchmark, _) = BenchmarkSettings::check(args, settings)?;
    let concurrency = benchmark.concurrency(&concurrency);
    let checking = async {
        let loaded = load::load(&benchmark, mode, settings).await?;
        let plan = plan(&benchmark, &loaded);
        let runtime = match loaded.needs_sandboxes(&plan.modes) {
            true => Some(runtime::start(benchmark.sandbox.runtime, settings).await?),
            false => None,
        };
        let missing = runtime.as_ref().map(|runtime| MissingImages::of(&plan, runtime));
        let images: Vec<BTreeSet<String>> =
            plan.tasks.iter().map(|task| images(task, &benchmark)).collect();
        let runtime = runtime.map(Arc::new);
        let dry_run = DryRun { plan, runtime, concurrency: concurrency.sandboxes };
        anyhow::Ok((loaded, missing, images, dry_run.check().await))
    };
    let (loaded, missing, images, checks) = tokio::select! {
        checked = checking => checked?,
        exit = signals.cancelled() => return Ok(exit),
    };
    let commands = missing.map(|missing| missing.commands()).unwrap_or_default();
    match json {
        true => output::print_json(&object(&loaded, &images, &commands, &checks))?,
        false => output::print(&text(&images, &commands, &checks, verbose))?,
    }
    let is_fine = checks.iter().all(TaskCheck::is_fine) && commands.is_empty();
    Ok(match is_fine && loaded.broken.is_empty() {
        true => Exit::Done,
        false => Exit::Usage,
    })
}

fn plan(benchmark: &BenchmarkSettings, loaded: &Loaded) -> Plan {
    let requests = benchmark.requests(&loaded.tasks);
    Plan {
        tasks: loaded.tasks.iter().map(|rows| rows.select(&requests)).collect(),
        modes: benchmark.modes.clone(),
        settings: benchmark.attempt(None),
    }
}

/// The images of a task's sandboxes; none where it has no sandboxes.
fn images(task: &TaskProblems, benchmark: &BenchmarkSettings) -> BTreeSet<String> {
    if !benchmark.modes.contains(&Mode::Sandbox) {
        return BTreeSet::new();
    }
    let default = || benchmark.sandbox.spec.image.to_string();
    let problems = task.problems.iter();
    problems.map(|selected| task.task.image(&selected.problem).unwrap_or_else(default)).collect()
}

fn object(
    loaded: &Loaded,
    images: &[BTreeSet<String>],
    commands: &[String],
    checks: &[TaskCheck],
) -> Value {
    let tasks = checks.iter().zip(images).map(|(check, images)| {
        let mut task = serde_json::to_value(check).unwrap_or_default();
        task["images"] = json!(images);
        task["fine"] = check.is_fine().into();
        task
    });
    json!({
        "tasks": tasks.collect::<Vec<Value>>(),
        "bad_rows": loaded.bad_rows,
        "missing_images": commands,
    })
}

fn text(
    images: &[BTreeSet<String>],
    commands: &[String],
    checks: &[TaskCheck],
    verbose: bool,
) -> String {
    let mut lines = Vec::new();
    for (check, images) in checks.iter().zip(images) {
        task_lines(check, images, verbose, &mut lines);
    }
    if !commands.is_empty() {
        lines.push("missing images; get them with:".into());
        lines.extend(commands.iter().map(|command| format!("  {command}")));
    }
    sanitize(&lines.join("\n")).into_owned()
}

fn task_lines(
    check: &TaskCheck,
    images: &BTreeSet<String>,
    verbose: bool,
    lines: &mut Vec<String>,
) {
    let TaskCheck { task, problems, attempts, .. } = check;
    lines.push(format!("{task}: {problems} problems, {attempts} attempts"));
    if let Some(image) = images.first() {
        let more = match images.len() - 1 {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        lines.push(format!("  image    {image}{more}"));
    }
    if let Some(sandbox) = &check.sandbox {
        let found = match &sandbox.error {
            None => format!("set up for problem {}", sandbox.id),
            Some(error) => format!("FAILED for problem {}: {error}", sandbox.id),
        };
        lines.push(format!("  sandbox  {found}"));
    }
    lines.push(format!("  grader   {}: {}", check.grader, grader_line(&check.answers)));
    let wrong: Vec<&AnswerCheck> = check.answers.iter().filter(|one| one.is_wrong()).collect();
    for answer in wrong.iter().take(MAX_SHOWN) {
        let found = match (answer.score, &answer.cause) {
            (Some(score), _) => format!("the right answer gets {score}, not 1"),
            (None, cause) => format!("FAILED: {}", cause.as_deref().unwrap_or("no score")),
        };
        lines.push(format!("    {}: {found}", answer.id));
    }
    if wrong.len() > MAX_SHOWN {
        lines.push(format!("    and {} more, listed with --json", wrong.len() - MAX_SHOWN));
    }
    let bad = check.prompts.iter().filter_map(|prompt| {
        prompt.error.as_ref().map(|error| format!("  prompt   FAILED for {}: {error}", prompt.id))
    });
    lines.extend(bad);
    let first = |mode: Mode| check.prompts.iter().find(|prompt| prompt.mode == mode);
    match verbose {
        true => check.prompts.iter().for_each(|prompt| prompt_lines(prompt, usize::MAX, lines)),
        false => [Mode::Llm, Mode::Sandbox]
            .into_iter()
            .filter_map(first)
            .for_each(|prompt| prompt_lines(prompt, MAX_PROMPT_LINES, lines)),
    }
}

fn grader_line(answers: &[AnswerCheck]) -> String {
    let checked = answers.iter().filter(|answer| !answer.is_skipped).count();
    let wrong = answers.iter().filter(|answer| answer.is_wrong()).count();
    let skipped = answers.iter().find(|answer| answer.is_skipped);
    let skipped = skipped.and_then(|answer| answer.cause.as_deref());
    let cause = skipped.unwrap_or_default();
    match (checked, skipped) {
        (0, _) => format!("not checked: {cause}"),
        (_, None) => format!("{} of {checked} right answers get the full score", checked - wrong),
        (_, Some(_)) => format!(
            "{} of {checked} right answers get the full score, {} are not checked: {cause}",
            checked - wrong,
            answers.len() - checked
        ),
    }
}

fn prompt_lines(prompt: &PromptCheck, most: usize, lines: &mut Vec<String>) {
    lines.push(format!("  prompt   mode {}, problem {}:", prompt.mode, prompt.id));
    for message in &prompt.messages {
        let (role, text) = match message {
            Message::System { text } => ("system", text.clone()),
            Message::User { content } => {
                let parts = content.iter().filter_map(|part| match part {
                    Content::Text { text } => Some(text.as_str()),
                    _ => None,
                });
                ("user", parts.collect::<Vec<_>>().join("\n"))
            }
            Message::Assistant(_) | Message::Tool(_) => continue,
        };
        lines.push(format!("    [{role}]"));
        lines.extend(text.lines().take(most).map(|line| format!("    {line}")));
        if let more @ 1.. = text.lines().count().saturating_sub(most) {
            lines.push(format!("    … and {more} more lines, shown with -v"));
        }
    }
}
