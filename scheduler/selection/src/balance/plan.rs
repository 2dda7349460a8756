//! The plan: moves, each the best that is known, until no single one is worth its cost.
//!
//! ```text
//! every host's best move ──▶ queue ──best──▶ exact fit, admission ──▶ made in the fleet
//!        ▲                     ▲                                           │
//!        │                     └── the host is queued again ◀───────────────┘
//!        └── queue empty: every move of every guest is looked at again; none: the end
//! ```
//!
//! A move in the queue is computed again before it is made, as others have changed what it gains;
//! it is made where it still is about the best. So the path is not quite the steepest, but the end
//! is what it would be: no single move gains more than the minimum.
//!
//! Not here: doing it.
//!
//! Invariant: each move keeps every rule on the fleet as the moves before it leave it, and the
//! score never rises.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use berth_domain::name::{HostName, VmName};
use berth_domain::numa::Assignment;

use super::best::{self, Candidate, Refused};
use super::cluster_model::ClusterModel;
use super::metric::Score;
use super::policy::Options;
use super::{sets, words};
use crate::fleet::Fleet;

/// A move is made where it gains this part of what the next may gain at most.
const NEARLY: f64 = 0.9;
/// What a move must gain in any case: less is lost in rounding.
const GAIN_LEAST: f64 = 1e-6;
/// So many reasons why moves were refused are kept.
const REASONS_MAX: usize = 16;

/// A move that is to be admitted. The fleet is as if it were made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proposal {
    /// The guest.
    pub vm: VmName,
    /// The place of the host that it leaves.
    pub from: usize,
    /// The place of the host that it goes to.
    pub to: usize,
}

/// Says of a move whether it may be made, or why not. It leaves the fleet as it was.
pub type Admit<'a> = dyn FnMut(&mut Fleet, &Proposal) -> Result<(), String> + 'a;

/// One move.
#[derive(Clone, Debug, PartialEq)]
pub struct Move {
    /// The guest.
    pub vm: VmName,
    /// The host that it leaves.
    pub from: HostName,
    /// The host that it goes to.
    pub to: HostName,
    /// What it takes there.
    pub assignment: Assignment,
    /// Memory, and disks where the storage is another, in MiB.
    pub sent_mib: u64,
    /// What the move costs, by host: see [`super::policy`].
    pub cost: f64,
    /// The score before.
    pub score_before: f64,
    /// The score after.
    pub score_after: f64,
    /// The component that says most of the difference.
    pub component: &'static str,
    /// Why, for people.
    pub why: String,
    /// When: moves of one set may be made at the same time, sets one after the other.
    pub set: usize,
}

/// Why a plan ends where it ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// No threshold is exceeded: nothing was looked at.
    BelowThreshold,
    /// No single move gains more than the minimum; all were looked at.
    Balanced,
    /// There are as many moves as there may be.
    MovesMax,
}

/// What was looked at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Effort {
    /// How often the best move off a host was worked out.
    pub hosts: usize,
    /// How often that was done for all hosts.
    pub sweeps: usize,
}

/// A plan.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// The score before.
    pub before: Score,
    /// The score after.
    pub after: Score,
    /// The moves, in an order in which each has room.
    pub moves: Vec<Move>,
    /// The number of sets that they are in.
    pub sets: usize,
    /// Why there are no more.
    pub end: End,
    /// Moves that would have gained and were not admitted: the reasons, and how often each.
    pub refused: BTreeMap<String, usize>,
    /// What was looked at.
    pub effort: Effort,
}

/// Returns what moves would help. The fleet is left as it was.
pub fn plan(fleet: &mut Fleet, options: &Options, admit: Option<&mut Admit<'_>>) -> Plan {
    let mark = fleet.mark();
    let mut planner = Planner {
        model: ClusterModel::new(fleet, options),
        options,
        admit,
        queue: Queue::default(),
        refused: Refused::new(),
        reasons: BTreeMap::new(),
        moves: Vec::new(),
        effort: Effort::default(),
    };
    let before = planner.model.metric.score();
    let usage = planner.model.worst_usage();
    let end = if options.threshold.is_exceeded(before.total, usage) {
        planner.run()
    } else {
        End::BelowThreshold
    };
    let after = planner.model.metric.score();
    let Planner {
        mut moves,
        reasons: refused,
        effort,
        ..
    } = planner;
    let hosts = moves.iter().map(|step| (&step.from, &step.to));
    let (of_moves, sets) = sets::arrange(hosts);
    for (step, set) in moves.iter_mut().zip(of_moves) {
        step.set = set;
    }
    fleet.undo(mark);
    Plan {
        before,
        after,
        moves,
        sets,
        end,
        refused,
        effort,
    }
}

struct Planner<'a, 'f, 'p> {
    model: ClusterModel<'f>,
    options: &'a Options,
    admit: Option<&'a mut Admit<'p>>,
    queue: Queue,
    refused: Refused,
    reasons: BTreeMap<String, usize>,
    moves: Vec<Move>,
    effort: Effort,
}

impl Planner<'_, '_, '_> {
    fn run(&mut self) -> End {
        loop {
            self.sweep();
            if self.queue.is_empty() {
                if !self.requeue_host() {
                    return End::Balanced;
                }
                continue;
            }
            if self.descend() == End::MovesMax {
                return End::MovesMax;
            }
        }
    }

    /// Puts the best move of every host into the queue.
    fn sweep(&mut self) {
        self.effort.sweeps += 1;
        for source in 0..self.model.columns.len() {
            let found = self.best(source);
            let turn = self.moves.len();
            self.queue.put(source, found.map(|found| (found, turn)));
        }
    }

    fn best(&mut self, source: usize) -> Option<Candidate> {
        self.effort.hosts += 1;
        let (options, floor) = (self.options, self.options.gain_min.max(GAIN_LEAST));
        best::best(&mut self.model, options, &self.refused, source, floor)
    }

    /// Makes moves until the queue is empty.
    fn descend(&mut self) -> End {
        while let Some((source, known)) = self.queue.pop() {
            if self.moves.len() >= self.options.moves_max {
                return End::MovesMax;
            }
            let turn = self.moves.len();
            let fresh = match known {
                Some((known, then)) if then == turn => Some(known),
                Some(_) | None => self.best(source),
            };
            let Some(candidate) = fresh else {
                continue;
            };
            if candidate.net < NEARLY * self.queue.most() {
                self.queue.put(source, Some((candidate, turn)));
            } else if self.make(&candidate) {
                // The other host waits for the next sweep: what came there is there for good reason.
                self.queue.ask(source, candidate.net);
            } else {
                self.queue.ask(source, candidate.net);
            }
        }
        End::Balanced
    }

    /// Makes a move, unless it is not admitted.
    fn make(&mut self, candidate: &Candidate) -> bool {
        let model = &mut self.model;
        let Candidate { piece, to, .. } = *candidate;
        let from = model.pieces[piece].at;
        let vm = model.pieces[piece].guest.vm.clone();
        let mark = model.fleet.mark();
        let assignment = model.fleet.try_place(&vm, to, self.options.cells);
        let assignment = assignment.expect("it was just tried");
        model.fleet.shift(&vm, to, assignment.clone());
        if let Some(admit) = &mut self.admit {
            let proposal = Proposal { vm, from, to };
            if let Err(reason) = admit(model.fleet, &proposal) {
                model.fleet.undo(mark);
                self.refused.insert((piece, to), self.moves.len());
                let is_known = self.reasons.contains_key(&reason);
                if is_known || self.reasons.len() < REASONS_MAX {
                    *self.reasons.entry(reason).or_default() += 1;
                }
                return false;
            }
        }
        let step = words::Before::of(model, piece, to);
        model.follow(piece, to);
        self.moves
            .push(step.into_move(model, candidate, assignment));
        true
    }

    /// Forgets refusals from before the last move. Returns whether there were any.
    fn requeue_host(&mut self) -> bool {
        let turn = self.moves.len();
        let before = self.refused.len();
        self.refused.retain(|_, then| *then == turn);
        self.refused.len() < before
    }
}

/// The number of a gain, with an order.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Gain(f64);

impl Eq for Gain {}

impl Ord for Gain {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.0.total_cmp(&other.0)
    }
}

impl PartialOrd for Gain {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

/// A move, and after how many others it was worked out.
type Known = Option<(Candidate, usize)>;

/// The hosts by what their best move may gain; of equal ones the first.
#[derive(Debug, Default)]
struct Queue {
    heap: BinaryHeap<(Gain, Reverse<usize>)>,
    /// What stands in the heap for each host; what is not the same is out of date.
    entries: BTreeMap<usize, (Gain, Known)>,
}

impl Queue {
    fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Takes what is known of a host's best move.
    fn put(&mut self, source: usize, known: Known) {
        if let Some((candidate, _)) = &known {
            let gain = Gain(candidate.net);
            self.heap.push((gain, Reverse(source)));
            self.entries.insert(source, (gain, known));
        } else {
            self.entries.remove(&source);
        }
    }

    /// Queues a host again, where at most so much can be gained.
    fn ask(&mut self, source: usize, most: f64) {
        let gain = Gain(most);
        self.heap.push((gain, Reverse(source)));
        self.entries.insert(source, (gain, None));
    }

    /// Returns what the best move may gain.
    fn most(&mut self) -> f64 {
        self.tidy();
        self.heap.peek().map_or(0.0, |(gain, _)| gain.0)
    }

    fn pop(&mut self) -> Option<(usize, Known)> {
        self.tidy();
        let (_, Reverse(source)) = self.heap.pop()?;
        let (_, known) = self.entries.remove(&source)?;
        Some((source, known))
    }

    fn tidy(&mut self) {
        while let Some((gain, Reverse(source))) = self.heap.peek() {
            let entry = self.entries.get(source);
            if entry.is_some_and(|(current, _)| current == gain) {
                return;
            }
            self.heap.pop();
        }
    }
}
