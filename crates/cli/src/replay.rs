//! `replay`: shows a recorded episode, or carries out its actions once more and says what comes out
//! differently.

use std::{
    fmt::Write as _,
    path::{Path, PathBuf},
    time::Duration,
};

use agent::{
    Prompts,
    tools::{Done, EXECUTE, Observation, SUBMIT, Tools, Vision},
};
use clap::Args;
use sandbox::{Runtime, Sandbox};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;
use trajectory::{Content, Step, Trajectory};

use crate::{
    agent_args::Images,
    args::ComputerArgs,
    console::sanitize,
    exit::{Exit, Usage},
    output,
    request::Computer,
    run::{FOREVER, Folder, text_of},
    runtime::{AnyRuntime, AnySandbox},
    settings::Settings,
};

/// Options of `replay`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  llm-in-sandbox replay output/20260101_120000
  llm-in-sandbox replay trajectory.json --sandbox --input data/
  llm-in-sandbox replay trajectory.json --sandbox --json | jq '.[] | select(.same | not)'

Without --sandbox the episode is shown. With it, its actions are carried out in a fresh sandbox; the exit
code is 1 when something comes out differently. Records of the method's first implementation work too.")]
pub(crate) struct ReplayArgs {
    /// The record: the directory of a run, a trajectory.json or an events.jsonl
    #[arg(value_name = "TRAJECTORY")]
    record: PathBuf,
    /// Carry out the actions in a fresh sandbox
    #[arg(long)]
    sandbox: bool,
    /// A directory, or a file, copied into the sandbox's input directory first
    #[arg(long, value_name = "DIR", requires = "sandbox")]
    input: Option<PathBuf>,
    /// Print JSON: the record, or with --sandbox an array of what came out
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    computer: ComputerArgs,
}

/// One action carried out once more.
#[derive(Debug, Serialize)]
struct Repeated<'a> {
    step: usize,
    function: &'a str,
    parameters: &'a Value,
    same: bool,
    recorded: &'a str,
    now: String,
}

/// Shows or repeats an episode.
pub(crate) async fn run(args: ReplayArgs, settings: &Settings) -> anyhow::Result<Exit> {
    let record = read(&args.record)?;
    if !args.sandbox {
        match args.json {
            true => output::print_json(&record)?,
            false => output::print(&show(&record))?,
        }
        return Ok(Exit::Done);
    }
    let (prompts, tools) = recorded(&record);
    tell_settings(&record, args.input.as_deref());
    let input = args.input.as_deref().map(crate::run::readable).transpose()?;
    let computer = Computer::check(args.computer, prompts.working_dir.clone())?;
    let runtime = AnyRuntime::start(computer.runtime, settings).await?;
    let sandbox = runtime.create(&computer.spec).await?;
    computer.accept(sandbox.protection())?;
    crate::run::fill(&prompts, input.as_deref(), &sandbox).await?;
    let repeated = repeat(&record, &tools, &sandbox).await;
    sandbox.destroy().await?;
    let repeated = repeated?;
    match args.json {
        true => output::print_json(&repeated)?,
        false => output::print(&differences(&repeated))?,
    }
    Ok(if repeated.iter().all(|step| step.same) { Exit::Done } else { Exit::Differs })
}

/// A record may come from anybody, so its settings are not obeyed, only told.
fn tell_settings(record: &Trajectory, given: Option<&Path>) {
    let Some(settings) = record.metadata.get("settings") else { return };
    let mut told = Vec::new();
    for (name, usual) in [("image", "host"), ("network", "none")] {
        let value = &settings["computer"]["spec"][name];
        if !value.is_null() && *value != usual {
            told.push(format!("{name} {value}"));
        }
    }
    if let (Some(input), None) = (settings["input"].as_str(), given) {
        told.push(format!("input {input}"));
    }
    if !told.is_empty() {
        let told = told.join(", ");
        output::note(&format!("the recorded run had {told}; give the same options to repeat it"));
    }
}

/// Reads a record in whichever form.
fn read(path: &Path) -> anyhow::Result<Trajectory> {
    if path.is_dir() {
        let lines = Folder::open(path)?.read_events()?;
        return Ok(Trajectory::from_events(&lines));
    }
    let refuse = |why: String| Usage(format!("cannot read {}: {why}", path.display()));
    let text = text_of(path).map_err(|error| refuse(error.to_string()))?;
    if path.extension().is_some_and(|extension| extension == "jsonl") {
        let lines = trajectory::read(&text).map_err(|error| refuse(error.to_string()))?;
        return Ok(Trajectory::from_events(&lines));
    }
    let record = serde_json::from_str(&text);
    Ok(record.map_err(|error| {
        refuse(format!(
            "it is no record of an episode ({error}); name the directory of a run, its trajectory.json \
             or its events.jsonl"
        ))
    })?)
}

/// The directories the episode knew and how its tools behaved: as recorded, else as usual.
fn recorded(record: &Trajectory) -> (Prompts, Tools) {
    let settings = record.metadata.get("settings").unwrap_or(&Value::Null);
    let prompts: Prompts = said(&settings["prompts"]).unwrap_or_default();
    let mut tools = Tools { workdir: prompts.working_dir.clone(), ..Tools::default() };
    match said::<Option<Duration>>(&settings["command_timeout"]) {
        Some(Some(timeout)) => tools.timeout = timeout,
        Some(None) if settings.is_object() => tools.timeout = FOREVER,
        _ => {}
    }
    if said(&settings["model"]["images"]) == Some(Images::Yes) {
        tools.vision = Vision::Images;
    }
    (prompts, tools)
}

fn said<T: DeserializeOwned>(value: &Value) -> Option<T> {
    serde_json::from_value(value.clone()).ok()
}

async fn repeat<'a>(
    record: &'a Trajectory,
    tools: &Tools,
    sandbox: &AnySandbox,
) -> anyhow::Result<Vec<Repeated<'a>>> {
    let acting =
        record.steps.iter().enumerate().filter(|(_, step)| !step.action.function.is_empty());
    let mut repeated = Vec::new();
    // Calls are numbered as they were then: the number names the file of a long output.
    for (number, ((at, step), call)) in (1..).zip(acting.zip(record.calls())) {
        let submits = step.action.function == SUBMIT;
        if step.observation.is_empty() && !submits {
            // The episode broke off over it: there is nothing to compare.
            continue;
        }
        let now = match tools.call(&call, number, sandbox).await? {
            Done::Submitted => "submitted".to_owned(),
            Done::Observed(observation) | Done::Refused(observation) => seen(&observation),
        };
        repeated.push(Repeated {
            step: at + 1,
            function: &step.action.function,
            parameters: &step.action.parameters,
            same: submits || alike(&step.observation, &now),
            recorded: &step.observation,
            now,
        });
    }
    Ok(repeated)
}

/// An observation as records show it.
fn seen(observation: &Observation) -> String {
    let shown = observation.content.iter().map(|part| match part {
        Content::Text { text } => text.clone(),
        Content::Image { media_type, .. } => format!("[a picture: {media_type}]"),
    });
    shown.collect::<Vec<_>>().join("\n")
}

/// Whether two observations say the same. Not every record has exit codes.
fn alike(then: &str, now: &str) -> bool {
    let codes = exit_code(then).zip(exit_code(now));
    essence(then) == essence(now) && codes.is_none_or(|(then, now)| then == now)
}

/// The exit code the first line of an observation tells.
fn exit_code(observation: &str) -> Option<i32> {
    let line = observation.lines().next()?.trim_start_matches('[').to_lowercase();
    let told = line.strip_prefix("exit code")?.trim_end_matches(']');
    told.rsplit([' ', ':']).next()?.parse().ok()
}

/// What an observation says, without the words around it, which differ between versions.
fn essence(observation: &str) -> String {
    let frame = |line: &str| {
        let bare = line.trim().trim_start_matches('\\').trim_start_matches('[').to_lowercase();
        ["stdout]", "stderr]", "execution output of", "(no output)"]
            .iter()
            .any(|word| bare.starts_with(word))
            || bare.ends_with("remaining]")
            || bare.contains("step remaining: ")
            || bare.starts_with("steps remaining: ")
    };
    let skipped = usize::from(exit_code(observation).is_some());
    let lines = observation.lines().skip(skipped).filter(|line| !frame(line)).map(str::trim_end);
    lines.collect::<Vec<_>>().join("\n").trim().to_owned()
}

/// The episode for people.
fn show(record: &Trajectory) -> String {
    let mut text = format!("# Task\n{}\n", sanitize(&record.problem_statement));
    for (at, step) in record.steps.iter().enumerate() {
        show_step(&mut text, at + 1, step);
    }
    if let Some(outcome) = record.metadata.get("outcome").and_then(|outcome| outcome.as_str()) {
        let _ = write!(text, "\n# Outcome\n{}\n", sanitize(outcome));
    }
    text
}

fn show_step(text: &mut String, number: usize, step: &Step) {
    // Writing to a string cannot fail.
    let _ = write!(text, "\n# Step {number}\n");
    for (name, part) in [("thinks", &step.reasoning_content), ("says", &step.thought)] {
        if !part.trim().is_empty() {
            let _ = writeln!(text, "[{name}] {}", sanitize(part.trim()));
        }
    }
    let action = &step.action;
    let command = action.parameters.get("command").and_then(|command| command.as_str());
    match (action.function.as_str(), command) {
        ("", _) => {}
        (EXECUTE, Some(command)) => {
            let _ = writeln!(text, "$ {}", sanitize(command));
        }
        (function, _) => {
            let parameters = action.parameters.to_string();
            let _ = writeln!(text, "{} {}", sanitize(function), sanitize(&parameters));
        }
    }
    if !step.observation.is_empty() {
        let _ = writeln!(text, "{}", sanitize(step.observation.trim_end()));
    }
}

/// What came out differently, for people.
fn differences(repeated: &[Repeated<'_>]) -> String {
    let mut text = String::new();
    for step in repeated {
        let verdict = if step.same { "same" } else { "DIFFERS" };
        let _ = writeln!(text, "step {:>3}  {:<18} {verdict}", step.step, sanitize(step.function));
        if step.same {
            continue;
        }
        if let Some((then, now)) = exit_code(step.recorded).zip(exit_code(&step.now))
            && then != now
        {
            let _ = writeln!(
                text,
                "          recorded: exit code {then}\n               now: exit code {now}"
            );
        }
        let (then, now) = (essence(step.recorded), essence(&step.now));
        let alike = then.lines().zip(now.lines()).take_while(|(a, b)| a == b).count();
        for (mark, lines) in [("recorded", then), ("now", now)] {
            for line in lines.lines().skip(alike).take(3) {
                let _ = writeln!(text, "          {mark:>8}: {}", sanitize(line));
            }
        }
    }
    let differing = repeated.iter().filter(|step| !step.same).count();
    let _ = write!(text, "{} of {} actions came out differently", differing, repeated.len());
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_frame_of_an_observation_does_not_count() {
        let ours = "[exit code 0]\n[stdout]\n42 \n[97 steps remaining]";
        let theirs = "Exit code: 0\nExecution output of \\[execute_bash]:\n\\[STDOUT]\n42\n\nSteps Remaining: 3";
        assert_eq!(essence(ours), "42");
        assert_eq!(essence(ours), essence(theirs));
        assert_ne!(essence(ours), essence("[exit code 0]\n[stdout]\n43"));
        // Words of a program are not the frame.
        assert_ne!(essence("[exit code 0]\nexit code 5"), essence("[exit code 0]\nexit code 6"));
    }

    #[test]
    fn another_exit_code_is_a_difference() {
        let failed = "Exit code: Error: Exit code 1\n\\[STDOUT]\nx";
        assert_eq!(exit_code(failed), Some(1));
        assert!(alike(failed, "[exit code 1]\n[stdout]\nx"));
        assert!(!alike(failed, "[exit code 0]\n[stdout]\nx"));
        // Some records tell none.
        assert!(alike("x\n", "[exit code 0]\n[stdout]\nx"));
    }
}
