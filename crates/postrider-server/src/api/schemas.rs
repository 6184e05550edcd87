//! Schemas of what the engine's own types look like in JSON, for fields: `#[schema(schema_with = schemas::event_id)]`.

use postrider::{DeliveryId, DeliveryStatus, EndpointId, EventId, KeyId, OutcomeKind, Scope};
use utoipa::openapi::{Object, ObjectBuilder, Type};

/// A name in everything that is kept: one line of printable ASCII, without space around it.
pub(crate) const NAME: &str = "^[!-~]([ -~]*[!-~])?$";

/// A cursor's text.
pub(crate) const CURSOR: &str = "^[0-9a-f]{32}$";

/// An id in a path may be given as databases show it as well.
pub(crate) fn id_pattern(prefix: &str) -> String {
    let uuid = "[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}";
    format!("^({prefix}_[0-7][0-9a-hjkmnp-tv-z]{{25}}|{uuid})$")
}

fn id(prefix: &str, what: &str) -> Object {
    ObjectBuilder::new()
        .schema_type(Type::String)
        .pattern(Some(format!("^{prefix}_[0-7][0-9a-hjkmnp-tv-z]{{25}}$")))
        .description(Some(format!("{what}'s id, a TypeID.")))
        .examples([format!("{prefix}_01k2b7wq6se3yv5r3q8h0m4d9x")])
        .build()
}

fn names<const N: usize>(names: [&str; N], what: &str) -> Object {
    ObjectBuilder::new().schema_type(Type::String).enum_values(Some(names)).description(Some(what)).build()
}

pub(crate) fn event_id() -> Object {
    id(EventId::PREFIX, "An event")
}

pub(crate) fn delivery_id() -> Object {
    id(DeliveryId::PREFIX, "A delivery")
}

pub(crate) fn endpoint_id() -> Object {
    id(EndpointId::PREFIX, "An endpoint")
}

pub(crate) fn key_id() -> Object {
    id(KeyId::PREFIX, "A key")
}

pub(crate) fn delivery_status() -> Object {
    names(DeliveryStatus::ALL.map(DeliveryStatus::as_str), "How a delivery stands.")
}

pub(crate) fn outcome() -> Object {
    names(OutcomeKind::ALL.map(OutcomeKind::as_str), "What came of an attempt.")
}

pub(crate) fn scope() -> Object {
    names(Scope::ALL.map(Scope::as_str), "What a key permits; each scope includes those before it.")
}

/// An event's payload: any JSON value.
pub(crate) fn payload() -> Object {
    ObjectBuilder::new()
        .schema_type(utoipa::openapi::schema::SchemaType::AnyValue)
        .description(Some("Any JSON value. Its bytes are kept, signed and sent exactly as they are."))
        .examples([serde_json::json!({"invoice": "in_42", "amount": 1200})])
        .build()
}
