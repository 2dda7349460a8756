//! What a user types on a console: bytes for the guest, and commands behind the escape key.
//!
//! | after the escape key | does |
//! |---|---|
//! | `q` or `.` | leaves the console |
//! | `s` | types `stty rows R cols C`: a serial line does not carry the size of a terminal |
//! | the escape key | types it |
//! | anything else | shows this list |

use crate::arguments::EscapeKey;

/// What a user has typed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Typed {
    /// For the guest.
    Bytes(Vec<u8>),
    /// The escape key: a command follows.
    Escape,
    /// A command that there is not.
    Unknown,
    /// To type the size of the terminal.
    Size,
    /// To leave the console.
    Leave,
}

/// Separates the two.
#[derive(Debug)]
pub(super) struct Escape {
    key: EscapeKey,
    /// Whether the last byte was the escape key.
    is_open: bool,
}

impl Escape {
    pub(super) fn new(key: EscapeKey) -> Self {
        Self {
            key,
            is_open: false,
        }
    }

    /// Takes what the terminal sent, and returns what it means. Nothing after [`Typed::Leave`].
    pub(super) fn take(&mut self, bytes: &[u8]) -> Vec<Typed> {
        let mut typed = Vec::new();
        for &byte in bytes {
            let is_key = byte == self.key.byte();
            let next = match (self.is_open, byte) {
                (false, _) if is_key => Typed::Escape,
                (false, _) => Typed::Bytes(vec![byte]),
                (true, _) if is_key => Typed::Bytes(vec![byte]),
                (true, b'q' | b'Q' | b'.') => Typed::Leave,
                (true, b's' | b'S') => Typed::Size,
                (true, _) => Typed::Unknown,
            };
            self.is_open = next == Typed::Escape;
            match (typed.last_mut(), next) {
                (Some(Typed::Bytes(before)), Typed::Bytes(more)) => before.extend(more),
                (_, Typed::Leave) => {
                    typed.push(Typed::Leave);
                    break;
                }
                (_, next) => typed.push(next),
            }
        }
        typed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: bytes arrive as they are typed, however the terminal cuts them, and commands are none of them.
    #[test]
    fn commands_are_separated_from_what_is_for_the_guest() {
        let bytes = |text: &str| Typed::Bytes(text.as_bytes().to_vec());
        let cases = [
            ("ls\r", vec![bytes("ls\r")]),
            (
                "a\x1d\x1db",
                vec![bytes("a"), Typed::Escape, bytes("\x1db")],
            ),
            (
                "a\x1dsb",
                vec![bytes("a"), Typed::Escape, Typed::Size, bytes("b")],
            ),
            ("\x1dx.q", vec![Typed::Escape, Typed::Unknown, bytes(".q")]),
            ("a\x1d.b", vec![bytes("a"), Typed::Escape, Typed::Leave]),
            ("\x1dq", vec![Typed::Escape, Typed::Leave]),
        ];
        for (text, expected) in cases {
            let mut escape = Escape::new("^]".parse().unwrap());
            assert_eq!(escape.take(text.as_bytes()), expected, "{text:?}");
            // Byte by byte it means the same.
            let mut escape = Escape::new("^]".parse().unwrap());
            let single: Vec<_> = (text.bytes())
                .flat_map(|byte| escape.take(&[byte]))
                .collect();
            let mut joined: Vec<Typed> = Vec::new();
            for typed in single {
                match (joined.last_mut(), typed) {
                    (Some(Typed::Bytes(before)), Typed::Bytes(more)) => before.extend(more),
                    (Some(Typed::Leave), _) => break,
                    (_, typed) => joined.push(typed),
                }
            }
            assert_eq!(joined, expected, "{text:?}");
        }
    }
}
