//! What a guest is given for its first boot, read from files.
//!
//! Not here: what it has to be like ([`FirstBoot`]), which the scheduler checks too.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use anyhow::{Context as _, bail};
use berth_domain::first_boot::{
    FirstBoot, NETWORK_CONFIG_BYTES_MAX, SSH_KEYS_BYTES_MAX, USER_DATA_BYTES_MAX,
};
use berth_proto::types::v1 as wire;

use crate::arguments;
use crate::output;
use crate::usage::Usage;

/// What user-data begins with that cloud-init takes: its headers, MIME, and gzip.
const HEADERS: [&[u8]; 12] = [
    b"#!",
    b"#cloud-boothook",
    b"#cloud-config",
    b"#include",
    b"#part-handler",
    b"#upstart-job",
    b"## template: jinja",
    b"Content-Type:",
    b"From ",
    b"MIME-Version:",
    b"-----BEGIN PGP MESSAGE-----",
    b"\x1f\x8b",
];

/// Reads it; none where no option is given.
///
/// # Errors
///
/// A file that cannot be read, is too long, or is no such thing.
pub(super) fn read(options: &arguments::FirstBoot) -> anyhow::Result<Option<wire::FirstBoot>> {
    if options.is_empty() {
        return Ok(None);
    }
    let user_data = match &options.user_data {
        Some(path) => bytes_of("--user-data", path, USER_DATA_BYTES_MAX)?,
        None => Vec::new(),
    };
    if !user_data.is_empty() && !HEADERS.iter().any(|header| user_data.starts_with(header)) {
        output::message(
            "warning: cloud-init will not take this user-data: its first line is no header that it knows, \
             as `#cloud-config` or `#!/bin/sh`",
        );
    }
    let network_config = match &options.network_config {
        Some(path) => text_of("--network-config", path, NETWORK_CONFIG_BYTES_MAX)?,
        None => String::new(),
    };
    let mut ssh_keys = Vec::new();
    for path in &options.ssh_keys {
        let text = text_of("--ssh-key", path, SSH_KEYS_BYTES_MAX)?;
        if text.contains("PRIVATE KEY") {
            let message = format!(
                "--ssh-key {}: this is a private key: give the file with the public one, mostly {}.pub",
                path.display(),
                path.display()
            );
            bail!(Usage(message));
        }
        let lines = text.lines().map(str::trim);
        let lines = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
        let before = ssh_keys.len();
        ssh_keys.extend(lines.map(str::to_owned));
        if ssh_keys.len() == before {
            bail!(Usage(format!(
                "--ssh-key {}: there is no key in it",
                path.display()
            )));
        }
    }
    let first_boot = FirstBoot {
        user_data,
        network_config,
        ssh_keys,
    };
    if let Err(faults) = first_boot.check() {
        let faults: Vec<String> = faults.iter().map(ToString::to_string).collect();
        bail!(Usage(faults.join("; ")));
    }
    Ok(Some((&first_boot).into()))
}

fn text_of(option: &str, path: &Path, max: usize) -> anyhow::Result<String> {
    let bytes = bytes_of(option, path, max)?;
    String::from_utf8(bytes).map_err(|_| {
        let message = format!("{option} {}: this is not text in UTF-8", path.display());
        anyhow::Error::new(Usage(message))
    })
}

/// Reads a file that is not longer than that.
fn bytes_of(option: &str, path: &Path, max: usize) -> anyhow::Result<Vec<u8>> {
    let wrong = || format!("{option} {}", path.display());
    let file = File::open(path).with_context(wrong)?;
    let mut bytes = Vec::new();
    let limit = u64::try_from(max).unwrap_or(u64::MAX).saturating_add(1);
    file.take(limit)
        .read_to_end(&mut bytes)
        .with_context(wrong)?;
    if bytes.is_empty() {
        bail!(Usage(format!("{}: it is empty", wrong())));
    }
    if bytes.len() > max {
        let message = format!("{}: it has more than {max} bytes", wrong());
        bail!(Usage(message));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5 ann@example";

    fn options(folder: &Path, user: &[u8], network: &[u8], keys: &[u8]) -> arguments::FirstBoot {
        let write = |name: &str, content: &[u8]| {
            let path = folder.join(name);
            std::fs::write(&path, content).unwrap();
            path
        };
        arguments::FirstBoot {
            user_data: Some(write("user-data", user)),
            ssh_keys: vec![write("keys", keys)],
            network_config: Some(write("network", network)),
        }
    }

    #[test]
    fn files_are_read_as_they_are() {
        let folder = tempfile::tempdir().unwrap();
        let keys = format!("# mine\n\n{KEY}\r\n  {KEY}2\n");
        let given = options(
            folder.path(),
            b"#!/bin/sh\n\xff\0",
            b"version: 2\n",
            keys.as_bytes(),
        );
        let read = read(&given).unwrap().unwrap();
        assert_eq!(&read.user_data[..], b"#!/bin/sh\n\xff\0");
        assert_eq!(read.network_config, "version: 2\n");
        assert_eq!(read.ssh_keys, [KEY.to_owned(), format!("{KEY}2")]);
        assert_eq!(super::read(&arguments::FirstBoot::default()).unwrap(), None);
    }

    /// Goal: each wrong file is refused with the option and the file, and nothing of it is shown.
    #[test]
    fn wrong_files_are_refused_by_name() {
        let folder = tempfile::tempdir().unwrap();
        let check = |user: &[u8], network: &[u8], keys: &[u8], expected: &str| {
            let error = read(&options(folder.path(), user, network, keys)).unwrap_err();
            let message = format!("{error:#}");
            assert!(message.contains(expected), "{expected}: {message}");
            assert!(!message.contains("hunter2"), "{message}");
        };
        let key = KEY.as_bytes();
        let long = b"#!hunter2".repeat(4_000);
        check(&long, b"x", key, "--user-data ");
        check(b"", b"x", key, "it is empty");
        check(b"#!", b"", key, "it is empty");
        check(b"#!", b"x", b"# none\n", "no key in it");
        check(b"#!", &long, key, "--network-config ");
        check(b"#!", b"hunter2\xff", key, "not text in UTF-8");
        check(
            b"#!",
            b"x",
            b"-----BEGIN OPENSSH PRIVATE KEY-----\nhunter2",
            "keys.pub",
        );
        check(b"#!", b"x", b"hunter2", "first_boot.ssh_keys[0]");
        let missing = arguments::FirstBoot {
            user_data: Some(folder.path().join("nothing")),
            ..arguments::FirstBoot::default()
        };
        let message = format!("{:#}", read(&missing).unwrap_err());
        assert!(message.starts_with("--user-data "), "{message}");
    }
}
