//! Builds a small image with the real builder, where it is installed and required; and reports its absence.

use std::{sync::Mutex, time::Instant};

use lis_image::{Cache, Progress, Recipe, Silent, Stage};

use crate::support::{TestStore, chain, installed, listed, required, skip};

#[derive(Default)]
struct Heard(Mutex<Vec<String>>);

impl Progress for Heard {
    fn stage(&self, stage: Stage, _: Option<u64>) {
        self.0.lock().unwrap().push(stage.to_string());
    }
    fn advance(&self, _: u64) {}
    fn message(&self, text: &str) {
        self.0.lock().unwrap().push(text.to_owned());
    }
}

#[test]
fn a_small_system_is_built_from_this_machines_sources() {
    if !listed("LIS_SLOW", "mmdebstrap") && !required("mmdebstrap") {
        return skip("mmdebstrap", "building a system takes a minute; set LIS_SLOW=mmdebstrap");
    }
    if !installed("mmdebstrap") {
        return skip("mmdebstrap", "mmdebstrap is not installed; apt-get install mmdebstrap");
    }
    let test = TestStore::new();
    let heard = Heard::default();
    let start = Instant::now();
    let recipe = Recipe::minimal(["file"]);
    let state = test.store.recipe_state("small", &recipe).unwrap();
    assert_eq!((state.cached, state.last_duration), (false, None));
    let built = test.store.build("small", &recipe, Cache::Use, &heard).unwrap();
    let took = start.elapsed();
    println!("built {} bytes in {took:?}", built.image.size);
    let info = built.image.clone();
    let rootfs = test.store.rootfs("small").unwrap();
    for path in ["usr/bin/bash", "usr/bin/file", "usr/bin/apt-get", "etc/debian_version"] {
        assert!(rootfs.layers[0].join(path).exists(), "{path}");
    }
    assert!(!rootfs.layers[0].join("usr/share/man/man1").exists());
    assert!(info.size > 50 << 20);
    assert!(rootfs.env.contains(&("LANG".into(), "C.UTF-8".into())));
    let heard = heard.0.into_inner().unwrap();
    assert!(
        heard[0] == "building" && heard.iter().any(|line| line.contains("installing")),
        "{heard:?}"
    );

    // The second time it is there already, under any name.
    let state = test.store.recipe_state("small", &recipe).unwrap();
    assert!(state.cached && state.last_duration.is_some_and(|known| known <= took), "{state:?}");
    let again = test.store.build("small", &recipe, Cache::Use, &Silent).unwrap();
    assert!(again.unchanged && again.image == info, "{again:?}");
    let other = test.store.build("other", &recipe, Cache::Use, &Silent).unwrap();
    assert!(!other.unchanged && other.image.id == info.id, "{other:?}");
    // Other packages are another recipe.
    let more = Recipe::minimal(["file", "less"]);
    assert!(!test.store.recipe_state("small", &more).unwrap().cached);
}

#[test]
fn a_failed_build_says_why_and_leaves_nothing() {
    if !installed("mmdebstrap") {
        return skip("mmdebstrap", "mmdebstrap is not installed; apt-get install mmdebstrap");
    }
    let test = TestStore::new();
    // Sources that cannot be read make it fail at once, without any network.
    let missing = test.dir.path().join("missing.sources");
    let recipe = Recipe {
        suite: Some("bookworm".into()),
        sources: vec![missing],
        ..Recipe::minimal(["file"])
    };
    let error = test.store.build("bad", &recipe, Cache::Use, &Silent).unwrap_err();
    let text = chain(&error);
    // An ordinary user's attempt may end even earlier.
    let root = rustix::process::geteuid().is_root();
    let says = if root { "missing.sources" } else { "run it as root" };
    assert!(text.contains("mmdebstrap ended with") && text.contains(says), "{text}");
    test.assert_empty();
}
