//! The actions for which a host is chosen: boot, migrate, and the next attempt of either.
//!
//! The checks before the choice are those a user should see reported first (an unknown
//! flavor, a busy VM) rather than a list of hosts; [`berth_state`] repeats all of them.

use std::collections::{BTreeMap, BTreeSet};

use berth_domain::claim::{self, Claim, Owner};
use berth_domain::constraint::{Demand, PCI_NOT_LIVE_MIGRATABLE, RestartReason};
use berth_domain::fault::{self, Fault};
use berth_domain::flavor::Flavor;
use berth_domain::id::{ClaimId, Epoch, MigrationId, OperationId, VmUid};
use berth_domain::image::ImageProperties;
use berth_domain::name::{FlavorName, HostName, VmName};
use berth_domain::network;
use berth_domain::operation::{Advice, ClaimPurpose, Kind, Mark, Operation, Step};
use berth_domain::ownership::Ownership;
use berth_domain::pci::PciAliases;
use berth_domain::refusal::{Code, Refusal};
use berth_domain::vm::{
    self, BootSource, Disk, NICS_MAX, Nic, NicPlug, NicRequest, SchedulingHints, Vm, VmSpec,
    VolumeAttachment,
};
use berth_selection::Choice;
use berth_state::State;
use berth_state::command::{Command, Effect};

use super::admission::{IncomingVm, choose_admitted};
use super::chooser::{Chooser, Unschedulable, choose};
use super::image;
use super::request::{ScheduleMigration, ScheduleVm};
use super::surroundings::{RequestedVm, Subject};

/// A command and the choice of its host.
pub(super) struct Scheduled {
    pub(super) command: Command,
    pub(super) choice: Option<Choice>,
}

/// Chooses the first host of a new VM.
pub(super) fn vm(
    state: &State,
    chooser: &mut dyn Chooser,
    params: &ScheduleVm,
) -> Result<Scheduled, Unschedulable> {
    if state.vm(&params.vm).is_some() {
        return Err(Refusal::new(
            Code::AlreadyExists,
            "VM_EXISTS",
            format!("vm {} exists already", params.vm),
        )
        .with("vm", &params.vm)
        .into());
    }
    known_host(state, params.host.as_ref())?;
    let spec = spec_of(state, params)?;
    state.examine_group(&spec)?;
    known_zone(state, &spec)?;
    let incoming = IncomingVm {
        vm: &params.vm,
        claim: params.claim,
        spec: &spec,
    };
    let choice = choose_admitted(
        chooser,
        state,
        berth_selection::Request {
            demand: state.with_relations(Demand::boot(&spec)?, &params.vm, &spec)?,
            requested: params.host.clone(),
            excluded: Vec::new(),
            seed: params.claim.0,
            policy: (**state.policy()).clone(),
        },
        &incoming,
    );
    let choice = choice.map_err(|no| {
        no.about(|| Subject {
            vm: params.vm.clone(),
            requested: Some(RequestedVm::Boot(Box::new(spec.clone()))),
            takes_more: true,
        })
    })?;
    let claim = held(params.claim, &params.vm, Owner::Vm, &choice);
    Ok(Scheduled {
        command: Command::BeginBoot {
            operation: params.operation,
            vm: params.vm.clone(),
            uid: params.uid,
            spec: Box::new(spec),
            requested_host: params.host.clone(),
            claim,
            lease: params.lease.clone(),
            project: params.project.clone(),
            restart: params.restart,
            first_boot: params.first_boot.clone(),
            metadata: params.metadata.clone(),
        },
        choice: Some(choice),
    })
}

/// Chooses the destination of a migration, or checks the requested one.
pub(super) fn migration(
    state: &State,
    chooser: &mut dyn Chooser,
    params: &ScheduleMigration,
) -> Result<Scheduled, Unschedulable> {
    let vm = known_vm(state, &params.vm)?;
    idle_and_active(vm, params.migration)?;
    known_host(state, params.host.as_ref())?;
    let mut policy = state.policy().migration.clone();
    let transfer = policy.transfer.with(&params.transfer, &vm.spec);
    policy.transfer = transfer.map_err(|faults| fault::refusal("migration", &faults))?;
    let request = |demand| berth_selection::Request {
        demand,
        requested: params.host.clone(),
        excluded: Vec::new(),
        seed: params.claim.0,
        policy: (**state.policy()).clone(),
    };
    let demand = match state.live_demand(vm) {
        Ok(demand) => demand,
        Err(refusal) => {
            let stopped = state.cold_demand(vm, &vm.spec, RestartReason::Move);
            let fits = stopped.is_ok_and(|demand| chooser.choose(state, &request(demand)).is_ok());
            return Err(match fits && refusal.reason == PCI_NOT_LIVE_MIGRATABLE {
                true => or_stopped(refusal, vm).into(),
                false => refusal.into(),
            });
        }
    };
    let choice = choose(chooser, state, request(demand));
    let choice = choice.map_err(|no| no.about(|| as_it_is(&params.vm, false)))?;
    let owner = Owner::Migration(params.migration);
    let claim = held(params.claim, &params.vm, owner, &choice);
    Ok(Scheduled {
        command: Command::BeginMigration {
            operation: params.operation,
            migration: params.migration,
            vm: params.vm.clone(),
            requested_host: params.host.clone(),
            claim,
            lease: params.lease.clone(),
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
) -> Result<Scheduled, Unschedulable> {
    let Some(operation) = state.operation(operation) else {
        return Err(Refusal::not_found("operation", operation).into());
    };
    holds_lease(operation, epoch)?;
    let Some(purpose) = operation.kind.plan().claims else {
        return Err(Refusal::new(
            Code::FailedPrecondition,
            "NOTHING_TO_CHOOSE",
            format!("operation {} needs no other host", operation.id),
        )
        .into());
    };
    let vm = operation.vm().expect("what takes a claim works on a VM");
    let vm = known_vm(state, vm)?;
    let demand = match purpose {
        ClaimPurpose::Boot => {
            let demand = Demand::boot(&vm.spec)?;
            state.with_relations(demand, &vm.name, &vm.spec)?
        }
        ClaimPurpose::LiveMigration => state.live_demand(vm)?,
        ClaimPurpose::ColdMigration | ClaimPurpose::Evacuation | ClaimPurpose::Unshelving => {
            state.next_cold_demand(operation, vm)?
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
    let incoming = IncomingVm {
        vm: &vm.name,
        claim,
        spec: resize.map_or(&vm.spec, |resize| &resize.after),
    };
    let is_new = matches!(purpose, ClaimPurpose::Boot | ClaimPurpose::Unshelving);
    let takes_more = resize.is_some() || is_new;
    let choice = match takes_more {
        true => choose_admitted(chooser, state, request, &incoming),
        false => choose(chooser, state, request),
    };
    let choice = choice.map_err(|no| no.about(|| as_it_is(&vm.name, takes_more)))?;
    let claim = held(claim, &vm.name, owner, &choice);
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

/// Returns a VM that is there, and that no client can request otherwise.
pub(super) fn as_it_is(vm: &VmName, takes_more: bool) -> Subject {
    Subject {
        vm: vm.clone(),
        requested: None,
        takes_more,
    }
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
        cpu: choice.cpu.clone(),
    }
}

/// Returns the requested spec, with the current flavor, every MAC address and the seed filled in. What is
/// written on the VM is checked too: what the state refuses is stored with the id of the request.
fn spec_of(state: &State, params: &ScheduleVm) -> Result<VmSpec, Refusal> {
    if let Some(first_boot) = &params.first_boot {
        first_boot
            .check()
            .map_err(|faults| fault::refusal("vm", &faults))?;
    }
    let faults = params.metadata.faults();
    if !faults.is_empty() {
        return Err(fault::refusal("vm", &faults));
    }
    let seed = params.first_boot.is_some().then_some(Disk::SEED);
    let mut boot = params.boot.clone();
    let mut disks: Vec<Disk> = params.disks.iter().cloned().chain(seed).collect();
    let mut image_properties = params.image_properties.clone();
    if let Some(image) = image::name_files(state, &mut boot, &mut disks)? {
        for (key, value) in &image.properties.0 {
            let known = image_properties.0.entry(key.clone());
            known.or_insert_with(|| value.clone());
        }
    }
    let rest = Rest {
        boot,
        disks,
        nics: nics_of(state, params)?,
        image_properties,
        hints: params.hints.clone(),
        volumes: params.volumes.clone(),
    };
    sized(state, &params.flavor, rest)
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
    sized_as(state, (**flavor).clone(), rest)
}

/// Returns a VM of a flavor that need not exist.
pub(super) fn sized_as(state: &State, flavor: Flavor, rest: Rest) -> Result<VmSpec, Refusal> {
    let mut flavor = flavor;
    let aliases = aliases_of(state, &flavor);
    let requirements_of = |flavor: &Flavor| {
        let requirements =
            vm::requirements_of(flavor, &rest.image_properties, &aliases, &rest.volumes);
        requirements
            .map_err(|faults| with_missing_alias(state, flavor, fault::refusal("vm", &faults)))
    };
    // The VM has an ownership of its own, and its agent needs to know neither.
    flavor.ownership = Ownership::default();
    let mut requirements = requirements_of(&flavor)?;
    if state.policy().complete(&mut flavor, &requirements) {
        requirements = requirements_of(&flavor)?;
    }
    let spec = VmSpec {
        image_properties: rest.image_properties,
        pci_aliases: aliases,
        flavor,
        boot: rest.boot,
        disks: rest.disks,
        nics: rest.nics,
        topology: requirements.topology,
        cpu_shape: requirements.cpu_shape,
        pci: requirements.pci,
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

/// Returns the requested interfaces, each with a MAC address that no other VM has.
fn nics_of(state: &State, params: &ScheduleVm) -> Result<Vec<Nic>, Refusal> {
    if params.nics.len() > NICS_MAX {
        let rule = format!("at most {NICS_MAX} are allowed");
        let fault = Fault::new("nics", params.nics.len(), rule);
        return Err(fault::refusal("vm", &[fault]));
    }
    let nics = params.nics.iter().map(|nic| plugged(state, nic));
    let mut nics = nics.collect::<Result<Vec<Nic>, Refusal>>()?;
    state.examine_macs(&nics)?;
    let given = nics.iter().map(|nic| nic.mac.clone());
    let mut taken: BTreeSet<String> = given.filter(|mac| !mac.is_empty()).collect();
    for nic in nics.iter_mut().filter(|nic| nic.mac.is_empty()) {
        nic.mac = free_mac(state, params.uid, &taken)?;
        taken.insert(nic.mac.clone());
    }
    Ok(nics)
}

/// Returns a requested interface with what hosts need of its network.
fn plugged(state: &State, request: &NicRequest) -> Result<Nic, Refusal> {
    let (bridge, network) = match &request.plug {
        NicPlug::Bridge(bridge) => (bridge.clone(), None),
        NicPlug::Network(name) => {
            let network = state.network(name);
            let network = network.ok_or_else(|| network::not_found(name))?;
            (String::new(), Some(network.attachment()))
        }
    };
    Ok(Nic {
        bridge,
        network,
        mac: request.mac.clone(),
    })
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

/// Refuses a host that is not part of this cluster.
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

/// Refuses a zone that no aggregate defines, which is clearer than a list of all hosts.
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

fn idle_and_active(vm: &Vm, migration: MigrationId) -> Result<(), Refusal> {
    if let Some(operation) = vm.operation {
        return Err(busy(vm, operation));
    }
    let moves = vm.state.transition(vm::Event::MigrationBegan);
    moves.map(drop).map_err(|_| {
        let message = format!(
            "vm {} is {} and cannot be moved",
            vm.name,
            vm.state.as_str()
        );
        let refusal = Refusal::new(Code::FailedPrecondition, "VM_NOT_ACTIVE", message);
        let kind = Kind::LiveMigrate { migration };
        advised(vm, &kind, refusal.with("vm", &vm.name))
    })
}

/// Adds that the VM can be moved stopped, which was decided.
fn or_stopped(refusal: Refusal, vm: &Vm) -> Refusal {
    let command = format!("move it stopped: `berth vm migrate {} --cold`", vm.name);
    let hint = match &refusal.hint {
        Some(hint) => format!("{command}; {hint}"),
        None => command,
    };
    refusal.with_hint(hint)
}

/// Adds what helps about the state of a VM, where something does.
pub(super) fn advised(vm: &Vm, kind: &Kind, refusal: Refusal) -> Refusal {
    match Advice::new(vm.state, vm.claim.is_some(), kind) {
        Some(advice) => refusal.with_hint(advice.describe(vm)),
        None => refusal,
    }
}

/// Refuses a conductor that does not hold the lease of an operation.
pub(super) fn holds_lease(operation: &Operation, epoch: Epoch) -> Result<(), Refusal> {
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
