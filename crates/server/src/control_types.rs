//! Messages of the control plane, as JSON.

use std::{collections::BTreeMap, net::IpAddr, time::SystemTime};

use axum::http::{HeaderMap, header, uri::Authority};
use sandbox::{Limits, Network};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value, json};

use crate::{
    error::{ApiError, Code},
    live::Live,
    network::NetworkRequest,
};

/// The version of the data plane's protocol that is spoken here: clients use what it has.
pub(crate) const ENVD_VERSION: &str = "0.6.4";
/// The value of a field that clients no longer use.
const CLIENT_ID: &str = "llm-in-sandbox";

/// A request for a sandbox. Fields of the specification that ask for something unsupported are refused. Fields that
/// it does not have are ignored: newer clients may send theirs with defaults.
#[derive(Clone, Deserialize)]
pub(crate) struct NewSandbox {
    #[serde(rename = "templateID")]
    pub(crate) template_id: String,
    /// In seconds; each version of the request has another default.
    #[serde(default, deserialize_with = "maybe_whole")]
    pub(crate) timeout: Option<u64>,
    #[serde(default, rename = "autoPause")]
    pub(crate) auto_pause: bool,
    #[serde(default, rename = "autoPauseMemory")]
    auto_pause_memory: Option<bool>,
    #[serde(default, rename = "autoResume")]
    auto_resume: Option<AutoResume>,
    #[serde(default)]
    pub(crate) metadata: BTreeMap<String, String>,
    #[serde(default, rename = "envVars")]
    pub(crate) env_vars: BTreeMap<String, String>,
    /// `false` takes the network away; `true` cannot give more than the server does.
    #[serde(default)]
    pub(crate) allow_internet_access: Option<bool>,
    #[serde(default)]
    pub(crate) network: Option<NetworkRequest>,
    #[serde(default)]
    iam: Option<Value>,
    #[serde(default, rename = "volumeMounts")]
    volume_mounts: Option<Vec<Value>>,
}

/// The time that sandboxes of the first version of a request live, in seconds.
pub(crate) const FIRST_TIMEOUT: u64 = 15;
/// The same of the second version.
pub(crate) const SECOND_TIMEOUT: u64 = 300;

fn default_timeout() -> u64 {
    FIRST_TIMEOUT
}

#[derive(Clone, Debug, Deserialize)]
struct AutoResume {
    enabled: bool,
}

/// Most entries of metadata, and of variables.
const MAX_ENTRIES: usize = 256;
/// Most bytes of one of their values.
const MAX_VALUE: usize = 32 << 10;
/// Most bytes of both together.
const MAX_ALL: usize = 256 << 10;

/// The bytes of metadata or variables.
pub(crate) fn size(map: &BTreeMap<String, String>) -> usize {
    map.iter().map(|(name, value)| name.len() + value.len()).sum()
}

impl NewSandbox {
    /// Whether a request to the paused sandbox lets it continue.
    pub(crate) fn auto_resumes(&self) -> bool {
        self.auto_resume.as_ref().is_some_and(|resume| resume.enabled)
    }

    /// Refuses what cannot be had, rather than leaving it out silently.
    pub(crate) fn check(&self) -> Result<(), ApiError> {
        let present = |value: &Option<Value>| match value {
            None | Some(Value::Null) => false,
            Some(Value::Object(map)) => !map.is_empty(),
            Some(_) => true,
        };
        let unsupported = [
            (self.auto_pause && self.auto_pause_memory == Some(false), "autoPauseMemory: false"),
            (present(&self.iam), "iam"),
            (self.volume_mounts.as_ref().is_some_and(|mounts| !mounts.is_empty()), "volumeMounts"),
        ];
        if let Some((_, name)) = unsupported.iter().find(|(asked, _)| *asked) {
            let message = format!("this server does not support `{name}`");
            return Err(ApiError::new(Code::Unsupported, message));
        }
        for (what, map) in [("metadata", &self.metadata), ("envVars", &self.env_vars)] {
            let too_long = map.iter().any(|(k, v)| k.len() > MAX_VALUE || v.len() > MAX_VALUE);
            if map.len() > MAX_ENTRIES || too_long {
                let message =
                    format!("`{what}` may have {MAX_ENTRIES} entries of {MAX_VALUE} bytes each");
                return Err(ApiError::invalid(message));
            }
        }
        if size(&self.metadata) + size(&self.env_vars) > MAX_ALL {
            let message = format!(
                "`metadata` and `envVars` may have {MAX_ALL} bytes together, with their names"
            );
            return Err(ApiError::invalid(message));
        }
        let bad = |(name, value): (&String, &String)| {
            name.is_empty() || name.contains(['=', '\0']) || value.contains('\0')
        };
        if self.env_vars.iter().any(bad) {
            let message =
                "a variable of `envVars` has an empty name, or `=` or NUL where none may be";
            return Err(ApiError::invalid(message));
        }
        Ok(())
    }
}

/// A number without a fraction, however it is written: `5` is the same as `5.0`. Very large ones become the largest.
fn whole<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
    let number = serde_json::Number::deserialize(from)?;
    let large = || number.as_f64().filter(|value| *value >= 0.0 && value.fract() == 0.0);
    let whole = number.as_u64().or_else(|| large().map(|value| value as u64));
    whole.ok_or_else(|| serde::de::Error::custom(format!("{number} is not a whole number")))
}

fn maybe_whole<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u64>, D::Error> {
    #[derive(Deserialize)]
    struct Whole(#[serde(deserialize_with = "whole")] u64);
    Ok(Option::<Whole>::deserialize(from)?.map(|Whole(number)| number))
}

#[derive(Clone, Copy, Debug, Deserialize)]
pub(crate) struct TimeoutRequest {
    #[serde(deserialize_with = "whole")]
    pub(crate) timeout: u64,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct ConnectRequest {
    #[serde(deserialize_with = "maybe_whole")]
    pub(crate) timeout: Option<u64>,
    pub(crate) memory: Option<bool>,
}

/// What stops a sandbox.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct PauseRequest {
    pub(crate) memory: Option<bool>,
    /// Always so: a pause that the sandbox does not confirm has failed.
    #[serde(rename = "requireHealthyGuest")]
    _require_healthy_guest: Option<bool>,
}

/// What lets a paused sandbox continue.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct ResumeRequest {
    #[serde(flatten)]
    pub(crate) with: ConnectRequest,
    #[serde(rename = "autoPause")]
    pub(crate) auto_pause: Option<bool>,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct RefreshRequest {
    #[serde(deserialize_with = "maybe_whole")]
    pub(crate) duration: Option<u64>,
}

#[derive(Clone, Copy, Debug, Deserialize)]
pub(crate) struct ForkRequest {
    #[serde(default = "default_timeout", deserialize_with = "whole")]
    pub(crate) timeout: u64,
    #[serde(default = "one", deserialize_with = "whole")]
    pub(crate) count: u64,
}

fn one() -> u64 {
    1
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct SnapshotRequest {
    pub(crate) name: Option<String>,
    pub(crate) memory: Option<bool>,
}

/// A time as the protocol writes it.
pub(crate) fn time(time: SystemTime) -> String {
    match jiff::Timestamp::try_from(time) {
        Ok(time) => format!("{time:.3}"),
        Err(_) => "9999-12-31T23:59:59.000Z".into(),
    }
}

/// The domain whose names `PORT-ID.DOMAIN` lead to the ports of sandboxes: the host to which a request was sent. No name
/// can be put in front of an address, so those of this machine become `localhost`.
pub(crate) fn domain(headers: &HeaderMap) -> Option<String> {
    let host = headers.get(header::HOST)?.to_str().ok()?;
    let authority: Authority = host.parse().ok()?;
    let name = authority.host();
    let address = name.trim_matches(['[', ']']).parse::<IpAddr>().map(|ip| ip.to_canonical());
    let is_here = address.is_ok_and(|ip| ip.is_loopback() || ip.is_unspecified());
    let name = if is_here { "localhost" } else { name };
    Some(authority.port().map_or_else(|| name.to_owned(), |port| format!("{name}:{port}")))
}

/// A sandbox as the answer to its creation.
pub(crate) fn created<S>(live: &Live<S>, domain: &Option<String>) -> Value {
    json!({
        "templateID": live.template,
        "sandboxID": live.id,
        "clientID": CLIENT_ID,
        "envdVersion": ENVD_VERSION,
        "envdAccessToken": live.access_token,
        "domain": domain,
        "trafficAccessToken": live.ports.token,
    })
}

/// A sandbox in a list.
pub(crate) fn listed<S>(live: &Live<S>) -> Map<String, Value> {
    let Limits { memory, cpus, disk, .. } = &live.spec.limits;
    let mib = |size: &Option<sandbox::ByteSize>| size.map_or(0, |size| size.bytes() >> 20);
    let value = json!({
        "templateID": live.template,
        "alias": live.template,
        "sandboxID": live.id,
        "clientID": CLIENT_ID,
        "startedAt": time(live.started),
        "endAt": time(live.lifetime.borrow().ends_at()),
        "cpuCount": cpus.map_or(0.0, f64::ceil) as u64,
        "memoryMB": mib(memory),
        "diskSizeMB": mib(disk),
        "metadata": *live.metadata,
        "state": if live.is_paused() { "paused" } else { "running" },
        "envdVersion": ENVD_VERSION,
    });
    match value {
        Value::Object(map) => map,
        _ => Map::new(),
    }
}

/// A sandbox in detail.
pub(crate) fn detailed<S>(live: &Live<S>, domain: &Option<String>) -> Value {
    let mut map = listed(live);
    map.insert("allowInternetAccess".into(), json!(live.spec.network != Network::None));
    map.insert(
        "lifecycle".into(),
        json!({
            "autoResume": live.auto_resume,
            "onTimeout": if live.auto_pause { "pause" } else { "kill" },
        }),
    );
    map.insert("network".into(), live.network.shown());
    map.insert("domain".into(), json!(domain));
    map.insert("envdAccessToken".into(), json!(live.access_token));
    Value::Object(map)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_below_the_host_of_the_request() {
        let of = |host: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::HOST, host.parse().unwrap());
            domain(&headers)
        };
        for (host, expected) in [
            ("127.0.0.1:7777", "localhost:7777"),
            ("[::1]:7777", "localhost:7777"),
            ("localhost", "localhost"),
            ("sandboxes.example:443", "sandboxes.example:443"),
            ("10.0.0.1:80", "10.0.0.1:80"),
            ("user@a.example", "a.example"),
        ] {
            assert_eq!(of(host).as_deref(), Some(expected), "{host}");
        }
        assert_eq!((of("a b"), of("/x"), domain(&HeaderMap::new())), (None, None, None));
    }
}
