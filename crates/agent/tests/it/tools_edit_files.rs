//! `str_replace_editor` in a real sandbox: exact bytes, and explanations of what cannot be done.
//!
//! Files are written and read without the tool, so that it is not tested by itself.

use lis_agent::tools::Vision;
use sandbox::Spec;
use serde_json::{Value, json};
use trajectory::Content;

use crate::sandboxes::with_sandbox;

fn view(path: &str) -> Value {
    json!({"command": "view", "path": path})
}

fn replace(path: &str, old: &str, new: &str) -> Value {
    json!({"command": "str_replace", "path": path, "old_str": old, "new_str": new})
}

fn insert(path: &str, line: i64, new: &str) -> Value {
    json!({"command": "insert", "path": path, "insert_line": line, "new_str": new})
}

#[test]
fn a_file_is_written_changed_and_read() {
    with_sandbox(&Spec::default(), async |hand| {
        let create =
            json!({"command": "create", "path": "src/a.py", "file_text": "one\n\ttwo\nthree\n"});
        let seen = hand.edit(create.clone()).await;
        assert_eq!(seen, "[/testbed/src/a.py: created; 3 lines, 15 bytes]");
        let seen = hand.edit(create).await;
        assert!(seen.contains("replaced the file that was there"), "{seen}");
        let seen = hand.edit(replace("src/a.py", "\ttwo\n", "\t2\n\t2b\n")).await;
        assert_eq!(
            seen,
            "[/testbed/src/a.py: replaced at line 2; now 4 lines, 17 bytes]\n     \
             1\tone\n     2\t\t2\n     3\t\t2b\n     4\tthree"
        );
        let seen = hand.edit(insert("/testbed/src/a.py", 0, "# top")).await;
        assert!(seen.contains("inserted at line 1") && seen.contains("     1\t# top"), "{seen}");
        assert_eq!(hand.read("/testbed/src/a.py").await, b"# top\none\n\t2\n\t2b\nthree\n");
        let seen =
            hand.edit(json!({"command": "view", "path": "src/a.py", "view_range": [4, -1]})).await;
        assert_eq!(seen, "[/testbed/src/a.py: 5 lines]\n     4\t\t2b\n     5\tthree");
        let gone = json!({"command": "str_replace", "path": "src/a.py", "old_str": "# top\n"});
        hand.edit(gone).await;
        assert_eq!(hand.read("/testbed/src/a.py").await, b"one\n\t2\n\t2b\nthree\n");
    });
}

#[test]
fn bytes_outside_an_edit_survive() {
    with_sandbox(&Spec::default(), async |hand| {
        let cases: [(&[u8], Value, &[u8]); 5] = [
            (
                b"gr\xfc\xdfe\told\n\xff\xfe",
                replace("f", "old", "neu"),
                b"gr\xfc\xdfe\tneu\n\xff\xfe",
            ),
            (b"a\r\nb\r\nc", replace("f", "a\nb", "x\ny"), b"x\r\ny\r\nc"),
            (b"a\r\nb\r\n", insert("f", 1, "new\n"), b"a\r\nnew\r\nb\r\n"),
            (b"no end", insert("f", 1, "more"), b"no end\nmore"),
            (b"mixed\r\nends\nhere\r", replace("f", "ends", "END"), b"mixed\r\nEND\nhere\r"),
        ];
        for (before, edit, after) in cases {
            hand.write("/testbed/f", before).await;
            let seen = hand.edit(edit).await;
            assert_eq!(hand.read("/testbed/f").await, after, "{seen}");
        }
    });
}

#[test]
fn permissions_and_links_survive_an_edit() {
    with_sandbox(&Spec::default(), async |hand| {
        hand.bash("echo 'echo old' > run.sh; chmod 751 run.sh; ln -s run.sh link").await;
        hand.edit(replace("link", "old", "new")).await;
        let seen = hand.bash("stat -c %a run.sh; test -L link && ./run.sh").await;
        assert_eq!(seen, "[exit code 0]\n[stdout]\n751\nnew");
    });
}

#[test]
fn what_cannot_be_replaced_is_explained() {
    with_sandbox(&Spec::default(), async |hand| {
        let file = b"def f():\n\treturn 1\n\ndef g():\n\treturn 1\n";
        hand.write("/testbed/a.py", file).await;
        let cases = [
            (replace("a.py", "return 1", "x"), "occurs 2 times in /testbed/a.py, at lines 2, 5"),
            (
                replace("a.py", "def f():\n    return 1", "x"),
                "only in white space (the file has tabs",
            ),
            (replace("a.py", "def h():", "x"), "closest line"),
            (replace("a.py", "", "x"), "old_str is empty"),
            (replace("a.py", "def", "def"), "the same"),
            (insert("a.py", 6, "x"), "has 5 lines"),
            (insert("a.py", -1, "x"), "has 5 lines"),
            (replace("b.py", "x", "y"), "No such file or directory. Did you mean /testbed/a.py?"),
            (replace("/testbed", "x", "y"), "Is a directory"),
            (replace("~/a.py", "x", "y"), "~ is not expanded"),
            (replace("/proc/version", "Linux", "y"), "/proc/version: "),
            (json!({"command": "create", "path": "/testbed", "file_text": ""}), "Is a directory"),
            (json!({"command": "create", "path": "a.py/b", "file_text": ""}), "Not a directory"),
            (json!({"command": "create", "path": "a\0b", "file_text": ""}), "NUL"),
            (view("/dev/null"), "/dev/null: not a regular file"),
            (view("missing/dir/file"), "/testbed/missing/dir/file: No such file or directory"),
            (json!({"command": "view", "path": "a.py", "view_range": [4, 2]}), "does not fit"),
        ];
        for (call, expected) in cases {
            let seen = hand.refused(call.clone()).await;
            assert!(seen.contains(expected), "{call}: {seen}");
        }
        assert_eq!(hand.read("/testbed/a.py").await, file);
    });
}

#[test]
fn a_long_file_is_shown_in_parts() {
    with_sandbox(&Spec::default(), async |hand| {
        hand.bash("seq -f 'this is line %g' 1 5000 > long.txt").await;
        let mut next = 1;
        let mut call = view("long.txt");
        let mut pages = 0;
        loop {
            let seen = hand.edit(call).await;
            assert!(seen.contains(&format!("\tthis is line {next}\n")), "{seen}");
            assert!(seen.chars().count() < 12_500);
            pages += 1;
            let Some((_, rest)) = seen.split_once("view_range [") else { break };
            let range = rest.split_once(']').expect("a range").0;
            let lines: Vec<i64> = range.split(", ").map(|n| n.parse().expect("a number")).collect();
            next = lines[0];
            call = json!({"command": "view", "path": "long.txt", "view_range": [next, -1]});
        }
        assert!((8..40).contains(&pages), "{pages}");
        hand.bash("head -c 17000000 /dev/zero | tr '\\0' x > huge.txt").await;
        let seen = hand.refused(view("huge.txt")).await;
        assert!(seen.contains("more than 16.0 MiB"), "{seen}");
    });
}

#[test]
fn a_directory_is_shown_two_levels_deep() {
    with_sandbox(&Spec::default(), async |hand| {
        hand.bash("mkdir -p b/c/d .hid; echo x > b/c/d/deep; echo hello > a.txt; echo > b/.secret; ln -s a.txt z").await;
        let seen = hand.edit(view(".")).await;
        assert_eq!(
            seen,
            "[/testbed/.: directory, two levels deep, 2 hidden entries left out]\n\
             a.txt (6 bytes)\nb/\n  c/\nz (link)"
        );
        hand.bash("mkdir many; cd many; for i in $(seq 300); do echo > f$i; done").await;
        let seen = hand.edit(view("/testbed/many")).await;
        assert!(seen.contains("[... 100 more entries ...]"), "{seen}");
        hand.bash("mkdir /testbed/empty").await;
        assert!(hand.edit(view("empty")).await.ends_with("(no entries)"));
    });
}

#[test]
fn images_are_shown_and_binary_files_described() {
    with_sandbox(&Spec::default(), async |mut hand| {
        let gif = b"GIF89a\x0a\0\x14\0;";
        hand.write("/testbed/a.gif", gif).await;
        let seen = hand.edit(view("a.gif")).await;
        assert!(
            seen.contains("GIF picture, 10 x 20 pixels, 11 bytes; pictures cannot be shown"),
            "{seen}"
        );
        hand.tools.vision = Vision::Images;
        let seen = hand.observe("str_replace_editor", view("a.gif")).await;
        let [Content::Text { .. }, Content::Image { media_type, data }] = seen.content.as_slice()
        else {
            panic!("{seen:?}")
        };
        assert_eq!((media_type.as_str(), data.as_str()), ("image/gif", "R0lGODlhCgAUADs="));
        let error = hand.refused(view("/bin/bash")).await;
        assert!(error.contains("ELF program or library, ") && error.contains("iB"), "{error}");
        let error = hand.refused(replace("a.gif", "GIF", "PNG")).await;
        assert!(error.contains("is not text: GIF picture, 11 bytes"), "{error}");
    });
}
