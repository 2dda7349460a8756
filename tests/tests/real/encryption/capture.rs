//! What is on a machine's network: every packet of TCP, searched for words.
//!
//! ```text
//!   the test ─ starts this program inside the machine ─▶ packet socket ─▶ report file ─▶ the test
//! ```
//!
//! What it is not: a protocol analyser. Within one connection and direction a word is also found where two
//! packets meet; packets that come twice or out of order are not put in order, which two machines on one
//! kernel do not do.
//!
//! Invariant: the report counts what was captured, and the test compares that with the counter of the
//! interface: a capture that lost packets is no proof that a word was not in them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

use berth_tests::lab::{Machine, Process};
use rustix::net::{
    AddressFamily, Protocol, RecvFlags, SocketFlags, SocketType, recv, socket_with, sockopt,
};
use serde::{Deserialize, Serialize};

use crate::harness::ROLE;

/// The role of this program that captures.
pub(crate) const CAPTURE: &str = "encryption/capture";

const WORDS: &str = "BERTH_CAPTURE_WORDS";
const REPORT: &str = "BERTH_CAPTURE_REPORT";

/// `ETH_P_ALL`, in the order of the network.
const ALL_PROTOCOLS: u32 = (3_u16.to_be()) as u32;

/// Between virtual interfaces a packet may have 64 KiB.
const PACKET_BYTES_MAX: usize = 128 * 1024;

/// How much waits in the kernel while packets are searched.
const BUFFER_BYTES: usize = 256 * 1024 * 1024;

/// After so long without a packet the report is written.
const IDLE: Duration = Duration::from_millis(50);

/// What has been captured so far.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Report {
    /// The bytes of all TCP packets without their headers.
    pub(crate) payload_bytes: u64,
    /// The bytes of all packets.
    pub(crate) bytes: u64,
    /// How often each word was in them.
    pub(crate) found: BTreeMap<String, u64>,
}

/// Captures until it is killed.
pub(crate) fn run() {
    let words: BTreeSet<String> = std::env::var(WORDS)
        .unwrap()
        .split(',')
        .map(str::to_owned)
        .collect();
    let report_file = PathBuf::from(std::env::var(REPORT).unwrap());
    let protocol = Protocol::from_raw(ALL_PROTOCOLS.try_into().unwrap());
    let (family, kind) = (AddressFamily::PACKET, SocketType::RAW);
    let socket = socket_with(family, kind, SocketFlags::CLOEXEC, Some(protocol)).unwrap();
    sockopt::set_socket_recv_buffer_size_force(&socket, BUFFER_BYTES).unwrap();
    sockopt::set_socket_timeout(&socket, sockopt::Timeout::Recv, Some(IDLE)).unwrap();
    let mut report = Report {
        found: words.iter().map(|word| (word.clone(), 0)).collect(),
        ..Report::default()
    };
    write(&report_file, &report);
    let mut search = Search::default();
    let mut buffer = vec![0; PACKET_BYTES_MAX];
    let mut is_written = true;
    loop {
        match recv(&socket, &mut buffer[..], RecvFlags::empty()) {
            Ok((_, length)) => {
                search.packet(&buffer[..length], &mut report);
                is_written = false;
            }
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => {
                if !is_written {
                    write(&report_file, &report);
                    is_written = true;
                }
            }
            Err(error) => panic!("{error}"),
        }
    }
}

fn write(path: &Path, report: &Report) {
    let aside = path.with_extension("new");
    std::fs::write(&aside, serde_json::to_vec(report).unwrap()).unwrap();
    std::fs::rename(&aside, path).unwrap();
}

/// The end of what came last in each connection and direction, in which a word may begin.
#[derive(Debug, Default)]
struct Search {
    ends: BTreeMap<[u8; 12], Vec<u8>>,
}

impl Search {
    /// Searches one Ethernet frame.
    fn packet(&mut self, frame: &[u8], report: &mut Report) {
        report.bytes += frame.len() as u64;
        let Some((flow, payload)) = tcp(frame) else {
            return;
        };
        report.payload_bytes += payload.len() as u64;
        let mut text = self.ends.remove(&flow).unwrap_or_default();
        text.extend_from_slice(payload);
        let longest = report.found.keys().map(String::len).max().unwrap_or(0);
        for (word, count) in &mut report.found {
            let word = word.as_bytes();
            *count += text
                .windows(word.len())
                .filter(|part| *part == word)
                .count() as u64;
        }
        let kept = text.len().saturating_sub(longest.saturating_sub(1));
        self.ends.insert(flow, text.split_off(kept));
    }
}

/// Returns the addresses and ports of a TCP packet over IPv4, and its payload.
fn tcp(frame: &[u8]) -> Option<([u8; 12], &[u8])> {
    let packet = frame.get(14..)?;
    let is_ipv4 = frame.get(12..14)? == [8, 0];
    if !is_ipv4 || *packet.get(9)? != 6 {
        return None;
    }
    let header = usize::from(packet[0] & 15) * 4;
    // Frames are padded; a packet that the kernel joined out of several may be too long for its own field.
    let total = usize::from(u16::from_be_bytes([packet[2], packet[3]]));
    let end = if total == 0 {
        packet.len()
    } else {
        total.min(packet.len())
    };
    let segment = packet.get(header..end)?;
    let offset = usize::from(*segment.get(12)? >> 4) * 4;
    let mut flow = [0; 12];
    flow[..8].copy_from_slice(packet.get(12..20)?);
    flow[8..].copy_from_slice(&segment[..4]);
    Some((flow, segment.get(offset..)?))
}

/// A capture that goes on in a machine.
#[derive(Debug)]
pub(crate) struct Capture<'a> {
    machine: &'a Machine,
    report: PathBuf,
    at_start: u64,
    _process: Process,
}

impl<'a> Capture<'a> {
    /// Begins to capture in a machine.
    pub(crate) fn start(machine: &'a Machine, label: &str, words: &[&str]) -> Self {
        let program = std::env::current_exe().unwrap().display().to_string();
        let report = machine.directory().join(format!("{label}.json"));
        let path = report.display().to_string();
        let words = words.join(",");
        let variables = [(ROLE, CAPTURE), (WORDS, &*words), (REPORT, &*path)];
        let process = machine.spawn_with(label, &[&program], &variables).unwrap();
        super::wait("the capture begins", || report.exists());
        Self {
            machine,
            report,
            at_start: interface_bytes(machine),
            _process: process,
        }
    }

    fn read(&self) -> Report {
        serde_json::from_slice(&std::fs::read(&self.report).unwrap()).unwrap()
    }

    /// Ends it, once nearly all is searched that the interfaces have counted: packets that the kernel has
    /// joined have fewer headers.
    pub(crate) fn end(self) -> Report {
        let counted = interface_bytes(self.machine) - self.at_start;
        let enough = counted / 10 * 9;
        super::wait("all packets are searched", || self.read().bytes >= enough);
        self.read()
    }
}

/// Returns how many bytes have passed a machine's interfaces, in both directions. Each packet passes two:
/// the link, and the bridge that it is a port of.
fn interface_bytes(machine: &Machine) -> u64 {
    let mut bytes = 0;
    for interface in ["eth0", "br0"] {
        for direction in ["rx", "tx"] {
            let path = format!("/sys/class/net/{interface}/statistics/{direction}_bytes");
            let text = machine.run(&["cat", &path]).unwrap();
            bytes += text.trim().parse::<u64>().unwrap();
        }
    }
    bytes
}
