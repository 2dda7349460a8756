//! `berth server-group`: VMs that are kept together, or apart.

use berth_domain::server_group::ServerGroup;
use berth_proto::policy::v1::server_group::Policy as WirePolicy;
use berth_proto::policy::v1::server_group_service_client::ServerGroupServiceClient;
use berth_proto::policy::v1::{
    CreateServerGroupRequest, DeleteServerGroupRequest, GetServerGroupRequest,
    ListServerGroupsRequest, ServerGroup as Wire, ServerGroupMember,
};
use serde_json::{Value, json};

use crate::arguments::{Selection, ServerGroup as Verb};
use crate::output::Columns;
use crate::selection::Selector;
use crate::session::{Session, creator, request_id, resource, short};
use crate::{all_pages, call, migration, output, read};

/// The columns of the list.
pub(crate) const COLUMNS: Columns<4, 2> = Columns {
    usual: ["server group", "policy", "max per host", "members"],
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
            group,
            policy,
            max_server_per_host,
            project,
        } => {
            let group = Wire {
                name: resource("serverGroups", &group),
                policy: WirePolicy::from(policy).into(),
                max_server_per_host: max_server_per_host.unwrap_or(0),
                project: project.to_wire(),
                ..Wire::default()
            };
            let request = CreateServerGroupRequest {
                server_group: Some(group),
                request_id: request_id(None),
            };
            let response = call!(
                session,
                ServerGroupServiceClient,
                create_server_group,
                request
            )?;
            show(session, response.server_group.unwrap_or_default(), &[])
        }
        Verb::List(selection) => list(session, &selection).await,
        Verb::Show { group } => {
            let request = GetServerGroupRequest {
                name: resource("serverGroups", &group),
                ..Default::default()
            };
            let response = read!(session, ServerGroupServiceClient, get_server_group, request)?;
            let group = response.server_group.unwrap_or_default();
            show(session, group, &response.members)
        }
        Verb::Delete { group } => {
            let request = DeleteServerGroupRequest {
                name: resource("serverGroups", &group),
                request_id: request_id(None),
            };
            call!(
                session,
                ServerGroupServiceClient,
                delete_server_group,
                request
            )?;
            let name = resource("serverGroups", &group);
            session.done(&name, "deleted", format!("server group {group} is deleted"))
        }
    }
}

async fn list(session: &Session, selection: &Selection) -> anyhow::Result<()> {
    let selector = Selector::new::<Wire>(selection)?;
    let request = ListServerGroupsRequest::default();
    let groups = all_pages!(
        session,
        ServerGroupServiceClient,
        list_server_groups,
        request,
        server_groups,
        &selector
    );
    let groups = groups
        .into_iter()
        .map(|wire| Ok((wire.member_count, ServerGroup::try_from(wire)?)))
        .collect::<anyhow::Result<Vec<(u32, ServerGroup)>>>()?;
    if session.for_programs() {
        let groups: Vec<Value> = groups.iter().map(|(n, g)| value(g, *n)).collect();
        return output::value(&groups);
    }
    let rows = groups
        .iter()
        .map(|(members, group)| {
            let usual = [
                group.name.to_string(),
                group.policy.to_string(),
                per_host(group),
                members.to_string(),
            ];
            let project = group.ownership.project_name().to_owned();
            (usual, [project, creator(&group.ownership)])
        })
        .collect();
    output::list(&COLUMNS, rows, selection.none("there is no server group"))
}

fn show(session: &Session, wire: Wire, members: &[ServerGroupMember]) -> anyhow::Result<()> {
    let count = wire.member_count;
    let group: ServerGroup = wire.try_into()?;
    let hosts = |member: &ServerGroupMember| -> Vec<String> {
        let hosts = member.hosts.iter();
        hosts.map(|host| short(host).to_owned()).collect()
    };
    if session.for_programs() {
        let mut value = value(&group, count);
        let members = members.iter();
        value["members"] = members
            .map(|m| json!({"vm": short(&m.vm), "hosts": hosts(m)}))
            .collect();
        return output::value(&value);
    }
    output::fields(&[
        ("server group", group.name.to_string()),
        ("policy", group.policy.to_string()),
        ("max per host", per_host(&group)),
        ("members", count.to_string()),
        ("project", group.ownership.project_name().to_owned()),
        ("creator", creator(&group.ownership)),
        ("separated", separated(&group)),
    ]);
    for member in members {
        let hosts = hosts(member);
        let place = if hosts.is_empty() {
            "on no host".to_owned()
        } else {
            format!("on {}", hosts.join(" and "))
        };
        output::print(format!("  {} {place}", short(&member.vm)));
    }
    Ok(())
}

/// Returns a group as programs see it.
pub(crate) fn value(group: &ServerGroup, members: u32) -> Value {
    json!({
        "name": group.name,
        "policy": group.policy.as_str(),
        "max_server_per_host": match group.max_server_per_host {
            0 => Value::Null,
            max => json!(max),
        },
        "member_count": members,
        "project": group.ownership.project_name(),
        "creator": group.ownership.creator,
        "separated_at": group.separated_at,
    })
}

fn separated(group: &ServerGroup) -> String {
    group.separated_at.map_or_else(
        || "no".to_owned(),
        |at| format!("since {}, by an evacuation", migration::time(at)),
    )
}

fn per_host(group: &ServerGroup) -> String {
    match group.max_server_per_host {
        0 => "-".to_owned(),
        max => max.to_string(),
    }
}
