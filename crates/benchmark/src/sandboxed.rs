//! Mode `sandbox`: a computer is made and filled, the episode played in it, its answer read, and the computer
//! removed.

use std::{
    path::Path,
    time::{Duration, Instant},
};

use agent::{
    Compaction, Episode, Opening, Settings,
    prompt::Inputs,
    tools::{ToolSet, Tools},
};
use model::Model;
use problems::{
    Answer, Grading, Problem, Task,
    swe::{DIFF_FILE, DiffForm},
};
use sandbox::{ImageRef, Network, Process, Runtime, Sandbox, Spec, Streams};
use serde_json::Value;
use trajectory::{Ended, Outcome, Spent};

use crate::{
    Capability, Context, News,
    attempt::{Played, Trouble},
    computer::{self, Alike},
    error::chain,
    journal::Record,
    plan::Job,
    run::Shared,
};

/// No answer is longer; a patch may be.
const LONGEST_ANSWER: u64 = 1 << 20;

/// No patch is longer.
const LONGEST_PATCH: u64 = 16 << 20;

/// Preparing a sandbox takes no longer.
const SETUP: Duration = Duration::from_secs(600);

/// A repository whose changes take longer to list is spoilt.
const DIFF: Duration = Duration::from_secs(300);

/// What came of an episode and its files.
struct Worked {
    answer: String,
    outcome: Outcome,
    spent: Spent,
    grading: Grading,
    peak_memory: Option<u64>,
}

impl<M: Model, R: Runtime> Shared<M, R> {
    /// Plays one episode in a computer of its own.
    pub(crate) async fn sandboxed(&self, job: &Job, record: &Record) -> Result<Played, Trouble> {
        let _place = self.unless_stopped(self.computers.place()).await?;
        let (started, began) = (crate::now(), Instant::now());
        let (spec, alike) = self.spec(job);
        let made = self.unless_stopped(self.computers.make(&spec, alike)).await?;
        let sandbox = made.map_err(|error| Trouble::of_sandbox(&error))?;
        let worked = self.worked(job, record, &sandbox, &spec.network).await;
        if let Err(error) = computer::destroy(sandbox).await {
            let note = format!("a sandbox may not be gone: {}", chain(&error));
            self.progress.tell(&News::Note(&note));
        }
        let Worked { answer, outcome, spent, grading, peak_memory } = worked?;
        let wall_ms = crate::millis_since(began);
        Ok(Played { answer, outcome, spent, grading, started, wall_ms, peak_memory })
    }

    /// What the computer of an attempt is like.
    fn spec(&self, job: &Job) -> (Spec, Alike) {
        let (task, problem) = self.plan.of(job);
        let usual = &self.plan.method.spec;
        let own = task.image(problem);
        let alike = if own == task.image { Alike::Many } else { Alike::Few };
        let network = match self.plan.method.allows(Capability::External) {
            true => usual.network.clone(),
            false => Network::None,
        };
        let spec = Spec {
            image: own.map_or_else(|| usual.image.clone(), ImageRef::Name),
            network,
            workdir: task.prompts.working_dir.clone(),
            ..usual.clone()
        };
        (spec, alike)
    }

    async fn worked(
        &self,
        job: &Job,
        record: &Record,
        sandbox: &R::Sandbox,
        network: &Network,
    ) -> Result<Worked, Trouble> {
        let (task, problem) = self.plan.of(job);
        let method = &self.plan.method;
        let preparing = self.prepare(task, problem, sandbox);
        let preparing =
            computer::within(SETUP + computer::PATIENCE, "filling a sandbox", preparing);
        let prepared = self.unless_stopped(preparing).await?;
        prepared.map_err(|error| Trouble::of_sandbox(&error))?;
        let opening = self.opening(task, problem, sandbox, network)?;
        let mut settings = self.settings(task);
        settings.sampling = method.sampling(&job.key);
        let watch = self.watch.clone();
        let episode = Episode::new(&self.model, sandbox, record, &settings, opening, watch);
        let Ended { outcome, spent } = agent::run(episode).await;
        Trouble::of(&outcome, spent)?;
        let closing = async {
            let answer = self.answer(task, record, sandbox).await?;
            let peak_memory = sandbox.peak_memory().await.ok().flatten();
            Ok((answer, peak_memory))
        };
        let closed = self.unless_stopped(closing).await?;
        let (answer, peak_memory) = closed.map_err(|error: sandbox::Error| Trouble::Failed {
            cause: chain(&error),
            spent: Box::new(spent),
        })?;
        let grading = task.grading(problem, &answer);
        let peak_memory = peak_memory.map(|size| size.0);
        Ok(Worked { answer, outcome, spent, grading, peak_memory })
    }

    /// Puts in what the problem comes with; then takes away what the model has to do without.
    async fn prepare(
        &self,
        task: &Task,
        problem: &Problem,
        sandbox: &R::Sandbox,
    ) -> Result<(), sandbox::Error> {
        let prompts = &task.prompts;
        let files = match self.plan.method.context {
            Context::Files => Some(&problem.files),
            Context::Prompt => None,
        };
        for (name, text) in files.into_iter().flatten() {
            sandbox.write_file(&prompts.input_dir.join(name), text.as_bytes()).await?;
        }
        if prompts.output_dir != prompts.working_dir {
            let dir = prompts.output_dir.to_string_lossy().into_owned();
            run(sandbox, &Process::new(["mkdir", "-p", "--", &dir])).await?;
        }
        if let Some(setup) = task.setup(problem) {
            let setup = Process { timeout: Some(SETUP), ..Process::new(["bash", "-c", &setup]) };
            run(sandbox, &setup).await?;
        }
        if !self.plan.method.allows(Capability::Files) {
            sandbox.freeze().await?;
        }
        Ok(())
    }

    fn opening(
        &self,
        task: &Task,
        problem: &Problem,
        sandbox: &R::Sandbox,
        network: &Network,
    ) -> Result<Opening, Trouble> {
        let (statement, inputs) = match self.plan.method.context {
            Context::Files => {
                let files = problem.files.iter();
                let sizes = files.map(|(name, text)| (name.clone(), text.len() as u64));
                (problem.statement.clone(), Inputs::new(sizes))
            }
            Context::Prompt => (task.with_documents_in_prompt(problem), Inputs::default()),
        };
        let rendered = task.prompts.render_with(&statement, network, &inputs);
        let rendered = rendered.map_err(|error| Trouble::failed(chain(&error)))?;
        let protection = serde_json::to_value(sandbox.protection()).unwrap_or(Value::Null);
        let started = self.started(problem, &rendered.messages(), protection);
        Ok(Opening::Fresh(Box::new(started)))
    }

    /// How episodes of a task are played.
    fn settings(&self, task: &Task) -> Settings {
        let method = &self.plan.method;
        let limits = method.limits(task);
        let tools = Tools {
            set: self.tool_set(),
            timeout: method.command_timeout,
            vision: method.vision,
            workdir: task.prompts.working_dir.clone(),
            ..Tools::default()
        };
        let leaves_a_file = matches!(task.answer_of(), Answer::File(_));
        let asked_for = leaves_a_file && method.allows(Capability::Files);
        Settings {
            compaction: method.compaction.clone().map(|compaction| {
                let window = compaction.window.unwrap_or(u64::MAX).min(limits.tokens);
                Compaction { window: Some(window), ..compaction }
            }),
            limits,
            tools,
            sampling: method.sampling.clone(),
            price: method.price,
            deliver_to: asked_for.then(|| task.prompts.output_dir.clone()),
        }
    }

    fn tool_set(&self) -> ToolSet {
        let method = &self.plan.method;
        match (method.allows(Capability::Files), method.allows(Capability::Execution)) {
            (false, _) => ToolSet::WithoutFiles,
            (true, false) => ToolSet::WithoutExecution,
            (true, true) => ToolSet::All,
        }
    }

    /// What the model left, or said where it could leave nothing.
    async fn answer(
        &self,
        task: &Task,
        record: &Record,
        sandbox: &R::Sandbox,
    ) -> Result<String, sandbox::Error> {
        match task.answer_of() {
            Answer::File(_) if self.tool_set() == ToolSet::WithoutFiles => {
                let said = record.submitted_answer().unwrap_or_default();
                Ok(problems::clean_answer(said.as_bytes()))
            }
            Answer::File(name) => {
                let path = task.prompts.output_dir.join(name);
                let bytes = computer::read(sandbox, &path, LONGEST_ANSWER).await?;
                Ok(problems::clean_answer(&bytes))
            }
            Answer::Diff => match String::from_utf8(patch(task, sandbox, DiffForm::Text).await?) {
                Ok(patch) => Ok(patch),
                Err(_) => {
                    let ascii = patch(task, sandbox, DiffForm::Ascii).await?;
                    Ok(String::from_utf8_lossy(&ascii).into_owned())
                }
            },
        }
    }
}

/// The change of a repository. A model may have spoilt it: then there is no patch, which is an answer as well.
async fn patch<S: Sandbox>(
    task: &Task,
    sandbox: &S,
    form: DiffForm,
) -> Result<Vec<u8>, sandbox::Error> {
    computer::command(sandbox, &task.diff_command(form), DIFF).await?;
    computer::read(sandbox, Path::new(DIFF_FILE), LONGEST_PATCH).await
}

/// Runs a program of ours, which has to end well.
async fn run<S: Sandbox>(sandbox: &S, process: &Process) -> Result<(), sandbox::Error> {
    let exit = sandbox.process(process, Streams::discard()).await?;
    match exit.status.success() {
        true => Ok(()),
        false => Err(sandbox::Error::Io {
            what: format!("`{}` in the new sandbox", process.argv.join(" ")),
            source: std::io::Error::other(format!("it ended with {}", exit.status.code())),
        }),
    }
}
