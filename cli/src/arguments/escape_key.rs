//! The key that leaves the console of a guest.

use std::fmt;
use std::str::FromStr;

/// The key that leaves a console: a control character.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EscapeKey(u8);

impl EscapeKey {
    /// Returns what a terminal sends for it.
    #[must_use]
    pub fn byte(self) -> u8 {
        self.0
    }
}

impl FromStr for EscapeKey {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "{text:?} is no control character: write ^ and one of A to Z, [, \\, ], ^ or _, as ^]"
            )
        };
        let [b'^', key] = text.as_bytes() else {
            return Err(wrong());
        };
        match key.to_ascii_uppercase() {
            // A guest could not be typed to without them.
            b'J' | b'M' => Err(format!("{text} is the Enter key, which the guest needs")),
            key @ b'A'..=b'_' => Ok(Self(key - b'@')),
            _ => Err(wrong()),
        }
    }
}

impl fmt::Display for EscapeKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Ctrl-{}", char::from(self.0 + b'@'))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: every key but the one of Enter can be the escape key, and is shown as it is pressed.
    #[test]
    fn every_control_character_but_enter_is_a_key() {
        for key in b'A'..=b'_' {
            let text = format!("^{}", char::from(key));
            let read = text.parse::<EscapeKey>();
            if matches!(key, b'J' | b'M') {
                assert!(read.unwrap_err().contains("Enter"));
                continue;
            }
            let lower = text.to_lowercase().parse::<EscapeKey>();
            assert_eq!(lower, read);
            let read = read.unwrap();
            assert_eq!(read.0, key & 0x1f);
            assert_eq!(read.to_string(), format!("Ctrl-{}", char::from(key)));
        }
        for wrong in ["", "^", "]", "^]]", "^1", "^@", "^é", "q", "none"] {
            let error = wrong.parse::<EscapeKey>().unwrap_err();
            assert!(error.contains("as ^]"), "{wrong}: {error}");
        }
    }
}
