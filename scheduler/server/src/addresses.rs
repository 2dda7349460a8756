//! Records where members are reached now.
//!
//! A member that starts at another address than the recorded one states it to the members that it can
//! reach, and they reach it there (`berth_replication::transport::Addresses`). Clients and members that
//! start later know only the record, so the leader corrects it:
//!
//! ```text
//!   member: "I am at B", recorded at A ─▶ any member ─▶ leader ─▶ does B answer as that member? ─▶ record B
//!   leader: "I am at B", recorded at A ─▶ any member ─▶ does B answer as the leader? ─▶ leader ─▶ record B
//! ```
//!
//! A member that knows no leader reports to all where it is, and looks at the addresses of --join which
//! members are there: so members find each other that have all moved.
//!
//! Invariant: nothing is recorded that did not answer as the member at that address, but by an operator.

use std::collections::BTreeSet;
use std::time::Duration;

use berth_proto::client::Dialer;
use berth_proto::cluster::v1::UpdateMemberRequest;
use berth_replication::Refused;
use berth_replication::runtime::{MembershipError, Status};
use berth_store::Member;
use tokio::time::{MissedTickBehavior, interval};

use crate::join;
use crate::membership::At;
use crate::service::Context;

const INTERVAL: Duration = Duration::from_secs(1);
/// How long an address may take to answer.
const HEARING: Duration = Duration::from_secs(2);
/// How many different causes are logged.
const LOGGED_MAX: usize = 256;

/// What the task works with.
pub(crate) struct Recorder {
    pub(crate) context: Context,
    /// Where this member is reached.
    pub(crate) advertise: String,
    /// Addresses at which there may be members, from --join.
    pub(crate) introductions: Vec<String>,
}

/// A member, and the address that it states.
struct Moved {
    member: Member,
    address: String,
}

/// Returns who answers at an address.
pub(crate) async fn look_at(address: &str, cluster_id: &str, dialer: &Dialer) -> At {
    let status = join::status_of(address, dialer);
    match tokio::time::timeout(HEARING, status).await {
        Ok(Some(theirs)) if theirs.cluster_id == cluster_id => At::Member(theirs.member_id),
        Ok(Some(theirs)) => At::OtherCluster(theirs.cluster_id),
        Ok(None) | Err(_) => At::Silent,
    }
}

impl Recorder {
    /// Works until it is dropped.
    pub(crate) async fn run(self) {
        let mut ticks = interval(INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut logged = BTreeSet::new();
        loop {
            ticks.tick().await;
            let Some(status) = self.context.handle().status().await else {
                return;
            };
            let failures = match (status.role.leader, status.role.deciding) {
                (None, _) => self.introduce(&status).await,
                (Some(_), true) => self.record(&status).await,
                (Some(_), false) => self.report_others(&status).await,
            };
            for (Moved { member, address }, why) in failures {
                if logged.len() < LOGGED_MAX
                    && logged.insert((member.id, address.clone(), why.clone()))
                {
                    tracing::warn!(
                        member = member.id,
                        recorded = member.address,
                        stated = address,
                        reason = why,
                        "the address of a member cannot be recorded yet"
                    );
                }
            }
        }
    }

    /// Learns where other members are, and reports to them where this one is: it knows no leader, and a
    /// learner sends nothing by itself.
    async fn introduce(&self, status: &Status) -> Vec<(Moved, String)> {
        for address in &self.introductions {
            let at = self.look(address).await;
            if let At::Member(id) = at
                && id != status.id
            {
                self.context
                    .addresses()
                    .state(id, address, &status.membership);
            }
        }
        let others = status.membership.members.iter();
        let others = others.filter(|member| member.id != status.id);
        let known: BTreeSet<String> = others
            .flat_map(|member| self.context.addresses().candidates(member))
            .chain(self.introductions.iter().cloned())
            .filter(|address| *address != self.advertise)
            .collect();
        for address in known {
            // A member that does not lead names the leader.
            if let Err(Some(leader)) = self.report(&address, status.id, &self.advertise).await {
                let _ = self.report(&leader, status.id, &self.advertise).await;
            }
        }
        Vec::new()
    }

    /// Records the addresses at which members answer. The leader's own was seen by another member, if
    /// there is one: from its own machine it reaches itself under addresses that no other can dial.
    async fn record(&self, status: &Status) -> Vec<(Moved, String)> {
        let is_alone = status.membership.members.len() == 1;
        let (mut answering, mut failures) = (Vec::new(), Vec::new());
        for moved in self.moved(status) {
            if moved.member.id == status.id && !is_alone {
                let seen = self.context.addresses().stated(&moved.member);
                if seen.is_some_and(|seen| seen == moved.address) {
                    answering.push(moved);
                }
                continue;
            }
            let at = self.look(&moved.address).await;
            match at.expect_member(moved.member.id, &moved.address) {
                Ok(()) => answering.push(moved),
                Err(refusal) => failures.push((moved, refusal.message)),
            }
        }
        // All in one change, as two members may have swapped theirs.
        let moves = answering.iter();
        let moves = moves.map(|moved| (moved.member.id, moved.address.clone()));
        let moves: Vec<_> = moves.collect();
        if moves.is_empty() {
            return failures;
        }
        let handle = self.context.handle();
        let recorded = handle.record_addresses(moves, status.membership.clone());
        match recorded.await {
            Ok(_) => {
                for Moved { member, address } in &answering {
                    log_recorded(member, address);
                }
            }
            Err(MembershipError::Refused { refused, .. }) if is_for_good(&refused) => {
                let why = refused.to_string();
                failures.extend(answering.into_iter().map(|moved| (moved, why.clone())));
            }
            // It is tried again, here or by the next leader.
            Err(
                MembershipError::Refused { .. }
                | MembershipError::Lost { .. }
                | MembershipError::Stopped,
            ) => {}
        }
        failures
    }

    /// Reports to the leader where other members answer, and where the leader itself does.
    async fn report_others(&self, status: &Status) -> Vec<(Moved, String)> {
        let leader = self.context.handle().leader();
        let Some(leader) = &leader.member else {
            return Vec::new();
        };
        let leader = self.context.addresses().present(leader);
        let mut failures = Vec::new();
        for moved in self.moved(status) {
            let id = moved.member.id;
            if id != status.id {
                let at = self.look(&moved.address).await;
                if let Err(refusal) = at.expect_member(id, &moved.address) {
                    failures.push((moved, refusal.message));
                    continue;
                }
            }
            // The leader looks at it as well, and logs why it does not record it.
            let _ = self.report(&leader, id, &moved.address).await;
        }
        failures
    }

    /// Returns the members that state another address than the recorded one.
    fn moved(&self, status: &Status) -> Vec<Moved> {
        let stated = |member: &Member| match member.id == status.id {
            true => Some(self.advertise.clone()).filter(|own| *own != member.address),
            false => self.context.addresses().stated(member),
        };
        let members = status.membership.members.iter();
        let moved = members.filter_map(|member| {
            let address = stated(member)?;
            let member = member.clone();
            Some(Moved { member, address })
        });
        moved.collect()
    }

    /// Reports an address of a member to another one; returns the leader's address from one that does not
    /// lead.
    async fn report(&self, to: &str, id: u64, address: &str) -> Result<(), Option<String>> {
        let request = UpdateMemberRequest {
            member_id: id,
            address: address.to_owned(),
            reported: true,
        };
        let call = async {
            let mut client = join::client(to, self.context.dialer()).await?;
            client.update_member(request).await
        };
        let called = tokio::time::timeout(HEARING, call).await;
        let Err(status) = called.map_err(|_| None)? else {
            return Ok(());
        };
        let refusal = berth_proto::status::from_status(&status);
        let leader = refusal.metadata.get("leader");
        Err(leader.map(|leader| join::without_scheme(leader).to_owned()))
    }

    async fn look(&self, address: &str) -> At {
        look_at(address, self.context.cluster_id(), self.context.dialer()).await
    }
}

/// Returns whether trying again does not help.
fn is_for_good(refused: &Refused) -> bool {
    match refused {
        Refused::Change(_) => true,
        Refused::NotLeader { .. }
        | Refused::NotReady
        | Refused::Transferring { .. }
        | Refused::ChangePending => false,
    }
}

/// Logs that an address was recorded.
pub(crate) fn log_recorded(member: &Member, address: &str) {
    tracing::info!(
        member = member.id,
        address,
        before = member.address,
        "address of member recorded"
    );
}
