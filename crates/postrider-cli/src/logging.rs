//! Logs, to standard error.

use std::io::IsTerminal as _;

use tracing_subscriber::EnvFilter;

use crate::config::{Config, LogFormat};
use crate::failure::{Exit, Failure};

/// Begins to log: `pretty` on a terminal and `json` otherwise, unless configured; `POSTRIDER_LOG` or `RUST_LOG` say
/// how much, in the form `info` or `postrider=debug,warn`.
pub(crate) fn start(config: &Config) -> Result<(), Failure> {
    let terminal = std::io::stderr().is_terminal();
    let format = config.log_format.unwrap_or(if terminal { LogFormat::Pretty } else { LogFormat::Json });
    let builder = tracing_subscriber::fmt().with_env_filter(filter()?).with_writer(std::io::stderr);
    match format {
        LogFormat::Json => builder.json().flatten_event(true).with_current_span(false).with_span_list(false).init(),
        LogFormat::Pretty => {
            let colour = terminal && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
            builder.with_ansi(colour).with_target(false).init();
        }
    }
    Ok(())
}

fn filter() -> Result<EnvFilter, Failure> {
    for variable in ["POSTRIDER_LOG", "RUST_LOG"] {
        let Ok(text) = std::env::var(variable) else { continue };
        return EnvFilter::builder().parse(&text).map_err(|error| {
            let message = format!("{variable} = `{}` is not a log filter: {error}", crate::output::plain(&text, 100));
            Failure::new(Exit::Refused, "log_filter_invalid", message).hint("use info, or postrider=debug,warn")
        });
    }
    Ok(EnvFilter::new("info"))
}
