//! What can be done about why.
