//! The Container Storage Interface as its callers use it: over a socket of this machine.
//!
//! Not what is right about the answers: that is the tests' own.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use berth_proto::client::{self, SchedulerChannel};
use berth_proto::csi::v1::controller_client::ControllerClient;
use berth_proto::csi::v1::node_client::NodeClient;
use berth_proto::csi::v1::volume_capability::access_mode::Mode;
use berth_proto::csi::v1::volume_capability::{AccessMode, AccessType, BlockVolume, MountVolume};
use berth_proto::csi::v1::{self, CapacityRange, Topology, Volume, VolumeCapability};
use berth_proto::for_cluster::MemberChannel;
use tokio::runtime::Runtime;
use tonic::transport::{Channel, Endpoint};
use tonic::{Response, Status};

use super::{Cluster, Part};

/// The driver's name where none is configured.
pub const DRIVER: &str = "pmem-csi.intel.com";

/// One end of the interface. Clones share the connection.
#[derive(Clone, Debug)]
pub struct Csi {
    runtime: Arc<Runtime>,
    channel: Channel,
}

impl Csi {
    /// Returns the one behind a socket, which need not be there yet.
    ///
    /// # Panics
    ///
    /// When there is no room for a runtime.
    #[must_use]
    pub fn at(socket: &Path) -> Self {
        let runtime = Runtime::new().expect("a runtime");
        let _within = runtime.enter();
        let endpoint = Endpoint::from_shared(format!("unix://{}", socket.display()));
        let channel = endpoint.expect("a path").connect_lazy();
        Self {
            runtime: Arc::new(runtime),
            channel,
        }
    }

    /// Returns the connection.
    #[must_use]
    pub fn channel(&self) -> Channel {
        self.channel.clone()
    }

    /// Waits for a call.
    ///
    /// # Errors
    ///
    /// What was answered.
    pub fn wait<T>(
        &self,
        call: impl Future<Output = Result<Response<T>, Status>>,
    ) -> Result<T, Status> {
        self.runtime.block_on(call).map(Response::into_inner)
    }

    /// Returns the Controller service.
    #[must_use]
    pub fn controller(&self) -> ControllerClient<Channel> {
        ControllerClient::new(self.channel())
    }

    /// Returns the Node service.
    #[must_use]
    pub fn node(&self) -> NodeClient<Channel> {
        NodeClient::new(self.channel())
    }

    /// Creates a volume.
    ///
    /// # Errors
    ///
    /// What was answered.
    pub fn create(&self, request: &v1::CreateVolumeRequest) -> Result<Volume, Status> {
        let answer = self.wait(self.controller().create_volume(request.clone()))?;
        Ok(answer.volume.expect("a volume in the answer"))
    }

    /// Deletes a volume.
    ///
    /// # Errors
    ///
    /// What was answered.
    pub fn delete(&self, volume_id: &str) -> Result<(), Status> {
        let request = v1::DeleteVolumeRequest {
            volume_id: volume_id.to_owned(),
            ..Default::default()
        };
        self.wait(self.controller().delete_volume(request))
            .map(drop)
    }

    /// Lists volumes: their ids, and the token of the next page.
    ///
    /// # Errors
    ///
    /// What was answered.
    pub fn list(&self, max_entries: i32, token: &str) -> Result<(Vec<Volume>, String), Status> {
        let request = v1::ListVolumesRequest {
            max_entries,
            starting_token: token.to_owned(),
        };
        let answer = self.wait(self.controller().list_volumes(request))?;
        let volumes = answer.entries.into_iter().filter_map(|entry| entry.volume);
        Ok((volumes.collect(), answer.next_token))
    }

    /// Asks what can be created on a host, or anywhere.
    ///
    /// # Errors
    ///
    /// What was answered.
    pub fn capacity(&self, host: Option<&str>) -> Result<v1::GetCapacityResponse, Status> {
        let request = v1::GetCapacityRequest {
            accessible_topology: host.map(place),
            ..Default::default()
        };
        self.wait(self.controller().get_capacity(request))
    }

    /// Stages a volume.
    ///
    /// # Errors
    ///
    /// What was answered.
    pub fn stage(&self, volume_id: &str, path: &Path) -> Result<(), Status> {
        self.stage_as(volume_id, path, mount(""))
    }

    /// Stages a volume for this use.
    ///
    /// # Errors
    ///
    /// What was answered.
    pub fn stage_as(
        &self,
        volume_id: &str,
        path: &Path,
        as_what: VolumeCapability,
    ) -> Result<(), Status> {
        let request = v1::NodeStageVolumeRequest {
            volume_id: volume_id.to_owned(),
            staging_target_path: path.display().to_string(),
            volume_capability: Some(as_what),
            ..Default::default()
        };
        self.wait(self.node().node_stage_volume(request)).map(drop)
    }

    /// Publishes a volume that is staged.
    ///
    /// # Errors
    ///
    /// What was answered.
    pub fn publish(&self, volume_id: &str, staging: &Path, path: &Path) -> Result<(), Status> {
        self.publish_as(volume_id, staging, path, mount(""))
    }

    /// Publishes a volume that is staged, for this use.
    ///
    /// # Errors
    ///
    /// What was answered.
    pub fn publish_as(
        &self,
        volume_id: &str,
        staging: &Path,
        path: &Path,
        as_what: VolumeCapability,
    ) -> Result<(), Status> {
        let request = v1::NodePublishVolumeRequest {
            volume_id: volume_id.to_owned(),
            staging_target_path: staging.display().to_string(),
            target_path: path.display().to_string(),
            volume_capability: Some(as_what),
            ..Default::default()
        };
        self.wait(self.node().node_publish_volume(request))
            .map(drop)
    }

    /// Publishes a volume that is made for a pod.
    ///
    /// # Errors
    ///
    /// What was answered.
    pub fn publish_for_pod(&self, name: &str, path: &Path, size: &str) -> Result<(), Status> {
        let context = [("csi.storage.k8s.io/ephemeral", "true"), ("size", size)];
        let context = context.map(|(key, value)| (key.to_owned(), value.to_owned()));
        let request = v1::NodePublishVolumeRequest {
            volume_id: name.to_owned(),
            target_path: path.display().to_string(),
            volume_capability: Some(mount("")),
            volume_context: context.into(),
            ..Default::default()
        };
        self.wait(self.node().node_publish_volume(request))
            .map(drop)
    }

    /// Takes a publication back.
    ///
    /// # Errors
    ///
    /// What was answered.
    pub fn unpublish(&self, volume_id: &str, path: &Path) -> Result<(), Status> {
        let request = v1::NodeUnpublishVolumeRequest {
            volume_id: volume_id.to_owned(),
            target_path: path.display().to_string(),
        };
        self.wait(self.node().node_unpublish_volume(request))
            .map(drop)
    }

    /// Takes a staging back.
    ///
    /// # Errors
    ///
    /// What was answered.
    pub fn unstage(&self, volume_id: &str, path: &Path) -> Result<(), Status> {
        let request = v1::NodeUnstageVolumeRequest {
            volume_id: volume_id.to_owned(),
            staging_target_path: path.display().to_string(),
        };
        self.wait(self.node().node_unstage_volume(request))
            .map(drop)
    }
}

/// Returns a request for a volume of at least so many bytes.
#[must_use]
pub fn volume_request(name: &str, required_bytes: i64) -> v1::CreateVolumeRequest {
    v1::CreateVolumeRequest {
        name: name.to_owned(),
        capacity_range: Some(CapacityRange {
            required_bytes,
            limit_bytes: 0,
        }),
        volume_capabilities: vec![mount("")],
        ..Default::default()
    }
}

/// Returns a host as a place.
#[must_use]
pub fn place(host: &str) -> Topology {
    Topology {
        segments: [(format!("{DRIVER}/node"), host.to_owned())].into(),
    }
}

/// Returns the use as a mounted file system.
#[must_use]
pub fn mount(fs_type: &str) -> VolumeCapability {
    used(AccessType::Mount(MountVolume {
        fs_type: fs_type.to_owned(),
        ..MountVolume::default()
    }))
}

/// Returns the use as a device.
#[must_use]
pub fn block() -> VolumeCapability {
    used(AccessType::Block(BlockVolume {}))
}

fn used(access_type: AccessType) -> VolumeCapability {
    VolumeCapability {
        access_mode: Some(AccessMode {
            mode: Mode::SingleNodeWriter.into(),
        }),
        access_type: Some(access_type),
    }
}

impl Cluster {
    /// Starts one more controller of volumes, and returns what its callers see of it.
    #[track_caller]
    pub fn add_csi_controller(&mut self) -> Csi {
        let socket = self.csi_controller_with("");
        Csi::at(&socket)
    }

    /// Starts one more controller of volumes with these settings in its configuration file; returns its
    /// socket.
    ///
    /// # Panics
    ///
    /// When it does not start.
    #[track_caller]
    pub fn csi_controller_with(&mut self, settings: &str) -> PathBuf {
        let name = format!("csi-controller-{}", self.csi_controllers.len() + 1);
        let config = self.folder().join(format!("{name}.toml"));
        std::fs::write(&config, settings).expect("a file in a directory of our own");
        let socket = self.folder().join(&name).join("csi.sock");
        let endpoint = format!("unix://{}", socket.display());
        let arguments = [
            ("--config", config.display().to_string()),
            ("--csi-endpoint", endpoint),
            ("--scheduler", self.given_addresses()),
            ("--data-dir", self.learnt_dir(&name).display().to_string()),
        ];
        let address = socket.display().to_string();
        let mut part = self.part("berth-csi-controller", name, address, &arguments);
        part.start(&self.programs);
        self.csi_controllers.push(part);
        wait_for(&socket);
        socket
    }

    /// Returns what the kubelet of a host sees of its agent.
    #[track_caller]
    #[must_use]
    pub fn csi_node(&self, host: &str) -> Csi {
        let socket = self.volume_dir(host).join("csi.sock");
        wait_for(&socket);
        Csi::at(&socket)
    }

    /// Returns the directory in which a host keeps its volumes.
    #[must_use]
    pub fn volume_dir(&self, host: &str) -> PathBuf {
        self.folder().join(format!("{host}-volumes"))
    }

    /// Asks the scheduler that leads.
    ///
    /// # Errors
    ///
    /// What was answered.
    ///
    /// # Panics
    ///
    /// When there is no room for a runtime.
    pub fn at_scheduler<T, F, Fut>(&self, call: F) -> Result<T, Status>
    where
        F: FnMut(MemberChannel) -> Fut,
        Fut: Future<Output = Result<Response<T>, Status>>,
    {
        let addresses = self
            .schedulers
            .iter()
            .map(|s| format!("http://{}", s.address));
        let scheduler = SchedulerChannel::new(addresses).expect("addresses");
        Runtime::new()
            .expect("a runtime")
            .block_on(scheduler.call(call))
    }

    /// Asks the agent of a host.
    ///
    /// # Errors
    ///
    /// What was answered.
    ///
    /// # Panics
    ///
    /// When there is no such agent.
    pub fn at_agent<T, F, Fut>(&self, host: &str, call: F) -> Result<T, Status>
    where
        F: FnOnce(Channel) -> Fut,
        Fut: Future<Output = Result<Response<T>, Status>>,
    {
        let mut agents = self.agents.iter();
        let agent = agents.find(|agent| agent.name == host);
        let address = &agent.expect("an agent of that host").address;
        let runtime = Runtime::new().expect("a runtime");
        let _within = runtime.enter();
        let channel = client::channel(&format!("http://{address}")).expect("an address");
        runtime.block_on(call(channel)).map(Response::into_inner)
    }

    /// Returns the agent of a host.
    ///
    /// # Panics
    ///
    /// When there is none.
    #[track_caller]
    pub fn agent(&mut self, host: &str) -> &mut Part {
        let mut agents = self.agents.iter_mut();
        agents
            .find(|agent| agent.name == host)
            .expect("an agent of that host")
    }
}

#[track_caller]
fn wait_for(socket: &Path) {
    super::eventually("a socket that is served", || {
        std::os::unix::net::UnixStream::connect(socket).map(drop)
    });
}
