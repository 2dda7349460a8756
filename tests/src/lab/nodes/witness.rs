//! What the kernel says about nodes: where a guest's memory is, and how many huge pages are free.
//!
//! What it is not: the claims or the domain XML. Policies and pages are read from the process.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use anyhow::{Context as _, Result};

use super::super::machine::Machine;

/// The size of the huge pages that are looked at.
const HUGE_KIB: u64 = 2048;

/// One mapping of a guest's memory, as a line of `/proc/<pid>/numa_maps` tells it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Memory {
    /// Where the kernel may take its pages from, as `bind:2`.
    pub policy: String,
    /// How many pages it has on each node.
    pub pages: BTreeMap<u32, u64>,
    /// The size of a page.
    pub page_kib: u64,
}

impl Memory {
    fn read(line: &str) -> Option<Self> {
        let mut words = line.split_whitespace();
        let policy = words.nth(1)?.to_owned();
        let mut memory = Self {
            policy,
            pages: BTreeMap::new(),
            page_kib: 0,
        };
        for word in words {
            let Some((name, value)) = word.split_once('=') else {
                continue;
            };
            if name == "kernelpagesize_kB" {
                memory.page_kib = value.parse().ok()?;
            } else if let Some(node) = name.strip_prefix('N')
                && let Ok(node) = node.parse()
            {
                memory.pages.insert(node, value.parse().ok()?);
            }
        }
        Some(memory)
    }

    /// Returns its size, as far as it has been given pages.
    #[must_use]
    pub fn kib(&self) -> u64 {
        self.pages.values().sum::<u64>() * self.page_kib
    }
}

impl Machine {
    /// Returns the mappings of a running guest that have at least so much memory, from the one
    /// with the lowest node: those of the guest's own memory, as everything else of a QEMU is
    /// smaller or shared with others.
    ///
    /// # Errors
    ///
    /// When the guest does not run here.
    pub fn guest_memory(&self, domain: &str, mib_min: u64) -> Result<Vec<Memory>> {
        let file = self.outside(format!("/proc/{}/numa_maps", self.qemu_pid(domain)?));
        let text = fs::read_to_string(&file).with_context(|| format!("no {}", file.display()))?;
        let mut found: Vec<Memory> = text
            .lines()
            // A program's text is mapped from a file and shared; huge pages are of a file too.
            .filter(|line| line.contains(" anon="))
            .filter_map(Memory::read)
            .filter(|memory| memory.kib() >= mib_min * 1024)
            .collect();
        found.sort_by(|a, b| a.pages.cmp(&b.pages));
        Ok(found)
    }
}

/// Returns how many huge pages of 2 MiB are free on each node.
///
/// # Errors
///
/// When the kernel has no nodes or no such pages.
pub fn free_pages() -> Result<BTreeMap<u32, u64>> {
    let mut free = BTreeMap::new();
    for entry in fs::read_dir("/sys/devices/system/node")? {
        let name = entry?.file_name();
        let Some(node) = name.to_str().and_then(|name| name.strip_prefix("node")) else {
            continue;
        };
        let node = node.parse()?;
        let count = fs::read_to_string(pool(node).join("free_hugepages"))?;
        free.insert(node, count.trim().parse()?);
    }
    Ok(free)
}

/// Sets how many huge pages of 2 MiB a node has.
///
/// # Errors
///
/// When the kernel does not have so many to give.
pub fn set_pages(node: u32, count: u64) -> Result<()> {
    let file = pool(node).join("nr_hugepages");
    fs::write(&file, count.to_string())?;
    let given: u64 = fs::read_to_string(&file)?.trim().parse()?;
    anyhow::ensure!(
        given == count,
        "node {node} has {given} huge pages, not {count}"
    );
    Ok(())
}

fn pool(node: u32) -> PathBuf {
    PathBuf::from(format!(
        "/sys/devices/system/node/node{node}/hugepages/hugepages-{HUGE_KIB}kB"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mappings_are_read_as_the_kernel_writes_them() {
        let huge = "7f94b0800000 bind:2 file=/run/hugepages/ram-node0.lf0EuI\\040(deleted) huge \
                    anon=32 dirty=32 N2=32 kernelpagesize_kB=2048";
        let memory = Memory::read(huge).unwrap();
        assert_eq!(memory.policy, "bind:2");
        assert_eq!(memory.pages, BTreeMap::from([(2, 32)]));
        assert_eq!((memory.page_kib, memory.kib()), (2048, 65536));
        let small =
            "7febfa800000 default anon=30 dirty=30 active=0 N0=10 N3=20 kernelpagesize_kB=4";
        let memory = Memory::read(small).unwrap();
        assert_eq!(memory.pages, BTreeMap::from([(0, 10), (3, 20)]));
        assert_eq!(memory.kib(), 120);
    }
}
