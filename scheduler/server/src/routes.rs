//! The services that clients call, as one router: of a member, and of a reader of files.
//!
//! Not here: what members send each other, health and reflection, which only a member serves.
//!
//! Invariant: a server of these serves all of them, so that a command behaves the same everywhere.

use berth_proto::audit::v1::audit_service_server::AuditServiceServer;
use berth_proto::cluster::v1::cluster_service_server::ClusterServiceServer;
use berth_proto::event::v1::event_service_server::EventServiceServer;
use berth_proto::host::v1::host_service_server::HostServiceServer;
use berth_proto::image::v1::image_service_server::ImageServiceServer;
use berth_proto::operation::v1::operation_service_server::OperationServiceServer;
use berth_proto::placement::v1::catalog_service_server::CatalogServiceServer;
use berth_proto::placement::v1::import_service_server::ImportServiceServer;
use berth_proto::placement::v1::placement_service_server::PlacementServiceServer;
use berth_proto::planner::v1::planner_service_server::PlannerServiceServer;
use berth_proto::policy::v1::aggregate_service_server::AggregateServiceServer;
use berth_proto::policy::v1::policy_service_server::PolicyServiceServer;
use berth_proto::policy::v1::server_group_service_server::ServerGroupServiceServer;
use berth_proto::scheduler::v1::move_service_server::MoveServiceServer;
use berth_proto::scheduler::v1::power_service_server::PowerServiceServer;
use berth_proto::scheduler::v1::scheduler_service_server::SchedulerServiceServer;
use berth_proto::volume::v1::volume_service_server::VolumeServiceServer;
use tonic::service::Routes;

use crate::service::{
    AggregateApi, AuditApi, CatalogApi, ClusterApi, Context, EventApi, HostApi, ImageApi,
    ImportApi, MoveApi, OperationApi, PlacementApi, PlannerApi, PolicyApi, PowerApi, SchedulerApi,
    ServerGroupApi, VolumeApi,
};

/// Adds the services; a message of a request has at most `limit` bytes.
macro_rules! add {
    ($routes:expr, $context:expr, $limit:expr, $($server:ident($api:ident)),+ $(,)?) => {
        $routes$(.add_service(
            $server::new($api($context.clone())).max_decoding_message_size($limit),
        ))+
    };
}

/// Returns the services of a context.
pub(crate) fn client_services(context: &Context, limit: usize) -> Routes {
    add!(
        Routes::default(),
        context,
        limit,
        SchedulerServiceServer(SchedulerApi),
        MoveServiceServer(MoveApi),
        PowerServiceServer(PowerApi),
        OperationServiceServer(OperationApi),
        AuditServiceServer(AuditApi),
        EventServiceServer(EventApi),
        HostServiceServer(HostApi),
        PlacementServiceServer(PlacementApi),
        CatalogServiceServer(CatalogApi),
        ImportServiceServer(ImportApi),
        PolicyServiceServer(PolicyApi),
        PlannerServiceServer(PlannerApi),
        ServerGroupServiceServer(ServerGroupApi),
        ImageServiceServer(ImageApi),
        VolumeServiceServer(VolumeApi),
        AggregateServiceServer(AggregateApi),
        ClusterServiceServer(ClusterApi),
    )
}
