//! Memory that all callers share, of which one of several leaves some to the others.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use http_server::MemoryBudget;

use crate::tokens::{Caller, Tokens};

/// A budget, and the parts of several callers in it.
#[derive(Debug)]
pub(crate) struct SharedMemory {
    all: MemoryBudget,
    parts: Mutex<HashMap<Arc<str>, MemoryBudget>>,
}

impl SharedMemory {
    /// This many bytes.
    pub(crate) fn new(bytes: usize) -> Self {
        Self { all: MemoryBudget::new(bytes), parts: Mutex::default() }
    }

    fn parts(&self) -> MutexGuard<'_, HashMap<Arc<str>, MemoryBudget>> {
        self.parts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// For requests without a caller.
    pub(crate) fn all(&self) -> &MemoryBudget {
        &self.all
    }

    /// For a caller.
    pub(crate) fn of(&self, caller: &Caller, tokens: &Tokens) -> MemoryBudget {
        if !tokens.are_several() {
            return self.all.clone();
        }
        let mut parts = self.parts();
        parts.entry(Arc::clone(&caller.name)).or_insert_with(|| self.all.part()).clone()
    }

    /// Forgets the parts of callers that are gone.
    pub(crate) fn forget_gone(&self, tokens: &Tokens) {
        self.parts().retain(|owner, _| tokens.has(owner));
    }
}
