//! The page of `serve`: the episodes of its clients, each sees their own.

use std::sync::Arc;

use episodes::EpisodeOptions;
use serde_json::json;
use server::PageRoutes;
use viewer::{Abilities, Library, PageMode, PageOptions, Scope};

/// The page of a server that keeps episodes.
pub(super) fn routes(episodes: &EpisodeOptions) -> PageRoutes {
    let store = Arc::clone(&episodes.store);
    let said = Arc::clone(&episodes.store);
    let library = Library::of_server(store.path().to_owned(), move |id| store.is_running(id))
        .with_partial(move |id| said.partial(id));
    let plays = !episodes.models.is_empty();
    let limits = &episodes.limits;
    let options = PageOptions {
        program: env!("CARGO_PKG_VERSION").to_owned(),
        title: "Episodes".to_owned(),
        mode: PageMode::Serve,
        can: Abilities { start: plays, cancel: true, resume: plays, fork: plays, terminal: true },
        models: episodes.models.iter().map(|model| model.name.clone()).collect(),
        limits: json!({
            "turns": limits.turns,
            "tokens": limits.tokens,
            "time": limits.time.map(|time| time.as_secs_f64()),
            "cost": limits.cost,
        }),
        command_lines: Vec::new(),
    };
    PageRoutes {
        routes: viewer::routes(Arc::new(library), options),
        for_caller: |extensions, owner| {
            extensions.insert(Scope { owner: Some(owner.to_owned()) });
        },
    }
}
