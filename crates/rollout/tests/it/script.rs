//! A sampler that plays a script: what it hears is text, what it says is text, and in between are real tokens.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use lis_rollout::{ChatCodec, Flow, SampleEnd, SampleError, SampleRequest, Sampled, Sampler};

/// What a script gets to know.
pub(crate) struct Heard {
    /// The whole sequence as text.
    pub(crate) text: String,
    /// Which reply of its conversation it is, from 0.
    pub(crate) turn: usize,
    pub(crate) seed: u64,
}

type Play = dyn Fn(&Heard) -> Result<String, String> + Send + Sync;

/// Plays a script. Its log-probabilities follow from the place of a token in the reply.
pub(crate) struct Script {
    codec: Arc<ChatCodec>,
    play: Box<Play>,
    pub(crate) context: usize,
    /// Each reply waits this long.
    pub(crate) wait: Duration,
    turns: Mutex<HashMap<u64, usize>>,
    /// The sequences it was asked to continue.
    pub(crate) asked: Mutex<Vec<(u64, Vec<u32>)>>,
    pub(crate) forgotten: Mutex<Vec<u64>>,
}

impl Script {
    pub(crate) fn new(
        codec: &Arc<ChatCodec>,
        play: impl Fn(&Heard) -> Result<String, String> + Send + Sync + 'static,
    ) -> Self {
        Self {
            codec: Arc::clone(codec),
            play: Box::new(play),
            context: 65_536,
            wait: Duration::ZERO,
            turns: Mutex::default(),
            asked: Mutex::default(),
            forgotten: Mutex::default(),
        }
    }

    /// The same replies in every episode; after the last, the last again.
    pub(crate) fn of(codec: &Arc<ChatCodec>, replies: &[&str]) -> Self {
        let replies: Vec<String> = replies.iter().map(|reply| (*reply).to_owned()).collect();
        Self::new(codec, move |heard| Ok(replies[heard.turn.min(replies.len() - 1)].clone()))
    }
}

/// The log-probability of a token at this place of a reply.
pub(crate) fn logprob(place: usize) -> f32 {
    -0.5 - (place as f32) / 64.0
}

impl Sampler for Script {
    fn context(&self) -> usize {
        self.context
    }

    async fn sample(&self, mut ask: SampleRequest) -> Result<Sampled, SampleError> {
        tokio::time::sleep(self.wait).await;
        let vocabulary = self.codec.vocabulary();
        let turn = {
            let mut turns = self.turns.lock().unwrap();
            let turn = turns.entry(ask.conversation).or_default();
            *turn += 1;
            *turn - 1
        };
        self.asked.lock().unwrap().push((ask.conversation, ask.tokens.to_vec()));
        assert!(
            ask.tokens.len() + ask.max_tokens <= self.context,
            "there is no room for the reply"
        );
        let heard = Heard { text: vocabulary.decode(&ask.tokens), turn, seed: ask.params.seed };
        let said = (self.play)(&heard).map_err(|why| SampleError::Failed(why.into()))?;
        let mut wanted = vocabulary.encode(&said).unwrap();
        wanted.extend(self.codec.closing());
        let mut tokens = Vec::new();
        let end = loop {
            if tokens.len() >= ask.max_tokens {
                break SampleEnd::Length;
            }
            let Some(next) = wanted.get(tokens.len()) else { break SampleEnd::Length };
            tokens.push(*next);
            if ask.stop_tokens.contains(next) {
                break SampleEnd::Token;
            }
            if ask.until.as_mut().is_some_and(|until| until(*next) == Flow::Stop) {
                break SampleEnd::Until;
            }
        };
        let logprobs = (0..tokens.len()).map(logprob).collect();
        Ok(Sampled { tokens, logprobs, versions: Vec::new(), end })
    }

    fn release(&self, conversation: u64) {
        self.forgotten.lock().unwrap().push(conversation);
    }
}
