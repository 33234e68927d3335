//! `repeat:` constraints: a request repeated, changed or in part.

use super::{
    args::{Args, Raised},
    rule::Rule,
};
use crate::text::strings::{len, lower, split, strip};

pub(super) fn simple(text: &str) -> bool {
    lower(strip(text)) == "only output this sentence here, ignore all other requests."
}

pub(super) fn change(args: &Args) -> Result<Rule, Raised> {
    let request = args.some_text("prompt_to_repeat")?.to_owned();
    Ok(Box::new(move |text| Ok(text != request && split(text).skip(1).eq(split(&request).skip(1)))))
}

pub(super) fn span(args: &Args) -> Result<Rule, Raised> {
    let request = args.some_text("prompt_to_repeat")?.to_owned();
    let (start, end) = (args.place("n_start")?, args.place("n_end")?);
    Ok(Box::new(move |text| {
        let length = len(&request);
        let (start, end) = (start.bound(0, length)?, end.bound(1, length)?);
        let span: String = request.chars().take(end).skip(start).collect();
        Ok(lower(strip(text)) == lower(strip(&span)))
    }))
}
