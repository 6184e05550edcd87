//! Who acts, for the audit trail.

use clap::Args;
use postrider::store::Operator;

/// The operator's name.
#[derive(Debug, Args)]
pub(crate) struct OperatorFlag {
    /// Who acts, for the audit trail [default: $USER@cli]
    #[arg(long, value_name = "NAME")]
    operator: Option<String>,
}

impl OperatorFlag {
    /// The name given, or else the user's.
    pub(crate) fn operator(&self) -> Operator {
        Operator(self.operator.clone().unwrap_or_else(|| {
            let user = std::env::var("USER").ok().filter(|user| !user.is_empty());
            format!("{}@cli", user.as_deref().unwrap_or("unknown"))
        }))
    }
}
