//! Runs that start from the checkpoint of another run, with a network of a few thousand parameters.

use std::fs;

use tch::Kind;

use super::*;
use crate::{
    adamw::OptimizerState, checkpoint::Position, export::trained_network, test_network::tiny,
};

/// A directory with a model in it.
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

/// Starts a run; its directory, and a trainer.
fn begin(config: &SftConfig) -> Result<(RunDirectory, Trainer), TrainError> {
    let start = Start::from(config);
    let (origin, machine) = start.resolve()?;
    let trainer = start.trainer(origin, machine)?;
    let directory = RunDirectory::open(&config.output, config)?;
    origin.write(&directory)?;
    Ok((directory, trainer))
}

/// Saves a checkpoint in which all weights are this number, which bf16 cannot represent.
fn save(run: &Path, trainer: &Trainer, step: u64, number: f64) {
    let OptimizerState { mut master, first, second, .. } = trainer.state().unwrap();
    master.iter_mut().for_each(|(_, tensor)| drop(tensor.fill_(number)));
    let state = OptimizerState { master, first, second, steps: 7 };
    Checkpoints::new(run, 9).save(&Position { step, ..Position::default() }, &state).unwrap();
}

fn first(tensors: &[(String, Tensor)]) -> f64 {
    tensors[0].1.view([-1]).double_value(&[0])
}

fn setting(dir: &Path, run: &str) -> String {
    format!("from={:?}", dir.join(run))
}

#[test]
fn weights_are_taken_over_exactly_and_their_step_is_recorded() {
    let dir = place();
    let (old, trainer) = begin(&config(dir.path(), "old", &["lora.rank=2"])).unwrap();
    save(old.path(), &trainer, 3, 0.1);
    let from = setting(dir.path(), "old");
    let config = config(dir.path(), "new", &["lora.rank=2", &from]);
    let (new, trainer) = begin(&config).unwrap();
    let state = trainer.state().unwrap();
    assert_eq!((first(&state.master), first(&state.first)), (f64::from(0.1f32), 0.0));
    assert_eq!(state.steps, 0);
    // The other run continues; this one keeps its initial weights.
    save(old.path(), &trainer, 4, 0.2);
    drop(new);
    let (_new, trainer) = begin(&config).unwrap();
    assert_eq!(first(&trainer.state().unwrap().master), f64::from(0.1f32));
    let start = Start::from(&config);
    let (origin, machine) = start.resolve().unwrap();
    assert_eq!(origin.from_step, Some(3));
    let reference = start.reference(origin, machine).unwrap().trainable();
    assert!((first(&reference) - 0.1).abs() < 1e-3);
}

#[test]
fn a_run_can_start_from_the_file_of_an_adapter() {
    let dir = place();
    let (old, trainer) = begin(&config(dir.path(), "old", &["lora.rank=2"])).unwrap();
    save(old.path(), &trainer, 3, 0.25);
    let file = dir.path().join("adapter.gguf");
    trained_network(old.path(), None).unwrap().net.save_adapter_gguf(&file, "old").unwrap();
    let from = setting(dir.path(), "adapter.gguf");
    let of = |changes: &[&str]| config(dir.path(), "new", &[changes, &[&from]].concat());
    for (changes, wrong) in [
        (&[][..], "has no adapter"),
        (&["lora.rank=4"], "lora_a"),
        (&["lora.rank=2", "lora.alpha=1"], "`adapter.lora.alpha` of the adapter is 32"),
        (&["lora.rank=2", "lora.targets=[\"q\"]"], "not part of the adapter"),
    ] {
        let error = begin(&of(changes)).map(drop).unwrap_err();
        let text = error_text::one_line(&error);
        assert!(text.contains("adapter.gguf") && text.contains(wrong), "{text}");
    }
    assert!(!dir.path().join("new").exists(), "invalid input creates no run directory");
    let config = of(&["lora.rank=2"]);
    let (_new, trainer) = begin(&config).unwrap();
    let state = trainer.state().unwrap();
    assert!(state.master.iter().all(|(_, tensor)| tensor.eq(0.25).all().int64_value(&[]) == 1));
    assert_eq!(state.steps, 0);
    let start = Start::from(&config);
    let (origin, machine) = start.resolve().unwrap();
    assert_eq!(origin.from_step, None);
    assert_eq!(first(&start.reference(origin, machine).unwrap().trainable()), 0.25);
}

#[test]
fn an_earlier_step_of_the_other_run_can_be_named() {
    let dir = place();
    let (old, trainer) = begin(&config(dir.path(), "old", &[])).unwrap();
    save(old.path(), &trainer, 1, 0.1);
    save(old.path(), &trainer, 2, 0.2);
    let from = |run: &str| config(dir.path(), "new", &[&setting(dir.path(), run)]);
    assert!(matches!(begin(&from("old@7")), Err(TrainError::NoData(_))));
    let (_new, trainer) = begin(&from("old@1")).unwrap();
    assert_eq!(first(&trainer.state().unwrap().master), f64::from(0.1f32));
}

#[test]
fn a_run_with_a_checkpoint_does_not_need_the_other() {
    let dir = place();
    let (old, trainer) = begin(&config(dir.path(), "old", &[])).unwrap();
    save(old.path(), &trainer, 1, 0.1);
    let from = setting(dir.path(), "old");
    let config = config(dir.path(), "new", &[&from]);
    let (new, trainer) = begin(&config).unwrap();
    save(new.path(), &trainer, 1, 0.3);
    drop((old, new));
    fs::remove_dir_all(dir.path().join("old")).unwrap();
    assert!(begin(&config).is_ok());
    let start = Start::from(&config);
    let (origin, machine) = start.resolve().unwrap();
    assert!(start.reference(origin, machine).is_err(), "a reference needs it");
}

#[test]
fn incompatible_runs_are_rejected_by_key() {
    let dir = place();
    let settings = ["lora.rank=2", "lora.targets=[\"q\", \"v\"]"];
    let (old, trainer) = begin(&config(dir.path(), "old", &settings)).unwrap();
    let from = setting(dir.path(), "old");
    let begin = |changes: &[&str]| {
        let changes: Vec<&str> = changes.iter().copied().chain([from.as_str()]).collect();
        begin(&config(dir.path(), "new", &changes)).map(drop).map_err(|error| error.to_string())
    };
    assert!(begin(&settings).unwrap_err().contains("has no checkpoint"));
    save(old.path(), &trainer, 1, 0.1);
    for other in [
        &[][..],
        &["lora.rank=4", "lora.targets=[\"q\", \"v\"]"],
        &["lora.rank=2", "lora.alpha=1", "lora.targets=[\"q\", \"v\"]"],
        &["lora.rank=2", "lora.targets=[\"q\", \"k\"]"],
    ] {
        let error = begin(other).unwrap_err();
        assert!(error.contains("`lora` of the run") && error.contains("targets [q, v]"), "{error}");
    }
    assert!(!dir.path().join("new").exists(), "invalid input creates no run directory");
    begin(&["lora.rank=2", "lora.targets=[\"v\", \"q\"]"]).unwrap();
    fs::rename(dir.path().join("model"), dir.path().join("other")).unwrap();
    let moved = format!("model={:?}", dir.path().join("other"));
    fs::remove_dir_all(dir.path().join("new")).unwrap();
    let error = begin(&[&settings[..], &[&moved]].concat()).unwrap_err();
    assert!(error.contains("`model` of the run"), "{error}");
}

#[test]
fn weights_the_model_lacks_are_rejected() {
    let dir = place();
    let (old, trainer) = begin(&config(dir.path(), "old", &[])).unwrap();
    let mut state = trainer.state().unwrap();
    state.master.push(("more".into(), Tensor::from_slice(&[0f32])));
    Checkpoints::new(old.path(), 9)
        .save(&Position { step: 1, ..Position::default() }, &state)
        .unwrap();
    let from = setting(dir.path(), "old");
    assert!(matches!(
        begin(&config(dir.path(), "new", &[&from])),
        Err(TrainError::OptimizerState(_))
    ));
    assert!(matches!(trained_network(old.path(), None), Err(TrainError::OptimizerState(_))));
}

#[test]
fn exports_have_the_precision_of_the_run() {
    let dir = place();
    for (precision, settled, kind) in [
        ("auto", Precision::F32, Kind::Float),
        ("bf16", Precision::Bf16, Kind::BFloat16),
        ("f32", Precision::F32, Kind::Float),
    ] {
        let config = config(dir.path(), precision, &[&format!("precision={precision}")]);
        let (run, trainer) = begin(&config).unwrap();
        save(run.path(), &trainer, 1, 0.1);
        let origin = Origin::read(run.path()).unwrap();
        let head_precision = Some(HeadPrecision::default());
        assert_eq!(origin, Some(Origin { precision: settled, from_step: None, head_precision }));
        assert_eq!(trained_network(run.path(), None).unwrap().net.trainable()[0].1.kind(), kind);
    }
    // As a GPU would have resolved it.
    let config = config(dir.path(), "auto", &["precision=auto"]);
    let directory = RunDirectory::open(&config.output, &config).unwrap();
    Origin { precision: Precision::Bf16, from_step: None, head_precision: None }
        .write(&directory)
        .unwrap();
    let net = trained_network(directory.path(), None).unwrap().net;
    assert_eq!(net.trainable()[0].1.kind(), Kind::BFloat16);
    assert_eq!(Start::from(&config).resolve().unwrap().1.kind, Kind::BFloat16);
}

#[test]
fn runs_of_older_versions_keep_their_numbers() {
    let older: Origin = serde_json::from_str(r#"{"precision":"f32"}"#).unwrap();
    assert_eq!((older.head_precision, older.default_length(65_536)), (None, 65_536));
    let head_precision = Some(HeadPrecision::default());
    let newer = Origin { head_precision, ..older };
    assert_eq!((newer.default_length(65_536), newer.default_length(500)), (1024, 500));
}
