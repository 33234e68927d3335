//! Keeps documentation and snapshots in step with the arguments.
//!
//! Tables of options in `docs/*.md` lie between `<!-- options: COMMAND -->` (options without a heading) or
//! `<!-- options: COMMAND | HEADING -->` and `<!-- /options -->`. `LIS_BLESS=1` rewrites them.

use std::{
    fs,
    path::{Path, PathBuf},
};

use clap::{Arg, ArgAction, Command, CommandFactory};

use super::Cli;

/// The variable that makes the test rewrite the tables.
const BLESS: &str = "LIS_BLESS";

/// The variable that names the directory for man pages.
const MAN: &str = "LIS_MAN";

const START: &str = "<!-- options: ";
const END: &str = "<!-- /options -->";

fn cli() -> Command {
    let mut cli = Cli::command().term_width(100);
    cli.build();
    cli
}

/// Every command without subcommands, with its path.
fn leaves(command: &Command, path: &str, found: &mut Vec<(String, Command)>) {
    for inner in command.get_subcommands().filter(|inner| inner.get_name() != "help") {
        let path = format!("{path} {}", inner.get_name()).trim_start().to_owned();
        match inner.has_subcommands() {
            true => leaves(inner, &path, found),
            false => found.push((path, inner.clone())),
        }
    }
}

#[test]
#[expect(clippy::disallowed_methods, reason = "a developer asks for the tables to be rewritten")]
fn options_in_the_docs_are_current() {
    // The directory it was built in may belong to another checkout, or be one that this user may not read.
    let crate_dir = std::env::var_os("CARGO_MANIFEST_DIR");
    let crate_dir = crate_dir.unwrap_or(env!("CARGO_MANIFEST_DIR").into());
    let docs = Path::new(&crate_dir).join("../../docs");
    let cli = cli();
    let mut stale = Vec::new();
    for file in fs::read_dir(docs).unwrap().map(|file| file.unwrap().path()) {
        if file.extension().is_none_or(|extension| extension != "md") {
            continue;
        }
        let text = fs::read_to_string(&file).unwrap();
        let current = regenerated(&text, &cli);
        if current != text {
            match std::env::var_os(BLESS) {
                Some(_) => fs::write(&file, current).unwrap(),
                None => stale.push(file),
            }
        }
    }
    assert!(
        stale.is_empty(),
        "tables of options differ from the arguments in {stale:?}; run `cargo xtask docs`, or this test with {BLESS}=1"
    );
}

/// The text with its tables of options generated.
fn regenerated(text: &str, cli: &Command) -> String {
    let mut rest = text;
    let mut out = String::new();
    while let Some((before, after)) = rest.split_once(START) {
        let (name, after) = after.split_once(" -->").expect("a marker ends with -->");
        let (_, after) = after.split_once(END).expect("a table ends with a marker");
        out.push_str(&format!("{before}{START}{name} -->\n{}{END}", table(name, cli)));
        rest = after;
    }
    out + rest
}

fn table(name: &str, cli: &Command) -> String {
    let (path, heading) = name.split_once(" | ").map_or((name, None), |(a, b)| (a, Some(b)));
    let mut command = cli;
    for word in path.split(' ').filter(|word| *word != "-") {
        let found = command.find_subcommand(word);
        command = found.unwrap_or_else(|| panic!("docs name the unknown command `{name}`"));
    }
    let shown = |arg: &&Arg| {
        let builtin = ["help", "version"].contains(&arg.get_id().as_str());
        // Global options have a table of their own, that of the program.
        let own = !arg.is_global_set() || path == "-";
        !arg.is_hide_set() && !builtin && own && arg.get_help_heading() == heading
    };
    let rows: Vec<String> = command.get_arguments().filter(shown).map(row).collect();
    assert!(!rows.is_empty(), "`{name}` has no options");
    format!("| option | default | meaning |\n|---|---|---|\n{}\n", rows.join("\n"))
}

fn row(arg: &Arg) -> String {
    let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
    let (help, written) = match help.rsplit_once(" [") {
        Some((text, note)) if note.ends_with(']') => {
            (text.to_owned(), note.trim_end_matches(']').to_owned())
        }
        _ => (help, String::new()),
    };
    let defaults = arg.get_default_values().iter().map(|value| format!("`{}`", value.display()));
    let default = match written.split_once(": ") {
        Some(("else", sources)) => sources.to_owned(),
        Some((_, text)) => text.to_owned(),
        None if arg.get_action().takes_values() => defaults.collect::<Vec<_>>().join(", "),
        None => String::new(),
    };
    let cells = [format!("`{}`", synopsis(arg)), default, help];
    format!("| {} |", cells.map(|cell| cell.replace('|', "\\|")).join(" | "))
}

/// The option as it is written on the command line.
fn synopsis(arg: &Arg) -> String {
    let names = arg.get_value_names().unwrap_or_default();
    let choices = arg.get_possible_values();
    let value = match choices.is_empty() || !arg.get_action().takes_values() {
        true => names.iter().map(ToString::to_string).collect::<Vec<_>>().join(" "),
        false => choices.iter().map(|choice| choice.get_name()).collect::<Vec<_>>().join("|"),
    };
    let many = matches!(arg.get_action(), ArgAction::Append)
        && arg.get_num_args().is_some_and(|range| range.max_values() > 1);
    let value = if many { format!("{value}...") } else { value };
    let flag = match (arg.get_short(), arg.get_long()) {
        (Some(short), Some(long)) => format!("-{short}, --{long}"),
        (None, Some(long)) => format!("--{long}"),
        _ => return value,
    };
    match arg.get_action().takes_values() {
        true => format!("{flag} {value}"),
        false => flag,
    }
}

#[test]
fn help_texts_are_as_reviewed() {
    let cli = cli();
    let mut commands = vec![("llm-in-sandbox".to_owned(), cli.clone())];
    leaves(&cli, "", &mut commands);
    for (path, mut command) in commands {
        let name = format!("help-{}", path.replace(' ', "-"));
        insta::assert_snapshot!(name, command.render_help().to_string());
    }
}

/// Writes a man page for every command into the directory named by `LIS_MAN`, or a temporary one.
#[test]
#[expect(clippy::disallowed_methods, reason = "`cargo xtask docs` names the directory")]
fn every_command_has_a_man_page() {
    let scratch = tempfile::tempdir().unwrap();
    let dir = std::env::var_os(MAN).map_or_else(|| scratch.path().to_owned(), PathBuf::from);
    fs::create_dir_all(&dir).unwrap();
    clap_mangen::generate_to(Cli::command(), &dir).unwrap();
    let mut commands = Vec::new();
    leaves(&cli(), "", &mut commands);
    for (path, _) in commands {
        let file = dir.join(format!("llm-in-sandbox-{}.1", path.replace(' ', "-")));
        let page = fs::read_to_string(&file).unwrap();
        assert!(page.contains(".SH NAME") && page.contains(".SH OPTIONS"), "{}", file.display());
    }
}

#[test]
fn an_option_has_one_type_everywhere() {
    let mut commands = Vec::new();
    leaves(&cli(), "", &mut commands);
    let mut known: Vec<(String, String, String)> = Vec::new();
    let mut clashes = Vec::new();
    for (path, command) in &commands {
        for arg in command.get_arguments().filter(|arg| !arg.is_hide_set()) {
            let Some(long) = arg.get_long() else { continue };
            let shape = synopsis(arg);
            match known.iter().find(|(name, _, _)| name == long) {
                Some((_, other, first)) if *other != shape && !MAY_DIFFER.contains(&long) => {
                    clashes.push(format!("{first}: {other}; {path}: {shape}"));
                }
                Some(_) => {}
                None => known.push((long.to_owned(), shape, path.clone())),
            }
        }
    }
    assert!(clashes.is_empty(), "the same option means different things: {clashes:#?}");
}

/// Options whose values have the same meaning in all commands, but not the same form.
const MAY_DIFFER: [&str; 3] = [
    // What a model is pulled from, or an image built from.
    "from",
    // A directory or file for a sandbox, or files to read.
    "input", // With or without the choice of several.
    "model",
];
