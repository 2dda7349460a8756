//! Those who add and remove members: what each is about, and what they know to be done.
//!
//! Not here: when something is begun and what a response leads to; that is `run::membership`, which
//! sees the machines as an administrator in front of them does.

use std::collections::{BTreeMap, BTreeSet};

use crate::chance::Chance;
use crate::packet::CallNumber;

/// How many administrators there are. With two, changes meet.
pub const ADMINISTRATORS: usize = 2;

/// What an administrator is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Task {
    /// Nothing.
    Idle,
    /// To remove the member of a machine, by its number.
    Remove {
        /// The machine.
        site: u64,
        /// The member.
        id: u64,
        /// Whether another begins there afterwards.
        replace: bool,
    },
    /// To wait until the removed member has ended by itself, and to delete its directory.
    Clear {
        /// The machine.
        site: u64,
        /// When the administrator ends the program.
        until: u64,
        /// Whether another member begins there afterwards.
        replace: bool,
    },
    /// To announce the member of a machine, as one without a vote.
    Add {
        /// The machine.
        site: u64,
    },
    /// To wait until the member of a machine has joined.
    Join {
        /// The machine.
        site: u64,
        /// Whether it is to be promoted afterwards.
        promote: bool,
    },
    /// To give the member of a machine a vote.
    Promote {
        /// The machine.
        site: u64,
        /// The member.
        id: u64,
    },
    /// To have another member lead.
    Transfer {
        /// The member.
        target: Option<u64>,
    },
}

impl Task {
    /// Returns the machine that it is about.
    #[must_use]
    pub fn site(&self) -> Option<u64> {
        match self {
            Self::Idle | Self::Transfer { .. } => None,
            Self::Remove { site, .. }
            | Self::Clear { site, .. }
            | Self::Add { site }
            | Self::Join { site, .. }
            | Self::Promote { site, .. } => Some(*site),
        }
    }
}

/// How often what was done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Done {
    /// Members that joined.
    pub joined: usize,
    /// Members that were removed.
    pub removed: usize,
    /// Members that were promoted by request.
    pub promoted: usize,
    /// Removals that were refused, as they would have cost the quorum.
    pub refused: usize,
    /// Transfers of leadership.
    pub transferred: usize,
    /// Removed members that ended by themselves.
    pub ended: usize,
}

/// One administrator.
#[derive(Debug)]
pub struct Administrator {
    /// What it is about.
    pub task: Task,
    /// The request under way.
    pub call: Option<CallNumber>,
    /// The machine whose member is requested next.
    pub target: u64,
}

/// All of them.
#[derive(Debug)]
pub struct Administration {
    /// A source of its own, so that nothing else changes with it.
    pub chance: Chance,
    /// Each administrator.
    pub administrators: Vec<Administrator>,
    /// The members whose removal was acknowledged.
    pub removed: BTreeSet<u64>,
    /// The members whose removal was requested.
    pub requested: BTreeSet<u64>,
    /// The members that know that they joined, and their machines.
    pub joined: BTreeMap<u64, u64>,
    /// Members whose directory is lost or damaged, by machine: the member, and since when.
    pub lost: BTreeMap<u64, (u64, u64)>,
    /// When a removal was requested last.
    pub removal_at: u64,
    /// How often what was done.
    pub done: Done,
}

impl Administration {
    /// Returns administrators who have done nothing.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let administrator = |number: usize| Administrator {
            task: Task::Idle,
            call: None,
            target: 1 + number as u64,
        };
        Self {
            chance: Chance::new(seed ^ 0x4d_45_4d_42_45_52),
            administrators: (0..ADMINISTRATORS).map(administrator).collect(),
            removed: BTreeSet::new(),
            requested: BTreeSet::new(),
            joined: BTreeMap::new(),
            lost: BTreeMap::new(),
            removal_at: 0,
            done: Done::default(),
        }
    }

    /// Returns whether an administrator is about this machine.
    #[must_use]
    pub fn is_busy_with(&self, site: u64) -> bool {
        let mut tasks = self.administrators.iter().map(|a| a.task.site());
        tasks.any(|busy| busy == Some(site))
    }

    /// Returns whether a member may be removed right now.
    #[must_use]
    pub fn removes(&self) -> bool {
        let mut tasks = self.administrators.iter().map(|a| a.task);
        tasks.any(|task| matches!(task, Task::Remove { .. }))
    }

    /// Returns whether no task is in progress.
    #[must_use]
    pub fn is_over(&self) -> bool {
        let mut all = self.administrators.iter();
        self.lost.is_empty() && all.all(|a| a.task == Task::Idle)
    }
}
