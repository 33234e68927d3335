//! Who may use the server: named tokens, and the caller that a request's key stands for.

use std::{
    collections::BTreeSet,
    fmt,
    sync::{Arc, PoisonError, RwLock, RwLockReadGuard},
};

use http_server::KeyHash;
use sandbox::Limits;
use tokio::sync::watch;

use crate::quota::{Account, OverQuota, Quotas};

/// The name of the only caller of a server without named tokens.
pub const DEFAULT_TOKEN: &str = "default";
/// Longest name of a token: names are part of logs and metrics.
const MAX_NAME: usize = 64;

/// A token: the key that a client sends, and what it may use.
#[derive(Clone, Debug)]
pub struct Token {
    /// Its name, for logs and as the owner of what it makes.
    pub name: String,
    /// The hash of its key.
    pub key: KeyHash,
    /// What it may use.
    pub quotas: Quotas,
}

/// Why tokens are not accepted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    /// A name is empty, too long, or has characters other than letters, digits, `-`, `_` and `.`.
    #[error("the name `{0}` of a token must have 1 to {MAX_NAME} letters, digits, `-`, `_` or `.`")]
    Name(String),
    /// Two tokens have one name.
    #[error("two tokens are called `{0}`")]
    SameName(String),
    /// Two tokens have one key.
    #[error("the tokens `{0}` and `{1}` have the same key")]
    SameKey(String, String),
}

/// The tokens that a server accepts. Clones are the same tokens: a program can replace them while the server runs.
#[derive(Clone)]
pub struct Tokens {
    shared: Arc<Shared>,
}

struct Shared {
    access: RwLock<Access>,
    changed: watch::Sender<()>,
}

enum Access {
    /// Any key, and none.
    Open(Caller),
    /// These.
    Tokens(Vec<Known>),
}

struct Known {
    key: KeyHash,
    caller: Caller,
}

impl Known {
    fn token(&self) -> Token {
        let name = self.caller.name.to_string();
        Token { name, key: self.key, quotas: self.caller.account.quotas() }
    }
}

impl Default for Tokens {
    /// Any key is accepted, which is fit for a loopback address only.
    fn default() -> Self {
        Self::with(Access::Open(Caller::new(DEFAULT_TOKEN, Quotas::default())))
    }
}

impl Tokens {
    /// These tokens and no others; without any, nobody is let in.
    ///
    /// # Errors
    /// If a name or a key is there twice, or a name is not acceptable.
    pub fn new(tokens: Vec<Token>) -> Result<Self, TokenError> {
        let new = Self::with(Access::Tokens(Vec::new()));
        new.replace(tokens)?;
        Ok(new)
    }

    fn with(access: Access) -> Self {
        let shared = Shared { access: RwLock::new(access), changed: watch::Sender::new(()) };
        Self { shared: Arc::new(shared) }
    }

    /// Accepts these tokens from now on. One that keeps its name keeps what it owns and has used; the sandboxes of one
    /// that is gone end.
    ///
    /// # Errors
    /// As [`Self::new`]; then nothing changes.
    pub fn replace(&self, tokens: Vec<Token>) -> Result<(), TokenError> {
        check(&tokens)?;
        let mut access = self.shared.access.write().unwrap_or_else(PoisonError::into_inner);
        let known = tokens.into_iter().map(|token| {
            let caller = match access.named(&token.name) {
                Some(caller) => {
                    caller.account.set_quotas(token.quotas);
                    caller
                }
                None => Caller::new(&token.name, token.quotas),
            };
            Known { key: token.key, caller }
        });
        *access = Access::Tokens(known.collect());
        drop(access);
        self.shared.changed.send_replace(());
        Ok(())
    }

    /// Accepts one more token. Where any key was accepted, this one is from now on the only one.
    pub(crate) fn add(&self, token: Token) -> Result<(), TokenError> {
        let mut tokens = match &*self.read() {
            Access::Open(_) => Vec::new(),
            Access::Tokens(known) => known.iter().map(Known::token).collect(),
        };
        tokens.push(token);
        self.replace(tokens)
    }

    fn read(&self) -> RwLockReadGuard<'_, Access> {
        self.shared.access.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whose key this is. All keys are compared, so that the time says nothing about them.
    pub(crate) fn caller(&self, key: Option<&[u8]>) -> Result<Caller, KeyError> {
        let access = self.read();
        let known = match &*access {
            Access::Open(caller) => return Ok(caller.clone()),
            Access::Tokens(known) => known,
        };
        let sent = KeyHash::of(key.ok_or(KeyError::Missing)?);
        let mut found = None;
        for token in known {
            if token.key.same(&sent) {
                found = Some(&token.caller);
            }
        }
        found.cloned().ok_or(KeyError::Wrong)
    }

    /// Whether this is the key of a token. Where any key is accepted, none is one.
    pub(crate) fn has_key(&self, key: &[u8]) -> bool {
        let open = matches!(&*self.read(), Access::Open(_));
        !open && self.caller(Some(key)).is_ok()
    }

    /// The names of all tokens; where any key is accepted, that of the only caller.
    pub fn names(&self) -> Vec<Arc<str>> {
        self.read().callers().iter().map(|caller| Arc::clone(&caller.name)).collect()
    }

    /// Whether there still is a token of this name.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.read().named(name).is_some()
    }

    /// Returns once there is no token of this name.
    pub(crate) async fn gone(&self, name: &str) {
        let mut changes = self.changes();
        // The sender is this value's own.
        while self.has(name) && changes.changed().await.is_ok() {}
    }

    /// How much one caller may take of what all share: everything where there is only one, else a quarter.
    pub(crate) fn share_of(&self, all: usize) -> usize {
        if self.are_several() { all.div_ceil(4) } else { all }
    }

    /// Whether there is more than one caller.
    pub(crate) fn are_several(&self) -> bool {
        self.read().callers().len() > 1
    }

    /// Reports changes.
    pub(crate) fn changes(&self) -> watch::Receiver<()> {
        self.shared.changed.subscribe()
    }
}

impl Access {
    fn callers(&self) -> Vec<&Caller> {
        match self {
            Self::Open(caller) => vec![caller],
            Self::Tokens(known) => known.iter().map(|known| &known.caller).collect(),
        }
    }

    fn named(&self, name: &str) -> Option<Caller> {
        self.callers().into_iter().find(|caller| &*caller.name == name).cloned()
    }
}

fn check(tokens: &[Token]) -> Result<(), TokenError> {
    let mut names = BTreeSet::new();
    for (at, token) in tokens.iter().enumerate() {
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        let name = &token.name;
        if name.is_empty() || name.len() > MAX_NAME || !name.chars().all(plain) {
            return Err(TokenError::Name(name.clone()));
        }
        if !names.insert(name) {
            return Err(TokenError::SameName(name.clone()));
        }
        if let Some(other) = tokens[..at].iter().find(|other| other.key.same(&token.key)) {
            return Err(TokenError::SameKey(other.name.clone(), name.clone()));
        }
    }
    Ok(())
}

impl fmt::Debug for Tokens {
    /// Without the keys.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tokens").finish_non_exhaustive()
    }
}

/// Why a key is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeyError {
    Missing,
    Wrong,
}

/// Who sent a request: the token whose key it had. Owns what it makes; other callers do not see it.
#[derive(Clone, Debug)]
pub struct Caller {
    /// The name of the token.
    pub name: Arc<str>,
    account: Arc<Account>,
}

impl Caller {
    fn new(name: &str, quotas: Quotas) -> Self {
        let name: Arc<str> = name.into();
        Self { account: Arc::new(Account::new(Arc::clone(&name), quotas)), name }
    }

    /// The quotas and their use.
    pub(crate) fn account(&self) -> &Arc<Account> {
        &self.account
    }

    /// Whether both are the same token.
    pub(crate) fn is(&self, other: &Self) -> bool {
        self.name == other.name
    }

    /// The limits of one of its sandboxes.
    pub(crate) fn limits(&self, server: Limits) -> Limits {
        self.account.limits(server)
    }

    /// Whether it may call a model now.
    ///
    /// # Errors
    /// If it has used what it may use today.
    pub fn check_model(&self) -> Result<(), OverQuota> {
        self.account.check_model()
    }

    /// Whether it may spend a number of dollars on models.
    pub(crate) fn has_cost_quota(&self) -> bool {
        self.account.has_cost_quota()
    }

    /// Counts what a model call used.
    pub fn charge_model(&self, tokens: u64, dollars: f64) {
        self.account.charge_model(tokens, dollars);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(name: &str, key: &str) -> Token {
        Token { name: name.into(), key: KeyHash::of(key.as_bytes()), quotas: Quotas::default() }
    }

    #[test]
    fn each_key_is_its_own_caller() {
        let tokens = Tokens::new(vec![token("alice", "a"), token("bob", "b")]).unwrap();
        for (key, name) in [("a", "alice"), ("b", "bob")] {
            assert_eq!(&*tokens.caller(Some(key.as_bytes())).unwrap().name, name);
        }
        for key in ["", "c", "ab"] {
            assert_eq!(tokens.caller(Some(key.as_bytes())).unwrap_err(), KeyError::Wrong, "{key}");
        }
        assert_eq!(tokens.caller(None).unwrap_err(), KeyError::Missing);
    }

    #[test]
    fn no_tokens_let_nobody_in() {
        let tokens = Tokens::new(Vec::new()).unwrap();
        assert_eq!(tokens.caller(Some(b"x")).unwrap_err(), KeyError::Wrong);
        assert_eq!(&*Tokens::default().caller(None).unwrap().name, DEFAULT_TOKEN);
    }

    #[test]
    fn bad_lists_change_nothing() {
        let tokens = Tokens::new(vec![token("alice", "a")]).unwrap();
        let long = "x".repeat(65);
        for name in ["", "a b", "a\n", "é", &long] {
            let error = tokens.replace(vec![token(name, "k")]).unwrap_err();
            assert_eq!(error, TokenError::Name(name.into()));
        }
        let same = |name: &str, key: &str| tokens.replace(vec![token("x", "k"), token(name, key)]);
        assert_eq!(same("x", "l").unwrap_err(), TokenError::SameName("x".into()));
        assert_eq!(same("y", "k").unwrap_err(), TokenError::SameKey("x".into(), "y".into()));
        assert!(tokens.caller(Some(b"a")).is_ok());
    }

    #[test]
    fn replaced_tokens_lose_access_and_kept_ones_keep_their_use() {
        let tokens = Tokens::new(vec![token("alice", "a"), token("bob", "b")]).unwrap();
        let alice = tokens.caller(Some(b"a")).unwrap();
        tokens.replace(vec![token("alice", "new")]).unwrap();
        assert!(tokens.caller(Some(b"a")).is_err() && tokens.caller(Some(b"b")).is_err());
        let again = tokens.caller(Some(b"new")).unwrap();
        assert!(Arc::ptr_eq(again.account(), alice.account()));
        assert!(tokens.has("alice") && !tokens.has("bob"));
    }
}
