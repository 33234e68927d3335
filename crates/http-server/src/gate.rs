//! Access checks: the API key, no requests of web pages, and on a loopback address no foreign host name.
//!
//! Any web page can make its visitor's browser send requests to the visitor's own machine, or resolve its own host name
//! to that machine's address (DNS rebinding). Both are rejected.

use std::net::IpAddr;

use axum::http::{HeaderName, Request, StatusCode, Version, header};

use crate::KeyHash;

/// The checks of every request.
#[derive(Debug)]
pub struct Gate {
    key: Option<KeyHash>,
    hosts: Hosts,
    open: &'static str,
}

/// The accepted host names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Hosts {
    Loopback,
    Any,
}

/// Why a request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// On a loopback address: it names another host.
    #[error("the Host header must name this machine, such as localhost")]
    ForeignHost,
    /// A web page sent it.
    #[error("requests from web pages are not allowed")]
    WebPage,
    /// It has no key.
    #[error("missing API key; send the header Authorization: Bearer KEY")]
    NoKey,
    /// Its key is not the server's.
    #[error("invalid API key")]
    WrongKey,
}

impl Refusal {
    /// The status of the response.
    pub fn status(self) -> StatusCode {
        match self {
            Self::ForeignHost | Self::WebPage => StatusCode::FORBIDDEN,
            Self::NoKey | Self::WrongKey => StatusCode::UNAUTHORIZED,
        }
    }
}

impl Gate {
    /// The checks for a server at this address. `None`: no key is needed. The path `open`, such as that of a health check,
    /// needs none either.
    pub fn new(key: Option<&[u8]>, address: IpAddr, open: &'static str) -> Self {
        let hosts = if address.to_canonical().is_loopback() { Hosts::Loopback } else { Hosts::Any };
        Self { key: key.map(KeyHash::of), hosts, open }
    }

    /// Whether the request may be answered.
    ///
    /// # Errors
    /// If not, with the reason.
    pub fn check<B>(&self, request: &Request<B>) -> Result<(), Refusal> {
        if self.hosts == Hosts::Loopback && !names_this_machine(request) {
            return Err(Refusal::ForeignHost);
        }
        if is_from_web_page(request) {
            return Err(Refusal::WebPage);
        }
        if request.uri().path() == self.open {
            return Ok(());
        }
        self.check_key(request)
    }

    /// Like [`Gate::check`], for requests that belong to a program's own web page: one whose origin is the host of the
    /// request itself.
    ///
    /// # Errors
    /// If the request may not be answered, with the reason.
    pub fn check_own_page<B>(&self, request: &Request<B>) -> Result<(), Refusal> {
        if self.hosts == Hosts::Loopback && !names_this_machine(request) {
            return Err(Refusal::ForeignHost);
        }
        match is_from_web_page(request) && !is_from_own_page(request) {
            true => Err(Refusal::WebPage),
            false => Ok(()),
        }
    }

    fn check_key<B>(&self, request: &Request<B>) -> Result<(), Refusal> {
        let Some(key) = &self.key else { return Ok(()) };
        let sent = request.headers().get(header::AUTHORIZATION).map(|value| value.as_bytes());
        let sent = sent.and_then(|value| {
            let (scheme, key) = value.split_at_checked(SCHEME.len())?;
            scheme.eq_ignore_ascii_case(SCHEME).then(|| key.trim_ascii())
        });
        match sent {
            Some(sent) if KeyHash::of(sent).same(key) => Ok(()),
            Some(_) => Err(Refusal::WrongKey),
            None => Err(Refusal::NoKey),
        }
    }
}

const SCHEME: &[u8] = b"bearer ";

fn names_this_machine<B>(request: &Request<B>) -> bool {
    let mut named = request.headers().get_all(header::HOST).iter().peekable();
    let authority = request.uri().authority().map(|authority| authority.as_str());
    // Browsers always send the header.
    let nameless = named.peek().is_none() && request.version() < Version::HTTP_11;
    let named = nameless
        || named.peek().is_some() && named.all(|host| is_local(host.to_str().unwrap_or("?")));
    named && authority.is_none_or(is_local)
}

/// Whether a request comes from a web page. Addresses that users type themselves do not.
fn is_from_web_page<B>(request: &Request<B>) -> bool {
    let headers = request.headers();
    let site = headers.get("sec-fetch-site").map(|site| site.as_bytes());
    headers.contains_key(header::ORIGIN) || site.is_some_and(|site| site != b"none")
}

/// Whether all that a browser says about the page behind a request names the request's own host.
fn is_from_own_page<B>(request: &Request<B>) -> bool {
    let headers = request.headers();
    let text = |name| headers.get_all(name).iter().map(|value| value.to_str().unwrap_or("?"));
    let mut hosts = text(header::HOST);
    let (Some(host), None) = (hosts.next(), hosts.next()) else { return false };
    let is_own = |origin: &str| {
        let authority = origin.strip_prefix("http://").or(origin.strip_prefix("https://"));
        authority.is_some_and(|authority| authority.eq_ignore_ascii_case(host))
    };
    text(header::ORIGIN).all(is_own)
        && text(HeaderName::from_static("sec-fetch-site"))
            .all(|site| ["none", "same-origin"].contains(&site))
}

/// Whether a host, with or without a port, names this machine in a way no DNS server can change.
fn is_local(host: &str) -> bool {
    let name = match host.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((address, port)) if port.is_empty() || port.starts_with(':') => address,
        Some(_) => return false,
        None => host.split(':').next().unwrap_or_default(),
    };
    let address: Option<IpAddr> = name.parse().ok();
    let name = name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase();
    name == "localhost"
        || name.ends_with(".localhost")
        || address.is_some_and(|address| address.to_canonical().is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_this_machine_are_local() {
        for host in
            ["localhost", "LOCALHOST:80", "127.0.0.1:8080", "127.9.9.9", "[::1]:80", "[::1]"]
        {
            assert!(is_local(host), "{host}");
        }
        for host in [
            "evil.example",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "10.0.0.1:80",
            "",
            "[::2]:80",
            "0.0.0.0",
            "[::1]evil.example",
            "evil.example:127",
            "::1x",
            "?",
        ] {
            assert!(!is_local(host), "{host}");
        }
    }

    #[test]
    fn a_page_may_use_its_own_host() {
        let gate = Gate::new(None, IpAddr::from([127, 0, 0, 1]), "/health");
        let host = "80-abc.localhost:7777";
        let check = |origin: &str, site: &str| {
            let mut request = Request::builder().header("host", host);
            for (name, value) in [("origin", origin), ("sec-fetch-site", site)] {
                request = if value.is_empty() { request } else { request.header(name, value) };
            }
            let request = request.body(()).unwrap();
            (gate.check_own_page(&request).is_ok(), gate.check(&request).is_ok())
        };
        let own = format!("http://{host}");
        assert_eq!(check("", ""), (true, true));
        assert_eq!(check(&own, "same-origin"), (true, false));
        assert_eq!(check("", "same-origin"), (true, false));
        for (origin, site) in [
            ("http://81-abc.localhost:7777", ""),
            ("http://evil.example", ""),
            ("null", ""),
            (&own, "cross-site"),
            ("", "same-site"),
        ] {
            assert_eq!(check(origin, site), (false, false), "{origin} {site}");
        }
    }
}
