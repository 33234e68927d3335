//! TLS of a server: a certificate and its key, which can be replaced while the server runs.

use std::{
    fmt,
    sync::{Arc, PoisonError, RwLock},
};

use rustls::{
    ServerConfig,
    crypto::CryptoProvider,
    pki_types::{CertificateDer, PrivateKeyDer, pem, pem::PemObject},
};
use tokio_rustls::TlsAcceptor;

/// A certificate with its key. Clones are the same one.
#[derive(Clone)]
pub struct Tls {
    config: Arc<RwLock<Arc<ServerConfig>>>,
}

/// Why a certificate or a key is not accepted.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// The certificates are not PEM, or there is none.
    #[error("the certificate is not a PEM certificate chain")]
    Certificate(#[source] Option<pem::Error>),
    /// The key is not PEM, or there is none.
    #[error("the key is not an unencrypted PEM private key")]
    Key(#[source] pem::Error),
    /// The two cannot be used, or not together.
    #[error("the certificate and the key cannot be used together")]
    Pair(#[source] rustls::Error),
    /// There is no cryptography in this build.
    #[error("this program was built without TLS for servers")]
    Unsupported,
}

impl Tls {
    /// Serves with this certificate chain, the server's own certificate first, and its key, both in PEM.
    ///
    /// # Errors
    /// If they cannot be read, or do not belong together.
    pub fn new(certificates: &[u8], key: &[u8]) -> Result<Self, TlsError> {
        Ok(Self { config: Arc::new(RwLock::new(Arc::new(config(certificates, key)?))) })
    }

    /// Uses another certificate and key for connections from now on.
    ///
    /// # Errors
    /// As [`Self::new`]; then nothing changes.
    pub fn replace(&self, certificates: &[u8], key: &[u8]) -> Result<(), TlsError> {
        let config = Arc::new(config(certificates, key)?);
        *self.config.write().unwrap_or_else(PoisonError::into_inner) = config;
        Ok(())
    }

    pub(crate) fn acceptor(&self) -> TlsAcceptor {
        let config = self.config.read().unwrap_or_else(PoisonError::into_inner);
        TlsAcceptor::from(Arc::clone(&config))
    }
}

fn config(certificates: &[u8], key: &[u8]) -> Result<ServerConfig, TlsError> {
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(certificates).collect();
    let chain = chain.map_err(|error| TlsError::Certificate(Some(error)))?;
    if chain.is_empty() {
        return Err(TlsError::Certificate(None));
    }
    let key = PrivateKeyDer::from_pem_slice(key).map_err(TlsError::Key)?;
    let provider = provider().ok_or(TlsError::Unsupported)?;
    let builder = ServerConfig::builder_with_provider(Arc::new(provider));
    let builder = builder.with_safe_default_protocol_versions().map_err(TlsError::Pair)?;
    let builder = builder.with_no_client_auth();
    let mut config = builder.with_single_cert(chain, key).map_err(TlsError::Pair)?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}

/// The provider of the HTTP client, so that the program has one. On macOS that client uses the system's own TLS.
fn provider() -> Option<CryptoProvider> {
    #[cfg(target_os = "macos")]
    return None;
    #[cfg(not(target_os = "macos"))]
    Some(rustls::crypto::ring::default_provider())
}

impl fmt::Debug for Tls {
    /// Without the key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::{net::SocketAddr, time::Duration};

    use axum::{Router, routing::get};
    use rustls::{ClientConfig, RootCertStore, pki_types::ServerName};
    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        net::{TcpListener, TcpStream},
        sync::oneshot,
        time::{Instant, timeout},
    };
    use tokio_rustls::TlsConnector;

    use super::*;
    use crate::{ConnectionLimits, serve_tls};

    const ONE: (&[u8], &[u8]) =
        (include_bytes!("testdata/one.cert.pem"), include_bytes!("testdata/one.key.pem"));
    const TWO: (&[u8], &[u8]) =
        (include_bytes!("testdata/two.cert.pem"), include_bytes!("testdata/two.key.pem"));

    /// The response to a client that trusts one certificate, or why there is none.
    async fn ask(address: SocketAddr, trusted: &[u8]) -> std::io::Result<String> {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(trusted).unwrap()).unwrap();
        let provider = Arc::new(provider().unwrap());
        let config = ClientConfig::builder_with_provider(provider);
        let config = config.with_safe_default_protocol_versions().unwrap();
        let config = config.with_root_certificates(roots).with_no_client_auth();
        let stream = TcpStream::connect(address).await?;
        let name = ServerName::try_from("localhost").unwrap();
        let mut stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await?;
        let request = b"GET / HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
        stream.write_all(request).await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        Ok(answer)
    }

    fn limits() -> ConnectionLimits {
        let head_timeout = Duration::from_millis(200);
        let grace = Duration::from_secs(5);
        ConnectionLimits { max_connections: 2, head_timeout, grace, ..ConnectionLimits::default() }
    }

    async fn with_server(tls: &Tls, test: impl AsyncFnOnce(SocketAddr)) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, stopped) = oneshot::channel::<()>();
        let app = Router::new().route("/", get(async || "hello"));
        let tls = tls.clone();
        let serving = tokio::spawn(async move {
            let until = async {
                let _ = stopped.await;
            };
            serve_tls(listener, Some(tls), app, &limits(), until).await;
        });
        test(address).await;
        drop(stop);
        timeout(Duration::from_secs(2), serving).await.unwrap().unwrap();
    }

    #[tokio::test]
    async fn a_certificate_is_replaced_while_the_server_runs() {
        let tls = Tls::new(ONE.0, ONE.1).unwrap();
        with_server(&tls, async |address| {
            assert!(ask(address, ONE.0).await.unwrap().ends_with("hello"));
            assert!(ask(address, TWO.0).await.is_err(), "the client trusts another certificate");
            assert!(matches!(tls.replace(TWO.0, ONE.1), Err(TlsError::Pair(_))));
            assert!(ask(address, ONE.0).await.is_ok(), "a bad pair changes nothing");
            tls.replace(TWO.0, TWO.1).unwrap();
            assert!(ask(address, TWO.0).await.unwrap().ends_with("hello"));
        })
        .await;
    }

    #[tokio::test]
    async fn a_client_that_does_not_shake_hands_is_disconnected() {
        with_server(&Tls::new(ONE.0, ONE.1).unwrap(), async |address| {
            let begun = Instant::now();
            // Nothing, a part of a hello, and no TLS at all.
            for sent in [&b""[..], b"\x16\x03\x01\x02\x00\x01", b"GET / HTTP/1.1\r\n\r\n"] {
                let mut stream = TcpStream::connect(address).await.unwrap();
                stream.write_all(sent).await.unwrap();
                let mut answer = Vec::new();
                let closed = timeout(Duration::from_secs(3), stream.read_to_end(&mut answer)).await;
                assert!(closed.is_ok(), "{sent:?} is still connected");
                assert!(!answer.starts_with(b"HTTP"), "{answer:?}");
            }
            assert!(begun.elapsed() < Duration::from_secs(3));
        })
        .await;
    }

    #[tokio::test]
    async fn silent_clients_make_room() {
        with_server(&Tls::new(ONE.0, ONE.1).unwrap(), async |address| {
            let mut silent = Vec::new();
            for _ in 0..4 {
                silent.push(TcpStream::connect(address).await.unwrap());
            }
            assert!(ask(address, ONE.0).await.unwrap().ends_with("hello"));
        })
        .await;
    }

    #[test]
    fn what_is_no_certificate_is_refused() {
        assert!(matches!(Tls::new(b"", ONE.1), Err(TlsError::Certificate(None))));
        assert!(matches!(Tls::new(ONE.0, b""), Err(TlsError::Key(_))));
        assert!(matches!(Tls::new(ONE.0, ONE.0), Err(TlsError::Key(_))));
        assert!(!format!("{:?}", Tls::new(ONE.0, ONE.1).unwrap()).contains("PRIVATE"));
    }
}
