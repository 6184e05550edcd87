//! `postrider openapi`: the API, for programs.

use clap::Args;

use crate::commands::Context;
use crate::failure::Failure;

const EXAMPLES: &str = "\
A running server has the same document at /openapi.json, and a readable form of it at /docs.

Examples:
  postrider openapi > openapi.json";

/// Prints the document.
#[derive(Debug, Args)]
#[command(about = "Print the OpenAPI document of the HTTP API, as JSON", after_help = EXAMPLES)]
pub(crate) struct Arguments {}

pub(crate) fn run(_arguments: &Arguments, context: &Context) -> Result<(), Failure> {
    context.output.document(&postrider_server::openapi())
}
