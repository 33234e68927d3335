//! The images of a benchmark's sandboxes, checked before anything is played: which are missing, and how to get them.

use std::collections::BTreeMap;

use benchmark::Plan;
use sandbox::{ImageRef, Runtime, Sandbox, Spec};

use super::{settings::BenchmarkSettings, show::OutputMode};
use crate::{exit::UsageError, runtime::AnyRuntime};

/// Commands that are shown for missing images.
const MAX_SHOWN: usize = 3;

/// Images of problems that are not in the image store, each with the number of problems that need it.
pub(crate) struct MissingImages {
    images: BTreeMap<String, usize>,
    /// Whether the first problem is among these.
    has_first: bool,
}

impl MissingImages {
    /// Looks every image up in the image store.
    pub(crate) fn of(plan: &Plan, runtime: &AnyRuntime) -> Self {
        let (mut images, mut has_first) = (BTreeMap::<String, usize>::new(), false);
        let mut known = BTreeMap::new();
        let mut is_first = true;
        for task in &plan.tasks {
            for selected in &task.problems {
                if let Some(image) = task.task.image(&selected.problem) {
                    let is_there = *known
                        .entry(image.clone())
                        .or_insert_with_key(|image| runtime.has_image(image));
                    if !is_there {
                        has_first |= is_first;
                        *images.entry(image).or_default() += 1;
                    }
                }
                is_first = false;
            }
        }
        Self { images, has_first }
    }

    /// The commands that get them.
    pub(crate) fn commands(&self) -> Vec<String> {
        self.images.keys().map(|image| pull_command(image)).collect()
    }

    /// What is missing and how to get it, in one line; nothing if nothing is.
    pub(crate) fn describe(&self) -> Option<String> {
        let problems: usize = self.images.values().sum();
        let commands = self.commands();
        let shown = commands.iter().take(MAX_SHOWN).map(|command| format!("`{command}`"));
        let shown: Vec<String> = shown.collect();
        let more = match commands.len().saturating_sub(MAX_SHOWN) {
            0 => String::new(),
            more => format!(" and {more} more, listed by --dry-run"),
        };
        let (are, them) =
            if commands.len() == 1 { ("image is", "it") } else { ("images are", "them") };
        (problems > 0).then(|| {
            format!(
                "{} {are} not in the store, needed by {problems} problems; get {them} with {}{more}",
                commands.len(),
                shown.join(", ")
            )
        })
    }
}

/// The command that gets an image.
pub(crate) fn pull_command(image: &str) -> String {
    match image {
        "base" => "llm-in-sandbox image build".to_owned(),
        image => format!("llm-in-sandbox image pull {image}"),
    }
}

/// Creates one sandbox, so that a problem with the image or the machine is reported once, before any attempt. Images that
/// are missing for other problems than the first are reported: only these problems fail.
pub(crate) async fn check(
    benchmark: &BenchmarkSettings,
    plan: &Plan,
    runtime: &AnyRuntime,
    mode: OutputMode,
) -> anyhow::Result<()> {
    let missing = MissingImages::of(plan, runtime);
    match missing.describe() {
        Some(text) if missing.has_first => return Err(UsageError(text).into()),
        Some(text) => mode.note(&format!("warning: {text}")),
        None => {}
    }
    let spec = &benchmark.sandbox.spec;
    let first = plan.tasks.iter().find(|task| !task.problems.is_empty());
    let first = first.and_then(|task| task.task.image(&task.problems.first()?.problem));
    let image = first.map_or_else(|| spec.image.clone(), ImageRef::Name);
    let sandbox = runtime.create(&Spec { image, ..spec.clone() }).await?;
    let accepted = benchmark.sandbox.accept(sandbox.protection());
    sandbox.destroy().await?;
    Ok(accepted?)
}
