//! A group of members in one process, with real disks and real connections on loopback.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use berth_replication::Config;
use berth_replication::runtime::{Archive, Ended, Handle, Runtime, Settings, Start, StopError};
use berth_replication::transport::{self, Addresses, Options};
use berth_store::{FileDisk, Identity, Recovery};
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio_stream::wrappers::TcpListenerStream;

use super::Registers;
use super::hung::{Hold, HungDisk};

const CLUSTER: &str = "8f0c2a5e-test";

/// How quickly members of a test act.
pub fn settings() -> Settings {
    Settings {
        tick: Duration::from_millis(10),
        replica: Config {
            election_ticks: 20,
            heartbeat_ticks: 3,
            ..Config::new(0, "")
        },
        table_every: Duration::from_millis(50),
        ..Settings::default()
    }
}

/// One running member.
pub struct Running {
    /// Proposes commands to the member and reads its state.
    pub handle: Handle<Registers>,
    /// Makes its earlier states.
    pub archive: Archive<Registers>,
    /// What opening its disk repaired.
    pub recovery: Recovery,
    /// Where it reaches the others.
    pub addresses: Addresses,
    /// Where it listens.
    pub address: SocketAddr,
    stop: oneshot::Sender<()>,
    task: JoinHandle<Result<Ended, StopError>>,
    server: JoinHandle<()>,
}

impl Running {
    /// Shuts the member down as an operator would.
    pub async fn stop(self) -> Ended {
        let _ = self.stop.send(());
        let ended = self.task.await.expect("no panic").expect("no error");
        self.server.await.expect("no panic");
        ended
    }

    /// Ends the member's tasks without any farewell. The disk stays locked until they are gone.
    pub async fn abort(self) {
        self.server.abort();
        self.task.abort();
        let _ = self.server.await;
        let _ = self.task.await;
    }
}

/// A group of members.
pub struct Group {
    folder: PathBuf,
    settings: Settings,
    /// What lets the log of a member hang, by id.
    holds: BTreeMap<u64, Hold>,
    /// The running members by id.
    pub members: BTreeMap<u64, Running>,
}

impl Group {
    /// Starts the members in this folder, or makes a new group of this size there.
    pub async fn start(folder: &Path, members: u64) -> Self {
        Self::start_with(folder, members, settings()).await
    }

    /// Starts the members with settings of the test's own.
    pub async fn start_with(folder: &Path, members: u64, settings: Settings) -> Self {
        let mut group = Self {
            folder: folder.to_owned(),
            settings,
            holds: BTreeMap::new(),
            members: BTreeMap::new(),
        };
        if folder.join("m1").exists() {
            for id in 1..=members {
                group.restart(id).await;
            }
            return group;
        }
        std::fs::create_dir_all(folder).expect("create");
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("bind");
        let address = listener.local_addr().expect("address").to_string();
        let start = Start::Bootstrap {
            address: address.clone(),
        };
        group.create(1, listener, start);
        for _ in 2..=members {
            group.join().await;
        }
        group.wait_for_voters(members as usize).await;
        group
    }

    /// Returns where the members' directories are, as `m1`.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    fn create(&mut self, id: u64, listener: TcpListener, start: Start) {
        let identity = Identity {
            cluster_id: CLUSTER.into(),
            member_id: id,
            disk_id: format!("disk-{id}"),
        };
        let path = self.folder.join(format!("m{id}"));
        let disk = FileDisk::create(&path, identity).expect("create");
        let address = listener.local_addr().expect("address");
        // Durable: the disk may lose its power.
        let mut note = File::create(self.folder.join(format!("m{id}.address"))).expect("create");
        note.write_all(address.to_string().as_bytes())
            .and_then(|()| note.sync_all())
            .and_then(|()| File::open(&self.folder)?.sync_all())
            .expect("note the address");
        self.run(id, disk, listener, None, start);
    }

    /// Adds a member as an operator would, and returns its id.
    pub async fn join(&mut self) -> u64 {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("bind");
        let address = listener.local_addr().expect("address").to_string();
        let leader = self.leader().await;
        let disk = format!("disk-{}", leader.members().await.expect("members").next_id);
        let id = loop {
            match leader.add_member(address.clone(), disk.clone(), true).await {
                Ok(id) => break id,
                // The one before is being promoted.
                Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
            }
        };
        self.create(id, listener, Start::Existing);
        id
    }

    /// Starts a member from its directory, at the address it had.
    pub async fn restart(&mut self, id: u64) {
        let address = std::fs::read_to_string(self.folder.join(format!("m{id}.address")))
            .expect("its address");
        let address: SocketAddr = address.parse().expect("an address");
        let listener = bind(address).await;
        let disk = self.open(id).await;
        self.run(id, disk, listener, None, Start::Existing);
    }

    /// Starts a member from its directory at a new address.
    pub async fn restart_elsewhere(&mut self, id: u64) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("bind");
        let disk = self.open(id).await;
        self.run(id, disk, listener, None, Start::Existing);
    }

    /// Starts a member from its directory at the address it had; it states another one.
    pub async fn restart_stating(&mut self, id: u64, stated: &str) {
        let address = std::fs::read_to_string(self.folder.join(format!("m{id}.address")))
            .expect("its address");
        let listener = bind(address.parse().expect("an address")).await;
        let disk = self.open(id).await;
        self.run(id, disk, listener, Some(stated), Start::Existing);
    }

    /// Waits until whoever used the directory before has let go of it.
    async fn open(&self, id: u64) -> FileDisk {
        let path = self.folder.join(format!("m{id}"));
        for _ in 0..500 {
            match FileDisk::open(&path) {
                Ok(disk) => return disk,
                Err(berth_store::disk::Error::Identity(berth_store::identity::Error::InUse {
                    ..
                })) => tokio::time::sleep(Duration::from_millis(20)).await,
                Err(error) => panic!("member {id} does not open: {error}"),
            }
        }
        panic!("the directory of member {id} stays in use");
    }

    fn run(
        &mut self,
        id: u64,
        disk: FileDisk,
        listener: TcpListener,
        stated: Option<&str>,
        start: Start,
    ) {
        let disk = HungDisk::new(disk, self.hold(id));
        let runtime = Runtime::open(self.settings.clone(), disk, start).expect("open");
        let address = listener.local_addr().expect("address");
        let known = transport::Known::default();
        let addresses = known.addresses.clone();
        let (network, service) = transport::grpc(
            runtime.inbox(),
            stated.map_or_else(|| address.to_string(), str::to_owned),
            Options::default(),
            None,
            known,
        );
        let (handle, archive) = (runtime.handle(), runtime.archive());
        let recovery = runtime.recovery().clone();
        let (stop, stopped) = oneshot::channel::<()>();
        let (ended_in, ended) = oneshot::channel::<()>();
        let server = tokio::spawn(async move {
            let _ = tonic::transport::Server::builder()
                .add_service(service)
                .serve_with_incoming_shutdown(TcpListenerStream::new(listener), async move {
                    let _ = ended.await;
                })
                .await;
        });
        let task = tokio::spawn(async move {
            let _until_the_end = ended_in;
            runtime
                .run(network, async move {
                    let _ = stopped.await;
                })
                .await
        });
        let running = Running {
            handle,
            archive,
            recovery,
            addresses,
            address,
            stop,
            task,
            server,
        };
        self.members.insert(id, running);
    }

    /// Returns what lets the log of this member hang.
    pub fn hold(&mut self, id: u64) -> Hold {
        self.holds.entry(id).or_default().clone()
    }

    /// Waits until a member decides, and returns its handle.
    pub async fn leader(&self) -> Handle<Registers> {
        for _ in 0..2000 {
            let deciding = |r: &&Running| r.handle.leader().role.deciding;
            if let Some(running) = self.members.values().find(deciding) {
                return running.handle.clone();
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("no member leads");
    }

    /// Waits until the group has this many voters and no change of them under way.
    pub async fn wait_for_voters(&self, count: usize) {
        for _ in 0..2000 {
            let leader = self.leader().await;
            if let Some(membership) = leader.members().await
                && membership.voters.len() == count
                && membership.voters_outgoing.is_empty()
            {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("there are not {count} voters");
    }

    /// Waits until all running members have applied what the leader has.
    pub async fn wait_for_agreement(&self) {
        for _ in 0..2000 {
            let leader = self.leader().await;
            let mut positions = Vec::new();
            for running in self.members.values() {
                positions.extend(running.handle.status().await.map(|s| s.position));
            }
            let wanted = leader.status().await.map(|s| s.position);
            if positions.len() == self.members.len() && positions.iter().all(|p| Some(*p) == wanted)
            {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("the members do not agree");
    }

    /// Shuts all members down.
    pub async fn stop(mut self) {
        while let Some((_, running)) = self.members.pop_first() {
            running.stop().await;
        }
    }
}

/// Binds an address that its former owner may not have given back yet.
async fn bind(address: SocketAddr) -> TcpListener {
    for _ in 0..500 {
        if let Ok(listener) = TcpListener::bind(address).await {
            return listener;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("{address} stays in use");
}
