//! Groups: several rollouts of each of several problems, concurrent as far as there are sandboxes.
//!
//! A rollout depends on the seed, the step, its problem and its position in the group, never on scheduling.

use std::{collections::HashMap, path::PathBuf, sync::Arc};

use attempt::Cancelled;
use problems::Problem;
use sandbox::Runtime;
use tokio::task::{Id, JoinSet};
use tokio_util::sync::CancellationToken;

use crate::{
    End, Group, Rollout, RolloutEngine, RolloutError, Sampler, SamplingParams, episode::Member,
    seed,
};

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

impl<R: Runtime> RolloutEngine<R> {
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
        if let Some(dir) = &request.events {
            let failed = |source| RolloutError::Events { path: dir.clone(), source };
            std::fs::create_dir_all(dir).map_err(failed)?;
        }
        let mut tasks = JoinSet::new();
        let mut members: HashMap<Id, (usize, Member)> = HashMap::new();
        for (group, member) in self.members(request) {
            let (shared, sampler) = (Arc::clone(&self.shared), Arc::clone(sampler));
            let (own, cancel) = (member.clone(), request.cancel.clone());
            let task = tasks.spawn(async move { shared.rollout(&sampler, &own, cancel).await });
            members.insert(task.id(), (group, member));
        }
        let mut groups: Vec<Group> = request
            .problems
            .iter()
            .map(|problem| Group { problem: problem.id.clone(), members: Vec::new() })
            .collect();
        let mut cancelled = false;
        while let Some(joined) = tasks.join_next_with_id().await {
            let (id, done) = match joined {
                Ok((id, done)) => (id, Ok(done)),
                Err(panic) => (panic.id(), Err(panic)),
            };
            let Some((group, member)) = members.remove(&id) else { continue };
            let rollout = match done {
                Ok(Ok(rollout)) => rollout,
                Ok(Err(Cancelled)) => {
                    cancelled = true;
                    continue;
                }
                Err(panic) => Rollout::lost(&member, format!("the rollout panicked: {panic}")),
            };
            on_rollout(&rollout);
            if let Some(group) = groups.get_mut(group) {
                group.members.push(rollout);
            }
        }
        if cancelled {
            return Err(RolloutError::Cancelled);
        }
        for group in &mut groups {
            group.members.sort_by_key(|rollout| rollout.member);
        }
        unless_all_failed(groups)
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
