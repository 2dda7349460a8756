//! Measures the memory of a machine: reads `proc/meminfo` and `proc/pressure/memory` below a root.
//!
//! Not here: the memory of its guests, which the driver knows.
//!
//! Invariant: what cannot be read, or is not what the kernel writes, is absent, with the reason. A
//! kernel that does not know a thing is no fault: pressure needs `CONFIG_PSI`, and may be switched off.

use std::io::ErrorKind;
use std::path::Path;

use berth_domain::signals::{MemorySignals, NodeMemory, Pressure, Stall, Swap};

use crate::sysfs::{Error, number, text, value_error};

/// Measures the machine whose files are below `root` (`/` for this one), and returns why what is
/// absent could not be measured.
#[must_use]
pub fn read(root: &Path) -> (MemorySignals, Vec<Error>) {
    let mut faults = Vec::new();
    let path = root.join("proc/meminfo");
    let (mut memory, mut swap) = (None, None);
    match text(&path) {
        Ok(content) => {
            let meminfo = Meminfo {
                path: &path,
                content: &content,
            };
            memory = meminfo.memory().map_err(|fault| faults.push(fault)).ok();
            swap = meminfo.swap().map_err(|fault| faults.push(fault)).ok();
        }
        Err(fault) => faults.push(fault),
    }
    let pressure = pressure(&root.join("proc/pressure/memory"));
    let pressure = pressure.unwrap_or_else(|fault| {
        faults.push(fault);
        None
    });
    let signals = MemorySignals {
        memory,
        swap,
        pressure,
        guests: None,
    };
    (signals, faults)
}

/// The kernel's figures of memory.
struct Meminfo<'a> {
    path: &'a Path,
    content: &'a str,
}

impl Meminfo<'_> {
    fn memory(&self) -> Result<NodeMemory, Error> {
        let free = [
            self.kib("MemFree:", "a line MemFree in kB")?,
            self.kib("Buffers:", "a line Buffers in kB")?,
            self.kib("Cached:", "a line Cached in kB")?,
        ];
        let sum = |sum: u64, part: u64| sum.checked_add(part);
        let free_kib = free.into_iter().try_fold(0, sum);
        let expected = "amounts of free memory that can be added";
        Ok(NodeMemory {
            total_kib: self.kib("MemTotal:", "a line MemTotal in kB")?,
            free_kib: free_kib.ok_or_else(|| value_error(self.path, "more", expected))?,
            available_kib: self.optional("MemAvailable:", "MemAvailable in kB")?,
            huge_kib: self.huge_kib()?,
        })
    }

    fn swap(&self) -> Result<Swap, Error> {
        Ok(Swap {
            total_kib: self.kib("SwapTotal:", "a line SwapTotal in kB")?,
            free_kib: self.kib("SwapFree:", "a line SwapFree in kB")?,
        })
    }

    /// Returns what is in pools of huge pages: of every size where the kernel reports it, else of the
    /// default size.
    fn huge_kib(&self) -> Result<u64, Error> {
        if let Some(all) = self.optional("Hugetlb:", "Hugetlb in kB")? {
            return Ok(all);
        }
        let size_kib = self.optional("Hugepagesize:", "Hugepagesize in kB")?;
        let Some((size_kib, count)) = size_kib.zip(self.value("HugePages_Total:")) else {
            return Ok(0);
        };
        let count: u64 = number(self.path, count, "HugePages_Total as a number")?;
        Ok(count.saturating_mul(size_kib))
    }

    fn kib(&self, key: &str, expected: &'static str) -> Result<u64, Error> {
        let value = self.optional(key, expected)?;
        value.ok_or_else(|| value_error(self.path, self.content, expected))
    }

    fn optional(&self, key: &str, expected: &'static str) -> Result<Option<u64>, Error> {
        let Some(value) = self.value(key) else {
            return Ok(None);
        };
        let kib = value.trim().strip_suffix("kB");
        let kib = kib.ok_or_else(|| value_error(self.path, value, expected))?;
        number(self.path, kib, expected).map(Some)
    }

    fn value(&self, key: &str) -> Option<&str> {
        self.content.lines().find_map(|line| line.strip_prefix(key))
    }
}

/// Reads how long programs waited for memory; nothing where the kernel does not measure it.
fn pressure(path: &Path) -> Result<Option<Pressure>, Error> {
    let content = match text(path) {
        Ok(content) => content,
        // The second is the content of the file when it was switched off at boot.
        Err(Error::Read { source, .. })
            if matches!(source.kind(), ErrorKind::NotFound | ErrorKind::Unsupported) =>
        {
            return Ok(None);
        }
        Err(fault) => return Err(fault),
    };
    let stall = |kind, expected| {
        let stall = stall(&content, kind);
        stall.ok_or_else(|| value_error(path, &content, expected))
    };
    Ok(Some(Pressure {
        some: stall("some ", "a line some with avg10 and avg60 in percent")?,
        full: stall("full ", "a line full with avg10 and avg60 in percent")?,
    }))
}

/// Reads one line of a file of pressure.
fn stall(content: &str, kind: &str) -> Option<Stall> {
    let line = content.lines().find_map(|line| line.strip_prefix(kind))?;
    let share = |key| {
        let mut words = line.split_whitespace();
        Stall::hundredths(words.find_map(|word| word.strip_prefix(key))?)
    };
    Some(Stall::from_hundredths(share("avg10=")?, share("avg60=")?))
}
