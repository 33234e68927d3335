//! How the repositories of SWE-bench run their tests: facts about projects, nothing else.

use super::{log::Style, script::quoted};

/// Opens the environment that SWE-bench's images have, where there is one.
const ENVIRONMENT: &str = "if [ -f /opt/miniconda3/bin/activate ]; then \
     . /opt/miniconda3/bin/activate && conda activate testbed; fi";

/// The command that runs these test files of a repository.
pub(super) fn command(
    repo: &str,
    version: Option<&str>,
    files: &[String],
) -> Result<(String, Style), String> {
    let python: Vec<&str> =
        files.iter().map(String::as_str).filter(|file| file.ends_with(".py")).collect();
    if python.is_empty() {
        return Err("field `test_patch` changes no Python file; give a `test_command`".into());
    }
    let paths = python.iter().map(|file| quoted(file)).collect::<Vec<_>>().join(" ");
    let (run, style) = match repo {
        "django/django" => (django(version, &python), Style::Unittest),
        "sympy/sympy" => {
            let quiet = "PYTHONWARNINGS='ignore::UserWarning,ignore::SyntaxWarning'";
            (format!("{quiet} bin/test -C --verbose {paths}"), Style::Sympy)
        }
        "sphinx-doc/sphinx" => (format!("tox --current-env -epy39 -v -- {paths}"), Style::Pytest),
        "astropy/astropy" => {
            let form = "-rA -vv -o console_output_style=classic --tb=no";
            (format!("pytest {form} {paths}"), Style::Pytest)
        }
        "matplotlib/matplotlib"
        | "mwaskom/seaborn"
        | "pallets/flask"
        | "psf/requests"
        | "pydata/xarray"
        | "pylint-dev/pylint"
        | "pytest-dev/pytest"
        | "scikit-learn/scikit-learn" => (format!("pytest -rA {paths}"), Style::Pytest),
        _ => {
            return Err(format!(
                "how {} is tested is not known; give a `test_command`",
                crate::problem::shown(repo)
            ));
        }
    };
    Ok((format!("{ENVIRONMENT}\n{run}"), style))
}

/// Django's own runner takes modules instead of files.
fn django(version: Option<&str>, files: &[&str]) -> String {
    let module = |file: &&str| {
        let file = file.strip_prefix("tests/").unwrap_or(file);
        quoted(&file.trim_end_matches(".py").replace('/', "."))
    };
    let modules = files.iter().map(module).collect::<Vec<_>>().join(" ");
    let settings = match version {
        Some("1.9") => "",
        _ => " --settings=test_sqlite --parallel 1",
    };
    format!("LANG=en_US.UTF-8 LC_ALL=C.UTF-8 ./tests/runtests.py --verbosity 2{settings} {modules}")
}
