//! `postrider why`: why a delivery is as it is.

use clap::Args;

use crate::client::LookFlags;
use crate::commands::Context;
use crate::commands::deliveries::parse_id;
use crate::failure::Failure;
use crate::output::plain;

/// Longer texts are cut: they quote what receivers answered.
const MOST_CHARACTERS: usize = 4_000;

/// Say why a delivery is in the state it is in, and what happens next
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  postrider why dlv_01jd3nqqz4e8tv5h3s6g9x2m7k
  postrider why dlv_01jd3nqqz4e8tv5h3s6g9x2m7k --json")]
pub(crate) struct Arguments {
    /// The delivery: `dlv_…`, or its UUID
    #[arg(value_name = "DELIVERY")]
    id: String,
    #[command(flatten)]
    look: LookFlags,
}

pub(crate) async fn run(arguments: Arguments, context: &Context) -> Result<(), Failure> {
    let id = parse_id(&arguments.id, "deliveries")?;
    let why = arguments.look.client(context).await?.why(id).await?;
    let output = context.output;
    if output.json {
        return output.document(&why);
    }
    output.paragraph(&plain(&why.summary, MOST_CHARACTERS))?;
    if !why.facts.is_empty() {
        output.line("")?;
    }
    why.facts.iter().try_for_each(|fact| output.item(&plain(fact, MOST_CHARACTERS)))
}
