//! What can really be created.

use std::cmp::Reverse;

use berth_proto::convert::ResourceName as _;
use berth_proto::convert::csi::{Origin, Parameters, capability, topology};
use berth_proto::csi::v1::{GetCapacityRequest, GetCapacityResponse};
use berth_proto::volume::v1::{GetVolumeCapacityRequest, HostVolumeCapacity, VolumeKind};
use tonic::{Code, Status};

use super::ControllerApi;
use super::look::signed;

/// What one host has for new volumes.
struct Open {
    available: u64,
    maximum: u64,
    minimum: u64,
}

impl ControllerApi {
    pub(super) async fn capacity(
        &self,
        request: GetCapacityRequest,
    ) -> Result<GetCapacityResponse, Status> {
        let parameters = Parameters::read(Origin::Class, request.parameters)?;
        let volume = capability::Volume {
            is_cache: parameters.kind == VolumeKind::Cache,
            is_kata: parameters.kata_containers,
        };
        let requested = request.volume_capabilities;
        if !requested.is_empty() && capability::usages(requested, volume).is_err() {
            // No volume can be used like that, however much space there is.
            return Ok(GetCapacityResponse::default());
        }
        let host = request.accessible_topology;
        let host = host
            .map(|place| topology::host(self.driver(), place))
            .transpose();
        let host = host.map_err(|e| e.within("accessible_topology"))?;
        let response = self.calls.capacity(GetVolumeCapacityRequest {
            hosts: host.iter().map(|host| host.resource_name()).collect(),
            ..GetVolumeCapacityRequest::default()
        });
        let capacity = match response.await {
            Ok(capacity) => capacity,
            Err(status) if status.code() == Code::NotFound => {
                return Ok(GetCapacityResponse::default());
            }
            Err(status) => return Err(status),
        };
        // For one host, only its own capacity counts.
        let replicas = match host {
            Some(_) => 1,
            None => parameters.replicas,
        };
        Ok(answer(capacity.hosts, replicas))
    }
}

fn answer(hosts: Vec<HostVolumeCapacity>, replicas: u32) -> GetCapacityResponse {
    let mut open: Vec<Open> = hosts.into_iter().filter(|h| h.open).map(of_host).collect();
    open.sort_by_key(|host| Reverse(host.maximum));
    // A cache volume needs space on that many hosts: the one of them with the least decides.
    let last = usize::try_from(replicas)
        .unwrap_or(usize::MAX)
        .saturating_sub(1);
    let maximum = open.get(last).map_or(0, |host| host.maximum);
    let available: u64 = open.iter().map(|host| host.available).sum();
    let minimum = open
        .iter()
        .map(|host| host.minimum)
        .filter(|m| *m > 0)
        .min();
    GetCapacityResponse {
        available_capacity: match maximum {
            0 => 0,
            _ => signed(available / u64::from(replicas.max(1))),
        },
        maximum_volume_size: Some(signed(maximum)),
        minimum_volume_size: minimum.map(signed),
    }
}

fn of_host(host: HostVolumeCapacity) -> Open {
    let regions = || host.regions.iter();
    Open {
        available: regions().map(|region| region.available_bytes).sum(),
        maximum: regions()
            .map(|region| region.maximum_volume_bytes)
            .max()
            .unwrap_or(0),
        minimum: regions()
            .map(|region| region.minimum_volume_bytes)
            .filter(|minimum| *minimum > 0)
            .min()
            .unwrap_or(0),
    }
}

#[cfg(test)]
mod tests {
    use berth_proto::volume::v1::RegionCapacity;

    use super::*;

    fn host(open: bool, regions: &[(u64, u64)]) -> HostVolumeCapacity {
        let regions = regions.iter().map(|(available, maximum)| RegionCapacity {
            available_bytes: *available,
            maximum_volume_bytes: *maximum,
            minimum_volume_bytes: 4,
            ..RegionCapacity::default()
        });
        HostVolumeCapacity {
            host: String::new(),
            open,
            regions: regions.collect(),
        }
    }

    #[test]
    fn the_largest_and_the_sum_differ() {
        let hosts = || vec![host(true, &[(60, 40), (50, 50)]), host(true, &[(30, 20)])];
        let capacity = answer(hosts(), 1);
        assert_eq!(capacity.available_capacity, 140);
        assert_eq!(
            (capacity.maximum_volume_size, capacity.minimum_volume_size),
            (Some(50), Some(4))
        );
        let cache = answer(hosts(), 2);
        assert_eq!(
            (cache.available_capacity, cache.maximum_volume_size),
            (70, Some(20))
        );
        let more = answer(hosts(), 3);
        assert_eq!(
            (more.available_capacity, more.maximum_volume_size),
            (0, Some(0))
        );
    }

    #[test]
    fn hosts_that_take_nothing_do_not_count() {
        let capacity = answer(vec![host(false, &[(60, 40)])], 1);
        assert_eq!(
            (capacity.available_capacity, capacity.maximum_volume_size),
            (0, Some(0))
        );
        assert_eq!(capacity.minimum_volume_size, None);
    }
}
