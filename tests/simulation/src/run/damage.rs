//! Disks that lose what they had synchronised.
//!
//! | what | what must follow |
//! |---|---|
//! | the log lost its end, or is an older one, or is gone; the witness is empty | the member refuses to start, and is replaced |
//! | the whole directory is an older one | a member notices, or nothing is lost |
//! | power was lost while the witness was written | nothing: the member starts |

use berth_replication::Fatal;
use berth_store::{Loss, MemoryCopy, Record};

use super::{Event, Run, index};
use crate::bug::Bug;
use crate::chance::Chance;
use crate::member::Ended;
use crate::packet::Node;

/// How often disks are copied.
const COPY_MS: u64 = 3_000;
/// How many copies of a disk are kept.
const COPIES: usize = 6;
/// How long the members may take to notice that they have two histories.
pub(super) const NOTICE_MS: u64 = 60_000;

/// What is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Damage {
    /// The end of the log, behind an earlier moment: so many copies before the last.
    LogBehind(usize),
    /// The log.
    Log,
    /// The records of the witness.
    Witness,
}

/// What was seen of damage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// Members that refused to start.
    pub refused: usize,
    /// Members that stopped because of another's word.
    pub contradicted: usize,
    /// Runs in which a quorum went on without what it had acknowledged.
    pub split: usize,
}

impl Run {
    /// Plans the damage of a run.
    pub(super) fn plan_damage(&mut self) {
        let mut chance = Chance::new(self.options.seed ^ 0x44_41_4d_41_47_45);
        let end = self.options.faults_ms;
        if self.options.has_damage || self.options.has_rollback {
            (1..end / COPY_MS).for_each(|at| self.schedule(at * COPY_MS, Event::CopyDisks));
        }
        let mut at = chance.between(6_000, 12_000);
        while at < end && (self.options.has_damage || self.options.has_membership) {
            let site = chance.between(1, self.sites());
            let event = match (self.options.has_damage, chance.between(1, 8)) {
                (true, 1..=3) => Event::Damage(site, Damage::LogBehind(chance.index(COPIES))),
                (true, 4..=5) => Event::Damage(site, Damage::Log),
                (true, 6) => Event::Damage(site, Damage::Witness),
                (true, _) | (false, _) => Event::LoseDirectory(site),
            };
            self.schedule(at, event);
            at += chance.between(3_000, 12_000);
        }
        if self.options.has_rollback {
            self.plan_rollback(&mut chance);
        }
        self.damage_chance = chance;
    }

    /// Plans that a directory is put back, while another member lacks what it loses and the one that
    /// knows better is cut off.
    fn plan_rollback(&mut self, chance: &mut Chance) {
        let mut sites = [1, 2, 3];
        let first = chance.index(3);
        sites.rotate_left(first);
        if chance.percent(50) {
            sites.swap(1, 2);
        }
        let [older, behind, ahead] = sites;
        let copied = chance.between(5, 12) * COPY_MS;
        let put_back = copied + chance.between(500, 15_000);
        self.rolled_back = older;
        self.schedule(copied + 1, Event::KeepCopy(older));
        if chance.percent(70) {
            let time = put_back - copied;
            self.schedule(copied, Event::Fault(isolate(behind, time)));
        }
        if chance.percent(70) {
            let time = chance.between(2_000, 20_000);
            self.schedule(put_back - 1, Event::Fault(isolate(ahead, time)));
        }
        self.schedule(put_back, Event::PutBack(older));
    }

    /// Copies the disks.
    pub(super) fn copy_disks(&mut self) {
        for site in 1..=self.sites() {
            let Some(disk) = self.members[index(site)].disk() else {
                continue;
            };
            let copies = self.copies.entry(site).or_default();
            copies.push(disk.copy());
            if copies.len() > COPIES {
                copies.remove(0);
            }
        }
    }

    /// Keeps the copy that will be put back.
    pub(super) fn keep_copy(&mut self, site: u64) {
        self.kept_copy = self.members[index(site)].disk().map(|disk| disk.copy());
    }

    /// Puts a whole directory back.
    pub(super) fn put_back(&mut self, site: u64) {
        let copy = self.kept_copy.take();
        let disk = self.members[index(site)].disk();
        if let (Some(copy), Some(disk)) = (copy, disk) {
            self.crash(Node::Member(site));
            disk.put_back(&copy);
            let later = self.damage_chance.between(100, 2_000);
            self.schedule(later, Event::Restart(Node::Member(site)));
        }
    }

    /// Cuts the power of a machine and damages its disk, where the group survives that.
    pub(super) fn damage(&mut self, site: u64, damage: Damage) {
        let Some(disk) = self.members[index(site)].disk() else {
            return;
        };
        if !self.can_lose(site) {
            return;
        }
        let copies = self.copies.get(&site).map_or(&[][..], Vec::as_slice);
        let older = |back: usize| -> Option<MemoryCopy> {
            let at = copies.len().checked_sub(1)?.saturating_sub(back);
            copies
                .get(at)
                .filter(|copy| disk.is_ahead_of(copy))
                .cloned()
        };
        let copy = match damage {
            Damage::LogBehind(back) => match older(back) {
                Some(copy) => Some(copy),
                None => return,
            },
            Damage::Log | Damage::Witness => None,
        };
        self.members[index(site)].crash_with(&mut self.damage_chance, Record::Kept);
        match (damage, copy) {
            (Damage::LogBehind(_), Some(copy)) => disk.put_back_log(&copy),
            (Damage::Log, _) => disk.lose(Loss::Log),
            (Damage::Witness, _) => disk.lose(Loss::Witness),
            (Damage::LogBehind(_), None) => {}
        }
        self.damaged.insert(site);
        let id = self.members[index(site)].id().unwrap_or_default();
        self.mark_lost(site, id);
        let later = self.damage_chance.between(100, 3_000);
        self.schedule(later, Event::Restart(Node::Member(site)));
    }

    /// Draws what a loss of power leaves of the witness's newest record.
    pub(super) fn draw_record(&mut self) -> Record {
        if !self.options.has_damage {
            return Record::Kept;
        }
        match self.damage_chance.between(1, 4) {
            1 => Record::Lost,
            2 => Record::Torn,
            _ => Record::Kept,
        }
    }

    /// Checks that a member that was started refused if its disk is damaged, and only then.
    pub(super) fn after_start(&mut self, site: u64) -> Result<(), String> {
        let refused = match &self.members[index(site)].ended {
            Some(Ended::Refused(why)) => Some(why.clone()),
            Some(Ended::Removed | Ended::Contradicted(_)) | None => None,
        };
        match (refused, self.damaged.remove(&site)) {
            (Some(_), true) => {
                self.seen.refused += 1;
                Ok(())
            }
            (Some(why), false) => Err(format!("member on machine {site} refused to start: {why}")),
            (None, true) if self.options.bug == Some(Bug::IgnoreWitness) => {
                // It counts as whole again.
                self.administration.lost.remove(&site);
                Ok(())
            }
            (None, true) => Err(format!(
                "the member on machine {site} started, although its disk is damaged"
            )),
            (None, false) => Ok(()),
        }
    }

    /// Judges a run in which no member noticed that there are two histories.
    ///
    /// # Errors
    ///
    /// Where one could: it knows that an entry is committed which the others have replaced. Where only
    /// the member that forgot it knew that, as a leader just before its end, nothing shows it.
    pub(super) fn unnoticed(&self) -> Result<(), String> {
        let split = self.verdict.split.unwrap_or_default();
        let mut others = self
            .applied_at
            .iter()
            .filter(|(site, _)| **site != self.rolled_back);
        match others.find(|(_, applied)| **applied >= split) {
            None => Ok(()),
            Some((site, applied)) => Err(format!(
                "two histories are served from index {split} on; the member on machine {site} had \
                 applied {applied}, and no member notices"
            )),
        }
    }

    /// Takes note of a member that stopped because of another's word.
    ///
    /// # Errors
    ///
    /// Where no directory was put back: the disks' own damage shows at the start.
    pub(super) fn after_contradiction(&mut self, site: u64) -> Result<(), String> {
        let Some(Ended::Contradicted(fatal)) = &self.members[index(site)].ended else {
            return Ok(());
        };
        let what = format!("the member on machine {site} stopped: {fatal}");
        if !self.options.has_rollback {
            return Err(what);
        }
        if self.stopped.insert(site) {
            self.seen.contradicted += 1;
        }
        // The one that lost entries is replaced. Where one stops that knows better, or a member voted
        // twice, an administrator has to choose between two histories, and the run is over.
        let is_own_loss = match fatal {
            Fatal::LogLost { .. } | Fatal::LeaderBehind { .. } => site == self.rolled_back,
            Fatal::TwoLeaders { .. }
            | Fatal::LedTwice { .. }
            | Fatal::OtherContent { .. }
            | Fatal::OtherHistory { .. }
            | Fatal::Command { .. }
            | Fatal::Entry { .. }
            | Fatal::Diverged { .. }
            | Fatal::Prediction { .. }
            | Fatal::Invariant { .. }
            | Fatal::Raft(_) => false,
        };
        if is_own_loss && self.verdict.split.is_none() {
            if let Some(id) = self.members[index(site)].id()
                && !self.administration.lost.contains_key(&site)
            {
                self.mark_lost(site, id);
            }
        } else {
            self.is_over = true;
        }
        Ok(())
    }
}

fn isolate(site: u64, ms: u64) -> crate::faults::Fault {
    crate::faults::Fault::Isolate(Node::Member(site), ms)
}
