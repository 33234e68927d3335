//! Help, documentation and examples say what the program does.

use std::{fs, path::PathBuf};

use training::{RlConfig, SampleConfig, SftConfig};

use crate::support::{Toy, crate_path};

fn root() -> PathBuf {
    crate_path("../..")
}

#[test]
fn every_command_has_help_with_examples() {
    let toy = Toy::new();
    for args in [&["--help"][..], &["export", "--help"], &["perf", "--help"]] {
        let output = toy.run(args);
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success() && text.contains("Examples:"), "{args:?}: {text}");
    }
}

#[test]
fn speeds_are_measured_with_and_without_an_adapter() {
    let toy = Toy::new();
    let work = "perf --device cpu --batch 2 --prompt 4 --reply 3 --train-batch 1 --train-length 16 --steps 1 --rank 2 --json";
    let args: Vec<&str> = work.split(' ').collect();
    let output = toy.run(&args);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let figures: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    for what in ["generation", "adapted_generation", "training"] {
        let rate = figures[format!("{what}_tokens_per_s")].as_f64().unwrap();
        assert!(rate > 0.0, "{figures}");
    }
}

#[test]
fn decode_steps_of_a_model_are_measured_and_checked() {
    let toy = Toy::new();
    let model = toy.path("model").display().to_string();
    let run = |more: &[&str]| {
        let work = "--device cpu --slots 3 --context 24 --reply 4 --rank 2 --json".split(' ');
        let args: Vec<&str> = ["perf", "--model", &model]
            .into_iter()
            .chain(work)
            .chain(more.iter().copied())
            .collect();
        let output = toy.run(&args);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice::<serde_json::Value>(&output.stdout).unwrap()
    };
    let figures = run(&[]);
    assert_eq!((&figures["steps"], &figures["conversations"]), (&4.into(), &3.into()));
    assert!(figures["step_ms"].as_f64().unwrap() > 0.0, "{figures}");
    // Steps and time are of the same period, in which all conversations were continued.
    let rate = figures["decode_tokens_per_s"].as_f64().unwrap();
    let expected = 3.0 * 1e3 / figures["step_ms"].as_f64().unwrap();
    assert!((rate / expected - 1.0).abs() < 1e-6, "{figures}");
    let checks = run(&["--check"]);
    for one in checks["checks"].as_array().unwrap() {
        let off = one["largest_difference"].as_f64().unwrap();
        assert!(one["tokens"].as_u64().unwrap() > 0 && off < 1e-3, "{one}");
    }
    let unknown = toy.run(&["perf", "--model", "missing", "--device", "cpu"]);
    let text = String::from_utf8_lossy(&unknown.stderr).into_owned();
    assert!(!unknown.status.success() && text.contains("qwen2.5-1.5b"), "{text}");
}

#[test]
fn examples_are_configurations() {
    let mut seen = 0;
    let folders = ["examples/train", "examples/study"].map(|folder| root().join(folder));
    for entry in folders.iter().flat_map(|folder| fs::read_dir(folder).unwrap()) {
        let path = entry.unwrap().path();
        // Beside them are scripts, a task and what runs gave.
        if path.extension().is_none_or(|ending| ending != "toml") || path.ends_with("set.toml") {
            continue;
        }
        let text = fs::read_to_string(&path).unwrap();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let parsed = if name.starts_with("sample") {
            SampleConfig::parse(&text, &[]).map(drop)
        } else if name.contains("sft") || name.contains("warm") {
            SftConfig::parse(&text, &[]).map(drop)
        } else {
            RlConfig::parse(&text, &[]).map(drop)
        };
        parsed.unwrap_or_else(|error| panic!("{name}: {error:?}"));
        seen += 1;
    }
    assert!(seen >= 10);
}
