//! `postrider completions`: what a shell needs to complete the command line.

use clap::Args;
use clap_complete::Shell;

use crate::cli::Cli;
use crate::commands::Context;
use crate::failure::Failure;

const EXAMPLES: &str = "\
Examples:
  postrider completions bash > /etc/bash_completion.d/postrider
  postrider completions zsh > ~/.zfunc/_postrider
  postrider completions fish > ~/.config/fish/completions/postrider.fish";

/// Print the completions of a shell
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// Which shell
    shell: Shell,
}

pub(crate) fn run(arguments: &Arguments, context: &Context) -> Result<(), Failure> {
    // Written to memory first: the generator panics where a write fails, and a reader may well be gone.
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut Cli::described(), "postrider", &mut script);
    context.output.line(String::from_utf8_lossy(&script).trim_end())
}
