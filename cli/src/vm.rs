//! `berth vm`: boots, moves, shows and deletes virtual machines.

mod console;
mod first_boot;
mod metadata;
mod moves;
mod power;
mod restart;
mod several;
mod volumes;

use anyhow::bail;
use berth_domain::claim::{Claim, Owner};
use berth_domain::host::Host;
use berth_domain::name::VmName;
use berth_domain::network::NetworkAttachment;
use berth_domain::numa::Assignment;
use berth_domain::ownership::{DEFAULT_PROJECT, ProjectName};
use berth_domain::reality::Absence;
use berth_domain::transfer::TransferOverrides;
use berth_domain::version::Feature;
use berth_domain::vm::{
    Disk, DiskFormat, LabelSelector, Metadata, Nic, RestartPolicy, SEED_BYTES, Vm,
};
use berth_proto::conductor::v1::{CreateVmRequest, DeleteVmRequest, MigrateVmRequest};
use berth_proto::convert::ownership::write_project;
use berth_proto::convert::restart::write as write_restart;
use berth_proto::host::v1::GetHostRequest;
use berth_proto::host::v1::host_service_client::HostServiceClient;
use berth_proto::operation::v1::Operation;
use berth_proto::operation::v1::operation::Kind;
use berth_proto::scheduler::v1::scheduler_service_client::SchedulerServiceClient;
use berth_proto::scheduler::v1::{
    Explanation, GetVmRequest, ListVmsRequest, ScheduleMigrationRequest, ScheduleVmRequest,
    Vm as WireVm,
};
use berth_proto::types::v1 as wire;
use serde_json::json;

use crate::arguments::{DiskArgument, Run, Selection, Transfer, Vm as Verb, VmCreate};
use crate::output::Columns;
use crate::selection::Selector;
use crate::session::{Session, conduct, creator, read_all, request_id, resource, short};
use crate::sides::Sides;
use crate::usage::Usage;
use crate::{all_pages, draw, history, image, migration, output, progress, read};

/// The columns of the list.
pub(crate) const COLUMNS: Columns<7, 7> = Columns {
    usual: [
        "vm",
        "state",
        "task",
        "host",
        "flavor",
        "vcpus",
        "memory mib",
    ],
    wide: [
        "operation",
        "server group",
        "zone",
        "project",
        "creator",
        "labels",
        "protected",
    ],
};

/// Runs the command.
///
/// # Errors
///
/// The refusal of the scheduler, the conductor or a host.
pub async fn run(session: &Session, verb: Verb) -> anyhow::Result<()> {
    match verb {
        Verb::Create(options) => create(session, *options).await,
        Verb::List {
            host,
            project,
            labels,
            selection,
        } => {
            let (host, project) = (host.as_deref(), project.as_ref());
            list(session, host, project, &labels, &selection).await
        }
        Verb::Show { vm } => show(session, &vm).await,
        Verb::History { vm, part } => history::show(session, "vms", &vm, &part).await,
        Verb::Migrate {
            vm,
            host,
            cold: true,
            verify,
            validate_only,
            transfer,
            run,
        } => {
            if transfer.params() != TransferOverrides::default() {
                let message = "--cold stops the guest first: how to send a running one does not apply; \
                               what copied disks may take of the network is in `berth policy set \
                               migration.bandwidth_mib_s`";
                bail!(Usage(message.to_owned()));
            }
            let spec = moves::MoveSpec {
                host: host.as_deref(),
                verify,
                ..moves::MoveSpec::default()
            };
            moves::cold(session, &vm, spec, validate_only, &run).await
        }
        Verb::Migrate {
            vm,
            host,
            validate_only: true,
            transfer,
            ..
        } => explain_migration(session, &vm, host.as_deref(), &transfer).await,
        Verb::Moves(verb) => moves::run(session, verb).await,
        Verb::Migrate {
            vm,
            host,
            transfer,
            run,
            ..
        } => migrate(session, &vm, host.as_deref(), &transfer, &run).await,
        Verb::Power(verb) => power::run(session, verb).await,
        Verb::SetRestart { vm, restart } => restart::set(session, &vm, restart).await,
        Verb::Set {
            vms,
            metadata,
            request_id,
        } => metadata::set(session, &vms, &metadata, request_id).await,
        Verb::Delete { vms, run } => {
            several::each(session, &vms, &run, async |vm| {
                delete(session, vm, &run).await
            })
            .await
        }
        Verb::Console(args) => console::run(session, &args).await,
    }
}

async fn create(session: &Session, options: VmCreate) -> anyhow::Result<()> {
    let mut template = template(&options)?;
    declare_formats(session, &options.disks, &mut template.disks).await?;
    template.volumes = volumes::find(session, &options.volumes).await?;
    let vm = resource("vms", &options.vm);
    let requested_host = options
        .host
        .as_deref()
        .map(|h| resource("hosts", h))
        .unwrap_or_default();
    if options.validate_only {
        let request = ScheduleVmRequest {
            vm,
            template: Some(template),
            requested_host,
            validate_only: true,
            ..Default::default()
        };
        let response = read!(session, SchedulerServiceClient, schedule_vm, request)?;
        return explain(
            session,
            &options.vm,
            response.explanation.unwrap_or_default(),
        )
        .await;
    }
    let request = CreateVmRequest {
        vm,
        template: Some(template),
        requested_host,
        request_id: request_id(options.run.request_id),
    };
    let written = options.metadata.to_metadata()?;
    let operation = begin_create(session, request).await?;
    // At once, so that less is changed meanwhile; reported at the end, since the VM boots all the same.
    let checked = metadata::check_created(session, &options.vm, &written).await;
    finish(session, operation, &options.run).await?;
    checked?;
    if options.run.no_wait {
        Ok(())
    } else {
        show(session, &options.vm).await
    }
}

/// Has a conductor create a VM that is new enough for what is requested; returns the operation that boots it.
pub(crate) async fn begin_create(
    session: &Session,
    request: CreateVmRequest,
) -> anyhow::Result<Option<Operation>> {
    let feature = request.template.as_ref().and_then(feature_of);
    let mut conductor = session.conductor_for(feature).await?;
    Ok(conduct!(conductor, create_vm, request)?.operation)
}

/// Returns the newest feature that a VM needs, which an older conductor would silently drop.
fn feature_of(template: &wire::VmTemplate) -> Option<Feature> {
    let has_hints = !template.server_group.is_empty() || !template.availability_zone.is_empty();
    let is_default = |project: &str| project.is_empty() || project == DEFAULT_PROJECT;
    let has_metadata =
        !template.labels.is_empty() || !template.description.is_empty() || template.protected;
    let needed = [
        (template.restart_policy.is_some(), Feature::RestartPolicy),
        (template.first_boot.is_some(), Feature::FirstBoot),
        (has_metadata, Feature::VmMetadata),
        (!is_default(&template.project), Feature::Projects),
        (!template.volumes.is_empty(), Feature::Volumes),
        (has_hints, Feature::SchedulingHints),
    ];
    let needed = needed.into_iter().filter(|(is_needed, _)| *is_needed);
    needed.map(|(_, feature)| feature).max_by_key(|f| f.needs())
}

/// Checks that a new VM has what was to be written on it.
pub(crate) async fn check_created(
    session: &Session,
    name: &str,
    template: &wire::VmTemplate,
) -> anyhow::Result<()> {
    let written = Metadata {
        labels: template.labels.clone(),
        description: template.description.clone(),
        protected: template.protected,
    };
    metadata::check_created(session, name, &written).await
}

/// Declares disks whose format was not stated in the format of their image, where it is one of the
/// cluster's.
async fn declare_formats(
    session: &Session,
    arguments: &[DiskArgument],
    disks: &mut [wire::Disk],
) -> anyhow::Result<()> {
    for (argument, disk) in arguments.iter().zip(disks) {
        if argument.format.is_none()
            && let Some(format) = image::format_of(session, &argument.image).await?
        {
            disk.format = wire::disk::Format::from(format).into();
        }
    }
    Ok(())
}

fn template(options: &VmCreate) -> anyhow::Result<wire::VmTemplate> {
    let source = match &options.kernel {
        Some(kernel) => wire::boot_source::Source::Kernel(wire::KernelBoot {
            kernel: kernel.clone(),
            initrd: options.initrd.clone().unwrap_or_default(),
            cmdline: options.cmdline.clone(),
        }),
        None if options.disks.is_empty() => {
            let message = "the VM has nothing to boot from: give --kernel, with --initrd if it needs one, or \
                           --disk IMAGE:GIB";
            bail!(Usage(message.to_owned()))
        }
        None => wire::boot_source::Source::Disk(wire::DiskBoot {}),
    };
    let disks = options.disks.iter().map(|disk| wire::Disk {
        image: Some(disk.image.clone()),
        format: wire::disk::Format::from(disk.suggested_format()).into(),
        size_gib: disk.size_gib,
        seed: false,
    });
    let metadata = options.metadata.to_metadata()?;
    Ok(wire::VmTemplate {
        flavor: resource("flavors", &options.flavor),
        boot: Some(wire::BootSource {
            source: Some(source),
        }),
        disks: disks.collect(),
        nics: nics_of(options),
        image_properties: options.image_properties.iter().cloned().collect(),
        availability_zone: options.availability_zone.clone().unwrap_or_default(),
        server_group: options
            .server_group
            .as_deref()
            .map(|group| resource("serverGroups", group))
            .unwrap_or_default(),
        volumes: Vec::new(),
        project: options.project.to_wire(),
        restart_policy: write_restart(&options.restart.apply_to(&RestartPolicy::default())),
        first_boot: first_boot::read(&options.first_boot)?,
        labels: metadata.labels,
        description: metadata.description,
        protected: metadata.protected,
    })
}

/// Returns the requested interfaces: those on bridges first.
fn nics_of(options: &VmCreate) -> Vec<wire::Nic> {
    let bridges = options.nics.iter().map(|(bridge, mac)| wire::Nic {
        bridge: bridge.clone(),
        mac: mac.clone(),
        ..Default::default()
    });
    let networks = options.networks.iter().map(|text| {
        let (network, mac) = text.split_once('=').unwrap_or((text, ""));
        wire::Nic {
            network: resource("networks", network),
            mac: mac.to_owned(),
            ..Default::default()
        }
    });
    bridges.chain(networks).collect()
}

/// Prints what would be chosen: the host, and the NUMA nodes, CPUs and pages there.
async fn explain(session: &Session, vm: &str, explanation: Explanation) -> anyhow::Result<()> {
    let assignment: Assignment = explanation.assignment.unwrap_or_default().try_into()?;
    let host = short(&explanation.host);
    if session.for_programs() {
        return output::value(&json!({
            "host": host,
            "resources": explanation.resources,
            "assignment": assignment,
            "hosts_considered": explanation.hosts_considered,
            "hosts_fitting": explanation.hosts_fitting,
            "causes": explanation.causes,
            "warnings": explanation.warnings,
        }));
    }
    let functions: Vec<String> = assignment
        .pci
        .iter()
        .flatten()
        .map(ToString::to_string)
        .collect();
    let considered = draw::count(explanation.hosts_considered as usize, "host");
    let fitting = explanation.hosts_fitting;
    output::fields(&[
        ("vm", vm.to_owned()),
        ("host", host.to_owned()),
        (
            "pci",
            match functions.is_empty() {
                true => "-".to_owned(),
                false => functions.join(" "),
            },
        ),
        (
            "considered",
            format!("{considered}, {fitting} with enough free capacity"),
        ),
    ]);
    let on = host_of(session, host).await?;
    let name = VmName::new(vm)?;
    output::print(draw::guest(
        &name,
        &on.name,
        &on.report.topology,
        &assignment,
    ));
    for warning in &explanation.warnings {
        output::message(format!("warning: {warning}"));
    }
    output::message("nothing was claimed");
    Ok(())
}

async fn explain_migration(
    session: &Session,
    vm: &str,
    host: Option<&str>,
    transfer: &Transfer,
) -> anyhow::Result<()> {
    let request = ScheduleMigrationRequest {
        vm: resource("vms", vm),
        requested_host: host.map(|h| resource("hosts", h)).unwrap_or_default(),
        transfer: Some((&transfer.params()).into()),
        validate_only: true,
        ..Default::default()
    };
    let response = read!(session, SchedulerServiceClient, schedule_migration, request)?;
    explain(session, vm, response.explanation.unwrap_or_default()).await
}

/// Returns what the cluster knows of a host.
async fn host_of(session: &Session, host: &str) -> anyhow::Result<Host> {
    let request = GetHostRequest {
        name: resource("hosts", host),
        ..Default::default()
    };
    let response = read!(session, HostServiceClient, get_host, request)?;
    Ok(response.host.unwrap_or_default().try_into()?)
}

async fn list(
    session: &Session,
    host: Option<&str>,
    project: Option<&ProjectName>,
    labels: &[LabelSelector],
    selection: &Selection,
) -> anyhow::Result<()> {
    let selector = Selector::new::<WireVm>(selection)?;
    let request = ListVmsRequest {
        labels: labels.iter().map(ToString::to_string).collect(),
        project: write_project(project),
        host: host.map(|h| resource("hosts", h)).unwrap_or_default(),
        ..Default::default()
    };
    let mut vms = all_pages!(
        session,
        SchedulerServiceClient,
        list_vms,
        request,
        vms,
        &selector
    );
    // A scheduler that does not know labels returns every VM.
    vms.retain(|vm| labels.iter().all(|label| label.matches(&vm.labels)));
    let tasks: Vec<String> = vms.iter().map(|vm| vm.task.clone()).collect();
    let vms: Vec<Vm> = read_all(vms)?;
    if session.for_programs() {
        let values = vms.iter().zip(&tasks).map(|(vm, task)| with_task(vm, task));
        return output::value(&values.collect::<Result<Vec<_>, _>>()?);
    }
    let rows = vms
        .iter()
        .zip(&tasks)
        .map(|(vm, task)| {
            let (flavor, hints) = (&vm.spec.flavor, &vm.spec.hints);
            let usual = [
                vm.name.to_string(),
                state_of(vm),
                task_or_none(task),
                output::or_dash(vm.host.as_ref()),
                flavor.name.to_string(),
                flavor.vcpus.to_string(),
                flavor.memory_mib.to_string(),
            ];
            let wide = [
                output::or_dash(vm.operation),
                output::or_dash(hints.server_group.as_ref()),
                output::or_dash(hints.availability_zone.as_ref()),
                vm.ownership.project_name().to_owned(),
                creator(&vm.ownership),
                metadata::labels(&vm.metadata),
                metadata::protected(&vm.metadata),
            ];
            (usual, wide)
        })
        .collect();
    output::list(&COLUMNS, rows, selection.none("there is no VM"))
}

async fn show(session: &Session, name: &str) -> anyhow::Result<()> {
    let request = GetVmRequest {
        name: resource("vms", name),
        ..Default::default()
    };
    let response = read!(session, SchedulerServiceClient, get_vm, request)?;
    let lost = response.lost;
    let wire = response.vm.unwrap_or_default();
    let task = wire.task.clone();
    let obstacle = wire.restart_obstacle.clone();
    let vm: Vm = wire.try_into()?;
    let mut claims: Vec<Claim> = read_all(response.claims)?;
    if session.for_programs() {
        // Here the claim of the VM stands before that of its migration.
        claims.sort_by_key(|claim| matches!(claim.owner, Owner::Migration(_)));
        let mut shown = json!({"vm": with_task(&vm, &task)?, "claims": claims});
        if !obstacle.is_empty() {
            shown["restart_obstacle"] = json!(obstacle);
        }
        return output::value(&shown);
    }
    let sides = Sides::of(session, &claims).await?;
    // Where the guest comes from stands before where it goes.
    claims.sort_by_key(|claim| sides.side(claim));
    let mut fields = vec![
        ("vm", vm.name.to_string()),
        ("state", state_of(&vm)),
        ("task", task_or_none(&task)),
        (
            "host",
            vm.host.as_ref().map_or("-".to_owned(), ToString::to_string),
        ),
        ("flavor", vm.spec.flavor.name.to_string()),
        ("uid", vm.uid.to_string()),
        (
            "operation",
            vm.operation.map_or("-".to_owned(), |o| o.to_string()),
        ),
        ("project", vm.ownership.project_name().to_owned()),
        ("creator", creator(&vm.ownership)),
    ];
    fields.extend(metadata::fields(&vm.metadata));
    if let Some(trouble) = &vm.trouble {
        let since = trouble.since.0 / 1000;
        let why = trouble.absence.reason();
        fields.push(("guest", format!("{why} (since {since} s of cluster time)")));
    }
    fields.extend(restart::fields(&vm, &obstacle));
    if !lost.is_empty() {
        fields.push(("hit", format!("its host changed: {lost}")));
    }
    let hints = &vm.spec.hints;
    fields.extend(
        hints
            .server_group
            .iter()
            .map(|g| ("server group", g.to_string())),
    );
    let zone = hints.availability_zone.iter();
    fields.extend(zone.map(|zone| ("zone", zone.to_string())));
    fields.extend(vm.spec.disks.iter().map(|disk| ("disk", disk_line(disk))));
    let volumes = vm.spec.volumes.iter();
    fields.extend(volumes.map(|volume| ("volume", volumes::line(volume))));
    fields.extend(vm.spec.nics.iter().map(|nic| ("nic", nic_line(nic))));
    output::fields(&fields);
    for claim in &claims {
        let host = host_of(session, claim.host.as_str()).await?;
        output::print(format!(
            "claim {} is {}{}",
            claim.id,
            claim.state.as_str(),
            sides.describe(claim)
        ));
        if let Some(cpu) = &claim.cpu {
            output::print(format!("its CPU is {cpu}"));
        }
        let topology = &host.report.topology;
        output::print(draw::guest(
            &vm.name,
            &claim.host,
            topology,
            &claim.assignment,
        ));
    }
    if let Some(error) = &vm.error {
        output::message(output::refusal(error));
    }
    Ok(())
}

/// Returns how far a VM is, and what is wrong with its guest.
fn state_of(vm: &Vm) -> String {
    let state = vm.state.as_str();
    match vm.trouble.as_ref().map(|trouble| trouble.absence) {
        None if vm.restarts.gave_up_at.is_some() => format!("{state}, restarts used up"),
        None => state.to_owned(),
        Some(Absence::Stopped) => format!("{state}, guest STOPPED"),
        Some(Absence::Missing) => format!("{state}, guest MISSING"),
        Some(Absence::ShutDown) => format!("{state}, guest SHUT DOWN"),
    }
}

/// Returns what is being done to a VM, as a column of a table.
fn task_or_none(task: &str) -> String {
    if task.is_empty() { "-" } else { task }.to_owned()
}

/// Returns a VM as JSON with what is being done to it.
fn with_task(vm: &Vm, task: &str) -> serde_json::Result<serde_json::Value> {
    let mut value = serde_json::to_value(vm)?;
    if let Some(fields) = value.as_object_mut() {
        let task = (!task.is_empty()).then_some(task);
        fields.insert("task".to_owned(), json!(task));
    }
    Ok(value)
}

fn nic_line(nic: &Nic) -> String {
    match &nic.network {
        Some(NetworkAttachment { name, link }) => {
            format!("{} on network {name}, {link}", nic.mac)
        }
        None => format!("{} on bridge {}", nic.mac, nic.bridge),
    }
}

/// Returns a disk as one line.
fn disk_line(disk: &Disk) -> String {
    if disk.seed {
        return format!("{} MiB, the seed of the first boot", SEED_BYTES >> 20);
    }
    match &disk.image {
        Some(image) => {
            let format = match disk.format {
                DiskFormat::Qcow2 => "qcow2",
                DiskFormat::Raw => "raw",
            };
            format!("{} GiB over {image} ({format})", disk.size_gib)
        }
        None => format!("{} GiB, empty at first", disk.size_gib),
    }
}

async fn migrate(
    session: &Session,
    vm: &str,
    host: Option<&str>,
    transfer: &Transfer,
    run: &Run,
) -> anyhow::Result<()> {
    let request = MigrateVmRequest {
        vm: resource("vms", vm),
        requested_host: host.map(|h| resource("hosts", h)).unwrap_or_default(),
        request_id: request_id(run.request_id),
        transfer: Some((&transfer.params()).into()),
    };
    let operation = conduct!(session.conductor().await?, migrate_vm, request)?.operation;
    let migration = operation.as_ref().and_then(migration_of);
    let finished = finish(session, operation, run).await;
    if let Some(id) = migration.filter(|_| !run.no_wait && !session.for_programs())
        && let Ok(migration) = migration::get(session, &id).await
    {
        migration::print_tried(&migration);
    }
    finished?;
    if run.no_wait {
        Ok(())
    } else {
        show(session, vm).await
    }
}

async fn delete(session: &Session, vm: &str, run: &Run) -> anyhow::Result<()> {
    let request = DeleteVmRequest {
        vm: resource("vms", vm),
        request_id: request_id(run.request_id),
    };
    let operation = conduct!(session.conductor().await?, delete_vm, request)?.operation;
    finish(session, operation, run).await?;
    match run.no_wait || !session.for_programs() {
        // The last step says so.
        true => Ok(()),
        false => session.done(&resource("vms", vm), "deleted", "the VM is deleted"),
    }
}

/// Returns the migration that an operation carries out.
fn migration_of(operation: &Operation) -> Option<String> {
    match operation.kind.as_ref()? {
        Kind::LiveMigrate(about) => Some(short(&about.migration).to_owned()),
        // Its disks may be copied.
        Kind::ColdMigrate(about) => Some(short(&about.migration).to_owned()),
        Kind::Boot(_)
        | Kind::Delete(_)
        | Kind::RevertResize(_)
        | Kind::ConfirmResize(_)
        | Kind::Evacuate(_)
        | Kind::Shelve(_)
        | Kind::Unshelve(_)
        | Kind::Stop(_)
        | Kind::Start(_)
        | Kind::Reboot(_)
        | Kind::Rebuild(_)
        | Kind::Snapshot(_)
        | Kind::DrainHost(_) => None,
    }
}

/// Waits for the end of an operation, unless only its name was requested.
async fn finish(session: &Session, operation: Option<Operation>, run: &Run) -> anyhow::Result<()> {
    let name = operation.unwrap_or_default().name;
    if run.no_wait {
        if session.for_programs() {
            return output::value(&json!({"operation": short(&name)}));
        }
        output::print(short(&name));
        return Ok(());
    }
    progress::follow(session, &name).await?;
    Ok(())
}
