//! A whole replay: check, what-if and measurement side by side, as one pass over a history.
//!
//! Not here: reading the history. Invariant: a command that was refused when it was applied changes
//! nothing here either; it is counted.

use berth_decide::upgrade::Admit;
use berth_domain::refusal::Refusal;
use berth_state::State;
use berth_state::command::{Command, Envelope};

use crate::changes::Changes;
use crate::check::Check;
use crate::decision::RecordedDecision;
use crate::report::Report;
use crate::usage::Meter;
use crate::what_if::WhatIf;

/// A replay of a history, command by command.
pub struct Replayer {
    check: Check,
    what_if: Option<WhatIf>,
    meter: Meter,
    /// What the command records that is being applied.
    decision: Option<RecordedDecision>,
    rejected: u64,
}

impl Replayer {
    /// Begins with the state of the full backup. Without `changes` the recorded decisions are checked
    /// alone; `examples` cases of each kind are described at most.
    ///
    /// # Errors
    ///
    /// A change is refused.
    pub fn new(
        state: &State,
        changes: Option<Changes>,
        admit: Admit,
        examples: usize,
    ) -> Result<Self, Refusal> {
        let what_if = changes.map(|changes| WhatIf::new(state, changes, admit, examples));
        Ok(Self {
            check: Check::new(admit, examples),
            what_if: what_if.transpose()?,
            meter: Meter::new(state),
            decision: None,
            rejected: 0,
        })
    }

    /// Returns the recorded requests on the state with changes, if there are any.
    #[must_use]
    pub fn what_if(&self) -> Option<&WhatIf> {
        self.what_if.as_ref()
    }

    /// Takes the next command, with the state before it.
    pub fn before(&mut self, state: &State, index: u64, envelope: &Envelope) {
        self.decision = self.check.before(state, index, envelope);
    }

    /// Takes the same command after it was applied: whether it was carried out, and the state after it.
    pub fn after(&mut self, state: &State, index: u64, envelope: &Envelope, is_done: bool) {
        let decision = self.decision.take();
        if !is_done {
            self.rejected += u64::from(decision.is_some());
            return;
        }
        if let Command::BeginBoot { spec, .. } = &envelope.command {
            self.meter.request(spec);
        }
        self.meter.follow(state);
        if let Some(what_if) = &mut self.what_if {
            what_if.follow(index, envelope, decision.as_ref());
        }
    }

    /// Returns the report, with the state at the end of the history.
    ///
    /// # Errors
    ///
    /// A flavor that is changed was never there.
    pub fn finish(self, state: &State) -> Result<Report, Refusal> {
        let mut check = self.check.report().clone();
        check.rejected = self.rejected;
        let what_if = self.what_if.map(|what_if| what_if.finish(state));
        Ok(Report {
            check,
            recorded: self.meter.usage(state),
            what_if: what_if.transpose()?,
        })
    }
}
