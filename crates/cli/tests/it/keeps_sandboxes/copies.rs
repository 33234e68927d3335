//! `sandbox cp`: trees in both directions, and what must not be copied.

use std::{fs, os::unix::fs::PermissionsExt, path::Path};

use super::{Kept, mode};
use crate::support::{code, err, refusal, write};

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

#[test]
fn a_tree_survives_the_round_trip() {
    let Some(kept) = Kept::with_box() else { return };
    let tree = kept.file("tree");
    write(&tree.join("a/b/data"), (0..=255).collect::<Vec<u8>>());
    write(&tree.join("run.sh"), "#!/bin/sh\necho ran\n");
    set_mode(&tree.join("run.sh"), 0o755);
    write(&tree.join("a/odd \n name"), "");
    std::os::unix::fs::symlink("a/b/data", tree.join("link")).unwrap();
    kept.ok(["sandbox", "cp", "tree", "box:/testbed/in"]);
    assert_eq!(
        kept.exec_ok("in/run.sh; readlink in/link; wc -c < in/link"),
        "ran\na/b/data\n256\n"
    );
    kept.ok(["sandbox", "cp", "box:in", "back"]);
    let back = kept.file("back");
    assert_eq!(fs::read(back.join("a/b/data")).unwrap(), fs::read(tree.join("a/b/data")).unwrap());
    assert_eq!(mode(&back.join("run.sh")) & 0o700, 0o700);
    assert_eq!(fs::read_link(back.join("link")).unwrap(), Path::new("a/b/data"));
    assert!(back.join("a/odd \n name").exists());
}

#[test]
fn a_directory_is_copied_into() {
    let Some(kept) = Kept::with_box() else { return };
    write(&kept.file("f.txt"), "one");
    write(&kept.file("dir/g.txt"), "two");
    kept.ok(["sandbox", "cp", "f.txt", "box:"]);
    kept.ok(["sandbox", "cp", "dir", "box:/testbed"]);
    kept.ok(["sandbox", "cp", "dir/.", "box:/testbed"]);
    kept.ok(["sandbox", "cp", "f.txt", "box:new/"]);
    kept.ok(["sandbox", "cp", "f.txt", "box:/testbed/renamed"]);
    assert_eq!(kept.exec_ok("cat f.txt dir/g.txt g.txt new/f.txt renamed"), "onetwotwooneone");
    fs::create_dir(kept.file("out")).unwrap();
    kept.ok(["sandbox", "cp", "box:dir", "out"]);
    kept.ok(["sandbox", "cp", "box:f.txt", "out/"]);
    kept.ok(["sandbox", "cp", "box:/testbed/new/.", "all"]);
    for (file, content) in [("out/dir/g.txt", "two"), ("out/f.txt", "one"), ("all/f.txt", "one")] {
        assert_eq!(fs::read_to_string(kept.file(file)).unwrap(), content);
    }
}

#[test]
fn nothing_leads_out_of_a_hostile_tree() {
    let Some(kept) = Kept::with_box() else { return };
    write(&kept.file("precious"), "mine");
    kept.exec_ok(
        "mkdir t; ln -s /etc/passwd t/abs; ln -s ../../precious t/up; mkfifo t/pipe; echo x > t/ok; chmod 4755 t/ok",
    );
    let output = kept.run(["sandbox", "cp", "box:t", "out"]);
    assert_eq!(code(&output), 0, "{}", err(&output));
    let text = err(&output);
    assert!(text.contains("abs") && text.contains("up") && text.contains("pipe"), "{text}");
    let mut names: Vec<_> =
        fs::read_dir(kept.file("out")).unwrap().map(|e| e.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["ok"]);
    assert_eq!(mode(&kept.file("out/ok")) & 0o7000, 0, "never setuid");
    // A link in the sandbox, in the way of a copy into it, leads nowhere outside.
    kept.exec_ok("mkdir /only-inside; ln -s ../../../../only-inside evil");
    kept.ok(["sandbox", "cp", "precious", "box:evil/x"]);
    assert_eq!(kept.exec_ok("cat /only-inside/x"), "mine");
    assert!(!Path::new("/only-inside").exists());
    assert_eq!(fs::read_to_string(kept.file("precious")).unwrap(), "mine");
}

#[test]
fn a_copy_that_cannot_work_says_why_and_leaves_nothing() {
    let Some(kept) = Kept::with_box() else { return };
    write(&kept.file("f"), "");
    for (source, destination, why) in [
        ("f", "g", "NAME:PATH"),
        ("box:f", "box:g", "both in a sandbox"),
        ("missing", "box:", "cannot read missing"),
        ("box:/missing", "out", "/missing"),
        ("box:/", "out", "write box:/. for"),
        ("nobox:/etc/hostname", "out", "there is no sandbox `nobox`"),
    ] {
        let line = refusal(&kept.run(["sandbox", "cp", source, destination]), 2);
        assert!(line.contains(why), "{source} {destination}: {line}");
    }
    assert!(!kept.file("out").exists());
}
