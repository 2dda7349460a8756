//! The network: delays, loses, repeats and reorders, and is cut now and then.

use std::collections::BTreeSet;

use crate::chance::Chance;
use crate::packet::Node;

/// What a network does to what is sent.
#[derive(Debug)]
pub struct Network {
    /// How many of a hundred packets are lost.
    pub loss_percent: u64,
    /// How many of a hundred packets come twice.
    pub repeat_percent: u64,
    /// The longest usual delay.
    pub delay_ms_max: u64,
    /// How many of a hundred packets are much later than that.
    pub late_percent: u64,
    /// Nodes that reach nobody and are reached by nobody.
    isolated: BTreeSet<Node>,
    /// Pairs that do not reach each other, the lesser first.
    cuts: BTreeSet<(Node, Node)>,
}

/// How late the latest packets are.
const LATE_MS_MAX: u64 = 20_000;

impl Network {
    /// Returns a network with these habits.
    pub fn new(chance: &mut Chance) -> Self {
        Self {
            loss_percent: chance.between(0, 6),
            repeat_percent: chance.between(0, 4),
            delay_ms_max: chance.between(1, 40),
            late_percent: chance.between(0, 2),
            isolated: BTreeSet::new(),
            cuts: BTreeSet::new(),
        }
    }

    /// Returns after how many milliseconds each copy of a packet arrives; none for a lost one.
    pub fn delays(&self, from: Node, to: Node, chance: &mut Chance) -> Vec<u64> {
        if !self.connects(from, to) || chance.percent(self.loss_percent) {
            return Vec::new();
        }
        let copies = if chance.percent(self.repeat_percent) {
            2
        } else {
            1
        };
        (0..copies)
            .map(|_| {
                let late = chance.percent(self.late_percent);
                chance.between(1, if late { LATE_MS_MAX } else { self.delay_ms_max })
            })
            .collect()
    }

    /// Returns whether anything gets from one to the other.
    #[must_use]
    pub fn connects(&self, from: Node, to: Node) -> bool {
        let pair = if from < to { (from, to) } else { (to, from) };
        !self.isolated.contains(&from) && !self.isolated.contains(&to) && !self.cuts.contains(&pair)
    }

    /// Cuts a node off.
    pub fn isolate(&mut self, node: Node) {
        self.isolated.insert(node);
    }

    /// Connects a node again.
    pub fn rejoin(&mut self, node: Node) {
        self.isolated.remove(&node);
    }

    /// Cuts two nodes off each other.
    pub fn cut(&mut self, a: Node, b: Node) {
        self.cuts.insert(if a < b { (a, b) } else { (b, a) });
    }

    /// Connects two nodes again.
    pub fn mend(&mut self, a: Node, b: Node) {
        self.cuts.remove(&if a < b { (a, b) } else { (b, a) });
    }

    /// Makes a good network of it.
    pub fn heal(&mut self) {
        self.isolated.clear();
        self.cuts.clear();
        self.loss_percent = 0;
        self.repeat_percent = 0;
        self.late_percent = 0;
        self.delay_ms_max = 5;
    }
}
