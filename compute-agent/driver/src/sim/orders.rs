//! The injected faults of a simulated hypervisor: calls and transfers that wait, that are refused, or
//! whose connection breaks.
//!
//! Without injected events there are none.

use std::collections::{BTreeMap, BTreeSet};

use berth_domain::id::VmUid;

/// What can be made to wait or be refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Moment {
    /// A guest is to be made.
    Create,
    /// A guest is to be started that was stopped.
    Start,
    /// A guest is to be expected.
    Prepare,
    /// A guest is to be expected no longer.
    Cancel,
    /// The memory of a guest is sent, and its switch is next.
    Transfer,
    /// The memory of a guest follows it, and the end is next.
    PostCopy,
    /// A namespace of persistent memory is to be erased.
    Erase,
    /// A piece of a disk that is fetched is to be written.
    Fetch,
}

impl Moment {
    /// The words for them, as errors list them.
    pub(super) const WORDS: &str =
        "create, start, prepare, cancel, transfer, post-copy erase or fetch";

    /// Reads the word for one.
    pub(super) fn parse(word: &str) -> Result<Self, String> {
        Ok(match word {
            "create" => Self::Create,
            "start" => Self::Start,
            "prepare" => Self::Prepare,
            "cancel" => Self::Cancel,
            "transfer" => Self::Transfer,
            "post-copy" => Self::PostCopy,
            "erase" => Self::Erase,
            "fetch" => Self::Fetch,
            _ => return Err(format!("must be {}, not {word}", Self::WORDS)),
        })
    }
}

/// What was ordered and is not done.
#[derive(Debug, Default)]
pub(super) struct Orders {
    held: BTreeSet<Moment>,
    refused: BTreeMap<Moment, u32>,
    broken: BTreeSet<VmUid>,
    free_space: Option<u64>,
}

impl Orders {
    /// From now on whatever comes to this moment waits.
    pub(super) fn hold(&mut self, moment: Moment) {
        self.held.insert(moment);
    }

    /// Everything that waits continues, and nothing is held any more.
    pub(super) fn go_on(&mut self, moment: Moment) {
        self.held.remove(&moment);
    }

    /// Sets the free space of the disks' storage.
    pub(super) fn limit_free_space(&mut self, bytes: u64) {
        self.free_space = Some(bytes);
    }

    /// Returns the free space of the disks' storage, if it was set.
    pub(super) fn free_space(&self) -> Option<u64> {
        self.free_space
    }

    /// The next so many are refused.
    pub(super) fn refuse(&mut self, moment: Moment, count: u32) {
        *self.refused.entry(moment).or_default() += count;
    }

    /// The connection breaks over which this guest is sent.
    pub(super) fn break_off(&mut self, vm: VmUid) {
        self.broken.insert(vm);
    }

    /// Returns whether whatever comes to this moment waits.
    pub(super) fn is_held(&self, moment: Moment) -> bool {
        self.held.contains(&moment)
    }

    /// Takes one refusal, if there is one left.
    pub(super) fn take_refusal(&mut self, moment: Moment) -> bool {
        match self.refused.get_mut(&moment) {
            Some(left) if *left > 0 => {
                *left -= 1;
                true
            }
            Some(_) | None => false,
        }
    }

    /// Returns whether the connection of a guest was broken, and forgets it.
    pub(super) fn take_break(&mut self, vm: VmUid) -> bool {
        self.broken.remove(&vm)
    }
}
