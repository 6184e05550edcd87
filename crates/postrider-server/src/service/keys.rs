//! What can be done about keys.
