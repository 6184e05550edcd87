//! The contract of a store as a plain program, and the search for a difference between the two.
//!
//! [`specification`] is the contract: a map of deliveries and a function per operation, without a database, without
//! concurrency, with time as a number. [`operations`] makes random lists of operations. [`driver`] runs each list
//! against the specification and against a store, with the store's clock stopped, and compares everything that can be
//! observed after every operation. Where the contract leaves the store a choice, such as which ready deliveries a claim
//! takes, the specification checks that the choice is an allowed one, and follows it.

pub mod driver;
pub mod operations;
pub mod specification;
pub mod subjects;

pub use driver::search;
