//! All episodes of a directory in memory: a few bytes for each, in one piece, because a server that runs for long has very many
//! that ended. Those that somebody plays, follows or asks about are [`Entry`]s meanwhile.

use std::{collections::BTreeMap, sync::Arc};

use crate::{
    State,
    live::{Entry, Standing},
};

/// Episodes, by id.
#[derive(Debug, Default)]
pub(crate) struct Index {
    /// Every episode, sorted. Where it has an entry as well, that says where it stands.
    all: Vec<Row>,
    entries: BTreeMap<Id, Arc<Entry>>,
}

/// An id without its prefix, as bytes.
type Id = [u8; ID_LENGTH];

/// The prefix of every id.
pub(crate) const PREFIX: &str = "ep_";
/// Characters of an id after its prefix.
pub(crate) const ID_LENGTH: usize = 29;

#[derive(Debug)]
struct Row {
    id: Id,
    owner: Arc<str>,
    standing: Standing,
}

/// The bytes of an id; `None` if it cannot be one.
fn parse(id: &str) -> Option<Id> {
    id.strip_prefix(PREFIX)?.as_bytes().try_into().ok()
}

fn text(id: &Id) -> String {
    format!("{PREFIX}{}", String::from_utf8_lossy(id))
}

impl Index {
    /// The number of episodes.
    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    /// Adds an episode that nobody plays. An invalid id is ignored.
    pub(crate) fn add(&mut self, id: &str, owner: Arc<str>, standing: Standing) {
        let Some(id) = parse(id) else { return };
        let row = Row { id, owner, standing };
        // New ids are greater than older ones, save those of the same moment.
        match self.all.binary_search_by_key(&id, |row| row.id) {
            Ok(at) => self.all[at] = row,
            Err(at) => self.all.insert(at, row),
        }
    }

    /// The entry of an episode. It is the same for all who ask for it until none of them has it any more.
    pub(crate) fn entry(&mut self, id: &str) -> Option<Arc<Entry>> {
        let id = parse(id)?;
        if let Some(entry) = self.entries.get(&id) {
            return Some(Arc::clone(entry));
        }
        self.settle();
        let at = self.all.binary_search_by_key(&id, |row| row.id).ok()?;
        let row = &self.all[at];
        let entry = Arc::new(Entry::new(Arc::clone(&row.owner), row.standing));
        self.entries.insert(id, Arc::clone(&entry));
        Some(entry)
    }

    /// Forgets entries that nobody has, but for what they say.
    fn settle(&mut self) {
        let all = &mut self.all;
        self.entries.retain(|id, entry| {
            let is_used = Arc::strong_count(entry) > 1
                || entry.state() == State::Running
                || entry.has_unstored();
            if !is_used && let Ok(at) = all.binary_search_by_key(id, |row| row.id) {
                all[at].standing = entry.standing();
            }
            is_used
        });
    }

    /// Removes an episode.
    pub(crate) fn remove(&mut self, id: &str) {
        let Some(id) = parse(id) else { return };
        self.entries.remove(&id);
        if let Ok(at) = self.all.binary_search_by_key(&id, |row| row.id) {
            self.all.remove(at);
        }
    }

    /// The entries, with all episodes that are being played.
    pub(crate) fn entries(&self) -> impl Iterator<Item = &Arc<Entry>> {
        self.entries.values()
    }

    /// The episodes of an owner, newest first, those older than `before`, with where they stand.
    pub(crate) fn owned<'a>(
        &'a self,
        owner: &'a str,
        before: Option<&str>,
    ) -> impl Iterator<Item = (String, Standing)> + 'a {
        let without_prefix = |id: &str| id.strip_prefix(PREFIX).unwrap_or(id).to_owned();
        let before = before.map(without_prefix);
        let end = before.map_or(self.all.len(), |before| {
            self.all.partition_point(|row| row.id.as_slice() < before.as_bytes())
        });
        let rows = self.all[..end].iter().rev().filter(move |row| *row.owner == *owner);
        rows.filter_map(|row| match self.entries.get(&row.id) {
            Some(entry) if entry.is_removed() => None,
            Some(entry) => Some((text(&row.id), entry.standing())),
            None => Some((text(&row.id), row.standing)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(number: u32) -> String {
        format!("{PREFIX}{number:0ID_LENGTH$}")
    }

    const FINISHED: Standing = Standing { state: State::Finished, outcome: Some("answered") };

    fn index(count: u32) -> Index {
        let mut index = Index::default();
        let (odd, even): (Arc<str>, Arc<str>) = ("odd".into(), "even".into());
        for number in 0..count {
            let owner = if number % 2 == 0 { &even } else { &odd };
            index.add(&id(number), Arc::clone(owner), FINISHED);
        }
        index
    }

    #[test]
    fn episodes_that_nobody_asks_about_have_no_entry() {
        let mut index = index(100);
        assert_eq!((index.len(), index.entries().count()), (100, 0));
        for number in 0..100 {
            assert_eq!(index.entry(&id(number)).unwrap().standing(), FINISHED);
        }
        assert_eq!(index.entries().count(), 1, "all but the last were let go");
        assert!(std::mem::size_of::<Row>() <= 72);
    }

    #[test]
    fn all_who_have_an_entry_have_the_same() {
        let mut index = index(3);
        let (one, other) = (index.entry(&id(1)).unwrap(), index.entry(&id(1)).unwrap());
        assert!(Arc::ptr_eq(&one, &other));
        one.end(Standing::INTERRUPTED);
        index.entry(&id(2)).unwrap();
        assert_eq!(other.standing(), Standing::INTERRUPTED);
        drop((one, other));
        // Let go, and made again.
        index.entry(&id(2)).unwrap();
        assert_eq!(index.entry(&id(1)).unwrap().standing(), Standing::INTERRUPTED);
        // One that is played is not let go by who plays it, nor by this.
        index.entry(&id(1)).unwrap().begin().unwrap();
        index.entry(&id(2)).unwrap();
        assert_eq!(index.entry(&id(1)).unwrap().state(), State::Running);
    }

    /// Ids begin with the time of day.
    #[test]
    fn ids_of_a_clock_that_was_set_back_are_listed_once() {
        let mut index = Index::default();
        let owner: Arc<str> = "me".into();
        for number in [7, 9, 3, 8, 1] {
            index.add(&id(number), Arc::clone(&owner), FINISHED);
        }
        let next = |index: &Index, last: Option<&String>| {
            let found = index.owned("me", last.map(String::as_str)).next();
            found.map(|(id, _)| id)
        };
        let mut found: Vec<String> = Vec::new();
        while let Some(id_found) = next(&index, found.last()) {
            found.push(id_found);
            // One that is added between two pages disturbs neither.
            index.add(&id(20 + found.len() as u32), Arc::clone(&owner), FINISHED);
        }
        assert_eq!(found, [9, 8, 7, 3, 1].map(id));
        assert_eq!(index.entry(&id(3)).unwrap().standing(), FINISHED);
    }

    #[test]
    fn an_owner_sees_its_own_newest_first() {
        let mut index = index(6);
        let listed = |index: &Index, before: Option<&str>| -> Vec<String> {
            index.owned("odd", before).map(|(id, _)| id).collect()
        };
        assert_eq!(listed(&index, None), [id(5), id(3), id(1)]);
        assert_eq!(listed(&index, Some(&id(3))), [id(1)]);
        assert_eq!(listed(&index, Some("nonsense")), [id(5), id(3), id(1)]);
        let removed = index.entry(&id(3)).unwrap();
        removed.remove().unwrap();
        assert_eq!(listed(&index, None), [id(5), id(1)]);
        index.remove(&id(3));
        assert!(index.entry(&id(3)).is_none() && index.len() == 5);
        for nonsense in ["", "ep_", "ep_x", "../x"] {
            assert!(index.entry(nonsense).is_none());
        }
    }
}
