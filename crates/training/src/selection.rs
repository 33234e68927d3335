//! Which recorded episodes a supervised run trains on: those with a correct answer, unless configured otherwise.
//!
//! Resolved once and stored with the run: runs of versions without this choice trained on all submitted episodes, and
//! resume so.

use serde::{Deserialize, Serialize};

use crate::{
    config::{KeptEpisodes, SftData},
    recordings::Conversation,
    run::{self, RunDirectory},
    services::TrainError,
};

/// The file of the resolved choice.
const FILE: &str = "selection.json";

/// Whether a run has started before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Started {
    /// It has.
    Before,
    /// It starts now.
    Now,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Stored {
    keep: KeptEpisodes,
}

/// Resolves which episodes the run keeps, and stores it.
pub(crate) fn resolve(
    data: &SftData,
    directory: &RunDirectory,
    started: Started,
) -> Result<KeptEpisodes, TrainError> {
    let stored: Option<Stored> = run::read_json(directory.path(), FILE)?;
    let keep = match (data.keep, stored, started) {
        (Some(keep), ..) => keep,
        (None, Some(stored), _) => stored.keep,
        (None, None, Started::Before) => KeptEpisodes::Submitted,
        (None, None, Started::Now) => KeptEpisodes::Correct,
    };
    directory.write_json(FILE, &Stored { keep })?;
    Ok(keep)
}

/// The episodes to train on, and notes about the others.
pub(crate) fn select(
    conversations: Vec<Conversation>,
    keep: KeptEpisodes,
    threshold: f64,
) -> (Vec<Conversation>, Vec<String>) {
    if keep == KeptEpisodes::Submitted {
        return (conversations, Vec::new());
    }
    let all = conversations.len();
    let (known, unknown): (Vec<_>, Vec<_>) =
        conversations.into_iter().partition(|conversation| conversation.score.is_some());
    let scored = known.len();
    let is_correct =
        |conversation: &Conversation| conversation.score.is_some_and(|score| score >= threshold);
    let correct: Vec<_> = known.into_iter().filter(is_correct).collect();
    let mut notes = Vec::new();
    if let Some(first) = unknown.first() {
        notes.push(format!(
            "{} of {all} submitted episodes have no recorded score and are left out, such as {}; benchmarks and \
             `sample` record scores, and `data.keep = \"submitted\"` trains on all",
            unknown.len(),
            first.path.display()
        ));
    }
    if correct.len() < scored {
        let wrong = scored - correct.len();
        notes.push(format!(
            "{wrong} of {all} submitted episodes have a wrong answer and are left out"
        ));
    }
    (correct, notes)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn conversation(path: &str, score: Option<f64>) -> Conversation {
        Conversation { path: path.into(), messages: Vec::new(), score }
    }

    fn names(conversations: &[Conversation]) -> Vec<String> {
        conversations.iter().map(|one| one.path.display().to_string()).collect()
    }

    #[test]
    fn wrong_answers_and_unknown_scores_are_left_out_by_name() {
        let all = vec![
            conversation("right", Some(1.0)),
            conversation("wrong", Some(0.0)),
            conversation("partly", Some(0.5)),
            conversation("unknown", None),
        ];
        let (kept, notes) = select(all.clone(), KeptEpisodes::Correct, 1.0);
        assert_eq!(names(&kept), ["right"]);
        assert!(
            notes[0].starts_with("1 of 4") && notes[0].contains("such as unknown"),
            "{notes:?}"
        );
        assert!(notes[1].starts_with("2 of 4"), "{notes:?}");
        assert_eq!(names(&select(all.clone(), KeptEpisodes::Correct, 0.5).0), ["right", "partly"]);
        assert_eq!(select(all.clone(), KeptEpisodes::Submitted, 1.0), (all, Vec::new()));
    }

    #[test]
    fn a_run_of_an_older_version_keeps_what_it_kept() {
        let data = |keep| SftData { keep, ..SftData::default() };
        for (started, keep, resolved) in [
            (Started::Now, None, KeptEpisodes::Correct),
            (Started::Before, None, KeptEpisodes::Submitted),
            (Started::Now, Some(KeptEpisodes::Submitted), KeptEpisodes::Submitted),
        ] {
            let dir = tempfile::tempdir().unwrap();
            let directory = RunDirectory::open(dir.path(), &json!({})).unwrap();
            assert_eq!(resolve(&data(keep), &directory, started).unwrap(), resolved);
            // Whatever it was then.
            assert_eq!(resolve(&data(None), &directory, Started::Before).unwrap(), resolved);
        }
    }
}
