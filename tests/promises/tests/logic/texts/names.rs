//! Ids, cursors, places in the stream, statuses: short texts that name something.

use std::fmt::{Debug, Display};
use std::str::FromStr;

use postrider::store::FeedPlace;
use postrider::{Cursor, DeliveryId, DeliveryStatus, EndpointId, EndpointStatus, EventId, Fact, KeyId, Scope};
use proptest::prelude::*;
use uuid::Uuid;

use super::{cases, is_code};

/// A text that is nearly `text`: cut, doubled, with a character exchanged or put in.
fn nearly(text: String) -> impl Strategy<Value = String> {
    (any::<prop::sample::Index>(), any::<char>(), 0..5_u8).prop_map(move |(index, character, how)| {
        let mut characters: Vec<char> = text.chars().collect();
        let place = index.index(characters.len());
        match how {
            0 => characters.truncate(place),
            1 => characters.insert(place, character),
            2 => characters[place] = character,
            3 => characters[place] = characters[place].to_ascii_uppercase(),
            _ => characters.extend(characters.clone()),
        }
        characters.into_iter().collect()
    })
}

/// What is read is written as it was, apart from the spelling; what is refused says so briefly.
fn survives<T: FromStr + Display + PartialEq + Debug>(text: &str) -> Result<(), TestCaseError>
where
    T::Err: Display,
{
    match text.parse::<T>() {
        Ok(value) => prop_assert_eq!(value.to_string().parse::<T>().ok(), Some(value)),
        Err(error) => prop_assert!(error.to_string().len() < 1_000, "the refusal of a long text stays short"),
    }
    Ok(())
}

proptest! {
    #![proptest_config(cases(2_000))]

    #[test]
    fn every_id_survives_its_text_and_is_of_one_kind_only(number in any::<u128>()) {
        let uuid = Uuid::from_u128(number);
        let event = EventId::from_uuid(uuid);
        let text = event.to_string();
        prop_assert_eq!(text.parse::<EventId>().ok(), Some(event));
        prop_assert_eq!(uuid.to_string().parse::<EventId>().ok(), Some(event));
        prop_assert_eq!(text.len(), "evt_".len() + 26);
        prop_assert!(text.parse::<DeliveryId>().is_err() && text.parse::<EndpointId>().is_err());
        prop_assert!(DeliveryId::from_uuid(uuid).to_string().parse::<KeyId>().is_err());
    }

    #[test]
    fn what_is_nearly_an_id_is_refused_or_is_that_id(
        text in any::<u128>().prop_map(|number| DeliveryId::from_uuid(Uuid::from_u128(number)).to_string())
            .prop_flat_map(nearly),
    ) {
        survives::<DeliveryId>(&text)?;
        // One id has one spelling with a prefix: two texts for one id would be two keys in somebody's table.
        if let Ok(id) = text.parse::<DeliveryId>() && text.contains('_') {
            prop_assert_eq!(id.to_string(), text);
        }
    }

    #[test]
    fn nothing_that_is_no_name_is_taken_for_one(text in any::<String>()) {
        survives::<EventId>(&text)?;
        survives::<KeyId>(&text)?;
        survives::<Cursor>(&text)?;
        survives::<FeedPlace>(&text)?;
        prop_assert!(text.parse::<EventId>().is_err() && text.parse::<Cursor>().is_err());
        prop_assert!(text.parse::<Scope>().is_err() && text.parse::<DeliveryStatus>().is_err());
        prop_assert!(text.parse::<EndpointStatus>().is_err() && text.parse::<Fact>().is_err());
    }

    #[test]
    fn cursors_survive_their_text_and_garbage_has_a_code(
        number in any::<u128>(), garbage in "[0-9a-f]{20,40}|[0-9a-zA-Z_=+/-]{0,60}",
    ) {
        let cursor = Cursor(Uuid::from_u128(number));
        prop_assert_eq!(cursor.to_string().parse::<Cursor>().ok(), Some(cursor));
        if let Err(refusal) = garbage.parse::<Cursor>() {
            prop_assert_eq!(refusal.code, "cursor_invalid");
            prop_assert!(!refusal.detail.contains(&garbage) || garbage.len() < 10);
        }
    }

    #[test]
    fn places_in_the_stream_survive_their_text_and_garbage_has_a_code(
        position in 0..=i64::MAX, gaps in prop::collection::vec((0..=i64::MAX, any::<u64>()), 0..20),
        garbage in "[0-9.-]{0,60}",
    ) {
        let place = FeedPlace { position, gaps };
        prop_assert_eq!(place.to_string().parse::<FeedPlace>().ok(), Some(place));
        survives::<FeedPlace>(&garbage)?;
        if let Err(refusal) = garbage.parse::<FeedPlace>() {
            prop_assert_eq!(refusal.code, "last_event_id_invalid");
            prop_assert!(is_code(refusal.code));
        }
    }
}
