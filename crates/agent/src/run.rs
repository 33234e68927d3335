//! The loop itself. Everything it says is done elsewhere; what it decides is the order.

use std::{convert::Infallible, ops::ControlFlow};

use model::Model;
use sandbox::Sandbox;
use trajectory::{Ended, Outcome};

use crate::{Episode, Journal};

/// Plays an episode to its end, whatever that is.
pub async fn run<M: Model, S: Sandbox, J: Journal<S>>(mut episode: Episode<'_, M, S, J>) -> Ended {
    let ControlFlow::Break(outcome) = play(&mut episode).await;
    episode.end(outcome)
}

async fn play<M: Model, S: Sandbox, J: Journal<S>>(
    episode: &mut Episode<'_, M, S, J>,
) -> ControlFlow<Outcome, Infallible> {
    episode.begin()?;
    loop {
        episode.within_limits()?;
        let reply = episode.ask().await?;
        if reply.calls.is_empty() {
            episode.remind(&reply)?;
        }
        for call in &reply.calls {
            episode.carry_out(call).await?;
        }
        episode.close_turn().await?;
    }
}
