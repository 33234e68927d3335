//! The prompt of an attempt in a sandbox: the task's templates, filled with the problem and its documents.

use agent::{Opening, prompt::Inputs};
use model::Model;
use sandbox::{Network, Runtime, Sandbox};
use trajectory::Fault;

use crate::{Documents, Play, failure::Failure};

/// The messages an episode starts with.
pub(crate) fn opening<M: Model, R: Runtime>(
    play: &Play<'_, M, R>,
    sandbox: &R::Sandbox,
    network: &Network,
) -> Result<Opening, Failure> {
    let (task, problem) = (play.task, play.problem);
    let (statement, inputs) = match play.settings.documents {
        Documents::Files => {
            let files = problem.files.iter();
            let sizes = files.map(|(name, text)| (name.clone(), text.len() as u64));
            (problem.statement.clone(), Inputs::new(sizes))
        }
        Documents::Prompt => (task.with_documents_in_prompt(problem), Inputs::default()),
    };
    let rendered = task.prompts.render_with(&statement, network, &inputs);
    let rendered = rendered.map_err(|error| Failure::new(Fault::Problem, &error))?;
    let protection = serde_json::to_value(sandbox.protection()).unwrap_or_default();
    Ok(Opening::Fresh(Box::new(play.started(rendered.messages(), protection))))
}
