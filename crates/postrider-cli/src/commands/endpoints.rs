//! `postrider endpoints`: destinations with a name.

use clap::Args;

use crate::commands::Context;
use crate::failure::{Exit, Failure};

/// Register, look at and act on endpoints
#[derive(Debug, Args)]
pub(crate) struct Arguments {}

pub(crate) async fn run(_arguments: Arguments, _context: &Context) -> Result<(), Failure> {
    Err(Failure::new(Exit::Failed, "not_there_yet", "this command is not there yet"))
}
