//! Keys are looked up for every request, so what the store said is remembered for a moment.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use postrider::{ApiKey, KeyDigest, KeyToken};

use super::Service;
use crate::api::Problem;

/// How long a key that another process has revoked may go on opening this one.
const FRESH: Duration = Duration::from_secs(1);

/// Somebody who tries random keys must not fill the memory.
const MOST: usize = 1_024;

/// What the store said about digests, also that it knows none. A digest cannot be guessed from how long a comparison
/// takes, since whoever asks chooses the key and not its digest.
#[derive(Debug, Default)]
pub(super) struct KeyCache(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    keys: HashMap<KeyDigest, (Option<ApiKey>, Instant)>,
    /// Counts how often everything was forgotten: an answer from before is not remembered after.
    forgotten: u64,
}

impl KeyCache {
    /// What is known about the key, or the number under which the store's answer can be remembered.
    fn get(&self, digest: &KeyDigest) -> Result<Option<ApiKey>, u64> {
        let known = self.0.lock().expect("no code panics while it holds this lock");
        match known.keys.get(digest) {
            Some((key, since)) if since.elapsed() < FRESH => Ok(key.clone()),
            _ => Err(known.forgotten),
        }
    }

    fn remember(&self, digest: KeyDigest, key: Option<ApiKey>, asked_at: Instant, forgotten: u64) {
        let mut known = self.0.lock().expect("no code panics while it holds this lock");
        if known.forgotten != forgotten {
            return;
        }
        if known.keys.len() >= MOST {
            known.keys.retain(|_, (_, since)| since.elapsed() < FRESH);
        }
        if known.keys.len() >= MOST {
            known.keys.clear();
        }
        known.keys.insert(digest, (key, asked_at));
    }

    /// A key has been made or revoked here.
    pub(super) fn forget(&self) {
        let mut known = self.0.lock().expect("no code panics while it holds this lock");
        known.forgotten += 1;
        known.keys.clear();
    }
}

impl Service {
    /// The key that somebody showed, if it opens anything.
    pub async fn recognise(&self, token: &KeyToken) -> Result<Option<ApiKey>, Problem> {
        let digest = token.digest();
        let forgotten = match self.0.keys.get(&digest) {
            Ok(known) => return Ok(known),
            Err(forgotten) => forgotten,
        };
        let asked_at = Instant::now();
        let key = self.0.store.key_of_digest(&digest).await?;
        self.0.keys.remember(digest, key.clone(), asked_at, forgotten);
        Ok(key)
    }

    /// To be called whenever keys have changed: what was revoked here opens nothing from now on.
    pub(super) fn forget_keys(&self) {
        self.0.keys.forget();
    }
}
