//! Opens a browser at an address with a secret, without showing it to other users of the machine.

use std::{io::IsTerminal, io::Write, process::Stdio};

use anyhow::Context;

use crate::{
    exit::UsageError,
    settings::environment::{program, variable},
};

/// Whether a browser window would appear in front of the user.
pub(super) fn has_desktop() -> bool {
    let display = ["DISPLAY", "WAYLAND_DISPLAY"].into_iter().any(|name| variable(name).is_some());
    (display || cfg!(target_os = "macos"))
        && variable("SSH_CONNECTION").is_none()
        && std::io::stderr().is_terminal()
        && opener().is_some()
}

fn opener() -> Option<std::path::PathBuf> {
    program(if cfg!(target_os = "macos") { "open" } else { "xdg-open" })
}

/// Opens an address by a file that only this user can read: arguments of programs are visible to all. The file is removed when
/// what is returned is dropped.
#[expect(clippy::disallowed_methods, reason = "the browser is a program of the user's")]
pub(super) fn open(address: &str, required: bool) -> anyhow::Result<Option<tempfile::TempPath>> {
    let Some(opener) = opener() else {
        return match required {
            true => {
                Err(UsageError("--open: there is no xdg-open; open the address yourself".into())
                    .into())
            }
            false => Ok(None),
        };
    };
    let file = tempfile::Builder::new().prefix("llm-in-sandbox-").suffix(".html").tempfile();
    let mut file = file.context("cannot create a file for the browser")?;
    write!(file, "<!doctype html><meta http-equiv=\"refresh\" content=\"0; url={address}\">")
        .context("cannot write a file for the browser")?;
    let path = file.into_temp_path();
    let mut command = std::process::Command::new(opener);
    command.arg(&path).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    if let Err(error) = command.spawn()
        && required
    {
        return Err(UsageError(format!("--open: cannot start a browser: {error}")).into());
    }
    Ok(Some(path))
}
