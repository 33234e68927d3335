//! Files and trees into the sandbox and out of it again.

use std::{fs, os::unix::fs::symlink};

use crate::support::{Home, Running, code, err, out, refusal, wait_for, write};

#[test]
fn a_file_goes_in_and_a_result_comes_out() {
    let Some(home) = Home::with_sandboxes() else { return };
    write(&home.file("data.csv"), "1\n2\n3\n");
    let output = home.run([
        "sandbox",
        "run",
        "--copy-in",
        "data.csv:/testbed/data.csv",
        "--copy-out",
        "/testbed/result.txt:out/result.txt",
        "--",
        "bash",
        "-c",
        "wc -l < data.csv > result.txt",
    ]);
    assert_eq!(code(&output), 0, "{}", err(&output));
    assert_eq!(fs::read_to_string(home.file("out/result.txt")).unwrap().trim(), "3");
}

#[test]
fn trees_and_odd_names_keep_their_shape() {
    let Some(home) = Home::with_sandboxes() else { return };
    let bytes: Vec<u8> = (0..70_000u32).map(|i| (i * 7) as u8).collect();
    write(&home.file("tree:odd/a b/ü"), &bytes);
    write(&home.file("tree:odd/empty"), "");
    let output = home.run([
        "sandbox",
        "run",
        "--copy-in",
        "tree:odd:in/",
        "--copy-out",
        "in/tree:back:odd",
        "--",
        "sh",
        "-c",
        "mv in/tree:odd in/tree",
    ]);
    assert_eq!(code(&output), 0, "{}", err(&output));
    assert_eq!(fs::read(home.file("back:odd/a b/ü")).unwrap(), bytes);
    assert_eq!(fs::read(home.file("back:odd/empty")).unwrap(), b"");
}

#[test]
fn results_come_out_even_when_the_command_fails() {
    let Some(home) = Home::with_sandboxes() else { return };
    let output = home.run([
        "sandbox",
        "run",
        "--copy-out",
        "log:log",
        "--",
        "sh",
        "-c",
        "echo half > log; exit 5",
    ]);
    assert_eq!(code(&output), 5, "{}", err(&output));
    assert_eq!(fs::read_to_string(home.file("log")).unwrap(), "half\n");
    let output = home.run([
        "sandbox",
        "run",
        "--timeout",
        "0.3",
        "--copy-out",
        "log:late",
        "--",
        "sh",
        "-c",
        "echo half > log; sleep 60",
    ]);
    assert_eq!(code(&output), 124, "{}", err(&output));
    assert_eq!(fs::read_to_string(home.file("late")).unwrap(), "half\n");
}

#[test]
fn a_result_that_is_not_there_is_an_error_after_success_only() {
    let Some(home) = Home::with_sandboxes() else { return };
    let output = home.run(["sandbox", "run", "--copy-out", "nothing:x", "--", "true"]);
    let line = refusal(&output, 2);
    assert!(line.contains("cannot copy out") && line.contains("nothing"), "{line}");
    assert!(!home.file("x").exists());
    let output =
        home.run(["sandbox", "run", "--copy-out", "nothing:x", "--", "sh", "-c", "exit 7"]);
    assert_eq!(code(&output), 7);
    assert!(err(&output).contains("cannot copy out"), "{}", err(&output));
}

#[test]
fn links_that_lead_out_are_left_out_and_told() {
    let Some(home) = Home::with_sandboxes() else { return };
    write(&home.file("victim"), "untouched");
    let script = "mkdir t && echo fine > t/fine && ln -s /etc/passwd t/evil && ln -s fine t/good";
    let output = home.run(["sandbox", "run", "--copy-out", "t:t", "--", "sh", "-c", script]);
    assert_eq!(code(&output), 0, "{}", err(&output));
    assert!(err(&output).contains("not copied: evil"), "{}", err(&output));
    assert!(home.file("t/evil").symlink_metadata().is_err());
    assert_eq!(fs::read_to_string(home.file("t/good")).unwrap(), "fine\n");
}

#[test]
fn a_link_given_as_source_is_followed() {
    let Some(home) = Home::with_sandboxes() else { return };
    write(&home.file("real"), "contents");
    symlink("real", home.file("link")).unwrap();
    let output = home.run(["sandbox", "run", "--copy-in", "link:got", "--", "cat", "got"]);
    assert_eq!((code(&output), out(&output).as_str()), (0, "contents"), "{}", err(&output));
}

#[test]
fn copies_are_counted_in_json() {
    let Some(home) = Home::with_sandboxes() else { return };
    write(&home.file("in/a"), "12345");
    let report = home.json([
        "sandbox",
        "run",
        "--json",
        "--copy-in",
        "in:/in",
        "--copy-out",
        "/in/a:b",
        "--",
        "true",
    ]);
    assert_eq!(report["copied"]["in"][0]["files"], 1);
    assert_eq!(report["copied"]["in"][0]["bytes"], 5);
    assert_eq!(report["copied"]["out"][0]["to"], "b");
    assert_eq!(fs::read_to_string(home.file("b")).unwrap(), "12345");
}

#[test]
fn a_missing_result_leaves_no_directory() {
    let Some(home) = Home::with_sandboxes() else { return };
    let output = home.run(["sandbox", "run", "--copy-out", "/missing:new/dir/x", "--", "true"]);
    let line = refusal(&output, 2);
    assert!(line.contains("/missing"), "{line}");
    assert!(!home.file("new").exists());
}

#[test]
fn what_a_killed_copy_left_goes_with_the_next_one() {
    let Some(home) = Home::with_sandboxes() else { return };
    let partials = || {
        let entries = fs::read_dir(home.file("")).unwrap().flatten();
        let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
        names.filter(|name| name.starts_with(".out.partial-")).collect::<Vec<_>>()
    };
    // A file of holes takes no space, and longer to copy than this test needs.
    let slow = ["sandbox", "run", "--disk", "none", "--copy-out", "big:out", "--"];
    let mut command = home.command(slow.into_iter().chain(["truncate", "-s", "900G", "big"]));
    let mut slow = Running(command.spawn().unwrap());
    let left = wait_for("a partial copy", || partials().pop());
    let copy = || {
        let args = ["sandbox", "run", "--copy-out", "small:out", "--", "sh", "-c"];
        home.ok(args.into_iter().chain(["echo done > small"]));
        assert_eq!(fs::read_to_string(home.file("out")).unwrap(), "done\n");
    };
    copy();
    assert_eq!(partials(), std::slice::from_ref(&left), "a copy that is being written was removed");
    slow.0.kill().unwrap();
    slow.0.wait().unwrap();
    assert_eq!(partials(), [left]);
    copy();
    assert_eq!(partials(), [] as [String; 0]);
}
