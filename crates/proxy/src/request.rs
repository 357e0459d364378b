//! One request and its calls, as values: no step of its life is taken here.

pub(crate) mod context;
pub(crate) mod pin;
pub(crate) mod reply;
pub(crate) mod result;
pub(crate) mod select;
