//! Requests of users to a VM on its host, as operations.

use berth_domain::operation::{Kind, STOP_TIMEOUT_MS};
use berth_domain::refusal::{Code, Refusal};
use berth_domain::version::{ServiceVersion, TOO_OLD};
use berth_proto::conductor::v1::{
    RebootVmRequest, RebuildVmRequest, SnapshotVmRequest, StartVmRequest, StopVmRequest,
};
use berth_proto::convert::Invalid;
use berth_proto::convert::operation::write_power;
use berth_proto::scheduler::v1::BeginPowerRequest;

/// Returns what begins it. The operation is the same for every conductor, and so are its checks:
/// they are the scheduler's.
fn begin(vm: String, kind: &Kind, request_id: String) -> BeginPowerRequest {
    BeginPowerRequest {
        vm,
        power: write_power(kind),
        request_id,
        ..BeginPowerRequest::default()
    }
}

pub(crate) fn stop(request: StopVmRequest) -> BeginPowerRequest {
    let timeout_ms = request.timeout_ms.unwrap_or(STOP_TIMEOUT_MS);
    begin(request.vm, &Kind::Stop { timeout_ms }, request.request_id)
}

pub(crate) fn start(request: StartVmRequest) -> BeginPowerRequest {
    begin(request.vm, &Kind::Start, request.request_id)
}

pub(crate) fn reboot(request: RebootVmRequest) -> Result<BeginPowerRequest, Invalid> {
    let timeout_ms = match (request.hard, request.timeout_ms) {
        (true, None) => 0,
        (true, Some(_)) => return Err(Invalid::new("timeout_ms", "must be absent with hard")),
        (false, timeout_ms) => timeout_ms.unwrap_or(STOP_TIMEOUT_MS),
    };
    let kind = Kind::Reboot { timeout_ms };
    Ok(begin(request.vm, &kind, request.request_id))
}

pub(crate) fn rebuild(request: RebuildVmRequest) -> BeginPowerRequest {
    let images = request.images;
    begin(request.vm, &Kind::Rebuild { images }, request.request_id)
}

pub(crate) fn snapshot(request: SnapshotVmRequest) -> BeginPowerRequest {
    let (disk, image) = (request.disk, request.image);
    begin(
        request.vm,
        &Kind::Snapshot { disk, image },
        request.request_id,
    )
}

/// Refuses where this conductor behaves like one from before these operations.
pub(crate) fn gate(version: ServiceVersion) -> Result<(), Refusal> {
    let needed = ServiceVersion::VM_POWER;
    if version >= needed {
        return Ok(());
    }
    let message = format!(
        "this conductor runs at service version {version} and does not know this operation"
    );
    Err(Refusal::new(Code::Unimplemented, TOO_OLD, message)
        .with("version", version)
        .with("needed_version", needed)
        .with_hint("use another conductor, or upgrade this one"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use berth_proto::convert::operation::read_power;

    fn timeout(request: BeginPowerRequest) -> u64 {
        let kind = read_power(request.power).unwrap();
        let (Kind::Stop { timeout_ms } | Kind::Reboot { timeout_ms }) = kind else {
            panic!("{kind:?}")
        };
        timeout_ms
    }

    #[test]
    fn a_guest_has_a_minute_unless_its_user_says_otherwise() {
        let request = |timeout_ms| StopVmRequest {
            timeout_ms,
            ..StopVmRequest::default()
        };
        assert_eq!(timeout(stop(request(None))), 60_000);
        assert_eq!(timeout(stop(request(Some(0)))), 0);
        let request = |hard, timeout_ms| RebootVmRequest {
            hard,
            timeout_ms,
            ..RebootVmRequest::default()
        };
        assert_eq!(timeout(reboot(request(false, None)).unwrap()), 60_000);
        assert_eq!(timeout(reboot(request(true, None)).unwrap()), 0);
        assert!(reboot(request(true, Some(5))).is_err());
    }

    #[test]
    fn an_older_conductor_refuses() {
        assert_eq!(gate(ServiceVersion::CURRENT), Ok(()));
        assert_eq!(gate(ServiceVersion(2)).unwrap_err().reason, TOO_OLD);
    }
}
