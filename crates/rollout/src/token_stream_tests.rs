//! Streams: what is kept, what is appended, and when a new segment begins.

use proptest::prelude::*;
use trajectory::{Assistant, Message};
use vocabulary::Vocabulary;

use super::*;

fn codec() -> ChatCodec {
    ChatCodec::new(Vocabulary::bytes().unwrap()).unwrap()
}

fn assistant(text: &str) -> Message {
    Message::Assistant(Assistant { text: text.into(), ..Assistant::default() })
}

fn sampled(tokens: Vec<u32>, end: SampleEnd) -> Sampled {
    let logprobs = (1..=tokens.len()).map(|number| -(number as f32)).collect();
    Sampled { tokens, logprobs, versions: Vec::new(), end }
}

fn reply(codec: &ChatCodec, text: &str, end: SampleEnd) -> Sampled {
    let mut tokens = codec.vocabulary().encode(text).unwrap();
    tokens.extend((end == SampleEnd::Token).then(|| codec.closing().unwrap()));
    sampled(tokens, end)
}

fn hear(stream: &mut TokenStream, codec: &ChatCodec, messages: &[Message]) -> String {
    let text = codec.render(messages, &[]).unwrap();
    stream.extend(codec, &text).unwrap();
    text
}

fn spelled(codec: &ChatCodec, segment: &Segment) -> String {
    codec.vocabulary().decode(&segment.tokens)
}

/// The parts that were sampled.
fn said(codec: &ChatCodec, segment: &Segment) -> Vec<String> {
    let both: Vec<_> = segment.tokens.iter().zip(&segment.sampled).collect();
    let runs = both.chunk_by(|one, two| one.1 == two.1).filter(|run| *run[0].1);
    runs.map(|run| {
        codec.vocabulary().decode(&run.iter().map(|(token, _)| **token).collect::<Vec<_>>())
    })
    .collect()
}

#[test]
fn a_conversation_that_goes_on_stays_one_segment() {
    let codec = codec();
    let mut stream = TokenStream::default();
    let mut messages = vec![Message::user("one")];
    hear(&mut stream, &codec, &messages);
    assert_eq!(stream.push_response(&codec, &reply(&codec, "two", SampleEnd::Token)), "two");
    messages.extend([assistant("two"), Message::user("three")]);
    hear(&mut stream, &codec, &messages);
    stream.push_response(&codec, &reply(&codec, "fo", SampleEnd::Length));
    messages.extend([assistant("fo"), Message::user("five")]);
    let text = hear(&mut stream, &codec, &messages);
    stream.push_response(&codec, &reply(&codec, "six", SampleEnd::Until));
    assert_eq!(stream.responses(), 3);
    let segments = stream.finish();
    assert_eq!(segments.len(), 1);
    assert_eq!(spelled(&codec, &segments[0]), text + "six");
    assert_eq!(said(&codec, &segments[0]), ["two<|im_end|>", "fo", "six"]);
    let lengths = [segments[0].tokens.len(), segments[0].sampled.len(), segments[0].logprobs.len()];
    assert!(lengths.iter().all(|length| *length == lengths[0]), "{lengths:?}");
    assert_eq!(segments[0].versions, vec![0; lengths[0]]);
    for (sampled, logprob) in segments[0].sampled.iter().zip(&segments[0].logprobs) {
        assert_eq!(*sampled, *logprob < 0.0);
    }
}

#[test]
fn every_sampled_token_has_the_version_of_its_policy() {
    let codec = codec();
    let mut stream = TokenStream::default();
    let mut messages = vec![Message::user("one")];
    hear(&mut stream, &codec, &messages);
    let two = reply(&codec, "two", SampleEnd::Until);
    stream.push_response(&codec, &Sampled { versions: vec![4, 4, 5], ..two });
    messages.extend([assistant("two"), Message::user("three")]);
    hear(&mut stream, &codec, &messages);
    let four = reply(&codec, "four", SampleEnd::Until);
    stream.push_response(&codec, &Sampled { versions: vec![5; 4], ..four });
    let segment = stream.finish().remove(0);
    let versions: Vec<u32> = segment.versions.iter().copied().filter(|of| *of > 0).collect();
    assert_eq!(versions, [4, 4, 5, 5, 5, 5, 5]);
    assert_eq!(segment.versions.len(), segment.tokens.len());
    assert_eq!([4, 5, 6].map(|version| segment.tokens_of_others(version)), [5, 2, 7]);
}

#[test]
fn what_was_sampled_is_never_made_into_tokens_again() {
    let codec = codec();
    let mut stream = TokenStream::default();
    let mut messages = vec![Message::user("one")];
    hear(&mut stream, &codec, &messages);
    // Half a character, a mark in the middle, and a token that is no token.
    let odd = vec![0xc3, b'a'.into(), 257, 4_000_000, b'b'.into()];
    let text = stream.push_response(&codec, &sampled(odd.clone(), SampleEnd::Length));
    assert_eq!(text, "\u{fffd}a<|im_start|>b");
    messages.extend([assistant(&text), Message::user("two")]);
    hear(&mut stream, &codec, &messages);
    stream.push_response(&codec, &reply(&codec, "x", SampleEnd::Token));
    let segments = stream.finish();
    assert_eq!(segments.len(), 1);
    let at = segments[0].prompt_tokens();
    assert_eq!(segments[0].tokens[at..at + odd.len()], odd);
}

#[test]
fn a_changed_history_starts_a_new_segment() {
    let codec = codec();
    let mut stream = TokenStream::default();
    hear(&mut stream, &codec, &[Message::user("a long question")]);
    stream.push_response(&codec, &reply(&codec, "one", SampleEnd::Token));
    let changed = [Message::user("a short one"), assistant("one"), Message::user("next")];
    let text = hear(&mut stream, &codec, &changed);
    stream.push_response(&codec, &reply(&codec, "two", SampleEnd::Token));
    let reworded = [
        changed[0].clone(),
        changed[1].clone(),
        changed[2].clone(),
        assistant("twofold"),
        Message::user("last"),
    ];
    hear(&mut stream, &codec, &reworded);
    let segments = stream.finish();
    assert_eq!(segments.len(), 2, "what was only heard is no segment");
    assert_eq!(said(&codec, &segments[0]), ["one<|im_end|>"]);
    assert_eq!(spelled(&codec, &segments[1]), text + "two<|im_end|>");
    assert_eq!(said(&codec, &segments[1]), ["two<|im_end|>"]);
}

#[test]
fn blanks_that_others_drop_are_no_change() {
    let codec = codec();
    for (written, told, end, segments) in [
        ("x\n", "x", SampleEnd::Until, 1),
        (" x \n", "x", SampleEnd::Token, 1),
        ("x\n", "x", SampleEnd::Length, 1),
        ("x\n", "xyz", SampleEnd::Until, 2),
        ("x\n", "xyz", SampleEnd::Token, 2),
        ("x\ny", "x", SampleEnd::Until, 2),
    ] {
        let mut stream = TokenStream::default();
        hear(&mut stream, &codec, &[Message::user("one")]);
        stream.push_response(&codec, &reply(&codec, written, end));
        let messages = [Message::user("one"), assistant(told), Message::user("two")];
        hear(&mut stream, &codec, &messages);
        stream.push_response(&codec, &reply(&codec, "z", SampleEnd::Token));
        let all = stream.finish();
        assert_eq!(all.len(), segments, "{written:?} told as {told:?}");
        assert_eq!(said(&codec, &all[0])[0].trim_end_matches("<|im_end|>"), written);
    }
}

#[test]
fn another_end_than_the_templates_starts_a_new_segment() {
    let codec = codec();
    let mut stream = TokenStream::default();
    hear(&mut stream, &codec, &[Message::user("one")]);
    stream.push_response(&codec, &sampled(vec![b'x'.into(), 256], SampleEnd::Token));
    hear(&mut stream, &codec, &[Message::user("one"), assistant("x"), Message::user("two")]);
    stream.push_response(&codec, &reply(&codec, "y", SampleEnd::Token));
    let segments = stream.finish();
    assert_eq!(segments.len(), 2);
    assert_eq!(said(&codec, &segments[0]), ["x<|endoftext|>"]);
}

#[test]
fn the_same_question_again_starts_a_new_segment() {
    let codec = codec();
    let mut stream = TokenStream::default();
    for _ in 0..2 {
        hear(&mut stream, &codec, &[Message::user("one")]);
        stream.push_response(&codec, &reply(&codec, "x", SampleEnd::Token));
    }
    let segments = stream.finish();
    assert_eq!(segments.len(), 2);
    assert_eq!(segments[0].tokens, segments[1].tokens);
}

#[derive(Clone, Debug)]
struct Turn {
    tokens: Vec<u32>,
    ends: bool,
    heard: String,
}

fn turns() -> impl Strategy<Value = Vec<Turn>> {
    let token = prop_oneof![8 => 0u32..256, 1 => 256u32..259, 1 => Just(300u32)];
    let turn =
        (prop::collection::vec(token, 1..12), any::<bool>(), "[a-z<|>_ \n]{0,20}|<\\|im_end\\|>")
            .prop_map(|(tokens, ends, heard)| Turn { tokens, ends, heard });
    prop::collection::vec(turn, 1..6)
}

proptest! {
    #[test]
    fn any_conversation_is_kept_token_by_token(turns in turns()) {
        let codec = codec();
        let mut stream = TokenStream::default();
        let mut messages = vec![Message::user("go")];
        let mut expected = Vec::new();
        for turn in &turns {
            hear(&mut stream, &codec, &messages);
            let mut tokens = turn.tokens.clone();
            tokens.extend(turn.ends.then(|| codec.closing().unwrap()));
            let end = if turn.ends { SampleEnd::Token } else { SampleEnd::Length };
            let text = stream.push_response(&codec, &sampled(tokens.clone(), end));
            expected.extend(tokens);
            messages.extend([assistant(&text), Message::user(turn.heard.clone())]);
        }
        let segments = stream.finish();
        let mut kept = Vec::new();
        for segment in &segments {
            prop_assert_eq!(segment.tokens.len(), segment.sampled.len());
            prop_assert_eq!(segment.tokens.len(), segment.logprobs.len());
            let tokens = segment.tokens.iter().zip(&segment.sampled);
            kept.extend(tokens.filter(|(_, sampled)| **sampled).map(|(token, _)| *token));
            for (sampled, logprob) in segment.sampled.iter().zip(&segment.logprobs) {
                prop_assert_eq!(*sampled, *logprob != 0.0);
            }
            let parts = segment.prompt_tokens() + segment.response_tokens() + segment.environment_tokens();
            prop_assert_eq!(parts, segment.tokens.len());
        }
        prop_assert_eq!(kept, expected);
        prop_assert_eq!(segments.len(), 1);
    }
}
