//! The memory of a process that writes the table for long. A program of its own, since it reads what
//! its process occupies.

use std::fs;

use berth_store::table::{SledTable, TableBatch};
use berth_store::{TableMeta, TableStore as _};
use bytes::Bytes;

/// How many rows of each kind there are, whatever is written.
const LIVE: u64 = 2_000;
/// How many commands one batch has.
const BATCH: u64 = 500;

/// Returns what the process occupies, in MiB.
fn resident_mib() -> u64 {
    let status = fs::read_to_string("/proc/self/status").expect("Linux");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB"));
    let kib: u64 = kib.and_then(|kib| kib.trim().parse().ok()).expect("kB");
    kib / 1024
}

/// Returns the rows of some commands as a scheduler writes them: a record that changes in its place,
/// an entry at the end while the oldest is deleted, and a request under a name without an order.
fn batch(first: u64) -> TableBatch {
    let mut rows = TableBatch::new();
    for n in first..first + BATCH {
        let value = Bytes::from(n.to_be_bytes().repeat(40));
        rows.push((format!("a{}", n % 16).into(), Some(value.clone())));
        rows.push((key("b", n), Some(value.clone())));
        rows.push((scattered(n), Some(value)));
        if let Some(oldest) = n.checked_sub(LIVE) {
            rows.push((key("b", oldest), None));
            rows.push((scattered(oldest), None));
        }
    }
    rows
}

fn key(prefix: &str, n: u64) -> Bytes {
    format!("{prefix}{n:020}").into()
}

fn scattered(n: u64) -> Bytes {
    key("c", n.wrapping_mul(0x9E37_79B9_7F4A_7C15))
}

/// Goal: the memory of a table follows what it holds, not what was ever written to it.
#[test]
fn writing_for_long_takes_no_more_memory() {
    let folder = tempfile::tempdir().expect("temporary folder");
    let mut table = SledTable::open(&folder.path().join("table")).expect("open");
    let meta = TableMeta::default();
    let mut settled = 0;
    for n in 0..240 {
        let rows = batch(n * BATCH);
        table.write(rows, Some(&meta)).expect("write");
        if n % 8 == 0 {
            table.flush().expect("flush");
        }
        if n == 60 {
            settled = resident_mib();
        }
    }
    let rows = table.rows().count() as u64;
    assert_eq!(rows, 16 + 2 * LIVE);
    let after = resident_mib();
    // 90,000 commands, each of which took 6 KB for good before the table freed what it replaces.
    assert!(after < settled + 100, "{settled} MiB, then {after} MiB");
    println!("{settled} MiB, then {after} MiB");
}
