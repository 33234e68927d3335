//! Bad input and bad places: one line with cause and remedy, a documented code, nothing half-made.

use std::{fs, os::unix::fs::PermissionsExt, path::PathBuf};

use rustix::mount::{MountFlags, UnmountFlags, mount, mount_remount, unmount};

use crate::support::{Home, err, is_root, out, refusal, skip, write};

#[test]
fn an_unknown_image_is_named_with_a_remedy() {
    let Some(home) = Home::with_sandboxes() else { return };
    let line = refusal(&home.run(["sandbox", "run", "--image", "nope", "--", "true"]), 2);
    assert!(line.contains("there is no image `nope`") && line.contains("image list"), "{line}");
    let line = refusal(&home.run(["sandbox", "run", "--image", "./nope", "--", "true"]), 2);
    assert!(line.contains("nope"), "{line}");
    assert_eq!(home.traces(), Vec::<PathBuf>::new());
}

#[test]
fn a_missing_source_is_seen_before_anything_is_made() {
    let home = Home::new();
    let output = home.run(["sandbox", "run", "--copy-in", "missing:/x", "--", "true"]);
    let line = refusal(&output, 2);
    assert!(line.contains("--copy-in") && line.contains("missing"), "{line}");
    assert!(!home.state().exists());
}

#[test]
fn a_server_that_strangers_could_use_needs_a_key() {
    let home = Home::new();
    for (option, value) in [("--addr", "0.0.0.0:0"), ("--network", "full")] {
        let line = refusal(&home.run(["serve", option, value]), 2);
        assert!(line.contains(option) && line.contains("--api-key-env"), "{line}");
    }
}

#[test]
fn impossible_limits_are_seen_before_anything_is_made() {
    let home = Home::new();
    for (option, value, remedy) in [
        ("--memory", "1", "at least 8M"),
        ("--memory", "lots", "512M"),
        ("--memory", "-5", "512M"),
        ("--memory", "-5G", "512M"),
        ("--disk", "-1", "512M"),
        ("--pids", "-3", "write 512 or none"),
        ("--timeout", "-1s", "seconds such as 120"),
        ("--cpus", "0", "between 0.01"),
        ("--cpus", "-1", "between 0.01"),
        ("--pids", "0", "at least 8"),
        ("--disk", "1K", "at least 1M"),
        ("--timeout", "0", "seconds such as 120"),
        ("--network", "some", "allow=HOST"),
        ("--workdir", "here", "absolute path"),
        ("--env", "=x", "K=V"),
        ("--env", "SURELY_NOT_SET", "SURELY_NOT_SET=VALUE"),
        ("--copy-out", "x", "SRC:DST"),
    ] {
        let line = refusal(&home.run(["sandbox", "run", option, value, "--", "true"]), 2);
        assert!(line.contains(remedy), "{option} {value}: {line}");
    }
    assert!(!home.state().exists());
}

#[test]
fn mounts_are_refused_with_what_there_is_instead() {
    let home = Home::new();
    let line = refusal(&home.run(["sandbox", "run", "-v", "/tmp:/x", "--", "true"]), 2);
    assert!(line.contains("no mounts") && line.contains("--copy-in"), "{line}");
    let line = refusal(&home.run(["run", "--volume", "/tmp:/x", "Do it"]), 2);
    assert!(line.contains("no mounts") && line.contains("--input"), "{line}");
}

#[test]
fn files_beyond_the_disk_limit_are_seen_before_anything_is_made() {
    let home = Home::new();
    fs::create_dir(home.file("in")).unwrap();
    for name in ["in/a", "in/b"] {
        let file = fs::File::create(home.file(name)).unwrap();
        file.set_len(600 << 10).unwrap();
    }
    let copied = ["sandbox", "run", "--disk", "1M", "--copy-in", "in:/x", "--", "true"];
    let input = ["run", "Do it", "--model", "m", "--disk", "1M", "--input", "in", "--output", "o"];
    for (args, option) in [(&copied[..], "--copy-in"), (&input[..], "--input")] {
        let line = refusal(&home.run(args), 2);
        assert!(line.contains(option) && line.contains("more with --disk"), "{line}");
        assert!(line.contains("1.17 MiB") && line.contains("1M"), "{line}");
    }
    assert!(!home.state().exists() && !home.file("o").exists());
}

#[test]
fn a_task_that_is_a_file_is_pointed_out() {
    let home = Home::new();
    write(&home.file("task.md"), "Count to ten.");
    let line = refusal(&home.run(["run", "task.md", "--model", "m"]), 2);
    assert!(line.contains("--task-file task.md"), "{line}");
    let line = refusal(&home.run(["run", "--task-file", "missing.md", "--model", "m"]), 2);
    assert!(line.contains("--task-file: cannot read missing.md"), "{line}");
    assert!(!home.state().exists());
}

#[test]
fn mistyped_arguments_are_one_line() {
    let home = Home::new();
    for args in [
        &["sandbox", "run", "--memroy", "1G", "--", "true"][..],
        &["sandbox", "run"],
        &["sandbox", "walk"],
        &["image", "rm"],
        &["image", "pull", "--username", "me", "x"],
        &["doctor", "--jsno"],
    ] {
        let line = refusal(&home.run(args), 2);
        assert!(line.contains("--help"), "{line}");
    }
}

#[test]
fn help_and_version_go_to_standard_output() {
    let home = Home::new();
    assert_eq!(home.ok(["--version"]), format!("llm-in-sandbox {}\n", env!("CARGO_PKG_VERSION")));
    for args in [&["--help"][..], &["sandbox", "run", "--help"], &["image", "build", "--help"]] {
        assert!(home.ok(args).contains("Examples:"), "{args:?}");
    }
    assert!(!home.state().exists());
}

#[test]
fn a_home_that_is_a_file_is_refused() {
    let home = Home::new();
    write(&home.state(), "");
    for args in [
        &["sandbox", "run", "--", "true"][..],
        &["sandbox", "list", "--runtime", "native"],
        &["image", "import", ".", "x"],
    ] {
        let line = refusal(&home.run(args), 4);
        assert!(line.contains("LLM_IN_SANDBOX_HOME"), "{line}");
    }
    assert_eq!(fs::read(home.state()).unwrap(), b"");
}

#[test]
fn a_home_nobody_may_write_is_refused() {
    if is_root() {
        // Root may write anywhere; the same place is tried with a file and read-only below.
        println!("skip: root may write everywhere");
        return;
    }
    let home = Home::new();
    fs::create_dir(home.state()).unwrap();
    fs::set_permissions(home.state(), fs::Permissions::from_mode(0o500)).unwrap();
    let line = refusal(&home.run(["sandbox", "run", "--", "true"]), 4);
    assert!(line.contains("LLM_IN_SANDBOX_HOME") && line.contains("denied"), "{line}");
}

#[test]
fn without_any_home_the_variable_is_named() {
    let home = Home::new();
    let mut command = home.command(["image", "list"]);
    command.env_remove("LLM_IN_SANDBOX_HOME").env_remove("XDG_DATA_HOME").env("HOME", "");
    let output = command.output().unwrap();
    if is_root() {
        // The password file knows root's home, so there is one; nothing may be made in it by listing.
        assert_eq!(output.status.code(), Some(0), "{}", err(&output));
    } else {
        let line = refusal(&output, 2);
        assert!(line.contains("LLM_IN_SANDBOX_HOME"), "{line}");
    }
}

/// A small file system of the test's own.
struct Tiny(PathBuf);

impl Tiny {
    fn mount(at: PathBuf, size: &str) -> Option<Self> {
        fs::create_dir(&at).unwrap();
        let options = std::ffi::CString::new(format!("size={size}")).unwrap();
        match mount("tmpfs", &at, "tmpfs", MountFlags::empty(), Some(options.as_c_str())) {
            Ok(()) => Some(Self(at)),
            Err(error) => {
                skip("root", &format!("cannot mount a tmpfs: {error}"));
                None
            }
        }
    }
}

impl Drop for Tiny {
    fn drop(&mut self) {
        let _ = unmount(&self.0, UnmountFlags::DETACH);
    }
}

#[test]
fn a_full_disk_is_told_and_nothing_is_half_made() {
    let home = Home::new();
    let Some(tiny) = Tiny::mount(home.state(), "64k") else { return };
    assert!(fs::write(tiny.0.join("fill"), vec![0; 100_000]).is_err());
    let line = refusal(&home.run(["sandbox", "run", "--", "true"]), 4);
    assert!(line.contains("space") && line.contains("LLM_IN_SANDBOX_HOME"), "{line}");
    let left: Vec<_> = fs::read_dir(&tiny.0).unwrap().flatten().map(|e| e.file_name()).collect();
    assert_eq!(left, ["fill"]);
}

#[test]
fn a_disk_that_fills_up_during_an_import_keeps_nothing_of_it() {
    let home = Home::new();
    let Some(tiny) = Tiny::mount(home.state(), "1M") else { return };
    write(&home.file("tree/bin/sh"), vec![1; 5 << 20]);
    let output = home.run(["image", "import", "tree", "big"]);
    assert_eq!(output.status.code(), Some(4), "{}", err(&output));
    let text = err(&output);
    let line = text.lines().last().unwrap();
    assert!(line.contains("No space left") && line.contains("free some space"), "{line}");
    assert_eq!(home.ok(["image", "list", "--json"]).trim(), "[]");
    // What it wrote is gone: the same space can be written again.
    fs::write(tiny.0.join("room"), vec![0; 800 << 10]).unwrap();
}

#[test]
fn a_read_only_home_is_told() {
    let home = Home::new();
    let Some(tiny) = Tiny::mount(home.state(), "64k") else { return };
    mount_remount(&tiny.0, MountFlags::RDONLY, "").unwrap();
    let line = refusal(&home.run(["sandbox", "run", "--", "true"]), 4);
    assert!(line.contains("Read-only") && line.contains("LLM_IN_SANDBOX_HOME"), "{line}");
}

#[test]
fn a_daemon_that_does_not_answer_is_named() {
    let home = Home::new();
    let mut command = home.command(["sandbox", "run", "--runtime", "docker", "--", "true"]);
    let output = command.env("DOCKER_HOST", "unix:///nonexistent.sock").output().unwrap();
    let line = refusal(&output, 4);
    assert!(line.contains("/nonexistent.sock") && line.contains("DOCKER_HOST"), "{line}");
}

#[test]
fn a_reader_that_leaves_early_is_fine() {
    let home = Home::new();
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut command = home.command(["image", "list", "--json"]);
    let output = command.stdout(writer).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}{}", err(&output), out(&output));
    assert_eq!(err(&output), "");
}
