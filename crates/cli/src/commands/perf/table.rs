//! Reports as tables for people.

use perf::{
    Machine, MemoryPerSandbox,
    agent::AgentReport,
    benchmark::{BenchmarkReport, EpisodeRate},
    sandbox::{RuntimeFigures, SandboxReport, Spread},
    serve::{ServeReport, ServerMemory, StreamFigures},
};

use super::{GradeReport, ModelReport, Official};

fn heading(machine: &Machine) -> String {
    format!("{} cores, {:.1} GiB, {}", machine.cores, machine.memory_gib, machine.system)
}

/// Formats `perf sandbox`, with the ratio where there is something to compare with.
pub(super) fn sandbox(report: &SandboxReport) -> String {
    let SandboxReport { machine, images, bash_ms, one_shot_ms, native, docker } = report;
    let from = |image: &Option<String>| image.clone().unwrap_or_else(|| "-".into());
    let mut lines = vec![
        heading(machine),
        format!("images: native {}, docker {}", from(&images.native), from(&images.docker)),
        format!("bare `bash -c 'echo hi'`: {:.2} ms", bash_ms.p50),
    ];
    lines.extend(one_shot_ms.map(|time| {
        format!("`sandbox run -- true`, the whole program: {:.2} ({:.2}) ms", time.p50, time.p99)
    }));
    lines.extend([
        String::new(),
        format!(
            "{:<30}{:>20}{:>24}{:>10}",
            "median (99th percentile), ms", "native", "docker", "ratio"
        ),
    ]);
    type Pick = fn(&RuntimeFigures) -> Spread;
    // A pooled sandbox is compared with creating a container, which it replaces.
    let rows: [(&str, Pick, Pick); 6] = [
        ("create", |f| f.create_ms, |f| f.create_ms),
        ("create, from a warm pool", |f| f.pooled_create_ms, |f| f.create_ms),
        ("run `echo hi`", |f| f.exec_ms, |f| f.exec_ms),
        ("copy in 20 files, 1 MB", |f| f.copy_in_ms, |f| f.copy_in_ms),
        ("fork with 100 MB", |f| f.fork_ms, |f| f.fork_ms),
        ("destroy", |f| f.destroy_ms, |f| f.destroy_ms),
    ];
    for (name, pick, other) in rows {
        let shown = |figures: &Option<RuntimeFigures>, pick: Pick| {
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
        let Some(RuntimeFigures { concurrent: c, .. }) = figures else { continue };
        lines.push(format!(
            "{name}: {} at once: create {:.2} s ({:.1} ms each), run {:.2} s, destroy {:.2} s, {} errors",
            c.count,
            c.create_s,
            c.create_s * 1000.0 / c.count.max(1) as f64,
            c.exec_s,
            c.destroy_s,
            c.errors,
        ));
        lines.push(format!("{name}: memory of each: {}", memory(&c.memory)));
        lines.push(format!("{name}: after a command: {}", memory(&c.memory_with_shell)));
    }
    lines.push(String::new());
    lines.join("\n")
}

fn memory(per: &MemoryPerSandbox) -> String {
    let kib = |bytes: Option<i64>| {
        bytes.map_or_else(|| "unknown".into(), |bytes| format!("{} KiB", bytes / 1024))
    };
    format!(
        "processes {}, kernel {}; the machine has {} less",
        kib(per.process_bytes),
        kib(per.kernel_bytes),
        kib(per.available_bytes)
    )
}

/// Formats `perf serve`: what was measured.
pub(super) fn serve(report: &ServeReport) -> String {
    let mut lines = vec![heading(&report.machine)];
    if let Some(create) = &report.create {
        lines.push(format!(
            "create {} sandboxes, {} requests at once: {:.2} s, {:.0} per second, {} errors",
            create.count, create.concurrency, create.seconds, create.per_second, create.errors
        ));
    }
    if let (Some(here), Some(ratio)) = (&report.in_process_create, report.create_ratio) {
        lines.push(format!(
            "the same in process: {:.2} s, {:.0} per second, {} errors; over HTTP it takes {ratio:.2}x",
            here.seconds, here.per_second, here.errors
        ));
    }
    if let (Some(there), Some(here), Some(adds), Some(ratio)) =
        (&report.exec_ms, &report.in_process_exec_ms, report.http_adds_ms, report.exec_ratio)
    {
        lines.push(format!(
            "run `echo hi` over HTTP {:.2} ({:.2}) ms, in process {:.2} ({:.2}) ms: {adds:.2} ms more, \
             {ratio:.2}x",
            there.p50, there.p99, here.p50, here.p99
        ));
    }
    if let Some(streams) = &report.streams {
        let StreamFigures { count, open_s, errors } = streams;
        lines.push(format!("open {count} streams at once: {open_s:.2} s, {errors} errors"));
    }
    lines.extend(report.memory.as_ref().map(|memory| grown(memory, "sandboxes")));
    lines.extend(
        report
            .descriptors
            .map(|open| format!("open files of the server: at most {open} were seen")),
    );
    lines.extend(served_model(report));
    if !report.complete {
        lines.push("interrupted: the rest was not measured".into());
    }
    lines.join("\n")
}

/// The part of `perf serve` for which a model works.
fn served_model(report: &ServeReport) -> Vec<String> {
    let mut lines = Vec::new();
    if let Some(chats) = &report.chats {
        lines.push(format!(
            "answer {} chats at once: {:.2} s, {:.0} per second, {} errors",
            chats.count, chats.seconds, chats.per_second, chats.errors
        ));
    }
    if let Some(StreamFigures { count, open_s, errors }) = &report.events {
        lines.push(format!(
            "follow the events of episodes by {count} streams at once: {open_s:.2} s, {errors} errors"
        ));
    }
    if let Some(episodes) = &report.episodes {
        lines.push(format!(
            "play {} episodes: {:.2} s, {:.0} per second, {} errors",
            episodes.count, episodes.seconds, episodes.per_second, episodes.errors
        ));
        lines.extend(episodes.memory.as_ref().map(|memory| grown(memory, "episodes")));
    }
    lines
}

fn grown(memory: &ServerMemory, what: &str) -> String {
    format!(
        "memory of the server after the first {what} {:.1} MiB, after {} {:.1} MiB: {:.3}x",
        memory.before_kib as f64 / 1024.0,
        memory.count,
        memory.after_kib as f64 / 1024.0,
        memory.ratio
    )
}

/// Formats `perf agent`.
pub(super) fn agent(report: &AgentReport) -> String {
    let AgentReport { machine, episodes, turns, failures, wall_s, .. } = report;
    [
        heading(machine),
        format!("{episodes} concurrent episodes, {turns} turns, {failures} failed, {wall_s:.2} s"),
        format!("turns per second        {:>10.0}", report.turns_per_second),
        format!("CPU time                {:>10.3} ms per turn", report.cpu_ms_per_turn),
        format!("memory                  {:>10.1} KiB per episode", report.memory_per_episode_kib),
    ]
    .join("\n")
}

/// Formats `perf benchmark`.
pub(super) fn benchmark(report: &BenchmarkReport) -> String {
    let BenchmarkReport { machine, image, ours, reference, ratio } = report;
    let mut lines = vec![heading(machine), format!("one-command episodes, image {image}")];
    let rates = [("ours", Some(ours)), ("reference", reference.as_ref())];
    for (name, rate) in rates.into_iter().filter_map(|(name, rate)| Some((name, rate?))) {
        let EpisodeRate { episodes, concurrency, seconds, episodes_per_second, failures } = rate;
        lines.push(format!(
            "{name:<10} {episodes} episodes, {concurrency} concurrent: {seconds:.2} s, {episodes_per_second:.2} per \
             second, {failures} failed"
        ));
    }
    lines.extend(ratio.map(|ratio| format!("ratio      {ratio:.0}x")));
    lines.join("\n")
}

/// Formats `perf model`.
pub(super) fn model(report: &ModelReport) -> String {
    let ModelReport { machine, model, adapter, load_s, here, server, second_turn } = report;
    let with = adapter.as_ref().map(|adapter| format!(" with the adapter {adapter}"));
    let with = with.unwrap_or_default();
    let mut lines = vec![
        heading(machine),
        format!(
            "{model}{with}, loaded in {load_s:.2} s; a prompt of {} tokens",
            here.prompt_tokens
        ),
    ];
    let row = |what: &str, here: f64, server: Option<f64>| match server {
        None => format!("{what:<26} {here:>8.1}"),
        Some(server) => {
            format!("{what:<26} {here:>8.1} {server:>8.1} {:>8.2}x", here / server.max(1e-9))
        }
    };
    if server.is_some() {
        lines.push(format!("{:<26} {:>8} {:>8} {:>9}", "", "here", "server", "ratio"));
    }
    lines.push(row(
        "prompt tokens per second",
        here.prompt_tokens_per_second,
        server.map(|rates| rates.prompt_tokens_per_second),
    ));
    lines.push(row(
        "output tokens per second",
        here.output_tokens_per_second,
        server.map(|rates| rates.output_tokens_per_second),
    ));
    lines.push(format!(
        "first token of a second turn of {} tokens after {:.2} s; {:.2} s without a cached prefix ({:.0}x)",
        second_turn.tokens,
        second_turn.cached_s,
        second_turn.uncached_s,
        second_turn.uncached_s / second_turn.cached_s.max(1e-9),
    ));
    lines.join("\n")
}

/// Formats `perf grade`.
pub(super) fn grade(report: &GradeReport) -> String {
    let GradeReport { machine, cases, right, ours_per_second, official } = report;
    let mut lines = vec![
        heading(machine),
        format!("{cases} answers, {right} of them right; one CPU"),
        format!("{:<38} {ours_per_second:>10.0}", "answers per second, ours"),
    ];
    if let Some(Official { version, per_second, agree, ratio }) = official {
        let name = format!("answers per second, math-verify {version}");
        lines.push(format!("{name:<38} {per_second:>10.1} {ratio:>8.0}x"));
        lines.push(format!("both agree on {agree} of {cases}"));
    }
    lines.join("\n")
}
