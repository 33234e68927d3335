//! `image build`: an image by a recipe, or by steps that run in sandboxes and become layers.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context, anyhow};
use image::{Cache, Recipe, Saved, Store};
use indicatif::HumanBytes;
use serde::Serialize;
use startup::Signals;

use super::{
    Described,
    args::BuildArgs,
    run_step::{BuildSandboxes, StepError},
    step::Step,
};
use crate::{
    commands::sandbox::age,
    console::{
        build::{BuildView, took},
        output,
    },
    exit::{Exit, UsageError},
    settings::Settings,
};

/// The image that others are built on by default.
const BASE: &str = "base";
/// The image for the domains of the benchmarks, built on [`BASE`].
const SCIENCE: &str = "science";
/// How long the recipe takes on a machine on which it never ran.
const ROUGH_RECIPE: Duration = Duration::from_secs(240);

/// What to build.
struct Plan {
    name: String,
    /// The image below; `None` for an image made by the recipe alone.
    from: Option<String>,
    /// The name under which the recipe is stored first, if it is needed.
    recipe: Option<String>,
    steps: Vec<Step>,
    cache: Cache,
}

/// A finished step, as JSON shows it.
#[derive(Serialize)]
struct Finished {
    step: String,
    cached: bool,
    seconds: f64,
    layer: Option<String>,
    size: u64,
}

#[derive(Serialize)]
struct Report<'a> {
    #[serde(flatten)]
    image: Described<'a>,
    unchanged: bool,
    steps: Vec<Finished>,
}

/// Either a result, or the end of a build that was cancelled.
pub(crate) enum Outcome<T> {
    Done(T),
    Cancelled(Exit),
}

impl Plan {
    fn new(args: BuildArgs, store: &Store) -> anyhow::Result<Self> {
        let cache = if args.no_cache { Cache::Ignore } else { Cache::Use };
        let mut steps = args.steps.0;
        if steps.is_empty() && args.from.is_some() {
            let text = "--from needs a step: give at least one of --add, --pip and --run";
            return Err(UsageError(text.into()).into());
        }
        let name = match args.name {
            Some(name) => name,
            None if steps.is_empty() => BASE.to_owned(),
            None => {
                let text = "the image has no name; give one before the steps, as in \
                            `image build NAME --add PKG`";
                return Err(UsageError(text.into()).into());
            }
        };
        Store::check_name(&name).map_err(image::Error::from)?;
        if steps.is_empty() && name == SCIENCE {
            steps.push(Step::Add(Recipe::science_packages()));
        }
        if steps.is_empty() {
            return Ok(Self { recipe: Some(name.clone()), name, from: None, steps, cache });
        }
        let from = args.from.unwrap_or_else(|| BASE.to_owned());
        if from == name {
            let text =
                format!("`{name}` cannot be built on itself; give the new image another name");
            return Err(UsageError(text).into());
        }
        let known = from == "host" || store.contains(&from)?;
        if !known && from != BASE {
            return Err(image::Error::Unknown { name: from }.into());
        }
        let recipe = (!known).then(|| BASE.to_owned());
        Ok(Self { name, from: Some(from), recipe, steps, cache })
    }

    fn count(&self) -> usize {
        self.steps.len() + usize::from(self.recipe.is_some())
    }
}

/// Runs the command.
pub(crate) async fn run(
    args: BuildArgs,
    store: Store,
    settings: &Settings,
    signals: &mut Signals,
) -> anyhow::Result<Exit> {
    let json = args.json;
    let plan = Plan::new(args, &store)?;
    let view = BuildView::new(plan.count());
    let mut build = Build { store, view, cache: plan.cache, finished: Vec::new() };
    let saved = match build.run(&plan, settings, signals).await? {
        Outcome::Done(saved) => saved,
        Outcome::Cancelled(exit) => {
            build.view.clear();
            output::note("cancelled; finished steps stay in the cache");
            return Ok(exit);
        }
    };
    if saved.unchanged {
        let built = age(saved.image.created);
        output::note(&format!(
            "`{}` is up to date, built {built} ago; --no-cache builds it again",
            plan.name
        ));
    }
    if json {
        let Build { finished: steps, .. } = build;
        let image = Described::new(&saved.image);
        output::print_json(&Report { image, unchanged: saved.unchanged, steps })?;
    } else {
        output::print(&saved.image.name)?;
    }
    Ok(Exit::Done)
}

struct Build {
    store: Store,
    view: Arc<BuildView>,
    cache: Cache,
    finished: Vec<Finished>,
}

impl Build {
    async fn run(
        &mut self,
        plan: &Plan,
        settings: &Settings,
        signals: &mut Signals,
    ) -> anyhow::Result<Outcome<Saved>> {
        if let Some(name) = &plan.recipe {
            let saved = match self.recipe(name, signals).await? {
                Outcome::Done(saved) => saved,
                cancelled @ Outcome::Cancelled(_) => return Ok(cancelled),
            };
            if plan.from.is_none() {
                return Ok(Outcome::Done(saved));
            }
        }
        self.steps(plan, settings, signals).await
    }

    /// Builds the recipe, the first step.
    async fn recipe(
        &mut self,
        name: &str,
        signals: &mut Signals,
    ) -> anyhow::Result<Outcome<Saved>> {
        const WHAT: &str = "Debian with Python and scientific packages";
        let recipe = Recipe::base();
        let state = self.store.recipe_state(name, &recipe)?;
        let cached = state.cached && self.cache == Cache::Use;
        if !cached {
            if self.cache == Cache::Use && self.store.contains(name)? {
                output::note(&format!("`{name}` was built from another recipe; building it again"));
            }
            self.view.begin(1, WHAT, state.last_duration.or(Some(ROUGH_RECIPE)));
        }
        let begun = Instant::now();
        let (store, view, cache) = (self.store.clone(), Arc::clone(&self.view), self.cache);
        let owned = name.to_owned();
        let mut building =
            tokio::task::spawn_blocking(move || store.build(&owned, &recipe, cache, &*view));
        let saved = tokio::select! {
            built = &mut building => built,
            exit = signals.cancelled() => {
                // It cleans up when its program ends.
                startup::terminate_children();
                let _ = building.await;
                return Ok(Outcome::Cancelled(exit));
            }
        };
        let saved = saved.context("a worker thread failed")??;
        let (layer, size) = (None, saved.image.size);
        let seconds = begun.elapsed().as_secs_f64();
        self.finish(1, Finished { step: WHAT.to_owned(), cached, seconds, layer, size });
        Ok(Outcome::Done(saved))
    }

    /// Runs the steps that are not cached, each in a sandbox of its own, and stores the image.
    async fn steps(
        &mut self,
        plan: &Plan,
        settings: &Settings,
        signals: &mut Signals,
    ) -> anyhow::Result<Outcome<Saved>> {
        let from = plan.from.as_deref().filter(|from| *from != "host");
        let mut draft = self.store.draft(from)?;
        let mut sandboxes = None;
        let before = plan.count() - plan.steps.len();
        for (number, step) in (before + 1..).zip(&plan.steps) {
            let (begun, key) = (Instant::now(), step.key());
            let recalled = match self.cache {
                Cache::Use => draft.recall(&key)?,
                Cache::Ignore => None,
            };
            let layer = match recalled {
                Some(layer) => layer,
                None => {
                    let expected = draft.last_duration(&key).or_else(|| step.rough_duration());
                    self.view.begin(number, &step.title(), expected);
                    let sandboxes = match &mut sandboxes {
                        Some(started) => started,
                        none => none.insert(BuildSandboxes::start(settings).await?),
                    };
                    match sandboxes.layer(draft, step, &self.view, signals).await {
                        Ok(Outcome::Done((extended, layer))) => {
                            draft = extended;
                            layer
                        }
                        Ok(Outcome::Cancelled(exit)) => return Ok(Outcome::Cancelled(exit)),
                        Err(error) => return Err(self.failure(plan, number, error)),
                    }
                }
            };
            let finished = Finished {
                step: step.title(),
                cached: recalled.is_some(),
                seconds: begun.elapsed().as_secs_f64(),
                layer: Some(layer.digest.to_string()),
                size: layer.bytes,
            };
            self.finish(number, finished);
        }
        Ok(Outcome::Done(draft.save(&plan.name)?))
    }

    /// The error for a step that failed.
    fn failure(&self, plan: &Plan, number: usize, error: StepError) -> anyhow::Error {
        self.view.clear();
        let place = format!("cannot build `{}`: step {number} of {}", plan.name, plan.count());
        match error {
            StepError::Failed { code } => match self.view.last_lines() {
                lines if lines.is_empty() => anyhow!("{place} failed with exit code {code}"),
                lines => anyhow!("{place} failed with exit code {code}; its last lines: {lines}"),
            },
            StepError::Other(error) => error.context(place),
        }
    }

    /// Shows and remembers a finished step.
    fn finish(&mut self, number: usize, finished: Finished) {
        let text = match finished.cached {
            true => format!("{}: cached", finished.step),
            false => {
                let took = took(Duration::from_secs_f64(finished.seconds));
                format!("done in {took}, {}", HumanBytes(finished.size))
            }
        };
        self.view.end(number, &text);
        self.finished.push(finished);
    }
}
