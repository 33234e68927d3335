//! Help, documentation and examples say what the program does.

use std::{fs, path::Path};

use training::{RlConfig, SftConfig};

use crate::support::Toy;

fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
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
fn examples_are_configurations() {
    let mut seen = 0;
    let folders = ["examples/train", "examples/study"].map(|folder| root().join(folder));
    for entry in folders.iter().flat_map(|folder| fs::read_dir(folder).unwrap()) {
        let path = entry.unwrap().path();
        let text = fs::read_to_string(&path).unwrap();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        match name.contains("sft") || name.contains("warm") {
            true => drop(
                SftConfig::parse(&text, &[]).unwrap_or_else(|error| panic!("{name}: {error:?}")),
            ),
            false => drop(
                RlConfig::parse(&text, &[]).unwrap_or_else(|error| panic!("{name}: {error:?}")),
            ),
        }
        seen += 1;
    }
    assert!(seen >= 10);
}

#[test]
fn every_key_is_documented() {
    let page = fs::read_to_string(root().join("docs/training.md")).unwrap();
    let rl =
        "model = \"m\"\nfrom = \"f\"\noutput = \"o\"\nsteps = 1\n[data]\ntrain = [\"t\"]\n[lora]\n";
    let sft = "model = \"m\"\nfrom = \"f\"\noutput = \"o\"\n[data]\ntrajectories = [\"t\"]\n";
    let rl = serde_json::to_value(RlConfig::parse(rl, &[]).unwrap()).unwrap();
    let sft = serde_json::to_value(SftConfig::parse(sft, &[]).unwrap()).unwrap();
    let mut keys = Vec::new();
    for config in [rl, sft] {
        gather(&config, &mut keys);
    }
    assert!(keys.len() > 40 && keys.iter().any(|key| key == "from"));
    for key in keys {
        let named =
            [format!("`{key}`"), format!("`[{key}]`")].iter().any(|name| page.contains(name));
        assert!(named, "docs/training.md says nothing of `{key}`");
    }
}

fn gather(value: &serde_json::Value, keys: &mut Vec<String>) {
    for (key, value) in value.as_object().into_iter().flatten() {
        keys.push(key.clone());
        gather(value, keys);
    }
}
