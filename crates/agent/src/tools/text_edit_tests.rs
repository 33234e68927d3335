//! Edits keep every byte outside them, use the right line endings, and refuse what is ambiguous.
//!
//! Bytes in, bytes out: no sandbox is needed here.

use proptest::prelude::*;

use super::*;

fn replaced(file: &[u8], old: &str, new: &str) -> Vec<u8> {
    replace(file, old, new).expect("one match").bytes
}

fn inserted(file: &[u8], after: usize, new: &str) -> Vec<u8> {
    insert(file, after, new).expect("the line exists").bytes
}

#[test]
fn a_unique_text_is_replaced() {
    assert_eq!(replaced(b"a\tb\nc", "b\nc", "X"), b"a\tX");
    assert_eq!(replaced(b"gr\xfc\xdfe alt \xff", "alt", "neu"), b"gr\xfc\xdfe neu \xff");
    assert_eq!(replaced(b"one\ntwo\n", "two\n", ""), b"one\n");
    let changed = replace(b"one two", "two", "three").expect("one match");
    assert_eq!((changed.new, changed.line_endings), (4..9, LineEndings::AsGiven));
}

#[test]
fn an_ambiguous_text_is_refused() {
    assert_eq!(replace(b"x\ny\nx\n", "x", "z"), Err(EditError::Ambiguous(vec![1, 3])));
    assert_eq!(replace(b"aaa", "aa", "z"), Err(EditError::Ambiguous(vec![1, 1])));
    assert_eq!(replace(b"abc", "d", "z"), Err(EditError::Absent));
    assert_eq!(replace(b"abc", "", "z"), Err(EditError::Absent));
    let many = replace(&b"x\n".repeat(1000), "x", "z");
    assert_eq!(many, Err(EditError::Ambiguous((1..=MAX_MATCHES).collect())));
}

#[test]
fn line_ends_follow_the_file() {
    let dos = b"one\r\ntwo\r\nthree\r\n";
    let changed = replace(dos, "one\ntwo", "1\n2").expect("one match");
    assert_eq!(changed.bytes, b"1\r\n2\r\nthree\r\n");
    assert_eq!(changed.line_endings, LineEndings::ConvertedToCrlf);
    assert_eq!(replaced(dos, "two", "2\n2b"), b"one\r\n2\r\n2b\r\nthree\r\n");
    assert_eq!(replaced(dos, "two\r\n", "2\r\n"), b"one\r\n2\r\nthree\r\n");
    assert_eq!(replaced(b"one\r\nlast", "last", "a\nb"), b"one\r\na\r\nb");
    assert_eq!(replaced(b"one\ntwo\r\n", "one", "a\nb"), b"a\nb\ntwo\r\n");
    assert_eq!(replaced(b"one\ntwo", "one", "a\r\nb"), b"a\r\nb\ntwo");
    assert_eq!(replace(b"one\ntwo", "one\r\ntwo", "x"), Err(EditError::Absent));
    assert_eq!(inserted(dos, 1, "new"), b"one\r\nnew\r\ntwo\r\nthree\r\n");
    assert_eq!(inserted(dos, 0, "a\nb\n"), b"a\r\nb\r\none\r\ntwo\r\nthree\r\n");
    assert_eq!(replaced(dos, "\ntwo", " 2"), b"one 2\r\nthree\r\n");
    // A text with mixed line endings where the given one occurs exactly.
    assert_eq!(replaced(b"a\nb\r\nc\r\n", "a\nb", "x\ny"), b"x\ny\r\nc\r\n");
}

#[test]
fn lines_are_inserted() {
    assert_eq!(inserted(b"", 0, "a"), b"a\n");
    assert_eq!(inserted(b"a\n", 0, "b\n"), b"b\na\n");
    assert_eq!(inserted(b"\na\n", 1, "b"), b"\nb\na\n");
    assert_eq!(inserted(b"a\nc\n", 1, "b"), b"a\nb\nc\n");
    assert_eq!(inserted(b"a\n", 1, "b"), b"a\nb\n");
    assert_eq!(inserted(b"a", 1, "b"), b"a\nb");
    assert_eq!(inserted(b"a", 1, "b\n"), b"a\nb\n");
    assert_eq!(inserted(b"a\r\nb", 2, "c"), b"a\r\nb\r\nc");
    assert_eq!(inserted(b"a\n", 1, ""), b"a\n\n");
    let at_the_end = insert(b"a", 1, "b").expect("the line exists");
    assert_eq!(at_the_end.new, 2..3);
    for after in [2, 3, usize::MAX] {
        assert_eq!(insert(b"a\n", after, "b"), None);
    }
    assert_eq!(insert(b"", 1, "b"), None);
}

#[test]
fn lines_are_counted() {
    for (file, count) in [("", 0), ("a", 1), ("a\n", 1), ("\n", 1), ("a\nb", 2), ("\n\n", 2)] {
        assert_eq!(count_lines(file.as_bytes()), count, "{file:?}");
        assert_eq!(lines(file.as_bytes()).count(), count, "{file:?}");
    }
    assert_eq!(line_of(b"a\nb\nc", 4), 3);
    assert_eq!(lines(b"a\r\n\xff\n").collect::<Vec<_>>(), [&b"a"[..], b"\xff"]);
}

#[test]
fn long_texts_are_quick() {
    let begun = std::time::Instant::now();
    let same = vec![b'a'; 4 << 20];
    let half = "a".repeat(2 << 20);
    assert!(matches!(replace(&same, &half, ""), Err(EditError::Ambiguous(_))));
    assert_eq!(replace(&same, &(half + "b"), ""), Err(EditError::Absent));
    let lines = b"a\n".repeat(2 << 20);
    assert!(insert(&lines, 2 << 20, "end").is_some());
    assert!(begun.elapsed().as_secs() < 30);
}

proptest! {
    #[test]
    fn a_replacement_keeps_all_other_bytes(
        before in prop::collection::vec(any::<u8>(), 0..60),
        after in prop::collection::vec(any::<u8>(), 0..60),
        new in "(\\PC|\n|\r\n){0,20}",
    ) {
        let old = "<unique text ü>";
        let file = [&before, old.as_bytes(), &after].concat();
        prop_assume!(memmem::find_iter(&file, old).count() == 1);
        let changed = replace(&file, old, &new).expect("one match");
        prop_assert_eq!(&changed.bytes[..changed.new.start], &before);
        prop_assert_eq!(&changed.bytes[changed.new.end..], &after);
        let text = String::from_utf8(changed.bytes[changed.new].to_vec()).expect("text");
        prop_assert_eq!(text.replace("\r\n", "\n"), new.replace("\r\n", "\n"));
    }

    #[test]
    fn an_insertion_keeps_all_other_bytes(
        file in prop::collection::vec(prop_oneof![Just(b'\n'), Just(b'\r'), any::<u8>()], 0..80),
        new in "([a-z]|\n){0,20}",
        pick in any::<prop::sample::Index>(),
    ) {
        let count = count_lines(&file);
        let after = pick.index(count + 1);
        let changed = insert(&file, after, &new).expect("the line exists");
        let Range { start, end } = changed.new;
        prop_assert_eq!(&changed.bytes[end..], &file[file.len() - (changed.bytes.len() - end)..]);
        let kept = file.len() - (changed.bytes.len() - end);
        prop_assert!(changed.bytes.starts_with(&file[..kept]));
        prop_assert!(start - kept <= 2);
        prop_assert_eq!(line_of(&changed.bytes, start), after + 1);
        prop_assert_eq!(insert(&file, count + 1, &new), None);
    }

    #[test]
    fn any_bytes_and_texts_are_handled(
        file in prop::collection::vec(prop_oneof![Just(b'\n'), Just(b'\r'), Just(b'a')], 0..40),
        old in "[a\r\n]{0,3}",
        new in "[a\r\n]{0,3}",
    ) {
        if let Ok(changed) = replace(&file, &old, &new) {
            let old_len = file.len() + changed.new.len() - changed.bytes.len();
            prop_assert_eq!(&file[..changed.new.start], &changed.bytes[..changed.new.start]);
            prop_assert_eq!(&file[changed.new.start + old_len..], &changed.bytes[changed.new.end..]);
        }
    }
}
