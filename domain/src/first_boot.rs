//! What a guest is given for its first boot: user-data, a network configuration and SSH keys, for
//! cloud-init and programs like it.
//!
//! Not here: the disk that a guest reads it from, which the host's driver makes.
//!
//! Invariant: it may hold secrets. `Debug` shows sizes only, and the state keeps it no longer than the
//! boot lasts.

use std::fmt;

use crate::fault::Fault;

/// The longest user-data, in bytes.
pub const USER_DATA_BYTES_MAX: usize = 32 << 10;
/// The longest network configuration, in bytes.
pub const NETWORK_CONFIG_BYTES_MAX: usize = 8 << 10;
/// The most SSH keys.
pub const SSH_KEYS_MAX: usize = 32;
/// The longest SSH key, in bytes: an RSA key of 16,384 bits has 2,800.
pub const SSH_KEY_BYTES_MAX: usize = 4 << 10;
/// The longest list of SSH keys, in bytes.
pub const SSH_KEYS_BYTES_MAX: usize = 16 << 10;

/// What a guest is given for its first boot.
#[derive(Clone, Default, PartialEq, Eq, Hash)]
pub struct FirstBoot {
    /// The user-data, as cloud-init takes it: a `#cloud-config`, a script, or either compressed.
    pub user_data: Vec<u8>,
    /// The network configuration, in cloud-init's form of version 1 or 2; empty for none.
    pub network_config: String,
    /// The public SSH keys that may log in, each a line of `authorized_keys`.
    pub ssh_keys: Vec<String>,
}

impl FirstBoot {
    /// Returns whether there is nothing in it.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Checks that it is within its bounds, and that what has to be a line is one.
    ///
    /// # Errors
    ///
    /// All faults at once. None of them shows what it holds.
    pub fn check(&self) -> Result<(), Vec<Fault>> {
        let mut faults = Vec::new();
        let mut bound = |field: &str, bytes: usize, max: usize| {
            if bytes > max {
                let rule = format!("must have at most {max} bytes");
                faults.push(Fault::new(
                    format!("first_boot.{field}"),
                    format!("{bytes} bytes"),
                    rule,
                ));
            }
        };
        bound("user_data", self.user_data.len(), USER_DATA_BYTES_MAX);
        bound(
            "network_config",
            self.network_config.len(),
            NETWORK_CONFIG_BYTES_MAX,
        );
        let keys = self.ssh_keys.iter().map(String::len).sum();
        bound("ssh_keys", keys, SSH_KEYS_BYTES_MAX);
        if self.ssh_keys.len() > SSH_KEYS_MAX {
            let rule = format!("at most {SSH_KEYS_MAX} are allowed");
            faults.push(Fault::new("first_boot.ssh_keys", self.ssh_keys.len(), rule));
        }
        for (index, key) in self.ssh_keys.iter().enumerate() {
            if !is_ssh_key(key) {
                let field = format!("first_boot.ssh_keys[{index}]");
                let rule = format!(
                    "must be one line of authorized_keys with a public key, as `ssh-ed25519 AAAA... name`, of \
                     at most {SSH_KEY_BYTES_MAX} bytes"
                );
                faults.push(Fault::new(field, format!("{} bytes", key.len()), rule));
            }
        }
        if faults.is_empty() {
            Ok(())
        } else {
            Err(faults)
        }
    }
}

impl fmt::Debug for FirstBoot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FirstBoot")
            .field("user_data_bytes", &self.user_data.len())
            .field("network_config_bytes", &self.network_config.len())
            .field("ssh_keys", &self.ssh_keys.len())
            .finish()
    }
}

/// Returns whether a text is a line of `authorized_keys` with a public key: somewhere in it a type of
/// key, followed by the key in base64. What stands before may be options, what stands behind a comment.
fn is_ssh_key(text: &str) -> bool {
    let is_line = text.len() <= SSH_KEY_BYTES_MAX && !text.chars().any(char::is_control);
    let words: Vec<&str> = text.split_whitespace().collect();
    let is_pair = |pair: &[&str]| {
        let starts = ["ssh-", "ecdsa-sha2-", "sk-ssh-", "sk-ecdsa-"];
        // Each key begins with the length of its type's name: of less than 256 bytes, so with three zeros.
        let is_key = pair[1].starts_with("AAAA") && pair[1].bytes().all(is_base64);
        starts.iter().any(|start| pair[0].starts_with(start)) && is_key
    };
    is_line && words.windows(2).any(is_pair)
}

fn is_base64(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'=')
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIPexample+/= ann@example";

    fn fields(first_boot: &FirstBoot) -> Vec<String> {
        let faults = first_boot.check().err().unwrap_or_default();
        faults.into_iter().map(|fault| fault.field).collect()
    }

    /// Goal: each bound is exact, and each fault names its field.
    #[test]
    fn bounds_are_exact() {
        let with = |user_data: usize, network: usize, keys: Vec<String>| FirstBoot {
            user_data: vec![0xff; user_data],
            network_config: "x".repeat(network),
            ssh_keys: keys,
        };
        let none = Vec::<String>::new();
        let good = with(
            USER_DATA_BYTES_MAX,
            NETWORK_CONFIG_BYTES_MAX,
            vec![KEY.to_owned(); 32],
        );
        assert_eq!(fields(&good), none);
        let beyond = with(USER_DATA_BYTES_MAX + 1, 0, Vec::new());
        assert_eq!(fields(&beyond), ["first_boot.user_data"]);
        let beyond = with(0, NETWORK_CONFIG_BYTES_MAX + 1, Vec::new());
        assert_eq!(fields(&beyond), ["first_boot.network_config"]);
        let beyond = with(0, 0, vec![KEY.to_owned(); 33]);
        assert_eq!(fields(&beyond), ["first_boot.ssh_keys"]);
        let long = format!("ssh-rsa AAAA{}", "b".repeat(SSH_KEY_BYTES_MAX - 12));
        assert_eq!(fields(&with(0, 0, vec![long.clone(); 4])), none);
        let beyond = with(0, 0, vec![long.clone(); 5]);
        assert_eq!(fields(&beyond), ["first_boot.ssh_keys"]);
        assert_eq!(
            fields(&with(0, 0, vec![long + "b"])),
            ["first_boot.ssh_keys[0]"]
        );
    }

    #[test]
    fn keys_are_single_lines_with_a_key() {
        let good = [
            KEY,
            "ssh-rsa AAAAB3Nza",
            "ecdsa-sha2-nistp256 AAAAE2Vj ann",
            "sk-ssh-ed25519@openssh.com AAAAGnNr",
            "restrict,command=\"echo hi\" ssh-ed25519 AAAAC3Nz ann",
        ];
        let bad = [
            "",
            "ssh-ed25519",
            "AAAAC3Nz",
            "ssh-ed25519 BBBB",
            "ssh-ed25519 AAAA\nssh-ed25519 AAAA",
            "ssh-ed25519 AAAA*",
            "-----BEGIN OPENSSH PRIVATE KEY-----",
        ];
        for (keys, expected) in [(&good[..], true), (&bad[..], false)] {
            for key in keys {
                assert_eq!(is_ssh_key(key), expected, "{key}");
            }
        }
    }

    /// Goal: no log line, and no fault, shows what it holds.
    #[test]
    fn nothing_shows_what_it_holds() {
        let secret = FirstBoot {
            user_data: b"password: hunter2".repeat(4_000),
            network_config: "hunter2".repeat(4_000),
            ssh_keys: vec!["hunter2".to_owned()],
        };
        let faults = secret.check().unwrap_err();
        assert_eq!(faults.len(), 3, "{faults:?}");
        let shown = format!("{secret:?} {}", crate::fault::refusal("vm", &faults));
        assert!(!shown.contains("hunter2"), "{shown}");
    }
}
