//! What happens to a simulated hypervisor that nobody asked it for, as told in a file: for tests and
//! for trying things out.
//!
//! ```text
//! other 5b0c7e0a-0000-4000-8000-000000000001 by-hand    somebody else makes a domain
//! crash web1                                            the guest of this name stops by itself
//! lose web1                                             the hypervisor forgets the guest
//! ```
//!
//! The file is looked at whenever the hypervisor is asked what it has. Each line happens once;
//! lines that are added later happen later. A line that cannot be read is an error of that
//! question, so that a mistake in it does not go unseen.

use std::path::PathBuf;

use berth_domain::id::{TimeMs, VmUid};
use uuid::Uuid;

use super::host::Host;
use crate::domain::Other;
use crate::error::Error;

/// A file of happenings, and how far it was told.
#[derive(Debug)]
pub(super) struct Story {
    path: PathBuf,
    told: usize,
}

impl Story {
    pub(super) fn new(path: PathBuf) -> Self {
        Self { path, told: 0 }
    }

    /// Lets happen what was added to the file; without the file, nothing does.
    pub(super) fn go_on(&mut self, now: TimeMs, host: &mut Host) -> Result<(), Error> {
        let Ok(text) = std::fs::read_to_string(&self.path) else {
            return Ok(());
        };
        // A line without its end is still being written.
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        for line in whole.lines().skip(self.told) {
            happen(line, now, host).map_err(|why| {
                let path = self.path.display();
                Error::refused(format!("{path}: {line:?}: {why}"))
            })?;
            self.told += 1;
        }
        Ok(())
    }
}

fn happen(line: &str, now: TimeMs, host: &mut Host) -> Result<(), String> {
    let words: Vec<&str> = line.split_whitespace().collect();
    match words[..] {
        [] => {}
        ["other", uuid, name] => host.add_other(Other {
            uuid: Uuid::parse_str(uuid).map_err(|error| error.to_string())?,
            name: name.to_owned(),
        }),
        ["crash", name] => host.crash(now, named(host, name)?),
        ["lose", name] => host.lose(named(host, name)?),
        _ => return Err("must be other UUID NAME, crash NAME or lose NAME".to_owned()),
    }
    Ok(())
}

fn named(host: &Host, name: &str) -> Result<VmUid, String> {
    let mut domains = host.domains().values();
    let found = domains.find(|domain| domain.spec.vm.as_str() == name);
    let found = found.ok_or_else(|| format!("there is no guest {name}"))?;
    Ok(found.spec.uid)
}
