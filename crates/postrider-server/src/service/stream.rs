//! What can be done about stream.
