//! What operators write on VMs from the request to the lists: pages of what labels select, and what each
//! fault of a request states.

use berth_proto::scheduler::v1::{ListVmsRequest, UpdateVmRequest, Vm};
use berth_proto::status::from_status;
use tonic::transport::Channel;
use tonic::{Code, Status};

use crate::common::world::{flavor_request, register, schedule, vm_request};
use crate::common::{Cluster, schedulers};

async fn boot(channel: &Channel, vm: &str, labels: &[(&str, &str)]) -> Vm {
    let mut request = vm_request(vm, "small");
    let template = request.template.as_mut().unwrap();
    let owned = |&(key, value): &(&str, &str)| (key.to_owned(), value.to_owned());
    template.labels = labels.iter().map(owned).collect();
    template.description = format!("it is {vm}");
    schedule(channel, request).await.unwrap().vm.unwrap()
}

async fn update(channel: &Channel, request: UpdateVmRequest) -> Result<Vm, Status> {
    let response = schedulers(channel).update_vm(request).await?;
    Ok(response.into_inner().vm.unwrap())
}

/// Returns the names of the VMs that labels select, page by page.
async fn listed(channel: &Channel, labels: &[&str]) -> Vec<Vec<String>> {
    let mut request = ListVmsRequest {
        labels: labels.iter().map(|&label| label.to_owned()).collect(),
        page_size: 2,
        ..ListVmsRequest::default()
    };
    let mut pages = Vec::new();
    loop {
        let page = schedulers(channel).list_vms(request.clone()).await;
        let page = page.unwrap().into_inner();
        let names = page.vms.iter().map(|vm| vm.name.clone());
        pages.push(names.collect());
        if page.next_page_token.is_empty() {
            return pages;
        }
        request.page_token = page.next_page_token;
    }
}

async fn world(channel: &Channel) {
    register(channel, "h1", 2, 8).await;
    let flavor = flavor_request("small", 1, &[("hw:cpu_policy", "dedicated")]);
    schedulers(channel).create_flavor(flavor).await.unwrap();
}

/// Goal: labels select before pages are divided, so that no page but the last is short.
#[tokio::test(flavor = "multi_thread")]
async fn labels_select_vms_page_by_page() {
    let cluster = Cluster::start(1).await;
    let channel = cluster.channel().await;
    world(&channel).await;
    for (vm, labels) in [
        ("a", &[("team", "blue")][..]),
        ("b", &[]),
        ("c", &[("team", "red"), ("tier", "1")]),
        ("d", &[("team", "blue"), ("tier", "1")]),
        ("e", &[("team", "blue"), ("tier", "")]),
    ] {
        let made = boot(&channel, vm, labels).await;
        assert_eq!(made.labels.len(), labels.len());
        assert_eq!(made.description, format!("it is {vm}"));
        assert!(!made.protected);
    }
    let blue = [vec!["vms/a", "vms/d"], vec!["vms/e"]];
    assert_eq!(listed(&channel, &["team=blue"]).await, blue);
    assert_eq!(
        listed(&channel, &["tier", "team=blue"]).await,
        [["vms/d", "vms/e"]]
    );
    assert_eq!(listed(&channel, &["tier="]).await, [["vms/e"]]);
    assert_eq!(
        listed(&channel, &["team=green"]).await,
        [Vec::<String>::new()]
    );
    assert_eq!(listed(&channel, &[]).await.concat().len(), 5);
    let request = UpdateVmRequest {
        vm: "vms/a".to_owned(),
        set_labels: [("tier".to_owned(), "1".to_owned())].into(),
        remove_labels: vec!["team".to_owned()],
        ..UpdateVmRequest::default()
    };
    let vm = update(&channel, request).await.unwrap();
    assert_eq!(vm.labels, [("tier".to_owned(), "1".to_owned())].into());
    assert_eq!(vm.description, "it is a");
    assert_eq!(
        listed(&channel, &["tier=1"]).await,
        [vec!["vms/a", "vms/c"], vec!["vms/d"]]
    );
}

/// Goal: every fault of a request is refused with what is wrong, where, and what to do.
#[tokio::test(flavor = "multi_thread")]
async fn faults_state_the_field_and_the_rule() {
    let cluster = Cluster::start(1).await;
    let channel = cluster.channel().await;
    world(&channel).await;
    boot(&channel, "a", &[("team", "blue")]).await;
    let label = |key: &str, value: &str| UpdateVmRequest {
        vm: "vms/a".to_owned(),
        set_labels: [(key.to_owned(), value.to_owned())].into(),
        ..UpdateVmRequest::default()
    };
    let many = |count: usize| UpdateVmRequest {
        set_labels: (0..count)
            .map(|n| (format!("k{n}"), String::new()))
            .collect(),
        ..label("team", "blue")
    };
    let described = |text: String| UpdateVmRequest {
        vm: "vms/a".to_owned(),
        description: Some(text),
        ..UpdateVmRequest::default()
    };
    let removed = |key: &str| UpdateVmRequest {
        vm: "vms/a".to_owned(),
        remove_labels: vec![key.to_owned()],
        ..UpdateVmRequest::default()
    };
    let nothing = UpdateVmRequest {
        vm: "vms/a".to_owned(),
        ..UpdateVmRequest::default()
    };
    for (request, parts) in [
        (nothing, ["vm", "set_labels, remove_labels"]),
        (label("", "x"), ["labels.", "1 to 63 characters"]),
        (label("a b", "x"), ["labels.a b", "as team or"]),
        (label("A.b/c", "x"), ["labels.A.b/c", "DNS name"]),
        (
            label("team", "a b"),
            ["labels.team", "at most 63 characters"],
        ),
        (
            label(&"k".repeat(2000), "x"),
            ["set_labels", "more than 1024 bytes"],
        ),
        (removed("a b"), ["labels.a b", "1 to 63 characters"]),
        (
            many(64),
            ["labels", "at most 64 labels: remove others first"],
        ),
        (many(65), ["set_labels", "at most 64"]),
        (
            described("x".repeat(1025)),
            ["description", "at most 1024 bytes: shorten it"],
        ),
        (
            described("a\u{1b}b".to_owned()),
            ["description", "no control characters"],
        ),
    ] {
        let refused = update(&channel, request.clone()).await.unwrap_err();
        assert_eq!(refused.code(), Code::InvalidArgument, "{request:?}");
        for part in parts {
            assert!(refused.message().contains(part), "{part}: {refused}");
        }
        assert!(refused.message().len() < 1000, "{refused}");
    }
    for labels in [vec!["a b".to_owned()], vec!["a".to_owned(); 65]] {
        let request = ListVmsRequest {
            labels,
            ..ListVmsRequest::default()
        };
        let refused = schedulers(&channel).list_vms(request).await.unwrap_err();
        assert_eq!(refused.code(), Code::InvalidArgument);
        assert!(refused.message().contains("labels"), "{refused}");
    }
    let mut request = vm_request("b", "small");
    request.template.as_mut().unwrap().description = "two\nlines".to_owned();
    let refused = from_status(&schedule(&channel, request).await.unwrap_err());
    assert_eq!(refused.reason, "INVALID_VM");
    let vm = update(&channel, removed("team")).await.unwrap();
    assert!(vm.labels.is_empty());
    let unknown = UpdateVmRequest {
        vm: "vms/b".to_owned(),
        protected: Some(true),
        ..UpdateVmRequest::default()
    };
    let refused = from_status(&update(&channel, unknown).await.unwrap_err());
    assert_eq!(refused.reason, "VM_NOT_FOUND");
}
