//! What makes the devices of volumes, as the host is configured.

use std::path::PathBuf;
use std::sync::Arc;

use berth_pmem::volume::{DirectManager, LvmManager, VolumeManager, real};
use berth_process::socket;

use super::kernel::Kernel;
use super::mounts::Mounts;
use super::simulated;
use crate::config::PmemPrograms;
use crate::config::volumes::{Manager, Settings};
use crate::error::Error;

impl Settings {
    /// Returns the socket for the kubelet, if there is to be one.
    pub(super) fn socket_path(&self) -> Result<Option<PathBuf>, Error> {
        let path = self.csi_endpoint.as_deref().map(socket::path).transpose();
        path.map_err(|why| Error::Config(berth_process::Faults(vec![why])))
    }

    /// Returns what makes devices, for new volumes first, and what shows them at paths.
    #[allow(clippy::type_complexity)]
    pub(super) fn managers(
        &self,
        programs: &PmemPrograms,
    ) -> Result<Option<(Vec<Arc<dyn VolumeManager>>, Arc<dyn Mounts>)>, Error> {
        match self.manager {
            Manager::None => Ok(None),
            Manager::Lvm | Manager::Direct => Ok(Some(self.real(programs))),
            Manager::Sim | Manager::SimDirect => simulated::world(self).map(Some),
        }
    }

    /// Returns what makes real devices, for new volumes first: those of the other mode stay usable.
    #[allow(clippy::type_complexity)]
    fn real(&self, programs: &PmemPrograms) -> (Vec<Arc<dyn VolumeManager>>, Arc<dyn Mounts>) {
        let mut settings = real::Settings::new(&self.state_dir.join("managers"));
        settings.ndctl.clone_from(&programs.ndctl);
        settings.fsdax_percent = self.fsdax_percent;
        if let Some(mib) = self.direct_align_mib {
            settings.align_bytes = mib << 20;
        }
        let lvm: Arc<dyn VolumeManager> = Arc::new(LvmManager::new(settings.clone()));
        let direct: Arc<dyn VolumeManager> = Arc::new(DirectManager::new(settings));
        let managers = match self.manager {
            Manager::Direct | Manager::SimDirect => vec![direct, lvm],
            Manager::None | Manager::Lvm | Manager::Sim => vec![lvm, direct],
        };
        (managers, Arc::new(Kernel::new(&self.state_dir)))
    }
}
