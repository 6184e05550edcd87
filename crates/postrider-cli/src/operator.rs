//! Who acts, for the audit trail.

use clap::Args;
use postrider::store::Operator;

use crate::failure::{Exit, Failure};

/// The operator's name.
#[derive(Debug, Default, Args)]
pub(crate) struct OperatorFlag {
    /// Who acts on the database, for the audit trail [default: $USER@cli]
    #[arg(long, value_name = "NAME", help_heading = "On whose behalf")]
    operator: Option<String>,
}

impl OperatorFlag {
    /// Whether there is one.
    pub(crate) fn is_given(&self) -> bool {
        self.operator.is_some()
    }

    /// The name given, or else the user's.
    pub(crate) fn operator(&self) -> Result<Operator, Failure> {
        let name = self.operator.clone().unwrap_or_else(|| {
            let user = std::env::var("USER").ok().filter(|user| !user.is_empty());
            format!("{}@cli", user.as_deref().unwrap_or("unknown"))
        });
        if name.trim().is_empty() {
            return Err(Failure::new(Exit::Refused, "operator_missing", "--operator is empty")
                .hint("give a name that means something to whoever reads the audit trail, or leave it out"));
        }
        Ok(Operator(name))
    }
}
