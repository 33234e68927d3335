//! Remedies for errors of libraries: which option or command helps.
//!
//! Libraries know no command line; their errors are typed, and this is the one place that knows what the user can do.

use std::{error::Error, io, path::Path};

use problems::{TaskError, hub::HubError};
use report::ReadError;
use sandbox::{Feature, ImageRef, UnknownImage};

use crate::settings::SettingsError;

/// The remedy for an error, as the end of its message; empty if there is none.
pub(crate) fn remedy(error: &anyhow::Error) -> String {
    let found =
        error.chain().find_map(of).or_else(|| too_large(error)).or_else(|| full_disk(error));
    found.map(|text| format!("; {text}")).unwrap_or_default()
}

/// The remedy for one cause.
fn of(cause: &(dyn Error + 'static)) -> Option<&'static str> {
    None.or_else(|| cause.downcast_ref().and_then(of_sandbox))
        .or_else(|| cause.downcast_ref().and_then(of_store))
        .or_else(|| of_named(cause))
        .or_else(|| cause.downcast_ref().and_then(of_catalogue))
        .or_else(|| cause.downcast_ref().and_then(of_benchmark))
        .or_else(|| cause.downcast_ref().and_then(of_model))
        .or_else(|| cause.downcast_ref().and_then(of_hub))
        .or_else(|| cause.downcast_ref().and_then(of_task))
        .or_else(|| cause.downcast_ref().map(of_report))
}

fn of_sandbox(error: &sandbox::Error) -> Option<&'static str> {
    match error {
        sandbox::Error::Denied { .. } => {
            Some("see `llm-in-sandbox doctor`, or use --runtime docker")
        }
        sandbox::Error::NoDaemon { .. } => Some(
            "start it, for instance with `systemctl start docker`, or give its address in DOCKER_HOST",
        ),
        sandbox::Error::UnknownImage { image, reason } => of_image(image, reason),
        sandbox::Error::Stalled { .. } => {
            Some("if this machine is only slow, give it more time with --stall-timeout")
        }
        sandbox::Error::Unsupported { feature, .. } => match feature {
            Feature::Image(ImageRef::Host) => Some("use --image debian:12, or --runtime native"),
            Feature::Network(_) => Some("use --runtime native, or --network none or full"),
            Feature::DiskQuota(_) => Some("see `llm-in-sandbox doctor`, or omit --disk-quota"),
            Feature::NativeRuntime => Some("use --runtime docker"),
            Feature::FullProtection => Some("see `llm-in-sandbox doctor`, or omit --strict"),
            _ => None,
        },
        _ => None,
    }
}

/// Remedies for named sandboxes.
#[cfg(target_os = "linux")]
fn of_named(cause: &(dyn Error + 'static)) -> Option<&'static str> {
    match cause.downcast_ref()? {
        supervisor::Error::Sandbox(error) => of_sandbox(error),
        supervisor::Error::Unknown(_) => Some(
            "see `llm-in-sandbox sandbox list`, or create it with `llm-in-sandbox sandbox create`",
        ),
        supervisor::Error::Exists(_) => {
            Some("choose another name, or remove it with `llm-in-sandbox sandbox rm`")
        }
        supervisor::Error::Version { .. } => {
            Some("use that version, or remove its sandboxes with `llm-in-sandbox sandbox rm --all`")
        }
        _ => None,
    }
}

#[cfg(not(target_os = "linux"))]
fn of_named(_: &(dyn Error + 'static)) -> Option<&'static str> {
    None
}

fn of_image(image: &ImageRef, reason: &UnknownImage) -> Option<&'static str> {
    match (reason, image) {
        (UnknownImage::NotInStore, ImageRef::Name(name)) if name == "base" => Some(BUILD_BASE),
        (UnknownImage::NotInStore, ImageRef::Name(name)) if name == "science" => {
            Some(BUILD_SCIENCE)
        }
        (UnknownImage::NotInStore, ImageRef::Name(name)) if Path::new(name).is_dir() => {
            Some("put ./ before it to use the directory of that name")
        }
        (UnknownImage::NotInStore, _) => Some(
            "see `llm-in-sandbox image list`, or get it with `image pull`, `image import` or `image build`",
        ),
        (UnknownImage::NoDirectory | UnknownImage::NotARootFileSystem, _) => {
            Some("give a directory with a root file system, or the name of an image")
        }
        _ => None,
    }
}

const BUILD_BASE: &str = "build it with `llm-in-sandbox image build`";
const BUILD_SCIENCE: &str = "build it with `llm-in-sandbox image build science`";

fn of_store(error: &image::Error) -> Option<&'static str> {
    match error {
        image::Error::Unknown { name } if name == "base" => Some(BUILD_BASE),
        image::Error::Unknown { name } if name == "science" => Some(BUILD_SCIENCE),
        image::Error::Unknown { .. } => Some("see `llm-in-sandbox image list`"),
        image::Error::NotARootFileSystem { .. } => {
            Some("check the path, or import it anyway with --force")
        }
        image::Error::ContainsStore { .. } => {
            Some("import another directory, or set LLM_IN_SANDBOX_HOME to one outside of it")
        }
        _ => None,
    }
}

fn of_catalogue(error: &catalogue::Error) -> Option<&'static str> {
    match error {
        catalogue::Error::NoAdapter { .. } => Some(
            "use that version, or give --adapter none or --adapter FILE; a benchmark also needs a new directory then: --output DIR",
        ),
        _ => None,
    }
}

fn of_benchmark(error: &benchmark::Error) -> Option<&'static str> {
    match error {
        benchmark::Error::SettingsDiffer { .. } => {
            Some("choose another directory with --output, or use the same settings")
        }
        benchmark::Error::NothingToGrade { .. } => {
            Some("name the directory of a run with --resume or --output")
        }
        _ => None,
    }
}

/// What to do if a server requires a key.
pub(crate) const GIVE_KEY: &str = "set LLM_API_KEY, or name another variable with --api-key-env";

fn of_model(error: &model::Error) -> Option<&'static str> {
    match error {
        model::Error::NoKey { .. } => Some(GIVE_KEY),
        model::Error::Key { .. } => Some("check the variable that holds it, or see --api-key-env"),
        model::Error::Unreachable { .. } => Some("start it, or give its address with --base-url"),
        _ => None,
    }
}

fn of_hub(error: &HubError) -> Option<&'static str> {
    match error {
        HubError::NoSource { .. } | HubError::Fetch { .. } | HubError::NoRows { .. } => {
            Some("give the rows with --data FILE")
        }
        _ => None,
    }
}

fn of_task(error: &TaskError) -> Option<&'static str> {
    match error {
        TaskError::DataOutside { .. } => Some("give a data file elsewhere with --data FILE"),
        _ => None,
    }
}

fn of_report(error: &ReadError) -> &'static str {
    match error {
        ReadError::NoDirectory(_) | ReadError::NotARun(_) => {
            "give a directory that `benchmark` wrote (its --output)"
        }
        ReadError::Duplicate(_) => "give each run once",
    }
}

/// A file that a sandbox may not hold.
fn too_large(error: &anyhow::Error) -> Option<&'static str> {
    let is_too_large = |cause: &(dyn Error + 'static)| {
        cause.downcast_ref().is_some_and(|io: &io::Error| io.kind() == io::ErrorKind::FileTooLarge)
    };
    let is_of_sandbox = error.chain().any(|cause| cause.is::<sandbox::Error>());
    (is_of_sandbox && error.chain().any(is_too_large)).then_some("allow more with --disk")
}

/// Any part may find the disk full or read-only; the state directory has a remedy of its own.
fn full_disk(error: &anyhow::Error) -> Option<&'static str> {
    if error.chain().any(|cause| cause.is::<SettingsError>()) {
        return None;
    }
    let mut kinds = error.chain().filter_map(|cause| cause.downcast_ref().map(io::Error::kind));
    kinds.find_map(|kind| match kind {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            Some(
                "free some space, or set LLM_IN_SANDBOX_HOME, or for running sandboxes LLM_IN_SANDBOX_TMPDIR, to a larger file system",
            )
        }
        io::ErrorKind::ReadOnlyFilesystem => {
            Some("set LLM_IN_SANDBOX_HOME to a writable directory")
        }
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    #[test]
    fn full_and_read_only_disks_have_a_remedy() {
        for kind in [io::ErrorKind::StorageFull, io::ErrorKind::ReadOnlyFilesystem] {
            let error = anyhow::Error::new(io::Error::from(kind)).context("writing");
            assert!(remedy(&error).contains("LLM_IN_SANDBOX_HOME"), "{kind}");
        }
        assert_eq!(remedy(&anyhow::anyhow!("anything else")), "");
    }

    #[test]
    fn a_file_beyond_the_limit_has_a_remedy() {
        let large = || io::Error::from(io::ErrorKind::FileTooLarge);
        let inside = sandbox::Error::Path { path: "/x".into(), source: large() };
        assert!(remedy(&inside.into()).contains("--disk"));
        assert_eq!(remedy(&large().into()), "");
    }

    #[test]
    fn errors_of_sandboxes_have_remedies() {
        let unknown = |image, reason| sandbox::Error::UnknownImage { image, reason };
        let named = |name: &str| ImageRef::Name(name.into());
        let unsupported = |feature| sandbox::Error::Unsupported {
            feature,
            reason: String::new(),
            remedy: String::new(),
        };
        let denied = || io::Error::from(io::ErrorKind::PermissionDenied);
        for (error, remedies) in [
            (sandbox::Error::Denied { what: String::new(), source: denied() }, "--runtime docker"),
            (
                sandbox::Error::NoDaemon { address: String::new(), source: Box::new(denied()) },
                "DOCKER_HOST",
            ),
            (unknown(named("base"), UnknownImage::NotInStore), "image build"),
            (unknown(named("nope"), UnknownImage::NotInStore), "image list"),
            (unknown(named("src"), UnknownImage::NotInStore), "put ./ before it"),
            (unknown(named("science"), UnknownImage::NotInStore), "image build science"),
            (unknown(named("/x"), UnknownImage::NoDirectory), "root file system"),
            (unsupported(Feature::Image(ImageRef::Host)), "--image debian:12"),
            (unsupported(Feature::Network(sandbox::Network::Full)), "--network none"),
            (unsupported(Feature::FullProtection), "--strict"),
        ] {
            let text = remedy(&anyhow::Error::new(error).context("while running"));
            assert!(text.contains(remedies), "{text} lacks {remedies}");
        }
    }

    #[test]
    fn errors_of_tasks_and_runs_have_remedies() {
        let path = || PathBuf::from("x");
        let texts = [
            (anyhow::Error::new(HubError::NoSource { task: "math".into() }), "--data FILE"),
            (TaskError::DataOutside { path: path(), line: 1 }.into(), "--data FILE"),
            (ReadError::NotARun(path()).into(), "--output"),
            (ReadError::Duplicate(path()).into(), "once"),
        ];
        for (error, remedies) in texts {
            assert!(remedy(&error).contains(remedies), "{error}");
        }
        let (program, differences) = (String::new(), Vec::new());
        let differs = benchmark::Error::SettingsDiffer { path: path(), program, differences };
        assert!(remedy(&differs.into()).contains("--output"));
        let (name, sha256) = ("m".into(), catalogue::Sha256Hex::of_bytes(b""));
        let gone = catalogue::Error::NoAdapter { name, sha256 };
        let gone = remedy(&gone.into());
        assert!(gone.contains("--adapter none") && gone.contains("--output"), "{gone}");
        let nothing = benchmark::Error::NothingToGrade { path: path() };
        assert!(remedy(&nothing.into()).contains("--resume"));
        let message = || "no".to_owned();
        let no_key = model::Error::NoKey { status: 401, message: message() };
        assert!(remedy(&no_key.into()).contains("LLM_API_KEY"));
        let refused = model::Error::Key { status: 401, message: message() };
        assert!(remedy(&refused.into()).contains("--api-key-env"));
    }
}
