//! Where episodes are played: a policy's language, a task, sandboxes, and the rules.
//!
//! What samples is brought along for each play, so that demonstrations and policies take the same way.

use std::{fmt, path::PathBuf, sync::Arc};

use agent::Watch;
use model::ToolSpec;
use problems::{Grader, Problem, Task};
use sandbox::{ImageRef, Runtime, Spec};

use crate::{
    Choice, Method, Mode, PlayError, Played, Reward,
    computer::Computers,
    episode::{Job, Stopped},
    recital::Recital,
    speech::Speech,
};

/// What a stage is made of.
pub struct Scene<R: Runtime> {
    /// How the policy is spoken to.
    pub speech: Arc<Speech>,
    /// What it is asked, and how answers are graded.
    pub task: Task,
    /// How episodes are played.
    pub method: Method,
    /// What answers are worth.
    pub reward: Reward,
    /// What makes sandboxes; mode `llm` can do without.
    pub runtime: Option<Arc<R>>,
}

/// Where episodes are played. Its clones are the same stage.
pub struct Stage<R: Runtime> {
    pub(crate) shared: Arc<Shared<R>>,
}

impl<R: Runtime> Clone for Stage<R> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared) }
    }
}

impl<R: Runtime> fmt::Debug for Stage<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Shared { task, method, .. } = &*self.shared;
        f.debug_struct("Stage")
            .field("task", &task.name)
            .field("mode", &method.mode)
            .finish_non_exhaustive()
    }
}

pub(crate) struct Shared<R: Runtime> {
    pub(crate) speech: Arc<Speech>,
    pub(crate) task: Arc<Task>,
    pub(crate) method: Method,
    pub(crate) reward: Reward,
    pub(crate) computers: Option<Computers<R>>,
}

impl<R: Runtime> Stage<R> {
    /// Sets it up. To be called within a tokio runtime: sandboxes are made ahead from now on.
    pub fn new(scene: Scene<R>) -> Result<Self, PlayError> {
        let Scene { speech, task, method, reward, runtime } = scene;
        let refused = |grader| Err(PlayError::Grader { task: task.name.clone(), grader });
        let commands = match (&reward, &task.grader) {
            (Reward::Own(_), _) => false,
            (_, Grader::Judge) => return refused("a judge"),
            (_, Grader::Tests) => return refused("the tests of a repository"),
            (_, Grader::Command(_)) => true,
            _ => false,
        };
        let computers = match (method.mode, runtime) {
            (Mode::Llm, _) if !commands => None,
            (Mode::Llm, None) => return Err(PlayError::NoSandboxes { task: task.name.clone() }),
            (Mode::Sandbox, None) => return Err(PlayError::NoRuntime),
            (_, Some(runtime)) => {
                let image = task.image.clone();
                let spec = Spec {
                    image: image.map_or_else(|| method.spec.image.clone(), ImageRef::Name),
                    workdir: task.prompts.working_dir.clone(),
                    ..method.spec.clone()
                };
                let ahead = if method.mode == Mode::Sandbox { method.ahead } else { 0 };
                Some(Computers::new(runtime, spec, method.sandboxes, ahead))
            }
        };
        let task = Arc::new(task);
        Ok(Self { shared: Arc::new(Shared { speech, task, method, reward, computers }) })
    }

    /// The tools a policy is told of.
    pub fn tools(&self) -> Vec<ToolSpec> {
        self.shared.settings().tools.specs()
    }

    /// Plays an episode in which every reply is given. Its segments are what a policy would have sampled, so that one
    /// can be taught by them; its reward says whether it should be. Each reply is followed by the token that ends it.
    /// Where our side fails it is tried again, like an episode.
    pub async fn demonstrate(
        &self,
        problem: &Arc<Problem>,
        replies: Vec<String>,
        events: Option<PathBuf>,
        watch: Watch,
    ) -> Result<Played, PlayError> {
        let choice = Choice { temperature: 1.0, top_p: 1.0, top_k: None, seed: 0 };
        let problem = Arc::clone(problem);
        let tries = self.shared.method.tries.max(1);
        let job = Job { problem, member: 0, choice, file: events, tries };
        let recital = Arc::new(Recital::new(Arc::clone(&self.shared.speech), replies));
        let played = self.shared.episode(&recital, &job, watch).await;
        played.map_err(|Stopped| PlayError::Stopped)
    }

    /// Removes the sandboxes that were made ahead. Clones that are still there keep them.
    pub async fn close(self) -> Result<(), PlayError> {
        let computers = Arc::into_inner(self.shared).and_then(|shared| shared.computers);
        match computers {
            Some(computers) => computers.close().await.map_err(PlayError::Sandbox),
            None => Ok(()),
        }
    }
}
