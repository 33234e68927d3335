//! Arguments that several commands share, and the parsers of their values.

pub(crate) mod limits;
pub(crate) mod model;
pub(crate) mod mounts;
pub(crate) mod sandbox;
pub(crate) mod values;
