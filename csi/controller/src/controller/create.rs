//! A volume chosen, claimed and made.
//!
//! Invariant: a volume that is reported as created exists, with its true size. Where that is not known
//! yet, the caller has to repeat the call, and gets it then.

use std::collections::BTreeSet;

use berth_domain::name::HostName;
use berth_proto::convert::csi::{Origin, Parameters, capability, topology};
use berth_proto::convert::{Invalid, ResourceName as _};
use berth_proto::csi::v1::{CapacityRange, CreateVolumeRequest, CreateVolumeResponse};
use berth_proto::status;
use berth_proto::volume::v1::{
    self as wire, DeleteVolumeRequest, GetVolumeCapacityRequest, ReplicaPhase, VolumeKind,
};
use tokio::task::JoinSet;
use tonic::{Code, Status};
use uuid::Uuid;

use super::ControllerApi;
use super::look::is_going;

/// The longest name, in bytes.
const NAME_MAX: usize = 128;

/// How often another host is chosen where one cannot make what was claimed there. Its agent then
/// reports what the region really has, so that another one is chosen.
const CHOICES_MAX: usize = 3;

/// How often a volume that is to be released is read again, where it changes meanwhile.
const READS_MAX: usize = 8;

/// A request, parsed and checked.
struct ParsedRequest {
    claim: wire::CreateVolumeRequest,
}

impl ControllerApi {
    pub(super) async fn create(
        &self,
        request: CreateVolumeRequest,
    ) -> Result<CreateVolumeResponse, Status> {
        let parsed = self.read(request)?;
        let mut refused = None;
        for _ in 0..CHOICES_MAX {
            let claimed = self.claim(&parsed).await?;
            match self.make(&claimed).await? {
                Ok(volume) => {
                    return Ok(CreateVolumeResponse {
                        volume: Some(self.shown(&volume)?),
                    });
                }
                // Its claim is released: it may fit elsewhere.
                Err(why) => refused = Some(why),
            }
        }
        Err(refused.unwrap_or_else(|| Status::internal("it was not tried")))
    }

    fn read(&self, request: CreateVolumeRequest) -> Result<ParsedRequest, Status> {
        check_name(&request.name)?;
        let parameters = Parameters::read(Origin::Class, request.parameters)?;
        let volume = capability::Volume {
            is_cache: parameters.kind == VolumeKind::Cache,
            is_kata: parameters.kata_containers,
        };
        capability::usages(request.volume_capabilities, volume)?;
        if request.volume_content_source.is_some() {
            let rule = "is not offered: volumes begin empty";
            return Err(Invalid::new("volume_content_source", rule).into());
        }
        if !request.mutable_parameters.is_empty() {
            return Err(Invalid::new("mutable_parameters", "are not offered").into());
        }
        let (required_bytes, limit_bytes) = sizes(request.capacity_range.unwrap_or_default())?;
        let topology = topology::places(self.driver(), request.accessibility_requirements)?;
        Ok(ParsedRequest {
            claim: wire::CreateVolumeRequest {
                display_name: request.name,
                kind: parameters.kind.into(),
                required_bytes,
                limit_bytes,
                parameters: Some(parameters.wire()),
                preferred_hosts: names(&topology.preferred),
                requisite_hosts: names(&topology.requisite),
                replicas: parameters.replicas,
                preferred_cell: None,
                request_id: String::new(),
                project: String::new(),
            },
        })
    }

    async fn claim(&self, parsed: &ParsedRequest) -> Result<wire::Volume, Status> {
        let mut claim = parsed.claim.clone();
        claim.request_id = Uuid::new_v4().to_string();
        match self.calls.create(claim.clone()).await {
            // A node that is not, or no longer, a host of this cluster is no reason to refuse the others.
            Err(status) if status.code() == Code::NotFound => {
                claim.request_id = Uuid::new_v4().to_string();
                self.calls.create(self.without_unknown(claim).await?).await
            }
            answered => answered,
        }
    }

    /// Leaves out the hosts that are not known.
    async fn without_unknown(
        &self,
        claim: wire::CreateVolumeRequest,
    ) -> Result<wire::CreateVolumeRequest, Status> {
        let capacity = self
            .calls
            .capacity(GetVolumeCapacityRequest::default())
            .await?;
        let known: BTreeSet<String> = capacity.hosts.into_iter().map(|host| host.host).collect();
        let keep = |hosts: &[String]| -> Vec<String> {
            let kept = hosts.iter().filter(|host| known.contains(*host));
            kept.cloned().collect()
        };
        let requisite = keep(&claim.requisite_hosts);
        if requisite.is_empty() && !claim.requisite_hosts.is_empty() {
            let hosts = claim.requisite_hosts.join(", ");
            let shown: String = hosts.chars().take(256).collect();
            let message = format!("none of the hosts that are allowed has volumes: {shown}");
            return Err(Status::resource_exhausted(message));
        }
        Ok(wire::CreateVolumeRequest {
            preferred_hosts: keep(&claim.preferred_hosts),
            requisite_hosts: requisite,
            ..claim
        })
    }

    /// Has every missing replica made. The inner error: it cannot be made, and its claim
    /// is released.
    async fn make(&self, claimed: &wire::Volume) -> Result<Result<wire::Volume, Status>, Status> {
        let waiting = claimed
            .replicas
            .iter()
            .filter(|r| r.phase() == ReplicaPhase::Creating);
        let mut syncs = JoinSet::new();
        for replica in waiting {
            let (calls, timeout) = (self.calls.clone(), self.settings.create_timeout);
            let (host, volume) = (replica.host.clone(), claimed.name.clone());
            syncs.spawn(async move { calls.sync(&host, &volume, timeout).await });
        }
        if syncs.is_empty() {
            return Ok(Ok(claimed.clone()));
        }
        let mut refused = None;
        let mut unknown = None;
        while let Some(synced) = syncs.join_next().await {
            match synced.unwrap_or_else(|_| Err(Status::internal("a call failed"))) {
                Ok(_) => {}
                Err(status) if is_final(&status) => refused = Some(status),
                Err(status) => unknown = Some(status),
            }
        }
        if let Some(status) = refused {
            return self.released(claimed, status).await;
        }
        if let Some(status) = unknown {
            return Err(to_status(claimed, status));
        }
        self.made(claimed).await
    }

    /// Returns a volume as the leader knows it now.
    async fn now(&self, claimed: &wire::Volume) -> Result<Option<wire::Volume>, Status> {
        let request = wire::GetVolumeRequest {
            name: claimed.name.clone(),
            ..wire::GetVolumeRequest::default()
        };
        self.calls.get(request).await
    }

    /// Releases a volume that a host cannot make, unless another call had it made meanwhile: its
    /// caller got it as created.
    pub(super) async fn released(
        &self,
        claimed: &wire::Volume,
        why: Status,
    ) -> Result<Result<wire::Volume, Status>, Status> {
        let ready = |replica: &wire::Replica| replica.phase() == ReplicaPhase::Ready;
        for _ in 0..READS_MAX {
            match self.now(claimed).await? {
                Some(now) if is_whole(&now, claimed) && now.replicas.iter().all(ready) => {
                    return Ok(Ok(now));
                }
                Some(now) if !is_going(&now) => {
                    // Only at the generation that was read: it may have been made since.
                    if !self.release(&now).await? {
                        continue;
                    }
                }
                Some(_) | None => {}
            }
            return Ok(Err(to_status(claimed, why)));
        }
        let message = format!(
            "{} changes while it is released; repeat the call",
            claimed.name
        );
        Err(Status::aborted(message))
    }

    /// Returns the volume after every agent has reported its part as made.
    async fn made(&self, claimed: &wire::Volume) -> Result<Result<wire::Volume, Status>, Status> {
        let ready = |replica: &wire::Replica| replica.phase() == ReplicaPhase::Ready;
        match self.now(claimed).await? {
            Some(now) if !is_whole(&now, claimed) => {
                let message = "a host could not make its part of the volume";
                let why = Status::resource_exhausted(message);
                self.released(claimed, why).await
            }
            Some(now) if now.replicas.iter().all(ready) => Ok(Ok(now)),
            Some(_) => {
                let message = format!(
                    "{} is being made, or deleted; repeat the call",
                    claimed.name
                );
                Err(Status::aborted(message))
            }
            None => {
                let message = format!(
                    "{} was deleted while it was made; repeat the call",
                    claimed.name
                );
                Err(Status::aborted(message))
            }
        }
    }

    /// Releases a volume with a part that cannot be made as a whole: a cache volume on fewer hosts than
    /// requested does not satisfy the request. Returns whether it was released: one that has changed
    /// since it was read is not.
    async fn release(&self, seen: &wire::Volume) -> Result<bool, Status> {
        let request = DeleteVolumeRequest {
            name: seen.name.clone(),
            request_id: Uuid::new_v4().to_string(),
            generation: seen.generation,
            forget: false,
        };
        match self.calls.delete(request).await {
            Ok(()) => Ok(true),
            Err(status) if has_changed(&status) => Ok(false),
            Err(status) => Err(status),
        }
    }
}

fn has_changed(status: &Status) -> bool {
    status::refusal_of(status).is_some_and(|refusal| refusal.reason == "VOLUME_CHANGED")
}

/// Returns whether every part that was claimed is still claimed.
fn is_whole(now: &wire::Volume, claimed: &wire::Volume) -> bool {
    now.replicas.len() >= claimed.replicas.len()
}

/// Returns whether an agent has reported that it cannot make a volume; otherwise it still may.
fn is_final(status: &Status) -> bool {
    let refusal = status::refusal_of(status);
    let reasons = ["NO_SPACE", "VOLUME_NOT_MADE"];
    refusal.is_some_and(|refusal| reasons.contains(&refusal.reason.as_str()))
}

fn to_status(volume: &wire::Volume, status: Status) -> Status {
    // Without an answer, only the volume's name helps the user.
    match client_side(&status) {
        true => Status::unavailable(format!(
            "{} is claimed and its host does not answer: {}; repeat the call",
            volume.name,
            status.message()
        )),
        false => status,
    }
}

fn client_side(status: &Status) -> bool {
    berth_proto::client::is_unanswered(status)
}

fn names(hosts: &[HostName]) -> Vec<String> {
    hosts.iter().map(HostName::resource_name).collect()
}

fn check_name(name: &str) -> Result<(), Invalid> {
    let rule = match name.len() {
        0 => "is required".to_owned(),
        1..=NAME_MAX if !name.contains(char::is_control) => return Ok(()),
        length => format!("has {length} bytes; it may have {NAME_MAX}, and no control characters"),
    };
    Err(Invalid::new("name", rule))
}

/// Returns how much is required and how much is the limit; 0: unset.
fn sizes(range: CapacityRange) -> Result<(u64, u64), Status> {
    let read = |bytes: i64, field: &str| {
        u64::try_from(bytes).map_err(|_| {
            Invalid::new(
                format!("capacity_range.{field}"),
                format!("is {bytes}: it is negative"),
            )
        })
    };
    let required = read(range.required_bytes, "required_bytes")?;
    let limit = read(range.limit_bytes, "limit_bytes")?;
    if limit > 0 && limit < required {
        let message =
            format!("limit_bytes is {limit}, less than required_bytes, which is {required}");
        return Err(Status::out_of_range(message));
    }
    Ok((required, limit))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_not_negative_and_in_order() {
        let read = |required_bytes, limit_bytes| {
            let read = sizes(CapacityRange {
                required_bytes,
                limit_bytes,
            });
            read.map_err(|status| status.code())
        };
        assert_eq!(read(0, 0), Ok((0, 0)));
        assert_eq!(read(7, 7), Ok((7, 7)));
        assert_eq!(read(i64::MAX, 0), Ok((i64::MAX as u64, 0)));
        assert_eq!(read(8, 7), Err(Code::OutOfRange));
        assert_eq!(read(-1, 0), Err(Code::InvalidArgument));
        assert_eq!(read(0, i64::MIN), Err(Code::InvalidArgument));
    }

    /// Goal: only a final refusal releases a volume.
    #[test]
    fn a_volume_that_may_yet_be_made_is_not_given_back() {
        use berth_domain::refusal::{Code, Refusal};
        for (code, reason, expected) in [
            (Code::ResourceExhausted, "NO_SPACE", true),
            (Code::Internal, "VOLUME_NOT_MADE", true),
            (Code::Aborted, "VOLUME_DELAYED", false),
        ] {
            let status = status::to_status(&Refusal::new(code, reason, "so it is"));
            assert_eq!(is_final(&status), expected, "{reason}");
        }
    }

    #[test]
    fn names_are_bounded() {
        for good in ["a", "pvc-1", "ü", &"x".repeat(128)] {
            assert!(check_name(good).is_ok(), "{good}");
        }
        for bad in ["", "a\nb", "a\u{85}b", &"x".repeat(129)] {
            assert!(check_name(bad).is_err(), "{bad:?}");
        }
    }
}
