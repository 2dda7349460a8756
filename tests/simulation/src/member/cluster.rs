//! The service `ClusterService` of a member, as far as it is about the members.
//!
//! What is decided is [`berth_scheduler::membership`] and the replica, as in production. Between
//! two steps of a handler other things may happen, as between two of its awaits there.

use std::sync::Arc;

use berth_domain::id::TimeMs;
use berth_domain::refusal::{Code, Refusal};
use berth_domain::version::ServiceVersion;
use berth_replication::{Addition, Change, Refused, Ticket};
use berth_scheduler::membership::{Knowledge, Members, expect_version, has_taken_over, refusal_of};
use berth_store::{Member as MemberEntry, Membership};

use super::{Running, Waiter, site_of};
use crate::bug::Bug;
use crate::member::Want;
use crate::packet::{CallNumber, MembersRequest, MembersResponse, Node, Packet, Question, Told};

/// How long a member may take to respond before it counts as unreachable.
const HEARING_MS: u64 = 3_000;
/// How long a transfer of leadership may take.
const TRANSFER_MS: u64 = 10_000;
/// For how many ticks a member is without a leader before it queries the others.
const LEADERLESS_TICKS: u64 = 40;

/// A request that was begun.
#[derive(Debug)]
pub(super) struct Begun {
    from: Node,
    call: CallNumber,
    stage: Stage,
}

#[derive(Debug)]
enum Stage {
    /// Waits until the members that answer are a quorum without this one.
    Checking(u64, TimeMs),
    /// The member is to be removed from this membership.
    Checked(u64, Arc<Membership>),
    /// Waits until another member leads.
    Transferring(Option<u64>, TimeMs),
}

/// Queries of a member that has no leader.
#[derive(Debug, Default)]
pub(super) struct Queries {
    leaderless_ticks: u64,
    last: u64,
}

impl Running {
    /// Takes a request for the members.
    pub(super) fn take_members_request(
        &mut self,
        now: TimeMs,
        from: Node,
        call: CallNumber,
        request: MembersRequest,
    ) -> Vec<Want> {
        let response = |response| vec![send(from, call, Told::Members(response))];
        if request == MembersRequest::Status {
            return response(MembersResponse::Status(self.knowledge()));
        }
        if !self.replica.role().deciding {
            return vec![self.not_leader(from, call)];
        }
        match self.begin(now, from, call, request) {
            Ok(Some(done)) => response(done),
            Ok(None) => Vec::new(),
            Err(refusal) => response(MembersResponse::Refused(refusal)),
        }
    }

    /// Begins a request at the leader. Returns the response if there is one at once.
    fn begin(
        &mut self,
        now: TimeMs,
        from: Node,
        call: CallNumber,
        request: MembersRequest,
    ) -> Result<Option<MembersResponse>, Refusal> {
        let membership = self.replica.membership().clone();
        let progress = self.replica.progress();
        let members = Members {
            own: self.replica.id(),
            membership: &membership,
            progress: &progress,
        };
        match request {
            MembersRequest::Status => Ok(None),
            MembersRequest::Join(address, disk) => {
                let state = self
                    .replica
                    .machine()
                    .map(berth_scheduler::machine::Machine::state);
                let cluster = state.map_or(ServiceVersion::OLDEST, |s| s.header().cluster_version);
                expect_version(ServiceVersion::CURRENT, cluster)?;
                match members.known_learner(&address, &disk)? {
                    Some(id) => Ok(Some(MembersResponse::Member(id))),
                    None => self.add(from, call, address, disk, true),
                }
            }
            MembersRequest::Add(address) => {
                members.expect_free(&address)?;
                self.add(from, call, address, String::new(), false)
            }
            MembersRequest::Promote(id) => {
                members.known(id)?;
                let ticket = self.wait(Waiter::Change(from, call, None));
                let changes = [Change::Promote(id)];
                let proposed = self.replica.change_or_hand_over(ticket, &changes);
                self.proposed(ticket, proposed)
            }
            MembersRequest::Remove(id) => {
                members.known(id)?;
                let stage = Stage::Checking(id, TimeMs(now.0 + HEARING_MS));
                self.begun.push(Begun { from, call, stage });
                Ok(None)
            }
            MembersRequest::Transfer(target) => {
                target.map_or(Ok(()), |id| members.known(id))?;
                if target != Some(members.own) {
                    let to = target.or_else(|| self.replica.furthest_voter());
                    let to = to.ok_or(Refused::Change("there is no other voter"));
                    let requested = to.and_then(|to| self.replica.transfer_leader(to));
                    requested.map_err(|refused| {
                        refusal_of(&refused).unwrap_or_else(|| not_now(&refused))
                    })?;
                }
                let stage = Stage::Transferring(target, TimeMs(now.0 + TRANSFER_MS));
                self.begun.push(Begun { from, call, stage });
                Ok(None)
            }
        }
    }

    fn add(
        &mut self,
        from: Node,
        call: CallNumber,
        address: String,
        disk: String,
        promote: bool,
    ) -> Result<Option<MembersResponse>, Refusal> {
        let member = MemberEntry {
            id: 0,
            address,
            disk,
            promote,
        };
        let ticket = self.wait(Waiter::Change(from, call, None));
        match self.replica.add_member(ticket, member) {
            Ok(Addition::Known(id)) => {
                self.waiters.remove(&ticket.0);
                Ok(Some(MembersResponse::Member(id)))
            }
            Ok(Addition::Proposed(id)) => {
                let waiter = Waiter::Change(from, call, Some(id));
                self.waiters.insert(ticket.0, waiter);
                Ok(None)
            }
            Err(refused) => self.proposed(ticket, Err(refused)),
        }
    }

    /// Ends the wait for a change that was refused.
    fn proposed(
        &mut self,
        ticket: Ticket,
        proposed: Result<(), Refused>,
    ) -> Result<Option<MembersResponse>, Refusal> {
        let Err(refused) = proposed else {
            return Ok(None);
        };
        self.waiters.remove(&ticket.0);
        Err(refusal_of(&refused).unwrap_or_else(|| not_now(&refused)))
    }

    /// Goes on with the requests that were begun.
    pub(super) fn go_on_with_members(&mut self, now: TimeMs, bug: Option<Bug>) -> Vec<Want> {
        let mut wants = Vec::new();
        for Begun { from, call, stage } in std::mem::take(&mut self.begun) {
            let stage = match stage {
                Stage::Checking(..) | Stage::Checked(..) if !self.replica.role().deciding => {
                    wants.push(self.not_leader(from, call));
                    continue;
                }
                Stage::Checking(id, until) => match self.check_removal(id, bug) {
                    Ok(membership) => Ok(Stage::Checked(id, membership)),
                    Err(refusal) if now >= until => Err(MembersResponse::Refused(refusal)),
                    Err(_) => Ok(Stage::Checking(id, until)),
                },
                Stage::Checked(id, membership) => {
                    let ticket = self.wait(Waiter::Change(from, call, None));
                    let changes = [Change::Remove(id)];
                    let changed = self.replica.change_checked(ticket, &changes, &membership);
                    match changed {
                        Ok(()) => continue,
                        Err(Refused::Transferring { to }) => {
                            self.waiters.remove(&ticket.0);
                            let to = membership.get(to).and_then(|m| site_of(&m.address));
                            wants.push(send(from, call, Told::NotLeader(to)));
                            continue;
                        }
                        Err(refused) => {
                            self.waiters.remove(&ticket.0);
                            let refusal = refusal_of(&refused).unwrap_or_else(|| not_now(&refused));
                            Err(MembersResponse::Refused(refusal))
                        }
                    }
                }
                Stage::Transferring(target, until) => {
                    let leader = self.replica.role().leader;
                    match has_taken_over(leader, self.replica.id(), target) {
                        true => Err(MembersResponse::Done),
                        false if now >= until => Err(MembersResponse::Refused(not_taken_over())),
                        false => Ok(Stage::Transferring(target, until)),
                    }
                }
            };
            match stage {
                Ok(stage) => self.begun.push(Begun { from, call, stage }),
                Err(response) => wants.push(send(from, call, Told::Members(response))),
            }
        }
        wants
    }

    fn check_removal(&self, id: u64, bug: Option<Bug>) -> Result<Arc<Membership>, Refusal> {
        let membership = self.replica.membership().clone();
        let members = Members {
            own: self.replica.id(),
            membership: &membership,
            progress: &self.replica.progress(),
        };
        match bug {
            Some(Bug::RemoveBelowQuorum) => {}
            Some(_) | None => members.keep_quorum_without(id)?,
        }
        Ok(membership)
    }

    fn knowledge(&self) -> Knowledge {
        let members = self.replica.membership().members.iter();
        Knowledge {
            id: self.replica.id(),
            applied: self.replica.position().index,
            members: members.map(|member| member.id).collect(),
        }
    }

    /// Queries the others when this member has had no leader for a while: it may have been removed.
    pub(super) fn query_others(&mut self) -> Vec<Want> {
        let has_leader = self.replica.role().leader.is_some();
        self.queries.leaderless_ticks = match has_leader {
            true => 0,
            false => self.queries.leaderless_ticks + 1,
        };
        if self.queries.leaderless_ticks < LEADERLESS_TICKS {
            return Vec::new();
        }
        self.queries.leaderless_ticks = 0;
        let own = self.replica.id();
        let membership = self.replica.membership().clone();
        let others = membership.members.iter().filter(|member| member.id != own);
        let others = others.filter_map(|member| site_of(&member.address));
        let mut wants = Vec::new();
        for other in others {
            self.queries.last += 1;
            let call = self.query_call(self.queries.last);
            let question = Question::Members(MembersRequest::Status);
            let packet = Packet::Question(call, Box::new(question));
            wants.push(Want::Send(Node::Member(other), packet));
        }
        wants
    }

    /// Numbers a query; unique over all members and all their starts.
    fn query_call(&self, number: u64) -> CallNumber {
        CallNumber((1 << 62) | (self.replica.id() << 48) | (self.life << 24) | number)
    }

    /// Takes a response to a query of its own. Returns whether it was one.
    pub(super) fn take_knowledge(&mut self, call: CallNumber, told: &Told) -> bool {
        let Told::Members(MembersResponse::Status(theirs)) = told else {
            return false;
        };
        if call <= self.query_call(self.queries.last) && call > self.query_call(0) {
            self.removed |= self.knowledge().is_removed_by(theirs);
        }
        true
    }
}

fn send(to: Node, call: CallNumber, told: Told) -> Want {
    Want::Send(to, Packet::Told(call, Box::new(told)))
}

/// The status that redirects to the leader, where that is not known.
fn not_now(refused: &Refused) -> Refusal {
    Refusal::new(Code::Unavailable, "NOT_LEADER", refused.to_string())
}

fn not_taken_over() -> Refusal {
    Refusal::new(
        Code::DeadlineExceeded,
        "NOT_TAKEN_OVER",
        "no other member took leadership over in time",
    )
}
