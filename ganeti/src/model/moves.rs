//! The moves of balancing and what each does, step by step, as Ganeti does them.
//!
//! A step that is only passed through is checked too: an instance that changes its primary by way
//! of its secondary must fit there for that while.

use super::change::{Change, Draft};
use super::{Cluster, InstanceIndex, NodeIndex, Placement, Refusal};

/// A move of an instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Move {
    /// `f`: primary and secondary change their roles.
    Failover,
    /// `fa:n`: on shared storage, to any node.
    FailoverTo(NodeIndex),
    /// `f r:n f`: another primary, by way of the secondary.
    ReplacePrimary(NodeIndex),
    /// `r:n`: another secondary.
    ReplaceSecondary(NodeIndex),
    /// `r:n f`: another secondary, which then becomes the primary.
    ReplaceAndFailover(NodeIndex),
    /// `f r:n`: the secondary becomes the primary, and gets another secondary.
    FailoverAndReplace(NodeIndex),
}

impl Move {
    /// Returns the move in Ganeti's short form with `n` for the node.
    #[must_use]
    pub fn kind(self) -> &'static str {
        match self {
            Move::Failover => "f",
            Move::FailoverTo(_) => "fa:n",
            Move::ReplacePrimary(_) => "f r:n f",
            Move::ReplaceSecondary(_) => "r:n",
            Move::ReplaceAndFailover(_) => "r:n f",
            Move::FailoverAndReplace(_) => "f r:n",
        }
    }

    /// Returns the node that it brings in.
    #[must_use]
    pub fn target(self) -> Option<NodeIndex> {
        match self {
            Move::Failover => None,
            Move::FailoverTo(node)
            | Move::ReplacePrimary(node)
            | Move::ReplaceSecondary(node)
            | Move::ReplaceAndFailover(node)
            | Move::FailoverAndReplace(node) => Some(node),
        }
    }
}

impl Cluster {
    /// Returns the change that a move makes, or why it is refused.
    ///
    /// Soft checks are skipped where `ignore_soft` says so, and where an instance leaves a node
    /// that is offline, as Ganeti does.
    ///
    /// # Errors
    ///
    /// The first check that fails.
    pub fn draft_move(
        &self,
        instance: InstanceIndex,
        what: Move,
        ignore_soft: bool,
    ) -> Result<Change, Refusal> {
        let Placement { primary, secondary } = self.placement(instance);
        let primary = primary.ok_or(Refusal::Target)?;
        if let Move::FailoverTo(target) = what {
            return self.draft_failover_to(instance, primary, target, ignore_soft);
        }
        let secondary = secondary.ok_or(Refusal::Disk)?;
        if what
            .target()
            .is_some_and(|t| t == primary || t == secondary)
        {
            return Err(Refusal::Target);
        }
        let step = Step {
            instance,
            primary,
            secondary,
            force_primary: self.node(primary).offline || ignore_soft,
            force_secondary: self.node(secondary).offline || ignore_soft,
            ignore_soft,
        };
        match what {
            Move::Failover => self.draft_failover(&step),
            Move::FailoverTo(_) => Err(Refusal::Target),
            Move::ReplacePrimary(target) => self.draft_replace_primary(&step, target),
            Move::ReplaceSecondary(target) => self.draft_replace_secondary(&step, target),
            Move::ReplaceAndFailover(target) => self.draft_replace_and_failover(&step, target),
            Move::FailoverAndReplace(target) => self.draft_failover_and_replace(&step, target),
        }
    }

    /// Returns the change that places an instance which is placed nowhere.
    ///
    /// # Errors
    ///
    /// The first check that fails.
    pub fn draft_place(
        &self,
        instance: InstanceIndex,
        primary: NodeIndex,
        secondary: Option<NodeIndex>,
        ignore_soft: bool,
    ) -> Result<Change, Refusal> {
        if self.placement(instance).primary.is_some() || secondary == Some(primary) {
            return Err(Refusal::Target);
        }
        let mut draft = Draft::new(self, instance);
        draft.located(primary, secondary);
        draft.add_primary(primary, ignore_soft)?;
        if let Some(secondary) = secondary {
            draft.add_secondary(secondary, primary, false, ignore_soft)?;
        }
        Ok(draft.finish(placed(primary, secondary)))
    }

    /// Returns the change that takes an instance off its nodes; nothing if it is on none.
    #[must_use]
    pub fn draft_removal(&self, instance: InstanceIndex) -> Option<Change> {
        let Placement { primary, secondary } = self.placement(instance);
        let primary = primary?;
        let mut draft = Draft::new(self, instance);
        draft.remove_primary(primary);
        if let Some(secondary) = secondary {
            draft.remove_secondary(secondary, primary);
        }
        Some(draft.finish(Placement::default()))
    }

    /// Says whether an instance may migrate between two nodes.
    ///
    /// # Errors
    ///
    /// [`Refusal::Migration`] if the target cannot receive what the source has.
    pub fn check_migration(&self, source: NodeIndex, target: NodeIndex) -> Result<(), Refusal> {
        let receivable = &self.node(target).receivable_tags;
        let mut needed = self.node(source).migration_tags.iter();
        if needed.all(|tag| receivable.binary_search(tag).is_ok()) {
            Ok(())
        } else {
            Err(Refusal::Migration)
        }
    }

    fn draft_failover_to(
        &self,
        instance: InstanceIndex,
        primary: NodeIndex,
        target: NodeIndex,
        ignore_soft: bool,
    ) -> Result<Change, Refusal> {
        if target == primary || self.placement(instance).secondary.is_some() {
            return Err(Refusal::Target);
        }
        self.check_migration(primary, target)?;
        let force = self.node(primary).offline || ignore_soft;
        let mut draft = Draft::new(self, instance);
        draft.remove_primary(primary);
        draft.located(target, None);
        draft.add_primary(target, force)?;
        Ok(draft.finish(placed(target, None)))
    }

    fn draft_failover(&self, step: &Step) -> Result<Change, Refusal> {
        self.check_migration(step.primary, step.secondary)?;
        let mut draft = self.without(step);
        draft.located(step.secondary, Some(step.primary));
        draft.add_primary(step.secondary, step.force_primary)?;
        let offline = self.node(step.primary).offline;
        draft.add_secondary(step.primary, step.secondary, offline, step.force_primary)?;
        Ok(draft.finish(placed(step.secondary, Some(step.primary))))
    }

    fn draft_replace_primary(&self, step: &Step, target: NodeIndex) -> Result<Change, Refusal> {
        self.check_migration(step.primary, step.secondary)?;
        self.check_migration(step.secondary, target)?;
        let mut draft = self.without(step);
        draft.located(target, Some(step.secondary));
        draft.add_primary(step.secondary, step.force_primary)?;
        draft.remove_primary(step.secondary);
        draft.add_primary(target, step.force_primary)?;
        draft.add_secondary(step.secondary, target, false, step.force_primary)?;
        Ok(draft.finish(placed(target, Some(step.secondary))))
    }

    fn draft_replace_secondary(&self, step: &Step, target: NodeIndex) -> Result<Change, Refusal> {
        let mut draft = self.without(step);
        draft.located(step.primary, Some(target));
        draft.add_secondary(target, step.primary, false, step.force_secondary)?;
        draft.add_primary(step.primary, true)?;
        Ok(draft.finish(placed(step.primary, Some(target))))
    }

    fn draft_replace_and_failover(
        &self,
        step: &Step,
        target: NodeIndex,
    ) -> Result<Change, Refusal> {
        self.check_migration(step.primary, target)?;
        let mut draft = self.without(step);
        draft.located(target, Some(step.primary));
        draft.add_primary(target, step.ignore_soft)?;
        draft.add_secondary(step.primary, target, false, step.force_secondary)?;
        Ok(draft.finish(placed(target, Some(step.primary))))
    }

    fn draft_failover_and_replace(
        &self,
        step: &Step,
        target: NodeIndex,
    ) -> Result<Change, Refusal> {
        self.check_migration(step.primary, step.secondary)?;
        let mut draft = self.without(step);
        draft.located(step.secondary, Some(target));
        draft.add_primary(step.secondary, step.force_primary)?;
        draft.add_secondary(target, step.secondary, false, step.force_primary)?;
        Ok(draft.finish(placed(step.secondary, Some(target))))
    }

    /// Returns a draft in which a mirrored instance is on neither of its nodes.
    fn without(&self, step: &Step) -> Draft<'_> {
        let mut draft = Draft::new(self, step.instance);
        draft.remove_primary(step.primary);
        draft.remove_secondary(step.secondary, step.primary);
        draft
    }
}

/// A mirrored instance that is about to move.
struct Step {
    instance: InstanceIndex,
    primary: NodeIndex,
    secondary: NodeIndex,
    /// Soft checks are skipped for what leaves the primary.
    force_primary: bool,
    /// Soft checks are skipped for what leaves the secondary.
    force_secondary: bool,
    ignore_soft: bool,
}

fn placed(primary: NodeIndex, secondary: Option<NodeIndex>) -> Placement {
    Placement {
        primary: Some(primary),
        secondary,
    }
}
