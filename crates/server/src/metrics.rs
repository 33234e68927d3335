//! Counters of what the server does, in Prometheus' text format.
//!
//! Labels have a fixed set of values: no client can make the server remember more.

use std::{
    fmt::Write as _,
    sync::atomic::{AtomicI64, AtomicU64, Ordering},
    time::Duration,
};

/// Kinds of route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RouteClass {
    Control,
    Process,
    Filesystem,
    Files,
    Port,
    OpenAi,
    Episodes,
    Environments,
    Mcp,
    Operation,
    Other,
}

impl RouteClass {
    const ALL: [(Self, &'static str); 11] = [
        (Self::Control, "control"),
        (Self::Process, "process"),
        (Self::Filesystem, "filesystem"),
        (Self::Files, "files"),
        (Self::Port, "port"),
        (Self::OpenAi, "openai"),
        (Self::Episodes, "episodes"),
        (Self::Environments, "environments"),
        (Self::Mcp, "mcp"),
        (Self::Operation, "operation"),
        (Self::Other, "other"),
    ];

    /// The kind of a request to the control plane, by its path.
    pub(crate) fn of(path: &str) -> Self {
        let path = path.strip_prefix("/v2").unwrap_or(path);
        let part = |prefix: &str| {
            path.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        let any = |prefixes: &[&str]| prefixes.iter().any(|prefix| part(prefix));
        match () {
            () if any(&["/health", "/ready", "/metrics"]) => Self::Operation,
            () if any(&["/sandboxes", "/snapshots", "/templates"]) => Self::Control,
            () if part("/v1/episodes") => Self::Episodes,
            () if part("/v1/environments") => Self::Environments,
            () if part("/v1") => Self::OpenAi,
            () if part("/mcp") => Self::Mcp,
            () if path.starts_with("/process.Process/") => Self::Process,
            () if path.starts_with("/filesystem.Filesystem/") => Self::Filesystem,
            () if path == "/files" => Self::Files,
            () => Self::Other,
        }
    }

    fn index(self) -> usize {
        self as usize
    }
}

/// Why requests are refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    Key,
    Forbidden,
    Quota,
    Invalid,
    Unsupported,
    TooLarge,
    Full,
}

impl Refused {
    const ALL: [(Self, &'static str); 7] = [
        (Self::Key, "key"),
        (Self::Forbidden, "forbidden"),
        (Self::Quota, "quota"),
        (Self::Invalid, "invalid"),
        (Self::Unsupported, "unsupported"),
        (Self::TooLarge, "too_large"),
        (Self::Full, "full"),
    ];

    /// The reason that a status stands for.
    pub(crate) fn of(status: u16) -> Option<Self> {
        match status {
            401 => Some(Self::Key),
            403 => Some(Self::Forbidden),
            429 => Some(Self::Quota),
            413 => Some(Self::TooLarge),
            501 => Some(Self::Unsupported),
            503 | 507 => Some(Self::Full),
            // The client left.
            499 => None,
            400..=498 => Some(Self::Invalid),
            _ => None,
        }
    }
}

/// Upper bounds of the histograms, in seconds.
const BOUNDS: [f64; 12] =
    [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0, 30.0, 120.0];
/// Classes of status, 1xx to 5xx.
const STATUSES: usize = 5;

/// A histogram of times.
#[derive(Debug, Default)]
pub(crate) struct Histogram {
    /// The last one is of everything longer.
    buckets: [AtomicU64; BOUNDS.len() + 1],
    nanoseconds: AtomicU64,
}

impl Histogram {
    pub(crate) fn observe(&self, time: Duration) {
        let seconds = time.as_secs_f64();
        let at = BOUNDS.iter().position(|bound| seconds <= *bound).unwrap_or(BOUNDS.len());
        self.buckets[at].fetch_add(1, Ordering::Relaxed);
        let nanoseconds = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.nanoseconds.fetch_add(nanoseconds, Ordering::Relaxed);
    }

    /// `labels`: none, or such as `route="control",`.
    fn write(&self, text: &mut String, name: &str, labels: &str) {
        let mut count = 0;
        let bounds = BOUNDS.iter().map(ToString::to_string).chain(["+Inf".to_owned()]);
        for (bucket, bound) in self.buckets.iter().zip(bounds) {
            count += bucket.load(Ordering::Relaxed);
            line(text, &format!("{name}_bucket{{{labels}le=\"{bound}\"}}"), count);
        }
        let labels = match labels.trim_end_matches(',') {
            "" => String::new(),
            labels => format!("{{{labels}}}"),
        };
        let seconds = Duration::from_nanos(self.nanoseconds.load(Ordering::Relaxed));
        line(text, &format!("{name}_sum{labels}"), seconds.as_secs_f64());
        line(text, &format!("{name}_count{labels}"), count);
    }
}

/// What the server has done since it started.
#[derive(Debug, Default)]
pub(crate) struct Metrics {
    requests: [[AtomicU64; STATUSES]; RouteClass::ALL.len()],
    latency: [Histogram; RouteClass::ALL.len()],
    refused: [AtomicU64; Refused::ALL.len()],
    /// Responses that are being sent.
    pub(crate) open_responses: AtomicI64,
    pub(crate) received_bytes: AtomicU64,
    pub(crate) sent_bytes: AtomicU64,
    pub(crate) created: AtomicU64,
    pub(crate) failed: AtomicU64,
    pub(crate) destroyed: AtomicU64,
    pub(crate) create_time: Histogram,
}

/// Values that others know at the time of the question.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Gauges {
    pub(crate) sandboxes: usize,
    pub(crate) max_sandboxes: usize,
    pub(crate) audit_lost: u64,
}

impl Metrics {
    /// Counts a request with its answer; `time`: until the answer's head.
    pub(crate) fn count(&self, class: RouteClass, status: u16, time: Duration) {
        let at = usize::from(status / 100).clamp(1, STATUSES) - 1;
        self.requests[class.index()][at].fetch_add(1, Ordering::Relaxed);
        self.latency[class.index()].observe(time);
        if let Some(reason) = Refused::of(status) {
            self.refused[reason as usize].fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Everything in Prometheus' text format.
    pub(crate) fn encode(&self, gauges: Gauges) -> String {
        let mut text = String::with_capacity(16 << 10);
        self.encode_requests(&mut text);
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let open = self.open_responses.load(Ordering::Relaxed);
        let single: [(&str, &str, &str, f64); 10] = [
            (
                "open_responses",
                "gauge",
                "Responses that are being sent, streams included",
                open as f64,
            ),
            (
                "received_bytes_total",
                "counter",
                "Bytes of request bodies",
                get(&self.received_bytes) as f64,
            ),
            (
                "sent_bytes_total",
                "counter",
                "Bytes of response bodies",
                get(&self.sent_bytes) as f64,
            ),
            (
                "sandboxes",
                "gauge",
                "Sandboxes that exist or are being created",
                gauges.sandboxes as f64,
            ),
            ("sandboxes_max", "gauge", "Most sandboxes at once", gauges.max_sandboxes as f64),
            (
                "sandboxes_created_total",
                "counter",
                "Sandboxes that were created",
                get(&self.created) as f64,
            ),
            (
                "sandboxes_failed_total",
                "counter",
                "Sandboxes that could not be created",
                get(&self.failed) as f64,
            ),
            (
                "sandboxes_destroyed_total",
                "counter",
                "Sandboxes that were removed",
                get(&self.destroyed) as f64,
            ),
            (
                "audit_lost_total",
                "counter",
                "Lines of the audit log that could not be written",
                gauges.audit_lost as f64,
            ),
            ("build_info", "gauge", "Always 1", 1.0),
        ];
        for (name, kind, help, value) in single {
            let name = format!("{PREFIX}{name}");
            head(&mut text, &name, kind, help);
            let labels = match name.ends_with("build_info") {
                true => concat!("{version=\"", env!("CARGO_PKG_VERSION"), "\"}"),
                false => "",
            };
            line(&mut text, &format!("{name}{labels}"), value);
        }
        let name = format!("{PREFIX}sandbox_create_seconds");
        head(&mut text, &name, "histogram", "Time to create a sandbox");
        self.create_time.write(&mut text, &name, "");
        process(&mut text);
        text
    }

    fn encode_requests(&self, text: &mut String) {
        let name = format!("{PREFIX}requests_total");
        head(text, &name, "counter", "Requests by kind of route and class of status");
        for (class, label) in RouteClass::ALL {
            for (at, count) in self.requests[class.index()].iter().enumerate() {
                let status = at + 1;
                let labels = format!("{name}{{route=\"{label}\",status=\"{status}xx\"}}");
                line(text, &labels, count.load(Ordering::Relaxed));
            }
        }
        let name = format!("{PREFIX}request_seconds");
        head(text, &name, "histogram", "Time until the head of the response");
        for (class, label) in RouteClass::ALL {
            self.latency[class.index()].write(text, &name, &format!("route=\"{label}\","));
        }
        let name = format!("{PREFIX}refused_total");
        head(text, &name, "counter", "Refused requests by reason");
        for (reason, label) in Refused::ALL {
            let count = self.refused[reason as usize].load(Ordering::Relaxed);
            line(text, &format!("{name}{{reason=\"{label}\"}}"), count);
        }
    }
}

/// Of the names of all metrics that are not about the process.
const PREFIX: &str = "llm_in_sandbox_";

fn head(text: &mut String, name: &str, kind: &str, help: &str) {
    let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
}

fn line(text: &mut String, name: &str, value: impl std::fmt::Display) {
    let _ = writeln!(text, "{name} {value}");
}

/// Memory and descriptors of this process, by the names that Prometheus' own libraries give them. Left out where the
/// kernel does not say.
fn process(text: &mut String) {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let resident = resident.and_then(|text| text.trim().strip_suffix(" kB")?.trim().parse().ok());
    if let Some(kibibytes) = resident {
        let kibibytes: u64 = kibibytes;
        let name = "process_resident_memory_bytes";
        head(text, name, "gauge", "Resident memory");
        line(text, name, kibibytes.saturating_mul(1024));
    }
    if let Ok(open) = std::fs::read_dir("/proc/self/fd") {
        let name = "process_open_fds";
        head(text, name, "gauge", "Open file descriptors");
        line(text, name, open.count());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GAUGES: Gauges = Gauges { sandboxes: 2, max_sandboxes: 10, audit_lost: 0 };

    #[test]
    fn histograms_are_cumulative() {
        let metrics = Metrics::default();
        for (status, milliseconds) in [(200, 1), (204, 40), (500, 40), (101, 600_000)] {
            let time = Duration::from_millis(milliseconds);
            metrics.count(RouteClass::Control, status, time);
        }
        let text = metrics.encode(GAUGES);
        let name = "llm_in_sandbox_request_seconds_bucket{route=\"control\",le=";
        for (bound, count) in [("0.001", 1), ("0.05", 3), ("120", 3), ("+Inf", 4)] {
            assert!(text.contains(&format!("{name}\"{bound}\"}} {count}\n")), "{bound}: {text}");
        }
        let name = "llm_in_sandbox_requests_total{route=\"control\",status=";
        for (status, count) in [("1xx", 1), ("2xx", 2), ("4xx", 0), ("5xx", 1)] {
            assert!(text.contains(&format!("{name}\"{status}\"}} {count}\n")), "{status}: {text}");
        }
        assert!(text.contains("llm_in_sandbox_sandboxes 2\n"), "{text}");
    }

    #[test]
    fn every_line_is_a_sample_or_a_comment_and_no_name_comes_twice() {
        let text = Metrics::default().encode(GAUGES);
        let mut names = std::collections::BTreeSet::new();
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let (name, value) = line.rsplit_once(' ').unwrap();
            assert!(value.parse::<f64>().is_ok(), "{line}");
            assert!(names.insert(name), "{name} comes twice");
        }
        assert!(text.ends_with('\n') && text.len() < 64 << 10);
    }

    #[test]
    fn whatever_a_client_asks_for_is_of_a_known_kind() {
        for (path, class) in [
            ("/v2/sandboxes", RouteClass::Control),
            ("/sandboxes/x/fork", RouteClass::Control),
            ("/v1/models", RouteClass::OpenAi),
            ("/v1/episodes/x", RouteClass::Episodes),
            ("/sandboxesx", RouteClass::Other),
            ("/../../etc", RouteClass::Other),
            ("/metrics", RouteClass::Operation),
        ] {
            assert_eq!(RouteClass::of(path), class, "{path}");
        }
        for (at, (class, _)) in RouteClass::ALL.iter().enumerate() {
            assert_eq!(class.index(), at);
        }
        for (at, (reason, _)) in Refused::ALL.iter().enumerate() {
            assert_eq!(*reason as usize, at);
        }
    }
}
