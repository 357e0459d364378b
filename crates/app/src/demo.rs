//! `wellhead demo`: a simulated chain behind the real proxy.

use crate::cli::Demo;
use crate::command::Failure;

pub(crate) fn run(_arguments: &Demo) -> Result<(), Failure> {
    Err(Failure::System("the demo is being built".to_owned()))
}
