//! A guest as a driver gets it, and as it reads it back: the guest's specification, the
//! claim that it runs on, and the exact CPUs and pages of that claim.
//!
//! Invariant: all of it is stored with the domain by the hypervisor (metadata), so that an agent
//! that starts knows what runs without querying any server.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use berth_domain::agent::DomainState;
use berth_domain::cpu_model::GuestCpu;
use berth_domain::cpu_set::CpuSet;
use berth_domain::first_boot::FirstBoot;
use berth_domain::id::{ClaimId, Epoch, OperationId, VmUid};
use berth_domain::instance::VcpuId;
use berth_domain::name::{VmName, VolumeId};
use berth_domain::network::{BridgeMapping, NetworkAttachment};
use berth_domain::numa::Assignment;
use berth_domain::transfer::{DiskCopy, TransferPolicy};
use berth_domain::vm::{AttachedAs, VmSpec};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::error::Error;

/// A guest on one host.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct DomainSpec {
    /// The VM's name; also the domain's.
    pub vm: VmName,
    /// This life of the VM; also the domain's UUID.
    pub uid: VmUid,
    /// The user's specification.
    pub spec: VmSpec,
    /// The claim that it runs on; absent when an agent too old to send it handed it over.
    pub claim: Option<ClaimId>,
    /// The lease under which it was started or sent here.
    pub epoch: Epoch,
    /// The exact CPUs and pages of the claim.
    pub assignment: Assignment,
    /// The shared CPUs of the host, over which everything without dedicated CPUs floats.
    pub shared_cpus: CpuSet,
    /// What this host has of the guest's volumes, in the order of the specification. Written by the
    /// host's agent when the guest is started: devices are numbered anew when a host is.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub volumes: Vec<VolumeDevice>,
    /// With which bridges this host reaches the physical networks of the guest's networks. Written by the
    /// host's agent, and for a host that the guest is sent to, as that host's agent reported.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub bridges: Vec<BridgeMapping>,
    /// The CPU that it is started with; absent where that is left to the driver.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu: Option<Arc<GuestCpu>>,
    /// What is written on its seed. Only where its disks are made, and not stored with the domain: the
    /// disk has it.
    #[serde(skip)]
    pub first_boot: Option<Arc<FirstBoot>>,
}

/// How a guest ended that does not run any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// It crashed: its hypervisor's process died, or the guest reported a panic.
    Crashed,
    /// It shut itself down.
    ShutDown,
}

/// A volume as a host has it for a guest.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct VolumeDevice {
    /// Which.
    pub volume: VolumeId,
    /// What the guest sees of it.
    pub attached_as: AttachedAs,
    /// For a disk the block device, for an nvdimm the file in the volume's file system.
    pub path: PathBuf,
    /// How large that is, in bytes.
    pub size_bytes: u64,
    /// Whether the guest can only read it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub read_only: bool,
}

impl DomainSpec {
    /// Returns the error for a disk that is not where it should be.
    #[must_use]
    pub fn disk_missing(&self, index: usize, path: PathBuf) -> Error {
        let vm = self.uid;
        match self.spec.disks.get(index).is_some_and(|disk| disk.seed) {
            true => Error::SeedMissing { vm, path },
            false => Error::DiskMissing { vm, index, path },
        }
    }

    /// Checks that there is a device for each of the guest's volumes, and no other.
    ///
    /// # Errors
    ///
    /// [`Error::VolumeUnusable`] for the first volume that has none.
    pub fn check_volumes(&self) -> Result<(), Error> {
        let attachments = &self.spec.volumes;
        for (index, one) in attachments.iter().enumerate() {
            let device = self.volumes.get(index);
            let same = |d: &VolumeDevice| {
                (&d.volume, d.attached_as, d.read_only)
                    == (&one.volume, one.attached_as, one.read_only)
            };
            if !device.is_some_and(same) {
                return Err(Error::VolumeUnusable {
                    volume: one.volume.clone(),
                    why: "the host has no device of it".to_owned(),
                });
            }
        }
        match self.volumes.get(attachments.len()) {
            None => Ok(()),
            Some(other) => Err(Error::VolumeUnusable {
                volume: other.volume.clone(),
                why: "the guest does not request it".to_owned(),
            }),
        }
    }

    /// Returns the bridge with which this host gives the guest a network.
    ///
    /// # Errors
    ///
    /// [`Error::Refused`] where it reaches no such physical network.
    pub fn bridge_to(&self, attachment: &NetworkAttachment) -> Result<&BridgeMapping, Error> {
        let physical = &attachment.link.physical_network;
        let mut bridges = self.bridges.iter();
        let bridge = bridges.find(|mapping| mapping.physical_network == *physical);
        bridge.ok_or_else(|| {
            let network = &attachment.name;
            Error::refused(format!(
                "this host has no bridge to physical network {physical} of network {network}"
            ))
        })
    }

    /// Checks that there is a bridge for each network that the guest is on.
    ///
    /// # Errors
    ///
    /// As [`Self::bridge_to`], of the first that is missing.
    pub fn check_networks(&self) -> Result<(), Error> {
        let mut networks = self.spec.networks();
        networks.try_for_each(|attachment| self.bridge_to(attachment).map(drop))
    }

    /// Returns the host CPUs that each vCPU may run on. An empty set means any CPU of the host.
    #[must_use]
    pub fn vcpu_cpus(&self) -> BTreeMap<VcpuId, CpuSet> {
        let mut cpus: BTreeMap<_, _> = (0..self.spec.flavor.vcpus)
            .map(|v| (VcpuId(v), self.shared_cpus.clone()))
            .collect();
        let wishes = self.spec.topology.iter().flat_map(|t| &t.cells);
        for wish in wishes {
            let given = self
                .assignment
                .cells
                .iter()
                .find(|c| c.guest_cell == wish.id);
            let Some(given) = given else { continue };
            for vcpu in &wish.shared {
                cpus.insert(*vcpu, given.floating.clone());
            }
            for (vcpu, cpu) in &given.pins {
                cpus.insert(*vcpu, CpuSet::from_iter([*cpu]));
            }
        }
        cpus
    }

    /// Returns the CPUs for the hypervisor's own threads: those taken for them, else by the
    /// flavor's policy. An empty set means any CPU of the host.
    #[must_use]
    pub fn emulator_cpus(&self) -> CpuSet {
        use berth_domain::instance::EmulatorThreads;
        if !self.assignment.emulator.is_empty() {
            return self.assignment.emulator.clone();
        }
        let policy = self
            .spec
            .topology
            .as_ref()
            .map(|t| t.emulator_threads)
            .unwrap_or_default();
        let realtime = self.spec.topology.as_ref().map(|t| &t.realtime);
        let is_realtime = |vcpu: &VcpuId| realtime.is_some_and(|realtime| realtime.contains(vcpu));
        // Beside a real-time vCPU the hypervisor's threads would never run.
        let of_guest = || {
            let cpus = self.vcpu_cpus();
            let ordinary = cpus.iter().filter(|(vcpu, _)| !is_realtime(vcpu));
            ordinary.fold(CpuSet::new(), |all, (_, cpus)| all.union(cpus))
        };
        match policy {
            EmulatorThreads::Share if !self.shared_cpus.is_empty() => self.shared_cpus.clone(),
            EmulatorThreads::Share | EmulatorThreads::Isolate | EmulatorThreads::Unspecified => {
                of_guest()
            }
        }
    }
}

/// How a guest is sent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Sending {
    /// Within which bounds, and with what allowed.
    pub policy: TransferPolicy,
    /// The disks that the hypervisor copies; the others are shared.
    pub copies: Vec<DiskCopy>,
    /// Whether memory and copied disks are encrypted on their way. Never sent in plain text then.
    pub tls: bool,
}

/// How a transfer is made to end soon.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Force {
    /// The guest goes on at the destination, and the rest of its memory follows.
    PostCopy,
    /// The guest is paused until all of it is sent, so that nothing has to be sent again.
    Pause,
}

/// A guest that a hypervisor knows, as read back from it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Known {
    /// The domain as it was started or sent here.
    pub domain: DomainSpec,
    /// Where it is now.
    pub state: DomainState,
}

/// An image that an operation makes: a file under a name that no user can choose, until it is
/// published.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Draft {
    /// The operation that makes it.
    pub operation: OperationId,
    /// The file name that it is to have in the image directory.
    pub image: String,
}

/// A domain that Berth did not make.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Other {
    /// Its UUID.
    pub uuid: Uuid,
    /// Its name.
    pub name: String,
}
