//! The pool hands out new sandboxes and leaves none behind.

use std::{collections::HashSet, sync::Arc, time::Duration};

use sandbox::{Pool, Runtime, Sandbox};

use crate::{
    Harness,
    harness::chain,
    support::{ok, sh, wait_for},
};

/// The sandboxes of this process, by name.
async fn own<R: Runtime>(h: &Harness<R>) -> HashSet<String> {
    let all = h.runtime.list().await.unwrap_or_else(|e| panic!("list: {}", chain(&e)));
    all.into_iter().filter(|s| s.owner_pid == std::process::id()).map(|s| s.id).collect()
}

/// Each sandbox taken is unused and independent of the others.
pub async fn taken_sandboxes_are_fresh_and_independent<R: Runtime>(h: &Harness<R>) {
    let pool = Pool::new(Arc::clone(&h.runtime), h.spec(), 2);
    let mut taken = Vec::new();
    for n in 0..4 {
        let sandbox = pool.take().await.unwrap_or_else(|e| panic!("take: {}", chain(&e)));
        assert_eq!(ok(&sandbox, "pwd; ls; echo ${n-unset}").await, "/testbed\nunset\n");
        ok(&sandbox, format!("n={n}; echo {n} > f")).await;
        taken.push(sandbox);
    }
    for (n, sandbox) in taken.iter().enumerate() {
        assert_eq!(ok(sandbox, "cat f; echo $n").await, format!("{n}\n{n}\n"));
    }
    let names: HashSet<_> = taken.iter().map(Sandbox::id).collect();
    assert_eq!(names.len(), 4);
    pool.close().await.unwrap_or_else(|e| panic!("close: {}", chain(&e)));
    // Those that were taken are their takers' own.
    assert!(sh(&taken[0], "true").await.status.success());
}

/// Closing destroys the sandboxes that were not taken.
pub async fn closing_leaves_none<R: Runtime>(h: &Harness<R>) {
    let before = own(h).await;
    let pool = Pool::new(Arc::clone(&h.runtime), h.spec(), 3);
    wait_for("the pool is warm", Duration::from_secs(60), async || {
        own(h).await.len() >= before.len() + 3
    })
    .await;
    let made: HashSet<String> = own(h).await.difference(&before).cloned().collect();
    pool.close().await.unwrap_or_else(|e| panic!("close: {}", chain(&e)));
    wait_for("all of them are gone", Duration::from_secs(60), async || {
        own(h).await.is_disjoint(&made)
    })
    .await;
}
