//! What a well-behaved server samples.

use lis_sampling_http::{Api, ConnectError, HttpSampler, LogprobsKind, ServerSettings};
use sampling::{Flow, SampleEnd, SampleError, SampleRequest, Sampler};
use serde_json::json;
use testkit::{Answer, Fault};

use crate::vllm::{
    CONTEXT, END, answering, chunk, chunks, continuation, described, logprob, request, sampler,
    server, settings, stream,
};

#[tokio::test]
async fn tokens_come_back_with_their_logprobs_and_their_end() {
    let server = server(4);
    let sampler = sampler(&server).await;
    assert_eq!((sampler.context(), sampler.logprobs()), (CONTEXT, LogprobsKind::Raw));
    let sampled = sampler.sample(request(20, None)).await.unwrap();
    assert_eq!(sampled.tokens, [13, 14, 15, 16, END]);
    let expected: Vec<f32> = sampled.tokens.iter().map(|token| logprob(*token) as f32).collect();
    assert_eq!(sampled.logprobs, expected);
    assert_eq!(sampled.end, SampleEnd::Token);
    let sampled = sampler.sample(request(3, None)).await.unwrap();
    assert_eq!((sampled.tokens.len(), sampled.end), (3, SampleEnd::Length));
}

#[tokio::test]
async fn every_parameter_is_sent() {
    let server = server(1);
    sampler(&server).await.sample(request(20, None)).await.unwrap();
    let sent = server.requests()[0].clone();
    assert_eq!(sent.path, "/v1/completions");
    for (field, value) in [
        ("model", json!("mock")),
        ("prompt", json!([1, 2, 3])),
        ("max_tokens", json!(20)),
        ("temperature", json!(0.5)),
        ("top_p", json!(0.9)),
        ("top_k", json!(-1)),
        ("min_p", json!(0.0)),
        ("repetition_penalty", json!(1.0)),
        ("seed", json!(i64::MAX)),
        ("stop_token_ids", json!([END])),
        ("return_token_ids", json!(true)),
        ("logprobs", json!(1)),
        ("stream", json!(true)),
    ] {
        assert_eq!(sent.body[field], value, "{field}");
    }
}

#[tokio::test]
async fn the_callback_ends_a_response_and_the_servers_work() {
    let server = answering(|received| {
        // The server has more to say, but stays silent until the connection is closed.
        let tokens: Vec<u32> = continuation(received).take(20).collect();
        stream(&chunks(received, &tokens, "length")).fault(Fault::SilentAfter(5))
    });
    let sampler = sampler(&server).await;
    let until = Box::new(|token| if token == 13 { Flow::Stop } else { Flow::Continue });
    let sampled = sampler.sample(request(40, Some(until))).await.unwrap();
    assert_eq!((sampled.tokens, sampled.end), (vec![13], SampleEnd::Until));
    assert!(server.is_idle_soon().await, "the connection is closed");
}

#[tokio::test]
async fn a_document_instead_of_a_stream_is_read_too() {
    let server = answering(|received| {
        let mut whole = chunk(&[11, 12, END], Some("stop"));
        whole["choices"][0]["prompt_token_ids"] = received.body["prompt"].clone();
        whole["usage"] = json!({ "prompt_tokens": 3 });
        Answer::status(200, whole.to_string())
    });
    let sampled = sampler(&server).await.sample(request(20, None)).await.unwrap();
    assert_eq!(sampled.tokens, [11, 12, END]);
}

#[tokio::test]
async fn sglangs_own_protocol_is_spoken() {
    let server = answering(|received| {
        assert_eq!(received.path, "/generate");
        let (prompt, params) = (&received.body["input_ids"], &received.body["sampling_params"]);
        assert_eq!(params["stop_token_ids"], json!([END]));
        let pairs = json!([[-0.5, 11, null], [-0.25, END, null]]);
        let info = json!({
            "prompt_tokens": prompt.as_array().unwrap().len(),
            "output_token_logprobs": pairs,
            "finish_reason": { "type": "stop", "matched": END },
        });
        Answer::status(200, json!({ "text": "a", "meta_info": info }).to_string())
    });
    server.describe_models(&json!({ "max_model_len": CONTEXT, "owned_by": "sglang" }));
    let settings = ServerSettings { api: Api::Generate, ..settings(server.base_url()) };
    let sampler = HttpSampler::connect(settings).await.unwrap();
    assert_eq!(sampler.logprobs(), LogprobsKind::Temperature);
    let sampled = sampler.sample(request(20, None)).await.unwrap();
    assert_eq!((sampled.tokens, sampled.logprobs), (vec![11, END], vec![-0.5, -0.25]));
}

#[tokio::test]
async fn requests_that_cannot_be_served_are_not_sent() {
    let server = server(1);
    let sampler = sampler(&server).await;
    let with = |tokens: Vec<u32>| SampleRequest { tokens: tokens.into(), ..request(5, None) };
    let refused = sampler.sample(with(vec![])).await.unwrap_err();
    assert!(matches!(refused, SampleError::Empty));
    let refused = sampler.sample(with(vec![1; CONTEXT])).await.unwrap_err();
    assert!(matches!(refused, SampleError::TooLong { tokens: CONTEXT, context: CONTEXT }));
    let refused = sampler.sample(with(vec![100])).await.unwrap_err();
    assert!(matches!(refused, SampleError::UnknownToken { token: 100, .. }));
    assert_eq!(server.count(), 0);
    // The context allows fewer tokens than requested.
    let sampled = sampler.sample(SampleRequest { max_tokens: 5, ..with(vec![1; CONTEXT - 1]) });
    assert_eq!(sampled.await.unwrap().tokens.len(), 1);
}

#[tokio::test]
async fn no_more_requests_run_at_once_than_allowed() {
    let server = answering(|received| {
        crate::vllm::answer(received, 2).after(std::time::Duration::from_millis(30))
    });
    let settings = ServerSettings { concurrency: 2, ..settings(server.base_url()) };
    let sampler = std::sync::Arc::new(HttpSampler::connect(settings).await.unwrap());
    let tasks: Vec<_> = (0..6)
        .map(|_| {
            let sampler = sampler.clone();
            tokio::spawn(async move { sampler.sample(request(5, None)).await.unwrap() })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    assert_eq!((server.count(), server.peak()), (6, 2));
}

#[tokio::test]
async fn a_server_that_cannot_be_a_sampler_is_named() {
    let server = server(1);
    let connect = |change: fn(&mut ServerSettings)| {
        let mut settings = settings(server.base_url());
        change(&mut settings);
        HttpSampler::connect(settings)
    };
    let error = connect(|settings| settings.endpoint.model = "other".into()).await.unwrap_err();
    assert_eq!(error.to_string(), "the server has no model `other`; it has mock");
    server.describe_models(&json!({}));
    let error = connect(|_| {}).await.unwrap_err();
    assert!(matches!(error, ConnectError::NoContext { .. }), "{error}");
    let sampler = connect(|settings| settings.context = Some(32)).await.unwrap();
    assert_eq!(sampler.context(), 32);
    let server = described(server);
    let sampler =
        HttpSampler::connect(ServerSettings { context: Some(32), ..settings(server.base_url()) });
    let sampler = sampler.await.unwrap();
    assert_eq!((sampler.context(), sampler.limited_to(20).context()), (32, 20));
}
