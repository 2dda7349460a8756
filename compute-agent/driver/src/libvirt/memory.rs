//! The guests' share of the host's memory: read from the kernel's files of their QEMU processes.
//!
//! A process is identified by the domain's UUID on its command line, which libvirt sets for every QEMU;
//! once identified it is not searched again as long as it exists. Where no process is seen (another
//! machine's hypervisor, a `/proc` that hides processes) libvirt is queried for the resident set, which
//! also counts pages of files, and knows nothing of huge pages and swap.
//!
//! All of it goes over a connection of its own, so that a guest whose monitor hangs blocks no other
//! call.
//!
//! Invariant: bounded; no file is read further than `FILE_MAX`, and processes are searched once per
//! query.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use berth_domain::name::VmName;
use berth_domain::signals::GuestMemory;

use super::error::error_of;
use super::{Connection, Domain, Kind};
use crate::error::Error;
use crate::xml::NAMESPACE;

/// How much of a file is read. Command lines of guests with many devices are long, but the UUID
/// stands near their beginning.
const FILE_MAX: u64 = 256 * 1024;

/// What is remembered between two looks.
#[derive(Default)]
pub(super) struct Looks {
    kept: Mutex<Kept>,
}

#[derive(Default)]
struct Kept {
    connection: Option<Connection>,
    /// By UUID.
    domains: BTreeMap<String, Seen>,
}

/// A domain that was seen.
#[derive(Clone, Debug, Default)]
struct Seen {
    /// The VM; absent for a domain that Berth did not make.
    vm: Option<VmName>,
    /// Its process.
    pid: Option<u32>,
}

impl Looks {
    /// Returns the memory usage of each guest of Berth's at the hypervisor at `uri`, by the processes in
    /// `proc`.
    pub(super) fn guest_memory(
        &self,
        uri: &str,
        proc: &Path,
    ) -> Result<BTreeMap<VmName, GuestMemory>, Error> {
        // What it guards is right at any moment.
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let connection = match kept.connection.take().filter(Connection::is_alive) {
            Some(connection) => connection,
            None => Connection::open(uri).map_err(|e| error_of(&e))?,
        };
        kept.connection = Some(connection.clone());
        let mut earlier = std::mem::take(&mut kept.domains);
        let mut processes = None;
        let mut memory = BTreeMap::new();
        for domain in connection.domains().map_err(|e| error_of(&e))? {
            let uuid = domain.uuid().map_err(|e| error_of(&e))?;
            let mut seen = match earlier.remove(&uuid) {
                Some(seen) => seen,
                None => match first_look(&domain)? {
                    Some(seen) => seen,
                    // It ended meanwhile.
                    None => continue,
                },
            };
            if let Some(vm) = seen.vm.clone() {
                let known = seen.pid.filter(|pid| has_uuid(proc, *pid, &uuid));
                seen.pid = known.or_else(|| {
                    let found = processes.get_or_insert_with(|| guests(proc));
                    found.get(&uuid).copied()
                });
                if let Some(of_guest) = one(&domain, proc, seen.pid)? {
                    memory.insert(vm, of_guest);
                }
            }
            kept.domains.insert(uuid, seen);
        }
        Ok(memory)
    }
}

/// Returns whether a domain is Berth's; nothing for one that is gone.
fn first_look(domain: &Domain) -> Result<Option<Seen>, Error> {
    match domain.metadata(NAMESPACE) {
        Ok(_) => Ok(Some(Seen {
            vm: VmName::new(&domain.name()).ok(),
            pid: None,
        })),
        Err(error) if error.kind() == Kind::NoMetadata => Ok(Some(Seen::default())),
        Err(error) if matches!(error.kind(), Kind::NoDomain | Kind::OperationInvalid) => Ok(None),
        Err(error) => Err(error_of(&error)),
    }
}

/// Returns the memory of a guest; nothing for one that is not running any more.
fn one(domain: &Domain, proc: &Path, pid: Option<u32>) -> Result<Option<GuestMemory>, Error> {
    let of_process = pid.and_then(|pid| {
        let status = proc.join(pid.to_string()).join("status");
        of_status(&read(&status).ok()?)
    });
    if of_process.is_some() {
        return Ok(of_process);
    }
    match domain.resident_kib() {
        Ok(Some(resident_kib)) => Ok(Some(GuestMemory {
            resident_kib,
            ..GuestMemory::default()
        })),
        Ok(None) => Err(Error::refused(format!(
            "neither the kernel nor libvirt reports how much memory guest {} has",
            domain.name()
        ))),
        Err(error) if matches!(error.kind(), Kind::NoDomain | Kind::OperationInvalid) => Ok(None),
        Err(error) => Err(error_of(&error)),
    }
}

/// Reads the kernel's files of a process; nothing if they are incomplete.
fn of_status(status: &str) -> Option<GuestMemory> {
    let kib = |field: &str| -> Option<u64> {
        let line = status.lines().find_map(|line| line.strip_prefix(field))?;
        line.strip_suffix("kB")?.trim().parse().ok()
    };
    Some(GuestMemory {
        resident_kib: kib("RssAnon:")?.checked_add(kib("RssShmem:")?)?,
        // A kernel without huge pages, or without swapping, does not have the line.
        huge_kib: kib("HugetlbPages:").unwrap_or(0),
        swapped_kib: kib("VmSwap:").unwrap_or(0),
    })
}

/// Returns the processes that are guests, by UUID.
fn guests(proc: &Path) -> BTreeMap<String, u32> {
    let Ok(processes) = fs::read_dir(proc) else {
        return BTreeMap::new();
    };
    let mut found = BTreeMap::new();
    for process in processes.flatten() {
        let pid = process.file_name().to_str().and_then(|n| n.parse().ok());
        let Some(pid) = pid else { continue };
        if let Some(uuid) = uuid_of(proc, pid) {
            found.entry(uuid).or_insert(pid);
        }
    }
    found
}

fn has_uuid(proc: &Path, pid: u32, uuid: &str) -> bool {
    uuid_of(proc, pid).as_deref() == Some(uuid)
}

/// Returns the UUID of the domain that a process was started for, if it was started for one.
fn uuid_of(proc: &Path, pid: u32) -> Option<String> {
    let line = read(&proc.join(pid.to_string()).join("cmdline")).ok()?;
    let words: Vec<&str> = line.split('\0').collect();
    let after = |flag: &str| {
        let at = words.iter().position(|word| *word == flag)?;
        words.get(at + 1).copied()
    };
    after("-name").filter(|name| name.starts_with("guest="))?;
    let uuid = after("-uuid").filter(|uuid| !uuid.is_empty());
    uuid.map(str::to_owned)
}

fn read(path: &Path) -> io::Result<String> {
    let mut content = Vec::new();
    File::open(path)?.take(FILE_MAX).read_to_end(&mut content)?;
    Ok(String::from_utf8_lossy(&content).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATUS: &str = "Name:\tqemu-system-x86\nVmRSS:\t  170000 kB\nRssAnon:\t  131072 kB\n\
         RssFile:\t   30000 kB\nRssShmem:\t    1024 kB\nVmSwap:\t    2048 kB\n\
         HugetlbPages:\t  524288 kB\nThreads:\t4\n";
    const UUID: &str = "7b0a1c1e-58a4-4a1b-9d1e-0c7f3c2d4b5a";

    #[test]
    fn pages_of_files_are_not_counted() {
        let memory = of_status(STATUS).unwrap();
        assert_eq!(memory.resident_kib, 132_096);
        assert_eq!((memory.huge_kib, memory.swapped_kib), (524_288, 2048));
    }

    #[test]
    fn what_is_not_told_in_full_is_not_believed() {
        for bad in [
            "",
            "RssAnon:\t1 kB\n",
            "RssAnon:\t1 MB\nRssShmem:\t1 kB\n",
            "RssAnon:\t-1 kB\nRssShmem:\t1 kB\n",
            "RssAnon:\t18446744073709551615 kB\nRssShmem:\t1 kB\n",
            "RssAnon:\nRssShmem:\n",
        ] {
            assert_eq!(of_status(bad), None, "{bad:?}");
        }
        let old = of_status("RssAnon:\t5 kB\nRssShmem:\t0 kB\n").unwrap();
        assert_eq!((old.huge_kib, old.swapped_kib), (0, 0));
    }

    #[test]
    fn guests_are_told_from_other_processes() {
        let proc = tempfile::tempdir().unwrap();
        let process = |pid: &str, words: &[&str]| {
            let folder = proc.path().join(pid);
            fs::create_dir(&folder).unwrap();
            fs::write(folder.join("cmdline"), words.join("\0") + "\0").unwrap();
        };
        process("1", &["/sbin/init"]);
        process("7", &["grep", "-uuid", UUID]);
        process(
            "8",
            &[
                "/usr/bin/kvm",
                "-name",
                "guest=web1,debug-threads=on",
                "-S",
                "-uuid",
                UUID,
            ],
        );
        process("9", &["qemu", "-name", "guest=x", "-uuid"]);
        fs::write(proc.path().join("10"), "no folder").unwrap();
        fs::create_dir(proc.path().join("11")).unwrap();
        fs::create_dir(proc.path().join("sys")).unwrap();
        let found = guests(proc.path());
        assert_eq!(found, BTreeMap::from([(UUID.to_owned(), 8)]));
        assert!(has_uuid(proc.path(), 8, UUID) && !has_uuid(proc.path(), 7, UUID));
        assert!(guests(&proc.path().join("nowhere")).is_empty());
    }
}
