//! What comes from outside as text: whatever it is, it is taken for what it says or refused by a code; nothing panics.
//!
//! Each property runs a few thousand random cases, and as many as `PROPTEST_CASES` says. What the engine's own tests
//! already try is not repeated here; these look at the rest, and at the same rules from another side: a second, naive
//! reading of what a text means, or the reading of another program.

mod configuration;
mod destinations;
mod names;
mod patterns;
mod secrets;
mod signatures;
mod times;

use proptest::prelude::ProptestConfig;

/// This many cases unless more, or fewer, are asked for. Nothing is written beside the sources when one fails: it prints
/// itself.
fn cases(usual: u32) -> ProptestConfig {
    let asked = std::env::var("PROPTEST_CASES").ok().and_then(|text| text.parse().ok());
    ProptestConfig { cases: asked.unwrap_or(usual), failure_persistence: None, ..ProptestConfig::default() }
}

/// A stable code: what programs compare, so small letters, digits and underscores only.
fn is_code(code: &str) -> bool {
    !code.is_empty() && code.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_')
}
