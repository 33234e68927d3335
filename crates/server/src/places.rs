//! Places for requests and for connections that outlive them: so many in all, and no more than a share of them for one caller.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use crate::tokens::Tokens;

/// The places that are taken. Clones are the same places.
#[derive(Clone, Debug)]
pub(crate) struct Places {
    most: usize,
    by_owner: Arc<Mutex<HashMap<Arc<str>, usize>>>,
}

/// A place, free again on drop.
#[derive(Debug)]
pub(crate) struct Place {
    owner: Arc<str>,
    places: Places,
}

impl Places {
    pub(crate) fn new(most: usize) -> Self {
        Self { most, by_owner: Arc::default() }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Arc<str>, usize>> {
        self.by_owner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A place for a caller; `None` where all are taken, or its share is.
    pub(crate) fn take(&self, owner: &Arc<str>, tokens: &Tokens) -> Option<Place> {
        let share = tokens.share_of(self.most);
        let mut by_owner = self.lock();
        let all: usize = by_owner.values().sum();
        let own = by_owner.get(owner).copied().unwrap_or(0);
        if all >= self.most || own >= share {
            return None;
        }
        by_owner.insert(Arc::clone(owner), own + 1);
        drop(by_owner);
        Some(Place { owner: Arc::clone(owner), places: self.clone() })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut by_owner = self.places.lock();
        if let Some(own) = by_owner.get_mut(&self.owner) {
            *own -= 1;
            if *own == 0 {
                by_owner.remove(&self.owner);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use http_server::KeyHash;

    use super::*;
    use crate::{Quotas, Token};

    #[test]
    fn one_caller_leaves_places_for_others() {
        let token = |name: &str| Token {
            name: name.into(),
            key: KeyHash::of(name.as_bytes()),
            quotas: Quotas::default(),
        };
        let two = Tokens::new(vec![token("alice"), token("bob")]).unwrap();
        let places = Places::new(8);
        let (alice, bob) = ("alice".into(), "bob".into());
        let mut taken: Vec<_> = (0..2).map(|_| places.take(&alice, &two).unwrap()).collect();
        assert!(places.take(&alice, &two).is_none());
        let _bobs = places.take(&bob, &two).unwrap();
        taken.pop();
        taken.push(places.take(&alice, &two).unwrap());
        // Alone it has all that are left.
        let one = Tokens::new(vec![token("alice")]).unwrap();
        taken.extend((0..5).map(|_| places.take(&alice, &one).unwrap()));
        assert!(places.take(&alice, &one).is_none());
        drop(taken);
        assert_eq!(places.lock().len(), 1);
    }
}
