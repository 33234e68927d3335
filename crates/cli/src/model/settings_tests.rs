//! Names, addresses and secrets of models, and what becomes of them when a run goes on elsewhere.

use clap::Parser;

use super::*;
use crate::settings::environment::Environment;

#[test]
fn names_choose_vendor_and_server() {
    let usual = |name: &str| {
        let provider = provider_of(name, None);
        let short = strip_vendor(name);
        (provider, short.to_owned(), default_url(provider, short))
    };
    let (local, openai) = ("http://localhost:8000/v1", "https://api.openai.com/v1");
    let anthropic = "https://api.anthropic.com/v1";
    assert_eq!(usual("gpt-4.1"), (Provider::Openai, "gpt-4.1".into(), openai));
    assert_eq!(usual("openai/gpt-5"), (Provider::Openai, "gpt-5".into(), openai));
    assert_eq!(usual("openai/m"), (Provider::Openai, "m".into(), local));
    let oss = "openai/gpt-oss-120b";
    assert_eq!(usual(oss), (Provider::Openai, oss.into(), local));
    assert_eq!(usual("Qwen/Qwen3-8B"), (Provider::Openai, "Qwen/Qwen3-8B".into(), local));
    assert_eq!(usual("claude-x"), (Provider::Anthropic, "claude-x".into(), anthropic));
    // A proxy in front of everybody speaks the usual protocol.
    assert_eq!(provider_of("claude-x", Some("http://proxy/v1")), Provider::Openai);
}

#[test]
fn addresses_hold_no_secrets() {
    assert_eq!(checked_url(" http://h:1/v1/ ").unwrap(), "http://h:1/v1");
    for bad in ["", "h/v1", "http://", "http://me:pw@h/v1", "http://h/v1?key=sk-1"] {
        let error = checked_url(bad).unwrap_err().to_string();
        assert!(error.contains("--base-url") && !error.contains("sk-1"), "{error}");
    }
    let error = header("Authorization Bearer sk-1").unwrap_err().to_string();
    assert!(!error.contains("sk-1"), "{error}");
}

#[test]
fn keys_in_a_body_are_hidden() {
    let body = serde_json::json!({
        "api_key": "sk-1", "max_tokens": 5, "top": {"Authorization": "sk-2", "model": "m"}
    });
    let mut body = body.as_object().unwrap().clone();
    assert!(!is_hidden(&body));
    hide(&mut body);
    let text = Value::Object(body.clone()).to_string();
    assert!(!text.contains("sk-") && text.contains("\"m\"") && text.contains('5'), "{text}");
    assert!(is_hidden(&body));
}

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    model: ModelArgs,
}

fn args(line: &str) -> ModelArgs {
    Line::parse_from(format!("run {line}").split_whitespace()).model
}

fn planned(line: &str) -> ModelSettings {
    let settings = Settings::new(Environment::default(), false);
    ModelSettings::check(args(line), &Config::default(), &settings).unwrap().0
}

/// A run with these flags, recorded, and gone on with those.
fn resumed(first: &str, then: &str) -> anyhow::Result<ModelSettings> {
    let record = serde_json::to_value(planned(first)).unwrap();
    let mut plan: ModelSettings = serde_json::from_value(record).unwrap();
    let settings = Settings::new(Environment::default(), false);
    plan.override_with(args(then), &Config::default(), &settings)?;
    Ok(plan)
}

fn here(plan: &ModelSettings) -> &LocalSettings {
    match &plan.location {
        ModelLocation::InProcess(here) => here,
        ModelLocation::Server { .. } => panic!("{plan:?}"),
    }
}

const SERVER: &str = "--model big --base-url http://h:1/v1";

#[test]
fn a_local_run_goes_on_as_it_was() {
    let line = "--model /m/tiny-135m.gguf --context 2048 --threads 3 --temperature 0.7 \
                --tool-format hermes --force-calls yes --adapter /m/a.gguf";
    let (first, again) = (planned(line), resumed(line, "").unwrap());
    assert_eq!(again.location, first.location);
    assert_eq!((again.name, again.sampling), (first.name, first.sampling));
    assert_eq!((again.tool_format, again.forced), (ToolFormat::Hermes, Forcing::Yes));
    let said = resumed(line, "--context 4096 --temperature 0.1").unwrap();
    assert_eq!(here(&said).context, NonZeroU32::new(4096));
    assert_eq!(here(&said).threads, NonZeroU32::new(3));
    assert_eq!(said.sampling.temperature, Some(0.1));
    assert!(resumed(line, "--provider anthropic").is_err());
}

#[test]
fn the_same_file_elsewhere_keeps_what_was_said_of_it() {
    let line = "--model /m/tiny-135m.gguf --context 2048 --threads 3 --adapter /m/a.gguf";
    let moved = resumed(line, "--model /n/tiny-135m.gguf").unwrap();
    let LocalSettings { file, adapter, context, threads, .. } = here(&moved);
    assert_eq!(file, &ModelFile::At("/n/tiny-135m.gguf".into()));
    assert_eq!((*context, *threads), (NonZeroU32::new(2048), NonZeroU32::new(3)));
    assert_eq!(adapter, &None);
    assert_eq!(moved.sampling.temperature, Some(LOCAL_TEMPERATURE));
}

#[test]
fn what_follows_from_the_place_changes_with_it() {
    let local = "--model /m/tiny-135m.gguf";
    let came = resumed(SERVER, "--model local:tiny-135m").unwrap();
    assert_eq!(came.sampling.temperature, Some(LOCAL_TEMPERATURE));
    assert_eq!(came.tool_format, ToolFormat::Fenced);
    let went = resumed(local, SERVER).unwrap();
    assert_eq!((went.sampling.temperature, went.tool_format), (None, ToolFormat::Auto));
    // What the user said stays.
    let said = " --temperature 0.9 --tool-format hermes";
    let came = resumed(&format!("{SERVER}{said}"), "--model local:tiny-135m").unwrap();
    assert_eq!(came.sampling.temperature, Some(0.9));
    assert_eq!(came.tool_format, ToolFormat::Hermes);
    let went = resumed(&format!("{local}{said}"), SERVER).unwrap();
    assert_eq!(went.sampling.temperature, Some(0.9));
    assert_eq!(went.tool_format, ToolFormat::Hermes);
}
