//! Taking over from another Placement over gRPC: what goes in comes out, and bad input is told.

use berth_proto::placement::v1::import_service_client::ImportServiceClient;
use berth_proto::placement::v1::placement_service_client::PlacementServiceClient;
use berth_proto::placement::v1::*;
use tonic::transport::Channel;
use tonic::{Code, Status};
use uuid::Uuid;

use crate::common::Cluster;

const PROVIDER: &str = "resourceProviders/00000000-0000-0000-0000-000000000001";
const CONSUMER: &str = "consumers/00000000-0000-0000-0001-000000000001";
const SOURCE: &str = "elsewhere";

fn provider() -> ProviderImport {
    let inventory = Inventory {
        total: 2,
        reserved: 1,
        min_unit: 1,
        max_unit: 2,
        step_size: 1,
        allocation_ratio: Some(1.0 / 3.0),
    };
    ProviderImport {
        resource_provider: Some(ResourceProvider {
            name: PROVIDER.to_owned(),
            display_name: "p".to_owned(),
            generation: 41,
            inventories: [("VCPU".to_owned(), inventory)].into(),
            traits: vec!["HW_CPU_X86_AVX2".to_owned()],
            ..ResourceProvider::default()
        }),
        expected_generation: None,
    }
}

fn consumer(amount: u64) -> ConsumerImport {
    ConsumerImport {
        consumer: Some(Consumer {
            name: CONSUMER.to_owned(),
            generation: 7,
            project: "p".to_owned(),
            user: "u".to_owned(),
            allocations: vec![Allocation {
                resource_provider: PROVIDER.to_owned(),
                resources: [("VCPU".to_owned(), amount)].into(),
            }],
            ..Consumer::default()
        }),
        expected_generation: None,
    }
}

fn providers(source: &str, providers: Vec<ProviderImport>) -> ImportResourceProvidersRequest {
    ImportResourceProvidersRequest {
        source: source.to_owned(),
        providers,
        request_id: Uuid::now_v7().to_string(),
    }
}

fn consumers(consumers: Vec<ConsumerImport>) -> ImportConsumersRequest {
    ImportConsumersRequest {
        source: SOURCE.to_owned(),
        consumers,
        request_id: Uuid::now_v7().to_string(),
    }
}

async fn usage(channel: &Channel) -> GetUsageResponse {
    let request = GetUsageRequest {
        resource_provider: PROVIDER.to_owned(),
        ..GetUsageRequest::default()
    };
    let mut placement = PlacementServiceClient::new(channel.clone());
    placement.get_usage(request).await.unwrap().into_inner()
}

#[track_caller]
fn refused<T: std::fmt::Debug>(outcome: Result<T, Status>, code: Code, what: &str) {
    let status = outcome.unwrap_err();
    assert_eq!(status.code(), code, "{status:?}");
    assert!(status.message().contains(what), "{status:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_taken_over_is_served() {
    let cluster = Cluster::start(1).await;
    let channel = cluster.channel().await;
    let mut import = ImportServiceClient::new(channel.clone());
    let request = providers(SOURCE, vec![provider()]);
    import
        .import_resource_providers(request.clone())
        .await
        .unwrap();
    // The same request again gets the first answer, although the provider is not new any more.
    import.import_resource_providers(request).await.unwrap();
    // Of 0.33 CPUs that may be given away, five are taken.
    import
        .import_consumers(consumers(vec![consumer(5)]))
        .await
        .unwrap();
    let usage = usage(&channel).await;
    assert_eq!((usage.used["VCPU"], usage.capacity["VCPU"]), (5, 0));
    assert_eq!(usage.generation, 41);
    let mut placement = PlacementServiceClient::new(channel);
    let request = GetAllocationsRequest {
        consumer: CONSUMER.to_owned(),
        ..GetAllocationsRequest::default()
    };
    let taken = placement.get_allocations(request).await.unwrap();
    let taken = taken.into_inner().consumer.unwrap();
    assert_eq!(taken.generation, 7);
    let origin = Origin {
        source: SOURCE.to_owned(),
        generation: 7,
    };
    assert_eq!(taken.origin, Some(origin));
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_input_is_told_and_changes_nothing() {
    let cluster = Cluster::start(1).await;
    let channel = cluster.channel().await;
    let mut import = ImportServiceClient::new(channel.clone());
    let nameless = providers("", vec![provider()]);
    let outcome = import.import_resource_providers(nameless).await;
    refused(outcome, Code::InvalidArgument, "source: is required");
    let long = providers(&"s".repeat(256), vec![provider()]);
    let outcome = import.import_resource_providers(long).await;
    refused(outcome, Code::InvalidArgument, "256 characters");
    let many = providers(SOURCE, vec![provider(); 1001]);
    let outcome = import.import_resource_providers(many).await;
    refused(outcome, Code::InvalidArgument, "at most 1000");
    let empty = providers(SOURCE, vec![ProviderImport::default()]);
    let outcome = import.import_resource_providers(empty).await;
    refused(
        outcome,
        Code::InvalidArgument,
        "providers[0].resource_provider: is required",
    );
    let outcome = import.import_consumers(consumers(vec![consumer(1)])).await;
    refused(outcome, Code::InvalidArgument, "does not exist");
    let twice = providers(SOURCE, vec![provider(), provider()]);
    let outcome = import.import_resource_providers(twice).await;
    refused(outcome, Code::InvalidArgument, "named twice");
    let mut placement = PlacementServiceClient::new(channel);
    let all = placement
        .list_resource_providers(ListResourceProvidersRequest::default())
        .await;
    assert!(all.unwrap().into_inner().resource_providers.is_empty());
}
