//! The built-in prompt sets, embedded from `prompts/*.yaml`.

/// The names of the built-in sets: `general` for any task, then one for each kind of benchmark.
pub const BUILTIN: &[&str] =
    &["general", "math", "physics", "chem", "biomed", "long_context", "instruct_follow", "swe"];

/// The config of a set, as text.
pub(super) fn text(name: &str) -> Option<&'static str> {
    Some(match name {
        "general" => include_str!("../../prompts/general.yaml"),
        "math" => include_str!("../../prompts/math.yaml"),
        "physics" => include_str!("../../prompts/physics.yaml"),
        "chem" => include_str!("../../prompts/chem.yaml"),
        "biomed" => include_str!("../../prompts/biomed.yaml"),
        "long_context" => include_str!("../../prompts/long_context.yaml"),
        "instruct_follow" => include_str!("../../prompts/instruct_follow.yaml"),
        "swe" => include_str!("../../prompts/swe.yaml"),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::prompt::Prompts;

    #[test]
    fn every_set_is_complete_and_names_its_directories() {
        for name in BUILTIN {
            let prompts = Prompts::parse(text(name).unwrap()).unwrap();
            assert!(prompts.unknown.is_empty(), "{name}");
            assert_eq!(prompts.working_dir, Path::new("/testbed"), "{name}");
            let rendered = prompts.render("What is 6 * 7?", &sandbox::Network::None).unwrap();
            assert!(rendered.user.contains("What is 6 * 7?"), "{name}");
            assert!(rendered.system.contains("/testbed"), "{name}");
            assert!(rendered.system.lines().count() <= 30, "{name}");
            for tool in ["execute_bash", "str_replace_editor", "submit"] {
                assert!(rendered.system.contains(tool), "{name}: {tool}");
            }
            let answers = rendered.user.contains("/answer.txt");
            assert_eq!(answers, *name != "swe", "{name}");
        }
    }

    #[test]
    fn benchmark_sets_share_their_directories() {
        for name in BUILTIN.iter().filter(|name| **name != "general") {
            let prompts = Prompts::builtin(name).unwrap();
            assert_eq!(prompts.input_dir, Path::new("/testbed/documents"), "{name}");
            assert_eq!(prompts.output_dir, Path::new("/testbed"), "{name}");
        }
        let general = Prompts::builtin("general").unwrap();
        assert_eq!(general.input_dir, Path::new("/testbed/input"));
        assert_eq!(general.output_dir, Path::new("/testbed/output"));
        assert_eq!(Prompts::builtin("nonesuch"), None);
    }

    #[test]
    fn boxes_are_shown_literally() {
        for name in ["math", "physics"] {
            let rendered =
                Prompts::builtin(name).unwrap().render("", &sandbox::Network::None).unwrap();
            assert!(rendered.user.contains(r"\boxed{}"), "{name}");
            assert!(!rendered.system.contains("{{"), "{name}");
            assert!(!rendered.system.contains(r"\\boxed"), "{name}");
        }
    }
}
