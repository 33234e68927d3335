//! An episode's tokens: what was sampled is kept as it was, what was told is appended, and both are the conversation.

use std::{sync::Arc, time::Duration};

use agent::Compaction;
use attempt::LimitSettings;
use lis_rollout::{ChatCodec, End, Loss, Overlong, Reward, Rollout, RolloutSettings, Shaping};
use trajectory::{Event, Message};

use crate::{
    script::{Script, logprob},
    support::{
        answering, block, bytes, engine, limited, problem, real, request, said, settings,
        templated, with_runtime,
    },
};

/// Plays one episode.
async fn played(
    codec: &Arc<ChatCodec>,
    runtime: &Arc<sandbox_native::NativeRuntime>,
    settings: RolloutSettings,
    script: &Arc<Script>,
) -> Rollout {
    let engine = engine(codec, runtime, settings, Reward::Grader);
    let request = request(&[problem("one", 42)], 1);
    let mut groups = engine.run(script, &request, |_| {}).await.unwrap();
    engine.close().await.unwrap();
    groups.remove(0).members.remove(0)
}

fn solves(
    codec: &Arc<ChatCodec>,
    runtime: &Arc<sandbox_native::NativeRuntime>,
) -> impl Future<Output = ()> {
    let (codec, runtime) = (Arc::clone(codec), Arc::clone(runtime));
    async move {
        let look = format!("I look first.\n{}\nthe number is 7\n", block("cat */number.txt"));
        let (answer, submit) = (answering("42"), block("submit"));
        let script = Arc::new(Script::of(&codec, &[&look, &answer, &submit]));
        let played = played(&codec, &runtime, settings(), &script).await;
        assert_eq!(
            (played.end, played.reward, played.raw_reward),
            (End::Submitted, Some(1.0), Some(1.0))
        );
        assert_eq!(
            (played.turns, played.calls, played.valid_calls, played.silent_turns),
            (3, 3, 3, 0)
        );
        assert_eq!((played.answer.as_str(), played.why.as_deref(), played.tries), ("42", None, 1));
        assert_eq!(played.segments.len(), 1);
        let segment = &played.segments[0];
        // What the policy imagined after its block was never sampled.
        let look = look.split("\nthe number is 7").next().unwrap().to_owned();
        assert_eq!(said(&codec, segment), [look, answer, submit]);
        let places = segment.sampled.chunk_by(|one, two| one == two).flat_map(|run| {
            run.iter()
                .enumerate()
                .map(|(place, sampled)| if *sampled { logprob(place) } else { 0.0 })
        });
        assert!(places.eq(segment.logprobs.iter().copied()));
        // Each sequence that was continued is the beginning of the next one and of the segment.
        let asked = script.asked.lock().unwrap();
        assert_eq!(asked.len(), 3);
        assert!(asked.iter().all(|(_, tokens)| segment.tokens.starts_with(tokens)));
        let text = codec.vocabulary().decode(&segment.tokens);
        assert!(text.contains("the number is 42\n"), "{text}");
        assert_eq!(script.forgotten.lock().unwrap().as_slice(), [asked[0].0]);
        let counted = played.prompt_tokens + played.response_tokens + played.environment_tokens;
        assert_eq!(counted, segment.tokens.len());
        assert!(played.events.iter().any(|line| matches!(line.event, Event::Ended(_))));
    }
}

#[test]
fn an_episode_is_solved_and_kept() {
    with_runtime(|runtime| async move { solves(&bytes(), &runtime).await });
}

#[test]
fn the_same_in_a_real_models_vocabulary() {
    let Some(codec) = real() else { return };
    with_runtime(|runtime| async move { solves(&codec, &runtime).await });
}

#[test]
fn a_reply_without_its_end_is_closed_by_the_template() {
    with_runtime(|runtime| async move {
        let codec = bytes();
        let script = Arc::new(Script::of(&codec, &["nothing to do", &block("submit")]));
        let short = limited(LimitSettings { tokens_per_call: 9, ..LimitSettings::default() });
        let played = played(&codec, &runtime, short, &script).await;
        // The block is cut off as well, again and again, until the agent has seen enough.
        assert_eq!(played.end, End::NoCalls);
        assert_eq!((played.reward, played.segments.len()), (Some(0.0), 1));
        let text = codec.vocabulary().decode(&played.segments[0].tokens);
        assert!(text.contains("nothing t<|im_end|>\n<|im_start|>user\n"), "{text}");
        assert_eq!(said(&codec, &played.segments[0])[..2], ["nothing t", "```bash\ns"]);
        assert_eq!((played.turns, played.silent_turns), (5, 1));
        assert_eq!((played.calls, played.valid_calls), (4, 0));
    });
}

#[test]
fn a_block_that_is_only_thought_of_does_not_end_the_reply() {
    with_runtime(|runtime| async move {
        let codec = templated(
            "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}\
             <|im_end|>\n{% endfor %}{{ '<|im_start|>assistant\n<think>\n' }}",
        );
        let thought = format!("Perhaps\n{}\nor not.\n</think>\n{}", block("ls"), answering("42"));
        let submit = format!("Done.\n</think>\n{}", block("submit"));
        let script = Arc::new(Script::of(&codec, &[&thought, &submit]));
        let played = played(&codec, &runtime, settings(), &script).await;
        assert_eq!((played.end, played.reward, played.turns), (End::Submitted, Some(1.0), 2));
        assert_eq!(said(&codec, &played.segments[0])[0], thought);
    });
}

#[test]
fn shortened_results_start_a_new_segment() {
    with_runtime(|runtime| async move {
        let codec = bytes();
        let long = block("seq 1 2000");
        let script =
            Arc::new(Script::of(&codec, &[&long, "hm", "hm", &answering("42"), &block("submit")]));
        let compaction = Compaction { keep_turns: 1, trigger: 0.1, window: None };
        let mut settings =
            limited(LimitSettings { tokens: Some(60_000), ..LimitSettings::default() });
        settings.attempt.compaction = Some(compaction);
        settings.attempt.output_chars = 6000;
        let played = played(&codec, &runtime, settings, &script).await;
        assert_eq!((played.end, played.reward), (End::Submitted, Some(1.0)));
        assert!(played.events.iter().any(|line| matches!(line.event, Event::Compacted { .. })));
        assert!(played.segments.len() >= 2, "{}", played.segments.len());
        let all: Vec<String> =
            played.segments.iter().flat_map(|segment| said(&codec, segment)).collect();
        assert_eq!(all[0], long);
        assert_eq!(all.len(), 5, "{all:?}");
        // What was said in an earlier segment is context in a later one, and not trained on twice.
        let last = codec.vocabulary().decode(&played.segments.last().unwrap().tokens);
        assert!(last.contains("characters of this old result left out"), "{last}");
        let sampled: usize =
            played.segments.iter().map(lis_rollout::Segment::response_tokens).sum();
        assert_eq!(sampled, played.response_tokens);
    });
}

#[test]
fn ends_are_told_apart_and_overlong_ones_are_worth_nothing() {
    with_runtime(|runtime| async move {
        let codec = bytes();
        let replies = [answering("42"), block("ls"), block("ls -a"), block("ls -l")];
        let answered = replies.each_ref().map(String::as_str);
        let turns = LimitSettings { turns: Some(2), ..LimitSettings::default() };
        let tokens = LimitSettings { tokens: Some(6000), ..LimitSettings::default() };
        let time = LimitSettings { time: Some(Duration::from_secs(2)), ..LimitSettings::default() };
        for (limits, overlong, end, reward, loss) in [
            (turns.clone(), Overlong::Zero, End::MaxTurns, 0.0, Loss::Counted),
            (turns.clone(), Overlong::Keep, End::MaxTurns, 1.0, Loss::Counted),
            (turns, Overlong::Mask, End::MaxTurns, 1.0, Loss::Masked),
            (tokens, Overlong::Zero, End::Truncated, 0.0, Loss::Counted),
            (time, Overlong::Zero, End::Timeout, 1.0, Loss::Counted),
        ] {
            let sleep = block("sleep 30");
            let script = match end {
                End::Timeout => Script::of(&codec, &[answered[0], &sleep]),
                End::Truncated => {
                    let long = format!("{}{}", "so ".repeat(2000), answered[1]);
                    Script::of(&codec, &[answered[0], &long])
                }
                _ => Script::of(&codec, &answered),
            };
            let settings = RolloutSettings { overlong, ..limited(limits) };
            let played = played(&codec, &runtime, settings, &Arc::new(script)).await;
            assert_eq!((played.end, played.raw_reward), (end, Some(1.0)));
            assert_eq!((played.reward, played.loss), (Some(reward), loss));
            assert!(!played.segments.is_empty());
        }
    });
}

#[test]
fn a_full_context_is_an_end_like_others() {
    with_runtime(|runtime| async move {
        let codec = bytes();
        let mut script = Script::of(&codec, &[&answering("42"), &block("seq 1 100")]);
        script.context = 6000;
        let played = played(&codec, &runtime, settings(), &Arc::new(script)).await;
        assert_eq!(
            (played.end, played.reward, played.raw_reward),
            (End::Truncated, Some(0.0), Some(1.0))
        );
        assert!(played.segments[0].tokens.len() <= 6000);
    });
}

#[test]
fn documents_can_stand_in_the_prompt() {
    with_runtime(|runtime| async move {
        let codec = bytes();
        let script = Arc::new(Script::of(
            &codec,
            &[&block("ls -R /testbed"), &answering("42"), &block("submit")],
        ));
        let mut settings = settings();
        settings.attempt.documents = lis_rollout::Documents::Prompt;
        let played = played(&codec, &runtime, settings, &script).await;
        assert_eq!(played.reward, Some(1.0));
        let Some(Event::Started(started)) = played.events.first().map(|line| &line.event) else {
            panic!("no beginning")
        };
        let told = |message: &Message| {
            serde_json::to_string(message).unwrap().contains("the number is 42")
        };
        assert!(started.messages.iter().any(told));
        let text = codec.vocabulary().decode(&played.segments[0].tokens);
        assert!(text.matches("number.txt").count() == 1, "the file itself is not there: {text}");
    });
}

#[test]
fn a_block_that_ends_with_submit_is_the_last_turn() {
    with_runtime(|runtime| async move {
        let codec = bytes();
        let answer = answering("42").replace("\n```", "\nsubmit\n```");
        let shaping = Shaping { turn_cost: 0.25, ..Shaping::default() };
        let settings = RolloutSettings { shaping, ..settings() };
        let script = Arc::new(Script::of(&codec, &[&answer, &block("echo never")]));
        let played = played(&codec, &runtime, settings, &script).await;
        assert_eq!((played.end, played.turns, played.raw_reward), (End::Submitted, 1, Some(1.0)));
        assert_eq!(played.reward, Some(0.75), "a turn costs a quarter");
        assert_eq!(said(&codec, &played.segments[0]), [answer]);
    });
}
