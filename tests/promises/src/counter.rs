//! What goes over the wire to a Postgres, in numbers that do not depend on how fast anything is.
//!
//! Messages are counted by their kind, as the protocol's framing tells it. Statements that are prepared are carried out
//! by a `Bind`, others by a `Query`. A round trip is what the client waits for: it ends its messages with a `Sync`, or a
//! `Query`, and the server ends its answer with `ReadyForQuery`, which also says whether a transaction is over.

use std::collections::BTreeMap;

/// What was counted. The difference of two of them is what happened in between.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Counts {
    /// How often each statement was carried out, by its text.
    pub statements: BTreeMap<String, u64>,
    /// How many statements were prepared.
    pub prepared: u64,
    /// How often a client waited for the server.
    pub round_trips: u64,
    /// How many transactions have ended.
    pub transactions: u64,
    /// All that clients have sent.
    pub bytes_asked: u64,
    /// All that servers have answered.
    pub bytes_answered: u64,
}

/// What is remembered of one connection.
#[derive(Debug, Default)]
pub(crate) struct Session {
    /// Since its last transaction has ended. A client may also ask merely whether the server is there.
    has_done_something: bool,
}

impl Counts {
    /// A client's message, with the statement that is carried out by it, if one is.
    pub(crate) fn asked(&mut self, kind: u8, bytes: usize, statement: Option<&str>) {
        self.bytes_asked += bytes as u64;
        self.prepared += u64::from(kind == b'P');
        self.round_trips += u64::from(matches!(kind, b'S' | b'Q'));
        if let Some(statement) = statement {
            match self.statements.get_mut(statement) {
                Some(count) => *count += 1,
                None => drop(self.statements.insert(statement.to_owned(), 1)),
            }
        }
    }

    /// A server's message.
    pub(crate) fn answered(&mut self, kind: u8, body: &[u8], bytes: usize, session: &mut Session) {
        self.bytes_answered += bytes as u64;
        match (kind, body) {
            (b'C', _) => session.has_done_something = true,
            (b'Z', b"I") => self.transactions += u64::from(std::mem::take(&mut session.has_done_something)),
            _ => {}
        }
    }

    /// What was counted since an earlier moment.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let before = |statement: &str| earlier.statements.get(statement).copied().unwrap_or_default();
        let statements = self.statements.iter().map(|(text, count)| (text.clone(), count - before(text)));
        Self {
            statements: statements.filter(|(_, count)| *count > 0).collect(),
            prepared: self.prepared - earlier.prepared,
            round_trips: self.round_trips - earlier.round_trips,
            transactions: self.transactions - earlier.transactions,
            bytes_asked: self.bytes_asked - earlier.bytes_asked,
            bytes_answered: self.bytes_answered - earlier.bytes_answered,
        }
    }

    /// How many statements were carried out.
    pub fn carried_out(&self) -> u64 {
        self.statements.values().sum()
    }

    /// Each statement's count and how it begins, most frequent first: for whoever wonders.
    pub fn beginnings(&self) -> Vec<(u64, String)> {
        let without_comments = |text: &str| {
            let lines = text.lines().filter(|line| !line.trim_start().starts_with("--"));
            lines.flat_map(str::split_whitespace).collect::<Vec<_>>().join(" ").chars().take(100).collect()
        };
        let mut all: Vec<_> = self.statements.iter().map(|(text, count)| (*count, without_comments(text))).collect();
        all.sort_by_key(|(count, _)| std::cmp::Reverse(*count));
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_has_only_what_happened_in_between() {
        let mut counts = Counts::default();
        let mut session = Session::default();
        counts.asked(b'P', 40, None);
        counts.asked(b'B', 20, Some("select 1"));
        counts.asked(b'E', 9, None);
        counts.asked(b'S', 5, None);
        counts.answered(b'C', b"SELECT 1\0", 14, &mut session);
        counts.answered(b'Z', b"I", 6, &mut session);
        let before = counts.clone();
        counts.asked(b'Q', 11, Some("begin"));
        counts.answered(b'C', b"BEGIN\0", 11, &mut session);
        counts.answered(b'Z', b"T", 6, &mut session);
        counts.asked(b'B', 20, Some("-- Why.\nselect\n  2"));
        counts.asked(b'S', 5, None);
        counts.answered(b'Z', b"T", 6, &mut session);
        counts.asked(b'Q', 12, Some("commit"));
        counts.answered(b'C', b"COMMIT\0", 12, &mut session);
        counts.answered(b'Z', b"I", 6, &mut session);
        counts.asked(b'S', 5, None);
        counts.answered(b'Z', b"I", 6, &mut session);
        let between = counts.since(&before);
        assert_eq!((between.carried_out(), between.round_trips, between.transactions), (3, 4, 1));
        assert_eq!((between.prepared, between.bytes_asked, between.bytes_answered), (0, 53, 47));
        assert!(between.beginnings().contains(&(1, "select 2".to_owned())), "{:?}", between.beginnings());
        assert_eq!((before.carried_out(), before.round_trips, before.transactions, before.prepared), (1, 1, 1, 1));
    }
}
