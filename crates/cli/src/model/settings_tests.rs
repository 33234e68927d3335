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

const LISTED: &str = "--model local:qwen2.5-coder-1.5b";

/// The adapter of the default model, if it has one.
fn own_adapter() -> Option<Adapter> {
    let own = store::catalogue().unwrap().default_model().unwrap().adapter.clone();
    own.map(|own| Adapter::Bundled { name: own.name, sha256: own.sha256 })
}

#[test]
fn a_listed_model_has_its_own_adapter_until_the_user_says_otherwise() {
    let file = || Some(Adapter::File("/m/a.gguf".into()));
    let cases = [("", own_adapter()), ("--adapter none", None), ("--adapter /m/a.gguf", file())];
    for (given, adapter) in cases {
        let plan = planned(&format!("{LISTED} {given}"));
        assert_eq!(here(&plan).adapter, adapter, "{given}");
        let is_named = own_adapter().is_some() && given.is_empty();
        assert_eq!(plan.hint.is_some_and(|hint| hint.contains("--adapter none")), is_named);
    }
    assert_eq!(here(&planned("--model /m/tiny-135m.gguf")).adapter, None);
}

#[test]
fn the_settings_file_and_the_environment_choose_an_adapter_for_local_models() {
    let adapter = |text: &str| Some(AdapterArg::from(PathBuf::from(text)));
    let plan = |line: &str, file: Option<AdapterArg>, variable: Option<AdapterArg>| {
        let mut environment = Environment::default();
        environment.model.adapter = variable;
        let config = Config { adapter: file, ..Config::default() };
        let settings = Settings::new(environment, false);
        ModelSettings::check(args(line), &config, &settings).unwrap().0
    };
    let chosen = |line, file, variable| here(&plan(line, file, variable)).adapter.clone();
    let at = |path: &str| Some(Adapter::File(path.into()));
    assert_eq!(chosen(LISTED, None, adapter("none")), None);
    assert_eq!(chosen(LISTED, adapter("/m/f.gguf"), adapter("none")), at("/m/f.gguf"));
    let line = format!("{LISTED} --adapter /m/a.gguf");
    assert_eq!(chosen(&line, adapter("/m/f.gguf"), adapter("none")), at("/m/a.gguf"));
    // They say nothing about models of servers, where the option is refused.
    assert!(matches!(
        plan(SERVER, adapter("/m/f.gguf"), adapter("none")).location,
        ModelLocation::Server { .. }
    ));
    let settings = Settings::new(Environment::default(), false);
    let line = args(&format!("{SERVER} --adapter none"));
    let error = ModelSettings::check(line, &Config::default(), &settings).unwrap_err();
    assert!(error.to_string().contains("--adapter"), "{error}");
}

#[test]
fn a_run_keeps_the_adapter_it_had() {
    let none = format!("{LISTED} --adapter none");
    for again in ["", LISTED] {
        assert_eq!(here(&resumed(LISTED, again).unwrap()).adapter, own_adapter(), "{again}");
        assert_eq!(here(&resumed(&none, again).unwrap()).adapter, None, "{again}");
    }
    let other = resumed(&none, "--adapter /m/a.gguf").unwrap();
    assert_eq!(here(&other).adapter, Some(Adapter::File("/m/a.gguf".into())));
    let with = format!("{LISTED} --adapter /m/a.gguf");
    assert_eq!(here(&resumed(&with, "--adapter none").unwrap()).adapter, None);
    assert_eq!(here(&resumed(&with, "--model local:smollm2-135m").unwrap()).adapter, None);
    assert_eq!(here(&resumed(&none, "--model local:smollm2-135m").unwrap()).adapter, None);
    assert_eq!(here(&resumed(SERVER, LISTED).unwrap()).adapter, own_adapter());
}

#[test]
fn the_same_command_continues_with_the_recorded_adapter() {
    let settings = Settings::new(Environment::default(), false);
    // The adapter and the hint of a command, where a run with this location is recorded.
    let kept = |line: &str, recorded: Value| {
        let mut plan = planned(line);
        let recorded = serde_json::from_value(recorded).unwrap();
        let is_other = plan.keep_adapter(recorded, &settings).unwrap();
        (plan.adapter().cloned(), is_other, plan.hint.is_some())
    };
    let location = |file: Value| serde_json::json!({"here": {"file": file, "sequences": 1}});
    let missing = location(serde_json::json!({"listed": "qwen2.5-coder-1.5b"}));
    let with = |adapter: Value| {
        let mut location = missing.clone();
        location["here"]["adapter"] = adapter;
        location
    };
    let has_own = own_adapter().is_some();
    for earlier in [missing.clone(), with(Value::Null)] {
        assert_eq!(kept(LISTED, earlier.clone()), (None, has_own, false));
        // The user's choice is not changed.
        let given = format!("{LISTED} --adapter /m/a.gguf");
        assert_eq!(kept(&given, earlier).0, Some(Adapter::File("/m/a.gguf".into())));
    }
    let sha256 = catalogue::Sha256Hex::of_bytes(b"earlier");
    let earlier = serde_json::json!({"name": "tuned", "sha256": sha256});
    let bundled = Adapter::Bundled { name: "tuned".into(), sha256 };
    assert_eq!(kept(LISTED, with(earlier.clone())), (Some(bundled), true, false));
    assert_eq!(kept(&format!("{LISTED} --adapter none"), with(earlier)).0, None);
    // Neither another model's, nor a file that an option named.
    let other = location(serde_json::json!({"listed": "smollm2-135m"}));
    for unrelated in [
        other,
        with("/m/f.gguf".into()),
        serde_json::json!({"server": {"provider": "openai", "base_url": "http://h:1/v1"}}),
    ] {
        assert_eq!(kept(LISTED, unrelated), (own_adapter(), false, has_own));
    }
}

#[test]
fn an_empty_adapter_is_refused() {
    let line = |adapter| Line::try_parse_from(["run", "--adapter", adapter]);
    assert!(line("").is_err());
    assert_eq!(line("none").unwrap().model.local.adapter, Some(AdapterArg::None));
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
