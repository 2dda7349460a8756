//! Members that come, go and lose their directories, and the administrators who see to it.
//!
//! Invariants, of which the production code is to keep the first, as no directory is lost while the
//! others are no quorum:
//! * The voters whose directories are whole are a quorum, at each moment.
//! * In the end each member of the configuration has a program, and each program is a member.
//! * What was acknowledged, that a member joined or was removed, is so in the end.

use std::sync::Arc;

use berth_decide::joining::CHANGE_PENDING;
use berth_store::Membership;

use super::{Event, Run, index};
use crate::administrator::{Done, Task};
use crate::asker::{Out, Timer};
use crate::member::{Ended, Joining, site_of};
use crate::packet::{CallNumber, MembersRequest, MembersResponse, Node, Packet, Question, Told};

/// Raft counts a member as active for up to an election timeout after its last word. For this long
/// after a directory is lost no removal is begun, neither of that member nor of another one.
const GRACE_MS: u64 = 3_000;
/// For how long after a request to remove a member no directory is lost: the request may be under way.
const REMOVAL_MS: u64 = 10_000;
/// How long an administrator waits for a removed member to end.
const CLEAR_MS_MAX: u64 = 15_000;

impl Run {
    /// Has the administrators begin.
    pub(super) fn begin_administration(&mut self) {
        for number in 0..self.administration.administrators.len() {
            let first = self.administration.chance.between(3_000, 8_000);
            self.schedule(first, Event::Administer(number));
        }
    }

    /// Returns the membership of the furthest member that ever was; that of the beginning before.
    pub(super) fn membership(&self) -> Arc<Membership> {
        self.latest_membership.1.clone()
    }

    /// Takes note of what a member has applied.
    pub(super) fn follow_membership(&mut self, site: u64) {
        let member = &self.members[index(site)];
        if let (Some(position), Some(membership)) = (member.position(), member.membership())
            && position.index > self.latest_membership.0
            && !membership.members.is_empty()
        {
            self.latest_membership = (position.index, membership.clone());
        }
    }

    /// Returns whether the directory of this member is whole.
    fn is_intact(&self, id: u64) -> bool {
        let mut members = self.members.iter();
        members.any(|member| {
            let is_lost = self.administration.lost.contains_key(&member.site());
            member.id() == Some(id) && member.is_intact() && !is_lost
        })
    }

    /// Checks that the voters with whole directories are a quorum.
    pub(super) fn quorum_is_whole(&self) -> Result<(), String> {
        if !self.has_administration() {
            return Ok(());
        }
        let membership = self.membership();
        for voters in [&membership.voters, &membership.voters_outgoing] {
            let intact = voters.iter().filter(|id| self.is_intact(**id)).count();
            if !voters.is_empty() && intact * 2 <= voters.len() {
                return Err(format!(
                    "the quorum is lost: of the voters {voters:?} the directories of {intact} are \
                     whole"
                ));
            }
        }
        Ok(())
    }

    /// Returns whether the group survives it if this machine's directory is lost now.
    pub(super) fn can_lose(&self, site: u64) -> bool {
        let member = &self.members[index(site)];
        let membership = self.membership();
        let Some(id) = member.id().filter(|_| member.is_intact()) else {
            return false;
        };
        let is_calm = !self.administration.removes()
            && !self.administration.is_busy_with(site)
            && self.now > self.administration.removal_at + REMOVAL_MS;
        if !is_calm || membership.get(id).is_none() || !membership.voters_outgoing.is_empty() {
            return false;
        }
        let is_whole = |voter: &u64| *voter != id && self.is_intact(*voter);
        let left = membership.voters.iter().filter(|v| is_whole(v)).count();
        // A learner that is lost may be promoted all the same: its last word counts for a while.
        let learners = membership.learners.iter().filter(|l| !is_whole(l)).count();
        left * 2 > membership.voters.len() + learners
    }

    /// Takes note that a machine's directory is lost or damaged.
    pub(super) fn mark_lost(&mut self, site: u64, id: u64) {
        let now = self.now;
        self.administration.lost.insert(site, (id, now));
    }

    /// Loses the directory of a machine.
    pub(super) fn lose_directory(&mut self, site: u64) {
        if !self.can_lose(site) {
            return;
        }
        if let Some(id) = self.members[index(site)].id() {
            self.crash(Node::Member(site));
            self.members[index(site)].delete_directory();
            self.copies.remove(&site);
            self.mark_lost(site, id);
        }
    }

    /// Has an administrator go on with what it is about.
    pub(super) fn administer(&mut self, number: usize) -> Result<(), String> {
        let again = self.administration.chance.between(200, 1_500);
        self.schedule(again, Event::Administer(number));
        let administrator = &self.administration.administrators[number];
        if administrator.call.is_some() {
            return Ok(());
        }
        if administrator.task == Task::Idle {
            let task = self.next_task();
            self.administration.administrators[number].task = task;
        }
        match self.administration.administrators[number].task {
            Task::Idle => {}
            Task::Remove { id, .. } => {
                self.administration.removal_at = self.now;
                self.administration.requested.insert(id);
                self.request(number, MembersRequest::Remove(id));
            }
            Task::Clear {
                site,
                until,
                replace,
            } => self.clear(number, site, until, replace),
            Task::Add { site } => {
                let address = crate::member::address_of(site);
                self.request(number, MembersRequest::Add(address));
            }
            Task::Join { site, promote } => self.watch_join(number, site, promote)?,
            Task::Promote { id, .. } => self.request(number, MembersRequest::Promote(id)),
            Task::Transfer { target } => {
                self.request(number, MembersRequest::Transfer(target));
            }
        }
        Ok(())
    }

    /// Returns what is to be done next: repairs first, and while there are faults anything.
    fn next_task(&mut self) -> Task {
        let membership = self.membership();
        if let Some(site) = self.left_over() {
            return self.clear_later(site, false);
        }
        let lost = self.administration.lost.iter();
        let now = self.now;
        let lost = lost.filter(|(site, (_, since))| {
            !self.administration.is_busy_with(**site) && now > since + GRACE_MS
        });
        let lost = lost.map(|(site, (id, _))| (*site, *id)).next();
        if let Some((site, id)) = lost {
            let is_mistaken = !self.healed && self.administration.chance.percent(30);
            // Another directory may be lost since.
            let is_mistaken = is_mistaken && !self.has_lost_lately();
            return match self.other_member(&membership, site) {
                Some((site, id)) if is_mistaken => Task::Remove {
                    site,
                    id,
                    replace: false,
                },
                Some(_) | None => Task::Remove {
                    site,
                    id,
                    replace: true,
                },
            };
        }
        if self.healed || !self.options.has_membership {
            return Task::Idle;
        }
        let task = self.any_task(&membership);
        // The leader may still take the lost member for one that answers.
        let is_too_early = matches!(task, Task::Remove { .. }) && self.has_lost_lately();
        if is_too_early { Task::Idle } else { task }
    }

    /// Returns whether a directory was lost so lately that the leader may not know it.
    fn has_lost_lately(&self) -> bool {
        let mut lost = self.administration.lost.values();
        lost.any(|(_, since)| self.now <= since + GRACE_MS)
    }

    fn any_task(&mut self, membership: &Membership) -> Task {
        let kind = self.administration.chance.between(1, 14);
        match kind {
            1..=5 => match self.spare_site() {
                Some(site) if kind <= 3 => {
                    self.begin_join(site);
                    Task::Join {
                        site,
                        promote: false,
                    }
                }
                Some(site) => Task::Add { site },
                None => Task::Idle,
            },
            6..=8 => {
                let fewest = 1 + u64::from(self.administration.chance.percent(85));
                match self.other_member(membership, 0) {
                    Some((site, id)) if membership.voters.len() as u64 > fewest => Task::Remove {
                        site,
                        id,
                        replace: self.administration.chance.percent(30),
                    },
                    Some(_) | None => Task::Idle,
                }
            }
            9..=10 => {
                let any = self.administration.chance.pick(&membership.voters).copied();
                let target = any.filter(|_| self.administration.chance.percent(60));
                Task::Transfer { target }
            }
            _ => Task::Idle,
        }
    }

    /// Returns a member that no administrator is about, on another machine than this one.
    fn other_member(&mut self, membership: &Membership, site: u64) -> Option<(u64, u64)> {
        let members = membership.members.iter();
        let members: Vec<(u64, u64)> = members
            .filter_map(|member| Some((site_of(&member.address)?, member.id)))
            .filter(|(other, id)| {
                *other != site
                    && !self.administration.is_busy_with(*other)
                    && self.members[index(*other)].id() == Some(*id)
            })
            .collect();
        self.administration.chance.pick(&members).copied()
    }

    /// Returns a machine on which there is nothing.
    fn spare_site(&self) -> Option<u64> {
        (1..=self.sites()).find(|site| {
            let member = &self.members[index(*site)];
            member.id().is_none()
                && !member.is_up()
                && member.peers.is_empty()
                && !self.administration.is_busy_with(*site)
                && !self.administration.lost.contains_key(site)
        })
    }

    /// Returns a machine whose member was removed, and whose directory is still there.
    fn left_over(&self) -> Option<u64> {
        let membership = self.membership();
        (1..=self.sites()).find(|site| {
            let id = self.members[index(*site)].id();
            let is_removed = |id| membership.get(id).is_none() && id < membership.next_id;
            id.is_some_and(is_removed) && !self.administration.is_busy_with(*site)
        })
    }

    fn begin_join(&mut self, site: u64) {
        let membership = self.membership();
        let mut peers: Vec<u64> = (membership.members.iter())
            .filter_map(|member| site_of(&member.address))
            .filter(|peer| *peer != site)
            .collect();
        if !peers.is_empty() {
            let first = self.administration.chance.index(peers.len());
            peers.rotate_left(first);
        }
        self.members[index(site)].peers = peers;
    }

    fn clear_later(&mut self, site: u64, replace: bool) -> Task {
        let wait = self.administration.chance.between(100, CLEAR_MS_MAX);
        Task::Clear {
            site,
            until: self.now + wait,
            replace,
        }
    }

    fn clear(&mut self, number: usize, site: u64, until: u64, replace: bool) {
        let member = &self.members[index(site)];
        let has_ended = matches!(member.ended, Some(Ended::Removed));
        if member.is_up() && self.now < until {
            return;
        }
        self.administration.done.ended += usize::from(has_ended);
        self.members[index(site)].delete_directory();
        self.copies.remove(&site);
        self.damaged.remove(&site);
        self.administration.lost.remove(&site);
        if replace {
            self.begin_join(site);
        }
        self.administration.administrators[number].task = match replace {
            true => Task::Join {
                site,
                promote: false,
            },
            false => Task::Idle,
        };
    }

    /// Starts a member that is to join, again where its program has ended, until it has joined.
    fn watch_join(&mut self, number: usize, site: u64, promote: bool) -> Result<(), String> {
        if let Some(id) = self.members[index(site)].id() {
            self.administration.administrators[number].task = match promote {
                true => Task::Promote { site, id },
                false => Task::Idle,
            };
            return Ok(());
        }
        if self.members[index(site)].is_up() {
            return Ok(());
        }
        // The members that were named may be gone.
        self.begin_join(site);
        self.restart(Node::Member(site))
    }

    /// Goes on with a member that joins.
    pub(super) fn joining(&mut self, site: u64, joining: Joining) -> Result<(), String> {
        let node = Node::Member(site);
        match joining {
            Joining::Goes(outs) => {
                self.out(node, outs);
                Ok(())
            }
            Joining::Failed => Ok(()),
            Joining::Joined(id) => {
                self.administration.joined.insert(id, site);
                self.administration.done.joined += 1;
                self.restart(node)
            }
        }
    }

    /// Returns whether a packet comes from a member that has ended: its connection has too. As late as
    /// packets are here, a lost member would else count as active for long.
    pub(super) fn is_of_ended_stream(&self, from: Node, packet: &Packet) -> bool {
        let (Packet::Raft(hello, _) | Packet::Snapshot(hello, ..)) = packet else {
            return false;
        };
        let Node::Member(site) = from else {
            return false;
        };
        let member = &self.members[index(site)];
        !member.is_running() || member.life != hello.life
    }

    fn request(&mut self, number: usize, request: MembersRequest) {
        let call = self.numbers.fresh();
        let administrator = &mut self.administration.administrators[number];
        administrator.call = Some(call);
        let to = Node::Member(administrator.target);
        // Some administrators wait longer than the members do, some not as long.
        let wait = match self.administration.chance.percent(20) {
            true => self.administration.chance.between(50, 2_000),
            false => 12_000,
        };
        let packet = Packet::Question(call, Box::new(Question::Members(request)));
        let outs = vec![
            Out::Send(to, packet),
            Out::Timer(wait, Timer::Unanswered(call)),
        ];
        self.out(Node::Administrator(number), outs);
    }

    /// Takes the response to an administrator's request; none when it stopped waiting.
    pub(super) fn administrator_learns(
        &mut self,
        number: usize,
        call: CallNumber,
        told: Option<Told>,
    ) {
        let next = self.next_target(number);
        let administrator = &mut self.administration.administrators[number];
        if administrator.call.take_if(|own| *own == call).is_none() {
            return;
        }
        match told {
            Some(Told::Members(MembersResponse::Refused(refusal))) => {
                self.refused(number, &refusal.reason);
            }
            Some(Told::Members(MembersResponse::Done)) => self.done(number, None),
            Some(Told::Members(MembersResponse::Member(id))) => self.done(number, Some(id)),
            Some(Told::NotLeader(leader)) => administrator.target = leader.unwrap_or(next),
            None
            | Some(
                Told::Lost
                | Told::Members(MembersResponse::Status(_))
                | Told::Decided(_)
                | Told::Facts(_)
                | Told::Drain(_)
                | Told::Expired(_)
                | Told::Registered(_)
                | Told::Service(_)
                | Told::Expected(_)
                | Told::Erasures(_)
                | Told::Volumes(_),
            ) => administrator.target = next,
        }
    }

    fn next_target(&self, number: usize) -> u64 {
        self.administration.administrators[number].target % self.sites() + 1
    }

    fn done(&mut self, number: usize, added: Option<u64>) {
        let done = &mut self.administration.done;
        let task = self.administration.administrators[number].task;
        let next = match task {
            Task::Remove { site, id, replace } => {
                done.removed += 1;
                self.administration.removed.insert(id);
                match self.members[index(site)].id() {
                    // Another member began there meanwhile.
                    Some(other) if other != id => Task::Idle,
                    Some(_) | None => self.clear_later(site, replace),
                }
            }
            Task::Add { site } => {
                if let Some(id) = added {
                    self.administration.joined.insert(id, site);
                }
                self.begin_join(site);
                Task::Join {
                    site,
                    promote: true,
                }
            }
            Task::Promote { .. } => {
                done.promoted += 1;
                Task::Idle
            }
            Task::Transfer { .. } => {
                done.transferred += 1;
                Task::Idle
            }
            Task::Idle | Task::Clear { .. } | Task::Join { .. } => task,
        };
        self.administration.administrators[number].task = next;
    }

    fn refused(&mut self, number: usize, reason: &str) {
        let Done { refused, .. } = &mut self.administration.done;
        let task = self.administration.administrators[number].task;
        let is_later = reason == CHANGE_PENDING || reason == "NOT_LEADER";
        let next = match (task, reason) {
            _ if is_later => task,
            // An earlier attempt was made.
            (Task::Remove { .. }, "MEMBER_NOT_FOUND") => return self.done(number, None),
            (Task::Remove { .. }, "QUORUM_WOULD_BE_LOST") => {
                *refused += 1;
                Task::Idle
            }
            // Announced by an earlier attempt.
            (Task::Add { .. }, "MEMBER_EXISTS") => return self.done(number, None),
            (Task::Add { .. }, "MEMBERSHIP_CHANGE_REFUSED") => task,
            (Task::Remove { id, .. }, "MEMBERSHIP_CHANGE_REFUSED")
                if self.membership().get(id).is_none() =>
            {
                return self.done(number, None);
            }
            // It has not caught up.
            (Task::Promote { site, id }, "MEMBERSHIP_CHANGE_REFUSED")
                if self.membership().is_learner(id) =>
            {
                Task::Promote { site, id }
            }
            (
                Task::Idle
                | Task::Remove { .. }
                | Task::Clear { .. }
                | Task::Add { .. }
                | Task::Join { .. }
                | Task::Promote { .. }
                | Task::Transfer { .. },
                _,
            ) => Task::Idle,
        };
        self.administration.administrators[number].task = next;
    }

    /// Returns whether the members are as the administrators left them, and nothing is under way.
    pub(super) fn membership_is_at_rest(&self, membership: &Membership) -> bool {
        if !self.has_administration() {
            return true;
        }
        let is_member = |site: &u64| {
            let member = &self.members[index(*site)];
            member.id().is_none_or(|id| membership.get(id).is_some())
        };
        let promoted = membership
            .members
            .iter()
            .all(|member| !membership.is_learner(member.id) || !member.promote);
        self.administration.is_over()
            && promoted
            && membership.voters_outgoing.is_empty()
            && (1..=self.sites()).all(|site| is_member(&site))
    }

    /// Checks the members against the machines and against what was acknowledged.
    pub(super) fn members_are_whole(&self, membership: &Membership) -> Result<(), String> {
        if !self.has_administration() {
            return Ok(());
        }
        for member in &membership.members {
            let site = site_of(&member.address).unwrap_or_default();
            let running = self.members.iter().find(|m| m.id() == Some(member.id));
            if !running.is_some_and(|m| m.is_running()) {
                return Err(format!(
                    "member {} on machine {site} has no program: {membership:?}",
                    member.id
                ));
            }
        }
        let administration = &self.administration;
        for id in &administration.removed {
            if membership.get(*id).is_some() {
                return Err(format!(
                    "member {id} was removed and is there: {membership:?}"
                ));
            }
        }
        for (id, site) in &administration.joined {
            // A request that an administrator stopped waiting for may have been carried out.
            let was_removed = administration.requested.contains(id);
            if membership.get(*id).is_none() && !was_removed {
                return Err(format!(
                    "member {id} joined on machine {site} and is not there: {membership:?}"
                ));
            }
        }
        for member in self.members.iter().filter(|member| member.is_up()) {
            if member.id().is_none_or(|id| membership.get(id).is_none()) {
                return Err(format!("{:?} runs and is no member", member.id()));
            }
        }
        Ok(())
    }
}
