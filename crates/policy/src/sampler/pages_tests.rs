//! Pages are shared, copied before they are written to, and returned.

use super::*;

fn lists(pages: usize) -> PageLists {
    let mut lists = PageLists::new(3);
    lists.add(pages);
    lists
}

/// Writes positions `0..tokens` of a slot.
fn write(lists: &mut PageLists, slot: usize, tokens: usize) {
    for position in 0..tokens {
        lists.writable(slot, position).unwrap();
    }
}

#[test]
fn a_page_is_taken_when_its_first_token_is_written() {
    let mut lists = lists(3);
    assert_eq!(lists.writable(0, 0), Some(Writable::Own(0)));
    assert_eq!(lists.writable(0, PAGE - 1), Some(Writable::Own(0)));
    assert_eq!(lists.writable(0, PAGE), Some(Writable::Own(1)));
    assert_eq!(lists.writable(1, 0), Some(Writable::Own(2)));
    assert_eq!(lists.writable(1, PAGE), None, "there are no more");
    lists.add(1);
    assert_eq!(lists.writable(1, PAGE), Some(Writable::Own(3)));
    assert_eq!((lists.total(), lists.free()), (4, 0));
}

#[test]
fn pages_beyond_the_tokens_are_returned() {
    let mut lists = lists(4);
    write(&mut lists, 0, 3 * PAGE);
    lists.truncate(0, PAGE + 1);
    assert_eq!((lists.of(0), lists.free()), (&[0, 1][..], 2));
    lists.truncate(0, 0);
    assert_eq!((lists.of(0).len(), lists.free()), (0, 4));
}

#[test]
fn a_shared_page_is_copied_by_whoever_writes_first() {
    let mut lists = lists(6);
    write(&mut lists, 0, PAGE + 10);
    write(&mut lists, 1, 1);
    lists.share(0, 1, PAGE + 5);
    assert_eq!((lists.of(1), lists.free()), (&[0, 1][..], 4), "its own page is returned");
    let copied = lists.writable(1, PAGE + 5).unwrap();
    let Writable::Copied { from: 1, to } = copied else { panic!("{copied:?}") };
    assert_eq!(lists.of(1), [0, to]);
    assert_eq!(lists.writable(0, PAGE + 10), Some(Writable::Own(1)), "nobody else has it now");
    lists.truncate(0, 0);
    assert_eq!(lists.writable(1, 3), Some(Writable::Own(0)));
    lists.truncate(1, 0);
    assert_eq!(lists.free(), 6);
}

#[test]
fn a_full_cache_changes_nothing() {
    let mut lists = lists(1);
    write(&mut lists, 0, 3);
    lists.share(0, 1, 3);
    assert_eq!(lists.writable(1, 3), None, "there is no page to copy to");
    assert_eq!((lists.of(0), lists.of(1)), (&[0][..], &[0][..]));
    lists.clear();
    assert_eq!((lists.total(), lists.of(0).len()), (0, 0));
}

#[test]
fn the_pages_of_new_tokens_are_counted_with_the_copy_of_a_shared_one() {
    let mut lists = lists(8);
    assert_eq!(lists.missing(0, 0, 1), 1);
    assert_eq!(lists.missing(0, 0, 3 * PAGE), 3);
    write(&mut lists, 0, PAGE + 5);
    assert_eq!(lists.missing(0, PAGE + 5, 2 * PAGE), 0, "its own page has room");
    assert_eq!(lists.missing(0, PAGE + 5, 2 * PAGE + 1), 1);
    lists.share(0, 1, PAGE + 5);
    assert_eq!(lists.missing(1, PAGE + 5, 2 * PAGE), 1, "the shared page is copied");
    assert_eq!(lists.missing(1, PAGE + 5, PAGE + 5), 0, "nothing is written");
    lists.truncate(1, PAGE);
    assert_eq!(lists.missing(1, PAGE, 2 * PAGE), 1, "a full shared page is only read");
    for (slot, begin, end) in [(0, PAGE + 5, 3 * PAGE), (1, PAGE, PAGE + 1), (2, 0, 2)] {
        let (missing, free) = (lists.missing(slot, begin, end), lists.free());
        for position in begin..end {
            lists.writable(slot, position).unwrap();
        }
        assert_eq!(free - lists.free(), missing, "{slot}");
    }
}
