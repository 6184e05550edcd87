//! An example on Postrider: payment requests whose changes of status are told by webhook.

fn main() {}
