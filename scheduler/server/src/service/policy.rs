//! `berth.policy.v1.PolicyService`.

use berth_domain::fault;
use berth_domain::id::Generation;
use berth_domain::policy::Setting;
use berth_proto::convert::field::{self, ADDRESS_MAX};
use berth_proto::policy::v1;
use berth_proto::policy::v1::policy_service_server::PolicyService;
use berth_proto::status::to_status;
use berth_state::Reply;
use tonic::{Request, Response, Status};

use super::context::Context;
use super::keyed::open;
use super::refusal;
use crate::core::Request as Asked;

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
        let state = self.0.state(request.into_inner().consistency).await?;
        Ok(Response::new(v1::GetSchedulingPolicyResponse {
            policy: Some((&**state.policy()).into()),
            revision: state.revision(),
        }))
    }

    async fn update_scheduling_policy(
        &self,
        request: Request<v1::UpdateSchedulingPolicyRequest>,
    ) -> Result<Response<v1::UpdateSchedulingPolicyResponse>, Status> {
        let (wire, caller) = open(request)?;
        if wire.settings.is_empty() {
            return Err(refusal::invalid("settings", "must not be empty"));
        }
        let settings = field::text_map(wire.settings, "settings", SETTINGS_MAX, ADDRESS_MAX)?;
        let settings = Setting::parse_all(&settings)
            .map_err(|faults| to_status(&fault::refusal("policy", &faults)))?;
        let asked = Asked::SetPolicy {
            settings,
            generation: wire.generation.map(Generation),
        };
        let done = self.0.ask(caller.ask(false, asked)).await?;
        let Reply::Policy(policy) = done.reply else {
            return Err(refusal::mismatch());
        };
        Ok(Response::new(v1::UpdateSchedulingPolicyResponse {
            policy: Some((&*policy).into()),
        }))
    }
}
