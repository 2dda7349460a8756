//! The volumes of persistent memory of this host: made and erased as the leader says, shown to the
//! kubelet.
//!
//! ```text
//!   scheduler ─ ListVolumes ─▶ caretaker: what is CREATING is made, what is DELETING is removed
//!             ◀ ReportVolumes ─┘   ▲ at the start, every 30 s, as soon as somebody asks, and when the
//!                                  │ scheduler says, as it hears of this host, that some are to be made
//!   controllers ─ SyncVolume ──────┘
//!   kubelet ─ socket ─▶ Identity, Node ─▶ host: volumes, mounts, claims for pods
//! ```
//!
//! | room | what |
//! |---|---|
//! | `settings` | what is told of them in the configuration |
//! | `caretaker` | looks at what the leader says, and makes it so |
//! | `removal` | removes and erases, beside everything else |
//! | `leader` | the calls to the scheduler |
//! | `service` | what controllers call |
//! | `host` | what the CSI services need of this host |
//! | `guests` | what guests of the hypervisor need of it |
//! | `owners` | which VMs they belong to, running or not |
//! | `mounts` | file systems and devices at paths: by the `kernel`, or `simulated` |
//!
//! Invariant: the leader's word is made so, level by level; nothing is remembered that would be
//! missed after a crash. Who stands in the way of a removal is waited for, never interrupted.

mod caretaker;
mod guests;
mod host;
mod kernel;
mod leader;
mod mounts;
mod owners;
mod removal;
mod service;
pub mod settings;
mod simulated;
mod unknown;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use berth_csi::{IdentityApi, NodeApi};
use berth_domain::name::HostName;
use berth_domain::volume::Region;
use berth_pmem::volume::Volumes;
use berth_process::socket::Socket;
use berth_process::{server, socket};
use berth_proto::agent::v1::volume_agent_service_server::VolumeAgentServiceServer;
use berth_proto::client::SchedulerChannel;
use berth_proto::csi::v1::identity_server::{self, IdentityServer};
use berth_proto::csi::v1::node_server::{self, NodeServer};
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::config::PmemPrograms;
use crate::error::Error;
use crate::guest_volumes::HostVolumes;
use caretaker::Caretaker;
use guests::{ForGuests, guest_of};
use host::VolumeHost;
use leader::Leader;
use mounts::Mounts;
use service::VolumeAgentApi;
use settings::Settings;

/// What is served on the kubelet's socket.
const SERVED: &[&str] = &[identity_server::SERVICE_NAME, node_server::SERVICE_NAME];

/// The volumes of this host, looked at once.
pub(crate) struct Managed {
    settings: Settings,
    keeper: Arc<Volumes>,
    mounts: Arc<dyn Mounts>,
    regions: Vec<Region>,
    socket: Option<Socket>,
}

impl Managed {
    /// Opens what is written down of volumes and makes what has to be there before them. Blocks.
    pub(crate) fn open(
        settings: &Settings,
        programs: &PmemPrograms,
    ) -> Result<Option<Self>, Error> {
        let Some((managers, mounts)) = settings.managers(programs)? else {
            return Ok(None);
        };
        let keeper = Volumes::open(&settings.state_dir.join("volumes"), managers)?;
        if let Err(error) = keeper.prepare() {
            tracing::warn!(%error, "not everything is there for volumes");
        }
        let mut regions = keeper.regions().unwrap_or_else(|error| {
            tracing::warn!(%error, "no volume can be made: the regions cannot be seen");
            Vec::new()
        });
        for region in regions.iter().filter(|region| !region.trouble.is_empty()) {
            tracing::warn!(region = %region.name, "no volume can be made in it: {}", region.trouble);
        }
        forget_stale(&keeper, mounts.as_ref());
        unknown::close(&keeper.list(), &mut regions);
        Ok(Some(Self {
            settings: settings.clone(),
            keeper: Arc::new(keeper),
            mounts,
            regions,
            socket: None,
        }))
    }

    /// Listens for the kubelet, where that is configured.
    pub(crate) fn listen(&mut self) -> Result<(), Error> {
        if let Some(path) = self.settings.socket_path()? {
            self.socket = Some(socket::listen(&path)?);
        }
        Ok(())
    }

    /// Returns them as guests of the hypervisor need them, with their file systems in this folder.
    pub(crate) fn for_guests(&self, folder: PathBuf) -> Arc<dyn HostVolumes> {
        let (keeper, mounts) = (self.keeper.clone(), self.mounts.clone());
        Arc::new(ForGuests::new(keeper, mounts, folder))
    }

    /// Returns the regions as they were looked at.
    pub(crate) fn regions(&self) -> &[Region] {
        &self.regions
    }

    /// Begins to take care of them.
    pub(crate) fn begin(
        self,
        scheduler: SchedulerChannel,
        host: &HostName,
        incarnation: String,
        stopping: &CancellationToken,
    ) -> Running {
        let leader = Leader::new(scheduler, host.clone(), incarnation);
        let (found, regions) = watch::channel(self.regions.clone());
        let stop = Arc::new(AtomicBool::new(false));
        let caretaker = Caretaker::new(leader.clone(), self.keeper.clone(), found, stop.clone());
        let looking = tokio::spawn(caretaker.clone().run(stopping.clone()));
        let csi = self.socket.map(|mut socket| {
            let volumes = VolumeHost::new(leader, caretaker.clone(), self.keeper, self.mounts);
            let driver = &self.settings.driver_name;
            let node = NodeApi::new(Arc::new(volumes), host.clone(), driver);
            let reflection = server::Reflection {
                descriptors: berth_proto::DESCRIPTOR_SET,
                served: SERVED,
            };
            // Who may use the socket is said by its folder.
            let server = server::new(None)
                .add_service(IdentityServer::new(IdentityApi::new(driver)))
                .add_service(NodeServer::new(node))
                .add_service(reflection.v1())
                .add_service(reflection.v1alpha());
            let closing = stopping.clone().cancelled_owned();
            let incoming = socket.incoming();
            tokio::spawn(async move {
                let served = server.serve_with_incoming_shutdown(incoming, closing).await;
                drop(socket);
                if let Err(error) = served {
                    tracing::error!(%error, "the kubelet's socket is served no more");
                }
            })
        });
        Running {
            regions,
            stop,
            caretaker,
            looking,
            csi,
        }
    }
}

/// Returns whether the leader was asked which of the volumes in these regions it knows.
pub(crate) fn are_compared(regions: &[Region]) -> bool {
    unknown::are_compared(regions)
}

/// The volumes of this host, taken care of.
pub(crate) struct Running {
    /// The regions as they were looked at last.
    pub(crate) regions: watch::Receiver<Vec<Region>>,
    stop: Arc<AtomicBool>,
    caretaker: Caretaker,
    looking: JoinHandle<()>,
    csi: Option<JoinHandle<()>>,
}

impl Running {
    /// Returns the service for controllers.
    pub(crate) fn service(&self) -> VolumeAgentServiceServer<VolumeAgentApi> {
        VolumeAgentServiceServer::new(VolumeAgentApi::new(self.caretaker.clone()))
    }

    /// Returns what has them looked at when it is told.
    pub(crate) fn waker(&self) -> Arc<Notify> {
        self.caretaker.waker()
    }

    /// Waits until nothing of it goes on, after it was told to stop.
    pub(crate) async fn end(self) {
        self.stop.store(true, std::sync::atomic::Ordering::Release);
        if self.looking.await.is_err() {
            tracing::error!("taking care of volumes failed");
        }
        if let Some(mut csi) = self.csi {
            server::goodbye(&mut csi).await;
        }
        self.caretaker.end().await;
    }
}

/// Forgets where volumes were staged and published before the machine was started anew: nothing is
/// mounted there, and nobody would ever say that it is to end.
fn forget_stale(keeper: &Volumes, mounts: &dyn Mounts) {
    for volume in keeper.list() {
        // Which guests run is looked at on its own.
        let targets = volume.record.targets.keys();
        let targets = targets.filter(|target| guest_of([*target].into_iter()).is_none());
        let gone = targets.filter(|path| matches!(mounts.is_mounted(path.as_ref()), Ok(false)));
        let gone: Vec<String> = gone.cloned().collect();
        if gone.is_empty() {
            continue;
        }
        let local = host::recorded(&volume);
        // Something below may have been mounted when the agent was killed.
        for path in &gone {
            if let Err(error) = mounts.unmount(&local, path.as_ref()) {
                tracing::warn!(volume = %local.id, path, %error, "it may stay in use");
            }
        }
        let id = &volume.record.id;
        let forgotten = keeper.set_targets(id, |targets| {
            targets.retain(|path, _| !gone.contains(path));
        });
        match forgotten {
            Ok(_) => tracing::info!(volume = %id, paths = gone.join(", "), "not mounted any more"),
            Err(error) => tracing::warn!(volume = %id, %error, "it stays written down as used"),
        }
    }
}
