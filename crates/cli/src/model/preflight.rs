//! One request to a model's server before a long run: a server that is down, a wrong name and a refused key are reported
//! once, in one line, before anything else is done.
//!
//! The list of models costs nothing and settles most cases. Where a server has no list, forbids it, or lists other names, one
//! call for a single token decides: many servers have aliases. So it does for services on the internet, some of which show
//! their list to everybody and want a key for calls. What remains unclear is left to the run.

use std::time::Duration;

use model::{Error, Model, Request, Sampling, Silent};
use trajectory::Message;

use super::{
    open::AnyServer,
    settings::{ModelLocation, ModelSettings, Secrets},
};
use crate::exit::UsageError;

/// How long a server may take to answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// Names that are shown of a server's models.
const MAX_NAMES: usize = 10;

/// How much may be spent on the check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effort {
    /// The list of models, and one call for a single token where that does not settle it.
    Call,
    /// The list of models only.
    List,
}

/// Checks that a server can be reached, has the model and accepts the key. Does nothing for a local model.
pub(crate) async fn preflight(
    chosen: &ModelSettings,
    secrets: &Secrets,
    effort: Effort,
) -> anyhow::Result<()> {
    let ModelLocation::Server { provider, base_url } = &chosen.location else { return Ok(()) };
    let server = AnyServer::connect(chosen, secrets.clone(), *provider, base_url, PATIENCE)?;
    let names = match server.models().await {
        Ok(names) if names.contains(&chosen.name) && !is_service(base_url) => return Ok(()),
        Ok(names) => names,
        Err(error) if is_final(&error) && !is_forbidden(&error) => return Err(error.into()),
        // Not every server has a list, and not every key may read it.
        Err(_) => Vec::new(),
    };
    if effort == Effort::List {
        return Ok(());
    }
    let Err(error) = call(&server).await else { return Ok(()) };
    match Verdict::of(&error, &chosen.name, &names) {
        Verdict::UnknownModel => {
            Err(UsageError(unknown_model(&chosen.name, base_url, &names)).into())
        }
        Verdict::Hopeless => Err(error.into()),
        Verdict::Unclear => Ok(()),
    }
}

/// Whether an address is that of a service rather than of a server of one's own: those have no certificate as a rule.
fn is_service(base_url: &str) -> bool {
    base_url.starts_with("https://")
}

/// What a failed call says.
#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    /// The server does not have the model.
    UnknownModel,
    /// No later call can succeed.
    Hopeless,
    /// A model may dislike a call for one token; a busy server may recover.
    Unclear,
}

impl Verdict {
    fn of(error: &Error, name: &str, names: &[String]) -> Self {
        let is_listed = names.iter().any(|listed| listed == name);
        match error {
            Error::Refused { .. } if is_listed => Self::Unclear,
            Error::Refused { .. } if !names.is_empty() => Self::UnknownModel,
            // It has answered with its list a moment ago.
            Error::Unreachable { .. } if is_listed => Self::Unclear,
            error if is_final(error) || is_not_found(error) => Self::Hopeless,
            _ => Self::Unclear,
        }
    }
}

/// Whether no later call can succeed.
fn is_final(error: &Error) -> bool {
    matches!(error, Error::Unreachable { .. } | Error::Key { .. } | Error::NoKey { .. })
}

/// Whether the key is known and may not do this. It may still do something else.
fn is_forbidden(error: &Error) -> bool {
    matches!(error, Error::Key { status: 403, .. } | Error::NoKey { status: 403, .. })
}

fn is_not_found(error: &Error) -> bool {
    matches!(error, Error::Refused { status: 404, .. })
}

/// The cheapest call.
async fn call(server: &AnyServer) -> Result<(), Error> {
    let messages = [Message::user("Hi")];
    let sampling = Sampling::default();
    let request = Request { messages: &messages, tools: &[], sampling: &sampling, max_tokens: 1 };
    server.complete(&request, &Silent).await.map(|_| ())
}

fn unknown_model(name: &str, base_url: &str, names: &[String]) -> String {
    let lower = name.to_lowercase();
    let is_similar = |known: &&String| {
        let known = known.to_lowercase();
        known.contains(&lower) || lower.contains(&known)
    };
    let (similar, others): (Vec<&String>, Vec<&String>) = names.iter().partition(is_similar);
    let shown: Vec<String> =
        similar.into_iter().chain(others).take(MAX_NAMES).map(|name| format!("`{name}`")).collect();
    let more = match names.len().saturating_sub(MAX_NAMES) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    format!(
        "--model: the server at {base_url} has no model `{name}`; it has {}{more}",
        shown.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_that_may_not_list_models_is_not_refused() {
        let key = |status| Error::Key { status, message: String::new() };
        assert!(is_final(&key(401)) && !is_forbidden(&key(401)));
        assert!(is_final(&key(403)) && is_forbidden(&key(403)), "a call decides");
    }

    #[test]
    fn a_service_that_lists_its_models_to_everybody_may_still_refuse_the_key() {
        assert!(is_service("https://models.example/v1") && !is_service("http://localhost:8000/v1"));
        let names = ["small".to_owned()];
        let key = Error::Key { status: 401, message: String::new() };
        assert_eq!(Verdict::of(&key, "small", &names), Verdict::Hopeless);
        let refused = |status| Error::Refused { status, message: String::new() };
        assert_eq!(Verdict::of(&refused(400), "small", &names), Verdict::Unclear);
        assert_eq!(Verdict::of(&refused(400), "large", &names), Verdict::UnknownModel);
        assert_eq!(Verdict::of(&refused(404), "large", &[]), Verdict::Hopeless);
        assert_eq!(Verdict::of(&refused(400), "large", &[]), Verdict::Unclear);
    }

    #[test]
    fn similar_names_come_first_and_the_rest_is_counted() {
        let mut names: Vec<String> = (0..12).map(|number| format!("other-{number}")).collect();
        names.push("org/Small-1".into());
        let text = unknown_model("small-1", "http://x/v1", &names);
        assert!(text.contains("it has `org/Small-1`, `other-0`"), "{text}");
        assert!(text.ends_with("and 3 more"), "{text}");
    }
}
