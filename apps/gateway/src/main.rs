//! An example on Postrider: a gateway with an exact retry schedule and dead letters, in one process on SQLite.

fn main() {}
