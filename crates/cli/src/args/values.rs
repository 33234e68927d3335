//! Parsers of option values: limits, times, pairs of paths, variables.

use std::{path::PathBuf, str::FromStr, time::Duration};

use sandbox::{ByteSize, ParseSizeError};

/// A limit that can be lifted: `none` lifts it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Limit<T>(pub(crate) Option<T>);

/// The value for no limit.
const NO_LIMIT: &str = "none";

/// Parses a size such as `1G`.
pub(crate) fn size(text: &str) -> Result<Limit<ByteSize>, ParseSizeError> {
    limit(text, ByteSize::from_str)
}

/// Disk space to leave free; `None` is chosen by the runtime.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Reserve(pub(crate) Option<ByteSize>);

/// Parses a size, `auto` or `none`.
pub(crate) fn reserve(text: &str) -> Result<Reserve, ParseSizeError> {
    match text {
        "auto" => Ok(Reserve(None)),
        _ => size(text).map(|Limit(size)| Reserve(Some(size.unwrap_or(ByteSize(0))))),
    }
}

/// Parses a number of cores.
pub(crate) fn cpus(text: &str) -> Result<Limit<f64>, String> {
    limit(text, |text| {
        text.parse().map_err(|_| format!("`{text}` is not a number of cores; write 2, 0.5 or none"))
    })
}

/// Parses a number of processes.
pub(crate) fn pids(text: &str) -> Result<Limit<u32>, String> {
    limit(text, |text| {
        text.parse()
            .map_err(|_| format!("`{text}` is not a number of processes; write 512 or none"))
    })
}

/// Parses a time: seconds, or a number with a unit. Less than a year.
pub(crate) fn time(text: &str) -> Result<Limit<Duration>, String> {
    let invalid = || {
        format!(
            "`{text}` is not a time; write seconds such as 120 or 0.5, or 500ms, 2m, 1h or none"
        )
    };
    limit(text, |text| {
        let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
        let seconds = match &text[digits.len()..] {
            "" | "s" => 1.0,
            "ms" => 0.001,
            "m" => 60.0,
            "h" => 3600.0,
            _ => return Err(invalid()),
        };
        let number: f64 = digits.parse().map_err(|_| invalid())?;
        match Duration::try_from_secs_f64(number * seconds) {
            // Clocks must not overflow.
            Ok(time) if !time.is_zero() && time < Duration::from_secs(365 * 24 * 3600) => Ok(time),
            _ => Err(invalid()),
        }
    })
}

/// Parses a time that cannot be without limit.
pub(crate) fn finite_time(text: &str) -> Result<Duration, String> {
    let none = || format!("`{text}` is not a time here; write seconds such as 30 or 0.5, or 2m");
    time(text)?.0.ok_or_else(none)
}

fn limit<T, E>(text: &str, parse: impl FnOnce(&str) -> Result<T, E>) -> Result<Limit<T>, E> {
    match text {
        NO_LIMIT => Ok(Limit(None)),
        _ => parse(text).map(|value| Limit(Some(value))),
    }
}

/// Parses a JSON object.
pub(crate) fn object(text: &str) -> Result<serde_json::Map<String, serde_json::Value>, String> {
    match serde_json::from_str(text) {
        Ok(serde_json::Value::Object(map)) => Ok(map),
        Ok(_) => Err("it is JSON, but not an object; write {\"key\": value}".into()),
        Err(error) => Err(format!("it is not JSON ({error}); write {{\"key\": value}}")),
    }
}

/// Parses a sampling temperature.
pub(crate) fn temperature(text: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|number: &f64| number.is_finite() && *number >= 0.0);
    number.ok_or_else(|| format!("`{text}` is not a temperature; write 0, 0.7 or 1"))
}

/// Parses an amount of US dollars.
pub(crate) fn dollars(text: &str) -> Result<f64, String> {
    let amount = text.trim_start_matches('$').parse().ok();
    amount
        .filter(|amount: &f64| amount.is_finite() && *amount > 0.0)
        .ok_or_else(|| format!("`{text}` is not an amount of dollars; write 0.50"))
}

/// A file or directory to copy. Only the path on the host may contain a colon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CopyPair {
    pub(crate) host: PathBuf,
    pub(crate) inside: PathBuf,
}

/// Parses `SRC:DST` with the source on the host.
pub(crate) fn copy_in(text: &str) -> Result<CopyPair, String> {
    pair(text, text.rsplit_once(':'))
}

/// Parses `SRC:DST` with the destination on the host.
pub(crate) fn copy_out(text: &str) -> Result<CopyPair, String> {
    pair(text, text.split_once(':').map(|(inside, host)| (host, inside)))
}

fn pair(text: &str, halves: Option<(&str, &str)>) -> Result<CopyPair, String> {
    match halves {
        Some((host, inside)) if !host.is_empty() && !inside.is_empty() => {
            Ok(CopyPair { host: host.into(), inside: inside.into() })
        }
        _ => Err(format!("`{text}` is not a pair of paths; write SRC:DST")),
    }
}

/// An environment variable for the sandbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Variable {
    /// With this value.
    Set(String, String),
    /// With its value in this environment.
    Copy(String),
}

/// Parses `K=V`, or `K` alone.
pub(crate) fn variable(text: &str) -> Result<Variable, String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok(Variable::Set(name.into(), value.into())),
        None if !text.is_empty() => Ok(Variable::Copy(text.into())),
        _ => Err(format!("`{text}` is not a variable; write K=V, or K to copy its value")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn none_is_no_limit() {
        assert_eq!(size("none"), Ok(Limit(None)));
        assert_eq!(size("1G"), Ok(Limit(Some(ByteSize::gib(1)))));
        assert_eq!(cpus("0.5"), Ok(Limit(Some(0.5))));
        assert_eq!(pids("none"), Ok(Limit(None)));
        assert!(pids("-1").is_err() && pids("many").is_err() && cpus("x").is_err());
    }

    #[test]
    fn times_have_units() {
        for (text, ms) in
            [("120", 120_000), ("0.5", 500), ("500ms", 500), ("2m", 120_000), ("1h", 3_600_000)]
        {
            assert_eq!(time(text), Ok(Limit(Some(Duration::from_millis(ms)))), "{text}");
        }
        assert_eq!(time("none"), Ok(Limit(None)));
        for bad in ["", "0", "-1", "1d", "nan", "inf", "1e99", "s", "99999999999"] {
            assert!(time(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn colons_belong_to_the_host() {
        let both = |host: &str, inside: &str| CopyPair { host: host.into(), inside: inside.into() };
        assert_eq!(copy_in("a:b/c:/x"), Ok(both("a:b/c", "/x")));
        assert_eq!(copy_out("/x:a:b"), Ok(both("a:b", "/x")));
        for bad in ["", "a", ":a", "a:"] {
            assert!(copy_in(bad).is_err() && copy_out(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn variables_are_set_or_copied() {
        assert_eq!(variable("A=b=c"), Ok(Variable::Set("A".into(), "b=c".into())));
        assert_eq!(variable("A="), Ok(Variable::Set("A".into(), String::new())));
        assert_eq!(variable("A"), Ok(Variable::Copy("A".into())));
        assert!(variable("=b").is_err() && variable("").is_err());
    }
}
