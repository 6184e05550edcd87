//! A Postgres of a test's own; benchmarks have one, too.

pub use postrider_conformance::cluster::{BINARIES_VARIABLE, Cluster, Stop};
