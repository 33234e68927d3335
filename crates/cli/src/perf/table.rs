//! A comparison as a table for people.

use super::figures::{Comparison, Figures, Spread};

/// A table, with the ratio where there is something to compare with.
pub(crate) fn render(comparison: &Comparison) -> String {
    let Comparison { machine, images, bash_ms, native, docker } = comparison;
    let from = |image: &Option<String>| image.clone().unwrap_or_else(|| "-".into());
    let mut lines = vec![
        format!("{} cores, {:.1} GiB, {}", machine.cores, machine.memory_gib, machine.system),
        format!("images: native {}, docker {}", from(&images.native), from(&images.docker)),
        format!("bare `bash -c 'echo hi'`: {:.2} ms", bash_ms.p50),
        String::new(),
        format!(
            "{:<30}{:>20}{:>24}{:>10}",
            "median (99th percentile), ms", "native", "docker", "ratio"
        ),
    ];
    type Pick = fn(&Figures) -> Spread;
    // A pooled sandbox is compared with making a container: that is what it spares.
    let rows: [(&str, Pick, Pick); 6] = [
        ("create", |f| f.create_ms, |f| f.create_ms),
        ("create, from a warm pool", |f| f.pooled_create_ms, |f| f.create_ms),
        ("run `echo hi`", |f| f.exec_ms, |f| f.exec_ms),
        ("copy in 20 files, 1 MB", |f| f.copy_in_ms, |f| f.copy_in_ms),
        ("fork with 100 MB", |f| f.fork_ms, |f| f.fork_ms),
        ("destroy", |f| f.destroy_ms, |f| f.destroy_ms),
    ];
    for (name, pick, other) in rows {
        let shown = |figures: &Option<Figures>, pick: Pick| {
            let spread = figures.as_ref().map(pick);
            spread.map_or("-".into(), |s| format!("{:.3} ({:.2})", s.p50, s.p99))
        };
        let ratio = native.as_ref().zip(docker.as_ref()).map(|(n, d)| other(d).p50 / pick(n).p50);
        let ratio = ratio.map_or("-".into(), |ratio| format!("{ratio:.0}x"));
        let (ours, theirs) = (shown(native, pick), shown(docker, other));
        lines.push(format!("{name:<30}{ours:>20}{theirs:>24}{ratio:>10}"));
    }
    lines.push(String::new());
    for (name, figures) in [("native", native), ("docker", docker)] {
        let Some(Figures { concurrent: c, .. }) = figures else { continue };
        let memory = c
            .memory_per_sandbox_bytes
            .map_or("unknown".into(), |bytes| format!("{} KiB", bytes / 1024));
        lines.push(format!(
            "{name}: {} at once: create {:.2} s ({:.1} ms each), run {:.2} s, destroy {:.2} s, {} errors, {memory} each",
            c.count,
            c.create_s,
            c.create_s * 1000.0 / c.count.max(1) as f64,
            c.exec_s,
            c.destroy_s,
            c.errors,
        ));
    }
    lines.push(String::new());
    lines.join("\n")
}
