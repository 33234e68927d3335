//! Authentication: basic, or a bearer token from the server that the registry names.

use std::collections::HashMap;

use base64::{Engine, engine::general_purpose::STANDARD};
use lis_http::{
    Url,
    header::{HeaderMap, HeaderValue, WWW_AUTHENTICATE},
};
use serde::Deserialize;

use super::Credentials;

/// The authentication that a registry requires.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Challenge {
    Basic,
    Bearer { realm: String, service: Option<String>, scope: Option<String> },
}

impl Challenge {
    /// The strongest supported challenge of a response.
    pub(crate) fn from_headers(headers: &HeaderMap) -> Option<Self> {
        let texts =
            || headers.get_all(WWW_AUTHENTICATE).iter().filter_map(|value| value.to_str().ok());
        let challenges: Vec<_> = texts().filter_map(Self::parse).collect();
        let is_bearer = |challenge: &Self| matches!(challenge, Self::Bearer { .. });
        let at = challenges.iter().position(is_bearer).unwrap_or(0);
        challenges.into_iter().nth(at)
    }

    fn parse(text: &str) -> Option<Self> {
        let (scheme, rest) = text.split_once(' ').unwrap_or((text, ""));
        if scheme.eq_ignore_ascii_case("basic") {
            return Some(Self::Basic);
        }
        if !scheme.eq_ignore_ascii_case("bearer") {
            return None;
        }
        let mut parameters = parameters(rest);
        Some(Self::Bearer {
            realm: parameters.remove("realm")?,
            service: parameters.remove("service"),
            scope: parameters.remove("scope"),
        })
    }

    /// The address to request the token from.
    pub(crate) fn token_url(realm: &str, service: Option<&str>, scope: &str) -> Option<Url> {
        let mut url = Url::parse(realm).ok()?;
        {
            let mut query = url.query_pairs_mut();
            if let Some(service) = service {
                query.append_pair("service", service);
            }
            query.append_pair("scope", scope);
        }
        Some(url)
    }
}

/// `key="value"` or `key=value`, separated by commas; quoted values may hold commas.
fn parameters(mut text: &str) -> HashMap<String, String> {
    let mut found = HashMap::new();
    while let Some((key, rest)) = text.split_once('=') {
        let (value, after) = match rest.strip_prefix('"') {
            Some(quoted) => match quoted.split_once('"') {
                Some(parts) => parts,
                None => break,
            },
            None => rest.split_once(',').unwrap_or((rest, "")),
        };
        found.insert(key.trim().to_ascii_lowercase(), value.to_owned());
        text = after.trim_start_matches([',', ' ']);
    }
    found
}

/// A token server's answer.
#[derive(Deserialize)]
pub(crate) struct Token {
    token: Option<String>,
    access_token: Option<String>,
}

impl Token {
    /// The `Authorization` header with the token.
    pub(crate) fn header(self) -> Option<HeaderValue> {
        let token = self.token.or(self.access_token)?;
        secret(format!("Bearer {token}"))
    }
}

/// The `Authorization` header with name and password.
pub(crate) fn basic(credentials: &Credentials) -> Option<HeaderValue> {
    let pair = format!("{}:{}", credentials.username, credentials.password);
    secret(format!("Basic {}", STANDARD.encode(pair)))
}

fn secret(text: String) -> Option<HeaderValue> {
    let mut value = HeaderValue::try_from(text).ok()?;
    value.set_sensitive(true);
    Some(value)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn challenges_are_read_with_commas_inside_quotes() {
        let mut headers = HeaderMap::new();
        headers.append(WWW_AUTHENTICATE, HeaderValue::from_static("Basic realm=\"x\""));
        assert_eq!(Challenge::from_headers(&headers), Some(Challenge::Basic));
        let text = "Bearer realm=\"https://auth.example/token\",service=\"reg, istry\", scope=\"repository:a/b:pull,push\"";
        headers.append(WWW_AUTHENTICATE, HeaderValue::from_static(text));
        assert_eq!(
            Challenge::from_headers(&headers),
            Some(Challenge::Bearer {
                realm: "https://auth.example/token".into(),
                service: Some("reg, istry".into()),
                scope: Some("repository:a/b:pull,push".into()),
            })
        );
        let url = Challenge::token_url("https://a.example/t?x=1", Some("s&t"), "repository:a:pull")
            .unwrap();
        assert_eq!(
            url.as_str(),
            "https://a.example/t?x=1&service=s%26t&scope=repository%3Aa%3Apull"
        );
    }

    #[test]
    fn passwords_are_not_printed() {
        let credentials = Credentials { username: "u".into(), password: "secret".into() };
        assert!(!format!("{credentials:?} {:?}", basic(&credentials)).contains("secret"));
    }

    proptest! {
        #[test]
        fn arbitrary_challenges_never_panic(text in "(Bearer|Basic)? ?[a-z=\", ]{0,40}") {
            let _ = Challenge::parse(&text);
        }
    }
}
