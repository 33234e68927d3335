//! The engine of a network as the sampler of episodes: the same words on both sides, neither knowing the other.

use std::sync::Arc;

use policy::Engine;
use rollout::{Ask, Choice, Flow, SampleEnd, SampleError, Sampled, Sampler};

/// An engine that plays episodes.
#[derive(Clone)]
pub struct EngineSampler(pub Arc<Engine>);

impl Sampler for EngineSampler {
    fn context(&self) -> usize {
        self.0.context()
    }

    async fn sample(&self, ask: Ask) -> Result<Sampled, SampleError> {
        let Ask { conversation, tokens, most, choice, ends, until } = ask;
        let Choice { temperature, top_p, top_k, seed } = choice;
        let until = until.map(|mut until| -> policy::Until {
            Box::new(move |token| match until(token) {
                Flow::Continue => policy::Flow::Continue,
                Flow::Stop => policy::Flow::Stop,
            })
        });
        let choice = policy::Choice { temperature, top_p, top_k, seed };
        let ask = policy::Ask { conversation, tokens, most, choice, ends, until };
        let policy::Sampled { tokens, logprobs, end } =
            self.0.sample(ask).await.map_err(|error| match error {
                policy::SampleError::TooLong { tokens, context } => {
                    SampleError::TooLong { tokens, context }
                }
                other => SampleError::Failed(Box::new(other)),
            })?;
        let end = match end {
            policy::SampleEnd::Token => SampleEnd::Token,
            policy::SampleEnd::Until => SampleEnd::Until,
            policy::SampleEnd::Length => SampleEnd::Length,
        };
        Ok(Sampled { tokens, logprobs, end })
    }

    fn forget(&self, conversation: u64) {
        self.0.forget(conversation);
    }
}
