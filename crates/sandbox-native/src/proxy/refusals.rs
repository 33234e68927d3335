//! Counts what the proxy refused, for the caller. Hosts are untrusted text: their number and length are bounded.

use std::sync::{Mutex, MutexGuard, PoisonError};

use sandbox::{RefusalReason, RefusedConnections};

/// The most hosts that are counted.
const MAX_HOSTS: usize = 100;
/// The longest host name, in bytes, as in the DNS.
const MAX_NAME: usize = 255;

/// Refused connections by host, port and reason, in the order of the first ones.
#[derive(Debug, Default)]
pub(crate) struct Refusals(Mutex<Vec<RefusedConnections>>);

impl Refusals {
    /// Counts a refused connection.
    pub(crate) fn add(&self, host: &str, port: u16, reason: RefusalReason) {
        let host = host.trim_end_matches('.').to_ascii_lowercase();
        if host.len() > MAX_NAME {
            return;
        }
        let mut all = self.lock();
        let same = |one: &&mut RefusedConnections| {
            one.host == host && one.port == port && one.reason == reason
        };
        if let Some(one) = all.iter_mut().find(same) {
            one.count = one.count.saturating_add(1);
        } else if all.len() < MAX_HOSTS {
            all.push(RefusedConnections { host, port, reason, count: 1 });
        }
    }

    /// What was refused so far.
    pub(crate) fn all(&self) -> Vec<RefusedConnections> {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<RefusedConnections>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_are_counted_within_bounds() {
        let refusals = Refusals::default();
        for host in ["Example.com", "example.com."] {
            refusals.add(host, 443, RefusalReason::NotAllowed);
        }
        refusals.add("example.com", 80, RefusalReason::NotAllowed);
        refusals.add(&"x".repeat(MAX_NAME + 1), 80, RefusalReason::NotAllowed);
        let counts: Vec<_> =
            refusals.all().into_iter().map(|one| (one.host, one.port, one.count)).collect();
        assert_eq!(counts, [("example.com".into(), 443, 2), ("example.com".into(), 80, 1)]);
        for number in 0..1000 {
            refusals.add(&format!("{number}.com"), 80, RefusalReason::NotAllowed);
        }
        assert_eq!(refusals.all().len(), MAX_HOSTS);
    }
}
