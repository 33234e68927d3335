//! Our client and our server together: a sampler served over HTTP is the same sampler.

use std::time::Duration;

use lis_sampling_http::{HttpSampler, LogprobsKind, ServerSettings};
use model::{Endpoint, Secret};
use model_server::{ServeOptions, Served, TokenModel, TokenText, serve};
use sampling::{Flow, SampleEnd, SampleError, SampleRequest, Sampled, Sampler};
use testkit::{ScriptedModel, say};
use tokio::net::TcpListener;

use crate::vllm::{END, VOCABULARY, request};

/// Counts up from the length of the prompt; ends at 20.
struct Counting;

impl Sampler for Counting {
    fn context(&self) -> usize {
        50
    }

    async fn sample(&self, request: SampleRequest) -> Result<Sampled, SampleError> {
        let first = u32::try_from(request.tokens.len()).unwrap() + 10;
        let mut tokens: Vec<u32> = (first..20).chain([END]).collect();
        tokens.truncate(request.max_tokens);
        let end = match tokens.last().is_some_and(|last| request.stop_tokens.contains(last)) {
            true => SampleEnd::Token,
            false => SampleEnd::Length,
        };
        let logprobs = tokens.iter().map(|token| -1.0 / *token as f32).collect();
        Ok(Sampled { tokens, logprobs, versions: Vec::new(), end })
    }

    fn release(&self, _: u64) {}
}

struct Names;

impl TokenText for Names {
    fn bytes(&self, token: u32) -> Vec<u8> {
        format!(" {token}").into_bytes()
    }

    fn ends(&self) -> Vec<u32> {
        vec![END]
    }
}

#[tokio::test]
async fn a_served_sampler_is_the_same_sampler() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut endpoint =
        Endpoint::new("counting", format!("http://{}/v1", listener.local_addr().unwrap()));
    endpoint.silence = Duration::from_secs(5);
    endpoint.api_key = Some(Secret::new("secret-key"));
    let model = ScriptedModel::answering(|_| say("hi")).named("counting");
    let tokens = Some(TokenModel::new(Counting, Names));
    let served = vec![Served { tokens, ..Served::new(model, 10) }];
    let options =
        ServeOptions { api_key: Some(Secret::new("secret-key")), ..ServeOptions::default() };
    let server = tokio::spawn(serve(listener, served, options, std::future::pending()));
    let sampler = HttpSampler::connect(ServerSettings::new(endpoint, VOCABULARY)).await.unwrap();
    assert_eq!((sampler.context(), sampler.logprobs()), (50, LogprobsKind::Temperature));
    let sampled = sampler.sample(request(20, None)).await.unwrap();
    assert_eq!(sampled, Counting.sample(request(20, None)).await.unwrap());
    assert_eq!(sampled.end, SampleEnd::Token);
    let sampled = sampler.sample(request(3, None)).await.unwrap();
    assert_eq!(sampled, Counting.sample(request(3, None)).await.unwrap());
    let until = Box::new(|token| if token == 14 { Flow::Stop } else { Flow::Continue });
    let sampled = sampler.sample(request(20, Some(until))).await.unwrap();
    assert_eq!((sampled.tokens, sampled.end), (vec![13, 14], SampleEnd::Until));
    server.abort();
}
