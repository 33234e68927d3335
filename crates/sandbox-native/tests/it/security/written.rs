//! Files that commands change: found whoever changed them, at little cost, whatever the tree is like.

use std::{path::Path, time::Instant};

use sandbox::{MAX_WRITTEN, Sandbox, Written, WrittenState};

use super::{ok, on_both};

async fn written(sandbox: &impl Sandbox, since: u64) -> Written {
    sandbox.written(Path::new("/testbed"), since).await.unwrap().unwrap()
}

fn names(written: &Written) -> Vec<(String, WrittenState)> {
    let all = written.files.iter().map(|file| (file.path.display().to_string(), file.state));
    let mut all: Vec<_> = all.collect();
    all.sort_by(|a, b| a.0.cmp(&b.0));
    all
}

/// Files that commands change are found, though they set back the times of files and remove those of the image.
#[test]
fn what_commands_change_is_reported() {
    on_both(async |h| {
        let sandbox = h.sandbox().await;
        ok(&sandbox, "cd /testbed && mkdir -p a/b .git && echo one > a/b/x && echo two > y && ln -s y z && echo n > .git/n").await;
        let first = written(&sandbox, 0).await;
        let file = |name: &str| (name.to_owned(), WrittenState::File);
        let expected = [file("a/b/x"), file("y"), ("z".to_owned(), WrittenState::Link)];
        assert_eq!(names(&first), expected);
        let x = first.files.iter().find(|file| file.path == Path::new("a/b/x")).unwrap();
        assert_eq!(x.content.as_deref(), Some(&b"one\n"[..]));
        assert!(x.is_new, "{x:?}");

        // A program that changes files on its own, with the time of the change set back.
        ok(
            &sandbox,
            "cd /testbed && sed -i s/one/three/ a/b/x && touch -d 2001-01-01 a/b/x && rm y",
        )
        .await;
        let latest = first.files.iter().map(|file| file.changed).max().unwrap();
        let second = written(&sandbox, latest).await;
        assert_eq!(names(&second), [file("a/b/x"), ("z".to_owned(), WrittenState::Link)]);
        let x = second.files.iter().find(|file| file.path == Path::new("a/b/x")).unwrap();
        assert_eq!(x.content.as_deref(), Some(&b"three\n"[..]));

        // Files of the image that are removed or written again.
        let hosts = sandbox.written(Path::new("/etc"), 0).await.unwrap().unwrap();
        assert!(hosts.files.iter().all(|file| file.path != Path::new("passwd")));
        ok(&sandbox, "rm /etc/passwd; echo new > /etc/group").await;
        let etc = sandbox.written(Path::new("/etc"), 0).await.unwrap().unwrap();
        let state = |name: &str| {
            let found = etc.files.iter().find(|file| file.path == Path::new(name));
            found.map(|file| (file.state, file.is_new))
        };
        assert_eq!(state("passwd"), Some((WrittenState::Removed, false)));
        assert_eq!(state("group"), Some((WrittenState::File, false)));
        sandbox.destroy().await.unwrap();
    });
}

/// Looking for changed files takes milliseconds in a tree of pipes, links, huge files and many directories, and leads nowhere
/// else.
#[test]
fn hostile_trees_cost_little() {
    on_both(async |h| {
        let sandbox = h.sandbox().await;
        ok(
            &sandbox,
            "cd /testbed && mkfifo pipe && ln -s / root && ln -s loop loop && truncate -s 500M huge && mkdir -m 0 closed \
             && perl -e 'mkdir q(d); for (1..20000) { open(my $f, q(>), qq(d/$_)) or die }' \
             && perl -e 'for (1..200) { mkdir q(e); chdir q(e) or die }'",
        )
        .await;
        let mut best = u128::MAX;
        for _ in 0..5 {
            let began = Instant::now();
            let all = written(&sandbox, 0).await;
            best = best.min(began.elapsed().as_millis());
            assert!(!all.complete && all.files.len() <= MAX_WRITTEN);
            assert!(all.files.iter().all(|file| file.path != Path::new("pipe")));
            assert!(all.files.iter().all(|file| !file.path.starts_with("root/etc")));
        }
        println!("a hostile tree: {best} ms");
        assert!(best < 500, "{best} ms");

        // The directory itself is replaced by a link out of it.
        ok(&sandbox, "cd / && mv /testbed /old && ln -s /proc /testbed").await;
        let proc = sandbox.written(Path::new("/testbed"), 0).await.unwrap().unwrap();
        assert_eq!(proc.files, []);
        sandbox.destroy().await.unwrap();
    });
}

/// Looking for changed files in a normal tree takes a moment; how long is printed.
#[test]
fn a_normal_tree_costs_a_moment() {
    on_both(async |h| {
        let sandbox = h.sandbox().await;
        ok(&sandbox, "cd /testbed && for i in $(seq 100); do echo $i > f$i; done").await;
        let first = written(&sandbox, 0).await;
        let latest = first.files.iter().map(|file| file.changed).max().unwrap() + 1;
        let mut times = Vec::new();
        for _ in 0..30 {
            let began = Instant::now();
            let seen = written(&sandbox, latest).await;
            // Its time is limited, and a busy machine may need more.
            if seen.complete {
                times.push(began.elapsed().as_micros());
                assert_eq!(seen.files.len(), 100);
            }
        }
        assert!(!times.is_empty(), "no search ended in its time");
        times.sort_unstable();
        println!("100 files: median {} µs, fastest {} µs", times[times.len() / 2], times[0]);
        assert!(times[0] < 100_000, "{times:?}");
        sandbox.destroy().await.unwrap();
    });
}
