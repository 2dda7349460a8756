//! Goal: what the kernel tells of memory is read exactly, what it does not tell is absent, and nothing
//! odd is believed or makes the reader panic.
//!
//! Method: files as kernels write them below `testdata/signals`, each a root of its own; and damage.

use std::fs;
use std::path::{Path, PathBuf};

use berth_domain::signals::{MemorySignals, NodeMemory, Pressure, Stall, Swap};
use berth_host::signals;

fn root(name: &str) -> PathBuf {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/signals");
    data.join(name)
}

/// Measures a root without faults.
#[track_caller]
fn measured(name: &str) -> MemorySignals {
    let (signals, faults) = signals::read(&root(name));
    assert!(faults.is_empty(), "{faults:?}");
    assert_eq!(signals.guests, None);
    signals
}

fn stall(avg10_milli_percent: u32, avg60_milli_percent: u32) -> Stall {
    Stall {
        avg10_milli_percent,
        avg60_milli_percent,
    }
}

#[test]
fn a_typical_host_is_measured() {
    let signals = measured("typical");
    let memory = NodeMemory {
        total_kib: 65_806_572,
        free_kib: 21_052_336 + 310_284 + 16_948_212,
        available_kib: Some(38_711_044),
        huge_kib: 8_388_608,
    };
    let swap = Swap {
        total_kib: 33_554_428,
        free_kib: 33_554_428,
    };
    assert_eq!(signals.memory, Some(memory));
    assert_eq!(signals.swap, Some(swap));
    let pressure = Pressure {
        some: stall(0, 70),
        full: stall(0, 30),
    };
    assert_eq!(signals.pressure, Some(pressure));
}

#[test]
fn a_busy_host_shows_its_stalls() {
    let signals = measured("busy");
    assert_eq!(signals.swap.unwrap().free_kib, 1_030_412);
    let pressure = signals.pressure.unwrap();
    assert_eq!(pressure.some, stall(41_520, 100_000));
    assert_eq!(pressure.full, stall(17_300, 6_400));
}

#[test]
fn an_old_kernel_tells_less_and_nothing_is_made_up() {
    let signals = measured("old");
    let memory = signals.memory.unwrap();
    assert_eq!(memory.available_kib, None);
    assert_eq!(memory.huge_kib, 512 * 2048);
    assert_eq!(signals.pressure, None);
    assert_eq!(signals.swap.unwrap().total_kib, 0);
}

#[test]
fn what_is_malformed_is_absent_with_the_reason() {
    let (signals, faults) = signals::read(&root("malformed"));
    assert_eq!(signals.memory, None);
    assert_eq!(signals.swap.unwrap().free_kib, 1_030_412);
    assert_eq!(signals.pressure, None);
    let told: Vec<String> = faults.iter().map(ToString::to_string).collect();
    assert_eq!(told.len(), 2, "{told:?}");
    assert!(told[0].contains("proc/meminfo holds \"\" instead of a line MemFree in kB"));
    assert!(told[1].contains("proc/pressure/memory") && told[1].contains("a line some"));
}

#[test]
fn a_machine_without_these_files_has_no_signals() {
    let (signals, faults) = signals::read(&root("nowhere"));
    assert!(signals.is_empty());
    assert_eq!(faults.len(), 1, "{faults:?}");
    assert!(faults[0].to_string().contains("nowhere/proc/meminfo"));
}

/// Method: the real files of this machine; whatever it is, it has memory.
#[test]
fn this_machine_has_memory() {
    let (signals, faults) = signals::read(Path::new("/"));
    assert!(faults.is_empty(), "{faults:?}");
    let memory = signals.memory.unwrap();
    assert!(memory.total_kib > 0 && memory.free_kib <= memory.total_kib);
}

/// Goal: no damage makes the reader panic, or believe what is not there. Method: the files of a busy
/// host, cut after each byte, and with each byte replaced by odd ones.
#[test]
fn damage_is_absence_with_a_reason_and_never_a_panic() {
    let folder = tempfile::tempdir().unwrap();
    let proc = folder.path().join("proc");
    fs::create_dir_all(proc.join("pressure")).unwrap();
    let whole = |file: &str| fs::read(root("busy").join("proc").join(file)).unwrap();
    for (file, other) in [
        ("meminfo", "pressure/memory"),
        ("pressure/memory", "meminfo"),
    ] {
        fs::write(proc.join(other), whole(other)).unwrap();
        let good = whole(file);
        let cuts = (0..good.len()).step_by(3).map(|at| good[..at].to_vec());
        let odd = (0..good.len()).step_by(3).map(|at| {
            let mut bad = good.clone();
            bad[at] = [b'\0', b'\n', b'-', b'9', 0xff][at % 5];
            bad
        });
        for bad in cuts.chain(odd) {
            fs::write(proc.join(file), &bad).unwrap();
            let (signals, faults) = signals::read(folder.path());
            let is_whole =
                signals.memory.is_some() && signals.swap.is_some() && signals.pressure.is_some();
            assert_eq!(is_whole, faults.is_empty(), "{bad:?}");
        }
    }
}
