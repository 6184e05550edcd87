//! Keys, secrets, and what is sealed: damaged bytes open nothing, and nothing prints itself.

use postrider::{KeyToken, Keyring, KeyringError, Secret, SecretKey};
use proptest::prelude::*;

use super::cases;

const OWNER: &str = "acme";

proptest! {
    #![proptest_config(cases(2_000))]

    #[test]
    fn a_key_has_one_spelling_and_every_other_is_refused(text in "prk_[A-Za-z0-9_-]{40,46}|prk_[ -~]{0,60}") {
        // 43 characters say 258 bits; the two that are too many must be zero, or one key would have four texts.
        if let Some(key) = KeyToken::parse(&text) {
            prop_assert_eq!(text.len(), "prk_".len() + 43);
            prop_assert!("AEIMQUYcgkosw048".contains(text.chars().last().unwrap()), "{}", text);
            let printed = format!("{key:?}");
            prop_assert!(!printed.contains(&text[4..]));
        }
    }

    #[test]
    fn no_text_makes_a_key_or_a_secret_panic_or_print_itself(text in any::<String>()) {
        prop_assert!(KeyToken::parse(&text).is_none());
        prop_assert!(SecretKey::parse(&text).is_err());
        match Secret::parse(&text) {
            Ok(secret) => {
                prop_assert_eq!(secret.expose(), text.as_bytes());
                prop_assert_eq!(Secret::parse(&secret.reveal()).ok(), Some(secret.clone()));
                let printed = format!("{secret:?} {secret}");
                prop_assert!(!printed.contains(&text));
            }
            Err(refusal) => prop_assert!(text.len() < 8 || !refusal.to_string().contains(&text)),
        }
    }

    #[test]
    fn what_is_sealed_opens_for_its_owner_and_not_when_anything_was_changed(
        bytes in prop::collection::vec(any::<u8>(), 0..300), owner in "[ -~]{0,20}", other in "[ -~]{0,20}",
        place in any::<prop::sample::Index>(), replacement in "[A-Za-z0-9+/:=]", drop in any::<bool>(),
    ) {
        let ring = Keyring::new([SecretKey::generate()]);
        let sealed = ring.seal_bytes(&bytes, &owner).unwrap();
        prop_assert_eq!(ring.open_bytes(&sealed, &owner), Ok(bytes.clone()));
        if other != owner {
            prop_assert_eq!(ring.open_bytes(&sealed, &other), Err(KeyringError::Damaged));
        }
        let mut damaged = sealed.clone();
        let place = place.index(damaged.len());
        damaged.replace_range(place..=place, if drop { "" } else { &replacement });
        if damaged != sealed {
            let opened = ring.open_bytes(&damaged, &owner);
            prop_assert!(matches!(opened, Err(KeyringError::Damaged | KeyringError::UnknownKey(_))), "{:?}", damaged);
        }
    }

    #[test]
    fn nothing_opens_that_was_not_sealed(
        text in any::<String>(), name in "[0-9a-f]{0,17}", body in "[A-Za-z0-9+/]{0,80}={0,2}", bytes in 0..3_usize,
    ) {
        let ring = Keyring::new([SecretKey::generate()]);
        prop_assert!(ring.open_bytes(&text, OWNER).is_err());
        let forged = format!("sealed:v1:{name}:{body}");
        prop_assert!(ring.open_bytes(&forged, OWNER).is_err());
        // The right key's name, and far too little behind it.
        let sealed = ring.seal_bytes(&[], OWNER).unwrap();
        let prefix = &sealed[..=sealed.rfind(':').unwrap()];
        prop_assert_eq!(ring.open_bytes(&format!("{prefix}{}", "A".repeat(bytes * 8)), OWNER), Err(KeyringError::Damaged));
    }
}
