//! How the repositories of SWE-bench run their tests. Facts about projects, nothing else.

use super::{log::TestLogFormat, script::shell_quoted};
use crate::{RowError, problem::shown};

/// Activates the conda environment of SWE-bench's images, where there is one.
const ENVIRONMENT: &str = "if [ -f /opt/miniconda3/bin/activate ]; then \
     . /opt/miniconda3/bin/activate && conda activate testbed; fi";

/// The command that runs these test files of a repository.
pub(super) fn command(
    repo: &str,
    version: Option<&str>,
    files: &[String],
) -> Result<(String, TestLogFormat), RowError> {
    let python: Vec<&str> =
        files.iter().map(String::as_str).filter(|file| file.ends_with(".py")).collect();
    if python.is_empty() {
        let why = "changes no Python file; add a field `test_command`".into();
        return Err(RowError::Invalid { field: "test_patch", why });
    }
    let paths = python.iter().map(|file| shell_quoted(file)).collect::<Vec<_>>().join(" ");
    let (run, format) = match repo {
        "django/django" => (django(version, &python), TestLogFormat::Unittest),
        "sympy/sympy" => {
            let quiet = "PYTHONWARNINGS='ignore::UserWarning,ignore::SyntaxWarning'";
            (format!("{quiet} bin/test -C --verbose {paths}"), TestLogFormat::Sympy)
        }
        "sphinx-doc/sphinx" => {
            (format!("tox --current-env -epy39 -v -- {paths}"), TestLogFormat::Pytest)
        }
        "astropy/astropy" => {
            let options = "-rA -vv -o console_output_style=classic --tb=no";
            (format!("pytest {options} {paths}"), TestLogFormat::Pytest)
        }
        "matplotlib/matplotlib"
        | "mwaskom/seaborn"
        | "pallets/flask"
        | "psf/requests"
        | "pydata/xarray"
        | "pylint-dev/pylint"
        | "pytest-dev/pytest"
        | "scikit-learn/scikit-learn" => (format!("pytest -rA {paths}"), TestLogFormat::Pytest),
        _ => {
            let why =
                format!("{} has no known test command; add a field `test_command`", shown(repo));
            return Err(RowError::Ungradable(why));
        }
    };
    Ok((format!("{ENVIRONMENT}\n{run}"), format))
}

/// Django's own runner takes modules instead of files.
fn django(version: Option<&str>, files: &[&str]) -> String {
    let module = |file: &&str| {
        let file = file.strip_prefix("tests/").unwrap_or(file);
        shell_quoted(&file.trim_end_matches(".py").replace('/', "."))
    };
    let modules = files.iter().map(module).collect::<Vec<_>>().join(" ");
    let settings = match version {
        Some("1.9") => "",
        _ => " --settings=test_sqlite --parallel 1",
    };
    format!("LANG=en_US.UTF-8 LC_ALL=C.UTF-8 ./tests/runtests.py --verbosity 2{settings} {modules}")
}
