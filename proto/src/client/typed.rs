//! What was typed on a console and not confirmed yet.
//!
//! The sender of a session keeps it, and types it again when another program carries the session on. A
//! message is confirmed as a whole: what was typed in part is typed again.
//!
//! Invariant: bounded, by the sender: while it [is full](Unconfirmed::is_full) nothing is added.

use std::collections::VecDeque;

use bytes::Bytes;

/// How many messages may wait to be confirmed.
pub const UNCONFIRMED_MAX: usize = 64;

/// The most bytes that one message types.
pub const INPUT_MAX: usize = 4096;

/// What was typed and is not confirmed.
#[derive(Debug, Default)]
pub struct Unconfirmed {
    messages: VecDeque<Bytes>,
    /// How many bytes of the present session are confirmed and gone from here.
    of_session: u64,
    /// The same of all sessions together.
    total: u64,
}

impl Unconfirmed {
    /// Returns whether nothing may be added.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.messages.len() >= UNCONFIRMED_MAX
    }

    /// Returns whether everything is confirmed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    /// Adds a message.
    pub fn push(&mut self, bytes: Bytes) {
        self.messages.push_back(bytes);
    }

    /// Drops what the other side has typed of the present session by now. Returns how many bytes were
    /// confirmed in all.
    pub fn confirm(&mut self, typed_bytes: u64) -> u64 {
        while let Some(first) = self.messages.front() {
            let length = first.len() as u64;
            if self.of_session + length > typed_bytes {
                break;
            }
            self.of_session += length;
            self.total += length;
            self.messages.pop_front();
        }
        self.total
    }

    /// Begins to count for another session, and returns what is typed in it first.
    pub fn restart(&mut self) -> Vec<Bytes> {
        self.of_session = 0;
        self.messages.iter().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: what was not confirmed is typed again, whole messages and in order.
    #[test]
    fn what_is_not_confirmed_is_typed_again() {
        let mut typed = Unconfirmed::default();
        for text in ["ab", "c", "def"] {
            typed.push(Bytes::from(text));
        }
        assert_eq!(typed.restart().concat(), b"abcdef");
        assert_eq!(typed.confirm(1), 0);
        assert_eq!(typed.confirm(3), 3);
        assert_eq!(typed.restart().concat(), b"def");
        assert_eq!(typed.confirm(2), 3);
        assert_eq!(typed.restart().concat(), b"def");
        assert_eq!(typed.confirm(3), 6);
        // A server that confirms more than there was confirms nothing that comes.
        assert_eq!(typed.confirm(u64::MAX), 6);
        assert!(typed.restart().is_empty() && typed.is_empty());
        (0..UNCONFIRMED_MAX).for_each(|_| typed.push(Bytes::from("x")));
        assert!(typed.is_full());
    }
}
