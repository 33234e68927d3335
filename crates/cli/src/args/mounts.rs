//! Options for mounts, as Docker has them. Sandboxes have no mounts, and `-v` is the option for logging here: without
//! this check, `-v SRC:DST` would be taken for the command to run.

use std::ffi::{OsStr, OsString};

use crate::exit::UsageError;

/// Rejects options for mounts, before anything else reads the arguments.
pub(crate) fn refuse(args: &[OsString]) -> Result<(), UsageError> {
    let words: Vec<&str> =
        args.iter().skip(1).take_while(|arg| *arg != "--").filter_map(|arg| arg.to_str()).collect();
    let remedy = match words.iter().find(|word| !word.starts_with('-')) {
        Some(&"sandbox") => "copy files in with --copy-in SRC:DST, and out with --copy-out SRC:DST",
        Some(&"run") => {
            "copy files in with --input DIR; the model's files are saved in --output DIR"
        }
        _ => return Ok(()),
    };
    let is_option = |word: &str| {
        let name = word.split('=').next().unwrap_or(word);
        matches!(name, "--volume" | "--mount")
    };
    let is_volume = |pair: &[&str]| pair[0] == "-v" && is_pair_of_paths(OsStr::new(pair[1]));
    if words.iter().any(|word| is_option(word)) || words.windows(2).any(is_volume) {
        return Err(UsageError(format!("a sandbox has no mounts; {remedy}")));
    }
    Ok(())
}

/// Whether a word is a path, a colon and an absolute path, as in `/data:/mnt` or `./x:/mnt:ro`.
fn is_pair_of_paths(word: &OsStr) -> bool {
    let Some((host, inside)) = word.to_str().and_then(|word| word.split_once(":/")) else {
        return false;
    };
    host.starts_with(['/', '.', '~']) && !host.contains(' ') && !inside.contains(' ')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_for_mounts_are_refused_with_what_there_is_instead() {
        let refused = |line: &str| {
            let args: Vec<OsString> = line.split('|').map(OsString::from).collect();
            refuse(&args).err().map(|error| error.to_string()).unwrap_or_default()
        };
        assert!(refused("x|sandbox|run|-v|/tmp:/x|--|ls").contains("--copy-in"));
        assert!(refused("x|sandbox|shell|--volume=./a:/b:ro").contains("--copy-in"));
        assert!(refused("x|run|--mount|type=bind,source=/a,target=/b|Do it").contains("--input"));
        for fine in [
            "x|sandbox|run|-v|--|ls",
            "x|sandbox|run|--|docker|run|-v|/tmp:/x",
            "x|run|-v|Copy /a:/b to c",
            "x|run|-v|http://a/b",
            "x|image|pull|-v|/a:/b",
        ] {
            assert_eq!(refused(fine), "", "{fine}");
        }
    }
}
