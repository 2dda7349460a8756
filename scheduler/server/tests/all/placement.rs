//! Counted placement over gRPC: every write of OpenStack Placement, and what is read back.

use std::collections::BTreeMap;

use berth_proto::placement::v1::catalog_service_client::CatalogServiceClient;
use berth_proto::placement::v1::placement_service_client::PlacementServiceClient;
use berth_proto::placement::v1::*;
use tonic::transport::Channel;
use tonic::{Code, Status};

use crate::common::Cluster;

const ROOT: &str = "resourceProviders/00000000-0000-0000-0000-000000000001";
const CHILD: &str = "resourceProviders/00000000-0000-0000-0000-000000000002";
const AGGREGATE: &str = "00000000-0000-0000-0000-00000000000a";

fn consumer(number: u32) -> String {
    format!("consumers/00000000-0000-0000-0001-{number:012}")
}

fn totals(totals: &[(&str, u64)]) -> BTreeMap<String, Inventory> {
    let of = |total| Inventory {
        total,
        ..Inventory::default()
    };
    let each = totals.iter();
    each.map(|(class, total)| ((*class).to_owned(), of(*total)))
        .collect()
}

fn update(number: u32, from: &str, class: &str, amount: u64) -> ConsumerUpdate {
    ConsumerUpdate {
        consumer: consumer(number),
        project: "p".to_owned(),
        user: "u".to_owned(),
        allocations: vec![Allocation {
            resource_provider: from.to_owned(),
            resources: [(class.to_owned(), amount)].into(),
        }],
        any_generation: true,
        consumer_type: "INSTANCE".to_owned(),
        ..ConsumerUpdate::default()
    }
}

fn refused<T: std::fmt::Debug>(outcome: Result<T, Status>, code: Code, what: &str) {
    let status = outcome.unwrap_err();
    assert_eq!(status.code(), code, "{status:?}");
    assert!(status.message().contains(what), "{status:?}");
}

struct Clients {
    placement: PlacementServiceClient<Channel>,
    catalog: CatalogServiceClient<Channel>,
}

impl Clients {
    async fn create(&mut self, name: &str, display_name: &str) -> ResourceProvider {
        let request = CreateResourceProviderRequest {
            name: name.to_owned(),
            display_name: display_name.to_owned(),
            ..CreateResourceProviderRequest::default()
        };
        let answer = self.placement.create_resource_provider(request).await;
        answer.unwrap().into_inner().resource_provider.unwrap()
    }

    async fn get(&mut self, name: &str) -> ResourceProvider {
        let request = GetResourceProviderRequest {
            name: name.to_owned(),
            ..GetResourceProviderRequest::default()
        };
        let answer = self.placement.get_resource_provider(request).await;
        answer.unwrap().into_inner().resource_provider.unwrap()
    }
}

impl Clients {
    /// Makes a provider `p<number>` of so many CPUs, a trait by whether the number is odd, and an
    /// aggregate from 4 on.
    async fn provider(&mut self, name: &str, number: u64) {
        self.create(name, &format!("p{number}")).await;
        let request = ReplaceInventoriesRequest {
            resource_provider: name.to_owned(),
            inventories: totals(&[("VCPU", number)]),
            ..ReplaceInventoriesRequest::default()
        };
        self.placement.replace_inventories(request).await.unwrap();
        let quality = ["HW_CPU_X86_SSE", "HW_CPU_X86_AVX2"][usize::from(number % 2 == 1)];
        let request = ReplaceTraitsRequest {
            resource_provider: name.to_owned(),
            generation: 1,
            traits: vec![quality.to_owned()],
            ..ReplaceTraitsRequest::default()
        };
        self.placement.replace_traits(request).await.unwrap();
        if number >= 4 {
            let request = ReplaceAggregatesRequest {
                resource_provider: name.to_owned(),
                aggregates: vec![AGGREGATE.to_owned()],
                ..ReplaceAggregatesRequest::default()
            };
            self.placement.replace_aggregates(request).await.unwrap();
        }
    }

    /// Returns the names of all providers that are listed, read in pages of two.
    async fn list(&mut self, mut request: ListResourceProvidersRequest) -> Vec<String> {
        request.page_size = 2;
        let mut names = Vec::new();
        loop {
            let page = self.placement.list_resource_providers(request.clone());
            let page = page.await.unwrap().into_inner();
            names.extend(page.resource_providers.into_iter().map(|p| p.name));
            request.page_token = page.next_page_token;
            if request.page_token.is_empty() {
                return names;
            }
        }
    }
}

async fn clients(cluster: &Cluster) -> Clients {
    let channel = cluster.channel().await;
    Clients {
        placement: PlacementServiceClient::new(channel.clone()),
        catalog: CatalogServiceClient::new(channel),
    }
}

/// Goal: classes and traits are created once, listed in pages among the standard ones, and stay
/// while they are used. Method: each call, and the refusals beside it.
#[tokio::test(flavor = "multi_thread")]
async fn classes_and_traits_are_created_listed_and_deleted() {
    let cluster = Cluster::start(1).await;
    let mut on = clients(&cluster).await;
    let gold = |name: &str| CreateResourceClassRequest {
        name: name.to_owned(),
        ..CreateResourceClassRequest::default()
    };
    for existed in [false, true] {
        let answer = on.catalog.create_resource_class(gold("CUSTOM_GOLD")).await;
        assert_eq!(answer.unwrap().into_inner().existed, existed);
    }
    let standard = on.catalog.create_resource_class(gold("VCPU")).await;
    refused(standard, Code::InvalidArgument, "VCPU is a standard one");
    let request = RenameResourceClassRequest {
        name: "CUSTOM_GOLD".to_owned(),
        new_name: "CUSTOM_AURUM".to_owned(),
        ..RenameResourceClassRequest::default()
    };
    on.catalog.rename_resource_class(request).await.unwrap();
    let mut names = Vec::new();
    let mut request = ListResourceClassesRequest {
        page_size: 5,
        ..ListResourceClassesRequest::default()
    };
    loop {
        let page = on.catalog.list_resource_classes(request.clone()).await;
        let page = page.unwrap().into_inner();
        names.extend(page.resource_classes.into_iter().map(|c| c.name));
        request.page_token = page.next_page_token;
        if request.page_token.is_empty() {
            break;
        }
    }
    assert_eq!((names.len(), &*names[0]), (22, "CUSTOM_AURUM"));
    let request = CreateTraitRequest {
        name: "CUSTOM_FAST".to_owned(),
        ..CreateTraitRequest::default()
    };
    assert!(
        !on.catalog
            .create_trait(request)
            .await
            .unwrap()
            .into_inner()
            .existed
    );
    on.create(ROOT, "root").await;
    let request = ReplaceTraitsRequest {
        resource_provider: ROOT.to_owned(),
        traits: vec!["CUSTOM_FAST".to_owned(), "HW_NUMA_ROOT".to_owned()],
        ..ReplaceTraitsRequest::default()
    };
    on.placement.replace_traits(request).await.unwrap();
    let request = ListTraitsRequest {
        associated: true,
        ..ListTraitsRequest::default()
    };
    let traits = on.catalog.list_traits(request).await.unwrap().into_inner();
    let traits: Vec<_> = traits.traits.into_iter().map(|t| t.name).collect();
    assert_eq!(traits, ["CUSTOM_FAST", "HW_NUMA_ROOT"]);
    let request = DeleteTraitRequest {
        name: "CUSTOM_FAST".to_owned(),
        ..DeleteTraitRequest::default()
    };
    let used = on.catalog.delete_trait(request).await;
    refused(used, Code::FailedPrecondition, "has the trait CUSTOM_FAST");
    let request = DeleteResourceClassRequest {
        name: "CUSTOM_AURUM".to_owned(),
        ..DeleteResourceClassRequest::default()
    };
    on.catalog.delete_resource_class(request).await.unwrap();
}

/// Goal: a tree is built, filled, reshaped and emptied over gRPC, and read back at each step.
#[tokio::test(flavor = "multi_thread")]
async fn a_tree_is_built_reshaped_and_emptied() {
    let cluster = Cluster::start(1).await;
    let mut on = clients(&cluster).await;
    on.create(ROOT, "root").await;
    on.create(CHILD, "child").await;
    let request = UpdateResourceProviderRequest {
        name: CHILD.to_owned(),
        display_name: Some("gpu".to_owned()),
        parent: Some(ROOT.to_owned()),
        ..UpdateResourceProviderRequest::default()
    };
    on.placement
        .update_resource_provider(request)
        .await
        .unwrap();
    let child = on.get(CHILD).await;
    assert_eq!((&*child.display_name, &*child.root), ("gpu", ROOT));
    for (class, total) in [("VCPU", 8), ("VGPU", 4)] {
        let request = PutInventoryRequest {
            resource_provider: ROOT.to_owned(),
            resource_class: class.to_owned(),
            inventory: totals(&[(class, total)]).remove(class),
            create: true,
            ..PutInventoryRequest::default()
        };
        on.placement.put_inventory(request).await.unwrap();
    }
    let request = ReplaceAggregatesRequest {
        resource_provider: ROOT.to_owned(),
        generation: Some(2),
        aggregates: vec![AGGREGATE.to_owned()],
        ..ReplaceAggregatesRequest::default()
    };
    on.placement.replace_aggregates(request).await.unwrap();
    let root = on.get(ROOT).await;
    assert_eq!(
        (root.generation, &*root.aggregates),
        (3, &[AGGREGATE.to_owned()][..])
    );
    assert!(root.update_time.is_some());

    let request = ReplaceAllocationsRequest {
        consumers: vec![update(1, ROOT, "VGPU", 4), update(2, ROOT, "VCPU", 2)],
        ..ReplaceAllocationsRequest::default()
    };
    on.placement.replace_allocations(request).await.unwrap();
    let reshape = ReshapeRequest {
        providers: vec![
            ProviderInventories {
                resource_provider: ROOT.to_owned(),
                generation: 4,
                inventories: totals(&[("VCPU", 8)]),
            },
            ProviderInventories {
                resource_provider: CHILD.to_owned(),
                generation: 0,
                inventories: totals(&[("VGPU", 4)]),
            },
        ],
        consumers: vec![update(1, CHILD, "VGPU", 4)],
        ..ReshapeRequest::default()
    };
    let answer = on.placement.reshape(reshape.clone()).await.unwrap();
    assert_eq!(answer.into_inner().consumers[0].generation, 2);
    let stale = on.placement.reshape(reshape).await;
    refused(stale, Code::Aborted, "is at generation");

    let request = GetProjectUsageRequest {
        project: "p".to_owned(),
        ..GetProjectUsageRequest::default()
    };
    let usage = on.placement.get_project_usage(request).await.unwrap();
    let usage = usage.into_inner().usages;
    assert_eq!((usage.len(), usage[0].consumers), (1, 2));
    assert_eq!(usage[0].used["VGPU"], 4);
    let list = |provider: &str, project: &str, token: String| ListConsumersRequest {
        resource_provider: provider.to_owned(),
        project: project.to_owned(),
        page_size: 1,
        page_token: token,
        ..ListConsumersRequest::default()
    };
    let page = on.placement.list_consumers(list("", "p", String::new()));
    let page = page.await.unwrap().into_inner();
    assert_eq!(page.consumers[0].name, consumer(1));
    let page = on
        .placement
        .list_consumers(list("", "p", page.next_page_token));
    let page = page.await.unwrap().into_inner();
    assert_eq!(page.consumers[0].name, consumer(2));
    assert!(page.next_page_token.is_empty());
    let page = on.placement.list_consumers(list(CHILD, "p", String::new()));
    let page = page.await.unwrap().into_inner();
    assert_eq!(page.consumers[0].name, consumer(1));

    let inventory = DeleteInventoryRequest {
        resource_provider: CHILD.to_owned(),
        resource_class: "VGPU".to_owned(),
        ..DeleteInventoryRequest::default()
    };
    let used = on.placement.delete_inventory(inventory.clone()).await;
    refused(used, Code::FailedPrecondition, "VGPU");
    let allocations = DeleteAllocationsRequest {
        consumer: consumer(1),
        ..DeleteAllocationsRequest::default()
    };
    on.placement
        .delete_allocations(allocations.clone())
        .await
        .unwrap();
    let gone = on.placement.delete_allocations(allocations).await;
    refused(gone, Code::NotFound, "has no allocations");
    on.placement.delete_inventory(inventory).await.unwrap();
    assert!(on.get(CHILD).await.inventories.is_empty());
}

/// Goal: each filter of the list of providers picks those that it should, in pages, and one that
/// cannot be meant is refused. Method: five roots that differ in all of it, and a child.
#[tokio::test(flavor = "multi_thread")]
async fn providers_are_listed_by_filters() {
    let cluster = Cluster::start(1).await;
    let mut on = clients(&cluster).await;
    let name = |number: u32| format!("resourceProviders/00000000-0000-0000-0000-{number:012}");
    for number in 1..=5 {
        on.provider(&name(number), u64::from(number)).await;
    }
    let request = CreateResourceProviderRequest {
        name: name(6),
        display_name: "child".to_owned(),
        parent: name(2),
        ..CreateResourceProviderRequest::default()
    };
    on.placement
        .create_resource_provider(request)
        .await
        .unwrap();
    let taken = ReplaceAllocationsRequest {
        consumers: vec![update(1, &name(5), "VCPU", 3)],
        ..ReplaceAllocationsRequest::default()
    };
    on.placement.replace_allocations(taken).await.unwrap();

    let any = ListResourceProvidersRequest::default;
    let vcpu = |amount| [("VCPU".to_owned(), amount)].into();
    let one_of = |names: &[&str]| AnyTrait {
        traits: names.iter().map(|name| (*name).to_owned()).collect(),
    };
    let (odd, even) = ("HW_CPU_X86_AVX2", "HW_CPU_X86_SSE");
    #[rustfmt::skip]
    let cases = [
        (any(), vec![1, 2, 3, 4, 5, 6]),
        (ListResourceProvidersRequest { display_name: "p3".to_owned(), ..any() }, vec![3]),
        // Three of the fifth's five are taken.
        (ListResourceProvidersRequest { resources: vcpu(3), ..any() }, vec![3, 4]),
        (ListResourceProvidersRequest { required_traits: vec![one_of(&[odd])], ..any() }, vec![1, 3, 5]),
        (ListResourceProvidersRequest { required_traits: vec![one_of(&[odd, even])], ..any() }, vec![1, 2, 3, 4, 5]),
        (ListResourceProvidersRequest { required_traits: vec![one_of(&[odd]), one_of(&[even])], ..any() }, vec![]),
        (ListResourceProvidersRequest { forbidden_traits: vec![odd.to_owned()], ..any() }, vec![2, 4, 6]),
        (ListResourceProvidersRequest { member_of: vec![AnyAggregate { aggregates: vec![AGGREGATE.to_owned()] }], ..any() }, vec![4, 5]),
        (ListResourceProvidersRequest { forbidden_aggregates: vec![AGGREGATE.to_owned()], resources: vcpu(2), ..any() }, vec![2, 3]),
        (ListResourceProvidersRequest { in_tree: name(6), ..any() }, vec![2, 6]),
        (ListResourceProvidersRequest { in_tree: name(9), ..any() }, vec![]),
    ];
    for (request, expected) in cases {
        let expected: Vec<String> = expected.into_iter().map(name).collect();
        assert_eq!(on.list(request.clone()).await, expected, "{request:?}");
    }

    let nobody = "CUSTOM_NOBODY".to_owned();
    #[rustfmt::skip]
    let wrong = [
        (ListResourceProvidersRequest { resources: [(nobody.clone(), 1)].into(), ..any() }, "resource class CUSTOM_NOBODY does not exist"),
        (ListResourceProvidersRequest { forbidden_traits: vec![nobody], ..any() }, "trait CUSTOM_NOBODY does not exist"),
        (ListResourceProvidersRequest { resources: vcpu(0), ..any() }, "resources[\"VCPU\"]: must be at least 1"),
        (ListResourceProvidersRequest { required_traits: vec![one_of(&[])], ..any() }, "required_traits[0].traits: must name at least one"),
        (ListResourceProvidersRequest { in_tree: "p1".to_owned(), ..any() }, "in_tree"),
    ];
    for (request, what) in wrong {
        let answer = on.placement.list_resource_providers(request).await;
        refused(answer, Code::InvalidArgument, what);
    }
}
