//! Hosts as places: `<driver>/node` = name of the host.

use berth_domain::name::HostName;

use crate::convert::Invalid;
use crate::convert::field::{self, LIST_MAX};
use crate::csi::v1::{Topology, TopologyRequirement};

/// Where a volume must be, and where it should be.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Places {
    /// The hosts of which it must be on one; empty: any.
    pub requisite: Vec<HostName>,
    /// The hosts that are tried first, in this order.
    pub preferred: Vec<HostName>,
}

/// Returns the key of hosts in a topology.
#[must_use]
pub fn key(driver: &str) -> String {
    format!("{driver}/node")
}

/// Returns the place that a host is.
#[must_use]
pub fn place(driver: &str, host: &HostName) -> Topology {
    Topology {
        segments: [(key(driver), host.to_string())].into(),
    }
}

/// Returns the host that a place is.
///
/// # Errors
///
/// When it is missing, or has more: no volume could be promised to be there.
pub fn host(driver: &str, place: Topology) -> Result<HostName, Invalid> {
    let key = key(driver);
    let mut segments = place.segments;
    let Some(host) = segments.remove(&key) else {
        return Err(Invalid::new(
            "segments",
            format!("must have the key {key:?}"),
        ));
    };
    if let Some(other) = segments.keys().next() {
        let shown = field::shown(other);
        let rule = format!("has the key {shown}, but volumes are known by {key:?} alone");
        return Err(Invalid::new("segments", rule));
    }
    let path = || format!("segments[{key:?}]");
    HostName::new(&host).map_err(|error| Invalid::new(path(), error.to_string()))
}

/// Reads where a volume must and should be.
///
/// # Errors
///
/// When a place is not a host, or there are too many.
pub fn places(driver: &str, requirement: Option<TopologyRequirement>) -> Result<Places, Invalid> {
    let requirement = requirement.unwrap_or_default();
    let hosts = |places: Vec<Topology>, name: &str| {
        field::each_by(places, name, LIST_MAX, |place| host(driver, place))
            .map_err(|e| e.within("accessibility_requirements"))
    };
    Ok(Places {
        requisite: hosts(requirement.requisite, "requisite")?,
        preferred: hosts(requirement.preferred, "preferred")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const DRIVER: &str = "pmem-csi.intel.com";

    #[test]
    fn a_host_is_a_place_and_comes_back() {
        let h1 = HostName::new("h1").unwrap();
        let there = place(DRIVER, &h1);
        assert_eq!(there.segments["pmem-csi.intel.com/node"], "h1");
        assert_eq!(host(DRIVER, there.clone()), Ok(h1.clone()));
        let requirement = TopologyRequirement {
            requisite: vec![there.clone()],
            preferred: vec![there],
        };
        let read = places(DRIVER, Some(requirement)).unwrap();
        assert_eq!(
            (read.requisite, read.preferred),
            (vec![h1.clone()], vec![h1])
        );
        assert_eq!(places(DRIVER, None), Ok(Places::default()));
    }

    #[test]
    fn other_places_are_refused_by_their_key() {
        let check = |segments: &[(&str, &str)], part: &str| {
            let segments = segments
                .iter()
                .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()));
            let place = Topology {
                segments: segments.collect(),
            };
            let requirement = TopologyRequirement {
                requisite: vec![place],
                preferred: Vec::new(),
            };
            let told = places(DRIVER, Some(requirement)).unwrap_err().to_string();
            let begin = "accessibility_requirements.requisite[0].segments";
            assert!(told.starts_with(begin) && told.contains(part), "{told}");
        };
        check(&[], "must have the key \"pmem-csi.intel.com/node\"");
        check(&[("zone", "a")], "must have the key");
        check(
            &[("pmem-csi.intel.com/node", "h1"), ("zone", "a")],
            "has the key \"zone\"",
        );
        check(&[("pmem-csi.intel.com/node", "-")], "-");
    }
}
