//! What agents should expect of their hypervisors, what they discover, and fencing of hosts.
//!
//! Invariant: a comparison that changes nothing is no entry of the log.

use std::time::Duration;

use berth_decide::Action;
use berth_domain::claim::{ErasureProgress, ErasureReport};
use berth_domain::constraint::shape;
use berth_domain::fence::Method;
use berth_domain::host::Liveness;
use berth_domain::id::{ClaimId, Incarnation};
use berth_domain::name::{HostName, VmName};
use berth_domain::pmem::{NAMESPACES_MAX, PmemDevice};
use berth_domain::reality::{Absence, Comparison};
use berth_domain::refusal::{Code, Refusal};
use berth_domain::version::Feature;
use berth_process::access;
use berth_proto::convert::reality::write_lost;
use berth_proto::convert::{ResourceName as _, field};
use berth_proto::host::v1;
use berth_proto::status::to_status;
use berth_proto::types::v1::ReadConsistency;
use berth_state::command::{Command, Envelope};
use berth_state::{HostView, REQUEST_ID_REUSED, Recall, Reply, State};
use tonic::Status;

use super::context::Context;
use super::keyed::Caller;
use super::{recovery, refusal};

/// The longest name of the operator on whose behalf a conductor fences a host, in bytes.
const PRINCIPAL_MAX: usize = 256;

/// How long a report of an agent may be on its way to be counted as sent before the host was fenced, in
/// milliseconds.
const ON_THE_WAY_MS: u64 = 1_000;

/// How long it is waited at most for a report that shows that a fenced host is alive, in milliseconds.
const SILENCE_MAX_MS: u64 = 30_000;

/// Tells an agent what is expected of its host.
pub(super) async fn expect(
    context: &Context,
    wire: &v1::ExpectDomainsRequest,
) -> Result<v1::ExpectDomainsResponse, Status> {
    let name: HostName = field::name(&wire.name, "name")?;
    let state = context.stale(State::clone).await?;
    let Some(view) = state.host(&name) else {
        return Err(to_status(&refusal::no_host(&name)));
    };
    let host = &view.host;
    let mut expected = state.expected_of(&name);
    if !host.report.service_version.can(Feature::RestartPolicy) {
        for expected in &mut expected {
            expected.recorded = expected.recorded.map(Absence::to_older);
        }
    }
    Ok(v1::ExpectDomainsResponse {
        domains: expected.iter().map(Into::into).collect(),
        unknown_domains: host.unknown.iter().map(Into::into).collect(),
        lost_domains: state.lost_of(host).iter().map(write_lost).collect(),
        fenced: host.fenced.is_some(),
        revision: state.revision(),
        erasures: state.erasures_of(&name).iter().map(write_due).collect(),
        recovery_epoch: recovery::least_epoch(&state, host),
        grant_terms: (state.has_unreported_guests(host)).then(|| context.grant_terms(&state)),
    })
}

fn write_due((claim, device): &(ClaimId, PmemDevice)) -> v1::DueErasure {
    v1::DueErasure {
        claim: claim.resource_name(),
        device: Some(device.into()),
    }
}

/// Records an agent's reports on the namespaces that it has to erase.
pub(super) async fn report_erasures(
    context: &Context,
    caller: Caller,
    wire: v1::ReportErasuresRequest,
) -> Result<v1::ReportErasuresResponse, Status> {
    let host: HostName = field::name(&wire.name, "name")?;
    let incarnation: Incarnation = field::uuid(&wire.incarnation, "incarnation")?;
    let reports: Vec<ErasureReport> = field::each(wire.reports, "reports", NAMESPACES_MAX)?;
    for report in &reports {
        let ErasureReport {
            claim, namespace, ..
        } = report;
        match &report.progress {
            ErasureProgress::Running { .. } => {}
            ErasureProgress::Erased => {
                tracing::info!(%host, %claim, %namespace, "pmem namespace erased");
            }
            ErasureProgress::Failed { failure } => {
                tracing::warn!(%host, %claim, %namespace, failure, "pmem namespace erasure failed");
            }
        }
    }
    if reports.is_empty() {
        return Err(refusal::invalid("reports", "must not be empty"));
    }
    let command = Command::NoteErasures {
        host: host.clone(),
        incarnation,
        reports,
    };
    let request = caller.into_request(false, Action::Plain(command));
    let erasures = move |state: &State, _: &Reply| state.erasures_of(&host);
    let (_, due) = context.submit_then(request, erasures).await?;
    Ok(v1::ReportErasuresResponse {
        erasures: due.iter().map(write_due).collect(),
    })
}

/// Takes what an agent found.
pub(super) async fn compare(
    context: &Context,
    caller: Caller,
    wire: v1::CompareDomainsRequest,
) -> Result<v1::CompareDomainsResponse, Status> {
    let host: HostName = field::name(&wire.name, "name")?;
    let incarnation: Incarnation = field::uuid(&wire.incarnation, "incarnation")?;
    let mut comparison: Comparison = field::required(wire.comparison, "comparison")?;
    context.must_lead()?;
    let state = context.stale(State::clone).await?;
    if !state.header().cluster_version.can(Feature::RestartPolicy) {
        for finding in &mut comparison.findings {
            finding.absence = finding.absence.map(Absence::to_older);
        }
    }
    let changes = state.record_reality(&host, incarnation, &comparison);
    let changes = changes.map_err(|refusal| to_status(&refusal))?;
    for vm in &changes.vms {
        tracing::warn!(%host, vm = %vm.name, trouble = ?vm.trouble, "guest state reported");
    }
    if let Some(after) = &changes.host {
        let unknown = after.unknown.len();
        tracing::warn!(%host, unknown, fenced = after.fenced.is_some(), "host state reported");
    }
    let host = if changes.is_empty() {
        state.host(&host).map(|view| (&*view.host).into())
    } else {
        let command = Command::NoteReality {
            host,
            incarnation,
            comparison,
        };
        let Reply::Host(host) = context.command(caller, command).await? else {
            return Err(refusal::mismatch());
        };
        Some((&*host).into())
    };
    Ok(v1::CompareDomainsResponse { host })
}

/// A fence to be recorded, as its request states it.
struct FenceRequest {
    caller: Caller,
    host: HostName,
    method: Method,
    command: Command,
}

impl FenceRequest {
    /// Reads a request. Without the run of the agent that it is about, it is about the current one.
    async fn read(
        context: &Context,
        caller: Caller,
        wire: v1::FenceHostRequest,
    ) -> Result<Self, Status> {
        let host: HostName = field::name(&wire.name, "name")?;
        let method = field::choice::<v1::fence::Method, Method>(wire.method, "method")?;
        let given: Option<Incarnation> = field::optional_uuid(&wire.incarnation, "incarnation")?;
        let on_behalf_of = field::text(wire.on_behalf_of, "on_behalf_of", PRINCIPAL_MAX)?;
        if method == Method::SelfFenced {
            let rule = "must be METHOD_FENCE_COMMAND or METHOD_OPERATOR: the leader itself finds the other";
            return Err(refusal::invalid("method", rule));
        }
        let name = host.clone();
        let known = context
            .stale(move |state| Some(state.host(&name)?.host.report.incarnation))
            .await?;
        let Some(known) = known else {
            return Err(to_status(&refusal::no_host(&host)));
        };
        let by = if on_behalf_of.is_empty() {
            caller.principal.clone()
        } else if caller.principal == access::UNVERIFIED {
            format!("{on_behalf_of} through {}", caller.principal)
        } else {
            // The caller is known; the name beside it is informational.
            format!("{} through {on_behalf_of}", caller.principal)
        };
        let command = Command::FenceHost {
            host: host.clone(),
            method,
            by,
            output: wire.output,
            incarnation: given.unwrap_or(known),
        };
        Ok(Self {
            caller,
            host,
            method,
            command,
        })
    }

    /// Returns the response to a request that was carried out before; otherwise whether it would be
    /// accepted. Nothing is recorded.
    fn verify(&self, state: &State) -> Result<Option<Reply>, Refusal> {
        if let Some(key) = &self.caller.key
            && let Recall::Answered(outcome) = state.recall(&self.caller.principal, key)
        {
            let is_same_host = state.recorded_host(&self.caller.principal, key) == Some(&self.host);
            return match outcome {
                Err(refusal) if refusal.reason == REQUEST_ID_REUSED && is_same_host => {
                    Err(self.fenced_before(refusal))
                }
                outcome => outcome.map(Some),
            };
        }
        let envelope = Envelope {
            at: state.time(),
            principal: self.caller.principal.clone(),
            request: None,
            audit: None,
            command: self.command.clone(),
        };
        state.examine(&envelope).map(|()| None)
    }

    /// Returns whether a fence command is to be recorded, and would be.
    fn is_new_command(&self, state: &State) -> bool {
        self.method == Method::FenceCommand && matches!(self.verify(state), Ok(None))
    }

    /// The refusal of a repetition after the host has come back.
    fn fenced_before(&self, reused: Refusal) -> Refusal {
        let host = &self.host;
        Refusal {
            message: format!(
                "the request was carried out before, and the agent of host {host} was started again \
                 since"
            ),
            ..reused
        }
        .with_hint(format!(
            "nothing is left to do: `berth host show {host}` shows the host as it is now; to fence that, \
             leave --request-id out"
        ))
    }
}

/// Looks up a request to record that a host was fenced, before its fence command runs.
pub(super) async fn verify_fence(
    context: &Context,
    caller: Caller,
    wire: v1::FenceHostRequest,
) -> Result<v1::VerifyFenceResponse, Status> {
    let state = context.state(ReadConsistency::Linearizable.into()).await?;
    let request = FenceRequest::read(context, caller, wire).await?;
    let host = match request.verify(&state) {
        Ok(None) => None,
        Ok(Some(Reply::Host(host))) => Some((&*host).into()),
        Ok(Some(_)) => return Err(refusal::mismatch()),
        Err(refusal) => return Err(to_status(&refusal)),
    };
    Ok(v1::VerifyFenceResponse { host })
}

/// Records that a host was fenced.
pub(super) async fn fence(
    context: &Context,
    caller: Caller,
    wire: v1::FenceHostRequest,
) -> Result<v1::FenceHostResponse, Status> {
    let request = FenceRequest::read(context, caller, wire).await?;
    context.must_lead()?;
    let state = context.stale(State::clone).await?;
    if request.is_new_command(&state)
        && state.host(&request.host).map(|view| view.host.liveness) == Some(Liveness::Up)
        && !is_silent(context, &request.host).await
    {
        context.must_lead()?;
        return Err(to_status(&reports_on(&request.host)));
    }
    // Reports from before the fence command are outdated. Those of a host stay whose fence is refused
    // or was recorded before: it would be taken for down until its next heartbeat.
    if request.is_new_command(&context.stale(State::clone).await?) {
        context.liveness().forget(&request.host);
    }
    let Reply::Host(fenced) = context.command(request.caller, request.command).await? else {
        return Err(refusal::mismatch());
    };
    Ok(v1::FenceHostResponse {
        host: Some((&*fenced).into()),
    })
}

/// Waits until the agent of a fenced host would have reported, and returns whether it did not. A fence
/// command that succeeded may have acted on another host, or on nothing.
async fn is_silent(context: &Context, host: &HostName) -> bool {
    // One that is to stop its guests by itself reports more often, but may not know of it yet.
    let interval_ms = context.interval_ms(None);
    let margin_ms = (interval_ms / 4).min(ON_THE_WAY_MS);
    let wait = |ms: u64| tokio::time::sleep(Duration::from_millis(ms.min(SILENCE_MAX_MS)));
    // What it sent before it was fenced may arrive now.
    wait(margin_ms).await;
    let since_ms = context.monotonic_ms();
    wait(interval_ms + margin_ms).await;
    context.liveness().is_silent_since(host, since_ms)
}

/// The refusal to record a host as fenced whose agent goes on.
fn reports_on(host: &HostName) -> Refusal {
    let message = format!(
        "the agent of host {host} has reported after the fence command had succeeded, so the host is \
         not off"
    );
    Refusal::new(Code::FailedPrecondition, "HOST_IS_ALIVE", message)
        .with_hint("look at what the fence command does to this host; nothing was recorded")
        .with("host", host)
}

/// Returns the claims that no longer fit the shape of a host, with the missing resources.
pub(super) fn hits(state: &State, view: &HostView) -> Vec<v1::HitClaim> {
    let claims = state.claims_of_host(&view.host.name);
    let hit = claims.filter(|claim| view.host.hit.contains(&claim.id));
    hit.map(|claim| v1::HitClaim {
        claim: claim.id.resource_name(),
        vm: claim.vm.resource_name(),
        reason: shape::describe_missing(&view.host.report.topology, &claim.assignment),
    })
    .collect()
}

/// Returns what is gone of its host that a VM's claim holds; nothing where all is there.
pub(super) fn lost(state: &State, vm: &VmName) -> String {
    let vm = state.vm(vm);
    let claim = vm.and_then(|vm| state.claim(vm.claim?));
    let lost = claim.and_then(|claim| {
        let host = &state.host(&claim.host)?.host;
        let topology = &host.report.topology;
        let hit = host.hit.contains(&claim.id);
        hit.then(|| shape::describe_missing(topology, &claim.assignment))
    });
    lost.unwrap_or_default()
}
