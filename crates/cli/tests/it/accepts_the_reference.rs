//! Users of the method's first implementation keep their command lines, files and variables.

use testkit::{MockServer, bash, submit};

use crate::{
    episodes::{check_record, run},
    support::{Home, code, err, out, write},
};

#[test]
fn its_spelling_works() {
    let Some(home) = Home::with_sandboxes() else { return };
    write(&home.file("in/a.txt"), "7");
    let config = "system_prompt: |-\n  Work in {working_dir}; say {{}} nothing.\n\
                  instance_prompt: |-\n  <problem>{problem_statement}</problem> files: {input_dir}, to {output_dir}\n\
                  working_dir: \"/w\"\ninput_dir: \"/w/in\"\noutput_dir: \"/w/out\"\n";
    write(&home.file("prompts.yaml"), config);
    let server = MockServer::scripted([bash("pwd; cp in/a.txt out/answer.txt"), submit()]).unwrap();
    let url = server.base_url();
    let output = home
        .command([
            "run",
            "--query",
            "Copy {it}",
            "--llm_name",
            "openai/mock",
            "--llm_base_url",
            &url,
        ])
        .args([
            "--api_key",
            "k-123456",
            "--input_dir",
            "in",
            "--output_dir",
            "out",
            "--max_steps",
            "7",
        ])
        .args(["--max_token_limit", "5000", "--prompt_config", "prompts.yaml"])
        .args([
            "--extra_body",
            "{\"chat_template_kwargs\": {\"thinking\": true}}",
            "--temperature",
            "0.5",
        ])
        .output()
        .unwrap();
    assert_eq!((code(&output), out(&output).as_str()), (0, "7\n"), "{}", err(&output));
    check_record(&home, &output, "submitted");
    let asked = &server.requests()[0];
    assert_eq!(asked.body["model"], "mock");
    assert_eq!(asked.body["temperature"], 0.5);
    assert_eq!(asked.body["chat_template_kwargs"]["thinking"], true);
    assert_eq!(asked.header("authorization"), Some("Bearer k-123456"));
    assert!(asked.mentions("Work in /w; say {} nothing."));
    assert!(asked.mentions("<problem>Copy {it}</problem> files: /w/in, to /w/out"));
    assert!(asked.mentions("7 steps remaining"));
}

#[test]
fn its_settings_file_and_variables_work() {
    let Some(home) = Home::with_sandboxes() else { return };
    let server = MockServer::answering(|_| submit()).unwrap();
    let settings = format!(
        "llm_name: openai/from-file\nllm_base_url: {}\napi_key: from-file-key\n",
        server.base_url()
    );
    write(&home.file("llm-in-sandbox.yaml"), settings);
    let plain = |args: &[&str]| {
        let mut command = home.command(["run", "Do it"]);
        command.args(args).env("HOME", home.file("nobody"));
        command.env("LLM_NAME", "from-variable").env("LLM_API_KEY", "from-variable-key");
        command
    };
    assert_eq!(code(&plain(&[]).output().unwrap()), 0);
    assert_eq!(code(&plain(&["--model", "from-flag"]).output().unwrap()), 0);
    std::fs::remove_file(home.file("llm-in-sandbox.yaml")).unwrap();
    let output = plain(&[]).env("LLM_BASE_URL", server.base_url()).output().unwrap();
    assert_eq!(code(&output), 0, "{}", err(&output));
    let asked = server.requests();
    // Nothing is delivered, so each run is asked once whether it means it.
    let heard: Vec<_> = asked
        .iter()
        .step_by(2)
        .map(|request| {
            (request.body["model"].as_str().unwrap(), request.header("authorization").unwrap())
        })
        .collect();
    assert_eq!(
        heard,
        [
            ("from-file", "Bearer from-file-key"),
            ("from-flag", "Bearer from-file-key"),
            ("from-variable", "Bearer from-variable-key"),
        ]
    );
}

#[test]
fn mistakes_are_told_before_anything_is_made() {
    let home = Home::new();
    write(&home.file("bad.yaml"), "system_prompt: 'a {surprise}'\n");
    let url = "http://127.0.0.1:9/v1";
    for (args, word) in [
        (vec!["Do it", "--prompt", "nonsense"], "general"),
        (vec!["Do it", "--prompt-config", "bad.yaml"], "surprise"),
        (vec!["Do it", "--prompt-config", "missing.yaml"], "missing.yaml"),
        (vec!["Do it", "--input", "nowhere"], "--input"),
        (vec!["Do it", "--extra-body", "{"], "JSON"),
        (vec!["Do it", "--header", "nonsense"], "colon"),
        (vec!["Do it", "--tool-format", "nonsense"], "hermes"),
        (vec!["Do it", "--max-turns", "0"], "max-turns"),
        (vec!["Do it", "--api-key-env", "SURELY_NOT_SET"], "SURELY_NOT_SET"),
        (vec![" "], "empty"),
        (vec![], "TASK"),
    ] {
        let output = run(&home, url, args.iter()).output().unwrap();
        let line = crate::support::refusal(&output, 2);
        assert!(line.contains(word), "{args:?}: {line}");
        assert!(!home.file("out").exists(), "{args:?}");
    }
    // A server without the name of a model. Without either the model is one of our own.
    let mut nameless = home.command(["run", "Do it", "--base-url", url]);
    let nameless = nameless.env_remove("LLM_NAME").output().unwrap();
    assert!(crate::support::refusal(&nameless, 2).contains("--model"));
}
