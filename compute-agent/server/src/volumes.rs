//! The volumes of persistent memory of this host: made and erased as the leader records, published to
//! kubelet.
//!
//! ```text
//!   scheduler ─ ListVolumes ─▶ reconciler: what is CREATING is made, what is DELETING is removed
//!             ◀ ReportVolumes ─┘   ▲ at the start, every 30 s, upon each SyncVolume, and when the
//!                                  │ reply to a heartbeat says that some are to be made
//!   controllers ─ SyncVolume ──────┘
//!   kubelet ─ socket ─▶ Identity, Node ─▶ host: volumes, mounts, claims for pods
//! ```
//!
//! | module | what |
//! |---|---|
//! | `managers` | what makes their devices, as the host is configured |
//! | `reconciler` | compares the host with the leader's records, and makes it so |
//! | `removal` | removes and erases, beside all other work |
//! | `leader` | the calls to the scheduler |
//! | `service` | what controllers call |
//! | `host` | what the CSI services need of this host |
//! | `guests` | what guests of the hypervisor need of it |
//! | `owners` | the VMs that own them, running or not |
//! | `mounts` | file systems and devices at paths: by the `kernel`, or `simulated` |
//!
//! Invariant: the leader's records are applied, level by level; no state is kept that would be
//! missed after a crash. A removal waits for the users of its volume and never interrupts them.

mod guests;
mod host;
mod kernel;
mod leader;
mod managers;
mod mounts;
mod owners;
mod reconciler;
mod removal;
mod service;
mod simulated;
mod unknown;

#[cfg(feature = "testing")]
pub use kernel::checks as kernel_checks;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use berth_csi::{IdentityApi, NodeApi};
use berth_domain::name::HostName;
use berth_domain::volume::Region;
use berth_pmem::volume::VolumeStore;
use berth_process::metrics::GrpcRequests;
use berth_process::socket::Socket;
use berth_process::{server, socket};
use berth_proto::agent::v1::volume_agent_service_server::VolumeAgentServiceServer;
use berth_proto::client::SchedulerChannel;
use berth_proto::csi::v1::identity_server::{self, IdentityServer};
use berth_proto::csi::v1::node_server::{self, NodeServer};
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tonic::service::Routes;

use crate::config::PmemPrograms;
use crate::config::volumes::Settings;
use crate::error::Error;
use crate::guest_volumes::HostVolumes;
use guests::{ForGuests, guest_of};
use host::VolumeHost;
use leader::Leader;
use mounts::Mounts;
use reconciler::VolumeReconciler;
use service::VolumeAgentApi;

/// What is served on the kubelet's socket.
const SERVED: &[&str] = &[identity_server::SERVICE_NAME, node_server::SERVICE_NAME];

/// The volumes of this host, looked at once.
pub(crate) struct Managed {
    settings: Settings,
    store: Arc<VolumeStore>,
    mounts: Arc<dyn Mounts>,
    regions: Vec<Region>,
    socket: Option<Socket>,
}

impl Managed {
    /// Opens the records of volumes and makes what has to exist before them. Blocks.
    pub(crate) fn open(
        settings: &Settings,
        programs: &PmemPrograms,
    ) -> Result<Option<Self>, Error> {
        let Some((managers, mounts)) = settings.managers(programs)? else {
            return Ok(None);
        };
        let store = VolumeStore::open(&settings.state_dir.join("volumes"), managers)?;
        if let Err(error) = store.prepare() {
            tracing::warn!(%error, "preparation for volumes failed");
        }
        let mut regions = store.regions().unwrap_or_else(|error| {
            tracing::warn!(%error, "no volume can be made: the regions cannot be listed");
            Vec::new()
        });
        for region in regions.iter().filter(|region| !region.trouble.is_empty()) {
            tracing::warn!(region = %region.name, "no volume can be made in this region: {}", region.trouble);
        }
        forget_stale(&store, mounts.as_ref());
        unknown::close(&store.list(), &mut regions);
        Ok(Some(Self {
            settings: settings.clone(),
            store: Arc::new(store),
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
        let (store, mounts) = (self.store.clone(), self.mounts.clone());
        Arc::new(ForGuests::new(store, mounts, folder))
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
        requests: Arc<GrpcRequests>,
        stopping: &CancellationToken,
    ) -> Running {
        let leader = Leader::new(scheduler, host.clone(), incarnation);
        let (found, regions) = watch::channel(self.regions.clone());
        let stop = Arc::new(AtomicBool::new(false));
        let reconciler =
            VolumeReconciler::new(leader.clone(), self.store.clone(), found, stop.clone());
        let looking = tokio::spawn(reconciler.clone().run(stopping.clone()));
        let csi = self.socket.map(|mut socket| {
            let volumes = VolumeHost::new(leader, reconciler.clone(), self.store, self.mounts);
            let driver = &self.settings.driver_name;
            let node = NodeApi::new(Arc::new(volumes), host.clone(), driver);
            let reflection = server::Reflection {
                descriptors: berth_proto::DESCRIPTOR_SET,
                served: SERVED,
            };
            // The folder's mode limits access to the socket.
            let routes = Routes::new(IdentityServer::new(IdentityApi::new(driver)))
                .add_service(NodeServer::new(node))
                .add_service(reflection.v1())
                .add_service(reflection.v1alpha());
            let closing = stopping.clone().cancelled_owned();
            let incoming = socket.incoming();
            let server = server::new(None, server::limits()).counted(requests);
            let serving = server.serve_socket(routes, incoming, closing);
            tokio::spawn(async move {
                let served = serving.await;
                drop(socket);
                if let Err(error) = served {
                    tracing::error!(%error, "serving the kubelet's socket failed");
                }
            })
        });
        Running {
            regions,
            stop,
            reconciler,
            looking,
            csi,
        }
    }
}

/// Returns whether the leader has listed which of the volumes in these regions it knows.
pub(crate) fn are_compared(regions: &[Region]) -> bool {
    unknown::are_compared(regions)
}

/// The volumes of this host, taken care of.
pub(crate) struct Running {
    /// The regions as they were looked at last.
    pub(crate) regions: watch::Receiver<Vec<Region>>,
    stop: Arc<AtomicBool>,
    reconciler: VolumeReconciler,
    looking: JoinHandle<()>,
    csi: Option<JoinHandle<()>>,
}

impl Running {
    /// Returns the service for controllers.
    pub(crate) fn service(&self) -> VolumeAgentServiceServer<VolumeAgentApi> {
        VolumeAgentServiceServer::new(VolumeAgentApi::new(self.reconciler.clone()))
    }

    /// Returns the trigger of a reconciliation.
    pub(crate) fn trigger(&self) -> Arc<Notify> {
        self.reconciler.trigger()
    }

    /// Waits until all its work has ended, after it was cancelled.
    pub(crate) async fn end(self) {
        self.stop.store(true, std::sync::atomic::Ordering::Release);
        if self.looking.await.is_err() {
            tracing::error!("reconciling volumes failed");
        }
        if let Some(mut csi) = self.csi {
            server::join_or_abort(&mut csi).await;
        }
        self.reconciler.end().await;
    }
}

/// Forgets where volumes were staged and published before the machine was restarted: nothing is
/// mounted there, and no client would ever unpublish it.
fn forget_stale(store: &VolumeStore, mounts: &dyn Mounts) {
    for volume in store.list() {
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
                tracing::warn!(volume = %local.id, path, %error, "path may stay in use");
            }
        }
        let id = &volume.record.id;
        let forgotten = store.set_targets(id, |targets| {
            targets.retain(|path, _| !gone.contains(path));
        });
        match forgotten {
            Ok(_) => tracing::info!(volume = %id, paths = gone.join(", "), "not mounted any more"),
            Err(error) => tracing::warn!(volume = %id, %error, "volume stays recorded as used"),
        }
    }
}
