//! Runs that begin with what others have learnt, on a network of a few thousand numbers.

use std::fs;

use tch::Kind;

use super::*;
use crate::{adamw::Memory, checkpoint::Position, export::trained, tiny::tiny};

/// A place with a model in it.
fn place() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    tiny(1, 32).save(&dir.path().join("model")).unwrap();
    dir
}

fn config(dir: &Path, output: &str, changes: &[&str]) -> SftConfig {
    let text = format!(
        "model = {model:?}\noutput = {output:?}\ndevice = \"cpu\"\nprecision = \"bf16\"\n[data]\n\
         trajectories = [\"t\"]\n",
        model = dir.join("model"),
        output = dir.join(output),
    );
    let changes: Vec<String> = changes.iter().map(|change| (*change).to_owned()).collect();
    SftConfig::parse(&text, &changes).unwrap()
}

/// Begins a run; its directory, and a learner.
fn begin(config: &SftConfig) -> Result<(RunDirectory, Learner), TrainError> {
    let start = Start::from(config);
    let (origin, machine) = start.settle()?;
    let learner = start.learner(origin, machine)?;
    let directory = RunDirectory::open(&config.output, config)?;
    origin.keep(&directory)?;
    Ok((directory, learner))
}

/// Saves a run all of whose weights are this number after a step; no 16 bits hold it.
fn save(run: &Path, learner: &Learner, step: u64, number: f64) {
    let Memory { mut master, first, second, .. } = learner.memory().unwrap();
    master.iter_mut().for_each(|(_, tensor)| drop(tensor.fill_(number)));
    let memory = Memory { master, first, second, steps: 7 };
    Checkpoints::of(run, 9).save(&Position { step, drawn: 0 }, &memory).unwrap();
}

fn first(tensors: &[(String, Tensor)]) -> f64 {
    tensors[0].1.view([-1]).double_value(&[0])
}

fn setting(dir: &Path, run: &str) -> String {
    format!("from={:?}", dir.join(run))
}

#[test]
fn what_was_learnt_goes_over_with_all_its_bits_and_the_step_stays() {
    let dir = place();
    let (old, learner) = begin(&config(dir.path(), "old", &["lora.rank=2"])).unwrap();
    save(old.path(), &learner, 3, 0.1);
    let from = setting(dir.path(), "old");
    let config = config(dir.path(), "new", &["lora.rank=2", &from]);
    let (new, learner) = begin(&config).unwrap();
    let memory = learner.memory().unwrap();
    assert_eq!((first(&memory.master), first(&memory.first)), (f64::from(0.1f32), 0.0));
    assert_eq!(memory.steps, 0);
    // The other run goes on; this one stays with what it began with.
    save(old.path(), &learner, 4, 0.2);
    drop(new);
    let (_new, learner) = begin(&config).unwrap();
    assert_eq!(first(&learner.memory().unwrap().master), f64::from(0.1f32));
    let start = Start::from(&config);
    let (origin, machine) = start.settle().unwrap();
    assert_eq!(origin.from_step, Some(3));
    let reference = start.reference(origin, machine).unwrap().trainable();
    assert!((first(&reference) - 0.1).abs() < 1e-3);
}

#[test]
fn a_run_that_was_saved_does_without_the_other() {
    let dir = place();
    let (old, learner) = begin(&config(dir.path(), "old", &[])).unwrap();
    save(old.path(), &learner, 1, 0.1);
    let from = setting(dir.path(), "old");
    let config = config(dir.path(), "new", &[&from]);
    let (new, learner) = begin(&config).unwrap();
    save(new.path(), &learner, 1, 0.3);
    drop((old, new));
    fs::remove_dir_all(dir.path().join("old")).unwrap();
    assert!(begin(&config).is_ok());
    let start = Start::from(&config);
    let (origin, machine) = start.settle().unwrap();
    assert!(start.reference(origin, machine).is_err(), "a reference needs it");
}

#[test]
fn runs_of_something_else_are_refused_by_key() {
    let dir = place();
    let settings = ["lora.rank=2", "lora.targets=[\"q\", \"v\"]"];
    let (old, learner) = begin(&config(dir.path(), "old", &settings)).unwrap();
    let from = setting(dir.path(), "old");
    let begin = |changes: &[&str]| {
        let changes: Vec<&str> = changes.iter().copied().chain([from.as_str()]).collect();
        begin(&config(dir.path(), "new", &changes)).map(drop).map_err(|error| error.to_string())
    };
    assert!(begin(&settings).unwrap_err().contains("that has saved anything"));
    save(old.path(), &learner, 1, 0.1);
    for other in [
        &[][..],
        &["lora.rank=4", "lora.targets=[\"q\", \"v\"]"],
        &["lora.rank=2", "lora.alpha=1", "lora.targets=[\"q\", \"v\"]"],
        &["lora.rank=2", "lora.targets=[\"q\", \"k\"]"],
    ] {
        let error = begin(other).unwrap_err();
        assert!(error.contains("`lora` of the run") && error.contains("targets [q, v]"), "{error}");
    }
    assert!(!dir.path().join("new").exists(), "a run whose input is at fault has not begun");
    begin(&["lora.rank=2", "lora.targets=[\"v\", \"q\"]"]).unwrap();
    fs::rename(dir.path().join("model"), dir.path().join("other")).unwrap();
    let moved = format!("model={:?}", dir.path().join("other"));
    fs::remove_dir_all(dir.path().join("new")).unwrap();
    let error = begin(&[&settings[..], &[&moved]].concat()).unwrap_err();
    assert!(error.contains("`model` of the run"), "{error}");
}

#[test]
fn weights_the_model_lacks_are_refused() {
    let dir = place();
    let (old, learner) = begin(&config(dir.path(), "old", &[])).unwrap();
    let mut memory = learner.memory().unwrap();
    memory.master.push(("more".into(), Tensor::from_slice(&[0f32])));
    Checkpoints::of(old.path(), 9).save(&Position { step: 1, drawn: 0 }, &memory).unwrap();
    let from = setting(dir.path(), "old");
    assert!(matches!(begin(&config(dir.path(), "new", &[&from])), Err(TrainError::Memory(_))));
    assert!(matches!(trained(old.path(), None), Err(TrainError::Memory(_))));
}

#[test]
fn exports_have_the_precision_the_run_began_with() {
    let dir = place();
    for (precision, settled, kind) in [
        ("auto", Precision::F32, Kind::Float),
        ("bf16", Precision::Bf16, Kind::BFloat16),
        ("f32", Precision::F32, Kind::Float),
    ] {
        let config = config(dir.path(), precision, &[&format!("precision={precision}")]);
        let (run, learner) = begin(&config).unwrap();
        save(run.path(), &learner, 1, 0.1);
        let origin = Origin::kept(run.path()).unwrap();
        assert_eq!(origin, Some(Origin { precision: settled, from_step: None }));
        assert_eq!(trained(run.path(), None).unwrap().net.trainable()[0].1.kind(), kind);
    }
    // As a GPU would have settled it.
    let config = config(dir.path(), "auto", &["precision=auto"]);
    let directory = RunDirectory::open(&config.output, &config).unwrap();
    Origin { precision: Precision::Bf16, from_step: None }.keep(&directory).unwrap();
    let net = trained(directory.path(), None).unwrap().net;
    assert_eq!(net.trainable()[0].1.kind(), Kind::BFloat16);
    assert_eq!(Start::from(&config).settle().unwrap().1.kind, Kind::BFloat16);
}
