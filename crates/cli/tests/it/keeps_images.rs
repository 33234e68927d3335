//! Images from the first import to the last trace.

use std::{
    fs,
    io::{BufRead, BufReader, Read},
    path::{Path, PathBuf},
    process::Command,
};

use rustix::process::Signal;

use crate::support::{
    Home, Running, code, err, is_root, out, program, refusal, setting, skip, wait_for, write,
};

fn names(home: &Home) -> Vec<String> {
    let list = home.json(["image", "list", "--json"]);
    list.as_array().unwrap().iter().map(|i| i["name"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn a_directory_becomes_an_image_and_goes_again() {
    let home = Home::new();
    write(&home.file("tree/bin/sh"), "#!/bin/sh\n");
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
    assert_eq!(pruned["kept"], 1);
    let text = err(&home.run(["image", "prune"]));
    assert!(text.contains("1 layer of images kept") && !text.contains("in use"), "{text}");
    home.ok(["image", "import", "tree", "third"]);
    // One that does not exist: none is removed.
    let line = refusal(&home.run(["image", "rm", "again", "nope"]), 2);
    assert!(line.contains("no image `nope`; see `llm-in-sandbox image list`"), "{line}");
    assert!(!line.contains("pull"), "{line}");
    assert_eq!(names(&home), ["again", "third"]);
    let removed = home.json(["image", "rm", "again", "third", "--json"]);
    assert_eq!((&removed["layers"], &removed["bytes"]), (&1.into(), &50_010.into()));
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
fn only_a_system_is_imported_and_never_the_store() {
    let home = Home::new();
    write(&home.file("project/src/main.rs"), "fn main() {}\n");
    let line = refusal(&home.run(["image", "import", "project", "x"]), 2);
    assert!(line.contains("does not look like a root file system"), "{line}");
    assert!(line.ends_with("check the path, or import it anyway with --force"), "{line}");
    home.ok(["image", "import", "project", "x", "--force"]);
    // The state directory is below this one.
    write(&home.file("bin/sh"), "");
    for force in [&[][..], &["--force"]] {
        let line = refusal(&home.run(["image", "import", ".", "y"].iter().chain(force)), 2);
        assert!(line.contains("contains the image store"), "{line}");
    }
    assert_eq!(names(&home), ["x"]);
}

#[test]
fn a_directory_is_not_taken_for_a_missing_image() {
    let home = Home::new();
    fs::create_dir(home.file("rootfs")).unwrap();
    let run =
        |image: &str| refusal(&home.run(["sandbox", "run", "--image", image, "--", "true"]), 2);
    let line = run("rootfs");
    assert!(line.ends_with("put ./ before it to use the directory of that name"), "{line}");
    let line = run("rootfs/");
    assert!(line.contains("root file system") && !line.contains("image pull"), "{line}");
    assert!(run("science").contains("image build science"));
}

#[test]
fn the_files_after_a_command_become_an_image() {
    let Some(home) = Home::with_sandboxes() else { return };
    let save = |more: &[&str]| {
        let args = ["sandbox", "run", "--save", "mine", "--"].iter();
        home.run(args.chain(more))
    };
    let failed = save(&["sh", "-c", "exit 7"]);
    assert_eq!(code(&failed), 7);
    assert!(err(&failed).contains("mine was not saved: the command failed"), "{}", err(&failed));
    assert_eq!(names(&home), Vec::<String>::new());
    let saved = save(&["sh", "-c", "echo kept > /etc/kept"]);
    assert_eq!(code(&saved), 0, "{}", err(&saved));
    assert!(err(&saved).contains("saved the image mine"), "{}", err(&saved));
    let args =
        ["sandbox", "run", "--image", "mine", "--json", "--save", "more", "--", "cat", "/etc/kept"];
    let report = home.json(args);
    assert_eq!((&report["saved"], &report["stdout"]["text"]), (&"more".into(), &"kept\n".into()));
    let listed = home.json(["image", "list", "--json"]);
    assert_eq!((&listed[0]["from"], &listed[1]["from"]), (&"host".into(), &"mine".into()));
    assert_eq!(listed[1]["layers"], 2);
    let line = refusal(&home.run(["sandbox", "run", "--save", "../x", "--", "touch", "ran"]), 2);
    assert!(line.contains("../x"), "{line}");
}

/// As with the driver of a graphics card in a container: its files are mounted inside `/usr`, and locked there.
#[test]
fn an_image_is_used_where_file_systems_are_mounted_inside_usr() {
    let Some(home) = Home::with_sandboxes() else { return };
    let inside = |args: &[&str]| {
        let script = "mount -t tmpfs none /usr/src &&
            exec unshare --user --map-user=1000 --map-group=1000 \"$@\"";
        let mut command = Command::new("unshare");
        command
            .args(["--user", "--map-root-user", "--mount", "sh", "-c", script, "sh"])
            .arg(program())
            .args(args)
            .env("LLM_IN_SANDBOX_HOME", home.state());
        command.output().unwrap()
    };
    let saved =
        inside(&["sandbox", "run", "--save", "mine", "--", "sh", "-c", "echo kept > /etc/kept"]);
    assert_eq!(code(&saved), 0, "{}", err(&saved));
    let used = inside(&["sandbox", "run", "--image", "mine", "--", "cat", "/etc/kept"]);
    assert_eq!((code(&used), out(&used).as_str()), (0, "kept\n"), "{}", err(&used));
}

#[test]
fn a_large_image_is_gone_at_once_and_its_files_soon() {
    let home = Home::new();
    write(&home.file("tree/bin/sh"), "");
    for i in 0..300 {
        write(&home.file(&format!("tree/d{}/{i}", i % 20)), "x");
    }
    home.ok(["image", "import", "tree", "large"]);
    let trash = home.state().join("images/trash");
    let is_empty = || fs::read_dir(&trash).unwrap().count() == 0;
    // Someone else is deleting: the command does not wait for it.
    fs::create_dir(&trash).unwrap();
    let other = fs::File::open(&trash).unwrap();
    rustix::fs::flock(&other, rustix::fs::FlockOperation::LockExclusive).unwrap();
    let output = home.run(["image", "rm", "large"]);
    let text = err(&output);
    assert!(code(&output) == 0 && text.contains("are being deleted in the background"), "{text}");
    assert_eq!(names(&home), Vec::<String>::new());
    assert!(!is_empty());
    // That process was killed: the next command deletes the rest, in a process that ends by itself.
    drop(other);
    write(&home.file("small/bin/sh"), "");
    home.ok(["image", "import", "small", "small"]);
    wait_for("the deletion", || is_empty().then_some(()));
    let store = home.state().join("images");
    let deleter = |line: &[u8]| String::from_utf8_lossy(line).contains(store.to_str().unwrap());
    wait_for("the end of the process", || {
        let processes = fs::read_dir("/proc").unwrap().flatten();
        let mut lines = processes.flat_map(|entry| fs::read(entry.path().join("cmdline")));
        (!lines.any(|line| deleter(&line))).then_some(())
    });
    let text = err(&home.run(["image", "rm", "small"]));
    assert!(text.contains("removed small; 0 B freed"), "{text}");
}

#[test]
fn a_deep_tree_is_deleted_with_few_descriptors() {
    let home = Home::new();
    write(&home.file("small/bin/sh"), "");
    home.ok(["image", "import", "small", "small"]);
    let trash = home.state().join("images/trash");
    for i in 0..16 {
        fs::create_dir_all(trash.join(format!("1-1/{i}/{}", "d/".repeat(150)))).unwrap();
    }
    let pruned = Command::new("sh")
        .args(["-c", "ulimit -n 256 && exec \"$0\" image prune"])
        .arg(program())
        .env("LLM_IN_SANDBOX_HOME", home.state())
        .output()
        .unwrap();
    assert_eq!(code(&pruned), 0, "{}", err(&pruned));
    wait_for("the deletion", || (fs::read_dir(&trash).unwrap().count() == 0).then_some(()));
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
    assert!(rest.contains("llm-in-sandbox: cancelled"), "{rest}");
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
