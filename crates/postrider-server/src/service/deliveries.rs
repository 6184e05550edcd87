//! What can be done about deliveries.
