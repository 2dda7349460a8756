//! A host in memory: its volumes, what is mounted where, and what fails next.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};

use berth_csi::{Host, Local, Mount, Space};
use berth_domain::name::VolumeId;
use berth_domain::refusal::{Code, Refusal};
use berth_proto::convert::csi::Parameters;
use tokio::sync::Notify;

#[derive(Default)]
struct World {
    volumes: BTreeMap<String, Local>,
    /// Claims for pods by what the kubelet calls them.
    claims: BTreeMap<String, String>,
    formats: BTreeMap<String, String>,
    /// What is mounted where; nothing: what is no volume's.
    mounted: BTreeMap<String, Option<VolumeId>>,
    paths: BTreeSet<String>,
    fails: Option<&'static str>,
}

#[derive(Default)]
pub(crate) struct Fake {
    world: Mutex<World>,
    gate: Arc<Mutex<()>>,
    reached: Notify,
}

/// Keeps mounts from being made, and who looks for others from going on, until it is dropped.
pub(crate) struct Gate {
    open: Option<std::sync::mpsc::Sender<()>>,
    keeper: Option<std::thread::JoinHandle<()>>,
}

impl Drop for Gate {
    fn drop(&mut self) {
        self.open.take();
        self.keeper.take().unwrap().join().unwrap();
    }
}

fn volume(id: &str, is_kata: bool, is_ephemeral: bool) -> Local {
    Local {
        id: VolumeId::new(id).unwrap(),
        device: PathBuf::from("/dev/x"),
        size_bytes: 64 << 20,
        is_kata,
        is_ephemeral,
        is_raw: false,
        targets: BTreeMap::new(),
    }
}

fn refused(code: Code) -> Refusal {
    Refusal::new(code, "TOLD_TO", "told to fail")
}

impl Fake {
    pub(crate) fn with(volumes: &[(&str, bool)]) -> Self {
        let volumes = volumes
            .iter()
            .map(|(id, kata)| ((*id).to_owned(), volume(id, *kata, false)));
        let world = World {
            volumes: volumes.collect(),
            ..World::default()
        };
        Self {
            world: Mutex::new(world),
            ..Self::default()
        }
    }

    fn world(&self) -> MutexGuard<'_, World> {
        self.world.lock().unwrap()
    }

    /// Fails once where it was told to.
    fn may(&self, what: &'static str, code: Code) -> Result<(), Refusal> {
        let mut world = self.world();
        match world.fails.take_if(|fails| *fails == what) {
            Some(_) => Err(refused(code)),
            None => Ok(()),
        }
    }

    pub(crate) fn fail_next(&self, what: &'static str) {
        self.world().fails = Some(what);
    }

    pub(crate) fn mounted(&self) -> Vec<String> {
        self.world().mounted.keys().cloned().collect()
    }

    pub(crate) fn mount_foreign(&self, path: &str) {
        self.put(path, None);
    }

    /// Mounts a volume without that being written down.
    pub(crate) fn mount_unwritten(&self, id: &str, path: &str) {
        self.put(path, Some(VolumeId::new(id).unwrap()));
    }

    fn put(&self, path: &str, what: Option<VolumeId>) {
        let mut world = self.world();
        world.mounted.insert(path.to_owned(), what);
        world.paths.insert(path.to_owned());
    }

    pub(crate) fn exists(&self, path: &str) -> bool {
        self.world().paths.contains(path)
    }

    pub(crate) fn targets(&self, id: &str) -> BTreeMap<String, String> {
        self.world().volumes[id].targets.clone()
    }

    pub(crate) fn formats(&self, id: &str) -> Vec<String> {
        self.world().formats.get(id).cloned().into_iter().collect()
    }

    pub(crate) fn claims(&self) -> usize {
        self.world().claims.len()
    }

    /// Everything that is mounted goes, and what is written down stays.
    pub(crate) fn crash(&self) {
        self.world().mounted.clear();
    }

    pub(crate) fn hold_mounts(&self) -> Gate {
        let (open, opened) = std::sync::mpsc::channel::<()>();
        let (held, holds) = std::sync::mpsc::channel();
        let gate = self.gate.clone();
        let keeper = std::thread::spawn(move || {
            let _held = gate.lock().unwrap();
            held.send(()).unwrap();
            let _ = opened.recv();
        });
        holds.recv().unwrap();
        Gate {
            open: Some(open),
            keeper: Some(keeper),
        }
    }

    pub(crate) async fn reached(&self) {
        self.reached.notified().await;
    }
}

#[tonic::async_trait]
impl Host for Fake {
    fn find(&self, id: &str) -> Result<Option<Local>, Refusal> {
        self.may("find", Code::Internal)?;
        self.known(id)
    }

    fn known(&self, id: &str) -> Result<Option<Local>, Refusal> {
        let world = self.world();
        let id = world.claims.get(id).map_or(id, String::as_str);
        Ok(world.volumes.get(id).cloned())
    }

    fn owner(&self, path: &str) -> Result<Option<VolumeId>, Refusal> {
        let owner = {
            let world = self.world();
            let mut volumes = world.volumes.values();
            let owner = volumes.find(|volume| volume.targets.contains_key(path));
            owner.map(|volume| volume.id.clone())
        };
        self.reached.notify_one();
        drop(self.gate.lock().unwrap());
        Ok(owner)
    }

    fn shows(&self, volume: &Local, at: &Path) -> Result<bool, Refusal> {
        let world = self.world();
        let there = world.mounted.get(at.to_str().unwrap());
        Ok(there.is_some_and(|what| what.as_ref() == Some(&volume.id)))
    }

    fn note(&self, id: &VolumeId, path: &str, how: Option<&str>) -> Result<(), Refusal> {
        let mut world = self.world();
        let targets = &mut world.volumes.get_mut(id.as_str()).unwrap().targets;
        match how {
            Some(how) => targets.insert(path.to_owned(), how.to_owned()),
            None => targets.remove(path),
        };
        Ok(())
    }

    fn mount(&self, volume: &Local, at: &Path, how: &Mount) -> Result<(), Refusal> {
        self.may("mount", Code::Internal)?;
        let path = at.to_str().unwrap();
        assert!(
            self.find(volume.id.as_str())?
                .unwrap()
                .targets
                .contains_key(path)
        );
        self.reached.notify_one();
        drop(self.gate.lock().unwrap());
        self.put(path, Some(volume.id.clone()));
        let mut world = self.world();
        let format = world.formats.entry(volume.id.to_string());
        format.or_insert_with(|| how.file_system.to_string());
        Ok(())
    }

    fn bind(&self, volume: &Local, from: &Path, at: &Path, _: bool) -> Result<(), Refusal> {
        self.may("bind", Code::Internal)?;
        assert!(self.mounted().contains(&from.to_str().unwrap().to_owned()));
        self.bind_device(volume, at, false)
    }

    fn bind_device(&self, volume: &Local, at: &Path, _: bool) -> Result<(), Refusal> {
        let path = at.to_str().unwrap();
        assert!(
            self.find(volume.id.as_str())?
                .unwrap()
                .targets
                .contains_key(path)
        );
        self.put(path, Some(volume.id.clone()));
        Ok(())
    }

    fn unmount(&self, _: &Local, at: &Path) -> Result<(), Refusal> {
        self.may("unmount", Code::Internal)?;
        self.world().mounted.remove(at.to_str().unwrap());
        Ok(())
    }

    fn remove(&self, at: &Path) -> Result<(), Refusal> {
        self.world().paths.remove(at.to_str().unwrap());
        Ok(())
    }

    fn is_mounted(&self, at: &Path) -> Result<bool, Refusal> {
        Ok(self.world().mounted.contains_key(at.to_str().unwrap()))
    }

    fn space(&self, _: &Path) -> Result<(Space, Space), Refusal> {
        let bytes = Space {
            total: 100,
            used: 40,
            available: 50,
        };
        Ok((bytes, Space::default()))
    }

    async fn claim(&self, name: &str, parameters: &Parameters) -> Result<Local, Refusal> {
        self.may("claim", Code::ResourceExhausted)?;
        let id = "pod-0123456789abcdef0123456789abcdef";
        let made = volume(id, parameters.kata_containers, true);
        let mut world = self.world();
        world.claims.insert(name.to_owned(), id.to_owned());
        world.volumes.insert(id.to_owned(), made.clone());
        Ok(made)
    }

    async fn give_back(&self, name: &str) -> Result<(), Refusal> {
        self.may("give_back", Code::Unavailable)?;
        let mut world = self.world();
        if let Some(id) = world.claims.remove(name) {
            let gone = world.volumes.remove(&id).unwrap();
            assert!(gone.targets.is_empty(), "it is used");
        }
        Ok(())
    }
}
