//! Refusals as servers word them, and what must not be taken for one.

use super::*;

fn numbers(context: u64, prompt: u64, output: u64) -> Overflow {
    let some = |number| (number > 0).then_some(number);
    Overflow { context: some(context), prompt: some(prompt), output: some(output) }
}

/// The server, its status, its body, and the context, prompt and output in it; 0 where it has none.
const REFUSALS: &[(&str, u16, &str, [u64; 3])] = &[
    (
        "OpenAI, old",
        400,
        r#"{"error":{"message":"This model's maximum context length is 8192 tokens. However, you requested 8256 tokens (64 in the messages, 8192 in the completion). Please reduce the length of the messages or completion.","type":"invalid_request_error","param":"messages","code":"context_length_exceeded"}}"#,
        [8192, 64, 0],
    ),
    (
        "OpenAI, with functions",
        400,
        r#"{"error":{"message":"This model's maximum context length is 4097 tokens. However, you requested 4310 tokens (200 in the messages, 110 in the functions, 4000 in the completion). Please reduce the length of the messages, functions, or completion."}}"#,
        [4097, 0, 0],
    ),
    (
        "OpenAI, messages alone",
        400,
        r#"{"error":{"message":"This model's maximum context length is 128000 tokens. However, your messages resulted in 204308 tokens. Please reduce the length of the messages.","code":"context_length_exceeded"}}"#,
        [128_000, 204_308, 0],
    ),
    (
        "OpenAI, gpt-5",
        400,
        r#"{"error":{"message":"Input tokens exceed the configured limit of 272000 tokens. Your messages resulted in 289650 tokens. Please reduce the length of the messages.","code":"context_length_exceeded"}}"#,
        [272_000, 289_650, 0],
    ),
    (
        "OpenAI, without numbers",
        400,
        r#"{"error":{"message":"Your input exceeds the context window of this model. Please adjust your input and try again.","code":"context_length_exceeded"}}"#,
        [0, 0, 0],
    ),
    (
        "OpenAI, too long a reply",
        400,
        r#"{"error":{"message":"max_tokens is too large: 32000. This model supports at most 16384 completion tokens, whereas you provided 32000.","type":"invalid_request_error","param":"max_tokens","code":null}}"#,
        [0, 0, 16384],
    ),
    (
        "vLLM, old and flat",
        400,
        r#"{"object":"error","message":"This model's maximum context length is 6048 tokens. However, you requested 6616 tokens (568 in the messages, 6048 in the completion). Please reduce the length of the messages or completion.","type":"BadRequestError","param":null,"code":400}"#,
        [6048, 568, 0],
    ),
    (
        "vLLM 0.8",
        400,
        r#"{"error":{"message":"'max_tokens' or 'max_completion_tokens' is too large: 64000. This model's maximum context length is 64001 tokens and your request has 24235 input tokens (64000 > 64001 - 24235). None","code":400}}"#,
        [64001, 24235, 0],
    ),
    (
        "vLLM 0.20 stops counting",
        400,
        r#"{"error":{"message":"This model's maximum context length is 128000 tokens. However, you requested 65535 output tokens and your prompt contains at least 62466 input tokens, for a total of at least 128001 tokens.","code":400}}"#,
        [128_000, 0, 0],
    ),
    (
        "vLLM, prompt alone",
        400,
        r#"{"error":{"message":"This model's maximum context length is 32768 tokens. However, your request has 33001 input tokens. Please reduce the length of the input messages."}}"#,
        [32768, 33001, 0],
    ),
    (
        "vLLM engine",
        400,
        "The decoder prompt (length 9001) is longer than the maximum model length of 8192. Make sure that `max_model_len` is no smaller.",
        [8192, 9001, 0],
    ),
    (
        "SGLang",
        400,
        r#"{"object":"error","message":"Requested token count exceeds the model's maximum context length of 202752 tokens. You requested a total of 202941 tokens: 170941 tokens from the input messages and 32000 tokens for the completion. Please reduce the number of tokens in the input messages or the completion to fit within the limit.","code":400}"#,
        [202_752, 170_941, 0],
    ),
    (
        "SGLang, prompt alone",
        400,
        r#"{"object":"error","message":"The input (61709 tokens) is longer than the model\'s context length (40960 tokens).","code":400}"#,
        [40960, 61709, 0],
    ),
    (
        "SGLang, memory",
        400,
        "Input length (160062 tokens) exceeds the maximum allowed length (59862 tokens). Use a shorter input or enable --allow-auto-truncate.",
        [59862, 160_062, 0],
    ),
    (
        "Anthropic, prompt alone",
        400,
        r#"{"type":"error","error":{"type":"invalid_request_error","message":"prompt is too long: 212345 tokens > 200000 maximum"}}"#,
        [200_000, 212_345, 0],
    ),
    (
        "Anthropic, sum",
        400,
        r#"{"type":"error","error":{"type":"invalid_request_error","message":"input length and `max_tokens` exceed context limit: 178959 + 64000 > 200000, decrease input length or `max_tokens` and try again"}}"#,
        [200_000, 178_959, 0],
    ),
    (
        "Anthropic, too long a reply",
        400,
        r#"{"type":"error","error":{"type":"invalid_request_error","message":"max_tokens: 100000 > 64000, which is the maximum allowed number of output tokens for claude-x"}}"#,
        [0, 0, 64000],
    ),
    (
        "llama.cpp, fields, old status",
        500,
        r#"{"error":{"code":500,"message":"the request exceeds the available context size. try increasing the context size or enable context shift","type":"exceed_context_size_error","n_prompt_tokens":1407,"n_ctx":256}}"#,
        [256, 1407, 0],
    ),
    (
        "llama.cpp, words",
        400,
        r#"{"error":{"code":400,"message":"request (12345 tokens) exceeds the available context size (8192 tokens), try increasing it","type":"exceed_context_size_error"}}"#,
        [8192, 12345, 0],
    ),
    (
        "llama-cpp-python",
        400,
        r#"{"error":{"message":"Requested tokens (2285) exceed context window of 2048","type":"internal_server_error"}}"#,
        [2048, 2285, 0],
    ),
    (
        "llama-cpp-python as OpenAI",
        400,
        r#"{"error":{"message":"This model's maximum context length is 2048 tokens, however you requested 2300 tokens (300 in your prompt; 2000 for the completion). Please reduce your prompt; or completion length."}}"#,
        [2048, 300, 0],
    ),
    (
        "Ollama",
        400,
        r#"{"error":{"message":"the input length exceeds the context length","type":"invalid_request_error"}}"#,
        [0, 0, 0],
    ),
    (
        "LiteLLM around Anthropic",
        400,
        r#"{"error":{"message":"litellm.BadRequestError: AnthropicException - b'{\"type\":\"error\",\"error\":{\"type\":\"invalid_request_error\",\"message\":\"input length and `max_tokens` exceed context limit: 182831 + 64000 > 200000, decrease input length or `max_tokens` and try again\"}}'","code":"400"}}"#,
        [200_000, 182_831, 0],
    ),
    (
        "LiteLLM without numbers",
        400,
        r#"{"error":{"message":"litellm.ContextWindowExceededError: XyzException - too much","code":"400"}}"#,
        [0, 0, 0],
    ),
    (
        "OpenRouter",
        400,
        r#"{"error":{"message":"This endpoint's maximum context length is 131072 tokens. However, you requested about 138956 tokens (7884 of text input, 131072 in the output). Please reduce the length of either one, or use the \"middle-out\" transform to compress your prompt automatically.","code":400}}"#,
        [131_072, 7884, 0],
    ),
    (
        "OpenRouter with tools",
        400,
        r#"{"error":{"message":"This endpoint's maximum context length is 131072 tokens. However, you requested about 138956 tokens (7884 of text input, 500 of tool input, 130572 in the output).","code":400}}"#,
        [131_072, 0, 0],
    ),
    (
        "a server that writes it into `param`",
        400,
        r#"{"error":{"message":"Param Incorrect","param":"max_tokens is too large: 1048576. This model supports at most 131072 completion tokens, whereas you provided 1048576.","code":"400"}}"#,
        [0, 0, 131_072],
    ),
    (
        "DeepSeek",
        400,
        r#"{"error":{"message":"Invalid max_tokens value, the valid range of max_tokens is [1, 8192]","code":"invalid_request_error"}}"#,
        [0, 0, 8192],
    ),
    (
        "Groq",
        400,
        r#"{"error":{"message":"`max_tokens` must be less than or equal to `32768`, the maximum value for `max_tokens` is less than the `context_window` for this model"}}"#,
        [0, 0, 32768],
    ),
    (
        "Gemini",
        400,
        r#"[{"error":{"code":400,"message":"The input token count (2845475) exceeds the maximum number of tokens allowed (1048576).","status":"INVALID_ARGUMENT"}}]"#,
        [1_048_576, 2_845_475, 0],
    ),
    (
        "Mistral",
        400,
        r#"{"message":"Prompt contains 40,100 tokens and 0 draft tokens, too large for model with 32,768 maximum context length"}"#,
        [32768, 40100, 0],
    ),
];

#[test]
fn every_wording_gives_its_numbers() {
    for (server, status, body, [context, prompt, output]) in REFUSALS {
        let expected = Some(numbers(*context, *prompt, *output));
        assert_eq!(recognize(*status, body), expected, "{server}");
    }
}

#[test]
fn other_refusals_are_left_alone() {
    let others = [
        (
            429,
            "Request too large for gpt-4o on tokens per min (TPM): Limit 30000, Requested 32000.",
        ),
        (429, "maximum context length is 8192 tokens"),
        (401, "prompt is too long: 3 tokens > 2 maximum"),
        (
            400,
            "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.",
        ),
        (400, "max_tokens must be at least 1, got -5"),
        (500, "CUDA out of memory"),
        (404, "The model `x` does not exist"),
    ];
    for (status, body) in others {
        assert_eq!(recognize(status, body), None, "{body}");
    }
}

#[test]
fn hostile_texts_are_read_in_no_time() {
    let long = "maximum context length is ".repeat(100_000);
    assert_eq!(recognize(400, &long), Some(Overflow::default()));
    let digits = format!("prompt is too long: {} tokens > 5 maximum", "9".repeat(5000));
    assert_eq!(recognize(400, &digits), Some(Overflow::default()));
    assert_eq!(recognize(400, "ẞ maximum context length is ٣ tokens"), Some(Overflow::default()));
}
