//! Allocation candidates over gRPC: what is found, why nothing is, and what bounds the answer.

use std::collections::{BTreeMap, BTreeSet};

use berth_proto::placement::v1::candidate_requirement::Kind;
use berth_proto::placement::v1::find_allocation_candidates_request::{GroupPolicy, Order};
use berth_proto::placement::v1::placement_service_client::PlacementServiceClient;
use berth_proto::placement::v1::*;
use berth_proto::status::from_status;
use berth_scheduler::Start;
use tonic::Status;
use tonic::transport::Channel;

use crate::common::{self, Cluster, Member, config};

type Client = PlacementServiceClient<Channel>;
type Query = FindAllocationCandidatesRequest;
type Message = FindAllocationCandidatesResponse;

const AGGREGATE: &str = "00000000-0000-0000-0000-00000000000a";

fn name(number: u32) -> String {
    format!("resourceProviders/00000000-0000-0000-0000-{number:012}")
}

fn amounts(of: &[(&str, u64)]) -> BTreeMap<String, u64> {
    let of = of.iter();
    of.map(|(class, amount)| ((*class).to_owned(), *amount))
        .collect()
}

/// Makes a provider with these inventories and traits.
async fn provider(
    on: &mut Client,
    number: u32,
    parent: Option<u32>,
    has: &[(&str, u64)],
    traits: &[&str],
) {
    let request = CreateResourceProviderRequest {
        name: name(number),
        display_name: format!("p{number}"),
        parent: parent.map(name).unwrap_or_default(),
        ..CreateResourceProviderRequest::default()
    };
    on.create_resource_provider(request)
        .await
        .expect("a provider");
    let inventories = amounts(has).into_iter().map(|(class, total)| {
        let inventory = Inventory {
            total,
            ..Inventory::default()
        };
        (class, inventory)
    });
    let request = ReplaceInventoriesRequest {
        resource_provider: name(number),
        inventories: inventories.collect(),
        ..ReplaceInventoriesRequest::default()
    };
    on.replace_inventories(request).await.expect("inventories");
    if !traits.is_empty() {
        let request = ReplaceTraitsRequest {
            resource_provider: name(number),
            generation: 1,
            traits: traits.iter().map(ToString::to_string).collect(),
            ..ReplaceTraitsRequest::default()
        };
        on.replace_traits(request).await.expect("traits");
    }
}

async fn aggregate(on: &mut Client, number: u32) {
    let request = ReplaceAggregatesRequest {
        resource_provider: name(number),
        aggregates: vec![AGGREGATE.to_owned()],
        ..ReplaceAggregatesRequest::default()
    };
    on.replace_aggregates(request).await.expect("aggregates");
}

fn group(suffix: &str, resources: &[(&str, u64)]) -> CandidateGroup {
    CandidateGroup {
        suffix: suffix.to_owned(),
        resources: amounts(resources),
        ..CandidateGroup::default()
    }
}

fn asking(groups: &[CandidateGroup]) -> Query {
    Query {
        groups: groups.to_vec(),
        ..Query::default()
    }
}

/// Reads a whole answer, and how it ended.
async fn read(on: &mut Client, query: Query) -> (Vec<Message>, Result<(), Status>) {
    let mut stream = match on.find_allocation_candidates(query).await {
        Ok(answer) => answer.into_inner(),
        Err(status) => return (Vec::new(), Err(status)),
    };
    let mut messages = Vec::new();
    loop {
        match stream.message().await {
            Ok(Some(message)) => messages.push(message),
            Ok(None) => return (messages, Ok(())),
            Err(status) => return (messages, Err(status)),
        }
    }
}

async fn refused(on: &mut Client, query: Query) -> String {
    from_status(&read(on, query).await.1.expect_err("a refusal")).reason
}

/// Returns the last digits of who gives what: `2:VCPU=1`.
fn shown(candidate: &AllocationCandidate) -> String {
    let each = candidate.allocations.iter().flat_map(|allocation| {
        let number = allocation.resource_provider.rsplit('-').next();
        let number = number
            .unwrap_or_default()
            .trim_start_matches('0')
            .to_owned();
        let resources = allocation.resources.iter();
        resources.map(move |(class, amount)| format!("{number}:{class}={amount}"))
    });
    each.collect::<Vec<_>>().join(" ")
}

/// Returns all candidates in words, each once, after checking that each provider was summarised
/// once and in time.
fn all(messages: &[Message]) -> BTreeSet<String> {
    let (mut found, mut told) = (BTreeSet::new(), BTreeSet::new());
    for message in messages {
        assert_eq!(message.revision, messages[0].revision);
        for summary in &message.summaries {
            let name = &summary.resource_provider;
            assert!(told.insert(name.clone()), "{name} is summarised twice");
        }
        for candidate in &message.candidates {
            let mapped = candidate
                .mappings
                .iter()
                .flat_map(|m| &m.resource_providers);
            let taken = candidate.allocations.iter().map(|a| &a.resource_provider);
            assert!(mapped.chain(taken).all(|name| told.contains(name)));
            assert!(found.insert(format!("{candidate:?}")), "{candidate:?}");
        }
    }
    found
}

/// Two trees of a root with memory and two cells with CPUs, and a disk that both share. The second
/// tree is the faster one.
async fn two_trees() -> (Cluster, Client) {
    let cluster = Cluster::start(1).await;
    let mut on = PlacementServiceClient::new(cluster.channel().await);
    for (root, quality) in [(10, "HW_CPU_X86_SSE"), (20, "HW_CPU_X86_AVX2")] {
        provider(&mut on, root, None, &[("MEMORY_MB", 4096)], &[quality]).await;
        provider(
            &mut on,
            root + 1,
            Some(root),
            &[("VCPU", 4)],
            &["HW_NUMA_ROOT"],
        )
        .await;
        provider(
            &mut on,
            root + 2,
            Some(root),
            &[("VCPU", 2)],
            &["HW_NUMA_ROOT"],
        )
        .await;
        aggregate(&mut on, root).await;
    }
    let shares = &["MISC_SHARES_VIA_AGGREGATE"];
    provider(&mut on, 90, None, &[("DISK_GB", 100)], shares).await;
    aggregate(&mut on, 90).await;
    (cluster, on)
}

fn texts(texts: &[&str]) -> Vec<String> {
    texts.iter().map(ToString::to_string).collect()
}

fn cpu(amount: u64) -> CandidateGroup {
    group("_C", &[("VCPU", amount)])
}

fn memory() -> CandidateGroup {
    group("_M", &[("MEMORY_MB", 1)])
}

/// A query for so many CPUs, with what is changed in it.
fn changed(amount: u64, change: impl FnOnce(&mut Query)) -> Query {
    let mut query = asking(&[cpu(amount)]);
    change(&mut query);
    query
}

/// Goal: each requirement of a group reaches the search. Method: each narrows a query down to the
/// candidates that are named.
#[tokio::test(flavor = "multi_thread")]
async fn every_part_of_a_group_counts() {
    let (_cluster, mut on) = two_trees().await;
    let everything = group("", &[("VCPU", 3), ("MEMORY_MB", 64), ("DISK_GB", 5)]);
    let fast = CandidateGroup {
        required_traits: vec![AnyTrait {
            traits: texts(&["HW_CPU_X86_AVX2", "HW_GPU_API_VULKAN"]),
        }],
        ..everything.clone()
    };
    let inside = CandidateGroup {
        member_of: vec![AnyAggregate {
            aggregates: texts(&[AGGREGATE]),
        }],
        ..memory()
    };
    let outside = CandidateGroup {
        forbidden_aggregates: texts(&[AGGREGATE]),
        ..memory()
    };
    let whole = "10:MEMORY_MB=64 11:VCPU=3 90:DISK_GB=5|20:MEMORY_MB=64 21:VCPU=3 90:DISK_GB=5";
    let none = |q: &mut Query| q.groups[0].forbidden_traits = texts(&["HW_NUMA_ROOT"]);
    check(
        &mut on,
        &[
            (asking(&[cpu(1)]), "11:VCPU=1|12:VCPU=1|21:VCPU=1|22:VCPU=1"),
            (asking(&[cpu(3)]), "11:VCPU=3|21:VCPU=3"),
            (changed(3, |q| q.groups[0].in_tree = name(22)), "21:VCPU=3"),
            (changed(1, none), ""),
            (asking(&[everything]), whole),
            (asking(&[fast]), whole.split('|').nth(1).unwrap_or_default()),
            (asking(&[inside]), "10:MEMORY_MB=1|20:MEMORY_MB=1"),
            (asking(&[outside]), ""),
        ],
    )
    .await;
}

/// Goal: what a query says beside its groups reaches the search. Method: as above.
#[tokio::test(flavor = "multi_thread")]
async fn every_part_beside_the_groups_counts() {
    let (_cluster, mut on) = two_trees().await;
    let two = |policy| {
        let mut query = asking(&[cpu(2), group("_D", &[("VCPU", 2)])]);
        query.set_group_policy(policy);
        query.groups[0].in_tree = name(12);
        query
    };
    let subtree = |suffixes: &[&str]| Query {
        root_required_traits: texts(&["HW_CPU_X86_SSE"]),
        same_subtree: vec![SameSubtree {
            suffixes: texts(suffixes),
        }],
        ..asking(&[memory(), cpu(3), group("_D", &[("VCPU", 1)])])
    };
    let flat = Query {
        flat: true,
        ..asking(&[group("", &[("VCPU", 3), ("MEMORY_MB", 64)])])
    };
    let fast = || texts(&["HW_CPU_X86_AVX2"]);
    let both = "10:MEMORY_MB=1 11:VCPU=4|10:MEMORY_MB=1 11:VCPU=3 12:VCPU=1";
    check(
        &mut on,
        &[
            (changed(3, |q| q.root_required_traits = fast()), "21:VCPU=3"),
            (
                changed(3, |q| q.root_forbidden_traits = fast()),
                "11:VCPU=3",
            ),
            (two(GroupPolicy::None), "11:VCPU=4|11:VCPU=2 12:VCPU=2"),
            (two(GroupPolicy::Isolate), "11:VCPU=2 12:VCPU=2"),
            (subtree(&["_M", "_C"]), both),
            (subtree(&["_C", "_D"]), "10:MEMORY_MB=1 11:VCPU=4"),
            (flat, ""),
        ],
    )
    .await;
    let first = |order: Order, seed| {
        let mut query = changed(1, |q| (q.limit, q.seed) = (1, Some(seed)));
        query.set_order(order);
        query
    };
    let mut seen = [BTreeSet::new(), BTreeSet::new()];
    for seed in 0..32 {
        for (order, seen) in [Order::Stable, Order::Rotated].into_iter().zip(&mut seen) {
            let (messages, end) = read(&mut on, first(order, seed)).await;
            end.expect("an answer");
            assert_eq!(messages[0].candidates.len(), 1);
            seen.insert(shown(&messages[0].candidates[0]));
        }
    }
    assert_eq!((seen[0].len(), seen[1].len()), (1, 4), "{seen:?}");
}

async fn check(on: &mut Client, table: &[(Query, &str)]) {
    for (query, expected) in table {
        let (messages, end) = read(on, query.clone()).await;
        end.expect("an answer");
        all(&messages);
        let candidates = messages.iter().flat_map(|m| &m.candidates);
        let found: BTreeSet<String> = candidates.map(shown).collect();
        let expected = expected.split('|').filter(|text| !text.is_empty());
        let expected: BTreeSet<String> = expected.map(ToOwned::to_owned).collect();
        assert_eq!(found, expected, "{query:?}");
        let explained = messages.iter().any(|m| m.explanation.is_some());
        assert_eq!(explained, expected.is_empty(), "{query:?}");
    }
}

/// Goal: summaries say what candidates are judged by, of the providers or of whole trees.
#[tokio::test(flavor = "multi_thread")]
async fn summaries_are_of_what_is_named_or_of_whole_trees() {
    let (_cluster, mut on) = two_trees().await;
    for (whole_trees, expected) in [(false, &[11_u32][..]), (true, &[10, 11, 12])] {
        let query = changed(3, |q| {
            q.groups[0].in_tree = name(10);
            q.whole_trees = whole_trees;
        });
        let (messages, _) = read(&mut on, query).await;
        let summaries = messages.iter().flat_map(|m| &m.summaries);
        let summaries: BTreeMap<_, _> = summaries.map(|s| (&*s.resource_provider, s)).collect();
        let expected: Vec<String> = expected.iter().map(|number| name(*number)).collect();
        assert_eq!(
            summaries.keys().collect::<Vec<_>>(),
            expected.iter().collect::<Vec<_>>()
        );
        let summary = summaries[&*name(11)];
        assert_eq!(
            (&*summary.display_name, &*summary.traits),
            ("p11", &texts(&["HW_NUMA_ROOT"])[..])
        );
        assert_eq!((&*summary.parent, &*summary.root), (&*name(10), &*name(10)));
        assert_eq!(
            (
                summary.resources["VCPU"].capacity,
                summary.resources["VCPU"].used
            ),
            (4, 0)
        );
    }
}

/// Goal: where there is no candidate, the answer says what removed how many, and what came
/// nearest. Method: a query that fails by an amount, one that fails by the groups beside each
/// other, and one for what nobody has.
#[tokio::test(flavor = "multi_thread")]
async fn why_there_are_none_is_told() {
    let (_cluster, mut on) = two_trees().await;
    let mut explained = async |query| {
        let (mut messages, end) = read(&mut on, query).await;
        end.expect("an answer");
        assert_eq!(messages.len(), 1);
        let explanation = messages.remove(0).explanation.expect("an explanation");
        assert_eq!((explanation.providers, explanation.trees), (7, 3));
        explanation
    };
    let too_many = explained(asking(&[cpu(5)])).await;
    let removals: Vec<_> = too_many
        .removals
        .iter()
        .map(|r| {
            let requirement = r.requirement.as_ref().expect("a requirement");
            (r.suffix.as_deref(), requirement.kind(), r.removed, r.left)
        })
        .collect();
    let expected = [
        (Some("_C"), Kind::ResourceClass, 3, 4),
        (Some("_C"), Kind::Free, 4, 0),
        (None, Kind::EachGroup, 3, 0),
    ];
    assert_eq!(removals, expected, "{}", too_many.text);
    let nearest = too_many.nearest.expect("a tree");
    assert_eq!(
        (&*nearest.root_display_name, &*nearest.display_name),
        ("p10", "p11")
    );
    let missing = nearest.missing.expect("a shortfall");
    assert_eq!(
        (&*missing.resource, missing.requested, missing.available),
        ("VCPU", 5, 4)
    );

    let mut apart = asking(&[cpu(3), group("_D", &[("VCPU", 3)])]);
    apart.set_group_policy(GroupPolicy::Isolate);
    let nearest = explained(apart).await.nearest.expect("a tree");
    let requirement = nearest.requirement.expect("a requirement");
    assert_eq!((requirement.kind(), nearest.suffix), (Kind::Beside, None));

    let elsewhere = explained(asking(&[group("_G", &[("VGPU", 1)])])).await;
    assert!(
        elsewhere.text.contains("an inventory of VGPU: removed 7"),
        "{}",
        elsewhere.text
    );
}

/// Goal: what cannot be answered is refused with its reason. Method: a table.
#[tokio::test(flavor = "multi_thread")]
async fn wrong_queries_are_refused() {
    let (_cluster, mut on) = two_trees().await;
    let many = |count: usize| (0..count).map(|n| format!("CUSTOM_{n}")).collect();
    for (query, reason) in [
        (asking(&[]), "INVALID_QUERY"),
        (asking(&[group("_C", &[])]), "INVALID_QUERY"),
        (asking(&[group("", &[]), cpu(1)]), "INVALID_QUERY"),
        (asking(&[cpu(0)]), "INVALID_FIELD"),
        (asking(&[cpu(1), cpu(2)]), "INVALID_FIELD"),
        (asking(&[group("a b", &[("VCPU", 1)])]), "INVALID_FIELD"),
        (
            asking(&[group(&"x".repeat(65), &[("VCPU", 1)])]),
            "INVALID_FIELD",
        ),
        (
            asking(&[group("_C", &[("CUSTOM_NONE", 1)])]),
            "UNKNOWN_RESOURCE_CLASS",
        ),
        (
            changed(1, |q| q.root_required_traits = texts(&["CUSTOM_NONE"])),
            "UNKNOWN_TRAIT",
        ),
        (
            changed(1, |q| q.groups[0].forbidden_traits = many(1)),
            "UNKNOWN_TRAIT",
        ),
        (
            changed(1, |q| q.groups[0].forbidden_traits = many(1001)),
            "INVALID_FIELD",
        ),
        (
            changed(1, |q| q.groups[0].in_tree = "x".to_owned()),
            "INVALID_FIELD",
        ),
        (changed(1, |q| q.group_policy = 9), "INVALID_FIELD"),
        (changed(1, |q| q.order = 9), "INVALID_FIELD"),
        (
            changed(1, |q| {
                q.same_subtree = vec![SameSubtree {
                    suffixes: texts(&["_X"]),
                }]
            }),
            "INVALID_QUERY",
        ),
        (
            asking(
                &(0..257)
                    .map(|n| group(&format!("_{n}"), &[("VCPU", 1)]))
                    .collect::<Vec<_>>(),
            ),
            "INVALID_FIELD",
        ),
    ] {
        assert_eq!(refused(&mut on, query.clone()).await, reason, "{query:?}");
    }
}

/// One tree with 30 cells, so that three groups have 27,000 candidates and four 810,000.
async fn wide(request_timeout_ms: u64) -> (tempfile::TempDir, Member, Client) {
    let folder = tempfile::tempdir().expect("a folder");
    let config = berth_scheduler::Config {
        request_timeout_ms,
        ..config(&folder.path().join("0"), Start::Bootstrap)
    };
    let member = Member::start(config).await;
    common::eventually("a leader", || async {
        member.handle.leader().role.deciding.then_some(())
    })
    .await;
    let mut on = PlacementServiceClient::new(member.channel().await);
    provider(&mut on, 1, None, &[], &[]).await;
    for cell in 2..32 {
        provider(&mut on, cell, Some(1), &[("VCPU", 100)], &[]).await;
    }
    (folder, member, on)
}

fn groups(count: usize) -> Query {
    let group = |n| group(&format!("_{n}"), &[("VCPU", 1)]);
    asking(&(0..count).map(group).collect::<Vec<_>>())
}

/// Goal: an answer without a limit comes in bounded messages, all of one revision, each candidate
/// once, while others write and search. Method: after the first message something is written that
/// would change what is found.
#[tokio::test(flavor = "multi_thread")]
async fn a_long_answer_comes_in_bounded_messages_of_one_revision() {
    let (_folder, _member, mut on) = wide(10_000).await;
    let answer = on.find_allocation_candidates(groups(3)).await;
    let mut stream = answer.expect("an answer").into_inner();
    let mut messages = vec![stream.message().await.expect("no end").expect("a message")];
    provider(&mut on, 99, Some(1), &[("VCPU", 100)], &[]).await;
    let (others, end) = read(&mut on, changed(1, |q| q.limit = 100)).await;
    end.expect("an answer");
    assert_eq!(all(&others).len(), 31);
    while let Some(message) = stream.message().await.expect("no error") {
        messages.push(message);
    }
    assert_eq!(all(&messages).len(), 27_000);
    let longest = messages.iter().map(prost::Message::encoded_len).max();
    assert!(
        longest.is_some_and(|bytes| bytes < 140 << 10),
        "{longest:?}"
    );
    let most = messages.iter().map(|m| m.candidates.len()).max();
    assert!(most.is_some_and(|candidates| candidates <= 256), "{most:?}");
}

/// Goal: a search is bounded, and the error says how to ask for less.
#[tokio::test(flavor = "multi_thread")]
async fn a_search_without_end_is_stopped() {
    let (_folder, _member, mut on) = wide(10_000).await;
    let (messages, end) = read(&mut on, groups(4)).await;
    let refusal = from_status(&end.expect_err("a bound"));
    assert_eq!(refusal.reason, "SEARCH_BOUND");
    assert!(refusal.message.contains("`limit`"), "{refusal}");
    let sent: usize = messages.iter().map(|m| m.candidates.len()).sum();
    assert_eq!(refusal.metadata["found"], sent.to_string());
    let limited = Query {
        limit: 1000,
        ..groups(4)
    };
    let (messages, end) = read(&mut on, limited).await;
    end.expect("an answer");
    assert_eq!(all(&messages).len(), 1000);
}

/// Goal: a client that goes away frees its place at once, and one that does not read is let go of.
/// Method: more answers without end than may be kept waiting, first dropped, then not read; one
/// more of them begins nevertheless.
#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_does_not_read_is_let_go_of() {
    let (_folder, member, mut on) = wide(2000).await;
    for _ in 0..20 {
        let answer = on.find_allocation_candidates(groups(4)).await;
        let mut stream = answer.expect("a place").into_inner();
        stream.message().await.expect("no end");
    }
    let mut unread = Vec::new();
    for _ in 0..8 {
        // Each over a connection of its own, so that none keeps the others from their bytes.
        let mut on = PlacementServiceClient::new(member.channel().await);
        let answer = on.find_allocation_candidates(groups(4)).await;
        unread.push(answer.expect("a place").into_inner());
    }
    common::eventually("a place", || async {
        let mut on = PlacementServiceClient::new(member.channel().await);
        match on.find_allocation_candidates(groups(4)).await {
            Ok(_) => Some(()),
            Err(status) => {
                assert_eq!(from_status(&status).reason, "TOO_MANY_SEARCHES");
                None
            }
        }
    })
    .await;
    let mut reasons = Vec::new();
    for mut stream in unread {
        let ended = loop {
            match stream.message().await {
                Ok(message) => assert!(message.is_some(), "the answer has an end"),
                Err(status) => break from_status(&status).reason,
            }
        };
        if ended == "READER_TOO_SLOW" {
            return;
        }
        reasons.push(ended);
    }
    panic!("nobody was let go of: {reasons:?}");
}
