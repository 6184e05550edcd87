//! An example on Postrider: rollouts whose end is told once, by however many replicas.

fn main() {}
