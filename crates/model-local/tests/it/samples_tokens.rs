//! The local model as a sampler of tokens.
//!
//! Reads `LIS_TEST_TINY_GGUF`, a SmolLM2 of 135M.

use sampling::{Flow, SampleEnd, SampleError, SampleRequest, Sampler, SamplingParams, Until};

use crate::support::load_tiny;

/// Tokens of a SmolLM2 prompt; any ids will do.
const PROMPT: [u32; 6] = [1, 4093, 198, 1780, 314, 260];

fn request(max_tokens: usize, temperature: f64, until: Option<Until>) -> SampleRequest {
    SampleRequest {
        conversation: 1,
        tokens: PROMPT.into(),
        max_tokens,
        params: SamplingParams { temperature, top_p: 1.0, top_k: None, seed: 7 },
        stop_tokens: Vec::new(),
        until,
    }
}

#[tokio::test]
async fn tokens_come_with_their_logprobs() {
    let Some(model) = load_tiny(2) else { return };
    let greedy = model.sample(request(6, 0.0, None)).await.unwrap();
    assert_eq!((greedy.tokens.len(), greedy.end), (6, SampleEnd::Length));
    assert!(greedy.logprobs.iter().all(|logprob| (-20.0..=0.0).contains(logprob)), "{greedy:?}");
    // Almost the same distribution as the greedy one: its own log-probabilities are near 0.
    let cold = model.sample(request(6, 0.001, None)).await.unwrap();
    assert_eq!(cold.tokens, greedy.tokens);
    assert!(cold.logprobs.iter().zip(&greedy.logprobs).all(|(cold, greedy)| cold >= greedy));
    let warm = model.sample(request(6, 1.0, None)).await.unwrap();
    assert_eq!(warm, model.sample(request(6, 1.0, None)).await.unwrap(), "the seed decides");
    // A continued sequence goes on as it would have.
    let mut longer = request(3, 0.0, None);
    longer.tokens = [&PROMPT[..], &greedy.tokens[..3]].concat().into();
    assert_eq!(model.sample(longer).await.unwrap().tokens, greedy.tokens[3..]);
    // What ends a response is part of it.
    let stopping = SampleRequest { stop_tokens: vec![greedy.tokens[2]], ..request(6, 0.0, None) };
    let stopped = model.sample(stopping).await.unwrap();
    assert_eq!(stopped.end, SampleEnd::Token);
    assert_eq!(stopped.tokens.last(), Some(&greedy.tokens[2]));
    let mut left = 2;
    let until: Until = Box::new(move |_| {
        left -= 1;
        if left == 0 { Flow::Stop } else { Flow::Continue }
    });
    let ended = model.sample(request(6, 0.0, Some(until))).await.unwrap();
    assert_eq!((ended.tokens, ended.end), (greedy.tokens[..2].to_vec(), SampleEnd::Until));
    for (tokens, invalid) in [(vec![], "no tokens"), (vec![u32::MAX], "no token")] {
        let request = SampleRequest { tokens: tokens.into(), ..request(1, 0.0, None) };
        let error = model.sample(request).await.unwrap_err();
        assert!(error.to_string().contains(invalid), "{error}");
    }
    let long = SampleRequest { tokens: vec![5; 4096].into(), ..request(1, 0.0, None) };
    assert!(matches!(model.sample(long).await.unwrap_err(), SampleError::TooLong { .. }));
    assert!(model.end_tokens().iter().all(|end| (*end as usize) < model.vocabulary()));
    assert!(!model.end_tokens().is_empty() && !model.token_bytes(PROMPT[1]).is_empty());
    assert!(model.token_bytes(u32::MAX).is_empty());
}
