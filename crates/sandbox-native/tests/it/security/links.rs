//! Links that change while the caller reads, writes, lists and copies.

use std::{fs, path::Path};

use sandbox::Sandbox;
use tokio::io::AsyncReadExt;

use super::{Ground, ok, on_both, on_the_host, perl_behind, soon};

const ROUNDS: usize = 40;

/// A directory of the host with something in it that must neither be read nor changed.
fn bait() -> tempfile::TempDir {
    let bait = tempfile::Builder::new().prefix("lis-bait-").tempdir().unwrap();
    fs::write(bait.path().join("file"), "the host's").unwrap();
    bait
}

/// Everything below the homes of the runtimes of this test, to notice what appears there.
fn outside(h: &Ground<'_>) -> Vec<String> {
    let runs = h.home.join("run");
    let mut all = Vec::new();
    for run in fs::read_dir(runs).unwrap().flatten() {
        for part in ["", "state", "scratch"] {
            for entry in fs::read_dir(run.path().join(part)).into_iter().flatten().flatten() {
                let name = entry.file_name().display().to_string();
                // Files of earlier sandboxes are removed in the background.
                if !name.starts_with("trash-") {
                    all.push(format!("{part}/{name}"));
                }
            }
        }
    }
    all.sort();
    all
}

/// Swaps `/testbed/a` between a directory, and links to where our own processes' descriptors lead.
fn swapper(targets: &[String]) -> String {
    let targets = targets.iter().map(|t| format!("'{t}'")).collect::<Vec<_>>().join(", ");
    format!(
        "$| = 1; chdir '/testbed'; mkdir 'a'; mkdir 'a/d'; open(my $f, '>', 'a/f'); print $f 'inside'; close $f; \
         open($f, '>', 'a/d/f'); print $f 'inside'; close $f; \
         my @t = ({targets}); my ($a, $b) = ('a', 'b'); symlink($t[0], 'b'); print qq(ready\n); my $i = 0; my $s = time; \
         while (time - $s < 60) {{ syscall({}, -100, $a, -100, $b, 2); \
           if (-l 'b') {{ unlink 'b'; symlink($t[++$i % @t], 'b') }} }}",
        libc::SYS_renameat2
    )
}

/// Whatever a link points to at any moment, nothing outside is read, listed, written or created.
#[test]
fn changing_links_lead_nowhere() {
    on_both(async |h| {
        let bait = bait();
        let sandbox = h.sandbox().await;
        let neighbour = h.sandbox().await;
        ok(&neighbour, "echo secret of the neighbour > /testbed/secret").await;
        let before = outside(h);
        let mut targets = vec![bait.path().display().to_string(), "/proc/1/root".into()];
        for number in 3..12 {
            for up in ["", "/..", "/../.."] {
                targets.push(format!("/proc/self/fd/{number}{up}"));
            }
        }
        perl_behind(&sandbox, &swapper(&targets)).await;
        let out = tempfile::tempdir().unwrap();
        let host_tree = tempfile::tempdir().unwrap();
        fs::create_dir(host_tree.path().join("sub")).unwrap();
        fs::write(host_tree.path().join("sub/planted"), "planted").unwrap();
        for round in 0..ROUNDS {
            if let Ok(mut input) = soon("read", sandbox.read_file("a/f".as_ref())).await {
                let mut text = String::new();
                let mut head = (&mut input).take(100);
                soon("reading", head.read_to_string(&mut text)).await.unwrap();
                assert!(["", "inside", "planted"].contains(&text.as_str()), "{text}");
            }
            if let Ok(entries) = soon("list", sandbox.list("a".as_ref())).await {
                for entry in entries {
                    let name = entry.name.display().to_string();
                    assert!(!name.contains(neighbour.id()) && name != "u0", "listed {name}");
                }
            }
            let _ = soon("write", sandbox.write_file("a/planted".as_ref(), b"planted")).await;
            let _ = soon("write", sandbox.write_file("a/new/planted".as_ref(), b"planted")).await;
            let _ = soon("copy in", sandbox.copy_in(host_tree.path(), "a".as_ref())).await;
            let to = out.path().join(format!("{round}"));
            let _ = soon("copy out", sandbox.copy_out(Path::new("/testbed"), &to)).await;
        }
        let copied = find(out.path());
        assert!(copied.iter().any(|path| path.ends_with("a/f")), "nothing was copied");
        for path in copied {
            assert!(!path.contains(neighbour.id()) && !path.ends_with("secret"), "copied {path}");
        }
        assert_eq!(outside(h), before, "something was made outside the sandbox");
        let left: Vec<_> =
            fs::read_dir(bait.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
        assert_eq!(left, ["file"]);
        assert_eq!(fs::read_to_string(bait.path().join("file")).unwrap(), "the host's");
        assert_eq!(
            ok(&neighbour, "ls /testbed; cat /testbed/secret").await,
            "secret\nsecret of the neighbour\n"
        );
    });
}

fn find(top: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for entry in fs::read_dir(top).into_iter().flatten().flatten() {
        found.push(entry.path().display().to_string());
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            found.extend(find(&entry.path()));
        }
    }
    found
}

/// Without a race: a link to our processes' own descriptors, where the caller writes, lists and copies.
#[test]
fn links_to_our_descriptors_lead_nowhere() {
    on_both(async |h| {
        let sandbox = h.sandbox().await;
        let neighbour = h.sandbox().await;
        let before = outside(h);
        let tree = tempfile::tempdir().unwrap();
        fs::create_dir_all(tree.path().join("made/deep")).unwrap();
        for number in 3..14 {
            for up in ["", "/..", "/../..", "/../../.."] {
                ok(&sandbox, &format!("ln -sfn /proc/self/fd/{number}{up} /testbed/l")).await;
                let _ = soon("write", sandbox.write_file("l/made/by-write".as_ref(), b"x")).await;
                let _ = soon("write", sandbox.write_file("l/by-write".as_ref(), b"x")).await;
                let _ = soon("copy in", sandbox.copy_in(tree.path(), "l".as_ref())).await;
                let entries = soon("list", sandbox.list("l".as_ref())).await.unwrap_or_default();
                for entry in entries {
                    let name = entry.name.display().to_string();
                    assert!(
                        !name.contains(neighbour.id()) && name != "u0",
                        "fd {number}{up}: {name}"
                    );
                }
                assert_eq!(outside(h), before, "by /proc/self/fd/{number}{up}");
            }
        }
    });
}

/// Files that turn into pipes and devices while they are opened neither block nor flood the caller.
#[test]
fn files_that_become_pipes_and_devices() {
    on_the_host(async |h| {
        let sandbox = h.sandbox().await;
        ok(&sandbox, "mkdir t; cd t; for i in {1..100}; do echo regular > r$i; done; mkfifo ../pipe; ln -s /dev/zero ../zero; echo regular > ../regular").await;
        perl_behind(
            &sandbox,
            "$| = 1; chdir '/testbed'; print qq(ready\n); my $s = time; while (time - $s < 60) { \
             for my $from ('pipe', 'regular', 'zero', 'regular') { for my $i (1..100) { \
             if ($from eq 'zero') { symlink('/dev/zero', 'new') } else { link($from, 'new') } rename('new', qq(t/r$i)) } } }",
        )
        .await;
        for round in 0..80 {
            let name = format!("t/r{}", round % 100 + 1);
            if let Ok(mut input) = soon("read", sandbox.read_file(name.as_ref())).await {
                let mut bytes = Vec::new();
                let _ = soon("reading", (&mut input).take(4096).read_to_end(&mut bytes)).await;
                assert!(
                    bytes.is_empty() || bytes == b"regular\n",
                    "{} bytes of a device",
                    bytes.len()
                );
            }
            let to = tempfile::tempdir().unwrap();
            let _ = soon("copy out", sandbox.copy_out("t".as_ref(), &to.path().join("t"))).await;
        }
    });
}
