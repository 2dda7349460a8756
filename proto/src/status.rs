//! Refusals as gRPC statuses, and back.
//!
//! A status carries the canonical code, the sentence as text for people, and two details: a
//! `google.rpc.ErrorInfo` with the reason for programs of any kind, and the whole
//! `berth.type.v1.Refusal` for ours. A third, `berth.type.v1.Hint`, is there where the hint names a
//! change that programs can make.
//!
//! Invariant: the details stay below [`DETAILS_MAX`]. They travel in the trailers of a response,
//! and peers drop a stream whose headers are too large; so long refusals lose their least
//! important parts here (never in what is stored).

use berth_domain::refusal::{Code, Refusal};
use prost::{Message as _, Name as _};
use prost_types::Any;
use tonic::Status;
use tonic_types::pb;

use crate::convert::{Invalid, agent::Mismatch};
use crate::types::v1;

/// The domain of our reasons in `google.rpc.ErrorInfo`.
pub const ERROR_DOMAIN: &str = "berth";
/// The reason of a request that reached a member that does not lead.
pub const NOT_LEADER: &str = "NOT_LEADER";
/// The reason of a request that may be carried out, or not.
pub const OUTCOME_UNKNOWN: &str = "OUTCOME_UNKNOWN";
/// The key in a refusal's metadata that names the leader's address, as `http://127.0.0.1:7100`.
pub const LEADER: &str = "leader";
/// The key in the metadata of a refusal by the layers in front of a server that holds its hint.
const HINT: &str = "hint";
/// The most bytes of encoded details, before base64 makes them a third longer; the smallest limit
/// of headers among usual peers is 16 KiB.
pub const DETAILS_MAX: usize = 8 * 1024;

/// The longest sentence in the details, in bytes.
const MESSAGE_MAX: usize = 2048;
/// The longest sentence outside of them; there each byte beyond ASCII takes three.
const PLAIN_MESSAGE_MAX: usize = 1024;
const ERROR_INFO_URL: &str = "type.googleapis.com/google.rpc.ErrorInfo";
/// The longest change, encoded; a longer one is left out, and its sentence is cut.
const CHANGE_MAX: usize = 1024;
/// Space for what surrounds the details.
const MARGIN: usize = 256;

/// Returns the status of a refusal.
#[must_use]
pub fn to_status(refusal: &Refusal) -> Status {
    let mut wire = v1::Refusal::from(refusal);
    let change = refusal.change.as_deref().map(v1::Hint::from);
    let change = change.filter(|change| change.encoded_len() <= CHANGE_MAX);
    let reserved = change
        .as_ref()
        .map_or(0, |change| change.encoded_len() + MARGIN);
    shorten(&mut wire, reserved);
    let code = tonic_code(refusal.code);
    let info = pb::ErrorInfo {
        reason: wire.reason.clone(),
        domain: ERROR_DOMAIN.to_owned(),
        metadata: wire.metadata.clone().into_iter().collect(),
    };
    let mut all = vec![
        Any {
            type_url: ERROR_INFO_URL.to_owned(),
            value: info.encode_to_vec(),
        },
        Any {
            type_url: v1::Refusal::type_url(),
            value: wire.encode_to_vec(),
        },
    ];
    all.extend(change.map(|change| Any {
        type_url: v1::Hint::type_url(),
        value: change.encode_to_vec(),
    }));
    let details = pb::Status {
        code: code.into(),
        message: wire.message.clone(),
        details: all,
    };
    cut(&mut wire.message, PLAIN_MESSAGE_MAX);
    Status::with_details(code, wire.message, details.encode_to_vec().into())
}

/// Returns the refusal of a status, also where another server than ours gave it.
#[must_use]
pub fn from_status(status: &Status) -> Refusal {
    if let Some(refusal) = refusal_of(status) {
        return refusal;
    }
    let mut message = match status.message() {
        "" => status.code().description().to_owned(),
        message => message.to_owned(),
    };
    cut(&mut message, MESSAGE_MAX);
    let info = info_of(status).unwrap_or_default();
    let reason = match &*info.reason {
        "" => code_name(status.code()),
        reason => reason,
    };
    let refusal = Refusal::new(domain_code(status.code()), reason, message);
    info.metadata
        .into_iter()
        .fold(refusal, |refusal, (key, value)| match &*key {
            HINT => refusal.with_hint(value),
            key => refusal.with(key, value),
        })
}

/// Returns what stands beside a refusal which is not ours as a whole, as of the layers in front of a
/// server.
fn info_of(status: &Status) -> Option<pb::ErrorInfo> {
    let details = pb::Status::decode(status.details()).ok()?.details;
    let info = details
        .into_iter()
        .find(|any| any.type_url == ERROR_INFO_URL)?;
    let info = pb::ErrorInfo::decode(&*info.value).ok()?;
    (info.domain == ERROR_DOMAIN && !info.reason.is_empty()).then_some(info)
}

/// Returns the refusal in the details of a status; absent where none of our servers made it.
#[must_use]
pub fn refusal_of(status: &Status) -> Option<Refusal> {
    let details = pb::Status::decode(status.details()).ok()?.details;
    let find = |url: String| details.iter().find(|any| any.type_url == url);
    let detail = find(v1::Refusal::type_url())?;
    let refusal: Refusal = v1::Refusal::decode(&*detail.value).ok()?.try_into().ok()?;
    // One that is not understood, as of a newer server, is left out.
    let change = find(v1::Hint::type_url());
    let change = change.and_then(|any| v1::Hint::decode(&*any.value).ok()?.try_into().ok());
    Some(Refusal {
        change: change.map(Box::new),
        ..refusal
    })
}

/// Returns the refusal of a member that does not lead; `leader` is the address of the one that
/// does, as `http://127.0.0.1:7100`, if it is known.
#[must_use]
pub fn not_leader(leader: Option<&str>) -> Refusal {
    let message = match leader {
        Some(leader) => format!("this member does not lead, {leader} does"),
        None => "this member does not lead, and it does not know who does".to_owned(),
    };
    Refusal::new(Code::Unavailable, NOT_LEADER, message).with(LEADER, leader.unwrap_or_default())
}

/// Returns the leader's address that a [`not_leader`] refusal names.
#[must_use]
pub fn leader_hint(refusal: &Refusal) -> Option<&str> {
    let leader = refusal.metadata.get(LEADER)?;
    (refusal.reason == NOT_LEADER && !leader.is_empty()).then_some(leader)
}

impl From<Invalid> for Status {
    fn from(invalid: Invalid) -> Self {
        to_status(&invalid.into())
    }
}

impl From<Mismatch> for Status {
    fn from(mismatch: Mismatch) -> Self {
        to_status(&Refusal::new(
            Code::Internal,
            "REPLY_MISMATCH",
            mismatch.to_string(),
        ))
    }
}

/// Takes away the least important parts until both details fit beside what is reserved: the refused
/// hosts but the nearest, then causes, then facts for programs.
fn shorten(refusal: &mut v1::Refusal, reserved: usize) {
    cut(&mut refusal.message, MESSAGE_MAX);
    cut(&mut refusal.reason, MARGIN);
    if let Some(hint) = &mut refusal.hint {
        cut(hint, MESSAGE_MAX / 2);
    }
    for host in &mut refusal.hosts {
        cut(&mut host.message, MESSAGE_MAX / 4);
    }
    while size(refusal) + reserved + MARGIN > DETAILS_MAX {
        let shorter = refusal.hosts.pop().is_some()
            || refusal.causes.pop_last().is_some()
            || refusal.metadata.pop_last().is_some();
        if !shorter {
            break;
        }
    }
}

/// The encoded size of both details: the metadata, the reason and the message are included twice.
fn size(refusal: &v1::Refusal) -> usize {
    let facts = refusal.metadata.iter();
    let twice: usize = facts.map(|(k, v)| k.len() + v.len() + 8).sum();
    refusal.encoded_len() + twice + refusal.reason.len() + refusal.message.len()
}

fn cut(text: &mut String, max: usize) {
    const ELLIPSIS: char = '…';
    if text.len() > max {
        let mut end = max - ELLIPSIS.len_utf8();
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        text.truncate(end);
        text.push(ELLIPSIS);
    }
}

fn tonic_code(code: Code) -> tonic::Code {
    match code {
        Code::InvalidArgument => tonic::Code::InvalidArgument,
        Code::NotFound => tonic::Code::NotFound,
        Code::AlreadyExists => tonic::Code::AlreadyExists,
        Code::FailedPrecondition => tonic::Code::FailedPrecondition,
        Code::Aborted => tonic::Code::Aborted,
        Code::ResourceExhausted => tonic::Code::ResourceExhausted,
        Code::OutOfRange => tonic::Code::OutOfRange,
        Code::Unavailable => tonic::Code::Unavailable,
        Code::DeadlineExceeded => tonic::Code::DeadlineExceeded,
        Code::Cancelled => tonic::Code::Cancelled,
        Code::PermissionDenied => tonic::Code::PermissionDenied,
        Code::Internal => tonic::Code::Internal,
        Code::Unimplemented => tonic::Code::Unimplemented,
    }
}

/// Returns the canonical name of a code, as `NOT_FOUND`.
#[must_use]
pub fn name_of(code: Code) -> &'static str {
    code_name(tonic_code(code))
}

/// Ours are fewer: what we never send reads as the nearest.
fn domain_code(code: tonic::Code) -> Code {
    match code {
        tonic::Code::InvalidArgument => Code::InvalidArgument,
        tonic::Code::NotFound => Code::NotFound,
        tonic::Code::AlreadyExists => Code::AlreadyExists,
        tonic::Code::FailedPrecondition => Code::FailedPrecondition,
        tonic::Code::Aborted => Code::Aborted,
        tonic::Code::ResourceExhausted => Code::ResourceExhausted,
        tonic::Code::OutOfRange => Code::OutOfRange,
        tonic::Code::Unavailable => Code::Unavailable,
        tonic::Code::DeadlineExceeded => Code::DeadlineExceeded,
        tonic::Code::Cancelled => Code::Cancelled,
        tonic::Code::PermissionDenied | tonic::Code::Unauthenticated => Code::PermissionDenied,
        tonic::Code::Unimplemented => Code::Unimplemented,
        tonic::Code::Ok | tonic::Code::Unknown | tonic::Code::Internal | tonic::Code::DataLoss => {
            Code::Internal
        }
    }
}

fn code_name(code: tonic::Code) -> &'static str {
    match code {
        tonic::Code::Ok => "OK",
        tonic::Code::Cancelled => "CANCELLED",
        tonic::Code::Unknown => "UNKNOWN",
        tonic::Code::InvalidArgument => "INVALID_ARGUMENT",
        tonic::Code::DeadlineExceeded => "DEADLINE_EXCEEDED",
        tonic::Code::NotFound => "NOT_FOUND",
        tonic::Code::AlreadyExists => "ALREADY_EXISTS",
        tonic::Code::PermissionDenied => "PERMISSION_DENIED",
        tonic::Code::ResourceExhausted => "RESOURCE_EXHAUSTED",
        tonic::Code::FailedPrecondition => "FAILED_PRECONDITION",
        tonic::Code::Aborted => "ABORTED",
        tonic::Code::OutOfRange => "OUT_OF_RANGE",
        tonic::Code::Unimplemented => "UNIMPLEMENTED",
        tonic::Code::Internal => "INTERNAL",
        tonic::Code::Unavailable => "UNAVAILABLE",
        tonic::Code::DataLoss => "DATA_LOSS",
        tonic::Code::Unauthenticated => "UNAUTHENTICATED",
    }
}

#[cfg(test)]
mod tests {
    use berth_domain::hint::{
        Hint, HostShape, NeededBridge, OpenStep, PoolChange, RequestChange, VmAction, VmChange,
    };
    use berth_domain::name::{
        HostName, PhysicalNetworkName, PmemName, ServerGroupName, VmName, ZoneName,
    };
    use berth_domain::refusal::{HostRefusal, Missing};
    use berth_domain::resource::Trait;
    use berth_domain::topology::CellId;
    use tonic_types::StatusExt as _;

    use super::*;

    const CODES: [Code; 13] = [
        Code::InvalidArgument,
        Code::NotFound,
        Code::AlreadyExists,
        Code::FailedPrecondition,
        Code::Aborted,
        Code::ResourceExhausted,
        Code::OutOfRange,
        Code::Unavailable,
        Code::DeadlineExceeded,
        Code::Cancelled,
        Code::PermissionDenied,
        Code::Internal,
        Code::Unimplemented,
    ];

    fn no_valid_host(hosts: usize, length: usize) -> Refusal {
        let mut refusal = Refusal::new(Code::ResourceExhausted, "NO_VALID_HOST", "no room")
            .with_hint("free two CPUs on h1")
            .with("vm", "a");
        refusal.causes.insert("DEDICATED_CPUS".to_owned(), 1000);
        refusal.hosts = (0..hosts)
            .map(|n| HostRefusal {
                host: HostName::new(&format!("h{n}")).unwrap(),
                cause: "DEDICATED_CPUS".to_owned(),
                message: "x".repeat(length),
                guest_cell: Some(0),
                host_cell: None,
                missing: Some(Missing {
                    resource: "dedicated CPUs".to_owned(),
                    requested: 4,
                    available: 2,
                }),
            })
            .collect();
        refusal
    }

    #[test]
    fn a_refusal_comes_back_as_it_was() {
        for code in CODES {
            let refusal = Refusal {
                code,
                ..no_valid_host(8, 100)
            };
            assert_eq!(from_status(&to_status(&refusal)), refusal);
        }
    }

    /// Goal: the change that a hint names travels beside the refusal, and what is not understood of
    /// it is left out. Method: one of each kind, and one of a newer server.
    #[test]
    fn a_change_comes_back_as_it_was() {
        let host = |text| HostName::new(text).unwrap();
        let vm = |action| VmChange {
            vm: VmName::new("a").unwrap(),
            action,
        };
        let zone = ZoneName::new("z").unwrap();
        let group = ServerGroupName::new("g").unwrap();
        let spec = |value: Option<&str>| RequestChange::ExtraSpec {
            key: "k".to_owned(),
            value: value.map(str::to_owned),
        };
        let mut changes = vec![
            Hint::WaitForErasure {
                host: host("h"),
                namespaces: vec![PmemName::new("p").unwrap()],
            },
            Hint::OpenHost {
                host: host("h"),
                steps: vec![
                    OpenStep::Uncordon,
                    OpenStep::StartAgent,
                    OpenStep::RestoreShape,
                    OpenStep::StopUnknownGuests,
                ],
            },
            Hint::Vacate {
                host: host("h"),
                nodes: vec![CellId(1)],
                vms: vec![
                    vm(VmAction::LiveMigrate { to: host("i") }),
                    vm(VmAction::ColdMigrate { to: host("i") }),
                    vm(VmAction::ConfirmResize),
                    vm(VmAction::Shelve),
                    vm(VmAction::Delete),
                ],
                erasures: vec![PmemName::new("p").unwrap()],
            },
            Hint::ResizePools {
                host: host("h"),
                pools: vec![PoolChange {
                    node: CellId(1),
                    size_kib: 2048,
                    pages: 0,
                    needed: 4,
                }],
            },
            Hint::AddTraits {
                host: host("h"),
                traits: vec![Trait::new("CUSTOM_A").unwrap()],
            },
            Hint::AddBridges {
                host: host("h"),
                bridges: vec![NeededBridge {
                    physical_network: PhysicalNetworkName::new("p").unwrap(),
                    tags: true,
                    mtu: Some(9000),
                }],
            },
            Hint::UpgradeAgents {
                agents: vec![host("h"), host("i")],
                host: host("i"),
            },
            Hint::AddHost { like: host("h") },
            Hint::AddShape(Box::new(HostShape {
                nodes: 2,
                dedicated: 4,
                shared: 1,
                threads: 2,
                memory_mib: 512,
                page_size_kib: 2048,
                traits: vec![Trait::new("CUSTOM_A").unwrap()],
                zone: Some(zone.clone()),
                metadata: [("ssd".to_owned(), "true".to_owned())].into(),
                storage_of: Some(host("h")),
            })),
            Hint::AnyHostAnd(Box::new(Hint::AddHost { like: host("h") })),
        ];
        let requests = [
            RequestChange::AnyHost,
            spec(Some("v")),
            spec(None),
            RequestChange::Vcpus(3),
            RequestChange::MemoryMib(64),
            RequestChange::Zone(Some(zone)),
            RequestChange::Zone(None),
            RequestChange::LeaveGroup(group),
        ];
        changes.extend(requests.map(Hint::ChangeRequest));
        for change in changes {
            let refusal = no_valid_host(8, 100).with_change(change);
            let status = to_status(&refusal);
            assert!(status.details().len() <= DETAILS_MAX + MARGIN);
            assert_eq!(from_status(&status), refusal);
        }
        let mut details = pb::Status::decode(to_status(&no_valid_host(1, 10)).details()).unwrap();
        details.details.push(Any {
            type_url: v1::Hint::type_url(),
            value: v1::Hint::default().encode_to_vec(),
        });
        let newer = details.encode_to_vec().into();
        let status = Status::with_details(tonic::Code::ResourceExhausted, "no room", newer);
        assert_eq!(from_status(&status), no_valid_host(1, 10));
    }

    #[test]
    fn other_programs_find_the_reason() {
        let status = to_status(&no_valid_host(1, 10));
        let info = status.get_details_error_info().unwrap();
        assert_eq!(info.reason, "NO_VALID_HOST");
        assert_eq!(info.domain, "berth");
        assert_eq!(info.metadata["vm"], "a");
        assert_eq!(status.code(), tonic::Code::ResourceExhausted);
        assert_eq!(status.message(), "no room");
    }

    #[test]
    fn a_status_of_another_server_is_a_refusal_too() {
        for number in 1..=16 {
            let refusal = from_status(&Status::new(number.into(), "gone"));
            assert_eq!(refusal.message, "gone");
            assert!(!refusal.reason.is_empty());
        }
        let bare = from_status(&Status::new(tonic::Code::Unavailable, ""));
        assert_eq!(
            (bare.code, &*bare.reason),
            (Code::Unavailable, "UNAVAILABLE")
        );
        assert!(!bare.message.is_empty());
    }

    /// Goal: no refusal makes headers too large. Method: each part alone is too long.
    #[test]
    fn long_refusals_are_shortened() {
        let long = "ä".repeat(40_000);
        let mut facts = no_valid_host(0, 0);
        let mut causes = no_valid_host(0, 0);
        for n in 0..2000 {
            facts = facts.with(&format!("fact{n}"), "0123456789");
            causes.causes.insert(format!("CAUSE_{n}"), n);
        }
        for refusal in [
            no_valid_host(8, 10_000),
            Refusal::new(Code::Internal, "INTERNAL", &*long),
            Refusal::new(Code::Internal, &long, "m"),
            no_valid_host(1, 1).with_hint(&*long),
            no_valid_host(1, 1).with(&long, 1),
            facts,
            causes,
        ] {
            let status = to_status(&refusal);
            assert!(status.details().len() <= DETAILS_MAX);
            let back = from_status(&status);
            assert_eq!(back.code, refusal.code);
            assert!(!back.reason.is_empty());
        }
        let back = from_status(&to_status(&no_valid_host(8, 10_000)));
        assert!(back.hosts.len() > 4 && back.hosts[0].message.ends_with('…'));
    }

    #[test]
    fn the_leader_is_named() {
        let hint = |leader| {
            let refusal = from_status(&to_status(&not_leader(leader)));
            leader_hint(&refusal).map(str::to_owned)
        };
        assert_eq!(hint(Some("http://h:1")), Some("http://h:1".to_owned()));
        assert_eq!(hint(None), None);
        let other = Refusal::new(Code::Unavailable, "DOWN", "m").with(LEADER, "http://h:1");
        assert_eq!(leader_hint(&other), None);
    }
}
