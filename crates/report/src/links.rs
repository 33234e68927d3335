//! Links from a report to the episodes behind it.

use results::ResultsDir;

use crate::{Fact, Source, transcript::page_name};

/// Path of the page of an attempt relative to the report; `None` where no pages are written.
pub(crate) fn page(source: &Source, fact: &Fact) -> Option<String> {
    let directory = source.pages.as_ref()?;
    Some(format!("{directory}/{}", page_name(&fact.attempt.key)))
}

/// Path of an attempt's trajectory relative to the report; `None` where there is none.
pub(crate) fn trajectory(source: &Source, fact: &Fact) -> Option<String> {
    let below = ResultsDir::new("").trajectory_path(&fact.attempt.key);
    let slash = if source.link.is_empty() { "" } else { "/" };
    fact.recorded.then(|| format!("{}{slash}{}", source.link, below.to_string_lossy()))
}
