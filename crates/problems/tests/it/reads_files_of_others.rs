//! Parquet as Python writes it: dictionaries, nulls, lists, structs, several row groups.

use std::path::PathBuf;

use lis_problems::Task;

use crate::support::crate_dir;

fn data(name: &str) -> PathBuf {
    crate_dir().join("tests/data").join(name)
}

#[test]
fn rows_of_pyarrow_are_problems() {
    let rows = Task::builtin("math").unwrap().read_files(&[data("snappy.parquet")]).unwrap();
    assert_eq!(rows.bad, []);
    assert_eq!(rows.problems.len(), 3);
    for (problem, number) in rows.problems.iter().zip(0..) {
        assert_eq!((problem.id.clone(), problem.repeats), (format!("p{number}"), 2));
        assert_eq!(problem.ground_truth, (number + 1).to_string());
        assert_eq!(problem.files.len(), usize::from(number > 0));
        assert_eq!(problem.extra["tags"][0], "sum");
        assert_eq!(problem.extra["source"]["page"], number);
    }
}

#[test]
fn an_unknown_compression_is_named() {
    let task = Task::builtin("math").unwrap();
    let error = task.read_files(&[data("zstd.parquet")]).unwrap_err().to_string();
    assert!(error.contains("zstd") && error.contains("convert it"), "{error}");
}
