//! Images from the first import to the last trace.

use std::{
    fs,
    io::{BufRead, BufReader, Read},
    path::{Path, PathBuf},
};

use rustix::process::Signal;

use crate::support::{Home, Running, code, err, is_root, out, refusal, setting, skip, write};

fn names(home: &Home) -> Vec<String> {
    let list = home.json(["image", "list", "--json"]);
    list.as_array().unwrap().iter().map(|i| i["name"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn a_directory_becomes_an_image_and_goes_again() {
    let home = Home::new();
    write(&home.file("tree/bin/tool"), "#!/bin/sh\n");
    write(&home.file("tree/etc/name"), vec![7; 50_000]);
    assert_eq!(home.ok(["image", "import", "tree", "mine:1"]), "mine:1\n");
    assert_eq!(names(&home), ["mine:1"]);
    let listed = home.json(["image", "list", "--json"]);
    assert_eq!(listed[0]["size"], 50_010);
    assert!(listed[0]["id"].as_str().unwrap().starts_with("sha256:"), "{listed}");
    let table = home.ok(["image", "list"]);
    assert!(table.starts_with("NAME") && table.contains("mine:1"), "{table}");
    // The same content under a second name; removing one keeps the other's layer.
    home.ok(["image", "import", "tree", "again"]);
    home.ok(["image", "rm", "mine:1"]);
    assert_eq!(names(&home), ["again"]);
    let pruned = home.json(["image", "prune", "--json"]);
    assert_eq!((&pruned["layers"], &pruned["in_use"]), (&0.into(), &0.into()));
    home.ok(["image", "rm", "again"]);
    assert_eq!(names(&home), Vec::<String>::new());
    let layers = fs::read_dir(home.state().join("images/layers")).unwrap().count();
    assert_eq!(layers, 0);
}

#[test]
fn an_archive_becomes_the_system_of_a_sandbox() {
    let Some(rootfs) = setting("LIS_TEST_ROOTFS").map(PathBuf::from) else {
        return skip("rootfs", "LIS_TEST_ROOTFS names no directory with a root file system");
    };
    let Some(home) = Home::with_sandboxes() else { return };
    let name = home.json(["image", "import", rootfs.to_str().unwrap(), "system", "--json"]);
    assert_eq!(name["name"], "system");
    let script = "cat /etc/os-release; touch /etc/written && echo new > /bin/new && ls /bin/new";
    let inside = home.ok(["sandbox", "run", "--image", "system", "--", "bash", "-c", script]);
    let outside = fs::read_to_string(rootfs.join("etc/os-release")).unwrap();
    assert_eq!(inside, format!("{outside}/bin/new\n"));
    // What one sandbox wrote is not in the image.
    let gone = home.run(["sandbox", "run", "--image", "system", "--", "test", "-e", "/bin/new"]);
    assert_eq!(code(&gone), 1, "{}", err(&gone));
    // The same directory serves without an import.
    let direct = home.run([
        "sandbox",
        "run",
        "--image",
        rootfs.to_str().unwrap(),
        "--",
        "cat",
        "/etc/os-release",
    ]);
    assert_eq!(out(&direct), outside, "{}", err(&direct));
    home.ok(["image", "rm", "system"]);
    let line = refusal(&home.run(["sandbox", "run", "--image", "system", "--", "true"]), 2);
    assert!(line.contains("system"), "{line}");
}

#[test]
fn bad_images_are_refused_in_a_line() {
    let home = Home::new();
    write(&home.file("junk.tar"), "this is no archive, whatever its name says".repeat(50));
    for (args, exit, word) in [
        (&["image", "import", "missing.tar", "x"][..], 2, "missing.tar"),
        (&["image", "import", "junk.tar", "x"], 2, "junk.tar"),
        (&["image", "import", ".", "../x"], 2, "../x"),
        (&["image", "import", ".", "host"], 2, "built-in"),
        (&["image", "rm", "nope"], 2, "nope"),
        (&["image", "pull", "Bad Reference"], 2, "Bad Reference"),
        (&["image", "pull", "localhost:1/nothing:here"], 4, "localhost:1"),
    ] {
        let output = home.run(args);
        assert_eq!(code(&output), exit, "{args:?}: {}", err(&output));
        let text = err(&output);
        let line = text.lines().last().unwrap();
        assert!(line.starts_with("llm-in-sandbox: error: ") && line.contains(word), "{text}");
    }
    assert_eq!(names(&home), Vec::<String>::new());
    let left = fs::read_dir(home.state().join("images/tmp")).map_or(0, Iterator::count);
    assert_eq!(left, 0);
}

#[test]
fn a_cancelled_build_leaves_nothing() {
    if !is_root() {
        return skip("root", "an ordinary user's build may fail before it is cancelled");
    }
    if !Path::new("/usr/bin/mmdebstrap").exists() {
        return skip("mmdebstrap", "the builder mmdebstrap is not installed");
    }
    let home = Home::new();
    let mut running = Running(home.command(["image", "build"]).spawn().unwrap());
    let mut said = BufReader::new(running.0.stderr.take().unwrap());
    // The builder announces its steps; with the second it has begun in earnest.
    for _ in 0..2 {
        said.read_line(&mut String::new()).unwrap();
    }
    running.signal(Signal::TERM);
    let mut rest = String::new();
    said.read_to_string(&mut rest).unwrap();
    assert_eq!(running.end(), 143, "{rest}");
    assert!(rest.ends_with("llm-in-sandbox: cancelled\n"), "{rest}");
    let left = fs::read_dir(home.state().join("images/tmp")).unwrap().count();
    assert_eq!(left, 0);
    assert_eq!(names(&home), Vec::<String>::new());
}

#[test]
fn a_store_nobody_used_is_empty_and_stays_unmade() {
    let home = Home::new();
    assert_eq!(names(&home), Vec::<String>::new());
    let output = home.run(["image", "list"]);
    assert_eq!((code(&output), out(&output).as_str()), (0, ""));
    assert!(err(&output).contains("image build"), "{}", err(&output));
    assert!(!home.state().exists());
}
