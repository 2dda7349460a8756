//! `berth vm set-restart`: when a VM is started again by itself; and what `berth vm show` says of it.

use anyhow::bail;
use berth_domain::vm::{RestartPolicy, Vm};
use berth_proto::scheduler::v1::power_service_client::PowerServiceClient;
use berth_proto::scheduler::v1::scheduler_service_client::SchedulerServiceClient;
use berth_proto::scheduler::v1::{GetVmRequest, UpdateRestartPolicyRequest};

use super::show;
use crate::arguments::Restart;
use crate::session::{Session, request_id, resource};
use crate::{call, read};

/// Changes what is given of the policy of a VM.
pub(super) async fn set(session: &Session, name: &str, restart: Restart) -> anyhow::Result<()> {
    if restart.is_empty() {
        bail!(
            "nothing to set: give --on-crash, --on-host-failure, --restart-priority or --restarts-per-hour"
        );
    }
    let request = GetVmRequest {
        name: resource("vms", name),
        ..Default::default()
    };
    let known = read!(session, SchedulerServiceClient, get_vm, request)?;
    let known: Vm = known.vm.unwrap_or_default().try_into()?;
    let policy = restart.apply_to(&known.restarts.policy);
    let request = UpdateRestartPolicyRequest {
        vm: resource("vms", name),
        policy: Some((&policy).into()),
        request_id: request_id(None),
    };
    call!(session, PowerServiceClient, update_restart_policy, request)?;
    show(session, name).await
}

/// Returns the lines of a VM about its restarts.
pub(super) fn fields(vm: &Vm, obstacle: &str) -> Vec<(&'static str, String)> {
    let mut fields = Vec::new();
    let restarts = &vm.restarts;
    if !restarts.policy.is_default() {
        fields.push(("restart", describe(&restarts.policy)));
    }
    let begun = restarts.begun_at.len();
    if begun > 0 {
        let most = restarts.policy.per_hour_max;
        fields.push((
            "restarts",
            format!("{begun} within the hour before the last, of {most}"),
        ));
    }
    if restarts.gave_up_at.is_some() {
        let what = format!("`berth vm start {}` starts it again", vm.name);
        fields.push(("used up", what));
    }
    if !obstacle.is_empty() {
        let what = format!("cannot be started if its host fails: {obstacle}");
        fields.push(("elsewhere", what));
    }
    fields
}

fn describe(policy: &RestartPolicy) -> String {
    format!(
        "crash: {}, host failure: {}, priority {}, {} an hour",
        policy.on_crash.as_str(),
        policy.on_host_failure.as_str(),
        policy.priority,
        policy.per_hour_max
    )
}
