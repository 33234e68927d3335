//! The rollout engine: a policy's codec, a task, sandboxes and settings. The sampler comes with each call, so that
//! demonstrations and policies take the same path.

use std::{fmt, path::PathBuf, sync::Arc};

use attempt::{Cancelled, Mode, Sandboxes};
use model::ToolSpec;
use problems::{Grader, Problem, Task};
use sandbox::{ImageRef, Runtime};
use tokio_util::sync::CancellationToken;

use crate::{
    ChatCodec, Reward, Rollout, RolloutError, RolloutSettings, SamplingParams, episode::Member,
    scripted::ScriptedSampler,
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
    pub(crate) sandboxes: Sandboxes<R>,
}

impl<R: Runtime> RolloutEngine<R> {
    /// Checks that the task can give rewards here.
    pub fn new(parts: EngineParts<R>) -> Result<Self, RolloutError> {
        let EngineParts { codec, task, mut settings, reward, runtime } = parts;
        let refused = |grader| Err(RolloutError::Grader { task: task.name.clone(), grader });
        let grades_in_sandbox = match (&reward, &task.grader) {
            (Reward::Custom(_), _) => false,
            (_, Grader::Judge) => return refused("a judge"),
            (_, Grader::Tests) => return refused("the tests of a repository"),
            (_, grader) => !grader.is_immediate(),
        };
        match (settings.mode, &runtime) {
            (Mode::Sandbox, None) => return Err(RolloutError::NoRuntime),
            (Mode::Llm, None) if grades_in_sandbox => {
                return Err(RolloutError::NoSandboxes { task: task.name });
            }
            _ => {}
        }
        if let Some(image) = &task.image {
            // Commands that grade run in the task's image as well.
            settings.attempt.sandbox.image = ImageRef::Name(image.clone());
        }
        let warm = if settings.mode == Mode::Sandbox { settings.warm } else { 0 };
        let sandboxes = Sandboxes::new(runtime, settings.sandboxes, warm);
        let task = Arc::new(task);
        Ok(Self { shared: Arc::new(Shared { codec, task, settings, reward, sandboxes }) })
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
