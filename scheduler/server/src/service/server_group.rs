//! `berth.policy.v1.ServerGroupService`.

use berth_domain::name::ServerGroupName;
use berth_domain::ownership::Ownership;
use berth_domain::server_group::ServerGroup;
use berth_proto::convert::page::Page;
use berth_proto::convert::{ResourceName as _, field};
use berth_proto::filter::Filter;
use berth_proto::policy::v1;
use berth_proto::policy::v1::server_group_service_server::ServerGroupService;
use berth_proto::status::to_status;
use berth_state::command::Command;
use berth_state::{Reply, State, group_not_found};
use tonic::{Request, Response, Status};

use super::context::Context;
use super::keyed::open;
use super::{list, refusal};

/// Serves `ServerGroupService`.
pub(crate) struct ServerGroupApi(pub(crate) Context);

#[tonic::async_trait]
impl ServerGroupService for ServerGroupApi {
    async fn create_server_group(
        &self,
        request: Request<v1::CreateServerGroupRequest>,
    ) -> Result<Response<v1::CreateServerGroupResponse>, Status> {
        let (wire, caller) = open(request)?;
        let mut group: ServerGroup = field::required(wire.server_group, "server_group")?;
        group.ownership = Ownership::requested(group.ownership.project);
        let command = Command::CreateServerGroup(group);
        let Reply::ServerGroup(group) = self.0.command(caller, command).await? else {
            return Err(refusal::mismatch());
        };
        Ok(Response::new(v1::CreateServerGroupResponse {
            server_group: Some((&*group).into()),
        }))
    }

    async fn get_server_group(
        &self,
        request: Request<v1::GetServerGroupRequest>,
    ) -> Result<Response<v1::GetServerGroupResponse>, Status> {
        let wire = request.into_inner();
        let name: ServerGroupName = field::name(&wire.name, "name")?;
        let state = self.0.state(wire.consistency).await?;
        let group = state.server_group(&name);
        let group = group.ok_or_else(|| to_status(&group_not_found(&name)))?;
        let members = state.group_members(&name).map(|vm| v1::ServerGroupMember {
            vm: vm.resource_name(),
            hosts: state
                .claims_of_vm(vm)
                .map(|claim| claim.host.resource_name())
                .collect(),
        });
        Ok(Response::new(v1::GetServerGroupResponse {
            server_group: Some(counted(&state, group)),
            members: members.collect(),
            revision: state.revision(),
        }))
    }

    async fn list_server_groups(
        &self,
        request: Request<v1::ListServerGroupsRequest>,
    ) -> Result<Response<v1::ListServerGroupsResponse>, Status> {
        let wire = request.into_inner();
        let page = Page::filtered(wire.page_size, &wire.page_token, &wire.filter)?;
        let filter = Filter::new::<v1::ServerGroup>(&wire.filter)?;
        let state = self.0.state(wire.consistency).await?;
        let listed = list::filtered(&self.0, filter, move |filter| {
            let (groups, next_page_token) = list::page(
                state.server_groups(),
                &page,
                |text| ServerGroupName::new(text).ok(),
                ServerGroupName::to_string,
                |group| filter.matches_with(|| counted(&state, group)),
            )?;
            Ok(v1::ListServerGroupsResponse {
                server_groups: groups.iter().map(|group| counted(&state, group)).collect(),
                next_page_token,
                revision: state.revision(),
            })
        });
        listed.await.map(Response::new)
    }

    async fn delete_server_group(
        &self,
        request: Request<v1::DeleteServerGroupRequest>,
    ) -> Result<Response<v1::DeleteServerGroupResponse>, Status> {
        let (wire, caller) = open(request)?;
        let group = field::name(&wire.name, "name")?;
        let command = Command::DeleteServerGroup { group };
        self.0.command(caller, command).await?;
        Ok(Response::new(v1::DeleteServerGroupResponse {}))
    }
}

fn counted(state: &State, group: &ServerGroup) -> v1::ServerGroup {
    let members = state.member_count(&group.name);
    v1::ServerGroup {
        member_count: u32::try_from(members).unwrap_or(u32::MAX),
        ..group.into()
    }
}
