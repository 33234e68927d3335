//! Forks, which have the same files, and file systems saved as images.

use std::path::Path;

use sandbox::{Error, ImageRef, Runtime, Sandbox, Spec};

use crate::{
    Harness,
    harness::chain,
    support::{ok, read, running, sh, write},
};

async fn fork<S: Sandbox>(sandbox: &S) -> S {
    sandbox.fork().await.unwrap_or_else(|e| panic!("fork: {}", chain(&e)))
}

/// A fork starts with the same files; afterwards neither sees what the other does.
pub async fn fork_has_the_same_files_and_is_independent<R: Runtime>(h: &Harness<R>) {
    let one = h.sandbox().await;
    ok(&one, "echo both > /testbed/f; mkdir -p /opt/x; echo deep > /opt/x/y; chmod 700 /opt/x")
        .await;
    let two = fork(&one).await;
    assert_ne!(one.id(), two.id());
    assert_eq!(ok(&two, "cat /testbed/f /opt/x/y; stat -c %a /opt/x").await, "both\ndeep\n700\n");
    write(&one, "/testbed/f", b"one").await;
    ok(&two, "echo two > /testbed/f; rm /opt/x/y; echo new > /opt/x/z").await;
    assert_eq!(read(&one, "/testbed/f").await, b"one");
    assert_eq!(ok(&one, "ls /opt/x").await, "y\n");
    assert_eq!(ok(&two, "cat /testbed/f; ls /opt/x").await, "two\nz\n");
    two.destroy().await.expect("the fork goes");
    assert_eq!(ok(&one, "cat /testbed/f").await, "one");
}

/// A fork has the same variables, directory and limits to start with.
pub async fn fork_keeps_the_specification<R: Runtime>(h: &Harness<R>) {
    let env = vec![("KEPT".into(), "yes".into())];
    let one = h.create(&Spec { env, workdir: "/work/here".into(), ..h.spec() }).await;
    let two = fork(&one).await;
    assert_eq!(ok(&two, "pwd; echo $KEPT").await, "/work/here\nyes\n");
    assert_eq!(two.protection(), one.protection());
}

/// Processes and shell state stay where they are.
pub async fn fork_leaves_processes_and_shell_state<R: Runtime>(h: &Harness<R>) {
    let one = h.sandbox().await;
    ok(&one, "sleep 38001 & local_only=1; cd /usr; f() { :; }").await;
    let two = fork(&one).await;
    assert_eq!(running(&two, "sleep 38001").await, 0);
    assert_eq!(ok(&two, "echo ${local_only-none}; pwd").await, "none\n/testbed\n");
    assert_eq!(sh(&two, "f").await.status.code(), 127);
    assert_eq!(running(&one, "sleep 38001").await, 1);
    assert_eq!(ok(&one, "echo $local_only; pwd").await, "1\n/usr\n");
}

/// Forks of forks still work when their parents are gone.
pub async fn fork_of_a_fork_outlives_its_parents<R: Runtime>(h: &Harness<R>) {
    let mut last = h.sandbox().await;
    for generation in 0..4 {
        ok(&last, format!("echo {generation} > /testbed/g{generation}")).await;
        let next = fork(&last).await;
        last.destroy().await.unwrap_or_else(|e| panic!("destroy: {}", chain(&e)));
        last = next;
    }
    assert_eq!(
        ok(&last, "cat /testbed/g*; echo more > /testbed/g0; cat /testbed/g0").await,
        "0\n1\n2\n3\nmore\n"
    );
}

/// What was deleted or replaced before a fork stays so in it.
pub async fn deleted_files_stay_deleted_in_a_fork<R: Runtime>(h: &Harness<R>) {
    let one = h.sandbox().await;
    // Both a file of the image and one of our own vanish; a directory is replaced by a file and back.
    ok(&one, "echo a > /testbed/a; mkdir /testbed/d; echo x > /testbed/d/x; mv /etc/passwd /testbed/passwd").await;
    let two = fork(&one).await;
    ok(&two, "rm /testbed/a; rm -r /testbed/d; mkdir /testbed/d; echo y > /testbed/d/y").await;
    let three = fork(&two).await;
    assert_eq!(
        ok(&three, "ls /testbed /testbed/d").await,
        "/testbed:\nd\npasswd\n\n/testbed/d:\ny\n"
    );
    ok(&three, "! [ -e /etc/passwd ]").await;
    assert_eq!(
        ok(&one, "ls /testbed /testbed/d").await,
        "/testbed:\na\nd\npasswd\n\n/testbed/d:\nx\n"
    );
}

/// A saved file system is an image like any other.
pub async fn snapshot_starts_further_sandboxes<R: Runtime>(h: &Harness<R>) {
    if !h.caps.snapshot.or_skip("snapshot") {
        return;
    }
    let name = format!("lis-conformance-{}", std::process::id());
    let one = h.sandbox().await;
    ok(&one, "echo kept > /testbed/f; mv /etc/passwd /etc/passwd-moved").await;
    one.snapshot(&name).await.unwrap_or_else(|e| panic!("snapshot: {}", chain(&e)));
    ok(&one, "echo changed > /testbed/f").await;
    let spec = Spec { image: ImageRef::Name(name.clone()), ..h.spec() };
    let two = h.create(&spec).await;
    one.destroy().await.expect("the first goes");
    let three = h.create(&spec).await;
    ok(&two, "echo two > /testbed/f").await;
    let shown = ok(&three, "cat /testbed/f; [ -e /etc/passwd ] || ls /etc/passwd-moved").await;
    assert_eq!(shown, "kept\n/etc/passwd-moved\n");
    assert_eq!(read(&two, Path::new("/testbed/f")).await, b"two\n");
    two.destroy().await.expect("the second goes");
    three.destroy().await.expect("the third goes");
    if let Some(remove) = h.remove_image {
        remove(h.runtime.clone(), name).await;
    }
}

/// A name that no image can have is refused with the reason, and the sandbox stays usable.
pub async fn snapshot_needs_the_name_of_an_image<R: Runtime>(h: &Harness<R>) {
    if !h.caps.snapshot.or_skip("snapshot") {
        return;
    }
    let one = h.sandbox().await;
    for name in ["not a name", "", "a/../b", "-option", "caf\u{e9}", &"x".repeat(300)] {
        match one.snapshot(name).await {
            Err(error @ Error::BadRequest(_)) => {
                let text = chain(&error);
                assert!(!text.contains("Broken pipe"), "{name:?}: {text}");
            }
            other => panic!("{name:?}: {:?}", other.map_err(|error| chain(&error))),
        }
    }
    assert_eq!(ok(&one, "echo usable").await, "usable\n");
    one.destroy().await.expect("the sandbox goes");
}
