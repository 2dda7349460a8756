//! The table: lines of a version, a message and what of it came with that version.
//!
//! ```text
//! 1 berth.state.v1.Envelope at_ms principal request
//! 3 berth.state.v1.Envelope finalize_upgrade
//! 3* berth.host.v1.HostReport disks
//! ```
//!
//! A star marks fields that only add information: a leader leaves them out of a command for as
//! long as the cluster version is older, and their information is not known. Without a star the
//! command is refused.

use std::collections::BTreeMap;

use berth_domain::version::ServiceVersion;

/// Since when something is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Since {
    pub(super) version: ServiceVersion,
    /// Whether older members can do without.
    pub(super) may_be_left_out: bool,
}

impl Since {
    pub(super) const EVER: Self = Self {
        version: ServiceVersion::OLDEST,
        may_be_left_out: false,
    };
}

#[derive(Debug, Default)]
pub(super) struct Table {
    entries: BTreeMap<(String, String), Entry>,
    missing: BTreeMap<String, Vec<String>>,
    faults: Vec<String>,
}

#[derive(Debug)]
struct Entry {
    since: Since,
    is_used: bool,
}

impl Table {
    pub(super) fn read(text: &str) -> Self {
        let mut table = Self::default();
        for (number, line) in text.lines().enumerate() {
            let line = line.trim();
            if !line.is_empty() && !line.starts_with('#') {
                table.line(number + 1, line);
            }
        }
        table
    }

    fn line(&mut self, number: usize, line: &str) {
        let mut words = line.split_whitespace();
        let version = words.next().unwrap_or_default();
        let plain = version.trim_end_matches('*');
        let (Ok(parsed), Some(owner)) = (plain.parse(), words.next()) else {
            let fault = format!("line {number} does not begin with a version and a name: {line}");
            self.faults.push(fault);
            return;
        };
        let version_read = ServiceVersion(parsed);
        if !(ServiceVersion::OLDEST..=ServiceVersion::CURRENT).contains(&version_read) {
            let fault = format!("line {number} names version {parsed}, which there is not");
            self.faults.push(fault);
        }
        let since = Since {
            version: version_read,
            may_be_left_out: plain != version,
        };
        for item in words {
            let key = (owner.to_owned(), item.to_owned());
            let entry = Entry {
                since,
                is_used: false,
            };
            if self.entries.insert(key, entry).is_some() {
                let fault = format!("line {number} names {item} of {owner} once more");
                self.faults.push(fault);
            }
        }
    }

    /// Returns since when something is there; what is not in the table counts as the newest.
    pub(super) fn take(&mut self, owner: &str, item: &str) -> Since {
        let key = (owner.to_owned(), item.to_owned());
        if let Some(entry) = self.entries.get_mut(&key) {
            entry.is_used = true;
            return entry.since;
        }
        let (owner, item) = key;
        self.missing.entry(owner).or_default().push(item);
        Since {
            version: ServiceVersion::CURRENT,
            may_be_left_out: false,
        }
    }

    pub(super) fn problems(&self, current: ServiceVersion) -> Vec<String> {
        let mut problems = self.faults.clone();
        let missing = self.missing.iter();
        problems.extend(
            missing.map(|(owner, items)| format!("add: {current} {owner} {}", items.join(" "))),
        );
        let unused = self.entries.iter().filter(|(_, entry)| !entry.is_used);
        problems.extend(unused.map(|((owner, item), _)| format!("gone: {item} of {owner}")));
        problems
    }
}
