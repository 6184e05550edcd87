//! What can be done about audit.
