//! The settings of a client and its construction.

use std::{net::IpAddr, time::Duration};

use reqwest::{Client, Error, redirect::Policy};

/// How a client connects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientSettings {
    /// The longest time to set up a connection; 10 seconds by default.
    pub connect_timeout: Duration,
    /// The longest silence of a server within a response; unlimited by default.
    pub read_timeout: Option<Duration>,
    /// How many redirects to follow; 5 by default. With 0, a redirect is returned as the response.
    pub redirects: usize,
    /// Which connections are allowed; HTTPS only by default.
    pub transport: Transport,
}

/// Which connections a client may make, redirects included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Transport {
    /// HTTPS, through the system's proxy where one is configured.
    #[default]
    Https,
    /// HTTPS or plain HTTP, through the system's proxy where one is configured.
    AnyHttp,
    /// A server on this machine: HTTPS or plain HTTP, and never a proxy.
    Loopback,
}

impl Default for ClientSettings {
    fn default() -> Self {
        Self {
            connect_timeout: Duration::from_secs(10),
            read_timeout: None,
            redirects: 5,
            transport: Transport::default(),
        }
    }
}

impl ClientSettings {
    /// Builds a client. Connects to nothing.
    pub fn build(&self) -> Result<Client, Error> {
        // Fails where the program has installed a provider before; that one is used then.
        #[cfg(not(target_os = "macos"))]
        let _ = rustls::crypto::ring::default_provider().install_default();
        let redirects = match self.redirects {
            0 => Policy::none(),
            most => Policy::limited(most),
        };
        let mut builder = Client::builder()
            .user_agent(concat!("llm-in-sandbox/", env!("CARGO_PKG_VERSION")))
            .connect_timeout(self.connect_timeout)
            .tcp_keepalive(Duration::from_secs(30))
            .redirect(redirects)
            .https_only(self.transport == Transport::Https);
        if let Some(timeout) = self.read_timeout {
            builder = builder.read_timeout(timeout);
        }
        if self.transport == Transport::Loopback {
            builder = builder.no_proxy();
        }
        builder.build()
    }
}

/// Whether a host name or address, IPv6 with or without brackets, is this machine's loopback interface.
pub fn is_loopback(host: &str) -> bool {
    let address = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    host == "localhost" || address.is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_hosts_are_recognised() {
        for host in ["localhost", "127.0.0.1", "127.9.9.9", "::1", "[::1]"] {
            assert!(is_loopback(host), "{host}");
        }
        for host in ["localhost.example", "10.0.0.1", "0.0.0.0", "", "example.com"] {
            assert!(!is_loopback(host), "{host}");
        }
    }

    #[tokio::test]
    async fn plain_http_is_refused_unless_allowed() {
        let settings = ClientSettings::default();
        let refused = settings.build().unwrap().get("http://127.0.0.1:1/").send().await;
        assert!(refused.unwrap_err().is_builder());
        let settings = ClientSettings { transport: Transport::Loopback, ..settings };
        let allowed = settings.build().unwrap().get("http://127.0.0.1:1/").send().await;
        assert!(allowed.unwrap_err().is_connect());
    }
}
