//! What the kernel knows of the process, under the names that Prometheus's client libraries give it, and
//! which build it is.
//!
//! Invariant: what cannot be read is left out; nothing here fails a scrape.

use std::fs;

use super::definition::Definition;
use super::exposition::Exposition;
use crate::wall_clock::wall_clock_ms;

static BUILD: Definition = Definition::info(
    "berth_build_info",
    &["program", "version", "service_version"],
    "The program, its version, and the service version that it runs at.",
);
static START: Definition = Definition::gauge(
    "process_start_time_seconds",
    &[],
    "When the process started, in seconds since 1970.",
);
static CPU: Definition = Definition::counter(
    "process_cpu_seconds_total",
    &[],
    "CPU time that the process used, in user mode and in the kernel.",
);
static RESIDENT: Definition = Definition::gauge(
    "process_resident_memory_bytes",
    &[],
    "Resident memory of the process.",
);
static VIRTUAL: Definition = Definition::gauge(
    "process_virtual_memory_bytes",
    &[],
    "Virtual memory of the process.",
);
static OPEN_FILES: Definition =
    Definition::gauge("process_open_fds", &[], "File descriptors that are open.");
static OPEN_FILES_MAX: Definition =
    Definition::gauge("process_max_fds", &[], "File descriptors that may be open.");
static THREADS: Definition = Definition::gauge("process_threads", &[], "Threads of the process.");

/// The ticks of a second in `/proc`: `USER_HZ`, which is part of the kernel's interface to programs.
const TICKS_PER_SECOND: f64 = 100.0;

/// The process.
#[derive(Debug)]
pub(super) struct Process {
    program: &'static str,
    service_version: u32,
    start_ms: u64,
}

impl Process {
    /// Returns this one.
    pub(super) fn new(program: &'static str, service_version: u32) -> Self {
        Self {
            program,
            service_version,
            start_ms: start_ms().unwrap_or_else(wall_clock_ms),
        }
    }

    pub(super) fn expose(&self, out: &mut Exposition) {
        let version = env!("CARGO_PKG_VERSION");
        let labels = [
            self.program.into(),
            version.into(),
            self.service_version.to_string().into(),
        ];
        out.add_named(&BUILD, labels, 1_u64);
        out.set(&START, self.start_ms as f64 / 1_000.0);
        let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
        if let Some(ticks) = cpu_ticks(&stat) {
            out.set(&CPU, ticks as f64 / TICKS_PER_SECOND);
        }
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        let kib = |key| number_after(&status, key).map(|kib| kib * 1_024);
        for (definition, value) in [
            (&RESIDENT, kib("VmRSS:")),
            (&VIRTUAL, kib("VmSize:")),
            (&THREADS, number_after(&status, "Threads:")),
            (&OPEN_FILES, open_files()),
            (&OPEN_FILES_MAX, open_files_max()),
        ] {
            if let Some(value) = value {
                out.set(definition, value);
            }
        }
    }
}

/// Returns when the process started, in milliseconds since 1970.
fn start_ms() -> Option<u64> {
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    let system = fs::read_to_string("/proc/stat").ok()?;
    let boot_s = number_after(&system, "btime")?;
    let started = field(&stat, 22)?;
    Some((boot_s as f64 * 1_000.0 + started as f64 / TICKS_PER_SECOND * 1_000.0) as u64)
}

/// Returns a numeric field of `/proc/self/stat`, counted from 1 as in its manual. The second one, the
/// name of the program, may contain anything.
fn field(stat: &str, number: usize) -> Option<u64> {
    let (_, rest) = stat.rsplit_once(')')?;
    rest.split_whitespace().nth(number - 3)?.parse().ok()
}

fn cpu_ticks(stat: &str) -> Option<u64> {
    Some(field(stat, 14)? + field(stat, 15)?)
}

/// Returns the number after a key at the beginning of a line.
fn number_after(text: &str, key: &str) -> Option<u64> {
    let rest = text.lines().find_map(|line| line.strip_prefix(key))?;
    rest.split_whitespace().next()?.parse().ok()
}

fn open_files() -> Option<u64> {
    // One of them is that of the directory itself.
    let open = fs::read_dir("/proc/self/fd").ok()?.count() as u64;
    Some(open.saturating_sub(1))
}

fn open_files_max() -> Option<u64> {
    let limits = fs::read_to_string("/proc/self/limits").ok()?;
    number_after(&limits, "Max open files")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_program_may_contain_anything() {
        let stat = "7 (a) b (c) S 1 2 3 4 5 6 7 8 9 10 300 45 13 14 15 16 17 18 9000 20";
        assert_eq!(cpu_ticks(stat), Some(345));
        assert_eq!(field(stat, 22), Some(9_000));
        assert_eq!(cpu_ticks("nonsense"), None);
    }

    #[test]
    fn this_process_has_memory_and_files() {
        let mut out = Exposition::default();
        Process::new("berth-test", 7).expose(&mut out);
        let text = out.to_open_metrics();
        for line in [
            "berth_build_info{program=\"berth-test\",version=\"",
            "service_version=\"7\"} 1",
            "# TYPE process_cpu_seconds counter",
            "process_cpu_seconds_total ",
            "process_resident_memory_bytes ",
            "process_open_fds ",
            "process_max_fds ",
            "process_threads ",
        ] {
            assert!(text.contains(line), "{line}\n{text}");
        }
    }
}
