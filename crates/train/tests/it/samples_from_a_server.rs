//! A server as the sampler: one program serves a model, another plays episodes with its tokens.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    process::{Child, Stdio},
    time::Duration,
};

use serde_json::{Value, json};

use crate::support::Toy;

/// A running `serve`, killed with its test.
struct Server {
    child: Child,
    address: String,
}

impl Server {
    fn start(toy: &Toy, more: &[&str]) -> Self {
        let model = toy.path("model");
        let mut args = vec!["serve", model.to_str().unwrap(), "--port", "0", "--device", "cpu"];
        args.extend(["--slots", "4", "--context", "512"]);
        args.extend(more);
        let mut child = toy.command(&args).stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let line = lines.next().unwrap().unwrap();
        let address = line.split("http://").nth(1).and_then(|rest| rest.split('/').next());
        let address = address.unwrap_or_else(|| panic!("{line}")).to_owned();
        // Whatever else it says must not block it.
        std::thread::spawn(move || lines.for_each(drop));
        Self { child, address }
    }

    fn post(&self, path: &str, body: &Value) -> (u16, Value) {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let body = body.to_string();
        let request = format!(
            "POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
             connection: close\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        (status, serde_json::from_str(body).unwrap())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

const CONFIG: &str = r#"
model = "DIR/model"
output = "DIR/run"
steps = 0
seed = 3
[data]
task = "DIR/chance"
validation = ["DIR/rows.jsonl"]
[rollout]
mode = "llm"
tokens = 256
tokens_per_reply = 8
[validation]
members = 2
[validation.sampling]
temperature = 0.0
"#;

fn sampler(toy: &Toy, address: &str) -> String {
    let text = format!(
        "{CONFIG}[sampler]\nurl = \"http://{address}/v1\"\nmodel = \"model\"\nattempts = 2\ntimeout = 20\n"
    );
    toy.config("remote.toml", &text).to_str().unwrap().to_owned()
}

#[test]
fn a_served_model_completes_and_chats() {
    let toy = Toy::new();
    let server = Server::start(&toy, &[]);
    let prompt = [72, 105, 33];
    let body = json!({
        "prompt": prompt, "max_tokens": 5, "temperature": 1.0, "seed": 1, "ignore_eos": true,
        "logprobs": 1, "return_token_ids": true
    });
    let (status, got) = server.post("/v1/completions", &body);
    assert_eq!(status, 200, "{got}");
    let choice = &got["choices"][0];
    assert_eq!(choice["prompt_token_ids"], json!(prompt));
    assert_eq!(
        (choice["token_ids"].as_array().unwrap().len(), &choice["finish_reason"]),
        (5, &json!("length"))
    );
    let logprobs = choice["logprobs"]["token_logprobs"].as_array().unwrap();
    assert!(logprobs.iter().all(|logprob| logprob.as_f64().unwrap() < 0.0), "{choice}");
    assert_eq!(
        server.post("/v1/completions", &body).1["choices"][0]["token_ids"],
        choice["token_ids"]
    );
    let chat = json!({ "messages": [{ "role": "user", "content": "Hi" }], "max_tokens": 5 });
    let (status, got) = server.post("/v1/chat/completions", &chat);
    assert_eq!(
        (status, got["usage"]["completion_tokens"].as_u64().unwrap() <= 5),
        (200, true),
        "{got}"
    );
    let (status, got) = server.post("/v1/completions", &json!({ "prompt": vec![1; 600] }));
    assert_eq!((status, &got["error"]["code"]), (400, &json!("context_length_exceeded")));
}

#[test]
fn a_server_gives_the_tokens_of_a_validation() {
    let toy = Toy::new();
    let server = Server::start(&toy, &[]);
    let path = sampler(&toy, &server.address);
    toy.succeeds(&["rl", &path]);
    let remote = toy.metrics("run");
    assert_eq!(remote.len(), 1, "{remote:?}");
    assert_eq!(remote[0]["validation/episodes"], 8, "{remote:?}");
    // The same model here has the same most likely tokens.
    let local = toy.config("local.toml", &CONFIG.replace("DIR/run", "DIR/local"));
    toy.succeeds(&["rl", local.to_str().unwrap(), "--set", "device=cpu"]);
    let local = &toy.metrics("local")[0];
    for key in ["validation/reward_mean", "validation/response_tokens_mean"] {
        assert_eq!(remote[0][key], local[key], "{key}: {} {local}", remote[0]);
    }
}

#[test]
fn a_server_gives_the_tokens_of_collected_episodes() {
    let toy = Toy::new();
    let server = Server::start(&toy, &[]);
    let text = format!(
        "model = \"a name\"\noutput = \"DIR/samples\"\n[data]\ntask = \"DIR/chance\"\nproblems = [\"DIR/rows.jsonl\"]\n\
         [rollout]\nmode = \"llm\"\ntokens = 256\ntokens_per_reply = 8\nmembers = 2\n[rollout.sampling]\ntop_p = 0.9\n\
         [sampler]\nurl = \"http://{}/v1\"\nmodel = \"model\"\ntokenizer = \"DIR/model\"\n",
        server.address
    );
    let path = toy.config("sample.toml", &text);
    let output = toy.run(&["sample", path.to_str().unwrap()]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    assert!(said.contains("of 8 episodes are right"), "{said}");
    assert!(!said.contains("log-probabilities"), "ours are exact: {said}");
}

#[test]
fn a_server_that_is_gone_stops_the_run_and_nothing_is_scored() {
    let toy = Toy::new();
    let server = testkit::MockServer::answering(|_| testkit::Answer::close()).unwrap();
    server.list_models(&["model"]);
    server.describe_models(&json!({ "max_model_len": 512 }));
    let path = sampler(&toy, &server.address().to_string());
    let output = toy.run(&["rl", &path]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(4), "{said}");
    assert!(said.contains("the sampler's server is gone"), "{said}");
    assert!(said.contains("start the run again"), "{said}");
    assert!(toy.metrics("run").is_empty());
    // The run goes on with a server that works.
    let works = Server::start(&toy, &[]);
    let url = format!("sampler.url=http://{}/v1", works.address);
    toy.succeeds(&["rl", &path, "--set", &url]);
    assert_eq!(toy.metrics("run").len(), 1);
}

#[test]
fn what_a_server_cannot_do_is_refused_at_once() {
    let toy = Toy::new();
    let path = sampler(&toy, "127.0.0.1:9");
    for (change, word) in [
        ("steps=5", "a server's weights cannot be updated"),
        ("sampler.url=ftp://x", "sampler.url"),
        ("sampler.api_key_env=NO_SUCH_VARIABLE", "NO_SUCH_VARIABLE"),
        ("sampler.tokenizer=nowhere", "there is no model nowhere"),
        ("sampler.logprobs=odd", "odd"),
    ] {
        let train = format!("data.train=[\"{}\"]", toy.path("rows.jsonl").display());
        let output = toy.run(&["rl", &path, "--set", &train, "--set", change]);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{change}: {said}");
        assert!(said.contains(word), "{change}: {said}");
    }
    let output = toy.run(&["rl", &path, "--set", "sampler.attempts=1"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(4), "{said}");
    assert!(said.contains("cannot reach"), "{said}");
    assert!(!toy.path("run").exists());
    let output = toy.run(&["serve", "nowhere"]);
    assert_eq!(output.status.code(), Some(2));
    let model = toy.path("model");
    let output = toy.run(&["serve", model.to_str().unwrap(), "--host", "0.0.0.0"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(2) && said.contains("--api-key-env"), "{said}");
}
