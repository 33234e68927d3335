//! llama.cpp's own server: it takes token ids, but has no `return_token_ids`. It is refused by name, and nothing it says is
//! taken for a sample.

use std::{
    env,
    io::{BufRead, BufReader},
    path::Path,
    process::{Child, Command, Stdio},
    time::Duration,
};

use lis_sampling_http::{ConnectError, HttpSampler, InvalidResponse, ServerError, ServerSettings};
use model::Endpoint;
use sampling::{SampleError, Sampler};
use serde_json::Value;

use crate::vllm::request;

/// The server; it ends with the test.
struct Server {
    child: Child,
    url: String,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[expect(clippy::disallowed_methods, reason = "test runs are configured by the environment")]
fn setting(name: &str) -> Option<String> {
    env::var(name).ok().filter(|value| !value.is_empty())
}

#[expect(clippy::disallowed_methods, reason = "the server under test")]
fn start() -> Option<Server> {
    let (Some(model), Some(package)) = (setting("LIS_TEST_TINY_GGUF"), setting("LIS_TEST_LLAMA"))
    else {
        let required = setting("LIS_REQUIRE").unwrap_or_default();
        let required = required.split(',').any(|name| name.trim() == "llama");
        assert!(!required, "llama is required, but there is no model or no server");
        eprintln!("skip: llama: LIS_TEST_TINY_GGUF and LIS_TEST_LLAMA name no model and no server");
        return None;
    };
    // The directory it was built in may belong to another checkout.
    let crate_dir = setting("CARGO_MANIFEST_DIR").unwrap_or(env!("CARGO_MANIFEST_DIR").into());
    let script = Path::new(&crate_dir).join("../cli/tests/real-server/llama_server.py");
    let mut child = Command::new("/usr/bin/python3")
        .arg(script)
        .arg(model)
        // Other tests run meanwhile.
        .arg("1")
        .env("PYTHONPATH", package)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert!(line.starts_with("http://"), "the server said `{line}`");
    Some(Server { child, url: format!("{}/v1", line.trim()) })
}

#[tokio::test]
async fn llama_cpps_server_lacks_token_ids() {
    let Some(server) = start() else { return };
    let mut endpoint = Endpoint::new("", &server.url);
    endpoint.silence = Duration::from_secs(20);
    let lister = model::JsonClient::new(endpoint.clone(), "completions").unwrap();
    let list: Value = lister.models().await.unwrap();
    endpoint.model = list["data"][0]["id"].as_str().unwrap().to_owned();
    let settings = ServerSettings::new(endpoint, 49_152);
    let error = HttpSampler::connect(settings.clone()).await.unwrap_err();
    assert!(matches!(error, ConnectError::NoContext { .. }), "{error}");
    let settings = ServerSettings { context: Some(1024), ..settings };
    let sampler = HttpSampler::connect(settings).await.unwrap();
    let error = sampler.sample(request(4, None)).await.unwrap_err();
    let SampleError::Failed(source) = error else { panic!("{error}") };
    let error = *source.downcast::<ServerError>().unwrap();
    assert!(
        matches!(error, ServerError::Invalid(InvalidResponse::NoIds("prompt_token_ids"))),
        "{error:?}"
    );
}
