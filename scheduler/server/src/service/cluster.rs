//! `berth.cluster.v1.ClusterService`.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use berth_decide::Action::Plain;
use berth_decide::quorum;
use berth_decide::upgrade::{MemberVersion, plan_finalize};
use berth_domain::name::ServiceName;
use berth_domain::refusal::{Code, Refusal};
use berth_domain::service::Service;
use berth_domain::version::ServiceVersion;
use berth_process::{access, listening};
use berth_proto::cluster::v1;
use berth_proto::cluster::v1::cluster_service_server::ClusterService;
use berth_proto::convert;
use berth_proto::convert::field;
use berth_proto::convert::field::ADDRESS_MAX;
use berth_proto::convert::page::Page;
use berth_proto::status::to_status;
use berth_replication::runtime::{Leader, MembershipError, Status as MemberState, in_background};
use berth_state::command::Command;
use berth_state::{Reply, State};
use berth_store::{Member, Membership};
use tonic::{Request, Response, Status};
use uuid::Uuid;

use super::backup::BackupStream;
use super::context::Context;
use super::keyed::{open, own_service};
use super::{
    backup, diagnostics, list, page_login, recovery_status, refusal, retained, revocation,
};
use crate::join::without_scheme;
use crate::membership::{At, Members, at_other_address, expect_version, has_taken_over};
use crate::{addresses, dead_members, grants};

/// How long a transfer of leadership may take.
const TRANSFER_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a member may take to respond before it counts as unreachable.
const HEARING: Duration = Duration::from_secs(3);

/// The default time to wait for a new leader.
const WAIT_MS: u64 = 1_000;

/// How long at most.
const WAIT_MS_MAX: u64 = 10_000;

/// Serves `ClusterService`.
pub(crate) struct ClusterApi(pub(crate) Context);

impl ClusterApi {
    /// Returns the service versions of all members. A member that has not responded just now is given time to
    /// answer the next heartbeat: Raft forgets who was active again and again.
    async fn responsive_members(&self) -> Result<Vec<MemberVersion>, Status> {
        let until = Instant::now() + HEARING;
        loop {
            let members = self.0.member_versions(&self.member_state().await?);
            let is_complete = members.iter().all(|member| member.version.is_some());
            if is_complete || Instant::now() >= until {
                return Ok(members);
            }
            tokio::time::sleep(HEARING / 20).await;
        }
    }

    async fn member_state(&self) -> Result<MemberState, Status> {
        let state = self.0.handle().status().await;
        let state = state.ok_or_else(refusal::stopping)?;
        self.0.contacts().look(&state, Instant::now());
        Ok(state)
    }

    /// Adds a learner and returns its number with the members as they are then.
    async fn add(
        &self,
        address: String,
        disk: String,
        promote: bool,
    ) -> Result<(u64, Vec<v1::Member>), Status> {
        let added = self.0.handle().add_member(address, disk, promote).await;
        let id = added.map_err(|error| self.0.urls().of_membership(error))?;
        tracing::info!(member = id, "member added");
        Ok((id, self.members_after_change().await?))
    }

    /// Returns the members after a change of them that was made.
    async fn members_after_change(&self) -> Result<Vec<v1::Member>, Status> {
        match self.0.handle().status().await {
            Some(state) => Ok(self.members(&state)),
            // That the member is stopping would state that nothing was changed.
            None => Err(self
                .0
                .urls()
                .of_membership(MembershipError::Lost { leader: None })),
        }
    }

    /// Returns a membership that bears the removal of a member. One that has not answered just now
    /// is given time for the next heartbeat.
    async fn keeps_quorum_without(&self, id: u64) -> Result<Arc<Membership>, Status> {
        let until = Instant::now() + HEARING;
        loop {
            // Another member knows nothing of who answers.
            self.0.must_lead()?;
            let state = self.member_state().await?;
            match leader_view(&state).keep_quorum_without(id) {
                Ok(()) => return Ok(state.membership),
                Err(refusal) if Instant::now() >= until => return Err(to_status(&refusal)),
                Err(_) => tokio::time::sleep(HEARING / 20).await,
            }
        }
    }

    async fn known_member(&self, id: u64) -> Result<(), Status> {
        let state = self.member_state().await?;
        let known = leader_view(&state).known(id);
        known.map_err(|refusal| to_status(&refusal))
    }
}

#[tonic::async_trait]
impl ClusterService for ClusterApi {
    type BackupStream = BackupStream;

    async fn get_cluster_status(
        &self,
        _: Request<v1::GetClusterStatusRequest>,
    ) -> Result<Response<v1::GetClusterStatusResponse>, Status> {
        let state = self.member_state().await?;
        let leader = self.0.handle().leader();
        let address = leader
            .member
            .as_ref()
            .map(|leader| self.0.urls().of(leader));
        // A member that has received no state yet knows none.
        let of_state = |state: &State| {
            let header = state.header();
            (
                header.cluster_version.0,
                header.revoked_revision,
                retained::of_state(state),
                header.recovery,
            )
        };
        let (cluster_version, revoked_revision, of_state, recovery) =
            self.0.stale(of_state).await.unwrap_or_default();
        let of_member = state.retained.iter().cloned().chain(self.0.retained());
        Ok(Response::new(v1::GetClusterStatusResponse {
            cluster_id: self.0.cluster_id().to_owned(),
            member_id: state.id,
            leader_id: state.role.leader.unwrap_or(0),
            leader_address: address.unwrap_or_default(),
            term: state.role.term,
            commit_index: state.committed,
            applied_index: state.position.index,
            state_hash: state.position.hash.to_string(),
            members: self.members(&state),
            program_version: env!("CARGO_PKG_VERSION").to_owned(),
            first_index: state.first_index,
            disk_silent_ms: state.disk_silent.as_millis() as u64,
            retained: of_member.chain(of_state).map(retained::to_wire).collect(),
            cluster_version,
            service_version: self.0.level().0,
            revoked_revision,
            backups: self.0.scheduled_backups().map(backup::status_to_wire),
            recovery: recovery.as_ref().map(Into::into),
            failures_tolerated: self.failures_tolerated(&state),
        }))
    }

    async fn get_diagnostics(
        &self,
        request: Request<v1::GetDiagnosticsRequest>,
    ) -> Result<Response<v1::GetDiagnosticsResponse>, Status> {
        let since = request.into_inner().log_since;
        Ok(Response::new(diagnostics::to_wire(&self.0, since)?))
    }

    async fn create_page_login(
        &self,
        request: Request<v1::CreatePageLoginRequest>,
    ) -> Result<Response<v1::CreatePageLoginResponse>, Status> {
        let link = page_login::create(&self.0, request.extensions().get())?;
        Ok(Response::new(link))
    }

    async fn join_cluster(
        &self,
        request: Request<v1::JoinClusterRequest>,
    ) -> Result<Response<v1::JoinClusterResponse>, Status> {
        let wire = request.into_inner();
        let address = address(wire.address)?;
        let disk: Uuid = field::uuid(&wire.disk_id, "disk_id")?;
        let disk = disk.to_string();
        self.0.must_lead()?;
        let version = ServiceVersion::from_wire(wire.service_version);
        let cluster = self.0.stale(|state| state.header().cluster_version).await?;
        expect_version(version, cluster).map_err(|refusal| to_status(&refusal))?;
        let state = self.member_state().await?;
        let known = leader_view(&state).known_learner(&address, &disk);
        let known = known.map_err(|refusal| to_status(&refusal))?;
        let (member_id, members) = match known {
            Some(id) => (id, self.members(&state)),
            None => self.add(address, disk, wire.promote).await?,
        };
        Ok(Response::new(v1::JoinClusterResponse {
            cluster_id: self.0.cluster_id().to_owned(),
            member_id,
            members,
        }))
    }

    async fn add_member(
        &self,
        request: Request<v1::AddMemberRequest>,
    ) -> Result<Response<v1::AddMemberResponse>, Status> {
        let wire = request.into_inner();
        let address = address(wire.address)?;
        let disk: Option<Uuid> = field::optional_uuid(&wire.disk_id, "disk_id")?;
        self.0.must_lead()?;
        let state = self.member_state().await?;
        let free = leader_view(&state).expect_free(&address);
        free.map_err(|refusal| to_status(&refusal))?;
        let disk = disk.map(|disk| disk.to_string()).unwrap_or_default();
        let (id, members) = self.add(address, disk, wire.promote).await?;
        Ok(Response::new(v1::AddMemberResponse {
            member: members.iter().find(|member| member.id == id).cloned(),
            members,
        }))
    }

    async fn update_member(
        &self,
        request: Request<v1::UpdateMemberRequest>,
    ) -> Result<Response<v1::UpdateMemberResponse>, Status> {
        let wire = request.into_inner();
        let (id, address) = (wire.member_id, address(wire.address)?);
        self.0.must_lead()?;
        self.known_member(id).await?;
        let at = addresses::look_at(&address, self.0.cluster_id(), self.0.dialer()).await;
        let state = self.member_state().await?;
        if wire.reported {
            let answers = at.expect_member(id, &address);
            answers.map_err(|refusal| to_status(&refusal))?;
            self.0.addresses().state(id, &address, &state.membership);
            return Ok(Response::new(updated(id, self.members(&state))));
        }
        let checked = self.expect_movable(&state, id, &address, &at);
        let before = checked.map_err(|refusal| to_status(&refusal))?;
        if before.address == address {
            return Ok(Response::new(updated(id, self.members(&state))));
        }
        let membership = state.membership.clone();
        let moves = vec![(id, address.clone())];
        let recorded = self.0.handle().record_addresses(moves, membership).await;
        recorded.map_err(|error| self.0.urls().of_membership(error))?;
        addresses::log_recorded(&before, &address);
        let members = self.members_after_change().await?;
        Ok(Response::new(updated(id, members)))
    }

    async fn promote_member(
        &self,
        request: Request<v1::PromoteMemberRequest>,
    ) -> Result<Response<v1::PromoteMemberResponse>, Status> {
        let id = request.into_inner().member_id;
        self.0.must_lead()?;
        self.known_member(id).await?;
        let promoted = self.0.handle().promote(id).await;
        promoted.map_err(|error| self.0.urls().of_membership(error))?;
        let members = self.members_after_change().await?;
        Ok(Response::new(v1::PromoteMemberResponse { members }))
    }

    async fn remove_member(
        &self,
        request: Request<v1::RemoveMemberRequest>,
    ) -> Result<Response<v1::RemoveMemberResponse>, Status> {
        let id = request.into_inner().member_id;
        self.0.must_lead()?;
        self.known_member(id).await?;
        let checked = self.keeps_quorum_without(id).await?;
        let removed = self.0.handle().remove_member(id, checked).await;
        removed.map_err(|error| self.0.urls().of_membership(error))?;
        tracing::info!(member = id, "member removed");
        let members = self.members_after_change().await?;
        Ok(Response::new(v1::RemoveMemberResponse { members }))
    }

    async fn transfer_leadership(
        &self,
        request: Request<v1::TransferLeadershipRequest>,
    ) -> Result<Response<v1::TransferLeadershipResponse>, Status> {
        let target = Some(request.into_inner().member_id).filter(|id| *id != 0);
        self.0.must_lead()?;
        if let Some(id) = target {
            self.known_member(id).await?;
        }
        let handle = self.0.handle();
        let own = handle.leader().id;
        let mut watch = handle.watch_leader();
        if target != Some(own) {
            let transfer = handle.transfer_leader(target).await;
            transfer.map_err(|error| self.0.urls().of_membership(error))?;
        }
        let taken_over = |leader: &Leader| has_taken_over(leader.role.leader, own, target);
        match tokio::time::timeout(TRANSFER_TIMEOUT, watch.wait_for(taken_over)).await {
            Ok(Ok(leader)) => Ok(Response::new(v1::TransferLeadershipResponse {
                leader_id: leader.role.leader.unwrap_or(0),
            })),
            Ok(Err(_)) => Err(refusal::stopping()),
            Err(_) => Err(to_status(&Refusal::new(
                Code::DeadlineExceeded,
                "NOT_TAKEN_OVER",
                "no other member took leadership over in time",
            ))),
        }
    }

    async fn register_service(
        &self,
        request: Request<v1::RegisterServiceRequest>,
    ) -> Result<Response<v1::RegisterServiceResponse>, Status> {
        let service = request.get_ref().service.as_ref();
        own_service(&request, service.map_or("", |service| &service.name))?;
        let (wire, caller) = open(request)?;
        let service: Service = field::required(wire.service, "service")?;
        refusal::check_server_url("service.address", &service.address)?;
        let command = Command::RegisterService(service);
        let Reply::Service(service) = self.0.command(caller, command).await? else {
            return Err(refusal::mismatch());
        };
        Ok(Response::new(v1::RegisterServiceResponse {
            service: Some((&*service).into()),
        }))
    }

    async fn finalize_upgrade(
        &self,
        request: Request<v1::FinalizeUpgradeRequest>,
    ) -> Result<Response<v1::FinalizeUpgradeResponse>, Status> {
        let (wire, caller) = open(request)?;
        self.0.must_lead()?;
        let version = match wire.version {
            0 => self.0.level(),
            version => ServiceVersion(version),
        };
        let gone = wire.gone.iter().map(|name| field::name(name, "gone"));
        let gone: BTreeSet<ServiceName> = gone.collect::<Result<_, _>>()?;
        let members = self.responsive_members().await?;
        let state = self.0.state(0).await?;
        let planned = plan_finalize(&state, &members, version, gone);
        if let Some(command) = planned.map_err(|refusal| to_status(&refusal))? {
            let request = caller.into_request(wire.validate_only, Plain(command));
            self.0.submit(request).await?;
            if !wire.validate_only {
                tracing::info!(%version, "cluster version raised");
            }
        }
        Ok(Response::new(v1::FinalizeUpgradeResponse {
            cluster_version: version.0,
        }))
    }

    async fn unregister_service(
        &self,
        request: Request<v1::UnregisterServiceRequest>,
    ) -> Result<Response<v1::UnregisterServiceResponse>, Status> {
        let (wire, caller) = open(request)?;
        let service = field::name(&wire.name, "name")?;
        let command = Command::UnregisterService { service };
        self.0.command(caller, command).await?;
        Ok(Response::new(v1::UnregisterServiceResponse {}))
    }

    async fn rotate_grant_key(
        &self,
        request: Request<v1::RotateGrantKeyRequest>,
    ) -> Result<Response<v1::RotateGrantKeyResponse>, Status> {
        let (_, caller) = open(request)?;
        let number = self
            .0
            .state(0)
            .await
            .map(|state| grants::next_number(&state))?;
        let Some(seed) = grants::draw_seed() else {
            return Err(Status::internal("no random secret can be drawn"));
        };
        let command = Command::ReplaceGrantKey { number, seed };
        let request = caller.into_request(false, Plain(command));
        let read = |state: &State, _: &Reply| grants::present_number(state);
        let (_, key) = self.0.submit_then(request, read).await?;
        Ok(Response::new(v1::RotateGrantKeyResponse { key }))
    }

    async fn revoke_certificate(
        &self,
        request: Request<v1::RevokeCertificateRequest>,
    ) -> Result<Response<v1::RevokeCertificateResponse>, Status> {
        let own = access::caller(request.extensions()).cloned();
        let (wire, caller) = open(request)?;
        let certificate = revocation::requested(wire.certificate, own.as_deref())?;
        let fingerprint = certificate.fingerprint;
        let request = caller.into_request(false, Plain(Command::RevokeCertificate(certificate)));
        let read = move |state: &State, _: &Reply| {
            let listed = state.revoked_certificates().get(&fingerprint);
            listed.map(|certificate| (&**certificate).into())
        };
        let (_, certificate) = self.0.submit_then(request, read).await?;
        Ok(Response::new(v1::RevokeCertificateResponse { certificate }))
    }

    async fn reinstate_certificate(
        &self,
        request: Request<v1::ReinstateCertificateRequest>,
    ) -> Result<Response<v1::ReinstateCertificateResponse>, Status> {
        let (wire, caller) = open(request)?;
        let fingerprint = convert::revocation::fingerprint(&wire.fingerprint, "fingerprint")?;
        let command = Command::ReinstateCertificate { fingerprint };
        self.0.command(caller, command).await?;
        Ok(Response::new(v1::ReinstateCertificateResponse {}))
    }

    async fn list_revoked_certificates(
        &self,
        request: Request<v1::ListRevokedCertificatesRequest>,
    ) -> Result<Response<v1::ListRevokedCertificatesResponse>, Status> {
        let state = self.0.state(request.into_inner().consistency).await?;
        Ok(Response::new(v1::ListRevokedCertificatesResponse {
            certificates: revocation::to_wire(&state),
            revoked_revision: state.header().revoked_revision,
            revision: state.revision(),
        }))
    }

    async fn get_recovery(
        &self,
        request: Request<v1::GetRecoveryRequest>,
    ) -> Result<Response<v1::GetRecoveryResponse>, Status> {
        let state = self.0.state(request.into_inner().consistency).await?;
        // What it would lead to takes a while in a large cluster.
        let outcomes = self.0.recovery_outcomes().clone();
        let response = move || recovery_status::to_wire(&state, &outcomes);
        let response = tokio::task::spawn_blocking(|| in_background(response)).await;
        response
            .map(Response::new)
            .map_err(|error| Status::internal(error.to_string()))
    }

    async fn end_recovery(
        &self,
        request: Request<v1::EndRecoveryRequest>,
    ) -> Result<Response<v1::EndRecoveryResponse>, Status> {
        let (wire, caller) = open(request)?;
        let accept_conflicts = wire.accept_conflicts;
        let command = Command::EndRecovery { accept_conflicts };
        let request = caller.into_request(false, Plain(command));
        let read = |state: &State, _: &Reply| state.header().recovery;
        let (_, recovery) = self.0.submit_then(request, read).await?;
        Ok(Response::new(v1::EndRecoveryResponse {
            recovery: recovery.as_ref().map(Into::into),
        }))
    }

    async fn backup(
        &self,
        request: Request<v1::BackupRequest>,
    ) -> Result<Response<BackupStream>, Status> {
        Ok(Response::new(backup::backup(&self.0, request).await?))
    }

    async fn wait_leader(
        &self,
        request: Request<v1::WaitLeaderRequest>,
    ) -> Result<Response<v1::WaitLeaderResponse>, Status> {
        let wire = request.into_inner();
        let wait_ms = field::optional_duration_ms(wire.timeout, "timeout")?;
        let wait = Duration::from_millis(wait_ms.unwrap_or(WAIT_MS).min(WAIT_MS_MAX));
        let mut leader = self.0.handle().watch_leader();
        let url = |leader: &Leader| Some(self.0.urls().of(leader.member.as_ref()?));
        // A member of an older version has named it by another scheme.
        let other_than = without_scheme(&wire.other_than);
        let is_other =
            |leader: &Leader| url(leader).is_some_and(|url| without_scheme(&url) != other_than);
        let found = tokio::select! {
            found = leader.wait_for(is_other) => match found {
                Ok(found) => url(&found),
                Err(_) => return Err(refusal::stopping()),
            },
            () = tokio::time::sleep(wait) => None,
            () = self.0.stopping().cancelled() => return Err(refusal::stopping()),
        };
        Ok(Response::new(v1::WaitLeaderResponse {
            leader_address: found.unwrap_or_default(),
        }))
    }

    async fn list_services(
        &self,
        request: Request<v1::ListServicesRequest>,
    ) -> Result<Response<v1::ListServicesResponse>, Status> {
        let wire = request.into_inner();
        let page = Page::new(wire.page_size, &wire.page_token)?;
        let state = self.0.state(wire.consistency).await?;
        let (services, next_page_token) = list::page(
            state.services(),
            &page,
            |text| ServiceName::new(text).ok(),
            ServiceName::to_string,
            |_| true,
        )?;
        Ok(Response::new(v1::ListServicesResponse {
            services: services.iter().map(|service| (&**service).into()).collect(),
            next_page_token,
            revision: state.revision(),
            cluster_id: self.0.cluster_id().to_owned(),
        }))
    }
}

fn address(text: String) -> Result<String, Status> {
    let text = field::required_text(text, "address", ADDRESS_MAX)?;
    if !listening::is_host_port(&text) {
        return Err(refusal::invalid("address", "must be of the form host:port"));
    }
    match listening::is_unspecified(&text) {
        false => Ok(text),
        true => Err(refusal::invalid(
            "address",
            "must be an address that the others can dial",
        )),
    }
}

fn updated(id: u64, members: Vec<v1::Member>) -> v1::UpdateMemberResponse {
    v1::UpdateMemberResponse {
        member: members.iter().find(|member| member.id == id).cloned(),
        members,
    }
}

fn leader_view(state: &MemberState) -> Members<'_> {
    Members {
        own: state.id,
        membership: &state.membership,
        progress: &state.progress,
    }
}

impl ClusterApi {
    /// Returns a member that may be recorded at an address.
    fn expect_movable(
        &self,
        state: &MemberState,
        id: u64,
        address: &str,
        at: &At,
    ) -> Result<Member, Refusal> {
        leader_view(state).expect_free_for(id, address)?;
        at.expect_no_other(id, address)?;
        let member = state.membership.get(id).cloned();
        let member = member.ok_or_else(|| Refusal::not_found("member", id))?;
        let silent = self.0.contacts().silent(id, Instant::now());
        let heard = silent.is_none_or(|silent| silent < self.0.leader_wait());
        // The leader reaches itself under addresses that no other member can dial.
        let is_there = *at == At::Member(id) && id != state.id;
        match heard && !is_there && member.address != address {
            true => Err(at_other_address(id, address, self.0.leader_wait())),
            false => Ok(member),
        }
    }

    /// Returns how many more voters may fail, as far as this member knows.
    fn failures_tolerated(&self, state: &MemberState) -> Option<u32> {
        if !state.role.deciding {
            return None;
        }
        let (contacts, limit) = (self.0.contacts(), self.0.leader_wait());
        let active = dead_members::answering(state, contacts, Instant::now(), limit);
        let voters = state.membership.voters.iter().copied().collect();
        let tolerated = quorum::failures_tolerated(&voters, &active)?;
        u32::try_from(tolerated).ok()
    }

    fn members(&self, state: &MemberState) -> Vec<v1::Member> {
        let mut members = members(state);
        for member in &mut members {
            // A follower's information about a member may be outdated.
            let is_known = state.role.deciding || member.id == state.id;
            let version = self.0.version_of(state, member.id).filter(|_| is_known);
            member.service_version = version.map_or(0, |version| version.0);
            let silent = self.0.contacts().silent(member.id, Instant::now());
            let silent = silent.filter(|_| state.role.deciding);
            let is_heard = |silent: Duration| silent < self.0.leader_wait();
            member.recently_active = silent.map_or(member.recently_active, is_heard);
            member.silent_time =
                silent.map(|silent| convert::field::duration(silent.as_millis() as u64));
        }
        members
    }
}

fn members(state: &MemberState) -> Vec<v1::Member> {
    let own = state.role.deciding.then_some(state.position.index);
    let member = |member: &Member| {
        let progress = state.progress.iter().find(|p| p.id == member.id);
        let is_self = member.id == state.id;
        let role = match state.membership.is_voter(member.id) {
            true => v1::member::Role::Voter,
            false => v1::member::Role::Learner,
        };
        v1::Member {
            id: member.id,
            address: member.address.clone(),
            role: role.into(),
            leader: state.role.leader == Some(member.id),
            matched_index: match progress {
                Some(progress) => progress.matched,
                None if is_self => own.unwrap_or(0),
                None => 0,
            },
            recently_active: is_self || progress.is_some_and(|p| p.active),
            disk_id: member.disk.clone(),
            promote: member.promote,
            service_version: 0,
            silent_time: None,
        }
    };
    state.membership.members.iter().map(member).collect()
}
