//! A simulated host's memory and mounts, kept in files, so that they outlive the agent as the real
//! ones do.
//!
//! ```text
//!   sim/devices/<id>.json   one for each device: where it lies
//!   sim/files/<id>/         what its file system holds;  <id>.type says which it is
//!   sim/blocks/<id>         what its device holds
//!   a mount                 a symbolic link to one of them, in place of the folder or file
//! ```
//!
//! A device counts as made once its file exists, and as gone once it does not: an agent that is killed
//! in between has made or removed nothing.

mod devices;
mod links;

use std::sync::Arc;
use std::time::Duration;

use berth_domain::volume::DeviceMode;
use berth_pmem::volume::simulated::{Delays, Operation, SimulatedManager, SimulatedMemory, Step};
use berth_pmem::volume::{VolumeManager, simulated::Pace};

use super::mounts::Mounts;
use crate::config::volumes::{Manager, Settings};
use crate::error::Error;
use devices::{Devices, Remembered};
use links::Links;

/// How much is erased between two looks at whether it is to stop.
const PIECE_BYTES: u64 = 64 << 20;

/// Returns the managers of a simulated memory, the one for new volumes first, and its mounts.
#[allow(clippy::type_complexity)]
pub(super) fn world(
    settings: &Settings,
) -> Result<(Vec<Arc<dyn VolumeManager>>, Arc<dyn Mounts>), Error> {
    let memory = SimulatedMemory::new(settings.simulated());
    memory.set_fsdax_percent(settings.fsdax_percent);
    let folder = settings.state_dir.join("sim");
    let devices = Devices::open(&folder)?;
    let links = Links::open(&folder)?;
    let modes = match settings.manager {
        Manager::SimDirect => [DeviceMode::Direct, DeviceMode::Lvm],
        Manager::None | Manager::Lvm | Manager::Direct | Manager::Sim => {
            [DeviceMode::Lvm, DeviceMode::Direct]
        }
    };
    devices.restore(&memory, modes[0])?;
    let manager = |mode| -> Arc<dyn VolumeManager> {
        let delays = Delays {
            look: Duration::ZERO,
            change: Duration::from_millis(settings.sim_create_ms),
            wipe_bytes_per_second: settings.sim_erase_mib_per_s << 20,
            piece_bytes: PIECE_BYTES.min(settings.sim_erase_mib_per_s << 20),
        };
        let simulated = SimulatedManager::new(&memory, mode).with_delays(delays);
        Arc::new(Remembered {
            simulated: simulated.with_pace(pace()),
            devices: devices.clone(),
            links: links.clone(),
        })
    };
    Ok((modes.map(manager).to_vec(), Arc::new(links)))
}

/// Takes the time that making and erasing take.
fn pace() -> Pace {
    Arc::new(|step: &Step| match step.operation {
        Operation::Create | Operation::Wipe => std::thread::sleep(step.takes),
        Operation::Look | Operation::Prepare | Operation::Remove => {}
    })
}
