//! The disks of guests that are off: fetched from another host, sent to one, and deleted.
//!
//! Not here: how the bytes come from one host to the other (`disks` of the server).
//!
//! Invariant: what was overtaken is not done. Disks are not fetched below a guest that was started, nor
//! after they were to be deleted; and they are sent only while no other work on the guest is under way.

use berth_domain::agent::{Fence, FetchDisks, Reply, Side};
use berth_domain::id::{ClaimId, MigrationId};
use berth_domain::refusal::{Code, Refusal};
use berth_domain::version::{Feature, TOO_OLD};
use berth_driver_api::{DomainSpec, Fetch, Request};

use super::agent::{Agent, CallId, Effect, Start, Work, reply};
use super::calls::{Started, is_sound, precondition};
use super::fences::late;

impl Agent {
    /// Refuses what [`Feature::DiskFetch`] is, where this agent behaves like an older one.
    fn knows_fetching(&self) -> Result<(), Refusal> {
        let (host, version) = (&self.facts.host, self.facts.version);
        if version.can(Feature::DiskFetch) {
            return Ok(());
        }
        let message = format!(
            "the agent of host {host} runs at service version {version} and does not fetch disks"
        );
        Err(Refusal::new(Code::Unimplemented, TOO_OLD, message)
            .with("host", host)
            .with("version", version))
    }

    pub(super) fn fetch_disks(&mut self, fence: &Fence, fetch: FetchDisks) -> Started {
        self.knows_fetching()?;
        self.is_open(fence)?;
        let claim = &fetch.claim;
        let record = self.fences.of(fence.vm);
        if record.destroyed {
            return Err(late("the guest was to be destroyed here after this call"));
        }
        if record.ended.contains(&claim.id) {
            return Err(late("the claim was released after this call"));
        }
        if record.was_started(fence, claim.id) {
            return Err(late("the guest was started after this call"));
        }
        self.is_here(claim)?;
        is_sound(&fetch.spec)?;
        if self.guests.contains_key(&fence.vm) {
            return Err(self.exists(fence.vm));
        }
        let domain = DomainSpec {
            vm: fetch.vm,
            uid: fence.vm,
            spec: fetch.spec,
            claim: Some(claim.id),
            epoch: fence.epoch,
            assignment: claim.assignment.clone(),
            shared_cpus: self.facts.topology.shared(),
            volumes: Vec::new(),
            bridges: self.facts.bridges.clone(),
            first_boot: None,
            cpu: claim.cpu.clone(),
        };
        let fetch = Fetch {
            domain,
            migration: fetch.migration,
            fence: Fence {
                incarnation: fetch.source.incarnation,
                ..*fence
            },
            source: fetch.source,
            bandwidth_mib_per_s_max: fetch.bandwidth_mib_per_s_max,
            timeout_ms: fetch.timeout_ms.unwrap_or(self.facts.transfer_ms_max),
        };
        let request = Request::FetchDisks(Box::new(fetch));
        Ok(Start::Work(Work::Disks, request))
    }

    /// Stops what is being fetched for a guest whose disks are to be deleted: the deletion waits for its
    /// end.
    pub(super) fn stop_fetching(&mut self, fence: &Fence) -> Vec<Effect> {
        self.fences.of(fence.vm).settled = Some(fence.operation);
        let request = Request::StopFetch(fence.vm);
        vec![self.driver(fence.vm, None, Work::StopFetch, request).1]
    }

    pub(super) fn drop_disks(
        &mut self,
        fence: &Fence,
        migration: MigrationId,
        side: Side,
        claim: ClaimId,
    ) -> Started {
        self.knows_fetching()?;
        let record = self.fences.of(fence.vm);
        record.settled = Some(fence.operation);
        record.end(claim);
        if self.guests.contains_key(&fence.vm) {
            let message = format!("guest {} is not off", fence.vm);
            return Err(precondition("GUEST_RUNS_HERE", message));
        }
        let request = Request::DropDisks(fence.vm, migration, side);
        Ok(Start::Work(Work::Disks, request))
    }

    /// Checks whether the disks of a guest may be sent to another host. The caller is the agent of that
    /// host: nothing is stored.
    pub(super) fn readable(&self, id: CallId, fence: &Fence) -> Vec<Effect> {
        let examined = self.may_be_read(fence);
        vec![reply(id, examined.map(|()| Reply::Done))]
    }

    fn may_be_read(&self, fence: &Fence) -> Result<(), Refusal> {
        self.check(fence)?;
        self.knows_fetching()?;
        self.is_open(fence)?;
        if self.guests.contains_key(&fence.vm) {
            let message = format!("guest {} is not off on host {}", fence.vm, self.facts.host);
            return Err(precondition("GUEST_RUNS_HERE", message));
        }
        if self.is_worked_on(fence.vm) {
            let message = format!("other work on guest {} is under way on its host", fence.vm);
            return Err(Refusal::new(Code::Unavailable, "AGENT_BUSY", message));
        }
        Ok(())
    }
}
