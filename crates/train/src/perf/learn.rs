//! A training step of an adapter, as reinforcement learning takes it: groups of episodes that begin with the same prompt,
//! of which a part was sampled. Beside it the same step with autograd.

use anyhow::Context;
use policy::{Checkpointing, Network, perf};
use serde_json::{Value, json};
use training::{AdamW, LossKind, Machine, Row, Trainer};

/// Episodes of a problem.
const MEMBERS: usize = 8;

/// One of this many tokens after the prompt was sampled; the others are observations.
pub(super) const SAMPLED: usize = 5;

/// Computed tokens of a pass.
const TOKENS_PER_PASS: usize = 16_384;

/// The episodes of the measured step.
#[derive(Clone, Copy)]
pub(super) struct Episodes {
    /// Their number.
    pub(super) count: usize,
    /// The tokens of each, half of them prompt.
    pub(super) tokens: usize,
}

/// Measures steps of a network with an adapter.
pub(super) fn measure(
    net: Network,
    episodes: Episodes,
    steps: u32,
    machine: Machine,
) -> anyhow::Result<Value> {
    let vocabulary = u32::try_from(net.shape().vocabulary)?;
    let rows = rows(episodes, vocabulary);
    let trainer = Trainer::new(net, AdamW::default(), TOKENS_PER_PASS, Checkpointing::Off)?;
    let mut computed = 0;
    let mut timed = |mut trainer: Trainer| -> anyhow::Result<(Trainer, f64)> {
        let step = || {
            let stats = trainer.step(&rows, 1e-6, LossKind::Supervised)?;
            computed = stats.computed_tokens;
            anyhow::Ok(())
        };
        let rate = perf::training(machine.device, steps, 1, step).context("learning failed")?;
        Ok((trainer, rate.seconds / f64::from(steps)))
    };
    let (trainer, seconds) = timed(trainer)?;
    let (_, autograd) = timed(trainer.with_autograd())?;
    Ok(json!({
        "episodes": episodes.count,
        "tokens": episodes.tokens,
        "computed_tokens": computed,
        "step_s": seconds,
        "computed_tokens_per_s": computed as f64 / seconds,
        "autograd_step_s": autograd,
        "autograd_ratio": autograd / seconds,
    }))
}

fn rows(episodes: Episodes, vocabulary: u32) -> Vec<Row> {
    let Episodes { count, tokens } = episodes;
    let prompt = tokens / 2;
    let row = |number: usize| {
        let token = |at: usize| match at < prompt {
            true => (number / MEMBERS * 7919 + at * 104_729) as u32 % vocabulary,
            false => (number * 15_485_863 + at * 104_729) as u32 % vocabulary,
        };
        Row {
            tokens: (0..tokens).map(token).collect(),
            trained: (0..tokens).map(|at| at >= prompt && at.is_multiple_of(SAMPLED)).collect(),
            weight: 1.0 / (count * tokens) as f64,
            ..Row::default()
        }
    };
    (0..count).map(row).collect()
}
