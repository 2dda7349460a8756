//! Clients of the Placement REST API: each writes to shared resource providers through any member,
//! and notes what it was told. Some wait longer than the members do, some not as long.
//!
//! Every write has a number of its own as the total of an inventory, by which it is recognised in the
//! log. What a client reads before it writes comes from the furthest state: reading is not what is
//! examined here.
//!
//! Invariant: what was told to be done was done once, with that outcome; what was told not to be done
//! never is ([`Writers::compare`]).

use std::collections::BTreeMap;

use berth_domain::id::{Generation, ProviderId};
use berth_domain::inventory::Inventory;
use berth_domain::resource::ResourceClass;
use berth_domain::version::ServiceVersion;
use berth_state::command::Command;
use berth_state::{Reply, State};
use uuid::Uuid;

use crate::asker::{Numbers, Out, Timer};
use crate::chance::Chance;
use crate::packet::{CallNumber, Node, Packet, Told};

/// How many clients there are, on how many providers.
pub const WRITERS: usize = 3;
const PROVIDERS: u64 = 2;

/// What a client knows of a write.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Known {
    /// It was done, with this outcome: generation and total of the provider.
    Done(Generation, Option<u64>),
    /// It was not done, and never will be.
    NotDone,
    /// Nothing.
    Nothing,
}

/// The clients.
#[derive(Debug)]
pub struct Writers {
    members: u64,
    chance: Chance,
    last_number: u64,
    /// The write that each client waits for: its call and its number.
    waiting: [Option<(CallNumber, u64)>; WRITERS],
    known: BTreeMap<u64, Known>,
    has_ended: bool,
}

/// By their numbers: the generation to which each write that was applied led.
pub type Applied = BTreeMap<u64, Generation>;

/// Returns the number of the write that had this outcome.
#[must_use]
pub fn number_of(reply: &Reply) -> Option<(u64, Generation)> {
    let Reply::Provider(provider) = reply else {
        return None;
    };
    let total = provider.inventories.get(&ResourceClass::vcpu())?.total;
    Some((total, provider.generation))
}

impl Writers {
    /// Returns clients that draw from a source of their own, so that nothing else changes with them.
    #[must_use]
    pub fn new(members: u64, seed: u64) -> Self {
        Self {
            members,
            chance: Chance::new(seed ^ 0x57_52_49_54_45),
            last_number: 0,
            waiting: [None; WRITERS],
            known: BTreeMap::new(),
            has_ended: false,
        }
    }

    /// Lets every client begin.
    pub fn start(&mut self) -> Vec<(usize, Out)> {
        (0..WRITERS).map(|writer| (writer, self.pause())).collect()
    }

    fn pause(&mut self) -> Out {
        Out::Timer(self.chance.between(1, 600), Timer::Write)
    }

    /// Begins the next write, if there is a state to read.
    pub fn write(
        &mut self,
        writer: usize,
        state: Option<&State>,
        numbers: &mut Numbers,
    ) -> Vec<Out> {
        if self.has_ended {
            return Vec::new();
        }
        // Before, the outcome of a request is not recorded, and a repeated one can be answered with what
        // became of the provider later.
        let is_new = |state: &&State| state.header().cluster_version == ServiceVersion::CURRENT;
        let Some(state) = state.filter(is_new) else {
            return vec![self.pause()];
        };
        let id = self.chance.between(1, PROVIDERS);
        let id = ProviderId(Uuid::from_u128(u128::from(id)));
        self.last_number += 1;
        let command = match state.providers().get(&id) {
            None => Command::CreateProvider {
                id,
                name: id.0.to_string(),
                parent: None,
            },
            Some(provider) => Command::SetInventories {
                provider: id,
                generation: provider.generation,
                inventories: BTreeMap::from([(
                    ResourceClass::vcpu(),
                    Inventory::exact(self.last_number),
                )]),
            },
        };
        let call = numbers.fresh();
        self.waiting[writer] = Some((call, self.last_number));
        self.known.insert(self.last_number, Known::Nothing);
        let member = Node::Member(self.chance.between(1, self.members));
        let patience = match self.chance.percent(40) {
            true => self.chance.between(20, 1_000),
            false => 30_000,
        };
        vec![
            Out::Send(member, Packet::Write(call, Box::new(command))),
            Out::Timer(patience, Timer::Unanswered(call)),
        ]
    }

    /// Takes what a member told.
    pub fn told(&mut self, writer: usize, call: CallNumber, told: &Told) -> Vec<Out> {
        let Some((_, number)) = self.waiting[writer].take_if(|(c, _)| *c == call) else {
            return Vec::new();
        };
        let known = match told {
            Told::Decided(Ok(Reply::Provider(provider))) => {
                let total = provider.inventories.get(&ResourceClass::vcpu());
                Known::Done(provider.generation, total.map(|vcpu| vcpu.total))
            }
            Told::Decided(Err(_)) | Told::NotLeader(_) => Known::NotDone,
            Told::Decided(Ok(_))
            | Told::Lost
            | Told::Facts(_)
            | Told::Drain(_)
            | Told::Expired(_)
            | Told::Registered(_)
            | Told::Service(_)
            | Told::Expected(_)
            | Told::Erasures(_)
            | Told::Volumes(_)
            | Told::Members(_) => Known::Nothing,
        };
        self.known.insert(number, known);
        vec![self.pause()]
    }

    /// Stops waiting for a response.
    pub fn unanswered(&mut self, writer: usize, call: CallNumber) -> Vec<Out> {
        match self.waiting[writer].take_if(|(c, _)| *c == call) {
            Some(_) => vec![self.pause()],
            None => Vec::new(),
        }
    }

    /// Begins no further writes.
    pub fn end(&mut self) {
        self.has_ended = true;
    }

    /// Returns whether no response is waited for.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.waiting.iter().all(Option::is_none)
    }

    /// Returns how many writes were told to be done, not to be done, and neither.
    #[must_use]
    pub fn counts(&self) -> [usize; 3] {
        let count = |is: fn(&Known) -> bool| self.known.values().filter(|k| is(k)).count();
        [
            count(|k| matches!(k, Known::Done(..))),
            count(|k| *k == Known::NotDone),
            count(|k| *k == Known::Nothing),
        ]
    }

    /// Compares what clients were told with what was applied.
    ///
    /// # Errors
    ///
    /// The first write of which something else was told than what became of it.
    pub fn compare(&self, applied: &Applied) -> Result<(), String> {
        for (number, known) in &self.known {
            match (known, applied.get(number)) {
                (Known::Done(_, None), _) | (Known::Nothing, _) | (Known::NotDone, None) => {}
                (Known::Done(generation, Some(total)), Some(applied))
                    if applied == generation && total == number => {}
                (Known::Done(..) | Known::NotDone, _) => {
                    return Err(format!(
                        "write {number} was answered {known:?}, and what was applied is {:?}",
                        applied.get(number)
                    ));
                }
            }
        }
        Ok(())
    }
}
