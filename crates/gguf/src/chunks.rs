//! Long text in chunks, for tokenizers whose time or memory grows faster than the text.
//!
//! Here because the tokens of a text depend on where it is cut: `vocabulary` and llama.cpp's own tokenizer agree on a GGUF
//! file's tokens only if both cut at the same positions.

/// The longest chunk, in bytes.
const MAX_CHUNK: usize = 64 << 10;

/// Splits text into chunks of at most 64 KiB, before a space, a line break or `<` where there is one in the chunk's second
/// half. An empty text is one empty chunk.
///
/// A position depends only on the text before it, so that a longer text starts with the same tokens.
pub fn tokenizer_chunks(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = Some(text);
    std::iter::from_fn(move || {
        let text = rest?;
        if text.len() <= MAX_CHUNK {
            return rest.take();
        }
        let end = text.floor_char_boundary(MAX_CHUNK);
        let half = text.floor_char_boundary(MAX_CHUNK / 2);
        let boundary = text.get(half..end)?.rfind([' ', '\n', '<']);
        let (chunk, after) = text.split_at(boundary.map_or(end, |at| half + at));
        rest = Some(after);
        Some(chunk)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_split_before_spaces_and_nothing_is_lost() {
        for word in ["word ", "é", "x", "<tag>", "a b\n"] {
            let text = word.repeat(300_000 / word.len());
            let chunks: Vec<_> = tokenizer_chunks(&text).collect();
            assert_eq!(chunks.concat(), text);
            assert!(chunks.iter().all(|chunk| chunk.len() <= MAX_CHUNK && !chunk.is_empty()));
            let longer = text.clone() + "and more";
            let again: Vec<_> = tokenizer_chunks(&longer).take(chunks.len() - 1).collect();
            assert_eq!(chunks[..chunks.len() - 1], again);
        }
        let text = "some words ".repeat(20_000);
        assert!(tokenizer_chunks(&text).skip(1).all(|chunk| chunk.starts_with(' ')));
        assert_eq!(tokenizer_chunks("").collect::<Vec<_>>(), [""]);
        assert_eq!(tokenizer_chunks("short").collect::<Vec<_>>(), ["short"]);
    }
}
