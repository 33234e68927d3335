//! The main loop. It decides the order; each step is a method of [`Episode`].

use std::{convert::Infallible, ops::ControlFlow};

use model::Model;
use sandbox::Sandbox;
use tracing::instrument;
use trajectory::{Ended, Outcome};

use crate::{Episode, Journal};

/// Runs an episode to its end. A failure of the infrastructure is an outcome as well.
#[instrument(name = "episode", skip_all)]
pub async fn run<M: Model, S: Sandbox, J: Journal<S>>(mut episode: Episode<'_, M, S, J>) -> Ended {
    let ControlFlow::Break(outcome) = run_turns(&mut episode).await;
    episode.end(outcome)
}

async fn run_turns<M: Model, S: Sandbox, J: Journal<S>>(
    episode: &mut Episode<'_, M, S, J>,
) -> ControlFlow<Outcome, Infallible> {
    episode.start()?;
    loop {
        episode.check_limits()?;
        run_turn(episode).await?;
    }
}

#[instrument(name = "turn", skip_all, fields(turn = episode.next_turn()))]
async fn run_turn<M: Model, S: Sandbox, J: Journal<S>>(
    episode: &mut Episode<'_, M, S, J>,
) -> ControlFlow<Outcome> {
    let response = episode.query_model().await?;
    if response.calls.is_empty() {
        episode.remind(&response)?;
    }
    for call in &response.calls {
        episode.run_tool(call).await?;
    }
    episode.finish_turn().await
}
