//! Where a new volume goes: which hosts, and which region of each.
//!
//! The hosts that are preferred come first, in their order. Of the others, and of the regions of
//! one host, the one near the cell that is requested, and then the one that is left with the least:
//! what is large stays whole for what needs it. Inside a region the first piece that is large
//! enough is taken, since that is what a kernel does.
//!
//! Invariant: what is chosen fits, on as many distinct hosts as were requested; or nothing is.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use super::{DeviceMode, RegionUsage, Shown, Taken, net_bytes};
use crate::name::{HostName, RegionName};
use crate::refusal::{Code, HOSTS_MAX, HostRefusal, Missing, Refusal};
use crate::topology::CellId;

/// A host that a volume may come to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Which.
    pub host: HostName,
    /// Why nothing new comes here now; empty: it may.
    pub closed: String,
    /// Its regions, each with how far it is from the cell that is requested.
    pub regions: Vec<(u32, RegionUsage)>,
}

/// The request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeRequest {
    /// How much must be usable at least, in bytes.
    pub required_bytes: u64,
    /// How much at most; 0: no limit.
    pub limit_bytes: u64,
    /// On how many hosts.
    pub replicas: usize,
    /// The hosts that are tried first, in this order.
    pub preferred: Vec<HostName>,
    /// The hosts that may be taken at all; empty: all.
    pub requisite: BTreeSet<HostName>,
}

/// What was chosen on one host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chosen {
    /// The host.
    pub host: HostName,
    /// The region.
    pub region: RegionName,
    /// Its cell.
    pub cell: Option<CellId>,
    /// How it is made.
    pub mode: DeviceMode,
    /// What it takes.
    pub taken: Taken,
    /// How much of that can be used, in bytes.
    pub size_bytes: u64,
}

/// Returns where a volume goes, one host after the other in the order of their names.
///
/// # Errors
///
/// There is no space, or no size that can be made is within the limits.
pub fn choose(
    candidates: &[Candidate],
    request: &VolumeRequest,
) -> Result<Vec<Chosen>, Box<Refusal>> {
    if request.limit_bytes > 0 && request.limit_bytes < request.required_bytes {
        return Err(Box::new(out_of_range(request, request.required_bytes)));
    }
    let allowed =
        |c: &&Candidate| request.requisite.is_empty() || request.requisite.contains(&c.host);
    let allowed: Vec<&Candidate> = candidates.iter().filter(allowed).collect();
    let turn = |host: &HostName| {
        let at = request.preferred.iter().position(|other| other == host);
        at.unwrap_or(request.preferred.len())
    };
    let open = allowed.iter().filter(|c| c.closed.is_empty());
    let mut found: Vec<_> = open
        .filter_map(|candidate| {
            let (distance, left, chosen) = best(candidate, request)?;
            Some((turn(&candidate.host), distance, left, chosen))
        })
        .collect();
    found.sort_by(|a, b| (a.0, a.1, a.2, &a.3.host).cmp(&(b.0, b.1, b.2, &b.3.host)));
    if found.len() < request.replicas.max(1) {
        return Err(Box::new(nowhere(&allowed, request, found.len())));
    }
    found.truncate(request.replicas.max(1));
    let mut chosen: Vec<Chosen> = found.into_iter().map(|(.., chosen)| chosen).collect();
    chosen.sort_by(|a, b| a.host.cmp(&b.host));
    Ok(chosen)
}

/// Returns the best region of a host, with what is left of it.
fn best(candidate: &Candidate, request: &VolumeRequest) -> Option<(u32, u64, Chosen)> {
    let fitting = candidate.regions.iter().filter_map(|(distance, usage)| {
        let taken = usage.place(request.required_bytes)?;
        let size_bytes = net_bytes(usage.region.mode, taken.gross_bytes);
        if request.limit_bytes > 0 && size_bytes > request.limit_bytes {
            return None;
        }
        let left = usage.free_bytes() - taken.gross_bytes;
        Some((*distance, left, usage, taken, size_bytes))
    });
    let (distance, left, usage, taken, size_bytes) =
        fitting.min_by_key(|(distance, left, usage, ..)| (*distance, *left, usage.name()))?;
    let chosen = Chosen {
        host: candidate.host.clone(),
        region: usage.name().clone(),
        cell: usage.region.cell,
        mode: usage.region.mode,
        taken,
        size_bytes,
    };
    Some((distance, left, chosen))
}

/// Why a host has no space.
struct Obstacle {
    cause: &'static str,
    message: String,
    /// How much can be used of the largest volume that can be made here, in bytes.
    largest: u64,
    /// What is made of the size that is requested, where that is beyond the limit.
    too_large: Option<u64>,
}

fn obstacle(candidate: &Candidate, request: &VolumeRequest) -> Obstacle {
    let largest = candidate
        .regions
        .iter()
        .map(|(_, usage)| usage.largest())
        .max();
    let largest = largest.unwrap_or(0);
    let say = |cause, message: String| Obstacle {
        cause,
        message,
        largest,
        too_large: None,
    };
    if !candidate.closed.is_empty() {
        return Obstacle {
            largest: 0,
            ..say("HOST_CLOSED", candidate.closed.clone())
        };
    }
    if candidate.regions.is_empty() {
        return say("NO_REGION", "it has no region for volumes".to_owned());
    }
    let placed = candidate.regions.iter().filter_map(|(_, usage)| {
        let taken = usage.place(request.required_bytes)?;
        Some(net_bytes(usage.region.mode, taken.gross_bytes))
    });
    if let Some(size) = placed.min() {
        let message = format!(
            "the smallest volume for this has {}, and at most {} are requested",
            Shown(size),
            Shown(request.limit_bytes)
        );
        return Obstacle {
            too_large: Some(size),
            ..say("SIZE_LIMIT", message)
        };
    }
    let troubled = candidate.regions.iter().find(|(_, usage)| !usage.is_open());
    match troubled {
        Some((_, usage)) if largest == 0 => {
            let (name, trouble) = (usage.name(), &usage.region.trouble);
            say("REGION_TROUBLE", format!("region {name}: {trouble}"))
        }
        Some(_) | None => say(
            "VOLUME_SPACE",
            format!("the largest volume that can be made has {}", Shown(largest)),
        ),
    }
}

fn nowhere(allowed: &[&Candidate], request: &VolumeRequest, found: usize) -> Refusal {
    let obstacles = allowed.iter().map(|c| (&c.host, obstacle(c, request)));
    let mut obstacles: Vec<_> = obstacles.collect();
    let sizes = obstacles.iter().map(|(_, o)| o.too_large);
    let smallest = sizes.clone().flatten().min();
    if let Some(smallest) = smallest.filter(|_| found == 0) {
        let may_help = |o: &Obstacle| o.too_large.is_none() && o.cause == "VOLUME_SPACE";
        if !obstacles.iter().any(|(_, o)| may_help(o)) {
            return out_of_range(request, smallest);
        }
    }
    let requested = request.required_bytes;
    let best = obstacles
        .iter()
        .max_by_key(|(host, o)| (o.largest, Reverse(*host)));
    let size = Shown(requested);
    let what = match request.replicas {
        0 | 1 => format!("no host has room for a volume of {size}"),
        many => format!("{found} hosts have room for {size}, and {many} are needed"),
    };
    let message = match best {
        None => format!("{what}: no host has regions for volumes"),
        Some((_, o)) if o.largest == 0 => format!("{what}: none can be made on any of them"),
        Some((host, o)) => format!(
            "{what}: the largest that can be made has {}, on host {host}",
            Shown(o.largest)
        ),
    };
    let largest = best.map_or(0, |(_, o)| o.largest);
    let mut causes = BTreeMap::new();
    for (_, obstacle) in &obstacles {
        *causes.entry(obstacle.cause.to_owned()).or_default() += 1;
    }
    obstacles.sort_by_key(|(host, o)| (Reverse(o.largest), *host));
    let hosts = obstacles.into_iter().take(HOSTS_MAX);
    let hosts = hosts.map(|(host, obstacle)| HostRefusal {
        host: host.clone(),
        cause: obstacle.cause.to_owned(),
        message: obstacle.message,
        guest_cell: None,
        host_cell: None,
        missing: Some(Missing {
            resource: "usable bytes in one volume".to_owned(),
            requested,
            available: obstacle.largest,
        }),
    });
    let hosts: Vec<HostRefusal> = hosts.collect();
    let refusal = Refusal::new(Code::ResourceExhausted, "NO_SPACE", message)
        .with("required_bytes", requested)
        .with("largest_bytes", largest)
        .with_hint(
            "`berth volume capacity` says what can be made where; where space is in pieces, \
                    `berth volume plan-room` says what to move",
        );
    Refusal {
        causes,
        hosts,
        ..refusal
    }
}

fn out_of_range(request: &VolumeRequest, size_bytes: u64) -> Refusal {
    let VolumeRequest {
        required_bytes,
        limit_bytes,
        ..
    } = request;
    let (required, limit) = (Shown(*required_bytes), Shown(*limit_bytes));
    let message = match limit_bytes < required_bytes {
        true => format!("at least {required} are requested, and at most {limit}"),
        false => format!(
            "a volume of at least {required} has {} after rounding, and at most {limit} are requested",
            Shown(size_bytes)
        ),
    };
    Refusal::new(Code::OutOfRange, "SIZE_OUT_OF_RANGE", message)
        .with("required_bytes", required_bytes)
        .with("limit_bytes", limit_bytes)
        .with("size_bytes", size_bytes)
        .with_hint("raise the limit, or leave it out")
}
