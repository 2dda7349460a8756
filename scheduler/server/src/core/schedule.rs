//! The requests for which a host is chosen: boot, migrate, and the next try of either.
//!
//! What is looked at here before choosing is what a person should hear of first (an unknown
//! flavor, a busy VM) rather than a list of hosts; [`berth_state`] looks at all of it again.

use std::collections::{BTreeMap, BTreeSet};

use berth_domain::claim::{self, Claim, Owner};
use berth_domain::constraint::Demand;
use berth_domain::fault::{self, Fault};
use berth_domain::flavor::Flavor;
use berth_domain::id::{ClaimId, Epoch, OperationId, VmUid};
use berth_domain::image::ImageProperties;
use berth_domain::name::{FlavorName, HostName, VmName};
use berth_domain::operation::{Kind, Mark, Operation, Step};
use berth_domain::pci::PciAliases;
use berth_domain::refusal::{Code, Refusal};
use berth_domain::vm::{
    self, BootSource, Disk, NICS_MAX, Nic, SchedulingHints, Vm, VmSpec, VolumeAttachment,
};
use berth_selection::Choice;
use berth_state::State;
use berth_state::command::{Command, Effect};

use super::admission::{Newcomer, choose_admitted};
use super::chooser::{Chooser, No, choose};
use super::request::{ScheduleMigration, ScheduleVm};

/// A command, and how its host was chosen.
pub(super) struct Scheduled {
    pub(super) command: Command,
    pub(super) choice: Option<Choice>,
}

/// Chooses the first host of a new VM.
pub(super) fn vm(
    state: &State,
    chooser: &mut dyn Chooser,
    wanted: &ScheduleVm,
) -> Result<Scheduled, No> {
    if state.vm(&wanted.vm).is_some() {
        return Err(Refusal::new(
            Code::AlreadyExists,
            "VM_EXISTS",
            format!("vm {} exists already", wanted.vm),
        )
        .with("vm", &wanted.vm)
        .into());
    }
    known_host(state, wanted.host.as_ref())?;
    let spec = spec_of(state, wanted)?;
    state.examine_group(&spec)?;
    known_zone(state, &spec)?;
    let newcomer = Newcomer {
        vm: &wanted.vm,
        claim: wanted.claim,
        spec: &spec,
    };
    let choice = choose_admitted(
        chooser,
        state,
        berth_selection::Request {
            demand: state.with_relations(Demand::boot(&spec)?, &wanted.vm, &spec)?,
            requested: wanted.host.clone(),
            excluded: Vec::new(),
            seed: wanted.claim.0,
            policy: (**state.policy()).clone(),
        },
        &newcomer,
    )?;
    let claim = held(wanted.claim, &wanted.vm, Owner::Vm, &choice);
    Ok(Scheduled {
        command: Command::BeginBoot {
            operation: wanted.operation,
            vm: wanted.vm.clone(),
            uid: wanted.uid,
            spec: Box::new(spec),
            requested_host: wanted.host.clone(),
            claim,
            lease: wanted.lease.clone(),
        },
        choice: Some(choice),
    })
}

/// Chooses the destination of a migration, or examines the one that was named.
pub(super) fn migration(
    state: &State,
    chooser: &mut dyn Chooser,
    wanted: &ScheduleMigration,
) -> Result<Scheduled, No> {
    let vm = known_vm(state, &wanted.vm)?;
    idle_and_active(vm)?;
    known_host(state, wanted.host.as_ref())?;
    let mut policy = state.policy().migration.clone();
    let transfer = policy.transfer.with(&wanted.transfer, &vm.spec);
    policy.transfer = transfer.map_err(|faults| fault::refusal("migration", &faults))?;
    let choice = choose(
        chooser,
        state,
        berth_selection::Request {
            demand: state.live_demand(vm)?,
            requested: wanted.host.clone(),
            excluded: Vec::new(),
            seed: wanted.claim.0,
            policy: (**state.policy()).clone(),
        },
    )?;
    let owner = Owner::Migration(wanted.migration);
    let claim = held(wanted.claim, &wanted.vm, owner, &choice);
    Ok(Scheduled {
        command: Command::BeginMigration {
            operation: wanted.operation,
            migration: wanted.migration,
            vm: wanted.vm.clone(),
            requested_host: wanted.host.clone(),
            claim,
            lease: wanted.lease.clone(),
            policy,
        },
        choice: Some(choice),
    })
}

/// Chooses the next host for an operation whose host refused.
pub(super) fn next(
    state: &State,
    chooser: &mut dyn Chooser,
    operation: OperationId,
    epoch: Epoch,
    claim: ClaimId,
) -> Result<Scheduled, No> {
    let Some(operation) = state.operation(operation) else {
        return Err(Refusal::not_found("operation", operation).into());
    };
    holds_lease(operation, epoch)?;
    let vm = known_vm(state, &operation.vm)?;
    let demand = match &operation.kind {
        Kind::Boot => {
            let demand = Demand::boot(&vm.spec)?;
            state.with_relations(demand, &vm.name, &vm.spec)?
        }
        Kind::LiveMigrate { .. } => state.live_demand(vm)?,
        Kind::ColdMigrate { .. } | Kind::Evacuate { .. } | Kind::Unshelve => {
            state.next_cold_demand(operation, vm)?
        }
        Kind::Delete
        | Kind::RevertResize { .. }
        | Kind::ConfirmResize { .. }
        | Kind::Shelve
        | Kind::Stop { .. }
        | Kind::Start
        | Kind::Reboot { .. }
        | Kind::Rebuild { .. }
        | Kind::Snapshot { .. } => {
            return Err(Refusal::new(
                Code::FailedPrecondition,
                "NOTHING_TO_CHOOSE",
                format!("operation {} needs no other host", operation.id),
            )
            .into());
        }
    };
    let owner = operation
        .kind
        .claiming()
        .map_or(Owner::Vm, Owner::Migration);
    let request = berth_selection::Request {
        demand,
        requested: operation.requested_host.clone(),
        excluded: operation.excluded.clone(),
        seed: claim.0,
        policy: (**state.policy()).clone(),
    };
    let migration = operation.kind.claiming().and_then(|id| state.migration(id));
    let resize = migration.and_then(|migration| migration.resize.as_deref());
    let newcomer = Newcomer {
        vm: &vm.name,
        claim,
        spec: resize.map_or(&vm.spec, |resize| &resize.after),
    };
    let takes_more = resize.is_some() || matches!(operation.kind, Kind::Boot | Kind::Unshelve);
    let choice = match takes_more {
        true => choose_admitted(chooser, state, request, &newcomer)?,
        false => choose(chooser, state, request)?,
    };
    let claim = held(claim, &operation.vm, owner, &choice);
    Ok(Scheduled {
        command: Command::Advance {
            operation: operation.id,
            epoch,
            step: Step::Claim,
            mark: Mark::Succeeded,
            effect: Effect::HoldClaim(claim),
        },
        choice: Some(choice),
    })
}

pub(super) fn held(id: ClaimId, vm: &VmName, owner: Owner, choice: &Choice) -> Claim {
    Claim {
        id,
        vm: vm.clone(),
        owner,
        host: choice.host.clone(),
        state: claim::State::Held,
        resources: choice.resources.clone(),
        assignment: choice.assignment.clone(),
        erasures: BTreeMap::new(),
    }
}

/// Returns what is asked for, with the flavor as it is now and every MAC address filled in.
fn spec_of(state: &State, wanted: &ScheduleVm) -> Result<VmSpec, Refusal> {
    let rest = Rest {
        boot: wanted.boot.clone(),
        disks: wanted.disks.clone(),
        nics: nics_of(state, wanted)?,
        image_properties: wanted.image_properties.clone(),
        hints: wanted.hints.clone(),
        volumes: wanted.volumes.clone(),
    };
    sized(state, &wanted.flavor, rest)
}

/// What a VM is beside its flavor.
pub(super) struct Rest {
    pub(super) boot: BootSource,
    pub(super) disks: Vec<Disk>,
    pub(super) nics: Vec<Nic>,
    pub(super) image_properties: ImageProperties,
    pub(super) hints: SchedulingHints,
    pub(super) volumes: Vec<VolumeAttachment>,
}

/// Returns a VM of a flavor, as that is now.
pub(super) fn sized(state: &State, flavor: &FlavorName, rest: Rest) -> Result<VmSpec, Refusal> {
    let Some(flavor) = state.flavor(flavor) else {
        return Err(Refusal::not_found("flavor", flavor)
            .with_hint("the flavors that exist are listed by `berth flavor list`"));
    };
    let aliases = aliases_of(state, flavor);
    let wishes_of = |flavor: &Flavor| {
        let wishes = vm::wishes_of(flavor, &rest.image_properties, &aliases, &rest.volumes);
        wishes.map_err(|faults| with_missing_alias(state, flavor, fault::refusal("vm", &faults)))
    };
    let mut flavor = (**flavor).clone();
    let mut wishes = wishes_of(&flavor)?;
    if state.policy().complete(&mut flavor, &wishes) {
        wishes = wishes_of(&flavor)?;
    }
    let spec = VmSpec {
        image_properties: rest.image_properties,
        pci_aliases: aliases,
        flavor,
        boot: rest.boot,
        disks: rest.disks,
        nics: rest.nics,
        topology: wishes.topology,
        cpu_shape: wishes.cpu_shape,
        pci: wishes.pci,
        hints: rest.hints,
        volumes: rest.volumes,
    };
    spec.validate()
        .map_err(|faults| fault::refusal("vm", &faults))?;
    Ok(spec)
}

/// Returns copies of the PCI aliases that a flavor names, as far as they exist.
fn aliases_of(state: &State, flavor: &Flavor) -> PciAliases {
    let named = flavor.pci_aliases();
    let known = named.iter().filter_map(|name| state.pci_alias(name));
    known
        .map(|alias| (alias.name.clone(), (**alias).clone()))
        .collect()
}

/// Says how to make the alias that is missing, where one is.
fn with_missing_alias(state: &State, flavor: &Flavor, refusal: Refusal) -> Refusal {
    let named = flavor.pci_aliases();
    match named.iter().find(|name| state.pci_alias(name).is_none()) {
        Some(missing) => refusal.with_hint(format!(
            "make it: berth pci-alias create {missing} --match vendor_id=VVVV,product_id=PPPP; \
             those that exist are listed by `berth pci-alias list`"
        )),
        None => refusal,
    }
}

/// Returns the interfaces that are asked for, each with a MAC address that no other VM has.
fn nics_of(state: &State, wanted: &ScheduleVm) -> Result<Vec<Nic>, Refusal> {
    if wanted.nics.len() > NICS_MAX {
        let rule = format!("at most {NICS_MAX} are allowed");
        let fault = Fault::new("nics", wanted.nics.len(), rule);
        return Err(fault::refusal("vm", &[fault]));
    }
    state.examine_macs(&wanted.nics)?;
    let given = wanted.nics.iter().map(|nic| nic.mac.clone());
    let mut taken: BTreeSet<String> = given.filter(|mac| !mac.is_empty()).collect();
    let mut nics = wanted.nics.clone();
    for nic in nics.iter_mut().filter(|nic| nic.mac.is_empty()) {
        nic.mac = free_mac(state, wanted.uid, &taken)?;
        taken.insert(nic.mac.clone());
    }
    Ok(nics)
}

/// How many MAC addresses are tried. With half of all taken, one interface in 2^64 finds none.
const MAC_TRIES: u32 = 64;

/// Returns a MAC address that no VM has, under the prefix that QEMU and libvirt use. Which one is
/// tried first, and which ones next, follows from the VM's uid.
fn free_mac(state: &State, uid: VmUid, taken: &BTreeSet<String>) -> Result<String, Refusal> {
    let bytes = uid.0.as_bytes();
    let number = |at: usize| u32::from_be_bytes([0, bytes[at], bytes[at + 1], bytes[at + 2]]);
    // An odd stride comes past every address.
    let (first, stride) = (number(13), number(10) | 1);
    (0..MAC_TRIES)
        .map(|tried| {
            let [_, a, b, c] = first.wrapping_add(stride.wrapping_mul(tried)).to_be_bytes();
            format!("52:54:00:{a:02x}:{b:02x}:{c:02x}")
        })
        .find(|mac| state.vm_with_mac(mac).is_none() && !taken.contains(mac))
        .ok_or_else(|| {
            Refusal::new(
                Code::ResourceExhausted,
                "NO_MAC_FREE",
                format!("none of {MAC_TRIES} MAC addresses under 52:54:00 that were tried is free"),
            )
            .with_hint("give the interface an address of another prefix")
        })
}

pub(super) fn known_vm<'s>(state: &'s State, name: &VmName) -> Result<&'s Vm, Refusal> {
    match state.vm(name) {
        Some(vm) => Ok(vm),
        None => Err(Refusal::not_found("vm", name)),
    }
}

/// A cluster knows its own hosts only; to it any other host does not exist.
pub(super) fn known_host(state: &State, name: Option<&HostName>) -> Result<(), Refusal> {
    match name {
        Some(name) if state.host(name).is_none() => Err(Refusal::new(
            Code::NotFound,
            "HOST_NOT_FOUND",
            format!("host {name} is not part of this cluster"),
        )
        .with("host", name)
        .with_hint("the hosts of this cluster are listed by `berth host list`")),
        Some(_) | None => Ok(()),
    }
}

/// A zone that no aggregate makes does not exist; rather that than a list of all hosts.
fn known_zone(state: &State, spec: &VmSpec) -> Result<(), Refusal> {
    let Some(zone) = &spec.hints.availability_zone else {
        return Ok(());
    };
    let mut aggregates = state.aggregates().values();
    if aggregates.any(|aggregate| aggregate.zone().as_ref() == Some(zone)) {
        return Ok(());
    }
    Err(Refusal::new(
        Code::NotFound,
        "AVAILABILITY_ZONE_NOT_FOUND",
        format!("availability zone {zone} does not exist"),
    )
    .with("zone", zone)
    .with_hint("the zones that exist are listed by `berth availability-zone list`"))
}

pub(super) fn busy(vm: &Vm, operation: OperationId) -> Refusal {
    Refusal::new(
        Code::FailedPrecondition,
        "VM_BUSY",
        format!("operation {operation} is at work on vm {}", vm.name),
    )
    .with_hint("wait for that operation, or cancel it")
    .with("vm", &vm.name)
    .with("operation", operation)
}

fn idle_and_active(vm: &Vm) -> Result<(), Refusal> {
    if let Some(operation) = vm.operation {
        return Err(busy(vm, operation));
    }
    vm.state
        .transition(vm::Event::MigrationBegan)
        .map(|_| ())
        .map_err(|_| {
            Refusal::new(
                Code::FailedPrecondition,
                "VM_NOT_ACTIVE",
                format!("vm {} is {:?} and cannot be moved", vm.name, vm.state),
            )
            .with("vm", &vm.name)
            .with_hint(match vm.state {
                vm::State::Stopped => format!(
                    "start it first (`berth vm start {0}`), or move it as it is: `berth vm \
                     migrate {0} --cold`",
                    vm.name
                ),
                vm::State::Building
                | vm::State::Active
                | vm::State::Migrating
                | vm::State::Deleting
                | vm::State::Error
                | vm::State::Resized
                | vm::State::Shelved => "wait until it is ACTIVE".to_owned(),
            })
        })
}

fn holds_lease(operation: &Operation, epoch: Epoch) -> Result<(), Refusal> {
    match &operation.lease {
        Some(lease) if lease.epoch == epoch => Ok(()),
        Some(lease) => Err(Refusal::new(
            Code::Aborted,
            "STALE_EPOCH",
            format!(
                "operation {} is under epoch {}, not {epoch}",
                operation.id, lease.epoch
            ),
        )
        .with("operation", operation.id)
        .with("epoch", lease.epoch)),
        None => Err(Refusal::new(
            Code::FailedPrecondition,
            "OPERATION_DONE",
            format!("operation {} is done", operation.id),
        )
        .with("operation", operation.id)),
    }
}
