//! Creation, listing and removal: nothing is left half-done.

use std::{collections::HashSet, time::Duration};

use sandbox::{ByteSize, Error, ImageRef, Limits, Runtime, Sandbox, SandboxInfo, Spec};

use crate::{
    Harness,
    harness::chain,
    support::{ok, sh, wait_for},
};

async fn listed<R: Runtime>(h: &Harness<R>, id: &str) -> Option<SandboxInfo> {
    let all = h.runtime.list().await.unwrap_or_else(|e| panic!("list: {}", chain(&e)));
    all.into_iter().find(|info| info.id == id)
}

/// A sandbox is listed from its creation to its destruction.
pub async fn listed_while_alive_and_gone_after_destroy<R: Runtime>(h: &Harness<R>) {
    let sandbox = h.sandbox().await;
    let id = sandbox.id().to_owned();
    let info = listed(h, &id).await.expect("it is listed");
    assert_eq!((info.owner_pid, info.alive), (std::process::id(), true));
    assert_eq!(info.image, h.image.to_string());
    let now =
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("after 1970");
    assert!(now.as_secs().abs_diff(info.created) < 300, "{} is not now", info.created);
    ok(&sandbox, "sleep 1000 & echo x > f").await;
    sandbox.destroy().await.unwrap_or_else(|e| panic!("destroy: {}", chain(&e)));
    assert_eq!(listed(h, &id).await, None);
}

/// Dropping a sandbox destroys it, soon.
pub async fn dropping_destroys<R: Runtime>(h: &Harness<R>) {
    let sandbox = h.sandbox().await;
    let id = sandbox.id().to_owned();
    ok(&sandbox, "sleep 1000 & trap '' TERM; echo x > f").await;
    drop(sandbox);
    wait_for("it is gone", Duration::from_secs(60), async || listed(h, &id).await.is_none()).await;
}

/// The error for an unknown image names it, and nothing is created.
pub async fn unknown_image_is_named<R: Runtime>(h: &Harness<R>) {
    let image = ImageRef::Name("no-such-image-anywhere:1".into());
    let failed = h.runtime.create(&Spec { image: image.clone(), ..h.spec() }).await;
    match failed.map(|sandbox| sandbox.id().to_owned()) {
        Err(Error::UnknownImage { image: named, .. }) => assert_eq!(named, image),
        other => panic!("{other:?}"),
    }
    let all = h.runtime.list().await.expect("listed");
    assert!(all.iter().all(|info| !info.image.starts_with("no-such-image")), "{all:?}");
}

/// Impossible specifications are refused before anything is created.
pub async fn bad_specification_creates_nothing<R: Runtime>(h: &Harness<R>) {
    let bad = [
        Spec { workdir: "relative".into(), ..h.spec() },
        Spec { env: vec![("A=B".into(), "c".into())], ..h.spec() },
        Spec { limits: Limits { memory: Some(ByteSize(1)), ..Limits::default() }, ..h.spec() },
        Spec { limits: Limits { cpus: Some(-1.0), ..Limits::default() }, ..h.spec() },
    ];
    for spec in bad {
        let failed = h.runtime.create(&spec).await.map(|sandbox| sandbox.id().to_owned());
        assert!(matches!(failed, Err(Error::Spec(_))), "{failed:?}");
    }
}

/// Thirty-two sandboxes live and work side by side.
pub async fn many_at_once<R: Runtime>(h: &Harness<R>) {
    let limits = Limits { memory: Some(ByteSize::mib(64)), ..Limits::default() };
    let spec = Spec { limits, ..h.spec() };
    let mut all = tokio::task::JoinSet::new();
    for n in 0..32 {
        let (runtime, spec) = (h.runtime.clone(), spec.clone());
        all.spawn(async move {
            let sandbox =
                runtime.create(&spec).await.unwrap_or_else(|e| panic!("create: {}", chain(&e)));
            ok(&sandbox, format!("echo {n} > f; mine={n}")).await;
            sandbox
        });
    }
    let alive = all.join_all().await;
    let mut seen = HashSet::new();
    for sandbox in &alive {
        let shown = ok(sandbox, "cat f; echo $mine").await;
        let (file, variable) = shown.trim().split_once('\n').expect("two lines");
        assert_eq!(file, variable);
        seen.insert(file.to_owned());
    }
    assert_eq!(seen.len(), 32);
    let mut ends = tokio::task::JoinSet::new();
    for sandbox in alive {
        ends.spawn(sandbox.destroy());
    }
    for end in ends.join_all().await {
        end.unwrap_or_else(|e| panic!("destroy: {}", chain(&e)));
    }
}

/// Killing every process one can reach inside leaves a sandbox that works.
pub async fn killing_everything_inside_is_survived<R: Runtime>(h: &Harness<R>) {
    let sandbox = h.sandbox().await;
    ok(&sandbox, "echo x > f").await;
    for attack in [
        "kill -9 -1",
        "kill -9 1; kill -TERM 1; kill -HUP 1",
        "kill -STOP 1",
        "bash -c 'kill -9 -1'",
    ] {
        sh(&sandbox, attack).await;
        assert_eq!(ok(&sandbox, "cat f").await, "x\n", "after `{attack}`");
    }
}

/// No two sandboxes have the same name.
pub async fn names_differ<R: Runtime>(h: &Harness<R>) {
    let (one, two) = (h.sandbox().await, h.sandbox().await);
    assert!(!one.id().is_empty());
    assert_ne!(one.id(), two.id());
}

/// Pruning leaves sandboxes of live processes alone.
pub async fn prune_leaves_live_sandboxes<R: Runtime>(h: &Harness<R>) {
    let sandbox = h.sandbox().await;
    let pruned = h.runtime.prune().await.unwrap_or_else(|e| panic!("prune: {}", chain(&e)));
    assert!(pruned.iter().all(|info| !info.alive), "{pruned:?}");
    assert_eq!(ok(&sandbox, "echo alive").await, "alive\n");
    assert!(listed(h, sandbox.id()).await.is_some());
}
