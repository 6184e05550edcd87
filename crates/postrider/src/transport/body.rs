//! The request's body, which goes out unchanged, and the response's, of which the first bytes are kept.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::{Body, Frame, Incoming, SizeHint};

use super::progress::Progress;
use crate::outcome::Phase;

/// How much of a body is read beyond what is kept, and for how long. Reading a short rest costs less than the new
/// connection that dropping it would.
const DRAINED_BYTES: usize = 16 * 1024;
const DRAIN_TIME: Duration = Duration::from_millis(100);

/// Bytes to send, in one piece.
#[derive(Debug)]
pub(super) struct RequestBody {
    bytes: Option<Bytes>,
    progress: Progress,
}

impl RequestBody {
    pub(super) fn new(bytes: Bytes, progress: Progress) -> Self {
        Self { bytes: Some(bytes).filter(|bytes| !bytes.is_empty()), progress }
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let this = self.get_mut();
        this.progress.enter(Phase::Waiting);
        Poll::Ready(this.bytes.take().map(|bytes| Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        self.bytes.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.bytes.as_ref().map_or(0, |bytes| bytes.len() as u64))
    }
}

/// Reads until the body ends or `limit` bytes are there. What is read of the rest, and how that goes, changes nothing.
pub(super) async fn read_excerpt(mut body: Incoming, limit: usize) -> Result<String, hyper::Error> {
    let mut kept = Vec::new();
    let mut surplus = 0;
    while surplus == 0 && kept.len() < limit {
        let Some(frame) = body.frame().await else { break };
        if let Ok(data) = frame?.into_data() {
            let wanted = data.len().min(limit - kept.len());
            kept.extend_from_slice(&data[..wanted]);
            surplus = data.len() - wanted;
        }
    }
    // A rest that is announced to be long is not worth a byte.
    let announced = usize::try_from(body.size_hint().lower()).unwrap_or(usize::MAX);
    if !body.is_end_stream() && surplus.saturating_add(announced) <= DRAINED_BYTES {
        drain(body, surplus).await;
    }
    Ok(excerpt(&kept, limit))
}

async fn drain(mut body: Incoming, mut drained: usize) {
    let _ = tokio::time::timeout(DRAIN_TIME, async {
        while drained <= DRAINED_BYTES {
            match body.frame().await {
                Some(Ok(frame)) => drained += frame.data_ref().map_or(0, Bytes::len),
                Some(Err(_)) | None => break,
            }
        }
    })
    .await;
}

/// Text that every store can keep: valid UTF-8, without NUL, no longer than `limit` bytes.
fn excerpt(bytes: &[u8], limit: usize) -> String {
    let mut text = String::with_capacity(bytes.len().min(limit));
    for chunk in bytes.utf8_chunks() {
        for character in chunk.valid().chars().filter(|character| *character != '\0') {
            if text.len() + character.len_utf8() > limit {
                return text;
            }
            text.push(character);
        }
        if !chunk.invalid().is_empty() {
            if text.len() + char::REPLACEMENT_CHARACTER.len_utf8() > limit {
                return text;
            }
            text.push(char::REPLACEMENT_CHARACTER);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::excerpt;

    #[test]
    fn an_excerpt_is_text_without_nul() {
        assert_eq!(excerpt(b"a\0b\xffc", 100), "ab\u{fffd}c");
    }

    #[test]
    fn an_excerpt_never_outgrows_its_limit_by_replacement() {
        assert_eq!(excerpt(&[0xff; 10], 10).len(), 9);
        assert_eq!(excerpt("aää".as_bytes(), 4), "aä");
    }

    #[test]
    fn a_character_that_was_cut_is_one_replacement_at_most() {
        assert_eq!(excerpt(&"ää".as_bytes()[..3], 3), "ä");
    }
}
