//! The store of local models on this machine.

use std::path::Path;

use catalogue::{Catalogue, PullOptions, Pulled, SourceKind, Stage, Store};

use crate::console::progress::ProgressView;

/// Opens the store below the state directory.
pub(crate) fn open(home: &Path) -> anyhow::Result<Store> {
    Ok(Store::with(home.join("models"), catalogue()?).with_adapters(ADAPTERS))
}

/// The list of models.
pub(crate) fn catalogue() -> anyhow::Result<Catalogue> {
    Ok(Catalogue::built_in().map_err(catalogue::Error::from)?)
}

/// The adapters of this program.
#[cfg(feature = "local")]
const ADAPTERS: &[catalogue::AdapterContent] = adapters::ADAPTERS;

/// Without local models there is no use for them.
#[cfg(not(feature = "local"))]
const ADAPTERS: &[catalogue::AdapterContent] = &[];

/// Whether this program contains the adapter of this name.
pub(crate) fn includes_adapter(name: &str) -> bool {
    ADAPTERS.iter().any(|(included, _)| *included == name)
}

/// Pulls a model with a progress view, unless it is stored; from one source, or from any.
pub(crate) async fn pull(
    store: &Store,
    name: &str,
    source: Option<SourceKind>,
) -> Result<Pulled, catalogue::Error> {
    let mut options = PullOptions::default();
    if let Some(source) = source {
        options.sources = vec![source];
    }
    let view = ProgressView::on_stderr();
    store.pull(name, &options, &view).await
}

impl catalogue::Progress for ProgressView {
    fn stage(&self, stage: Stage, total: Option<u64>) {
        self.bytes(&stage.to_string(), total.unwrap_or_default());
    }

    fn advance(&self, by: u64) {
        image::Progress::advance(self, by);
    }

    fn message(&self, text: &str) {
        image::Progress::message(self, text);
    }
}
