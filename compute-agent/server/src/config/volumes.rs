//! Configuration of volumes: the table `[volumes]`. What is made of it is in `volumes::managers`.

use std::path::PathBuf;
use std::str::FromStr;

use berth_domain::name::RegionName;
use berth_domain::topology::CellId;
use berth_domain::volume::DIRECT_ALIGN_BYTES;
use berth_pmem::volume::simulated::SimulatedRegion;
use berth_process::configuration::check_bounds;
use berth_process::{Keys, socket};
use berth_proto::convert::csi::{DRIVER_NAME_DEFAULT, is_driver_name};
use serde::Deserialize;

/// What makes the devices of volumes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Manager {
    /// Nothing: the host has no volumes.
    #[default]
    None,
    /// Logical volumes, one volume group for each region.
    Lvm,
    /// A namespace for each volume.
    Direct,
    /// As `Lvm`, simulated.
    Sim,
    /// As `Direct`, simulated.
    SimDirect,
}

/// A region that is simulated, as `region0:65536` or, attached to cell 1, `region0:65536@1`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct SimRegion {
    /// Its name.
    pub name: RegionName,
    /// How large it is.
    pub size_mib: u64,
    /// The cell that it is attached to.
    pub cell: Option<CellId>,
}

/// The largest simulated region.
const SIM_MIB_MAX: u64 = 1 << 30;

impl FromStr for SimRegion {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let odd = || {
            format!(
                "{text:?} is not of the form NAME:MIB or NAME:MIB@CELL, with up to {SIM_MIB_MAX} MiB"
            )
        };
        let (name, rest) = text.split_once(':').ok_or_else(odd)?;
        let (size, cell) = match rest.split_once('@') {
            Some((size, cell)) => (size, Some(cell)),
            None => (rest, None),
        };
        let size_mib = size.parse().ok().filter(|mib| *mib <= SIM_MIB_MAX);
        let cell = cell.map(|cell| cell.parse().map(CellId).map_err(|_| odd()));
        Ok(Self {
            name: RegionName::new(name).map_err(|error| error.to_string())?,
            size_mib: size_mib.ok_or_else(odd)?,
            cell: cell.transpose()?,
        })
    }
}

impl TryFrom<String> for SimRegion {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

/// Configuration of volumes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// What makes their devices.
    pub manager: Manager,
    /// Where it is written down which there are, and how they are used.
    pub state_dir: PathBuf,
    /// How much of each region volume groups are made of, in percent; only lvm.
    pub fsdax_percent: u64,
    /// What sizes are multiples of, in MiB; that of the region if absent. Only direct.
    pub direct_align_mib: Option<u64>,
    /// Name of the CSI driver; the controllers are configured with the same.
    pub driver_name: String,
    /// Where the kubelet finds the driver, `unix:///path`; nowhere if absent.
    pub csi_endpoint: Option<String>,
    /// The regions that are simulated.
    pub sim_regions: Vec<SimRegion>,
    /// How long it takes to make a simulated device.
    pub sim_create_ms: u64,
    /// How much of simulated devices is erased in a second.
    pub sim_erase_mib_per_s: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            manager: Manager::None,
            state_dir: "/var/lib/berth/volumes".into(),
            fsdax_percent: 100,
            direct_align_mib: None,
            driver_name: DRIVER_NAME_DEFAULT.to_owned(),
            csi_endpoint: None,
            sim_regions: Vec::new(),
            sim_create_ms: 0,
            sim_erase_mib_per_s: 1 << 30,
        }
    }
}

impl Settings {
    pub(crate) fn read(&mut self, keys: &mut Keys) {
        keys.take("manager", &mut self.manager);
        keys.take("state_dir", &mut self.state_dir);
        keys.take("fsdax_percent", &mut self.fsdax_percent);
        keys.take_some("direct_align_mib", &mut self.direct_align_mib);
        keys.take("driver_name", &mut self.driver_name);
        keys.take_some("csi_endpoint", &mut self.csi_endpoint);
        keys.take_each("sim_regions", &mut self.sim_regions);
        keys.take("sim_create_ms", &mut self.sim_create_ms);
        keys.take("sim_erase_mib_per_s", &mut self.sim_erase_mib_per_s);
    }

    pub(crate) fn validate(&self, faults: &mut Vec<String>) {
        if !self.state_dir.is_absolute() {
            let shown = self.state_dir.display().to_string();
            faults.push(format!(
                "volumes.state_dir = {shown:?} is not an absolute path"
            ));
        }
        if !is_driver_name(&self.driver_name) {
            faults.push(format!(
                "volumes.driver_name = {:?} is not a domain name of at most 63 characters",
                self.driver_name
            ));
        }
        if let Some(endpoint) = &self.csi_endpoint
            && let Err(why) = socket::path(endpoint)
        {
            faults.push(format!("volumes.csi_endpoint = {why}"));
        }
        let align = self.direct_align_mib.unwrap_or(DIRECT_ALIGN_BYTES >> 20);
        let erased = self.sim_erase_mib_per_s;
        check_bounds(
            [
                ("volumes.fsdax_percent", self.fsdax_percent, 0, 100),
                ("volumes.direct_align_mib", align, 2, 1 << 20),
                ("volumes.sim_create_ms", self.sim_create_ms, 0, 86_400_000),
                ("volumes.sim_erase_mib_per_s", erased, 1, 1 << 30),
            ],
            faults,
        );
        self.check_together(faults);
    }

    /// What goes with what.
    fn check_together(&self, faults: &mut Vec<String>) {
        let is_simulated = matches!(self.manager, Manager::Sim | Manager::SimDirect);
        if is_simulated && self.sim_regions.is_empty() {
            faults.push(
                "volumes.sim_regions is empty: name at least one as region0:65536".to_owned(),
            );
        }
        if !is_simulated && !self.sim_regions.is_empty() {
            faults.push(
                "volumes.sim_regions requires volumes.manager = \"sim\" or \"sim-direct\""
                    .to_owned(),
            );
        }
        if self.manager == Manager::None && self.csi_endpoint.is_some() {
            faults.push(
                "volumes.csi_endpoint requires volumes.manager: without one there are no volumes"
                    .to_owned(),
            );
        }
        for (index, region) in self.sim_regions.iter().enumerate() {
            if self.sim_regions[..index]
                .iter()
                .any(|other| other.name == region.name)
            {
                faults.push(format!("volumes.sim_regions names {} twice", region.name));
            }
        }
    }

    /// Returns the simulated regions as their manager gets them.
    pub(crate) fn simulated(&self) -> Vec<SimulatedRegion> {
        let region = |region: &SimRegion| SimulatedRegion {
            name: region.name.clone(),
            cell: region.cell,
            size_bytes: region.size_mib << 20,
            align_bytes: self
                .direct_align_mib
                .map_or(DIRECT_ALIGN_BYTES, |mib| mib << 20),
        };
        self.sim_regions.iter().map(region).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn simulated_regions_are_read_or_refused() {
        let region: SimRegion = "region0:64@1".parse().unwrap();
        assert_eq!((region.size_mib, region.cell), (64, Some(CellId(1))));
        let plain: SimRegion = "r:1".parse().unwrap();
        assert_eq!(plain.cell, None);
        for bad in [
            "",
            "r",
            "r:",
            "r:x",
            "r:1@",
            "r:1@x",
            ":1",
            "r:-1",
            "r:1073741825",
            "-:1",
        ] {
            assert!(bad.parse::<SimRegion>().is_err(), "{bad}");
        }
    }

    #[test]
    fn what_does_not_go_together_is_a_fault() {
        let count = |settings: Settings| {
            let mut faults = Vec::new();
            settings.validate(&mut faults);
            faults.len()
        };
        let sim = || Settings {
            manager: Manager::Sim,
            sim_regions: vec!["r:1".parse().unwrap()],
            ..Settings::default()
        };
        assert_eq!(count(Settings::default()), 0);
        assert_eq!(count(sim()), 0);
        let twice = vec!["r:1".parse().unwrap(), "r:2".parse().unwrap()];
        for (settings, expected) in [
            (
                Settings {
                    sim_regions: twice,
                    ..sim()
                },
                1,
            ),
            (
                Settings {
                    sim_regions: Vec::new(),
                    ..sim()
                },
                1,
            ),
            (
                Settings {
                    manager: Manager::Lvm,
                    ..sim()
                },
                1,
            ),
            (
                Settings {
                    manager: Manager::None,
                    csi_endpoint: Some("tcp:x".into()),
                    ..sim()
                },
                3,
            ),
            (
                Settings {
                    fsdax_percent: 101,
                    direct_align_mib: Some(1),
                    ..sim()
                },
                2,
            ),
            (
                Settings {
                    driver_name: "/".into(),
                    state_dir: "x".into(),
                    ..sim()
                },
                2,
            ),
            (
                Settings {
                    sim_erase_mib_per_s: 0,
                    ..sim()
                },
                1,
            ),
        ] {
            assert_eq!(count(settings.clone()), expected, "{settings:?}");
        }
    }
}
