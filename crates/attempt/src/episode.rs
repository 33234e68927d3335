//! Mode `sandbox`: creates a sandbox, prepares it, runs the episode, collects the answer, removes the sandbox.

use std::time::Instant;

use agent::Episode;
use model::Model;
use sandbox::{Network, Runtime, Sandbox};
use trajectory::{Ended, error_chain};

use crate::{
    EventLog, Play, collect,
    failure::Failure,
    now_ms,
    play::{Answered, ms_since},
    prepare::prepare,
    prompt::opening,
    sandboxes::destroy,
};

/// Plays one episode in a sandbox of its own.
pub(crate) async fn answer<M: Model, R: Runtime>(
    play: &Play<'_, M, R>,
    events: &EventLog,
    warnings: &mut Vec<String>,
) -> Result<Answered, Failure> {
    let _permit = play.unless_cancelled(play.sandboxes.permit()).await?;
    let (started_ms, start) = (now_ms(), Instant::now());
    let (spec, reuse) = play.settings.sandbox_for(play.task, play.problem);
    let created = play.unless_cancelled(play.sandboxes.create(&spec, reuse)).await?;
    let sandbox = created.map_err(|error| Failure::sandbox(&error, Default::default()))?;
    let answered = in_sandbox(play, events, &sandbox, &spec.network).await;
    if let Err(error) = destroy(sandbox).await {
        let warning = format!("a sandbox may not have been removed: {}", error_chain(&error));
        tracing::warn!("{warning}");
        warnings.push(warning);
    }
    Ok(Answered { started_ms, wall_ms: ms_since(start), ..answered? })
}

async fn in_sandbox<M: Model, R: Runtime>(
    play: &Play<'_, M, R>,
    events: &EventLog,
    sandbox: &R::Sandbox,
    network: &Network,
) -> Result<Answered, Failure> {
    let preparing = prepare(sandbox, play.task, play.problem, play.settings);
    let prepared = play.unless_cancelled(preparing).await?;
    prepared.map_err(|error| Failure::sandbox(&error, Default::default()))?;
    let opening = opening(play, sandbox, network)?;
    let mut settings = play.settings.episode(play.task);
    settings.sampling = play.sampling();
    let cancel = play.cancel.clone();
    let episode = Episode::new(play.model, sandbox, events, &settings, opening, cancel);
    let Ended { outcome, spent } = agent::run(episode).await;
    Failure::check(&outcome, spent)?;
    let collecting = async {
        let answer = collect::answer(sandbox, play.task, settings.tools.set, events).await?;
        let peak_memory = sandbox.peak_memory().await.ok().flatten();
        Ok((answer, peak_memory))
    };
    let collected = play.unless_cancelled(collecting).await?;
    let (answer, peak_memory) = collected.map_err(|error| Failure::collecting(&error, spent))?;
    Ok(Answered {
        answer,
        outcome,
        usage: spent,
        started_ms: 0,
        wall_ms: 0,
        peak_memory: peak_memory.map(|size| size.0),
    })
}
