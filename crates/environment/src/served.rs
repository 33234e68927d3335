//! A task as it is served: its problems and how attempts at them are played.

use std::{collections::HashMap, sync::Arc};

use attempt::Settings;
use problems::{Grader, Problem, Task};
use sandbox::ImageRef;

/// A task that sessions can be started at.
#[derive(Clone, Debug)]
pub struct Served {
    pub(crate) task: Arc<Task>,
    pub(crate) problems: Vec<Arc<Problem>>,
    pub(crate) by_id: HashMap<String, usize>,
    pub(crate) settings: Arc<Settings>,
}

/// Why a task cannot be served.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ServedError {
    /// Its grades come from a judge, which sessions do not have.
    #[error("the task `{0}` is graded by a judge model, so sessions would have no score")]
    Judge(String),
    /// It has no problems.
    #[error("the task `{0}` has no rows")]
    NoRows(String),
}

impl Served {
    /// A task with its problems. Its own image, where it has one, replaces that of the settings.
    pub fn new(
        task: Task,
        problems: Vec<Problem>,
        mut settings: Settings,
    ) -> Result<Self, ServedError> {
        if task.grader == Grader::Judge {
            return Err(ServedError::Judge(task.name));
        }
        if problems.is_empty() {
            return Err(ServedError::NoRows(task.name));
        }
        if let Some(image) = &task.image {
            // Commands that grade run in the task's image as well.
            settings.sandbox.image = ImageRef::Name(image.clone());
        }
        let ids = problems.iter().enumerate().map(|(at, problem)| (problem.id.clone(), at));
        Ok(Self {
            by_id: ids.collect(),
            task: Arc::new(task),
            problems: problems.into_iter().map(Arc::new).collect(),
            settings: Arc::new(settings),
        })
    }

    /// The task.
    pub fn task(&self) -> &Task {
        &self.task
    }

    /// How many problems it has.
    pub fn rows(&self) -> usize {
        self.problems.len()
    }

    /// How attempts are played.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }
}
