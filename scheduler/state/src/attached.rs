//! Volumes as the choice of a host for a VM needs them: where they are, and who has them.
//!
//! A volume belongs to the VM whose specification names it, from the command that makes the VM to the
//! one that takes it away, whatever state the VM is in meanwhile.
//!
//! It changes nothing: see [`crate::apply`].

use std::collections::BTreeSet;

use berth_domain::constraint::{Demand, MoveKind, VolumeLocation};
use berth_domain::name::{HostName, VmName, VolumeId};
use berth_domain::refusal::{Code, Refusal};
use berth_domain::vm::{AttachedAs, VmSpec, VolumeAttachment};
use berth_domain::volume::{Kind, Phase, Volume};

use crate::refusals::precondition;
use crate::state::State;

/// The reason of the refusal to move a VM away from its volumes.
pub const VOLUMES_ARE_LOCAL: &str = "VOLUMES_ARE_LOCAL";

impl State {
    /// Returns the VM that has a volume, if one does.
    #[must_use]
    pub fn vm_with_volume(&self, volume: &VolumeId) -> Option<&VmName> {
        self.index.volume_vms.get(volume)
    }

    /// Returns the demand of a VM together with what its server group and its volumes demand, and with
    /// the baseline of CPUs that it chooses. The choice of a host and the command that claims it both
    /// call this.
    ///
    /// # Errors
    ///
    /// There is no such group, baseline or volume; a volume cannot be had by this VM, or no host has all of
    /// them; the VM would have to leave its volumes.
    pub fn with_relations(
        &self,
        demand: Demand,
        vm: &VmName,
        spec: &VmSpec,
    ) -> Result<Demand, Refusal> {
        let demand = self.with_group(demand, vm, spec)?;
        let demand = self.with_cpu(demand)?;
        self.with_volumes(demand, vm, spec)
    }

    fn with_volumes(&self, demand: Demand, vm: &VmName, spec: &VmSpec) -> Result<Demand, Refusal> {
        if spec.volumes.is_empty() {
            return Ok(demand);
        }
        let source = demand.leaving.as_ref();
        if let Some(source) = source
            && source.kind != (MoveKind::Cold { may_stay: true })
        {
            return Err(self.volumes_are_local(vm, spec, &source.host));
        }
        let volumes = spec.volumes.iter();
        let places = volumes.map(|attachment| {
            let volume = self.examine_attachable(vm, &attachment.volume)?;
            let mut places = places(attachment, volume);
            // One that has begun to write to a cache goes on with that replica.
            if let Some(source) = source {
                places.hosts.retain(|host, _| *host == source.host);
            }
            Ok(places)
        });
        let volumes: Vec<VolumeLocation> = places.collect::<Result<_, Refusal>>()?;
        examine_together(&volumes)?;
        Ok(Demand { volumes, ..demand })
    }

    /// Returns the volume if a VM can have it, whose it may be already.
    fn examine_attachable(&self, vm: &VmName, id: &VolumeId) -> Result<&Volume, Refusal> {
        let Some(volume) = self.volume(id) else {
            let message = format!("volume {id} does not exist");
            return Err(Refusal::new(Code::NotFound, "VOLUME_NOT_FOUND", message)
                .with_hint("the volumes that exist are listed by `berth volume list`")
                .with("volume", id));
        };
        let named = format!("volume {} ({id})", volume.display_name);
        if let Some(other) = self.vm_with_volume(id).filter(|other| *other != vm) {
            return Err(self.attached(volume, other));
        }
        // The pod's end would wait for the VM's.
        if volume.kind == Kind::Ephemeral {
            let message = format!("{named} was made for one pod, and goes with it");
            return Err(precondition("VOLUME_OF_POD", message)
                .with_hint("make one for the VM: berth volume create")
                .with("volume", id));
        }
        if volume.is_deleting() {
            let message = format!("{named} is being deleted");
            return Err(precondition("VOLUME_NOT_READY", message).with("volume", id));
        }
        // Of a cache all: where one host cannot make its part, the others have to remove theirs.
        if !volume.replicas.iter().all(|r| r.phase == Phase::Ready) {
            let message = format!("{named} is not made yet");
            return Err(precondition("VOLUME_NOT_READY", message)
                .with_hint(format!("wait until it is READY: berth volume show {id}"))
                .with("volume", id));
        }
        Ok(volume)
    }

    fn volumes_are_local(&self, vm: &VmName, spec: &VmSpec, host: &HostName) -> Refusal {
        let named = spec.volumes.iter().map(|attachment| {
            let id = &attachment.volume;
            match self.volume(id) {
                Some(volume) => format!("{} ({id})", volume.display_name),
                None => id.to_string(),
            }
        });
        let named: Vec<String> = named.collect();
        let plural = if named.len() == 1 { "" } else { "s" };
        let message = format!(
            "vm {vm} has volume{plural} {} on host {host}, and volumes do not leave their host",
            named.join(", ")
        );
        let first = spec
            .volumes
            .first()
            .map(|attachment| attachment.volume.to_string());
        precondition(VOLUMES_ARE_LOCAL, message)
            .with_hint(
                "it can be stopped and started, rebuilt, resized and shelved on that host; elsewhere \
                 make another VM with volumes there, and copy what is in them",
            )
            .with("vm", vm)
            .with("host", host)
            .with("volume", first.unwrap_or_default())
    }

    /// Refuses what a VM has.
    pub(crate) fn attached(&self, volume: &Volume, name: &VmName) -> Refusal {
        let message = format!(
            "volume {} ({}) belongs to vm {name}",
            volume.display_name, volume.id
        );
        let vm = self.vm(name);
        let hint = match vm
            .map(|vm| vm.unprotect_first())
            .filter(|first| !first.is_empty())
        {
            Some(first) => format!("{first}delete that VM: `berth vm delete {name}`"),
            None => format!("delete that VM first: berth vm delete {name}"),
        };
        precondition("VOLUME_ATTACHED", message)
            .with_hint(hint)
            .with("volume", &volume.id)
            .with("vm", name)
    }
}

fn places(attachment: &VolumeAttachment, volume: &Volume) -> VolumeLocation {
    let ready = volume.replicas.iter().filter(|r| r.phase == Phase::Ready);
    VolumeLocation {
        volume: attachment.volume.clone(),
        is_nvdimm: attachment.attached_as == AttachedAs::Nvdimm,
        hosts: ready.map(|r| (r.host.clone(), r.cell)).collect(),
    }
}

/// Says whether one host at least has all of them.
fn examine_together(volumes: &[VolumeLocation]) -> Result<(), Refusal> {
    let Some((first, rest)) = volumes.split_first() else {
        return Ok(());
    };
    let mut hosts: BTreeSet<&HostName> = first.hosts.keys().collect();
    for (at, volume) in rest.iter().enumerate() {
        hosts.retain(|host| volume.hosts.contains_key(*host));
        if !hosts.is_empty() {
            continue;
        }
        let describe = |v: &VolumeLocation| {
            let hosts: Vec<&str> = v.hosts.keys().map(HostName::as_str).take(8).collect();
            format!("volume {} is on host {}", v.volume, hosts.join(", "))
        };
        // The first that is on none of its hosts, or any: several caches may only fail together.
        let apart = |v: &&VolumeLocation| v.hosts.keys().all(|h| !volume.hosts.contains_key(h));
        let before = &volumes[..=at];
        let other = before.iter().find(apart).unwrap_or(first);
        let message = format!(
            "no host has all volumes: {}, {}",
            describe(other),
            describe(volume)
        );
        return Err(precondition("VOLUMES_APART", message)
            .with("volume", &other.volume)
            .with("other_volume", &volume.volume));
    }
    Ok(())
}
