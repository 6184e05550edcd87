//! `postrider serve`: the API and the dispatcher in one process.

use clap::Args;

use crate::commands::Context;
use crate::failure::{Exit, Failure};

/// Serve the HTTP API and deliver what is due, until told to stop
#[derive(Debug, Args)]
pub(crate) struct Arguments {}

pub(crate) async fn run(_arguments: Arguments, _context: &Context) -> Result<(), Failure> {
    Err(Failure::new(Exit::Failed, "not_there_yet", "this command is not there yet"))
}
