//! Tokens from a file, of which only the SHA-256 is kept.
//!
//! ```toml
//! [[token]]                # printf %s "$TOKEN" | sha256sum
//! sha256 = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
//! user = "nova"
//! project = "service"
//! roles = ["service"]
//! ```
//!
//! Invariant: a token is looked up by its hash, so that neither the file nor the time that a
//! look-up takes reveals anything of it.

use std::collections::HashMap;
use std::fmt;
use std::path::Path;
use std::sync::Arc;

use serde::Deserialize;
use sha2::{Digest as _, Sha256};

use super::caller::Caller;

/// The tokens of a file.
#[derive(Clone)]
pub struct Tokens(Arc<HashMap<[u8; 32], Caller>>);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    token: Vec<Entry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    sha256: String,
    user: String,
    project: Option<String>,
    roles: Vec<String>,
}

impl Tokens {
    /// Reads a file.
    ///
    /// # Errors
    ///
    /// All that is wrong with it, in sentences; no sentence holds a hash.
    pub fn read(path: &Path) -> Result<Self, Vec<String>> {
        let text = std::fs::read_to_string(path)
            .map_err(|error| vec![format!("{} cannot be read: {error}", path.display())])?;
        Self::parse(&text).map_err(|faults| {
            let faults = faults.into_iter();
            faults
                .map(|fault| format!("{}: {fault}", path.display()))
                .collect()
        })
    }

    fn parse(text: &str) -> Result<Self, Vec<String>> {
        let file: File = toml::from_str(text).map_err(|error| vec![error.message().to_owned()])?;
        let (mut tokens, mut faults) = (HashMap::new(), Vec::new());
        if file.token.is_empty() {
            faults.push("no [[token]] is defined, so that no caller could authenticate".to_owned());
        }
        for (index, entry) in file.token.into_iter().enumerate() {
            let number = index + 1;
            let Some(hash) = hash(&entry.sha256) else {
                faults.push(format!(
                    "sha256 of token {number} is not 64 hexadecimal digits"
                ));
                continue;
            };
            let caller = Caller {
                user: entry.user,
                project: entry.project,
                roles: entry.roles,
                is_system: false,
            };
            if tokens.insert(hash, caller).is_some() {
                faults.push(format!("token {number} stands twice"));
            }
        }
        match faults.is_empty() {
            true => Ok(Self(Arc::new(tokens))),
            false => Err(faults),
        }
    }

    /// Returns the owner of a token.
    pub(super) fn find(&self, token: &str) -> Option<Caller> {
        let hash: [u8; 32] = Sha256::digest(token.as_bytes()).into();
        self.0.get(&hash).cloned()
    }
}

/// Hashes are not for logs.
impl fmt::Debug for Tokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} tokens", self.0.len())
    }
}

fn hash(text: &str) -> Option<[u8; 32]> {
    let digits = text.as_bytes();
    if digits.len() != 64 || !text.bytes().all(|b| b.is_ascii_hexdigit()) {
        return None;
    }
    let mut hash = [0; 32];
    for (byte, index) in hash.iter_mut().zip((0..).step_by(2)) {
        *byte = u8::from_str_radix(text.get(index..index + 2)?, 16).ok()?;
    }
    Some(hash)
}

#[cfg(test)]
mod tests {
    use super::*;

    // Of the word "test".
    const HASH: &str = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08";

    #[test]
    fn a_token_is_known_by_its_hash() {
        let text = format!(
            "[[token]]\nsha256 = \"{HASH}\"\nuser = \"nova\"\nproject = \"service\"\n\
             roles = [\"service\"]"
        );
        let tokens = Tokens::parse(&text).unwrap();
        let caller = tokens.find("test").unwrap();
        assert_eq!((&*caller.user, caller.has_role("service")), ("nova", true));
        assert_eq!(tokens.find("Test"), None);
        assert_eq!(tokens.find(HASH), None);
        assert!(!format!("{tokens:?}").contains("9f86"));
    }

    #[test]
    fn all_faults_of_a_file_are_reported() {
        for (text, parts) in [
            ("", vec!["no [[token]]"]),
            (
                "[[token]]\nsha256 = \"x\"\nuser = \"a\"\nroles = []",
                vec!["token 1"],
            ),
            (
                "[[token]]\ntoken = \"secret\"\nuser = \"a\"\nroles = []",
                vec!["unknown field"],
            ),
        ] {
            let faults = Tokens::parse(text).unwrap_err().join("\n");
            for part in parts {
                assert!(faults.contains(part), "{faults}");
            }
        }
    }
}
