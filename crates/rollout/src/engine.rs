//! The rollout engine: plays groups, several rollouts of each of several problems, concurrently as far as there are
//! sandboxes. The sampler comes with each call, so that demonstrations and policies take the same path.
//!
//! A rollout depends on the seed, the step, its problem and its position in the group, never on scheduling.

use std::{collections::HashMap, fmt, path::PathBuf, sync::Arc};

use attempt::{Cancelled, Mode, Sandboxes};
use model::ToolSpec;
use problems::{Grader, Problem, Task};
use sandbox::{ImageRef, Runtime};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;

use crate::{
    ChatCodec, End, Group, OpenGroups, Reward, Rollout, RolloutError, RolloutSettings, Sampler,
    SamplingParams, episode::Member, open_groups::Ended, scripted::ScriptedSampler, seed,
};

/// The parts of a rollout engine.
pub struct EngineParts<R: Runtime> {
    /// Text from and to the policy's tokens.
    pub codec: Arc<ChatCodec>,
    /// Prompts and grader.
    pub task: Task,
    /// How rollouts are played.
    pub settings: RolloutSettings,
    /// How answers are rewarded.
    pub reward: Reward,
    /// Creates sandboxes; may be absent in mode `llm`.
    pub runtime: Option<Arc<R>>,
}

/// A request for groups of rollouts.
#[derive(Clone, Debug)]
pub struct RolloutRequest {
    /// The problems; one that is listed twice gets two groups that differ.
    pub problems: Vec<Arc<Problem>>,
    /// Rollouts of each problem.
    pub members: u32,
    /// The number of the step.
    pub step: u64,
    /// How tokens are drawn. The seed of a rollout follows from this seed, the step, the problem and the member.
    pub params: SamplingParams,
    /// The directory for the events of every rollout, one file each. It is created if needed.
    pub events: Option<PathBuf>,
    /// Cancels all rollouts.
    pub cancel: CancellationToken,
}

/// What has ended while groups are played.
#[derive(Clone, Copy, Debug)]
pub enum PlayProgress<'a> {
    /// A rollout.
    Rollout(&'a Rollout),
    /// The last rollout of a group: all of them, in the order in which they ended.
    Group(&'a [Rollout]),
}

/// Plays rollouts. Clones share their sandboxes.
pub struct RolloutEngine<R: Runtime> {
    pub(crate) shared: Arc<Shared<R>>,
}

impl<R: Runtime> Clone for RolloutEngine<R> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared) }
    }
}

impl<R: Runtime> fmt::Debug for RolloutEngine<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Shared { task, settings, .. } = &*self.shared;
        f.debug_struct("RolloutEngine")
            .field("task", &task.name)
            .field("mode", &settings.mode)
            .finish_non_exhaustive()
    }
}

pub(crate) struct Shared<R: Runtime> {
    pub(crate) codec: Arc<ChatCodec>,
    pub(crate) task: Arc<Task>,
    pub(crate) settings: RolloutSettings,
    pub(crate) reward: Reward,
    pub(crate) sandboxes: Arc<Sandboxes<R>>,
    /// Permits of episodes; `None` for no limit.
    pub(crate) episodes: Option<Arc<Semaphore>>,
}

impl<R: Runtime> RolloutEngine<R> {
    /// Checks that the task can give rewards here.
    pub fn new(parts: EngineParts<R>) -> Result<Self, RolloutError> {
        let EngineParts { codec, task, settings, reward, runtime } = parts;
        let warm = if settings.mode == Mode::Sandbox { settings.warm } else { 0 };
        let (limit, most) = (settings.episodes, Semaphore::MAX_PERMITS);
        let shared = Shared {
            codec,
            sandboxes: Arc::new(Sandboxes::new(runtime, settings.sandboxes, warm)),
            episodes: (limit > 0).then(|| Arc::new(Semaphore::new(limit.min(most)))),
            task: Arc::new(task),
            settings,
            reward,
        };
        shared.checked()
    }

    /// An engine for another task that shares the sandboxes of this one and its limits on concurrency. Its settings of
    /// these have no effect.
    pub fn for_task(&self, task: Task, settings: RolloutSettings) -> Result<Self, RolloutError> {
        let shared = Shared {
            codec: Arc::clone(&self.shared.codec),
            sandboxes: Arc::clone(&self.shared.sandboxes),
            episodes: self.shared.episodes.clone(),
            reward: self.shared.reward.clone(),
            task: Arc::new(task),
            settings,
        };
        shared.checked()
    }

    /// Plays all groups. `on_rollout` is called with every rollout as it ends, in no order; groups and their members are
    /// returned in the order of the problems.
    ///
    /// A rollout that failed because of the infrastructure leaves its group: it has no reward. One that broke its sandbox or
    /// its grader has the reward 0. Only where all failed is that an error.
    pub async fn run<S: Sampler>(
        &self,
        sampler: &Arc<S>,
        request: &RolloutRequest,
        mut on_rollout: impl FnMut(&Rollout) + Send,
    ) -> Result<Vec<Group>, RolloutError> {
        let on_progress = |progress: PlayProgress<'_>| {
            if let PlayProgress::Rollout(rollout) = progress {
                on_rollout(rollout);
            }
        };
        self.run_beside(sampler, request, &mut OpenGroups::default(), usize::MAX, on_progress).await
    }

    /// Begins groups beside those that are open, and returns once `enough` of all are complete, or all. Like
    /// [`Self::run`], but returns the complete ones in the order in which they began, and leaves the others open.
    ///
    /// Limits on sandboxes and episodes hold for all together: a group that waits for them begins when an open one
    /// ends. Where one is cancelled, all are. While `on_progress` runs, the others are played on.
    pub async fn run_beside<S: Sampler>(
        &self,
        sampler: &Arc<S>,
        request: &RolloutRequest,
        open: &mut OpenGroups,
        enough: usize,
        mut on_progress: impl FnMut(PlayProgress<'_>),
    ) -> Result<Vec<Group>, RolloutError> {
        if let Some(dir) = &request.events {
            let failed = |source| RolloutError::Events { path: dir.clone(), source };
            std::fs::create_dir_all(dir).map_err(failed)?;
        }
        let numbers: Vec<u64> = request
            .problems
            .iter()
            .map(|problem| open.begin(problem, request.step, request.cancel.child_token()))
            .collect();
        for (group, member) in self.members(request) {
            let Some(&number) = numbers.get(group) else { continue };
            let (shared, sampler) = (Arc::clone(&self.shared), Arc::clone(sampler));
            open.spawn(number, member, |member, cancel| async move {
                shared.rollout(&sampler, &member, cancel).await
            });
        }
        loop {
            let ended = match open.awaits(enough) {
                true => open.next().await,
                // What has ended meanwhile is taken as well.
                false => open.try_next(),
            };
            match ended {
                Some(Ended::Played(rollout, group)) => {
                    on_progress(PlayProgress::Rollout(rollout));
                    if let Some(members) = group.complete() {
                        on_progress(PlayProgress::Group(members));
                    }
                }
                Some(Ended::Dropped) => {}
                Some(Ended::Cancelled) => {
                    open.cancel();
                    while let Some(ended) = open.next().await {
                        if let Ended::Played(rollout, _) = ended {
                            on_progress(PlayProgress::Rollout(rollout));
                        }
                    }
                    open.close().await;
                    return Err(RolloutError::Cancelled);
                }
                None => break,
            }
        }
        unless_all_failed(open.take_complete())
    }

    fn members(&self, request: &RolloutRequest) -> impl Iterator<Item = (usize, Member)> {
        let mut seen: HashMap<&str, u32> = HashMap::new();
        request.problems.iter().enumerate().flat_map(move |(group, problem)| {
            let before = seen.entry(problem.id.as_str()).or_default();
            let first = *before;
            *before = first.saturating_add(request.members);
            (0..request.members).map(move |number| {
                let position = first.saturating_add(number);
                let seed =
                    seed::of_member(request.params.seed, request.step, &problem.id, position);
                let name = format!("{group:04}-{number:03}.jsonl");
                let member = Member {
                    problem: Arc::clone(problem),
                    number,
                    params: SamplingParams { seed, ..request.params },
                    file: request.events.as_ref().map(|dir| dir.join(name)),
                };
                (group, member)
            })
        })
    }

    /// The tools a policy has.
    pub fn tools(&self) -> Vec<ToolSpec> {
        let Shared { task, settings, .. } = &*self.shared;
        settings.attempt.episode(task).tools.specs()
    }

    /// Plays an episode in which every response is given. Its segments are what a policy would have sampled, so that one can
    /// be trained on them; its reward says whether it should be. Each response is followed by the token that ends it.
    pub async fn demonstrate(
        &self,
        problem: &Arc<Problem>,
        responses: Vec<String>,
        events: Option<PathBuf>,
        cancel: CancellationToken,
    ) -> Result<Rollout, RolloutError> {
        let params = SamplingParams { temperature: 1.0, top_p: 1.0, top_k: None, seed: 0 };
        let member = Member { problem: Arc::clone(problem), number: 0, params, file: events };
        let sampler = Arc::new(ScriptedSampler::new(Arc::clone(&self.shared.codec), responses));
        let played = self.shared.rollout(&sampler, &member, cancel).await;
        played.map_err(|Cancelled| RolloutError::Cancelled)
    }

    /// Removes the sandboxes that were created ahead.
    pub async fn close(self) -> Result<(), RolloutError> {
        self.shared.sandboxes.close().await.map_err(RolloutError::Sandbox)
    }
}

impl<R: Runtime> Shared<R> {
    /// The engine, if its task can give rewards.
    fn checked(mut self) -> Result<RolloutEngine<R>, RolloutError> {
        let task = &self.task;
        let refused = |grader| Err(RolloutError::Grader { task: task.name.clone(), grader });
        let grades_in_sandbox = match (&self.reward, &task.grader) {
            (Reward::Custom(_), _) => false,
            (_, Grader::Judge) => return refused("a judge"),
            (_, Grader::Tests) => return refused("the tests of a repository"),
            (_, grader) => !grader.is_immediate(),
        };
        match (self.settings.mode, self.sandboxes.has_runtime()) {
            (Mode::Sandbox, false) => return Err(RolloutError::NoRuntime),
            (Mode::Llm, false) if grades_in_sandbox => {
                return Err(RolloutError::NoSandboxes { task: task.name.clone() });
            }
            _ => {}
        }
        if let Some(image) = &task.image {
            // Commands that grade run in the task's image as well.
            self.settings.attempt.sandbox.image = ImageRef::Name(image.clone());
        }
        Ok(RolloutEngine { shared: Arc::new(self) })
    }

    /// Waits until one more episode is allowed; `None` without a limit, or where the wait is cancelled.
    pub(crate) async fn permit(&self, cancel: &CancellationToken) -> Option<OwnedSemaphorePermit> {
        let episodes = Arc::clone(self.episodes.as_ref()?);
        tokio::select! {
            biased;
            () = cancel.cancelled() => None,
            permit = episodes.acquire_owned() => permit.ok(),
        }
    }
}

fn unless_all_failed(groups: Vec<Group>) -> Result<Vec<Group>, RolloutError> {
    let all = || groups.iter().flat_map(|group| &group.members);
    let (episodes, first) = (all().count(), all().next());
    match first {
        Some(first) if all().all(|rollout| rollout.end == End::Infrastructure) => {
            let cause = first.why.clone().unwrap_or_else(|| "unknown".into());
            Err(RolloutError::AllFailed { episodes, cause })
        }
        _ => Ok(groups),
    }
}
