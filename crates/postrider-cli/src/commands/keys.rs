//! `postrider keys`: who is let in.

use clap::Args;

use crate::commands::Context;
use crate::failure::{Exit, Failure};

/// Create, list and revoke API keys
#[derive(Debug, Args)]
pub(crate) struct Arguments {}

pub(crate) async fn run(_arguments: Arguments, _context: &Context) -> Result<(), Failure> {
    Err(Failure::new(Exit::Failed, "not_there_yet", "this command is not there yet"))
}
