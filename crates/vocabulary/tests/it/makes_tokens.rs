//! Encoding and decoding, and the control tokens.

use lis_vocabulary::{Decoder, Vocabulary};
use proptest::prelude::*;

use crate::support::{MODELS, TEXTS, file};

fn round_trips(vocabulary: &Vocabulary) {
    for text in TEXTS {
        let ids = vocabulary.encode(text).unwrap();
        assert_eq!(vocabulary.decode(&ids), text);
        assert!(ids.iter().all(|id| (*id as usize) < vocabulary.size()));
        let mut decoder = Decoder::default();
        let pieces: Vec<String> =
            ids.iter().map(|id| decoder.push(vocabulary.bytes_of(*id))).collect();
        assert!(pieces.iter().all(|piece| text.contains(piece.as_str())), "{pieces:?}");
        assert_eq!(pieces.concat() + &decoder.finish(), text);
    }
}

#[test]
fn every_text_decodes_to_itself() {
    round_trips(&Vocabulary::bytes().unwrap());
    for variable in MODELS {
        let Some(path) = file(variable) else { continue };
        round_trips(&Vocabulary::load(&path).unwrap());
    }
}

#[test]
fn the_smallest_vocabulary_has_bytes_and_control_tokens() {
    let bytes = Vocabulary::bytes().unwrap();
    assert_eq!(bytes.size(), 259);
    assert_eq!(bytes.encode("A\n").unwrap(), [65, 10]);
    assert_eq!(bytes.encode("é<|im_end|>").unwrap(), [0xc3, 0xa9, 258]);
    assert_eq!(bytes.end_of_turn(), [258, 256]);
    assert_eq!(bytes.id("<|im_start|>"), Some(257));
    assert_eq!(bytes.decode(&[0xc3, 104, 4_000_000_000]), "\u{fffd}h");
    assert_eq!(bytes.bos_to_add(), None);
}

#[test]
fn a_model_file_has_control_tokens_and_a_template() {
    let Some(path) = file("LIS_TEST_TINY_GGUF") else { return };
    let vocabulary = Vocabulary::load(&path).unwrap();
    assert_eq!(vocabulary.size(), 49152);
    let end = vocabulary.id("<|im_end|>").unwrap();
    assert_eq!(vocabulary.end_of_turn().first(), Some(&end));
    assert!(vocabulary.end_of_turn().contains(&vocabulary.id("<|endoftext|>").unwrap()));
    assert!(vocabulary.added_tokens().any(|(id, text)| (id, text) == (end, "<|im_end|>")));
    assert!(vocabulary.chat_template().unwrap().contains("im_start"));
    assert_eq!(vocabulary.eos(), "<|im_end|>");
}

proptest! {
    #[test]
    fn any_text_decodes_to_itself(text in any::<String>()) {
        let bytes = Vocabulary::bytes().unwrap();
        prop_assert_eq!(bytes.decode(&bytes.encode(&text).unwrap()), text);
    }
}
