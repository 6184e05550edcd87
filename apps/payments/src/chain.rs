//! The chain, as an EVM node tells it over JSON-RPC.

use std::num::NonZeroU64;
use std::time::Duration;

use reqwest::{Client, Url};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::status::Observation;

/// An answer to a question of ours is a number; nothing that is longer than this is read.
const MOST_BYTES: usize = 64 * 1024;

/// A node that does not answer, or not sensibly. The URL is not in it, because providers put keys into theirs.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ChainError {
    /// No connection, no answer in time, or not over HTTP.
    #[error("node_unreachable: {method}: {reason}")]
    Unreachable { method: &'static str, reason: String },
    /// The node answered with an error.
    #[error("node_refused: {method}: {reason}")]
    Refused { method: &'static str, reason: String },
    /// The node answered with something else than was asked for.
    #[error("node_answer_invalid: {method}: {reason}")]
    Invalid { method: &'static str, reason: String },
}

/// A client of one node.
#[derive(Debug, Clone)]
pub(crate) struct Chain {
    client: Client,
    url: Url,
    min_confirmations: NonZeroU64,
}

/// The chain's length when a round of observations began.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Head {
    /// The block in which something must have been to have enough confirmations now; none while the chain is too short.
    confirmed_block: Option<u64>,
}

#[derive(Deserialize)]
struct Answer {
    result: Option<Value>,
    error: Option<AnswerError>,
}

#[derive(Deserialize)]
struct AnswerError {
    code: i64,
    message: String,
}

impl Chain {
    pub(crate) fn new(url: Url, timeout: Duration, min_confirmations: NonZeroU64) -> Result<Self, ChainError> {
        // If somebody has chosen a provider already, it does as well.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = Client::builder()
            .timeout(timeout)
            .redirect(reqwest::redirect::Policy::none())
            .no_proxy()
            .build()
            .map_err(|error| unreachable("setting up the client", error))?;
        Ok(Self { client, url, min_confirmations })
    }

    /// How long the chain is now.
    pub(crate) async fn head(&self) -> Result<Head, ChainError> {
        let method = "eth_blockNumber";
        let latest = self.ask(method, json!([])).await?;
        let latest =
            u64::try_from(latest).map_err(|_| ChainError::Invalid { method, reason: "too large".to_owned() })?;
        Ok(Head { confirmed_block: confirmed_block(latest, self.min_confirmations) })
    }

    /// Whether the amount is on the address in the latest block, and in the one that is deep enough.
    pub(crate) async fn observe(&self, head: Head, address: &str, amount_wei: u128) -> Result<Observation, ChainError> {
        let latest = self.balance(address, "latest".to_owned());
        let confirmed = async {
            match head.confirmed_block {
                Some(block) => self.balance(address, format!("{block:#x}")).await,
                None => Ok(0),
            }
        };
        let (latest, confirmed) = tokio::try_join!(latest, confirmed)?;
        Ok(Observation { is_detected: latest >= amount_wei, is_confirmed: confirmed >= amount_wei })
    }

    async fn balance(&self, address: &str, block: String) -> Result<u128, ChainError> {
        self.ask("eth_getBalance", json!([address, block])).await
    }

    /// Asks for a number.
    async fn ask(&self, method: &'static str, params: Value) -> Result<u128, ChainError> {
        let invalid = |reason: String| ChainError::Invalid { method, reason };
        let question = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
        let sent = self.client.post(self.url.clone()).json(&question).send().await;
        let mut response =
            sent.and_then(reqwest::Response::error_for_status).map_err(|error| unreachable(method, error))?;
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(|error| unreachable(method, error))? {
            if body.len() + chunk.len() > MOST_BYTES {
                return Err(invalid(format!("more than {MOST_BYTES} bytes")));
            }
            body.extend_from_slice(&chunk);
        }
        let answer: Answer = serde_json::from_slice(&body).map_err(|_| invalid("not JSON-RPC".to_owned()))?;
        if let Some(AnswerError { code, message }) = answer.error {
            let message: String = message.chars().take(200).collect();
            return Err(ChainError::Refused { method, reason: format!("{code} {}", message.escape_debug()) });
        }
        let number = answer.result.as_ref().and_then(Value::as_str).and_then(quantity);
        number.ok_or_else(|| invalid("not a hexadecimal quantity".to_owned()))
    }
}

fn unreachable(method: &'static str, error: reqwest::Error) -> ChainError {
    ChainError::Unreachable { method, reason: error.without_url().to_string() }
}

/// The block that `min_confirmations` blocks confirm when `latest` is the newest; itself is the first of them.
fn confirmed_block(latest: u64, min_confirmations: NonZeroU64) -> Option<u64> {
    latest.checked_sub(min_confirmations.get() - 1)
}

/// A quantity such as `0x1bc`. What exceeds 128 bits is more than any amount that can be asked for.
fn quantity(text: &str) -> Option<u128> {
    let digits = text.strip_prefix("0x")?;
    if digits.is_empty() || digits.len() > 64 || !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return None;
    }
    let digits = digits.trim_start_matches('0');
    match digits.len() {
        0 => Some(0),
        1..=32 => u128::from_str_radix(digits, 16).ok(),
        _ => Some(u128::MAX),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_read_whatever_their_size() {
        assert_eq!(quantity("0x0"), Some(0));
        assert_eq!(quantity("0x1bc"), Some(444));
        assert_eq!(quantity(&format!("0x{}", "0".repeat(64))), Some(0));
        assert_eq!(quantity(&format!("0x{}", "f".repeat(32))), Some(u128::MAX));
        assert_eq!(quantity(&format!("0x1{}", "0".repeat(40))), Some(u128::MAX));
        for text in ["", "0x", "1bc", "0xg", "0x+1", "0x-1", &format!("0x{}", "0".repeat(65))] {
            assert_eq!(quantity(text), None, "{text}");
        }
    }

    #[test]
    fn the_newest_block_is_the_first_confirmation() {
        let confirmed = |latest, count| confirmed_block(latest, NonZeroU64::new(count).unwrap());
        assert_eq!(confirmed(10, 1), Some(10));
        assert_eq!(confirmed(10, 3), Some(8));
        assert_eq!(confirmed(2, 3), Some(0));
        assert_eq!(confirmed(1, 3), None, "a chain that is too short confirms nothing");
    }
}
