//! What is refused: bad names, directories that others could use, supervisors of other versions.

use std::{
    fs,
    io::{Read, Write},
    os::unix::{
        fs::{PermissionsExt, chown, symlink},
        net::UnixListener,
    },
    thread::JoinHandle,
};

use rustix::fs::{FlockOperation, flock};

use super::{Kept, mode};
use crate::support::{Home, code, err, is_root, out, refusal};

#[test]
fn names_are_checked_before_anything_happens() {
    let home = Home::new();
    for bad in ["A", "-x", "a/b", "../x", "a b", "", ".x", &"a".repeat(64)] {
        let output = home.run(["sandbox", "create", "--", bad]);
        assert_eq!(code(&output), 2, "{bad}: {}", err(&output));
    }
    let line = refusal(&home.run(["sandbox", "exec", "box", "--", "true"]), 2);
    assert!(line.contains("there is no sandbox `box`"), "{line}");
    let docker = refusal(&home.run(["sandbox", "create", "box", "--runtime", "docker"]), 2);
    assert!(docker.contains("--runtime"), "{docker}");
    assert!(!home.state().exists(), "nothing was created");
}

#[test]
fn a_name_is_taken_once_and_errors_have_remedies() {
    let Some(kept) = Kept::with_box() else { return };
    let line = refusal(&kept.run(["sandbox", "create", "box"]), 2);
    assert!(line.contains("already a sandbox `box`") && line.contains("sandbox rm"), "{line}");
    let line = refusal(&kept.run(["sandbox", "fork", "box", "box"]), 2);
    assert!(line.contains("already"), "{line}");
    let line = refusal(&kept.run(["sandbox", "create", "other", "--image", "nope"]), 2);
    assert!(line.contains("there is no image `nope`") && line.contains("image list"), "{line}");
    let line = refusal(&kept.run(["sandbox", "save", "box", "a b"]), 2);
    assert!(line.contains("bad image name"), "{line}");
    let line = refusal(&kept.run(["sandbox", "exec", "box", "--tty", "--", "true"]), 2);
    assert!(line.contains("not a terminal"), "{line}");
    // One that does not exist does not keep the others.
    let output = kept.run(["sandbox", "rm", "nope", "box", "neither"]);
    assert_eq!((code(&output), out(&output).as_str()), (2, "box\n"));
    assert!(err(&output).contains("`nope`") && err(&output).contains("`neither`"));
}

#[test]
fn a_directory_that_others_could_use_is_refused() {
    let Some(kept) = Kept::with_box() else { return };
    let directory = kept.directory();
    assert_eq!(mode(&directory), 0o700);
    let refused = || {
        let output = kept.exec("true");
        assert_eq!(code(&output), 4);
        let line = refusal(&output, 4);
        assert!(line.contains("not safe to use"), "{line}");
    };
    fs::set_permissions(&directory, fs::Permissions::from_mode(0o770)).unwrap();
    refused();
    fs::set_permissions(&directory, fs::Permissions::from_mode(0o700)).unwrap();
    let moved = kept.file("moved");
    fs::rename(&directory, &moved).unwrap();
    symlink(&moved, &directory).unwrap();
    refused();
    fs::remove_file(&directory).unwrap();
    fs::rename(&moved, &directory).unwrap();
    if is_root() {
        chown(&directory, Some(12345), None).unwrap();
        refused();
        chown(&directory, Some(0), None).unwrap();
    }
    assert_eq!(kept.exec_ok("echo fine"), "fine\n");
}

/// A supervisor of another version, which serves one connection after the other until it is asked to stop.
fn of_another_version(kept: &Kept, sandboxes: usize) -> JoinHandle<()> {
    let directory = kept.directory();
    let lock = fs::File::options().write(true).open(directory.join("lock")).unwrap();
    flock(&lock, FlockOperation::NonBlockingLockExclusive).unwrap();
    let socket = directory.join("socket");
    let listener = UnixListener::bind(&socket).unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let welcome = format!(
                r#"{{"protocol":77,"version":"9.9.9","pid":4711,"sandboxes":{sandboxes},"new":1}}"#
            );
            let header = [&[0][..], &(welcome.len() as u32).to_le_bytes()].concat();
            stream.write_all(&[&header, welcome.as_bytes()].concat()).unwrap();
            let mut request = Vec::new();
            let mut buffer = [0; 64];
            while request.len() < 11 {
                match stream.read(&mut buffer).unwrap() {
                    0 => break,
                    n => request.extend_from_slice(&buffer[..n]),
                }
            }
            if request.ends_with(b"\"stop\"") {
                fs::remove_file(&socket).unwrap();
                drop(lock);
                return;
            }
        }
    })
}

#[test]
fn a_supervisor_of_another_version_is_explained_or_replaced() {
    let Some(kept) = Kept::with_box() else { return };
    let owner = kept.owner();
    kept.ok(["sandbox", "rm", "box"]);
    kept.is_clean(owner);

    let other = of_another_version(&kept, 2);
    let line = refusal(&kept.run(["sandbox", "create", "box"]), 4);
    assert!(line.contains("version 9.9.9") && line.contains("process 4711"), "{line}");
    assert!(line.contains("sandbox rm --all"), "{line}");
    let output = kept.run(["sandbox", "list", "--runtime", "native"]);
    assert_eq!(code(&output), 0);
    assert!(err(&output).contains("9.9.9"), "{}", err(&output));
    let output = kept.run(["sandbox", "rm", "--all"]);
    assert_eq!(code(&output), 0, "{}", err(&output));
    other.join().unwrap();

    let other = of_another_version(&kept, 0);
    assert_eq!(kept.ok(["sandbox", "create", "box"]), "box\n");
    other.join().unwrap();
    assert_eq!(kept.exec_ok("echo ours"), "ours\n");
}
