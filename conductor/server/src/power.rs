//! What users ask of a VM on the host that holds it, as an operation.

use berth_domain::operation::{Kind, STOP_TIMEOUT_MS};
use berth_domain::refusal::{Code, Refusal};
use berth_domain::version::{ServiceVersion, TOO_OLD};
use berth_proto::conductor::v1::{
    RebootVmRequest, RebuildVmRequest, SnapshotVmRequest, StartVmRequest, StopVmRequest,
};
use berth_proto::convert::Invalid;
use berth_proto::convert::operation::write_power;
use berth_proto::scheduler::v1::BeginPowerRequest;

/// Returns what begins it. The operation is the same whoever carries it out, and so are its checks:
/// they are the scheduler's.
fn begin(vm: String, kind: &Kind, request_id: String) -> BeginPowerRequest {
    BeginPowerRequest {
        vm,
        power: write_power(kind),
        request_id,
        ..BeginPowerRequest::default()
    }
}

pub(crate) fn stop(asked: StopVmRequest) -> BeginPowerRequest {
    let timeout_ms = asked.timeout_ms.unwrap_or(STOP_TIMEOUT_MS);
    begin(asked.vm, &Kind::Stop { timeout_ms }, asked.request_id)
}

pub(crate) fn start(asked: StartVmRequest) -> BeginPowerRequest {
    begin(asked.vm, &Kind::Start, asked.request_id)
}

pub(crate) fn reboot(asked: RebootVmRequest) -> Result<BeginPowerRequest, Invalid> {
    let timeout_ms = match (asked.hard, asked.timeout_ms) {
        (true, None) => 0,
        (true, Some(_)) => return Err(Invalid::new("timeout_ms", "must be absent with hard")),
        (false, told) => told.unwrap_or(STOP_TIMEOUT_MS),
    };
    let kind = Kind::Reboot { timeout_ms };
    Ok(begin(asked.vm, &kind, asked.request_id))
}

pub(crate) fn rebuild(asked: RebuildVmRequest) -> BeginPowerRequest {
    let images = asked.images;
    begin(asked.vm, &Kind::Rebuild { images }, asked.request_id)
}

pub(crate) fn snapshot(asked: SnapshotVmRequest) -> BeginPowerRequest {
    let (disk, image) = (asked.disk, asked.image);
    begin(asked.vm, &Kind::Snapshot { disk, image }, asked.request_id)
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
        .with_hint("ask another conductor, or upgrade this one"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use berth_proto::convert::operation::read_power;

    fn timeout(asked: BeginPowerRequest) -> u64 {
        let kind = read_power(asked.power).unwrap();
        let (Kind::Stop { timeout_ms } | Kind::Reboot { timeout_ms }) = kind else {
            panic!("{kind:?}")
        };
        timeout_ms
    }

    #[test]
    fn a_guest_has_a_minute_unless_its_user_says_otherwise() {
        let asked = |timeout_ms| StopVmRequest {
            timeout_ms,
            ..StopVmRequest::default()
        };
        assert_eq!(timeout(stop(asked(None))), 60_000);
        assert_eq!(timeout(stop(asked(Some(0)))), 0);
        let asked = |hard, timeout_ms| RebootVmRequest {
            hard,
            timeout_ms,
            ..RebootVmRequest::default()
        };
        assert_eq!(timeout(reboot(asked(false, None)).unwrap()), 60_000);
        assert_eq!(timeout(reboot(asked(true, None)).unwrap()), 0);
        assert!(reboot(asked(true, Some(5))).is_err());
    }

    #[test]
    fn an_older_conductor_refuses() {
        assert_eq!(gate(ServiceVersion::CURRENT), Ok(()));
        assert_eq!(gate(ServiceVersion(2)).unwrap_err().reason, TOO_OLD);
    }
}
