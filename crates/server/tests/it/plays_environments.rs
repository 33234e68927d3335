//! Tasks as environments over HTTP, with real sandboxes: sessions are played, retried, batched, scored and freed.

use std::time::{Duration, Instant};

use environment::Options;
use reqwest::Method;
use sandbox_testkit::setting;
use serde_json::{Value, json};

use crate::{
    environments::{bash, options, right_answer},
    leaves_nothing::first_process,
    support::with_server,
};

/// The text of the last message of an observation.
fn seen(view: &Value) -> &str {
    let messages = view["observation"]["messages"].as_array().unwrap();
    messages.last().unwrap()["content"].as_str().unwrap()
}

#[test]
fn a_task_is_played_and_graded_in_a_sandbox() {
    with_server(options(Options::default()), async |server| {
        let listed = server.request(Method::GET, "/v1/environments").send().await.unwrap();
        let listed: Value = listed.json().await.unwrap();
        assert_eq!(listed["environments"][1]["name"], "receipts");
        let (session, reset) = server.reset("receipts", json!({"row": 0})).await;
        assert_eq!((&reset["step"], &reset["done"]), (&json!(0), &json!(false)));
        assert_eq!(reset["observation"]["messages"][0]["role"], "system");
        assert_eq!(reset["observation"]["tools"][0]["function"]["name"], "execute_bash");
        server.has_sandboxes(1).await;
        // Several calls in one response; the shell keeps its state between steps.
        let step = json!({"step": 1, "message": bash(&["x=7", "echo $((x + 1)); ls"])});
        let one = server.expect(&format!("{session}/step"), &step, 200).await;
        assert_eq!(one["observation"]["messages"].as_array().unwrap().len(), 2);
        assert!(seen(&one).contains("[stdout]\n8\n"), "{one}");
        let id = &one["message"]["tool_calls"][1]["id"];
        assert_eq!(id, &one["observation"]["messages"][1]["tool_call_id"]);
        let path = "examples/tasks/receipts/rows.jsonl";
        let rows = concat!(env!("CARGO_MANIFEST_DIR"), "/../../");
        let rows = std::fs::read_to_string(format!("{rows}{path}")).unwrap();
        let row: Value = serde_json::from_str(rows.lines().next().unwrap()).unwrap();
        let output = "/testbed/output/answer.txt";
        let truth = row["ground_truth"].as_str().unwrap();
        let answer = format!("echo {truth} > {output}; cat {output}");
        let step = json!({"step": 2, "message": bash(&[&answer, "submit"])});
        let two = server.expect(&format!("{session}/step"), &step, 200).await;
        assert_eq!((&two["done"], &two["reason"]), (&json!(true), &json!("submitted")), "{two}");
        server.has_sandboxes(0).await;
        let scored = server.expect(&format!("{session}/score"), &json!({}), 200).await;
        assert_eq!(scored["score"]["valid"], true, "{scored}");
        assert_eq!(scored["score"]["score"], 1.0, "{scored}");
        let again = server.expect(&format!("{session}/score"), &json!({}), 200).await;
        assert_eq!(again["score"], scored["score"]);
        let over = server.expect(&format!("{session}/step"), &json!({"text": "?"}), 409).await;
        assert_eq!(over["error"]["code"], "over");
        for _ in 0..2 {
            server.expect(&format!("{session}/close"), &json!({}), 200).await;
        }
        let (status, gone) = server.session(&session).await;
        assert_eq!((status, &gone["error"]["reason"]), (410, &json!("closed")));
    });
}

#[test]
fn a_step_that_is_sent_again_does_nothing_twice() {
    with_server(options(Options::default()), async |server| {
        let (session, _) = server.reset("math", json!({})).await;
        let path = format!("{session}/step");
        let step = json!({"step": 1, "message": bash(&["sleep 0.5; echo x >> /tmp/runs; wc -l < /tmp/runs"])});
        // The connection is cut while the step runs.
        let sent = server.request(Method::POST, &path).json(&step).send();
        assert!(tokio::time::timeout(Duration::from_millis(150), sent).await.is_err());
        let (one, two) =
            tokio::join!(server.expect(&path, &step, 200), server.expect(&path, &step, 200),);
        assert_eq!(one["observation"], two["observation"]);
        assert!(seen(&one).contains("[stdout]\n1\n"), "{one}");
        let other = json!({"step": 1, "message": bash(&["echo other"])});
        let refused = server.expect(&path, &other, 409).await;
        assert_eq!(refused["error"]["code"], "other_message");
        let later = json!({"step": 3, "message": bash(&["true"])});
        let refused = server.expect(&path, &later, 409).await;
        assert_eq!(refused["error"]["next_step"], 2);
    });
}

#[test]
fn calls_are_found_in_text_and_an_unfinished_episode_is_graded() {
    with_server(options(Options::default()), async |server| {
        let body = json!({"tool_format": "fenced", "limits": {"turns": 4}});
        let (session, reset) = server.reset("math", body).await;
        assert!(reset["observation"]["messages"].to_string().contains("```bash"), "{reset}");
        assert_eq!(reset["observation"]["tools"], json!([]));
        let text = "```bash\necho '\\boxed{42}' | tee /testbed/answer.txt\n```";
        let one = server.expect(&format!("{session}/step"), &json!({"text": text}), 200).await;
        assert!(seen(&one).contains("boxed"), "{one}");
        // The policy has no tokens left: what is there is graded.
        let scored = server.expect(&format!("{session}/score"), &json!({}), 200).await;
        assert_eq!(scored["score"]["score"], 1.0, "{scored}");
        assert_eq!(scored["score"]["reason"], "context_full");
    });
}

#[test]
fn results_can_be_waited_for_later() {
    with_server(options(Options::default()), async |server| {
        let path = "/v1/environments/math/reset";
        let response = server.post(path, &json!({"wait": false})).await;
        assert_eq!(response.status(), 202);
        let reset: Value = response.json().await.unwrap();
        assert_eq!(reset["state"], "starting");
        let session = format!("/v1/sessions/{}", reset["session"].as_str().unwrap());
        let (status, ready) = server.session(&session).await;
        assert_eq!((status, &ready["state"]), (200, &json!("ready")));
        let step = json!({"step": 1, "wait": 0.01, "message": bash(&["sleep 0.3; echo done"])});
        let running = server.expect(&format!("{session}/step"), &step, 202).await;
        assert_eq!(running["state"], "stepping");
        let busy = server.expect(&format!("{session}/step"), &json!({"text": "?"}), 409).await;
        assert_eq!(busy["error"]["code"], "running");
        let (_, one) = server.session(&session).await;
        assert!(one["step"] == 1 && seen(&one).contains("done"), "{one}");
        let beat = server.expect(&format!("{session}/heartbeat"), &json!({}), 200).await;
        assert!(beat["lease_seconds_left"].as_f64().unwrap() > 0.0);
    });
}

#[test]
fn a_dead_client_frees_its_sandbox() {
    let lease = Duration::from_millis(300);
    with_server(options(Options { lease, ..Options::default() }), async |server| {
        let (session, _) = server.reset("math", json!({})).await;
        server.has_sandboxes(1).await;
        server.has_sandboxes(0).await;
        let (status, gone) = server.session(&session).await;
        assert_eq!((status, &gone["error"]["reason"]), (410, &json!("lease_expired")), "{gone}");
    });
}

#[test]
fn a_broken_sandbox_gives_no_score() {
    with_server(options(Options::default()), async |server| {
        let (session, reset) = server.reset("math", json!({})).await;
        let name = format!("m{}", reset["session"].as_str().unwrap());
        let start = format!("( (exec -a {name} sleep 600) > /dev/null 2>&1 & )");
        let step = json!({"message": bash(&[&start])});
        server.expect(&format!("{session}/step"), &step, 200).await;
        let first = first_process(&name).await;
        rustix::process::kill_process(first, rustix::process::Signal::KILL).unwrap();
        let step = json!({"message": right_answer()});
        let broken = server.expect(&format!("{session}/step"), &step, 200).await;
        assert_eq!(broken["reason"], "infrastructure", "{broken}");
        let failure = &broken["failure"];
        assert_eq!(
            (&failure["fault"], &failure["policy_may_be_at_fault"]),
            (&json!("sandbox"), &json!(true))
        );
        let scored = server.expect(&format!("{session}/score"), &json!({}), 200).await;
        let score = &scored["score"];
        assert_eq!((&score["valid"], &score["score"]), (&json!(false), &Value::Null), "{scored}");
        assert_eq!(score["failure"]["retry"], true);
    });
}

#[test]
fn hundreds_of_sessions_are_played_at_once() {
    const COUNT: usize = 200;
    with_server(options(Options::default()), async |server| {
        let resets = vec![json!({"operation": "reset", "task": "math"}); COUNT];
        let batch = async |operations: Vec<Value>| {
            let body = json!({ "operations": operations });
            let results = server.expect("/v1/sessions/batch", &body, 200).await;
            let results = results["results"].as_array().unwrap().clone();
            assert!(results.iter().all(|result| result["status"] == 200), "{results:?}");
            results
        };
        let started = batch(resets).await;
        server.has_sandboxes(COUNT).await;
        let operations = |operation: Value| {
            let of = |result: &Value| {
                let mut operation = operation.clone();
                operation["session"] = result["body"]["session"].clone();
                operation
            };
            started.iter().map(of).collect::<Vec<_>>()
        };
        let step = json!({"operation": "step", "step": 1, "message": right_answer()});
        let stepped = batch(operations(step)).await;
        assert!(stepped.iter().all(|result| result["body"]["done"] == true));
        let scored = batch(operations(json!({"operation": "score"}))).await;
        let is_right = |result: &Value| result["body"]["score"]["score"] == 1.0;
        assert!(scored.iter().all(is_right), "{scored:?}");
        batch(operations(json!({"operation": "close"}))).await;
        server.has_sandboxes(0).await;
    });
}

/// As many clients as there are sessions, each with requests of its own. With `LIS_SLOW` they are 2,000.
#[test]
fn far_more_sessions_than_sandboxes_are_played_at_once() {
    let count = if setting("LIS_SLOW").is_some() { 2000 } else { 250 };
    let max_sandboxes = count / 10;
    let options = lis_server::ServeOptions { max_sandboxes, ..options(Options::default()) };
    with_server(options, async |server| {
        let step = json!({ "step": 1, "message": right_answer() });
        let play = async || {
            let (session, _) = server.reset("math", json!({ "wait": 600 })).await;
            let stepped = server.expect(&format!("{session}/step"), &step, 200).await;
            assert_eq!(stepped["done"], true, "{stepped}");
            let scored = server.expect(&format!("{session}/score"), &json!({}), 200).await;
            assert_eq!(scored["score"]["score"], 1.0, "{scored}");
            server.expect(&format!("{session}/close"), &json!({}), 200).await;
        };
        let begun = Instant::now();
        futures_util::future::join_all((0..count).map(|_| play())).await;
        println!("{count} sessions with {max_sandboxes} sandboxes in {:.1?}", begun.elapsed());
        server.has_sandboxes(0).await;
    });
}

#[test]
fn sessions_wait_for_a_sandbox_and_too_many_are_refused() {
    let sessions = Options { max_sessions: 3, ..Options::default() };
    let options = lis_server::ServeOptions { max_sandboxes: 1, ..options(sessions) };
    with_server(options, async |server| {
        let (first, _) = server.reset("math", json!({})).await;
        let path = "/v1/environments/math/reset";
        let waiting = server.expect(path, &json!({"wait": 0.05}), 202).await;
        let second = format!("/v1/sessions/{}", waiting["session"].as_str().unwrap());
        let refused = server.expect(&format!("{second}/step"), &json!({"text": "?"}), 409).await;
        assert_eq!(refused["error"]["code"], "starting");
        server.expect(path, &json!({"wait": false}), 202).await;
        let busy = server.post(path, &json!({})).await;
        assert_eq!(busy.status(), 429);
        assert!(busy.headers().contains_key("retry-after"));
        server.expect(&format!("{first}/close"), &json!({}), 200).await;
        let (_, ready) = server.session(&second).await;
        assert_eq!(ready["state"], "ready");
    });
}

#[test]
fn bad_requests_are_refused_and_change_nothing() {
    with_server(options(Options::default()), async |server| {
        let (session, _) = server.reset("math", json!({"row": "a"})).await;
        let reset = "/v1/environments/math/reset";
        let step = format!("{session}/step");
        let deep = format!("{}{}", "[".repeat(50_000), "]".repeat(50_000));
        let cases = [
            (reset, "{\"row\": 1}".to_owned(), 404),
            (reset, "{\"row\": \"b\"}".into(), 404),
            (reset, "{\"row\": -1}".into(), 400),
            (reset, "{\"row\": 0, \"seed\": 1}".into(), 400),
            (reset, "{\"tool_format\": \"x\"}".into(), 400),
            (reset, "{\"unknown\": 1}".into(), 400),
            (reset, "{\"wait\": \"x\"}".into(), 400),
            (reset, deep.clone(), 400),
            ("/v1/environments/..%2F..%2Fetc/reset", "{}".into(), 404),
            ("/v1/environments/physics/reset", "{}".into(), 404),
            (&step, "{".into(), 400),
            (&step, "{}".into(), 400),
            (&step, "{\"text\": 1}".into(), 400),
            (&step, "{\"step\": -1, \"text\": \"a\"}".into(), 400),
            (&step, "{\"step\": 0, \"text\": \"a\"}".into(), 409),
            (&step, format!("{{\"text\": {deep}}}"), 400),
            ("/v1/sessions/none/step", "{\"text\": \"a\"}".into(), 404),
            ("/v1/sessions/none/close", "{}".into(), 404),
            ("/v1/sessions/batch", "{\"operations\": 1}".into(), 400),
            (
                "/v1/sessions/batch",
                json!({"operations": vec![json!({"operation": "x"}); 1025]}).to_string(),
                400,
            ),
            (
                "/v1/sessions/batch",
                json!({"operations": vec![json!({"operation": "get", "session": "x"}); 2]})
                    .to_string(),
                400,
            ),
        ];
        for (path, body, status) in cases {
            let request = server.request(Method::POST, path).body(body.clone());
            let request = request.header("Content-Type", "application/json");
            let response = request.send().await.unwrap();
            let shown: String = body.chars().take(80).collect();
            assert_eq!(response.status(), status, "{path} {shown}");
            let answer: Value = response.json().await.unwrap();
            assert!(answer["error"]["message"].is_string(), "{path} {shown}: {answer}");
        }
        let operations = json!([{"operation": "fly", "session": "x"}, {"operation": "get"}, {"operation": "get", "session": "y"}]);
        let body = json!({ "operations": operations });
        let results = server.expect("/v1/sessions/batch", &body, 200).await;
        let status = |at: usize| results["results"][at]["status"].as_u64().unwrap();
        assert_eq!([status(0), status(1), status(2)], [400, 400, 404]);
        // A response full of nonsense is the policy's to answer for.
        let calls =
            json!([{"id": "x".repeat(9000), "function": {"name": "\u{1b}[31m", "arguments": "{"}}]);
        let nonsense = json!({"content": "\u{0}\u{202e}", "tool_calls": calls});
        let body = json!({"message": nonsense, "usage": {"prompt_tokens": u64::MAX}});
        let one = server.expect(&step, &body, 200).await;
        assert!(one["step"] == 1 && one["done"] == true, "{one}");
        assert_eq!(one["reason"], "max_tokens");
    });
}
