//! What can be done about endpoints.
