//! What can be done about once.
