//! What an HTTP/2 connection may deliver: as much as its requests ask for, and not faster than it is looked at.
//!
//! A window bounds the bodies of an HTTP/2 connection, and a setting bounds a head. Nothing bounds how many frames come
//! beside them: pings and settings that want an answer, interim responses, empty pieces of a body. Each costs its sender
//! ten bytes, and us a turn and sometimes hundreds of bytes until somebody takes it. So two things hold here:
//!
//! - A connection has a balance in bytes. Every request that is sent on it adds what its response may need, everything
//!   that arrives is taken off, with an extra for each frame, and to overdraw it is a flood. What can be saved up is
//!   bounded as well.
//! - After a few kilobytes the reading pauses for one turn, so that what waits for those frames takes them first.

use super::stream::Flood;

/// What a request adds besides the body that is kept: its head, and windows that were open when we stopped reading.
const BESIDE_BODY: usize = 128 * 1024;
/// What there is before the first request, for settings.
const AT_FIRST: usize = 32 * 1024;
/// What a frame costs besides its bytes: about what it costs us to look at it.
const FRAME_COST: usize = 100;
/// For how many requests the balance can be saved up.
const SAVED_REQUESTS: usize = 256;
/// How much is read in one turn, counted in the same way.
const TURN_BYTES: usize = 32 * 1024;

const PREFACE_BYTES: usize = 24;
const FRAME_HEAD_BYTES: usize = 9;
const HEADERS: u8 = 1;

/// A connection's balance.
#[derive(Debug)]
pub(super) struct Balance {
    left: usize,
    per_request: usize,
    in_this_turn: usize,
    sent: Frames,
    received: Frames,
}

impl Balance {
    /// `kept` is how much of a response's body is read.
    pub(super) fn new(kept: usize) -> Self {
        let per_request = kept.saturating_mul(2).saturating_add(BESIDE_BODY);
        let (sent, received) = (Frames::after(PREFACE_BYTES), Frames::after(0));
        Self { left: AT_FIRST, per_request, in_this_turn: 0, sent, received }
    }

    /// Takes note of bytes that were written.
    pub(super) fn written(&mut self, bytes: &[u8]) {
        let mut requests = 0_usize;
        self.sent.pass(bytes, |kind| requests += usize::from(kind == HEADERS));
        let asked = requests.saturating_mul(self.per_request);
        self.left = self.left.saturating_add(asked).min(self.per_request.saturating_mul(SAVED_REQUESTS));
    }

    /// Whether it is somebody else's turn.
    pub(super) fn is_turn_over(&mut self) -> bool {
        let over = self.in_this_turn >= TURN_BYTES;
        if over {
            self.in_this_turn = 0;
        }
        over
    }

    /// Takes note that there is nothing to be read.
    pub(super) fn waits(&mut self) {
        self.in_this_turn = 0;
    }

    /// Takes bytes that were read off the balance.
    pub(super) fn read(&mut self, bytes: &[u8]) -> Result<(), Flood> {
        let mut cost = bytes.len();
        self.received.pass(bytes, |_| cost += FRAME_COST);
        self.in_this_turn = self.in_this_turn.saturating_add(cost);
        self.left = self.left.checked_sub(cost).ok_or(Flood)?;
        Ok(())
    }
}

/// Follows the frames in one direction, however they are cut into pieces.
#[derive(Debug)]
struct Frames {
    head: [u8; FRAME_HEAD_BYTES],
    in_head: usize,
    /// What is left of the last frame's payload.
    left: usize,
}

impl Frames {
    /// Those that come after so many other bytes.
    fn after(other: usize) -> Self {
        Self { head: [0; FRAME_HEAD_BYTES], in_head: 0, left: other }
    }

    /// Tells the kind of each frame whose head ends in these bytes, which follow those of the last call.
    fn pass(&mut self, mut bytes: &[u8], mut tell: impl FnMut(u8)) {
        while !bytes.is_empty() {
            let skipped = self.left.min(bytes.len());
            self.left -= skipped;
            bytes = &bytes[skipped..];
            let taken = (FRAME_HEAD_BYTES - self.in_head).min(bytes.len());
            self.head[self.in_head..self.in_head + taken].copy_from_slice(&bytes[..taken]);
            self.in_head += taken;
            bytes = &bytes[taken..];
            if self.in_head == FRAME_HEAD_BYTES {
                let [first, second, third, kind, ..] = self.head;
                self.in_head = 0;
                self.left = u32::from_be_bytes([0, first, second, third]) as usize;
                tell(kind);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u8, payload: usize) -> Vec<u8> {
        let length = u32::try_from(payload).expect("a short frame").to_be_bytes();
        let mut bytes = vec![length[1], length[2], length[3], kind, 4, 0, 0, 0, 1];
        // Were it read as the head of a frame, it would be one of a request.
        bytes.resize(FRAME_HEAD_BYTES + payload, HEADERS);
        bytes
    }

    fn sent() -> Vec<u8> {
        let frames = [frame(4, 18), frame(HEADERS, 70), frame(0, 300), frame(HEADERS, 0), frame(8, 4), frame(0, 0)];
        [vec![HEADERS; PREFACE_BYTES], frames.concat()].concat()
    }

    #[test]
    fn frames_are_told_however_the_bytes_are_cut() {
        for size in [1, 2, 7, 9, 10, 24, 100, 1_000] {
            let (mut frames, mut kinds) = (Frames::after(PREFACE_BYTES), Vec::new());
            sent().chunks(size).for_each(|piece| frames.pass(piece, |kind| kinds.push(kind)));
            assert_eq!(kinds, [4, HEADERS, 0, HEADERS, 8, 0], "in pieces of {size}");
        }
    }

    #[test]
    fn what_comes_unasked_is_a_flood_and_a_request_makes_room() {
        let mut balance = Balance::new(4_096);
        let all_of = |bytes: usize| frame(0, bytes - FRAME_HEAD_BYTES - FRAME_COST);
        assert!(balance.read(&all_of(AT_FIRST)).is_ok());
        balance.written(&sent());
        assert!(balance.read(&all_of(2 * (2 * 4_096 + BESIDE_BODY))).is_ok());
        assert!(balance.read(&[0]).is_err());
    }

    #[test]
    fn many_small_frames_are_a_flood_sooner() {
        let mut balance = Balance::new(0);
        let pings = std::iter::repeat_with(|| balance.read(&frame(6, 8))).take_while(Result::is_ok).count();
        assert_eq!(pings, AT_FIRST / (17 + FRAME_COST));
    }

    #[test]
    fn little_can_be_saved_up() {
        let mut balance = Balance::new(0);
        balance.written(&sent());
        for _ in 0..10 * SAVED_REQUESTS {
            balance.written(&frame(HEADERS, 0));
        }
        assert_eq!(balance.left, SAVED_REQUESTS * BESIDE_BODY);
    }

    #[test]
    fn a_turn_ends_and_another_begins() {
        let mut balance = Balance::new(0);
        let read = |balance: &mut Balance, cost: usize| {
            balance.left = usize::MAX;
            balance.received = Frames::after(cost);
            balance.read(&vec![0; cost]).expect("there is enough");
        };
        read(&mut balance, TURN_BYTES - 1);
        assert!(!balance.is_turn_over());
        read(&mut balance, 1);
        assert!(balance.is_turn_over() && !balance.is_turn_over());
        read(&mut balance, TURN_BYTES - 1);
        balance.waits();
        read(&mut balance, 1);
        assert!(!balance.is_turn_over());
    }
}
