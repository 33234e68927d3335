//! [`ModelMeter`]: charges a caller for the calls to a model, and refuses what its quotas do not allow.

use episodes::Meter;
use model::Price;

use crate::{
    error::{ApiError, Code},
    quota::OverQuota,
    tokens::Caller,
};

/// Why a model is not called.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub(crate) enum ModelRefusal {
    #[error(transparent)]
    OverQuota(#[from] OverQuota),
    /// What it costs could not be counted.
    #[error(
        "the token `{token}` has a quota in dollars (model_cost_per_day), and the price of `{model}` is not known; the \
         operator of this server has to give the price, or a quota of tokens (model_tokens_per_day) in its place"
    )]
    UnknownPrice { token: String, model: String },
}

impl From<ModelRefusal> for ApiError {
    fn from(refusal: ModelRefusal) -> Self {
        match refusal {
            ModelRefusal::OverQuota(over) => over.into(),
            ModelRefusal::UnknownPrice { .. } => {
                Self::new(Code::PermissionDenied, refusal.to_string())
            }
        }
    }
}

/// The calls of one caller to one model.
#[derive(Clone, Debug)]
pub(crate) struct ModelMeter {
    caller: Caller,
    model: String,
    has_price: bool,
}

impl ModelMeter {
    pub(crate) fn new(caller: &Caller, model: &str, price: Option<Price>) -> Self {
        Self { caller: caller.clone(), model: model.to_owned(), has_price: price.is_some() }
    }

    /// Whether the model may be called now.
    pub(crate) fn allow(&self) -> Result<(), ModelRefusal> {
        let Self { caller, model, has_price } = self;
        if !has_price && caller.has_cost_quota() {
            let (token, model) = (caller.name.to_string(), model.clone());
            return Err(ModelRefusal::UnknownPrice { token, model });
        }
        Ok(caller.check_model()?)
    }
}

impl Meter for ModelMeter {
    fn check(&self) -> Result<(), String> {
        self.allow().map_err(|refusal| refusal.to_string())
    }

    fn on_response(&self, tokens: u64, dollars: Option<f64>) {
        self.caller.charge_model(tokens, dollars.unwrap_or_default());
    }
}

#[cfg(test)]
mod tests {
    use http_server::KeyHash;

    use super::*;
    use crate::{Quotas, Token, Tokens};

    #[test]
    fn a_quota_in_dollars_needs_a_price_even_if_it_comes_later() {
        let token = |dollars| {
            let quotas = Quotas { model_cost_per_day: dollars, ..Quotas::default() };
            vec![Token { name: "alice".into(), key: KeyHash::of(b"a"), quotas }]
        };
        let tokens = Tokens::new(token(None)).unwrap();
        let caller = tokens.caller(Some(b"a")).unwrap();
        let meter = |price| ModelMeter::new(&caller, "big", price);
        let (unpriced, priced) = (meter(None), meter(Some(Price::default())));
        assert_eq!((unpriced.allow(), priced.allow()), (Ok(()), Ok(())));
        // While an episode runs.
        tokens.replace(token(Some(5.0))).unwrap();
        let why = Meter::check(&unpriced).unwrap_err();
        assert!(why.contains("`alice`") && why.contains("`big`"), "{why}");
        assert!(why.contains("model_tokens_per_day"), "it names the remedy: {why}");
        assert_eq!(priced.allow(), Ok(()));
        priced.on_response(10, Some(5.0));
        assert!(matches!(priced.allow(), Err(ModelRefusal::OverQuota(_))));
    }
}
