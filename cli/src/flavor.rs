//! `berth flavor`: the sizes and requirements of guests.

use berth_domain::flavor::Flavor;
use berth_domain::refusal::Code;
use berth_proto::convert::ResourceName as _;
use berth_proto::scheduler::v1::scheduler_service_client::SchedulerServiceClient;
use berth_proto::scheduler::v1::{
    CreateFlavorRequest, DeleteFlavorRequest, GetFlavorRequest, GetPciAliasRequest,
    ListFlavorsRequest,
};
use berth_proto::types::v1 as wire;

use crate::arguments::Flavor as Verb;
use crate::arguments::Selection;
use crate::output::Columns;
use crate::selection::Selector;
use crate::session::{Session, creator, request_id, resource};
use crate::{all_pages, call, output, read};

/// The columns of the list.
pub(crate) const COLUMNS: Columns<5, 2> = Columns {
    usual: ["flavor", "vcpus", "memory mib", "disk gib", "specs"],
    wide: ["project", "creator"],
};

/// Runs the command.
///
/// # Errors
///
/// The scheduler's refusal.
pub async fn run(session: &Session, verb: Verb) -> anyhow::Result<()> {
    match verb {
        Verb::Create {
            flavor,
            vcpus,
            memory_mib,
            disk_gib,
            specs,
            project,
        } => {
            let flavor = wire::Flavor {
                name: resource("flavors", &flavor),
                vcpus,
                memory_mib,
                disk_gib,
                extra_specs: specs.into_iter().collect(),
                project: project.to_wire(),
                ..wire::Flavor::default()
            };
            let request = CreateFlavorRequest {
                flavor: Some(flavor),
                request_id: request_id(None),
            };
            let response = call!(session, SchedulerServiceClient, create_flavor, request)?;
            let flavor: Flavor = response.flavor.unwrap_or_default().try_into()?;
            warn_of_missing_aliases(session, &flavor).await;
            show(session, &flavor)
        }
        Verb::List(selection) => {
            let selector = Selector::new::<wire::Flavor>(&selection)?;
            let request = ListFlavorsRequest::default();
            let flavors = all_pages!(
                session,
                SchedulerServiceClient,
                list_flavors,
                request,
                flavors,
                &selector
            );
            let flavors = flavors
                .into_iter()
                .map(TryInto::try_into)
                .collect::<Result<Vec<Flavor>, _>>()?;
            list(session, &flavors, &selection)
        }
        Verb::Show { flavor } => {
            let request = GetFlavorRequest {
                name: resource("flavors", &flavor),
                ..Default::default()
            };
            let response = read!(session, SchedulerServiceClient, get_flavor, request)?;
            show(session, &response.flavor.unwrap_or_default().try_into()?)
        }
        Verb::Delete { flavor } => {
            let request = DeleteFlavorRequest {
                name: resource("flavors", &flavor),
                request_id: request_id(None),
            };
            call!(session, SchedulerServiceClient, delete_flavor, request)?;
            let sentence = format!("flavor {flavor} is deleted; VMs made from it keep theirs");
            session.done(&resource("flavors", &flavor), "deleted", sentence)
        }
    }
}

/// Warns of PCI aliases of a flavor that do not exist yet: it makes no VMs before they do.
async fn warn_of_missing_aliases(session: &Session, flavor: &Flavor) {
    for alias in flavor.pci_aliases() {
        let request = GetPciAliasRequest {
            name: alias.resource_name(),
            ..Default::default()
        };
        let response = read!(session, SchedulerServiceClient, get_pci_alias, request);
        if response.is_err_and(|refusal| refusal.code == Code::NotFound) {
            output::message(format!(
                "warning: pci alias {alias} does not exist yet; make it before the first VM: \
                 berth pci-alias create {alias}"
            ));
        }
    }
}

fn list(session: &Session, flavors: &[Flavor], selection: &Selection) -> anyhow::Result<()> {
    if session.for_programs() {
        return output::value(&flavors);
    }
    let rows = flavors
        .iter()
        .map(|f| {
            let usual = [
                f.name.to_string(),
                f.vcpus.to_string(),
                f.memory_mib.to_string(),
                f.disk_gib.to_string(),
                specs(f),
            ];
            let wide = [f.ownership.project_name().to_owned(), creator(&f.ownership)];
            (usual, wide)
        })
        .collect();
    output::list(&COLUMNS, rows, selection.none("there is no flavor"))
}

fn show(session: &Session, flavor: &Flavor) -> anyhow::Result<()> {
    if session.for_programs() {
        return output::value(flavor);
    }
    output::fields(&[
        ("flavor", flavor.name.to_string()),
        ("vcpus", flavor.vcpus.to_string()),
        ("memory", format!("{} MiB", flavor.memory_mib)),
        ("disk", format!("{} GiB", flavor.disk_gib)),
        ("specs", specs(flavor)),
        ("project", flavor.ownership.project_name().to_owned()),
        ("creator", creator(&flavor.ownership)),
    ]);
    Ok(())
}

fn specs(flavor: &Flavor) -> String {
    let specs: Vec<String> = flavor
        .extra_specs
        .iter()
        .map(|(k, v)| format!("{k}={v}"))
        .collect();
    if specs.is_empty() {
        "-".to_owned()
    } else {
        specs.join(" ")
    }
}
