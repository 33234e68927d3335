//! A block of commands that ends with `submit`: submitted in the same turn only if it succeeded and left an answer.

use lis_agent::{CancellationToken, Episode, EpisodeSettings, Limits};
use model::{Formatted, ToolFormat};
use sandbox::Spec;
use testkit::{ScriptedModel, say};
use trajectory::{Event, Outcome};

use crate::{
    plays_episodes::{Memory, fresh, texts},
    sandboxes::{Hand, with_sandbox},
};

fn settings(answer_file: Option<&str>) -> EpisodeSettings {
    EpisodeSettings {
        limits: Limits { turns: 2, ..Limits::default() },
        output_dir: Some("/testbed/out".into()),
        answer_file: answer_file.map(Into::into),
        ..EpisodeSettings::default()
    }
}

/// The outcome, the number of turns and the text of each observation.
async fn play(
    hand: &Hand,
    settings: &EpisodeSettings,
    blocks: &[&str],
) -> (Outcome, u32, Vec<String>) {
    let replies = blocks.iter().map(|block| say(format!("```bash\n{block}\n```")));
    let model = Formatted::new(ScriptedModel::new(replies), ToolFormat::Fenced);
    let (journal, cancel) = (Memory::new(), CancellationToken::new());
    let episode = Episode::new(&model, &hand.sandbox, &journal, settings, fresh(), cancel);
    let ended = lis_agent::run(episode).await;
    let observations = journal.events().into_iter().filter_map(|event| match event {
        Event::Observed(observed) => Some(texts(&observed.message)),
        _ => None,
    });
    (ended.outcome, ended.spent.turns, observations.collect())
}

const RESET: &str = "rm -rf out; mkdir out\n";

#[test]
fn commands_that_succeed_and_leave_an_answer_submit_in_the_same_turn() {
    with_sandbox(&Spec::default(), async |hand| {
        let block = format!("{RESET}echo 7 > out/answer.txt\nsubmit  # done");
        for file in [None, Some("/testbed/out/answer.txt")] {
            let (outcome, turns, observed) = play(&hand, &settings(file), &[&block]).await;
            assert_eq!((outcome, turns), (Outcome::Submitted, 1));
            assert_eq!(observed.len(), 1);
            assert!(observed[0].starts_with("[exit code 0]\n(no output)\n[1 step"), "{observed:?}");
        }
        // Without a place for the answer, success is enough.
        let anywhere = EpisodeSettings { output_dir: None, ..settings(None) };
        let (outcome, turns, _) = play(&hand, &anywhere, &["true\nsubmit"]).await;
        assert_eq!((outcome, turns), (Outcome::Submitted, 1));
    });
}

#[test]
fn a_failed_command_shows_its_output_as_if_it_did_not_submit() {
    with_sandbox(&Spec::default(), async |hand| {
        let (with, without) = (
            format!("{RESET}echo 7 > out/answer.txt; ls none\nsubmit"),
            format!("{RESET}echo 7 > out/answer.txt; ls none"),
        );
        let submitted = play(&hand, &settings(None), &[&with, "submit"]).await;
        let plain = play(&hand, &settings(None), &[&without, "submit"]).await;
        assert_eq!(submitted, plain);
        assert_eq!((submitted.0, submitted.1), (Outcome::Submitted, 2));
        assert!(submitted.2[0].starts_with("[exit code 2]\n"), "{:?}", submitted.2);
    });
}

#[test]
fn nothing_is_submitted_without_an_answer() {
    with_sandbox(&Spec::default(), async |hand| {
        // Neither an empty file nor a directory is an answer.
        let empty = format!("{RESET}touch out/answer.txt; mkdir out/submit\nsubmit");
        let (outcome, turns, observed) = play(&hand, &settings(None), &[&empty, "submit"]).await;
        assert_eq!((outcome, turns), (Outcome::Submitted, 2));
        assert!(observed[0].contains("Not submitted yet"), "{observed:?}");
        // Another file is not the answer where it has a name, but the directory is not empty either.
        let other = format!("{RESET}echo 7 > out/other.txt\nsubmit");
        let file = Some("/testbed/out/answer.txt");
        let (outcome, turns, observed) = play(&hand, &settings(file), &[&other, "ls"]).await;
        assert_eq!((outcome, turns), (Outcome::MaxTurns, 2));
        assert!(!observed[0].contains("Not submitted"), "{observed:?}");
    });
}

#[test]
fn the_word_in_a_file_or_as_a_program_does_not_submit() {
    with_sandbox(&Spec::default(), async |hand| {
        let written = format!("{RESET}cat > out/answer.txt <<'EOF'\nsubmit\nEOF");
        let program =
            "printf 'echo ran' > /tmp/submit; chmod +x /tmp/submit; PATH=/tmp:$PATH submit";
        let (outcome, _, observed) = play(&hand, &settings(None), &[&written, program]).await;
        assert_eq!(outcome, Outcome::MaxTurns);
        assert!(observed[1].contains("ran"), "{observed:?}");
    });
}
