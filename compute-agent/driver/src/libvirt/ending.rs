//! How a guest ended, from the log that libvirt writes beside QEMU's output.
//!
//! A transient domain that ends is gone from libvirt, with the reason. The log keeps it, also while no
//! agent runs: libvirtd that finds a QEMU process dead at its own start writes it there.
//!
//! ```text
//! 2026-11-27 08:00:00.000+0000: starting up libvirt version: 9.0.0, ...
//! 2026-11-27 08:05:00.000+0000: shutting down, reason=shutdown
//! ```
//!
//! Invariant: a bounded part of the file is read, and nothing in it but libvirt's own last line about
//! a start or an end counts. After a restart of the machine that is a start: how the guest ended is not
//! known.

use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::Path;

use berth_domain::name::VmName;

use crate::domain::Ending;

/// How much of the end of a log is read.
const TAIL_BYTES: u64 = 16 * 1024;

/// Returns how the last guest of this name ended.
pub(super) fn of(log_dir: &Path, vm: &VmName) -> Option<Ending> {
    let path = log_dir.join(format!("{vm}.log"));
    let text = tail(&path).inspect_err(|error| {
        tracing::debug!(path = %path.display(), %error, "log of a guest not read");
    });
    parse(&text.ok()?)
}

fn tail(path: &Path) -> std::io::Result<String> {
    let mut file = File::open(path)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(TAIL_BYTES)))?;
    let mut bytes = Vec::new();
    file.take(TAIL_BYTES).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn parse(text: &str) -> Option<Ending> {
    let mut entries = text.lines().rev().filter_map(entry);
    let last = entries.next()?;
    match last.strip_prefix("shutting down, reason=")? {
        "shutdown" => Some(Ending::ShutDown),
        "crashed" => Some(Ending::Crashed),
        // Among them `destroyed`, as by `virsh destroy`.
        _ => None,
    }
}

/// Returns libvirt's own words in a line about a start or an end.
fn entry(line: &str) -> Option<&str> {
    let (time, words) = line.split_once("+0000: ")?;
    let is_time = |c: char| c.is_ascii_digit() || "-:. ".contains(c);
    let is_ours = words.starts_with("shutting down, reason=") || words.starts_with("starting up");
    (time.chars().all(is_time) && is_ours).then_some(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: &str =
        "2026-11-27 08:00:00.123+0000: starting up libvirt version: 9.0.0, qemu version: 7.2.22\n";

    fn end(reason: &str) -> String {
        format!("2026-11-27 08:05:00.123+0000: shutting down, reason={reason}\n")
    }

    #[test]
    fn the_last_entry_counts() {
        let check = |text: &str, expected| assert_eq!(parse(text), expected, "{text}");
        check("", None);
        check(START, None);
        check(&end("shutdown"), Some(Ending::ShutDown));
        check(&format!("{START}{}", end("crashed")), Some(Ending::Crashed));
        check(&format!("{START}{}{START}", end("shutdown")), None);
        for reason in [
            "destroyed",
            "failed",
            "migrated",
            "saved",
            "daemon",
            "unknown",
            "",
        ] {
            check(&end(reason), None);
        }
        // QEMU's output stands between libvirt's lines.
        let noise = "qemu-system-x86_64: terminating on signal 15\nshutting down, reason=crashed\n";
        check(
            &format!("{}{noise}", end("shutdown")),
            Some(Ending::ShutDown),
        );
        check("x 2026+0000: shutting down, reason=crashed\n", None);
    }

    /// Goal: a log of any length is read in bounded parts; one that is missing says nothing.
    #[test]
    fn the_end_of_a_long_log_is_read() {
        let directory = tempfile::tempdir().unwrap();
        let vm = VmName::new("web").unwrap();
        assert_eq!(of(directory.path(), &vm), None);
        let text = format!("{}{}", "noise\n".repeat(1 << 20), end("shutdown"));
        std::fs::write(directory.path().join("web.log"), text).unwrap();
        assert_eq!(of(directory.path(), &vm), Some(Ending::ShutDown));
        let text = format!("{}{}", end("shutdown"), "noise\n".repeat(1 << 20));
        std::fs::write(directory.path().join("web.log"), text).unwrap();
        assert_eq!(of(directory.path(), &vm), None);
    }
}
