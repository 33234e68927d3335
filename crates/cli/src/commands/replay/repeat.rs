//! Repeats the tool calls of an episode in a new sandbox and reports which results differ.

use std::{fmt::Write as _, path::Path};

use agent::{
    Prompts,
    tools::{Observation, SUBMIT, ToolOutcome, Tools},
};
use sandbox::{ImageRef, Network, Runtime, Sandbox};
use serde::Serialize;
use serde_json::Value;
use trajectory::{Content, Trajectory};

use super::args::ReplayArgs;
use crate::{
    args::model::Images,
    commands::run::{FOREVER, vision},
    console::{output, sanitize},
    exit::Exit,
    runtime::{self, AnySandbox},
    settings::{Settings, recorded::RecordedSettings, sandbox::SandboxSettings},
};

/// A repeated tool call.
#[derive(Debug, Serialize)]
struct Repeated<'a> {
    step: usize,
    function: &'a str,
    parameters: &'a Value,
    same: bool,
    recorded: &'a str,
    now: String,
}

/// Repeats an episode and prints the results.
pub(super) async fn run(
    args: ReplayArgs,
    record: &Trajectory,
    settings: &Settings,
) -> anyhow::Result<Exit> {
    let recorded = record.metadata.get("settings").and_then(RecordedSettings::read);
    if let Some(recorded) = &recorded {
        note_settings(recorded, args.input.as_deref());
    }
    let (prompts, tools) = prompts_and_tools(recorded);
    let input = args.input.as_deref().map(crate::commands::run::readable).transpose()?;
    let sandbox_settings = SandboxSettings::check(args.sandbox, prompts.working_dir.clone())?;
    let runtime = runtime::start(sandbox_settings.runtime, settings).await?;
    let sandbox = runtime.create(&sandbox_settings.spec).await?;
    sandbox_settings.accept(sandbox.protection())?;
    crate::commands::run::fill(&prompts, input.as_deref(), &sandbox).await?;
    let repeated = repeat(record, &tools, &sandbox).await;
    sandbox.destroy().await?;
    let repeated = repeated?;
    match args.json {
        true => output::print_json(&repeated)?,
        false => output::print(&differences(&repeated))?,
    }
    Ok(if repeated.iter().all(|step| step.same) { Exit::Done } else { Exit::Differs })
}

/// Shows the recorded settings. They are not applied: a trajectory may come from anywhere.
fn note_settings(recorded: &RecordedSettings, given_input: Option<&Path>) {
    let mut shown = Vec::new();
    if let Some(spec) = &recorded.sandbox.spec {
        if spec.image != ImageRef::Host {
            shown.push(format!("image {}", spec.image));
        }
        if spec.network != Network::None {
            shown.push(format!("network {}", spec.network));
        }
    }
    if let (Some(input), None) = (&recorded.input, given_input) {
        shown.push(format!("input {}", input.display()));
    }
    if !shown.is_empty() {
        let shown = shown.join(", ");
        output::note(&format!("the recorded run used {shown}; use the same options to repeat it"));
    }
}

/// The prompts and tools of the episode: as recorded, else the defaults.
fn prompts_and_tools(recorded: Option<RecordedSettings>) -> (Prompts, Tools) {
    let Some(recorded) = recorded else { return (Prompts::default(), Tools::default()) };
    let tools = Tools {
        workdir: recorded.prompts.working_dir.clone(),
        timeout: recorded.command_timeout.unwrap_or(FOREVER),
        vision: vision(recorded.model.images.unwrap_or(Images::No)),
        ..Tools::default()
    };
    (recorded.prompts, tools)
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
            // The episode ended with it: there is nothing to compare.
            continue;
        }
        let now = match tools.call(&call, number, sandbox).await? {
            ToolOutcome::Submitted => "submitted".to_owned(),
            ToolOutcome::Observed(observation) | ToolOutcome::Refused(observation) => {
                text_of_observation(&observation)
            }
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

/// An observation as trajectories show it.
fn text_of_observation(observation: &Observation) -> String {
    let shown = observation.content.iter().map(|part| match part {
        Content::Text { text } => text.clone(),
        Content::Image { media_type, .. } => format!("[a picture: {media_type}]"),
    });
    shown.collect::<Vec<_>>().join("\n")
}

/// Whether two observations are equal. Not every trajectory has exit codes.
fn alike(then: &str, now: &str) -> bool {
    let codes = exit_code(then).zip(exit_code(now));
    content(then) == content(now) && codes.is_none_or(|(then, now)| then == now)
}

/// The exit code in the first line of an observation.
fn exit_code(observation: &str) -> Option<i32> {
    let line = observation.lines().next()?.trim_start_matches('[').to_lowercase();
    let code = line.strip_prefix("exit code")?.trim_end_matches(']');
    code.rsplit([' ', ':']).next()?.parse().ok()
}

/// The content of an observation, without the frame, which differs between versions.
fn content(observation: &str) -> String {
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

/// Formats the differences as text.
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
        let (then, now) = (content(step.recorded), content(&step.now));
        let alike = then.lines().zip(now.lines()).take_while(|(a, b)| a == b).count();
        for (mark, lines) in [("recorded", then), ("now", now)] {
            for line in lines.lines().skip(alike).take(3) {
                let _ = writeln!(text, "          {mark:>8}: {}", sanitize(line));
            }
        }
    }
    let differing = repeated.iter().filter(|step| !step.same).count();
    let _ = write!(text, "{} of {} results differ", differing, repeated.len());
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_frame_of_an_observation_does_not_count() {
        let ours = "[exit code 0]\n[stdout]\n42 \n[97 steps remaining]";
        let theirs = "Exit code: 0\nExecution output of \\[execute_bash]:\n\\[STDOUT]\n42\n\nSteps Remaining: 3";
        assert_eq!(content(ours), "42");
        assert_eq!(content(ours), content(theirs));
        assert_ne!(content(ours), content("[exit code 0]\n[stdout]\n43"));
        // Output of a program is not the frame.
        assert_ne!(content("[exit code 0]\nexit code 5"), content("[exit code 0]\nexit code 6"));
    }

    #[test]
    fn another_exit_code_is_a_difference() {
        let failed = "Exit code: Error: Exit code 1\n\\[STDOUT]\nx";
        assert_eq!(exit_code(failed), Some(1));
        assert!(alike(failed, "[exit code 1]\n[stdout]\nx"));
        assert!(!alike(failed, "[exit code 0]\n[stdout]\nx"));
        // Some trajectories have none.
        assert!(alike("x\n", "[exit code 0]\n[stdout]\nx"));
    }
}
