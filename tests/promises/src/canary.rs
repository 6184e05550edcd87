//! Strings that must never be printed (P20): every test sends them, and no process may show them.

/// Stands in every payload that a test sends.
pub const PAYLOAD: &str = "canary-payload-7e1f0c52";

/// Encrypts secrets at rest; 32 bytes in base64.
pub const SECRET_KEY: &str = "Y2FuYXJ5LWtleS1vZi1hbGwtdHJpYWxzLTMyLWJ5dGU=";

/// Signs what goes to a destination that came with its event.
pub const SIGNING_SECRET: &str = "whsec_Y2FuYXJ5LXNlY3JldC1vZi1hbGwtdHJpYWxzLTMy";

/// All of them, and what they look like when only a part is shown.
const FORBIDDEN: &[&str] = &[
    PAYLOAD,
    SECRET_KEY,
    "Y2FuYXJ5LXNlY3JldC1vZi1hbGwtdHJpYWxzLTMy",
    "canary-key-of-all-trials",
    "canary-secret-of-all-trials",
];

/// Which of them stand in a text.
pub fn shown_in(text: &str) -> Vec<&'static str> {
    FORBIDDEN.iter().copied().filter(|forbidden| text.contains(forbidden)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_secret_is_found_with_and_without_its_prefix() {
        assert_eq!(shown_in(&format!("key={SIGNING_SECRET}")), [FORBIDDEN[2]]);
        assert_eq!(shown_in(SECRET_KEY), [SECRET_KEY]);
        assert_eq!(shown_in(&format!("{{\"a\":\"{PAYLOAD}\"}}")), [PAYLOAD]);
        assert!(shown_in("delivered").is_empty());
    }
}
