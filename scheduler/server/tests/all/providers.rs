//! Resource providers over gRPC: batches of writes, and watches of what changes.

use std::collections::BTreeMap;

use berth_domain::refusal::Refusal;
use berth_proto::placement::v1::placement_service_client::PlacementServiceClient;
use berth_proto::placement::v1::write::Write as Do;
use berth_proto::placement::v1::*;
use berth_proto::status::from_status;
use berth_scheduler::{Config, Start};
use prost::Message as _;
use tonic::transport::Channel;
use tonic::{Status, Streaming};
use uuid::Uuid;

use crate::common::{Cluster, Member, config, eventually};

type Client = PlacementServiceClient<Channel>;
type Watch = Streaming<WatchResourceProvidersResponse>;

fn name(number: u32) -> String {
    format!("resourceProviders/00000000-0000-0000-0000-{number:012}")
}

fn create(number: u32) -> Do {
    Do::CreateResourceProvider(CreateResourceProviderRequest {
        name: name(number),
        display_name: format!("p{number}"),
        ..CreateResourceProviderRequest::default()
    })
}

fn delete(number: u32) -> Do {
    Do::DeleteResourceProvider(DeleteResourceProviderRequest {
        name: name(number),
        ..DeleteResourceProviderRequest::default()
    })
}

fn inventories(number: u32, generation: u64, class: &str, total: u64) -> Do {
    let inventory = Inventory {
        total,
        ..Inventory::default()
    };
    Do::ReplaceInventories(ReplaceInventoriesRequest {
        resource_provider: name(number),
        generation,
        inventories: [(class.to_owned(), inventory)].into(),
        ..ReplaceInventoriesRequest::default()
    })
}

fn traits(number: u32, generation: u64, names: &[&str]) -> Do {
    Do::ReplaceTraits(ReplaceTraitsRequest {
        resource_provider: name(number),
        generation,
        traits: names.iter().map(ToString::to_string).collect(),
        ..ReplaceTraitsRequest::default()
    })
}

fn takes(consumers: std::ops::Range<u32>, from: u32, class: &str, amount: u64) -> Do {
    let update = |consumer| ConsumerUpdate {
        consumer: format!("consumers/00000000-0000-0000-0001-{consumer:012}"),
        project: "p".to_owned(),
        user: "u".to_owned(),
        any_generation: true,
        allocations: vec![Allocation {
            resource_provider: name(from),
            resources: [(class.to_owned(), amount)].into(),
        }],
        ..ConsumerUpdate::default()
    };
    Do::ReplaceAllocations(ReplaceAllocationsRequest {
        consumers: consumers.map(update).collect(),
        ..ReplaceAllocationsRequest::default()
    })
}

fn batch(writes: Vec<Do>) -> BatchWriteRequest {
    let writes = writes.into_iter().map(|write| Write { write: Some(write) });
    BatchWriteRequest {
        writes: writes.collect(),
        ..BatchWriteRequest::default()
    }
}

async fn write(on: &mut Client, request: BatchWriteRequest) -> Result<BatchWriteResponse, Refusal> {
    let answer = on.batch_write(request).await;
    answer
        .map(tonic::Response::into_inner)
        .map_err(|status| from_status(&status))
}

async fn listed(on: &mut Client) -> BTreeMap<String, ResourceProvider> {
    let request = ListResourceProvidersRequest {
        page_size: 1000,
        ..ListResourceProvidersRequest::default()
    };
    let list = on
        .list_resource_providers(request)
        .await
        .expect("a list")
        .into_inner();
    let providers = list.resource_providers.into_iter();
    providers
        .map(|provider| (provider.name.clone(), provider))
        .collect()
}

/// A host with a class and a trait of its own, of which a consumer takes so much.
fn host(amount: u64) -> Vec<Do> {
    vec![
        Do::CreateResourceClass(CreateResourceClassRequest {
            name: "CUSTOM_GOLD".to_owned(),
            ..CreateResourceClassRequest::default()
        }),
        Do::CreateTrait(CreateTraitRequest {
            name: "CUSTOM_FAST".to_owned(),
            ..CreateTraitRequest::default()
        }),
        create(1),
        inventories(1, 0, "CUSTOM_GOLD", 8),
        traits(1, 1, &["CUSTOM_FAST"]),
        takes(1..2, 1, "CUSTOM_GOLD", amount),
    ]
}

/// Goal: a batch is carried out as a whole or not at all, and says which write was refused; it can
/// be tried, and repeated. Method: a host that is made and taken from at once, too much at first.
#[tokio::test(flavor = "multi_thread")]
async fn a_batch_is_carried_out_as_a_whole() {
    let cluster = Cluster::start(1).await;
    let mut on = PlacementServiceClient::new(cluster.channel().await);
    let refused = write(&mut on, batch(host(9))).await.expect_err("too much");
    assert_eq!(
        (&*refused.reason, &*refused.metadata["write"]),
        ("INVENTORY_CONSTRAINTS", "5")
    );
    assert!(
        refused.message.starts_with("write 5 of the batch: "),
        "{refused}"
    );
    assert!(listed(&mut on).await.is_empty());

    let tried = BatchWriteRequest {
        validate_only: true,
        ..batch(host(8))
    };
    let tried = write(&mut on, tried).await.expect("room");
    assert_eq!(tried.resource_providers.len(), 1);
    assert!(listed(&mut on).await.is_empty());

    let request = BatchWriteRequest {
        request_id: Uuid::now_v7().to_string(),
        ..batch(host(8))
    };
    let done = write(&mut on, request.clone()).await.expect("room");
    let [provider] = &done.resource_providers[..] else {
        panic!("{done:?}");
    };
    assert_eq!(
        (provider.generation, &*provider.traits),
        (3, &["CUSTOM_FAST".to_owned()][..])
    );
    assert_eq!(done.consumers[0].allocations[0].resources["CUSTOM_GOLD"], 8);
    assert_eq!(
        write(&mut on, request).await.expect("the first answer"),
        done
    );
    let again = write(&mut on, batch(host(8)))
        .await
        .expect_err("it is there");
    assert_eq!(
        (&*again.reason, &*again.metadata["write"]),
        ("DUPLICATE_ID", "2")
    );
}

/// Goal: what is no batch is refused before it is an entry of the log. Method: a table.
#[tokio::test(flavor = "multi_thread")]
async fn wrong_batches_are_refused() {
    let cluster = Cluster::start(1).await;
    let mut on = PlacementServiceClient::new(cluster.channel().await);
    let mut keyed = batch(vec![create(1)]);
    if let Some(Do::CreateResourceProvider(create)) = &mut keyed.writes[0].write {
        create.request_id = Uuid::now_v7().to_string();
    }
    let empty = BatchWriteRequest {
        writes: vec![Write { write: None }],
        ..BatchWriteRequest::default()
    };
    for (request, field) in [
        (batch(Vec::new()), "writes"),
        (batch((0..1001).map(create).collect()), "writes"),
        (empty, "writes[0]"),
        (keyed, "writes[0].create_resource_provider.request_id"),
        (
            batch(vec![create(1), inventories(1, 0, "vcpu", 1)]),
            "writes[1].replace_inventories.inventories[\"vcpu\"]",
        ),
        (
            batch(vec![
                takes(0..600, 1, "VCPU", 1),
                takes(600..1200, 1, "VCPU", 1),
            ]),
            "writes: the consumers",
        ),
    ] {
        let refused = write(&mut on, request).await.expect_err(field);
        assert_eq!(
            (&*refused.reason, &*refused.metadata["field"]),
            ("INVALID_FIELD", field)
        );
    }
}

async fn watch(on: &mut Client, revision: u64, only: &str) -> Watch {
    let request = WatchResourceProvidersRequest {
        revision,
        resource_provider: only.to_owned(),
    };
    let answer = on.watch_resource_providers(request).await;
    answer.expect("a watch").into_inner()
}

async fn next(watch: &mut Watch) -> Result<WatchResourceProvidersResponse, Status> {
    Ok(watch.message().await?.expect("a watch has no end"))
}

/// What a client that follows a watch knows.
#[derive(Default)]
struct Known {
    revision: u64,
    providers: BTreeMap<String, ResourceProvider>,
    messages: usize,
}

impl Known {
    async fn follow(&mut self, watch: &mut Watch, until: impl Fn(&Self) -> bool) {
        while !until(self) {
            let message = next(watch).await.expect("no gap");
            assert!(
                message.encoded_len() < 140 << 10,
                "{}",
                message.encoded_len()
            );
            assert!(message.revision >= self.revision);
            self.revision = message.revision;
            self.messages += 1;
            for provider in message.resource_providers {
                self.providers.insert(provider.name.clone(), provider);
            }
            for name in message.deleted_resource_providers {
                self.providers.remove(&name);
            }
        }
    }
}

/// Goal: a watch begins with everything, tells each change, and goes on where it broke off; one of
/// a single provider tells of no other.
#[tokio::test(flavor = "multi_thread")]
async fn a_watch_has_no_gaps() {
    let cluster = Cluster::start(1).await;
    let mut on = PlacementServiceClient::new(cluster.channel().await);
    let mut empty = watch(&mut on, 0, "").await;
    let first = next(&mut empty).await.expect("a snapshot of nothing");
    assert!(first.snapshot && first.resource_providers.is_empty() && first.revision > 0);

    write(&mut on, batch(vec![create(1), create(2)]))
        .await
        .expect("made");
    let (mut all, mut one) = (Known::default(), Known::default());
    let mut watch_all = watch(&mut on, 0, "").await;
    let mut watch_one = watch(&mut on, 0, &name(2)).await;
    all.follow(&mut watch_all, |known| known.providers.len() == 2)
        .await;
    one.follow(&mut watch_one, |known| known.providers.len() == 1)
        .await;

    let broke_off = all.revision;
    let changes = vec![create(3), inventories(2, 0, "VCPU", 4), delete(1)];
    write(&mut on, batch(changes)).await.expect("changed");
    let now = listed(&mut on).await;
    all.follow(&mut watch_all, |known| known.providers == now)
        .await;
    one.follow(&mut watch_one, |known| {
        known.providers[&name(2)].generation == 1
    })
    .await;
    assert_eq!(one.providers.len(), 1);

    let mut later = Known {
        revision: broke_off,
        ..Known::default()
    };
    let mut again = watch(&mut on, broke_off, "").await;
    later
        .follow(&mut again, |known| known.revision > broke_off)
        .await;
    assert_eq!(
        later.providers.keys().collect::<Vec<_>>(),
        [&name(2), &name(3)]
    );
    let mut known = Known::default();
    known
        .follow(&mut empty, |known| known.providers == now)
        .await;
}

async fn one_member(change: impl FnOnce(&mut Config)) -> (tempfile::TempDir, Member, Client) {
    let folder = tempfile::tempdir().expect("a folder");
    let mut config = config(&folder.path().join("0"), Start::Bootstrap);
    change(&mut config);
    let member = Member::start(config).await;
    eventually("a leader", || async {
        member.handle.leader().role.deciding.then_some(())
    })
    .await;
    let on = PlacementServiceClient::new(member.channel().await);
    (folder, member, on)
}

/// Goal: much that is told at once comes in bounded messages, and the revision is told with the
/// last of them only. Method: more providers than a message holds, before and during a watch.
#[tokio::test(flavor = "multi_thread")]
async fn much_is_told_in_bounded_messages() {
    let (_folder, _member, mut on) = one_member(|_| ()).await;
    let mut early = Known::default();
    let mut watch_early = watch(&mut on, 0, "").await;
    early
        .follow(&mut watch_early, |known| known.revision > 0)
        .await;
    write(&mut on, batch((0..1000).map(create).collect()))
        .await
        .expect("made");
    let mut late = Known::default();
    let mut watch_late = watch(&mut on, 0, "").await;
    late.follow(&mut watch_late, |known| known.revision > 0)
        .await;
    assert_eq!(late.providers.len(), 1000);
    // Not until a revision: a new cluster has a few commands of its own, of which this watch hears nothing.
    early
        .follow(&mut watch_early, |known| known.providers.len() == 1000)
        .await;
    assert_eq!(early.providers, late.providers);
    assert!(
        late.messages > 1 && early.messages > 2,
        "{} {}",
        late.messages,
        early.messages
    );
}

/// Goal: a client that does not read costs nothing and misses nothing that still is: it is told
/// the latest of each provider. Method: hundreds of changes of one provider before it reads on.
#[tokio::test(flavor = "multi_thread")]
async fn a_slow_client_is_told_the_latest() {
    let (_folder, _member, mut on) = one_member(|_| ()).await;
    write(&mut on, batch(vec![create(1)])).await.expect("made");
    let mut known = Known::default();
    let mut slow = watch(&mut on, 0, "").await;
    for round in 0..200_u64 {
        // Long enough for what waits in the connection to be bounded as well.
        let names: Vec<String> = (0..500)
            .map(|n| format!("CUSTOM_{n:0>200}_{}", round % 2))
            .collect();
        if round < 2 {
            let traits = names.iter().map(|name| {
                Do::CreateTrait(CreateTraitRequest {
                    name: name.clone(),
                    ..CreateTraitRequest::default()
                })
            });
            write(&mut on, batch(traits.collect()))
                .await
                .expect("traits");
        }
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        write(&mut on, batch(vec![traits(1, round, &names)]))
            .await
            .expect("changed");
    }
    known
        .follow(&mut slow, |known| {
            known
                .providers
                .get(&name(1))
                .is_some_and(|p| p.generation == 200)
        })
        .await;
    assert!(known.messages < 100, "{} messages", known.messages);
}

/// Goal: what is no longer kept is refused, with where to begin. Method: a short history.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_longer_kept_is_refused() {
    let (_folder, _member, mut on) = one_member(|config| config.watch_history_max = 16).await;
    let mut known = Known::default();
    let mut first = watch(&mut on, 0, "").await;
    known.follow(&mut first, |known| known.revision > 0).await;
    for round in 0..3 {
        let writes = (round * 10..round * 10 + 10).map(create).collect();
        write(&mut on, batch(writes)).await.expect("made");
    }
    let mut late = watch(&mut on, known.revision, "").await;
    let refused = from_status(&next(&mut late).await.expect_err("too late"));
    assert_eq!(refused.reason, "REVISION_NOT_KEPT");
    let from: u64 = refused.metadata["first_revision"]
        .parse()
        .expect("a revision");
    let mut rest = Known::default();
    let mut again = watch(&mut on, from, "").await;
    rest.follow(&mut again, |known| known.providers.len() == 10)
        .await;
}
