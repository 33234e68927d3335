//! The text the loop itself adds to a conversation, in one place so that it can be measured and changed.
//!
//! Models read it: change it only with scores from before and after. Their other texts are the tool descriptions in
//! `tools/specs.rs`, the output of each tool in that tool's file, and the prompts in `prompt.rs` and `prompts/*.yaml`.

use std::path::Path;

use trajectory::Stop;

use crate::RestoredFiles;

/// The first message of a resumed episode, whose sandbox is a new one.
pub(crate) fn restarted(files: RestoredFiles) -> &'static str {
    match files {
        RestoredFiles::Saved => {
            "Your computer was restarted. The files are as you left them; variables, the current \
             directory of the shell and running programs are gone."
        }
        RestoredFiles::Repeated => {
            "Your computer was restarted and all your commands were run again, so the files should be as you left \
             them. What depends on time, chance or the network may differ: check it before you rely on it."
        }
    }
}

/// Added to a result that repeats the one before. Small models otherwise repeat the call until a limit ends them.
pub(crate) const REPEATED: &str =
    "[the same call gave the same result before: do something else, or submit if all is done]";

/// The result of a call to `submit` that ends the episode.
pub(crate) const SUBMITTED: &str = "submitted";

/// The answer to a response without a tool call. `tool_call_hint` says how this model writes one.
pub(crate) fn reminder(stop: &Stop, response: &str, tool_call_hint: &str) -> String {
    let problem = match (stop, response.trim()) {
        (Stop::Length, _) => "too long and was cut off",
        (_, "") => "empty",
        _ => "without a tool call",
    };
    let shorter = if *stop == Stop::Length { " Be brief." } else { "" };
    format!(
        "Your reply was {problem}, so nothing was done.{shorter} Go on: {tool_call_hint}. Nobody reads what you write \
         besides; submit when your work is complete and in its place."
    )
}

/// The result of each call beyond the most a response may hold.
pub(crate) fn too_many_calls(limit: usize) -> String {
    format!("Not done: a reply may hold {limit} calls. Make it again.")
}

/// The result of a first call to `submit` while the output directory holds no file with content.
pub(crate) fn nothing_to_submit(output_dir: &Path) -> String {
    let dir = output_dir.display();
    format!(
        "Not submitted yet: no file with anything in it lies in {dir}, so your answer would be lost. If a \
         command failed, mend it; then leave the answer there and submit. To end without one, submit again."
    )
}

/// The number of turns left, at the end of the last message of every turn.
pub(crate) fn countdown(turns_left: u32) -> String {
    match turns_left {
        0 => "[no steps remaining]".to_owned(),
        1 => "[1 step remaining: leave your answer in its place and submit now]".to_owned(),
        left => format!("[{left} steps remaining]"),
    }
}

/// Stands for the middle of an old result that compaction left out.
pub(crate) fn compacted_text(characters: usize) -> String {
    format!("[... {characters} characters of this old result left out ...]")
}

/// Stands for an image of an old result that compaction left out.
pub(crate) fn compacted_image(media_type: &str) -> String {
    format!("[a picture was shown here: {media_type}]")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_countdown_urges_in_the_last_turn() {
        assert_eq!(countdown(2), "[2 steps remaining]");
        assert!(countdown(1).contains("submit now"));
    }

    #[test]
    fn the_reminder_names_what_was_wrong() {
        for (stop, response, problem) in [
            (Stop::Length, "", "was too long and was cut off"),
            (Stop::End, " \n", "was empty"),
            (Stop::End, "Hm.", "was without a tool call"),
        ] {
            let text = reminder(&stop, response, "call a tool");
            assert!(text.contains(problem) && text.contains("Go on: call a tool."), "{text}");
            assert_eq!(text.contains("Be brief"), stop == Stop::Length);
        }
    }
}
