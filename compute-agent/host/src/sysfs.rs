//! Reads a machine from the kernel's files below `sys` and `proc` of a given root.
//!
//! Invariant: bounded; no file is read further than `FILE_MAX`.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use berth_domain::cpu_set::{CpuId, CpuSet};
use berth_domain::topology::{CellId, SocketId};

use crate::machine::{Machine, Node};
use crate::options::{self, Options, apply};
use crate::{Discovery, Warning, cpu_flags, pci};

/// How much of a file is read.
const FILE_MAX: u64 = 64 * 1024;

/// The size of the kernel's ordinary pages on the machines that Berth runs on.
const SMALL_PAGE_KIB: u64 = 4;

/// Why a machine cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file or folder cannot be read.
    #[error("{} cannot be read", .path.display())]
    Read {
        /// The file or folder.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// A file holds something else than it should.
    #[error("{} holds {value:?} instead of {expected}", .path.display())]
    Value {
        /// The file.
        path: PathBuf,
        /// What it holds, cut to a bounded length.
        value: String,
        /// What it should hold.
        expected: &'static str,
    },
    /// Machine and options do not go together.
    #[error(transparent)]
    Host(#[from] options::Error),
}

/// Discovers the machine whose files are below `root` (`/` for this one).
///
/// # Errors
///
/// What cannot be read, by file; or what is wrong with the options.
pub fn discover(root: &Path, options: &Options) -> Result<Discovery, Error> {
    let system = root.join("sys/devices/system");
    let online = cpu_list(&system.join("cpu/online"))?;
    let mut warnings = Vec::new();
    let mut machine = match node_ids(&system)? {
        Some(ids) => nodes(&system, &ids)?,
        None => {
            warnings.push(Warning::NoNodes);
            one_node(root, &online)?
        }
    };
    let mut housed = CpuSet::new();
    for node in &mut machine.nodes {
        node.cpus = node.cpus.intersection(&online);
        housed = housed.union(&node.cpus);
        threads(&system, node)?;
    }
    machine.functions = pci::read::functions(root)?;
    machine.traits = cpu_flags::discover(root);
    if housed != online {
        let cpus = online.difference(&housed);
        warnings.push(Warning::Homeless { cpus });
    }
    Ok(apply(machine, options, warnings)?)
}

/// Returns how many huge pages of each size are free in each cell now. Small pages are left out:
/// what the kernel's caches hold of them counts as taken, though it is given back when needed.
///
/// # Errors
///
/// What cannot be read, by file.
pub fn free_pages(root: &Path) -> Result<BTreeMap<CellId, BTreeMap<u64, u64>>, Error> {
    let system = root.join("sys/devices/system");
    let Some(ids) = node_ids(&system)? else {
        let pools = pools(&root.join("sys/kernel/mm/hugepages"), "free_hugepages")?;
        return Ok(BTreeMap::from([(CellId(0), pools)]));
    };
    ids.into_iter()
        .map(|id| {
            let folder = system.join(format!("node/node{id}/hugepages"));
            Ok((CellId(id), pools(&folder, "free_hugepages")?))
        })
        .collect()
}

/// Returns the ids of the online nodes in ascending order, if the kernel reports any.
fn node_ids(system: &Path) -> Result<Option<Vec<u32>>, Error> {
    let folder = system.join("node");
    if !folder.exists() {
        return Ok(None);
    }
    let online = cpu_list(&folder.join("online"))?;
    let ids: Vec<_> = online.iter().map(|node| node.0).collect();
    Ok((!ids.is_empty()).then_some(ids))
}

fn nodes(system: &Path, ids: &[u32]) -> Result<Machine, Error> {
    let mut machine = Machine {
        small_page_kib: SMALL_PAGE_KIB,
        ..Machine::default()
    };
    for id in ids {
        let folder = system.join(format!("node/node{id}"));
        machine.nodes.push(Node {
            id: *id,
            cpus: cpu_list(&folder.join("cpulist"))?,
            memory_kib: memory_total(&folder.join("meminfo"))?,
            huge_pages: pools(&folder.join("hugepages"), "nr_hugepages")?,
            ..Node::default()
        });
        machine
            .distances
            .push(distances(&folder.join("distance"), ids.len())?);
    }
    Ok(machine)
}

fn one_node(root: &Path, online: &CpuSet) -> Result<Machine, Error> {
    let node = Node {
        id: 0,
        cpus: online.clone(),
        memory_kib: memory_total(&root.join("proc/meminfo"))?,
        huge_pages: pools(&root.join("sys/kernel/mm/hugepages"), "nr_hugepages")?,
        ..Node::default()
    };
    Ok(Machine {
        nodes: vec![node],
        distances: vec![vec![10]],
        small_page_kib: SMALL_PAGE_KIB,
        ..Machine::default()
    })
}

/// Reads on which socket and core each CPU is; a machine need not report it.
fn threads(system: &Path, node: &mut Node) -> Result<(), Error> {
    for cpu in node.cpus.iter().collect::<Vec<CpuId>>() {
        let folder = system.join(format!("cpu/cpu{cpu}/topology"));
        let socket = folder.join("physical_package_id");
        if let Some(text) = optional(&socket)? {
            let id: i64 = number(&socket, &text, "a socket's number")?;
            // The kernel writes -1 for "not known".
            if let Ok(id) = u32::try_from(id) {
                node.sockets.insert(cpu, SocketId(id));
            }
        }
        let siblings = folder.join("thread_siblings_list");
        if optional(&siblings)?.is_some() {
            node.siblings.insert(cpu, cpu_list(&siblings)?);
        }
    }
    Ok(())
}

/// Reads the pools below a folder named `hugepages`; a kernel without huge pages has none.
fn pools(folder: &Path, attribute: &str) -> Result<BTreeMap<u64, u64>, Error> {
    let mut pools = BTreeMap::new();
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(pools),
        Err(source) => return Err(read_error(folder, source)),
    };
    for entry in entries {
        let path = entry.map_err(|source| read_error(folder, source))?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let size = name
            .strip_prefix("hugepages-")
            .and_then(|rest| rest.strip_suffix("kB"));
        let Some(size) = size else { continue };
        let size: u64 = number(&path, size, "a page size")?;
        let file = path.join(attribute);
        let count = number(&file, &text(&file)?, "a number of pages")?;
        pools.insert(size, count);
    }
    Ok(pools)
}

/// Reads `MemTotal` of a meminfo file; those of nodes begin each line with `Node 0`.
fn memory_total(path: &Path) -> Result<u64, Error> {
    let content = text(path)?;
    let expected = "a line MemTotal in kB";
    let line = content
        .lines()
        .find_map(|line| Some(line.split_once("MemTotal:")?.1))
        .ok_or_else(|| value_error(path, &content, expected))?;
    let kib = line
        .trim()
        .strip_suffix("kB")
        .ok_or_else(|| value_error(path, line, expected))?;
    number(path, kib, expected)
}

fn distances(path: &Path, count: usize) -> Result<Vec<u32>, Error> {
    let content = text(path)?;
    let distances: Vec<u32> = content
        .split_whitespace()
        .map(|d| number(path, d, "distances"))
        .collect::<Result<_, _>>()?;
    if distances.len() == count {
        Ok(distances)
    } else {
        Err(value_error(path, &content, "one distance for each node"))
    }
}

fn cpu_list(path: &Path) -> Result<CpuSet, Error> {
    let content = text(path)?;
    CpuSet::from_str(&content).map_err(|_| value_error(path, &content, "a list like 0-3,8"))
}

pub(crate) fn number<T: FromStr>(
    path: &Path,
    text: &str,
    expected: &'static str,
) -> Result<T, Error> {
    text.trim()
        .parse()
        .map_err(|_| value_error(path, text, expected))
}

pub(crate) fn optional(path: &Path) -> Result<Option<String>, Error> {
    match text(path) {
        Ok(text) => Ok(Some(text)),
        Err(Error::Read { source, .. }) if source.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

pub(crate) fn text(path: &Path) -> Result<String, Error> {
    let mut content = String::new();
    File::open(path)
        .and_then(|file| file.take(FILE_MAX).read_to_string(&mut content))
        .map_err(|source| read_error(path, source))?;
    Ok(content)
}

pub(crate) fn read_error(path: &Path, source: io::Error) -> Error {
    Error::Read {
        path: path.to_owned(),
        source,
    }
}

pub(crate) fn value_error(path: &Path, value: &str, expected: &'static str) -> Error {
    Error::Value {
        path: path.to_owned(),
        value: value.trim().chars().take(60).collect(),
        expected,
    }
}
