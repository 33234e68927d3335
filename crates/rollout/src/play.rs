//! Groups: several episodes of each of several problems, all at once, as far as there are sandboxes.
//!
//! What an episode does follows from the seed, the step, its problem and its place in the group, never from who comes
//! first.

use std::{collections::HashMap, path::PathBuf, sync::Arc};

use agent::Watch;
use problems::Problem;
use sandbox::Runtime;
use tokio::task::{Id, JoinSet};

use crate::{
    Choice, End, Group, PlayError, Played, Sampler,
    episode::{Job, Stopped},
    seed,
    stage::Stage,
};

/// What is to be played.
#[derive(Clone, Debug)]
pub struct Order {
    /// The problems; one that stands there twice gets two groups that differ.
    pub problems: Vec<Arc<Problem>>,
    /// Episodes of each.
    pub members: u32,
    /// The number of the step.
    pub step: u64,
    /// How tokens are chosen. The seeds of episodes follow from this one, from the step, the problem and the member.
    pub choice: Choice,
    /// The directory where the events of every episode are kept, in a file each. It is made where it does not exist.
    pub events: Option<PathBuf>,
    /// Notices when it is time to stop.
    pub watch: Watch,
}

impl<R: Runtime> Stage<R> {
    /// Plays all groups to their end. `hear` is told of every episode as it ends, in no order; groups and their members
    /// come in the order of the problems.
    ///
    /// An episode that failed on our side leaves its group: it has no reward. One that broke its sandbox or its grader is
    /// worth nothing. Only where all ended so is that an error.
    pub async fn play<S: Sampler>(
        &self,
        sampler: &Arc<S>,
        order: &Order,
        mut hear: impl FnMut(&Played) + Send,
    ) -> Result<Vec<Group>, PlayError> {
        if let Some(dir) = &order.events {
            let failed = |source| PlayError::Events { path: dir.clone(), source };
            std::fs::create_dir_all(dir).map_err(failed)?;
        }
        let mut tasks = JoinSet::new();
        let mut jobs: HashMap<Id, (usize, Job)> = HashMap::new();
        for (at, job) in self.jobs(order) {
            let (shared, sampler) = (Arc::clone(&self.shared), Arc::clone(sampler));
            let (own, watch) = (job.clone(), order.watch.clone());
            let task = tasks.spawn(async move { shared.episode(&sampler, &own, watch).await });
            jobs.insert(task.id(), (at, job));
        }
        let mut groups: Vec<Group> = order
            .problems
            .iter()
            .map(|problem| Group { problem: problem.id.clone(), members: Vec::new() })
            .collect();
        let mut stopped = false;
        while let Some(done) = tasks.join_next_with_id().await {
            let (id, done) = match done {
                Ok((id, done)) => (id, Ok(done)),
                Err(lost) => (lost.id(), Err(lost)),
            };
            let Some((at, job)) = jobs.remove(&id) else { continue };
            let played = match done {
                Ok(Ok(played)) => played,
                Ok(Err(Stopped)) => {
                    stopped = true;
                    continue;
                }
                Err(lost) => Played::lost(&job, format!("it broke off: {lost}")),
            };
            hear(&played);
            if let Some(group) = groups.get_mut(at) {
                group.members.push(played);
            }
        }
        if stopped {
            return Err(PlayError::Stopped);
        }
        for group in &mut groups {
            group.members.sort_by_key(|played| played.member);
        }
        whole(groups)
    }

    fn jobs(&self, order: &Order) -> impl Iterator<Item = (usize, Job)> {
        let tries = self.shared.method.tries.max(1);
        let mut seen: HashMap<&str, u32> = HashMap::new();
        order.problems.iter().enumerate().flat_map(move |(at, problem)| {
            let before = seen.entry(problem.id.as_str()).or_default();
            let first = *before;
            *before = first.saturating_add(order.members);
            (0..order.members).map(move |member| {
                let place = first.saturating_add(member);
                let seed = seed::of_member(order.choice.seed, order.step, &problem.id, place);
                let name = format!("{at:04}-{member:03}.jsonl");
                let job = Job {
                    problem: Arc::clone(problem),
                    member,
                    choice: Choice { seed, ..order.choice },
                    file: order.events.as_ref().map(|dir| dir.join(name)),
                    tries,
                };
                (at, job)
            })
        })
    }
}

/// The groups, unless there is nothing in them at all.
fn whole(groups: Vec<Group>) -> Result<Vec<Group>, PlayError> {
    let all = || groups.iter().flat_map(|group| &group.members);
    let (episodes, first) = (all().count(), all().next());
    match first {
        Some(first) if all().all(|played| played.end == End::Infrastructure) => {
            let cause = first.why.clone().unwrap_or_else(|| "nobody knows why".into());
            Err(PlayError::NothingPlayed { episodes, cause })
        }
        _ => Ok(groups),
    }
}
