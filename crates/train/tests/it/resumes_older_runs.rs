//! A run directory written by the first version resumes, and gives the metrics that version gave.
//!
//! `tests/data/older-run` is a run of four steps as a kill after step 2 left it, but for `metrics.jsonl`, which holds all
//! four steps: the last two are removed on resume and have to come out the same.

use crate::support::{Toy, copy, crate_path};

#[test]
fn a_run_of_the_first_version_resumes_exactly() {
    let toy = Toy::empty();
    copy(&crate_path("tests/data/older-run"), &toy.path(""));
    let expected = toy.metrics("run");
    toy.succeeds(&["sft", "sft.toml"]);
    let found = toy.metrics("run");
    assert_eq!((found.len(), &found[..2]), (4, &expected[..2]), "the first steps are not repeated");
    for (found, expected) in found.iter().zip(&expected).skip(2) {
        assert_eq!(found["step"], expected["step"]);
        for name in ["loss", "entropy", "grad_norm", "lr"] {
            let [found, expected] = [found, expected].map(|line| line[name].as_f64().unwrap());
            assert!((found - expected).abs() < 1e-4, "{name}: {found} is not {expected}");
        }
    }
    toy.succeeds(&["export", "run", "--to", "exported"]);
    assert!(toy.path("exported/model.safetensors").is_file());
}
