//! Files of strangers cost no more memory and time than honest ones of their size.

use lis_trajectory::{MAX_FILE_VALUES, read};

#[test]
fn small_values_do_not_fill_the_memory() {
    let settings = |values: usize| {
        let zeros = vec!["0"; values].join(",");
        format!("{{\"v\":1,\"at\":1,\"kind\":\"reconfigured\",\"settings\":[{zeros}]}}\n")
    };
    let half = settings(MAX_FILE_VALUES / 2);
    assert_eq!(read(&half).unwrap().len(), 1);
    let error = read(&half.repeat(3)).unwrap_err();
    assert_eq!(error.line, 2);
}

#[test]
fn an_episode_is_not_resumed_without_end() {
    let line = "{\"v\":1,\"at\":1,\"kind\":\"resumed\",\"turn\":1}\n";
    assert_eq!(read(&line.repeat(10_000)).unwrap().len(), 10_000);
    // Every one of them goes through all lines before it.
    let error = read(&line.repeat(100_000)).unwrap_err();
    assert!(error.line < 40_000 && error.why.contains("resumed"), "{error}");
}
