//! `postrider keys`: who is let in.

use clap::builder::PossibleValuesParser;
use clap::{Args, Subcommand};
use jiff::Timestamp;
use postrider::Scope;
use postrider_server::api::endpoints::Patched;
use postrider_server::api::keys::{CreatedKey, Key, NewKey};

use crate::client::{ActFlags, Client, LookFlags};
use crate::commands::Context;
use crate::commands::deliveries::{PageFlags, parse_id, print};
use crate::config::Flags;
use crate::database::Preparation;
use crate::failure::Failure;
use crate::operator::OperatorFlag;
use crate::output::{self, Cell, Output, Tone, plain};

/// Create, list and revoke API keys
///
/// A key opens a server's API for one tenant or for all, to look (`read`), to send and act as well (`write`), or to manage
/// keys as well (`admin`). Only a digest of it is kept.
#[derive(Debug, Args)]
#[command(disable_help_subcommand = true)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: KeysCommand,
}

#[derive(Debug, Subcommand)]
enum KeysCommand {
    Create(CreateArguments),
    List(ListArguments),
    Revoke(RevokeArguments),
}

/// Create a key, which is shown this once
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  postrider keys create --name 'billing service' --tenant acme --scope write
  postrider keys create --name ops --all-tenants --scope admin --json")]
struct CreateArguments {
    /// For people: whose it is, what it is for
    #[arg(long, value_name = "TEXT")]
    name: String,
    /// What it permits; each scope includes those before it
    #[arg(long, value_name = "SCOPE", value_parser = PossibleValuesParser::new(Scope::ALL.map(Scope::as_str)))]
    scope: String,
    /// The one tenant that it is for [default: your own key's, or `default`]
    #[arg(long, value_name = "NAME", conflicts_with = "all_tenants")]
    tenant: Option<String>,
    /// For all tenants, also those to come
    #[arg(long)]
    all_tenants: bool,
    #[command(flatten)]
    operator: OperatorFlag,
}

/// List keys, also revoked ones, newest first
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  postrider keys list
  postrider keys list --tenant acme --json")]
struct ListArguments {
    #[command(flatten)]
    page: PageFlags,
    #[command(flatten)]
    look: LookFlags,
}

/// Revoke a key: from now on it opens nothing
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  postrider keys revoke key_01jd3nqqz4e8tv5h3s6g9x2m7k")]
struct RevokeArguments {
    /// The key's id: `key_…`, or its UUID; not the key itself
    id: String,
    #[command(flatten)]
    act: ActFlags,
}

pub(crate) async fn run(arguments: Arguments, context: &Context) -> Result<(), Failure> {
    let output = context.output;
    match arguments.command {
        KeysCommand::Create(arguments) => create(&arguments, context).await,
        KeysCommand::List(arguments) => {
            arguments.page.check()?;
            let client = arguments.look.client(context).await?;
            let listing = arguments.page.gather(async |page| client.keys(&page).await).await?;
            print(&listing, "no key", output, |keys| table(keys, output))
        }
        KeysCommand::Revoke(arguments) => {
            let id = parse_id(&arguments.id, "keys")?;
            arguments.act.client(context).await?.revoke_key(id).await?;
            if output.json {
                return output.document(&serde_json::json!({ "id": id, "revoked": true }));
            }
            output.line(format!("{id} is revoked"))
        }
    }
}

async fn create(arguments: &CreateArguments, context: &Context) -> Result<(), Failure> {
    let config = context.config(Flags::new())?;
    let client = Client::open(&config, Preparation::Create, None, &arguments.operator).await?;
    let tenant = if arguments.all_tenants { Patched::Default } else { Patched::to(arguments.tenant.clone()) };
    let key = NewKey { name: arguments.name.clone(), tenant, scope: arguments.scope.clone() };
    tell(&client.create_key(key).await?, context.output)
}

fn tell(created: &CreatedKey, output: Output) -> Result<(), Failure> {
    if output.json {
        return output.document(created);
    }
    let about = &created.about;
    output.facts(&[
        ("id", about.id.to_string()),
        ("name", plain(&about.name, 255)),
        ("tenant", tenant(about)),
        ("scope", about.scope.to_string()),
        ("key", created.key.reveal().to_owned()),
    ])?;
    output.line("\nKeep the key now, it is not shown again. Client commands take it from the environment:")?;
    output.line(format!("  export POSTRIDER_API_KEY={}", created.key.reveal()))
}

fn tenant(key: &Key) -> String {
    key.tenant.as_deref().map_or_else(|| "all".to_owned(), |tenant| plain(tenant, 255))
}

fn table(keys: &[Key], output: Output) -> Result<(), Failure> {
    let now = Timestamp::now();
    let rows = keys.iter().map(|key| {
        let state = match key.revoked_at {
            Some(at) => Cell::toned(format!("revoked {}", output::relative(at, now)), Tone::Faint),
            None => Cell::toned("open", Tone::Good),
        };
        vec![
            key.id.to_string().into(),
            plain(&key.name, 40).into(),
            tenant(key).into(),
            key.scope.to_string().into(),
            output::relative(key.created_at, now).into(),
            state,
        ]
    });
    output.table(&["key", "name", "tenant", "scope", "created", "state"], rows)
}
