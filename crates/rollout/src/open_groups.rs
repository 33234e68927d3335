//! Groups in play. A caller may take the complete ones and leave the others open, to be completed beside later groups.

use std::{
    collections::{BTreeMap, HashMap},
    fmt,
    future::Future,
    sync::Arc,
};

use attempt::Cancelled;
use problems::Problem;
use tokio::task::{Id, JoinError, JoinSet};
use tokio_util::sync::CancellationToken;

use crate::{End, Group, Rollout, episode::Member};

/// Groups whose rollouts are being played, each as a task of the runtime that began it. They are played on while nobody
/// waits for them. [`Self::close`] ends them and their sandboxes; so does dropping, without waiting.
#[derive(Default)]
pub struct OpenGroups {
    tasks: JoinSet<Result<Rollout, Cancelled>>,
    /// The rollouts of the tasks, and the numbers of their groups.
    members: HashMap<Id, (u64, Member)>,
    /// By number, which is the order in which they began.
    groups: BTreeMap<u64, OpenGroup>,
    begun: u64,
}

/// A group in play.
pub(crate) struct OpenGroup {
    problem: Arc<Problem>,
    /// The step that began it.
    step: u64,
    /// Rollouts that have not ended.
    missing: usize,
    ended: Vec<Rollout>,
    cancel: CancellationToken,
}

impl OpenGroup {
    /// Its rollouts, if all have ended.
    pub(crate) fn complete(&self) -> Option<&[Rollout]> {
        (self.missing == 0).then_some(self.ended.as_slice())
    }
}

/// What became of a rollout.
pub(crate) enum Ended<'a> {
    /// It ended, in this group.
    Played(&'a Rollout, &'a OpenGroup),
    /// It was cancelled, and with it everything of its caller.
    Cancelled,
    /// Its group was dropped.
    Dropped,
}

impl fmt::Debug for OpenGroups {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let groups = self.groups.values();
        let groups = groups.map(|group| (&group.problem.id, group.step, group.missing));
        f.debug_list().entries(groups).finish()
    }
}

impl OpenGroups {
    /// The number of groups.
    pub fn len(&self) -> usize {
        self.groups.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }

    /// Whether rollouts are being played, those of dropped groups included.
    pub fn is_playing(&self) -> bool {
        !self.tasks.is_empty()
    }

    /// Their problems, in the order in which they began.
    pub fn problems(&self) -> impl Iterator<Item = &Arc<Problem>> {
        self.groups.values().map(|group| &group.problem)
    }

    /// The number of rollouts that have not ended.
    pub fn missing(&self) -> usize {
        self.groups.values().map(|group| group.missing).sum()
    }

    /// Ends the groups that began before a step, and returns their number. Their sandboxes are removed meanwhile.
    pub fn drop_before(&mut self, step: u64) -> usize {
        let count = self.groups.len();
        self.groups.retain(|_, group| {
            let keeps = group.step >= step;
            if !keeps {
                group.cancel.cancel();
            }
            keeps
        });
        count - self.groups.len()
    }

    /// Ends all rollouts, and waits until their sandboxes are gone.
    pub async fn close(&mut self) {
        self.cancel();
        self.groups.clear();
        while self.tasks.join_next().await.is_some() {}
        self.members.clear();
    }

    /// Tells all rollouts to end. Those that were about to end well still do.
    pub(crate) fn cancel(&self) {
        self.groups.values().for_each(|group| group.cancel.cancel());
    }

    /// Begins a group without rollouts, and returns its number.
    pub(crate) fn begin(
        &mut self,
        problem: &Arc<Problem>,
        step: u64,
        cancel: CancellationToken,
    ) -> u64 {
        let (problem, ended) = (Arc::clone(problem), Vec::new());
        self.begun += 1;
        self.groups.insert(self.begun, OpenGroup { problem, step, missing: 0, ended, cancel });
        self.begun
    }

    /// Begins a rollout of a group.
    pub(crate) fn spawn<F>(
        &mut self,
        group: u64,
        member: Member,
        play: impl FnOnce(Member, CancellationToken) -> F,
    ) where
        F: Future<Output = Result<Rollout, Cancelled>> + Send + 'static,
    {
        let Some(open) = self.groups.get_mut(&group) else { return };
        let task = self.tasks.spawn(play(member.clone(), open.cancel.clone()));
        open.missing += 1;
        self.members.insert(task.id(), (group, member));
    }

    /// Whether less than `enough` groups are complete, and more may be. Those whose rollouts all failed do not count:
    /// they are the first to end, and teach nothing.
    pub(crate) fn awaits(&self, enough: usize) -> bool {
        let some =
            |group: &OpenGroup| group.ended.iter().any(|played| played.end != End::Infrastructure);
        let complete = |group: &&OpenGroup| group.missing == 0 && some(group);
        let is_played = self.groups.values().any(|group| group.missing > 0);
        is_played && self.groups.values().filter(complete).count() < enough
    }

    /// Waits for the next rollout to end; `None` where none is being played.
    pub(crate) async fn next(&mut self) -> Option<Ended<'_>> {
        let joined = self.tasks.join_next_with_id().await?;
        Some(self.ended(joined))
    }

    /// The next rollout that has ended already.
    pub(crate) fn try_next(&mut self) -> Option<Ended<'_>> {
        let joined = self.tasks.try_join_next_with_id()?;
        Some(self.ended(joined))
    }

    fn ended(&mut self, joined: Result<(Id, Result<Rollout, Cancelled>), JoinError>) -> Ended<'_> {
        let (id, done) = match joined {
            Ok((id, done)) => (id, Ok(done)),
            Err(panic) => (panic.id(), Err(panic)),
        };
        let Some((group, member)) = self.members.remove(&id) else { return Ended::Dropped };
        let Some(open) = self.groups.get_mut(&group) else { return Ended::Dropped };
        let rollout = match done {
            Ok(Ok(rollout)) => rollout,
            Ok(Err(Cancelled)) => return Ended::Cancelled,
            Err(panic) => Rollout::lost(&member, format!("the rollout panicked: {panic}")),
        };
        open.missing = open.missing.saturating_sub(1);
        open.ended.push(rollout);
        let open = &*open;
        open.ended.last().map_or(Ended::Dropped, |rollout| Ended::Played(rollout, open))
    }

    /// Takes the complete groups, in the order in which they began, with their members in order.
    pub(crate) fn take_complete(&mut self) -> Vec<Group> {
        let complete: Vec<u64> = self
            .groups
            .iter()
            .filter(|(_, group)| group.missing == 0)
            .map(|(number, _)| *number)
            .collect();
        let groups = complete.iter().filter_map(|number| self.groups.remove(number));
        groups
            .map(|group| {
                let mut members = group.ended;
                members.sort_by_key(|rollout| rollout.member);
                Group { problem: group.problem.id.clone(), members }
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use sampling::SamplingParams;
    use serde_json::json;

    use super::*;

    #[tokio::test]
    async fn groups_that_only_broke_something_close_no_step() {
        let row = json!({"id": "a", "problem_statement": "?", "ground_truth": "1"});
        let problem = Arc::new(Problem::from_row(row).unwrap());
        let params = SamplingParams { temperature: 1.0, top_p: 1.0, top_k: None, seed: 0 };
        let member = Member { problem: Arc::clone(&problem), number: 0, params, file: None };
        let mut open = OpenGroups::default();
        let mut begin = || open.begin(&problem, 1, CancellationToken::new());
        let (broken, played, slow) = (begin(), begin(), begin());
        open.spawn(slow, member.clone(), |_, _| pending());
        // One whose answer broke its grader has a reward, 0.
        open.spawn(broken, member.clone(), |member, _| async move {
            Ok(Rollout { reward: Some(0.0), ..Rollout::lost(&member, "broken".into()) })
        });
        assert!(matches!(open.next().await, Some(Ended::Played(..))));
        assert!(open.awaits(1), "the slow group may still be the first that teaches something");
        open.spawn(played, member, |member, _| async move {
            Ok(Rollout { end: End::Submitted, ..Rollout::lost(&member, String::new()) })
        });
        assert!(matches!(open.next().await, Some(Ended::Played(..))));
        assert!(!open.awaits(1));
        assert!(open.is_playing());
    }
}
