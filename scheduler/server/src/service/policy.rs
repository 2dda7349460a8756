//! `berth.policy.v1.PolicyService`.

use berth_decide::Action;
use berth_domain::fault;
use berth_domain::host_view::HostView;
use berth_domain::id::Generation;
use berth_domain::name::HostName;
use berth_domain::policy::{Scope, Setting};
use berth_proto::convert::cpu::write_host_cpu;
use berth_proto::convert::field::{self, ADDRESS_MAX};
use berth_proto::convert::memory::write_host_memory;
use berth_proto::policy::v1;
use berth_proto::policy::v1::policy_service_server::PolicyService;
use berth_proto::status::to_status;
use berth_state::{Reply, State};
use tonic::{Request, Response, Status};

use super::context::Context;
use super::keyed::open;
use super::refusal;

/// How many settings one request may carry.
const SETTINGS_MAX: usize = 64;

/// Serves `PolicyService`.
pub(crate) struct PolicyApi(pub(crate) Context);

#[tonic::async_trait]
impl PolicyService for PolicyApi {
    async fn get_scheduling_policy(
        &self,
        request: Request<v1::GetSchedulingPolicyRequest>,
    ) -> Result<Response<v1::GetSchedulingPolicyResponse>, Status> {
        let wire = request.into_inner();
        let host: Option<HostName> = field::optional_name(&wire.host, "host")?;
        let state = self.0.state(wire.consistency).await?;
        let view = match &host {
            None => None,
            Some(name) => {
                let view = state.host(name);
                Some(view.ok_or_else(|| to_status(&refusal::no_host(name)))?)
            }
        };
        Ok(Response::new(v1::GetSchedulingPolicyResponse {
            policy: Some((&**state.policy()).into()),
            revision: state.revision(),
            memory: view.map(|view| memory_of(&state, view)),
            cpu: view.map(|view| cpu_of(&state, view)),
        }))
    }

    async fn update_scheduling_policy(
        &self,
        request: Request<v1::UpdateSchedulingPolicyRequest>,
    ) -> Result<Response<v1::UpdateSchedulingPolicyResponse>, Status> {
        let (wire, caller) = open(request)?;
        if wire.settings.is_empty() && wire.unset.is_empty() {
            return Err(refusal::invalid("settings", "must not be empty"));
        }
        let scope = scope(&wire.group, &wire.host)?;
        let settings = field::text_map(wire.settings, "settings", SETTINGS_MAX, ADDRESS_MAX)?;
        field::bounded(wire.unset.len(), "unset", SETTINGS_MAX)?;
        let unset: Result<Vec<String>, _> = (wire.unset.into_iter())
            .map(|key| field::required_text(key, "unset", ADDRESS_MAX))
            .collect();
        let settings = Setting::parse_scoped(&scope, &settings, &unset?)
            .map_err(|faults| to_status(&fault::refusal("policy", &faults)))?;
        let action = Action::SetPolicy {
            scope,
            settings,
            generation: wire.generation.map(Generation),
        };
        let done = self.0.submit(caller.into_request(false, action)).await?;
        let Reply::Policy(policy) = done.reply else {
            return Err(refusal::mismatch());
        };
        Ok(Response::new(v1::UpdateSchedulingPolicyResponse {
            policy: Some((&*policy).into()),
        }))
    }
}

/// Reads for what something is to be set.
fn scope(group: &str, host: &str) -> Result<Scope, Status> {
    let group = field::optional_name(group, "group")?;
    let host = field::optional_name(host, "host")?;
    match (group, host) {
        (None, None) => Ok(Scope::Cluster),
        (Some(group), None) => Ok(Scope::Group(group)),
        (None, Some(host)) => Ok(Scope::Host(host)),
        (Some(_), Some(_)) => Err(refusal::invalid("host", "must be empty beside a group")),
    }
}

/// Writes the memory status of a host.
pub(crate) fn memory_of(state: &State, view: &HostView) -> v1::HostMemory {
    let policy = state.memory_policy_of(&view.host.name);
    write_host_memory(&policy, &state.memory_verdict(view))
}

/// Writes what holds of the shared CPUs of a host, and what is taken of them.
pub(super) fn cpu_of(state: &State, view: &HostView) -> v1::HostCpu {
    write_host_cpu(&state.cpu_policy_of(&view.host.name), view)
}
