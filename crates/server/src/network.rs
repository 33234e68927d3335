//! The network policy that a client asks for: mapped to one of the sandbox's where that is exact, and refused where not.

use std::net::IpAddr;

use sandbox::{HostPattern, Network};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::error::{ApiError, Code};

/// What a client asks for, at creation or later.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct NetworkRequest {
    /// Whether ports answer requests without the sandbox's traffic token.
    allow_public_traffic: Option<bool>,
    allow_out: Option<Vec<String>>,
    deny_out: Option<Vec<String>>,
    /// The `Host` that programs see in requests to their ports; `${PORT}` stands for the port.
    mask_request_host: Option<String>,
    egress_proxy: Option<Value>,
    rules: Option<Map<String, Value>>,
    dns_servers: Option<Vec<Value>>,
    https_ports: Option<Vec<Value>>,
    #[serde(rename = "allow_internet_access")]
    allow_internet_access: Option<bool>,
}

/// Most destinations of one list.
const MAX_DESTINATIONS: usize = 256;
/// Most bytes of a destination or host.
const MAX_NAME: usize = 253;

/// A destination of outgoing connections.
enum Destination {
    All,
    Address,
    Name(HostPattern),
}

impl Destination {
    fn parse(text: &str) -> Result<Self, ApiError> {
        let bad = || {
            let shown: String = text.chars().take(MAX_NAME).collect();
            ApiError::invalid(format!("`{shown}` is not an address, a CIDR block or a domain name"))
        };
        if ["0.0.0.0/0", "::/0"].contains(&text) {
            return Ok(Self::All);
        }
        let (address, length) = text.split_once('/').map_or((text, None), |(a, b)| (a, Some(b)));
        // A dot at the end does not make a name of an address.
        if let Ok(ip) = address.trim_end_matches('.').parse::<IpAddr>() {
            let most = if ip.is_ipv4() { 32 } else { 128 };
            let fits = length.is_none_or(|l| l.parse::<u8>().is_ok_and(|length| length <= most));
            return if fits { Ok(Self::Address) } else { Err(bad()) };
        }
        let is_name = text.len() <= MAX_NAME && !text.contains([':', '/', '[']);
        let pattern = text.parse::<HostPattern>().ok().filter(|_| is_name);
        pattern.map(Self::Name).ok_or_else(bad)
    }

    fn all(list: Option<&[String]>) -> Result<Vec<Self>, ApiError> {
        let list = list.unwrap_or_default();
        if list.len() > MAX_DESTINATIONS {
            let message = format!("a list of destinations has at most {MAX_DESTINATIONS} entries");
            return Err(ApiError::invalid(message));
        }
        list.iter().map(|text| Self::parse(text)).collect()
    }
}

fn unsupported(message: &str) -> ApiError {
    ApiError::new(Code::Unsupported, message)
}

impl NetworkRequest {
    /// The policy of a sandbox on a server whose sandboxes have the policy `most`; never more than that. `internet` is the
    /// field of the request around this one.
    pub(crate) fn policy(
        &self,
        internet: Option<bool>,
        most: &Network,
    ) -> Result<Network, ApiError> {
        if self.egress_proxy.as_ref().is_some_and(|proxy| !proxy.is_null()) {
            return Err(unsupported("this server does not support `network.egressProxy`"));
        }
        if self.rules.as_ref().is_some_and(|rules| !rules.is_empty()) {
            return Err(unsupported("this server does not support `network.rules`"));
        }
        // None is what there is: sandboxes reach names through a proxy.
        if self.dns_servers.as_ref().is_some_and(|servers| !servers.is_empty()) {
            return Err(unsupported("this server does not support `network.dnsServers`"));
        }
        if self.https_ports.as_ref().is_some_and(|ports| !ports.is_empty()) {
            return Err(unsupported("this server does not support `network.httpsPorts`"));
        }
        let allowed = Destination::all(self.allow_out.as_deref())?;
        let denied = Destination::all(self.deny_out.as_deref())?;
        if denied.iter().any(|destination| matches!(destination, Destination::Name(_))) {
            return Err(ApiError::invalid("`network.denyOut` has addresses only, no domain names"));
        }
        let offline = internet.or(self.allow_internet_access) == Some(false);
        let denies_all =
            offline || denied.iter().any(|destination| matches!(destination, Destination::All));
        if allowed.iter().any(|destination| matches!(destination, Destination::All)) {
            // What is allowed wins over what is denied.
            return Ok(most.clone());
        }
        if !denies_all {
            if allowed.iter().any(|destination| matches!(destination, Destination::Name(_))) {
                let message = "domain names in `network.allowOut` need `0.0.0.0/0` in \
                               `network.denyOut`";
                return Err(ApiError::invalid(message));
            }
            return match (denied.is_empty(), most) {
                // Nothing is denied, or nothing could be reached.
                (true, _) | (_, Network::None) => Ok(most.clone()),
                (false, _) => Err(unsupported(
                    "this server cannot deny single addresses; deny `0.0.0.0/0` and allow domain \
                     names",
                )),
            };
        }
        if allowed.is_empty() {
            return Ok(Network::None);
        }
        let names = allowed.into_iter().map(|destination| match destination {
            Destination::Name(pattern) => Ok(pattern),
            Destination::All | Destination::Address => Err(unsupported(
                "this server allows domain names only, no addresses, beside a denied `0.0.0.0/0`",
            )),
        });
        let names = names.collect::<Result<Vec<_>, _>>()?;
        within(&names, most)?;
        Ok(Network::Allow(names))
    }

    /// Whether requests to ports need a token.
    pub(crate) fn is_private(&self) -> bool {
        self.allow_public_traffic == Some(false)
    }

    /// The `Host` of requests to ports.
    pub(crate) fn host_mask(&self) -> Result<Option<String>, ApiError> {
        let Some(mask) = self.mask_request_host.clone().filter(|mask| !mask.is_empty()) else {
            return Ok(None);
        };
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._:[]${}".contains(&byte);
        let example = mask.replace(PORT, "65535");
        if mask.len() > MAX_NAME || !mask.bytes().all(plain) || example.contains(['$', '{', '}']) {
            let message = "`network.maskRequestHost` is not a host name with an optional port; \
                           `${PORT}` stands for the port";
            return Err(ApiError::invalid(message));
        }
        Ok(Some(mask))
    }

    /// As info shows it.
    pub(crate) fn shown(&self) -> Value {
        let mut shown = json!({ "allowPublicTraffic": !self.is_private() });
        if let Some(list) = &self.allow_out {
            shown["allowOut"] = json!(list);
        }
        if let Some(list) = &self.deny_out {
            shown["denyOut"] = json!(list);
        }
        if let Some(mask) = &self.mask_request_host {
            shown["maskRequestHost"] = json!(mask);
        }
        shown
    }
}

/// Stands for the port in a mask.
pub(crate) const PORT: &str = "${PORT}";

/// That names are among what the server's own policy allows.
fn within(names: &[HostPattern], most: &Network) -> Result<(), ApiError> {
    let refuse = |name: &HostPattern| {
        let message = format!("the network of this server does not allow `{name}`");
        ApiError::new(Code::PermissionDenied, message)
    };
    for name in names {
        let fits = match most {
            Network::None => false,
            Network::Allow(allowed) => allowed.iter().any(|pattern| pattern.covers(name)),
            // Such patterns reach public addresses only, as all of the sandboxes here do.
            Network::Internet => name.is_public(),
            // By name only: the machine of the server is never meant.
            Network::Full => !name.is_address() && name.loopback().is_empty(),
        };
        if !fits {
            return Err(refuse(name));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(request: Value, most: &str) -> Result<String, u16> {
        let request: NetworkRequest = serde_json::from_value(request).unwrap();
        let policy = request.policy(None, &most.parse().unwrap());
        policy.map(|policy| policy.to_string()).map_err(|error| error.code.status().as_u16())
    }

    #[test]
    fn policies_are_exact_or_refused() {
        let all = "0.0.0.0/0";
        let names = json!({ "denyOut": [all], "allowOut": ["example.com", "*.a.org"] });
        for (request, most, expected) in [
            (json!({}), "internet", Ok("internet")),
            (json!({ "allowOut": ["1.1.1.1"] }), "none", Ok("none")),
            (json!({ "denyOut": [all] }), "full", Ok("none")),
            (json!({ "denyOut": [all], "allowOut": ["::/0"] }), "internet", Ok("internet")),
            (json!({ "denyOut": ["8.8.8.8/32"] }), "none", Ok("none")),
            (json!({ "denyOut": ["8.8.8.8"] }), "internet", Err(501)),
            (json!({ "allow_internet_access": false }), "internet", Ok("none")),
            (names.clone(), "internet", Ok("allow=example.com,*.a.org")),
            (names.clone(), "allow=example.com,*.a.org", Ok("allow=example.com,*.a.org")),
            (names.clone(), "allow=example.com", Err(403)),
            (names, "none", Err(403)),
            (json!({ "denyOut": [all], "allowOut": ["localhost"] }), "internet", Err(403)),
            (json!({ "denyOut": [all], "allowOut": ["127.0.0.1"] }), "internet", Err(501)),
            (json!({ "denyOut": [all], "allowOut": ["169.254.169.254."] }), "internet", Err(501)),
            (json!({ "denyOut": [all], "allowOut": ["10.0.0.1.."] }), "full", Err(501)),
            (json!({ "denyOut": [all], "allowOut": ["127.0.0.2./32"] }), "internet", Err(501)),
            (json!({ "denyOut": [all], "allowOut": ["*.169.254"] }), "internet", Err(403)),
            (json!({ "denyOut": [all], "allowOut": ["0x7f.1"] }), "internet", Err(403)),
            (json!({ "denyOut": [all], "allowOut": ["localhost."] }), "internet", Err(403)),
            (json!({ "denyOut": [all], "allowOut": ["db.internal"] }), "internet", Err(403)),
            (json!({ "denyOut": [all], "allowOut": ["."] }), "internet", Err(400)),
            (json!({ "denyOut": [all], "allowOut": ["a:80"] }), "internet", Err(400)),
            (json!({ "denyOut": [all], "allowOut": ["1.1.1.1/33"] }), "internet", Err(400)),
            (json!({ "denyOut": ["example.com"] }), "internet", Err(400)),
            (json!({ "allowOut": ["example.com"] }), "internet", Err(400)),
            (json!({ "rules": { "a.org": [] } }), "internet", Err(501)),
            (json!({ "egressProxy": { "address": "a:1" } }), "internet", Err(501)),
            (json!({ "dnsServers": ["1.1.1.1"] }), "internet", Err(501)),
            (json!({ "httpsPorts": [8443] }), "internet", Err(501)),
            (json!({ "dnsServers": [], "httpsPorts": [] }), "internet", Ok("internet")),
            (json!({ "egressProxy": null, "rules": {} }), "internet", Ok("internet")),
        ] {
            let shown = request.to_string();
            assert_eq!(policy(request, most), expected.map(str::to_owned), "{shown} {most}");
        }
    }

    #[test]
    fn masks_are_host_names() {
        for (mask, fits) in
            [("a.org:${PORT}", true), ("a b", false), ("a\r\nb", false), ("${X}", false)]
        {
            let request = NetworkRequest {
                mask_request_host: Some(mask.into()),
                ..NetworkRequest::default()
            };
            assert_eq!(request.host_mask().is_ok(), fits, "{mask}");
        }
    }
}
