//! API keys reach their server only.

use std::error::Error as _;

use lis_model::{Endpoint, Error, Secret, Silent};
use testkit::{Answer, MockServer, UnusedPort, say};

use crate::clients::{Client, KEY, VENDORS, ask, endpoint};

/// An error as a log may show it: its text, its causes, its debug output.
fn everything(error: &Error) -> String {
    let mut text = format!("{error} {error:?}");
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(&format!(" {cause} {cause:?}"));
        source = cause.source();
    }
    text
}

#[tokio::test]
async fn a_server_that_repeats_the_key_does_not_make_us_repeat_it() {
    let words =
        format!("Incorrect API key provided: {KEY} of secret-team-5678.\nSecond\x1b[2Jline");
    for vendor in VENDORS {
        for status in [400, 401, 404, 429, 500] {
            let server = MockServer::scripted([Answer::error(status, words.as_str())]).unwrap();
            let client = Client::new(vendor, endpoint(&server)).unwrap();
            let shown = everything(&ask(&client, &Silent).await.unwrap_err());
            assert!(shown.contains("Incorrect API key provided: [hidden] of [hidden]"), "{shown}");
            assert!(!shown.contains(KEY) && !shown.contains("secret-team"), "{shown}");
            assert!(!shown.contains('\x1b') && !shown.contains('\n'), "{shown}");
            assert!(!format!("{client:?}").contains(KEY));
        }
    }
}

#[tokio::test]
async fn nor_does_a_proxy_that_answers_with_its_own_page() {
    let page = format!("<html>\x1b[2Jyou sent {KEY}</html>");
    for vendor in VENDORS {
        let server = MockServer::scripted([Answer::body(200, "text/html", page.as_str())]).unwrap();
        let client = Client::new(vendor, endpoint(&server)).unwrap();
        let shown = everything(&ask(&client, &Silent).await.unwrap_err());
        assert!(shown.contains("web page") && shown.contains("you sent [hidden]"), "{shown}");
        assert!(!shown.contains(KEY) && !shown.contains('\x1b'), "{shown}");
    }
}

#[tokio::test]
async fn secrets_in_the_address_are_not_shown() {
    for vendor in VENDORS {
        let nobody = UnusedPort::new().unwrap();
        let address = nobody.base_url().unwrap().replace("http://", "http://me:pass-1234@");
        let endpoint = Endpoint {
            api_key: Some(Secret::new(KEY)),
            ..Endpoint::new("m", format!("{address}?key=query-1234"))
        };
        let client = Client::new(vendor, endpoint).unwrap();
        let shown = everything(&ask(&client, &Silent).await.unwrap_err());
        for secret in ["pass-1234", "query-1234", KEY] {
            assert!(!shown.contains(secret), "{shown}");
        }
    }
}

#[tokio::test]
async fn a_redirect_is_reported_and_not_followed() {
    for vendor in VENDORS {
        for status in [301, 302, 307, 308] {
            let other = MockServer::scripted([say("I have your key")]).unwrap();
            let to = format!("{}?key=query-1234", other.base_url());
            let away = Answer::status(status, "").header("location", to);
            let server = MockServer::scripted([away]).unwrap();
            let client = Client::new(vendor, endpoint(&server)).unwrap();
            let error = ask(&client, &Silent).await.unwrap_err();
            assert!(matches!(&error, Error::Settings(_)), "{error:?}");
            assert!(error.to_string().contains(&other.base_url()), "{error}");
            assert!(!error.to_string().contains("query-1234"), "{error}");
            assert_eq!(other.count(), 0);
        }
    }
}
