//! Identifiers, as TypeIDs: a prefix that says what it names, and a UUIDv7 that sorts by time.
//!
//! Databases keep the bare UUID; people and programs outside see `dlv_01jd…`. Parsing accepts both spellings,
//! so that an id copied out of `psql` works in the command line.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use type_safe_id::{DynamicType, TypeSafeId};
use uuid::Uuid;

/// A text that is not an identifier of the kind that was asked for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not {kind} id: expected `{prefix}_` and 26 characters, or a UUID")]
pub struct InvalidId {
    text: String,
    kind: &'static str,
    prefix: &'static str,
}

macro_rules! id {
    ($(#[$doc:meta])* $name:ident, $prefix:literal, $kind:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(Uuid);

        impl $name {
            /// What its text begins with.
            pub const PREFIX: &'static str = $prefix;

            /// The id that a database keeps as this UUID.
            pub const fn from_uuid(uuid: Uuid) -> Self {
                Self(uuid)
            }

            /// The UUID to keep in a database.
            pub const fn as_uuid(&self) -> Uuid {
                self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                let tag = DynamicType::new($prefix).expect("the prefix is lower-case ASCII");
                TypeSafeId::from_type_and_uuid(tag, self.0).fmt(f)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }

        impl FromStr for $name {
            type Err = InvalidId;

            fn from_str(text: &str) -> Result<Self, InvalidId> {
                parse(text, $prefix).map(Self).ok_or_else(|| InvalidId {
                    text: text.chars().take(64).collect(),
                    kind: $kind,
                    prefix: $prefix,
                })
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = String::deserialize(deserializer)?;
                text.parse().map_err(serde::de::Error::custom)
            }
        }
    };
}

id!(
    /// Names an event; receivers see it as `webhook-id`, the same in every attempt.
    EventId, "evt", "an event"
);
impl EventId {
    /// A new id for an event that brings its own.
    pub fn generate() -> Self {
        Self(Uuid::now_v7())
    }
}

id!(
    /// Names a delivery: one event to one destination.
    DeliveryId, "dlv", "a delivery"
);
id!(
    /// Names an endpoint.
    EndpointId, "ep", "an endpoint"
);

id!(
    /// Names an API key; not the key itself.
    KeyId, "key", "a key"
);

fn parse(text: &str, prefix: &str) -> Option<Uuid> {
    if let Ok(uuid) = Uuid::try_parse(text) {
        return Some(uuid);
    }
    // The library cuts a long prefix short for its error, and panics where that is within a character.
    if !text.is_ascii() {
        return None;
    }
    let id: TypeSafeId<DynamicType> = text.parse().ok()?;
    (id.type_prefix() == prefix).then(|| id.uuid())
}

#[cfg(test)]
mod tests {
    use super::*;

    const UUID: &str = "0190a5d2-7f3c-7c1a-9a52-3b6f0c1d2e3f";

    #[test]
    fn an_id_survives_its_text() {
        let id = DeliveryId::from_uuid(Uuid::try_parse(UUID).unwrap());
        let text = id.to_string();
        assert!(text.starts_with("dlv_"), "{text}");
        assert_eq!(text.len(), "dlv_".len() + 26);
        assert_eq!(text.parse(), Ok(id));
        assert_eq!(UUID.parse(), Ok(id));
        assert_eq!(serde_json::to_string(&id).unwrap(), format!("\"{text}\""));
    }

    #[test]
    fn an_id_of_another_kind_is_refused_with_its_value() {
        let event = EventId::from_uuid(Uuid::try_parse(UUID).unwrap()).to_string();
        let error = event.parse::<DeliveryId>().unwrap_err().to_string();
        assert!(error.contains(&event) && error.contains("dlv_"), "{error}");
        let umlauts = format!("{}_01jd", "ü".repeat(64));
        for text in ["", "dlv_", "dlv", "dlv_zzzzzzzzzzzzzzzzzzzzzzzzzz", "dlv_01jd\0", &umlauts, &"x".repeat(65_536)] {
            let error = text.parse::<DeliveryId>().unwrap_err().to_string();
            assert!(error.len() < 256, "the error of a long text stays short");
        }
    }

    #[test]
    fn ids_sort_by_time() {
        let earlier = EventId::from_uuid(Uuid::now_v7());
        let later = EventId::from_uuid(Uuid::now_v7());
        assert!(earlier < later);
        assert!(earlier.to_string() < later.to_string());
    }
}
