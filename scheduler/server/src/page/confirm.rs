//! What the view that confirms an action reads, by the methods of the services.

use berth_page::action::Action;
use berth_page::confirm::{Seal, Subject};
use berth_proto::host::v1 as host;
use berth_proto::host::v1::host_service_server::HostService as _;
use berth_proto::operation::v1 as operation;
use berth_proto::operation::v1::operation_service_server::OperationService as _;
use berth_proto::scheduler::v1 as scheduler;
use berth_proto::scheduler::v1::move_service_server::MoveService as _;
use berth_proto::scheduler::v1::scheduler_service_server::SchedulerService as _;
use tonic::Status;
use uuid::Uuid;

use super::actions::ended;
use super::reads::{Reader, View};
use crate::service::{HostApi, MoveApi, OperationApi, SchedulerApi};

impl Reader<'_> {
    /// Reads the view that confirms an action.
    pub(super) async fn confirm(&self, action: &Action) -> Result<View, Status> {
        let (subject, revision) = match action {
            Action::Cordon(_) | Action::Uncordon(_) => {
                let host = self.host_of(action).await?;
                let revision = host.revision;
                (Subject::Host(Box::new(host)), revision)
            }
            Action::Drain(_) => {
                let host = self.host_of(action).await?;
                let revision = host.revision;
                let request = self.request(scheduler::PlanDrainRequest {
                    host: action.resource(),
                    ..Default::default()
                });
                let api = MoveApi(self.context.clone());
                let plan = api.plan_drain(request).await?.into_inner();
                (Subject::Drained(Box::new(host), plan), revision)
            }
            Action::Migrate(_) => {
                let request = self.request(scheduler::GetVmRequest {
                    name: action.resource(),
                    consistency: 0,
                });
                let api = SchedulerApi(self.context.clone());
                let vm = api.get_vm(request).await?.into_inner();
                let revision = vm.revision;
                (Subject::Vm(Box::new(vm)), revision)
            }
            Action::CancelOperation(_) => {
                let revision = self.state().await?.revision();
                let request = self.request(operation::GetOperationRequest {
                    name: action.resource(),
                    ..Default::default()
                });
                let api = OperationApi(self.context.clone());
                let read = api.get_operation(request).await?.into_inner();
                let operation = read.operation.unwrap_or_default();
                if operation.done {
                    return Err(ended("the operation"));
                }
                (Subject::Operation(Box::new(operation)), revision)
            }
            Action::AbortMigration(_) => {
                let revision = self.state().await?.revision();
                let request = self.request(scheduler::GetMigrationRequest {
                    name: action.resource(),
                    ..Default::default()
                });
                let api = SchedulerApi(self.context.clone());
                let read = api.get_migration(request).await?.into_inner();
                let migration = read.migration.unwrap_or_default();
                if migration.end_time.is_some() {
                    return Err(ended("the migration"));
                }
                (Subject::Migration(Box::new(migration)), revision)
            }
        };
        let action = action.clone();
        let seal = Seal {
            token: self.token.clone(),
            request_id: Uuid::now_v7().to_string(),
        };
        Ok(View::new(revision, move |frame| {
            berth_page::confirm::render(frame, &action, &subject, &seal)
        }))
    }

    async fn host_of(&self, action: &Action) -> Result<host::GetHostResponse, Status> {
        let request = self.request(host::GetHostRequest {
            name: action.resource(),
            consistency: 0,
        });
        let api = HostApi(self.context.clone());
        Ok(api.get_host(request).await?.into_inner())
    }
}
