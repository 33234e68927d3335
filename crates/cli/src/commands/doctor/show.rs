//! The findings as text. What others say, such as a Docker daemon, is sanitized here, before it is colored.

use std::fmt::Write;

use sandbox::{LayerReport, LayerState};

use super::{Docker, Findings, Mode, Native, PassedOver};
use crate::{
    console::{output, sanitize},
    settings::Color,
};

/// Formats all findings.
pub(super) fn text(findings: &Findings, color: Color) -> String {
    let mut text = String::new();
    let who = if findings.privileged { "root" } else { "an ordinary user" };
    let kernel = findings.kernel.as_deref().unwrap_or("");
    // Writing to a string cannot fail.
    let _ = writeln!(
        text,
        "llm-in-sandbox {} on {} {kernel}, as {who}",
        findings.version, findings.system
    );
    let home = findings.home.as_deref().unwrap_or("nowhere; set LLM_IN_SANDBOX_HOME");
    let _ = writeln!(text, "data is stored in {home}");
    if let Some(state) = &findings.state {
        let _ = writeln!(text, "sandboxes run in {} ({})", state.path, state.why);
        for PassedOver { path, reason } in &state.passed_over {
            let _ = writeln!(text, "  not in {path}: {reason}");
        }
        if !state.passed_over.is_empty() {
            let _ = writeln!(text, "  set LLM_IN_SANDBOX_TMPDIR to use another local directory");
        }
    }
    if !findings.machine.is_empty() {
        let _ = writeln!(text, "\nThis machine\n{}", layers(&findings.machine, color));
    }
    native(&mut text, &findings.native, color);
    docker(&mut text, &findings.docker, color);
    if !findings.advice.is_empty() {
        let _ = writeln!(text, "\nTo improve");
        for line in &findings.advice {
            let _ = writeln!(text, "  {}", sanitize(line));
        }
    }
    text
}

fn native(text: &mut String, native: &Native, color: Color) {
    let ms = |time: Option<f64>| time.map_or_else(String::new, |ms| format!("{ms:.1} ms"));
    let head = match &native.error {
        None => format!(
            "{}work; one starts in {}, the first in {}",
            mark(LayerState::Enforced, color),
            ms(native.start_ms),
            ms(native.first_start_ms)
        ),
        Some(error) => {
            format!("{}do not work: {}", mark(LayerState::Missing, color), sanitize(error))
        }
    };
    let _ = writeln!(text, "\nNative sandboxes\n  {head}");
    if let Some(protection) = &native.protection {
        let _ = writeln!(text, "{}", layers(&protection.layers, color));
    }
    networks(text, &native.networks);
    let quotas = native.disk_quotas.iter().map(|quota| match &quota.error {
        None => format!("{} ({})", quota.disk_quota, ms(quota.start_ms)),
        Some(error) => format!("{} (no: {})", quota.disk_quota, sanitize(error)),
    });
    let quotas: Vec<_> = quotas.collect();
    if !quotas.is_empty() {
        let _ = writeln!(text, "  disk quota: {}", quotas.join(", "));
    }
}

fn docker(text: &mut String, docker: &Docker, color: Color) {
    let head = match (&docker.error, &docker.version) {
        (Some(error), _) => {
            format!("{}do not work: {}", mark(LayerState::Missing, color), sanitize(error))
        }
        (None, version) => {
            let disk = match docker.limits_disk {
                true => "has quotas for disk space",
                false => "has no quotas for disk space: it is measured",
            };
            let version = sanitize(version.as_deref().unwrap_or("of unknown version"));
            let yes = mark(LayerState::Enforced, color);
            format!("{yes}work; daemon {version}, which {disk}")
        }
    };
    let _ = writeln!(text, "\nDocker sandboxes\n  {head}");
    networks(text, &docker.networks);
}

fn networks(text: &mut String, modes: &[Mode]) {
    let networks = modes.iter().map(|mode| match &mode.error {
        None => mode.network.to_owned(),
        Some(error) => format!("{} (no: {})", mode.network, sanitize(error)),
    });
    let networks: Vec<_> = networks.collect();
    if !networks.is_empty() {
        let _ = writeln!(text, "  network: {}", networks.join(", "));
    }
    for mode in modes.iter().filter(|mode| mode.network == "internet") {
        if let Some(detail) = &mode.detail {
            let _ = writeln!(text, "  network internet: {detail}");
        }
    }
}

fn layers(layers: &[LayerReport], color: Color) -> String {
    let rows: Vec<_> = layers
        .iter()
        .map(|layer| {
            let mark = format!("  {}", mark(layer.state, color));
            vec![format!("{mark}{}", layer.layer), sanitize(&layer.detail).into_owned()]
        })
        .collect();
    output::table(&rows)
}

/// A word for a state, padded, so that colors do not disturb the columns.
fn mark(state: LayerState, color: Color) -> String {
    let (word, code) = match state {
        LayerState::Enforced => ("yes   ", 32),
        LayerState::Partial => ("part  ", 33),
        LayerState::Missing => ("no    ", 31),
    };
    match color {
        Color::OnTerminals => format!("\x1b[{code}m{word}\x1b[0m"),
        Color::Never => word.to_owned(),
    }
}
