//! Responses that are not samples of the request. None is repeated: the server would answer the same.

use lis_sampling_http::{InvalidResponse, ServerError};
use sampling::{SampleError, Sampler};
use serde_json::{Value, json};
use testkit::Answer;

use crate::vllm::{END, answering, chunks, continuation, request, sampler, stream};

/// The error where `change` is made to the chunks of a response of three tokens.
async fn refused(change: fn(&mut Vec<Value>)) -> InvalidResponse {
    let server = answering(move |received| {
        let mut tokens: Vec<u32> = continuation(received).take(2).collect();
        tokens.push(END);
        let mut chunks = chunks(received, &tokens, "stop");
        change(&mut chunks);
        stream(&chunks)
    });
    let error = sampler(&server).await.sample(request(20, None)).await.unwrap_err();
    assert_eq!(server.count(), 1, "{error}");
    let SampleError::Failed(source) = error else { panic!("{error}") };
    match *source.downcast::<ServerError>().unwrap() {
        ServerError::Invalid(why) => why,
        other => panic!("{other}"),
    }
}

fn choice(chunk: &mut Value) -> &mut Value {
    &mut chunk["choices"][0]
}

#[tokio::test]
async fn missing_ids_and_logprobs() {
    let why = refused(|chunks| choice(&mut chunks[1])["token_ids"] = Value::Null).await;
    assert_eq!(why, InvalidResponse::NoIds("token_ids"));
    let why = refused(|chunks| choice(&mut chunks[0])["prompt_token_ids"] = Value::Null).await;
    assert_eq!(why, InvalidResponse::NoIds("prompt_token_ids"));
    let why = refused(|chunks| choice(&mut chunks[1])["logprobs"] = Value::Null).await;
    assert_eq!(why, InvalidResponse::NoLogprobs);
}

#[tokio::test]
async fn a_prompt_that_was_changed() {
    let why = refused(|chunks| choice(&mut chunks[0])["prompt_token_ids"] = json!([0, 1, 2, 3]));
    assert_eq!(why.await, InvalidResponse::OtherPrompt { sent: 3, found: 4 });
}

#[tokio::test]
async fn logprobs_that_are_none() {
    for value in [json!(null), json!(2.5), json!(-9999.0), json!("-1")] {
        let server_value = value.clone();
        let server = answering(move |received| {
            let mut chunks = chunks(received, &[11, END], "stop");
            choice(&mut chunks[1])["logprobs"]["token_logprobs"] = json!([server_value]);
            stream(&chunks)
        });
        let error = sampler(&server).await.sample(request(20, None)).await.unwrap_err();
        let SampleError::Failed(source) = error else { panic!("{error}") };
        let text = format!("{:?}", source);
        assert!(text.contains("Logprob"), "{value}: {text}");
    }
}

#[tokio::test]
async fn wrong_lengths() {
    let why = refused(|chunks| {
        choice(&mut chunks[0])["logprobs"]["token_logprobs"] = json!([]);
    });
    assert!(matches!(why.await, InvalidResponse::Lengths { tokens: 3, logprobs: 2 }));
    let why = refused(|chunks| {
        choice(&mut chunks[1])["finish_reason"] = json!("length");
        chunks.truncate(2);
    });
    assert_eq!(why.await, InvalidResponse::Short { tokens: 2, requested: 20 });
}

#[tokio::test]
async fn tokens_that_do_not_exist_do_not_match_or_end_nothing() {
    let why = refused(|chunks| choice(&mut chunks[1])["token_ids"] = json!([100])).await;
    assert_eq!(why, InvalidResponse::UnknownToken { token: 100, vocabulary: 100 });
    let why = refused(|chunks| {
        choice(&mut chunks[1])["logprobs"]["tokens"] = json!(["token_id:50"]);
    });
    assert_eq!(why.await, InvalidResponse::OtherToken { token: 14, other: "50".into() });
    let why = refused(|chunks| {
        choice(&mut chunks[1])["finish_reason"] = json!("stop");
        chunks.truncate(2);
    });
    assert_eq!(why.await, InvalidResponse::OtherEnd(14));
}

#[tokio::test]
async fn a_server_without_token_ids_is_named_as_such() {
    // As llama.cpp's server answers.
    let server = answering(|_| {
        let choice =
            json!({ "text": "hello", "index": 0, "logprobs": null, "finish_reason": "length" });
        Answer::status(200, json!({ "choices": [choice], "object": "text_completion" }).to_string())
    });
    let error = sampler(&server).await.sample(request(20, None)).await.unwrap_err();
    let SampleError::Failed(source) = error else { panic!("{error}") };
    let cause = std::error::Error::source(&*source).unwrap().to_string();
    assert!(cause.contains("does not support `return_token_ids`"), "{cause}");
}

#[tokio::test]
async fn an_event_of_many_small_values_is_refused_before_it_is_parsed() {
    // 20 tokens of 2 KiB each: few enough bytes, far too many values.
    let server = answering(|_| {
        let many = format!("[{}0]", "0,".repeat(15_000));
        Answer::status(200, format!("{{\"choices\":[{{\"index\":0,\"padding\":{many}}}]}}"))
    });
    let error = sampler(&server).await.sample(request(20, None)).await.unwrap_err();
    let SampleError::Failed(source) = error else { panic!("{error}") };
    let causes = std::iter::successors(std::error::Error::source(&*source), |cause| cause.source());
    let text = causes.map(ToString::to_string).collect::<Vec<_>>().join(": ");
    assert!(text.contains("too many for the request"), "{text}");
}
