//! Filters of VMs together with what else selects them, and what each fault of a filter states.

use berth_proto::scheduler::v1::ListVmsRequest;
use berth_proto::status::from_status;
use tonic::transport::Channel;
use tonic::{Code, Status};

use crate::common::world::{flavor, register, schedule, vm_request};
use crate::common::{Cluster, schedulers};

async fn boot(channel: &Channel, vm: &str, flavor: &str, labels: &[(&str, &str)]) {
    let mut request = vm_request(vm, flavor);
    let template = request.template.as_mut().unwrap();
    let owned = |&(key, value): &(&str, &str)| (key.to_owned(), value.to_owned());
    template.labels = labels.iter().map(owned).collect();
    schedule(channel, request).await.unwrap();
}

/// Returns the names of the VMs that are selected, page by page.
async fn listed(channel: &Channel, filter: &str, more: ListVmsRequest) -> Result<String, Status> {
    let mut request = ListVmsRequest {
        filter: filter.to_owned(),
        page_size: 2,
        ..more
    };
    let mut names = Vec::new();
    loop {
        let page = schedulers(channel).list_vms(request.clone()).await?;
        let page = page.into_inner();
        let page_names = page.vms.iter().map(|vm| vm.name.replace("vms/", ""));
        names.push(page_names.collect::<String>());
        if page.next_page_token.is_empty() {
            return Ok(names.join(" "));
        }
        request.page_token = page.next_page_token;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn filters_select_vms_page_by_page() {
    let cluster = Cluster::start(1).await;
    let channel = cluster.channel().await;
    register(&channel, "h1", 2, 8).await;
    flavor(&channel, "small", 1).await;
    flavor(&channel, "large", 3).await;
    for (vm, flavor, labels) in [
        ("a", "small", &[("team", "blue")][..]),
        ("b", "large", &[]),
        ("c", "small", &[("team", "red")]),
        ("d", "large", &[("team", "blue")]),
        ("e", "small", &[("team", "blue"), ("tier", "1")]),
    ] {
        boot(&channel, vm, flavor, labels).await;
    }
    for (filter, names) in [
        ("", "ab cd e"),
        ("spec.flavor.vcpus > 1", "bd"),
        ("spec.flavor.name = small AND labels.team = blue", "ae"),
        ("NOT labels.team = blue", "bc"),
        ("labels:team AND name != a", "cd e"),
        ("state = BUILDING AND host = h1 AND operation:*", "ab cd e"),
        ("create_time > 2000-01-01T00:00:00Z AND name >= d", "de"),
        ("spec.boot:* AND (name = a OR name = \"vms/b\")", "ab"),
        ("spec.disks:* OR spec.flavor.vcpus = 3", "ab cd e"),
    ] {
        let selected = listed(&channel, filter, ListVmsRequest::default()).await;
        assert_eq!(selected.unwrap(), names, "{filter}");
    }
    let more = ListVmsRequest {
        labels: vec!["tier".to_owned()],
        host: "hosts/h1".to_owned(),
        project: "default".to_owned(),
        ..ListVmsRequest::default()
    };
    let selected = listed(&channel, "spec.flavor.vcpus = 1", more.clone()).await;
    assert_eq!(selected.unwrap(), "e");
    let selected = listed(&channel, "spec.flavor.vcpus = 3", more).await;
    assert_eq!(selected.unwrap(), "");
    for (filter, part) in [
        (
            "nothing = 1",
            "at byte 1: Vm has no field \"nothing\"; it has name, uid, spec",
        ),
        (
            "state = GONE",
            "at byte 9: state is one of BUILDING, ACTIVE",
        ),
        (
            "a = 1 AND b = 2 OR c = 3",
            "at byte 17: AND and OR stand beside each other",
        ),
        (&"(".repeat(3_000), "has 3000 bytes; at most 2048"),
        (&"(".repeat(2_000), "more than 16 parentheses"),
    ] {
        let refused = listed(&channel, filter, ListVmsRequest::default()).await;
        let refused = refused.unwrap_err();
        assert_eq!(refused.code(), Code::InvalidArgument, "{filter}");
        let refusal = from_status(&refused);
        assert_eq!(refusal.reason, "INVALID_FIELD");
        assert_eq!(refusal.metadata["field"], "filter");
        assert!(
            refusal.metadata["rule"].contains(part),
            "{filter}: {refusal:?}"
        );
    }
}
