//! Records where members are reached now.
//!
//! A member that starts at another address than the recorded one states it to the members that it can
//! reach, and they reach it there (`berth_replication::transport::Addresses`). Clients and members that
//! start later know only the record, so the leader corrects it:
//!
//! ```text
//!   member: "I am at B", recorded at A ─▶ any member ─▶ leader ─▶ does B answer as that member? ─▶ record B
//! ```
//!
//! A member that starts with --join although it is one, and knows no leader, looks at these addresses
//! which members are there: so members find each other that have all moved.
//!
//! Invariant: nothing is recorded that did not answer as the member at that address, but by an operator.

use std::collections::BTreeSet;
use std::time::Duration;

use berth_domain::refusal::Refusal;
use berth_proto::client::Dialer;
use berth_proto::cluster::v1::UpdateMemberRequest;
use berth_replication::runtime::{Leader, MembershipError, Status};
use berth_replication::transport::Addresses;
use berth_store::Member;
use tokio::time::{MissedTickBehavior, interval};

use crate::join;
use crate::membership::{At, Members};
use crate::service::Context;

const INTERVAL: Duration = Duration::from_secs(1);
/// How long an address may take to answer.
const HEARING: Duration = Duration::from_secs(2);
/// How many different causes are logged.
const LOGGED_MAX: usize = 256;

/// What the task works with.
pub(crate) struct Recorder {
    pub(crate) context: Context,
    pub(crate) addresses: Addresses,
    /// Where this member is reached.
    pub(crate) advertise: String,
    /// Addresses at which there may be members, from --join.
    pub(crate) introductions: Vec<String>,
    pub(crate) dialer: Dialer,
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
            if status.role.leader.is_none() {
                self.introduce(&status).await;
                continue;
            }
            for moved in self.moved(&status) {
                let Moved { member, address } = &moved;
                if let Err(why) = self.record(&status, &moved).await
                    && logged.len() < LOGGED_MAX
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

    /// Learns at which of the given addresses there are members.
    async fn introduce(&self, status: &Status) {
        for address in &self.introductions {
            let at = look_at(address, self.context.cluster_id(), &self.dialer).await;
            if let At::Member(id) = at
                && id != status.id
            {
                self.addresses.state(id, address, &status.membership);
            }
        }
    }

    /// Returns the members that state another address than the recorded one.
    fn moved(&self, status: &Status) -> Vec<Moved> {
        let stated = |member: &Member| match member.id == status.id {
            true => Some(self.advertise.clone()).filter(|own| *own != member.address),
            false => self.addresses.stated(member),
        };
        let members = status.membership.members.iter();
        let moved = members.filter_map(|member| {
            let address = stated(member)?;
            let member = member.clone();
            Some(Moved { member, address })
        });
        moved.collect()
    }

    /// Records an address, or has the leader record it.
    async fn record(&self, status: &Status, moved: &Moved) -> Result<(), String> {
        let Moved { member, address } = moved;
        let leader = self.context.handle().leader();
        if !leader.role.deciding {
            return self.report(&leader, moved).await;
        }
        let members = Members {
            own: status.id,
            membership: &status.membership,
            progress: &status.progress,
        };
        members.expect_free_for(member.id, address).map_err(why)?;
        let at = look_at(address, self.context.cluster_id(), &self.dialer).await;
        at.expect_member(member.id, address).map_err(why)?;
        let membership = status.membership.clone();
        let handle = self.context.handle();
        let recorded = handle.record_address(member.id, address.clone(), membership);
        match recorded.await {
            Ok(_) => {
                log_recorded(member, address);
                Ok(())
            }
            // It is tried again.
            Err(MembershipError::Refused { .. } | MembershipError::Lost { .. }) => Ok(()),
            Err(MembershipError::Stopped) => Ok(()),
        }
    }

    /// Reports an address to the leader.
    async fn report(&self, leader: &Leader, moved: &Moved) -> Result<(), String> {
        let Some(leader) = &leader.member else {
            return Ok(());
        };
        let request = UpdateMemberRequest {
            member_id: moved.member.id,
            address: moved.address.clone(),
            must_answer: true,
        };
        let leader = self.addresses.present(leader);
        let client = join::client(&leader, &self.dialer).await;
        // A leader that is gone has a successor in a moment.
        let Ok(mut client) = client else {
            return Ok(());
        };
        let response = client.update_member(request).await;
        response.map(|_| ()).map_err(|status| {
            let refusal = berth_proto::status::from_status(&status);
            format!("{leader} says: {}", refusal.message)
        })
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

fn why(refusal: Refusal) -> String {
    refusal.message
}
