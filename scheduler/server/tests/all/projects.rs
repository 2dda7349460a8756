//! Projects from the request to the lists and the usages.

use berth_proto::placement::v1::GetProjectUsageRequest;
use berth_proto::placement::v1::placement_service_client::PlacementServiceClient;
use berth_proto::scheduler::v1::{ListVmsRequest, Vm};
use tonic::Code;
use tonic::transport::Channel;

use crate::common::world::{flavor_request, register, schedule, vm_request};
use crate::common::{Cluster, schedulers};

async fn boot(channel: &Channel, vm: &str, project: &str) -> Vm {
    let mut request = vm_request(vm, "small");
    request.template.as_mut().unwrap().project = project.to_owned();
    let scheduled = schedule(channel, request).await.unwrap();
    let operation = scheduled.operation.unwrap();
    let made = scheduled.vm.unwrap();
    assert_eq!(operation.project, made.project);
    assert_eq!(operation.creator, made.creator);
    made
}

/// Goal: a project is recorded with what is created, validated, and selects VMs page by page; the creator
/// is the caller, whatever the request says.
#[tokio::test(flavor = "multi_thread")]
async fn vms_are_listed_and_counted_by_project() {
    let cluster = Cluster::start(1).await;
    let channel = cluster.channel().await;
    register(&channel, "h1", 2, 8).await;
    let mut request = flavor_request("small", 1, &[("hw:cpu_policy", "dedicated")]);
    let flavor = request.flavor.as_mut().unwrap();
    (flavor.project, flavor.creator) = ("web".to_owned(), "operator:eve".to_owned());
    let made = schedulers(&channel).create_flavor(request).await.unwrap();
    let made = made.into_inner().flavor.unwrap();
    assert_eq!(made.project, "web");
    assert!(made.creator.starts_with("unverified"), "{}", made.creator);

    for (vm, project, recorded) in [
        ("a", "web", "web"),
        ("b", "", "default"),
        ("c", "web", "web"),
        ("d", "default", "default"),
        ("e", "web", "web"),
    ] {
        let vm = boot(&channel, vm, project).await;
        assert_eq!(vm.project, recorded);
        assert_eq!(vm.creator, made.creator);
        // The copy that its agent gets has neither.
        let copy = vm.spec.unwrap().flavor.unwrap();
        assert_eq!((copy.project, copy.creator), (String::new(), String::new()));
    }
    let mut request = vm_request("f", "small");
    request.template.as_mut().unwrap().project = "No_Label".to_owned();
    let refused = schedule(&channel, request).await.unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument);
    assert!(refused.message().contains("template.project"), "{refused}");

    let mut request = ListVmsRequest {
        project: "web".to_owned(),
        page_size: 2,
        ..ListVmsRequest::default()
    };
    let mut pages = Vec::new();
    loop {
        let page = schedulers(&channel).list_vms(request.clone()).await;
        let page = page.unwrap().into_inner();
        pages.push(
            page.vms
                .iter()
                .map(|vm| vm.name.clone())
                .collect::<Vec<_>>(),
        );
        if page.next_page_token.is_empty() {
            break;
        }
        request.page_token = page.next_page_token;
    }
    assert_eq!(pages, [vec!["vms/a", "vms/c"], vec!["vms/e"]]);

    let request = GetProjectUsageRequest {
        project: "web".to_owned(),
        ..GetProjectUsageRequest::default()
    };
    let mut placement = PlacementServiceClient::new(channel);
    let usages = placement.get_project_usage(request).await.unwrap();
    let usages = usages.into_inner().usages;
    assert_eq!(usages.len(), 1);
    assert_eq!(usages[0].consumer_type, "BERTH_CLAIM");
    assert_eq!((usages[0].consumers, usages[0].used["MEMORY_MB"]), (3, 768));
}
