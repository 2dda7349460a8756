//! What goes wrong on purpose, and when.

use crate::chance::Chance;
use crate::packet::Node;

/// Something that goes wrong, or is put right again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A node loses power, and gets it back after so many milliseconds.
    Crash(Node, u64),
    /// All members lose power at once.
    CrashMembers(u64),
    /// A node does nothing for so many milliseconds; what comes for it waits.
    Stall(Node, u64),
    /// A node reaches nobody for so many milliseconds.
    Isolate(Node, u64),
    /// Two nodes do not reach each other for so many milliseconds.
    Cut(Node, Node, u64),
    /// The disk of a member's log does not answer for so many milliseconds; what was written meanwhile
    /// is synchronised then.
    HoldDisk(u64, u64),
    /// No guest memory flows between two hosts for so many milliseconds.
    CutHosts(usize, usize, u64),
}

/// Returns the faults of the first `time_ms` milliseconds of a run, each with its time.
pub fn plan(
    time_ms: u64,
    members: u64,
    conductors: usize,
    agents: usize,
    chance: &mut Chance,
) -> Vec<(u64, Fault)> {
    let mut plan = Vec::new();
    let mut nodes: Vec<Node> = (1..=members).map(Node::Member).collect();
    nodes.extend((0..conductors).map(Node::Conductor));
    nodes.extend((0..agents).map(Node::Agent));
    let mut at = chance.between(2_000, 6_000);
    while at < time_ms {
        let node = *chance.pick(&nodes).expect("there are nodes");
        let fault = match chance.between(1, 14) {
            1..=4 => Fault::Crash(node, chance.between(200, 6_000)),
            5 => Fault::CrashMembers(chance.between(200, 4_000)),
            6..=7 => {
                let conductor = Node::Conductor(chance.index(conductors));
                Fault::Stall(conductor, chance.between(500, 25_000))
            }
            8..=9 => Fault::Isolate(node, chance.between(500, 15_000)),
            10..=11 => {
                let other = *chance.pick(&nodes).expect("there are nodes");
                Fault::Cut(node, other, chance.between(500, 15_000))
            }
            12..=13 => Fault::HoldDisk(chance.between(1, members), chance.between(500, 20_000)),
            _ => {
                let (a, b) = (chance.index(agents), chance.index(agents));
                Fault::CutHosts(a, b, chance.between(200, 8_000))
            }
        };
        plan.push((at, fault));
        at += chance.between(500, 7_000);
    }
    plan
}
