//! PCI aliases from the request to the VM that carries its copy.

use berth_domain::refusal::Refusal;
use berth_proto::scheduler::v1::{
    CreatePciAliasRequest, DeletePciAliasRequest, GetPciAliasRequest, ListPciAliasesRequest,
};
use berth_proto::status::from_status;
use berth_proto::types::v1::{PciAlias, PciMatch, PciNumaPolicy};
use tonic::transport::Channel;

use crate::common::world::{flavor_request, register, schedule, vm_request};
use crate::common::{Cluster, schedulers};

fn alias(name: &str) -> PciAlias {
    PciAlias {
        name: format!("pciAliases/{name}"),
        any_of: vec![PciMatch {
            vendor_id: "8086".into(),
            product_id: "154c".into(),
            ..PciMatch::default()
        }],
        policy: PciNumaPolicy::Socket.into(),
    }
}

async fn create(channel: &Channel, alias: PciAlias) -> Result<PciAlias, Refusal> {
    let request = CreatePciAliasRequest {
        pci_alias: Some(alias),
        request_id: String::new(),
    };
    let answer = schedulers(channel).create_pci_alias(request).await;
    let answer = answer.map_err(|status| from_status(&status))?;
    Ok(answer.into_inner().pci_alias.expect("the alias"))
}

/// Goal: an alias is made, shown, listed page by page and deleted, each refusal with its reason.
#[tokio::test(flavor = "multi_thread")]
async fn aliases_are_made_listed_and_deleted() {
    let cluster = Cluster::start(1).await;
    let channel = cluster.channel().await;
    for name in ["c", "a", "b"] {
        assert_eq!(create(&channel, alias(name)).await, Ok(alias(name)));
    }
    let told = create(&channel, alias("a")).await.expect_err("it is there");
    assert_eq!(told.reason, "PCI_ALIAS_EXISTS");

    let mut request = ListPciAliasesRequest {
        page_size: 2,
        ..Default::default()
    };
    let mut names: Vec<Vec<String>> = Vec::new();
    loop {
        let page = schedulers(&channel).list_pci_aliases(request.clone()).await;
        let page = page.expect("a page").into_inner();
        names.push(page.pci_aliases.iter().map(|a| a.name.clone()).collect());
        if page.next_page_token.is_empty() {
            break;
        }
        request.page_token = page.next_page_token;
    }
    let pages: [Vec<&str>; 2] = [vec!["pciAliases/a", "pciAliases/b"], vec!["pciAliases/c"]];
    assert_eq!(
        names,
        pages.map(|p| p.iter().map(|n| (*n).to_owned()).collect::<Vec<_>>())
    );

    let name = "pciAliases/a".to_owned();
    let get = GetPciAliasRequest {
        name: name.clone(),
        consistency: 0,
    };
    let answer = schedulers(&channel).get_pci_alias(get.clone()).await;
    assert_eq!(
        answer.expect("it is there").into_inner().pci_alias,
        Some(alias("a"))
    );
    let delete = DeletePciAliasRequest {
        name,
        request_id: String::new(),
    };
    let answer = schedulers(&channel).delete_pci_alias(delete.clone()).await;
    answer.expect("it was there");
    let told = schedulers(&channel)
        .get_pci_alias(get)
        .await
        .expect_err("gone");
    assert_eq!(from_status(&told).reason, "PCI_ALIAS_NOT_FOUND");
    let told = schedulers(&channel)
        .delete_pci_alias(delete)
        .await
        .expect_err("gone");
    assert_eq!(from_status(&told).reason, "PCI_ALIAS_NOT_FOUND");
}

/// Goal: what makes no sense is refused with the field. Method: one change to a good alias each.
#[tokio::test(flavor = "multi_thread")]
async fn wrong_aliases_are_refused_with_their_field() {
    let cluster = Cluster::start(1).await;
    let channel = cluster.channel().await;
    let changed = |change: &dyn Fn(&mut PciAlias)| {
        let mut changed = alias("a");
        change(&mut changed);
        changed
    };
    let tag = |key: &'static str, value: &'static str| {
        move |alias: &mut PciAlias| {
            let tags = &mut alias.any_of[0].tags;
            tags.insert(key.to_owned(), value.to_owned());
        }
    };
    let table: [(PciAlias, &str, &str); 11] = [
        (
            changed(&|a| a.name = "pciAliases/".into()),
            "INVALID_FIELD",
            "pci_alias.name",
        ),
        (
            changed(&|a| a.name = "pciAliases/a b".into()),
            "INVALID_FIELD",
            "\"a b\"",
        ),
        (
            changed(&|a| a.name = "pciAliases/ä".into()),
            "INVALID_FIELD",
            "\"ä\"",
        ),
        (
            changed(&|a| a.name = "flavors/a".into()),
            "INVALID_FIELD",
            "pciAliases/{pci alias}",
        ),
        (
            changed(&|a| a.policy = 9),
            "INVALID_FIELD",
            "pci_alias.policy",
        ),
        (
            changed(&|a| a.any_of[0].kind = 9),
            "INVALID_FIELD",
            "any_of[0].kind",
        ),
        (changed(&|a| a.any_of.clear()), "INVALID_FIELD", "any_of"),
        (
            changed(&|a| a.any_of[0].vendor_id = "x".into()),
            "INVALID_FIELD",
            "vendor_id",
        ),
        (
            changed(&|a| a.any_of[0] = PciMatch::default()),
            "INVALID_PCI_ALIAS",
            "any_of[0] = \"(empty)\": must say something",
        ),
        (
            changed(&|a| a.any_of = vec![a.any_of[0].clone(); 2]),
            "INVALID_PCI_ALIAS",
            "any_of[1] = \"8086:154c\": is there twice",
        ),
        (
            changed(&tag("live_migratable", "perhaps")),
            "INVALID_PCI_ALIAS",
            "live_migratable = \"perhaps\": must be yes or no",
        ),
    ];
    for (alias, reason, words) in table {
        let told = create(&channel, alias).await.expect_err(words);
        assert_eq!(told.reason, reason, "{told}");
        assert!(told.message.contains(words), "{told}");
    }
    let list = ListPciAliasesRequest::default();
    let list = schedulers(&channel).list_pci_aliases(list).await;
    assert!(list.expect("a list").into_inner().pci_aliases.is_empty());
}

/// Goal: a flavor may be made before its alias, but no VM of it; the refusal names key and alias
/// and says what to type.
#[tokio::test(flavor = "multi_thread")]
async fn an_alias_must_exist_when_a_vm_is_made() {
    let cluster = Cluster::start(1).await;
    let channel = cluster.channel().await;
    register(&channel, "h1", 1, 4).await;
    let specs = [("pci_passthrough:alias", "nic:1,gpu:2")];
    let made = schedulers(&channel)
        .create_flavor(flavor_request("fast", 1, &specs))
        .await;
    made.expect("aliases may come later");
    create(&channel, alias("nic")).await.expect("a good alias");
    let status = schedule(&channel, vm_request("a", "fast"))
        .await
        .expect_err("no gpu");
    let told = from_status(&status);
    assert_eq!(told.reason, "INVALID_VM");
    let words = "extra_specs.pci_passthrough:alias = \"gpu\": is not a PCI alias of this cluster";
    assert!(told.message.contains(words), "{told}");
    assert!(!told.message.contains("nic"), "{told}");
    let hint = told.hint.unwrap_or_default();
    assert!(hint.contains("berth pci-alias create gpu"), "{hint}");
}
