//! Networks: made once, never changed, and there as long as a VM is on them.

use berth_domain::network::{NETWORKS_MAX, Network};
use berth_domain::refusal::Refusal;
use berth_domain::version::ServiceVersion;
use berth_domain::vm::{Nic, VmSpec};
use berth_state::command::Command;
use berth_state::{Reply, State};
use berth_testkit::state::*;

fn on(network: &Network, number: u8) -> Nic {
    Nic {
        bridge: String::new(),
        network: Some(network.attachment()),
        mac: format!("52:54:00:00:00:{number:02x}"),
    }
}

fn spec(nics: Vec<Nic>) -> VmSpec {
    VmSpec { nics, ..pinned(1) }
}

fn create(world: &mut World, network: &Network) -> Result<Reply, Refusal> {
    world.run(Command::CreateNetwork(network.clone()))
}

fn delete(world: &mut World, network: &Network) -> Result<Reply, Refusal> {
    let network = network.name.clone();
    world.run(Command::DeleteNetwork { network })
}

fn tagged(name: &str) -> Network {
    let mut network = network(name);
    network.link.vlan = Some(7);
    network
}

/// Returns why a boot is refused.
fn of<T>(begun: Result<T, Refusal>) -> String {
    begun
        .err()
        .map_or("ok".to_owned(), |refused| refused.reason)
}

/// Goal: a network is there once, as it was made. Method: each request twice, and one that differs.
#[test]
fn a_network_is_made_once_and_deleted() {
    let mut world = World::with_hosts(1);
    let Ok(Reply::Network(made)) = create(&mut world, &network("web")) else {
        panic!("it is made");
    };
    assert_eq!(made.link, network("web").link);
    for other in [network("web"), tagged("web")] {
        let refused = create(&mut world, &other).unwrap_err();
        assert_eq!(refused.reason, "NETWORK_EXISTS");
        assert!(refused.hint.is_some());
    }
    delete(&mut world, &network("web")).unwrap();
    let refused = delete(&mut world, &network("web")).unwrap_err();
    assert_eq!(refused.reason, "NETWORK_NOT_FOUND");
    create(&mut world, &tagged("web")).unwrap();
}

/// Goal: no VM is on a network that there is not. Method: VMs on none, one and two networks, of which one
/// differs from the recorded one; deletions before, while and after VMs are on them.
#[test]
fn a_network_stays_as_long_as_a_vm_is_on_it() {
    let mut world = World::with_hosts(1);
    let (web, far) = (network("web"), tagged("far"));
    let refused = world.begin_boot("a", &spec(vec![on(&web, 1)]), "h1");
    assert_eq!(refused.unwrap_err().reason, "NETWORK_NOT_FOUND");
    create(&mut world, &web).unwrap();
    create(&mut world, &far).unwrap();
    let refused = world.begin_boot("a", &spec(vec![on(&tagged("web"), 1)]), "h1");
    assert_eq!(refused.unwrap_err().reason, "NETWORK_NOT_FOUND");

    world.boot("a", &spec(vec![on(&web, 1), on(&far, 2)]), "h1");
    world.boot("b", &spec(vec![on(&web, 3), on(&web, 4)]), "h1");
    world.boot("c", &pinned(1), "h1");
    let refused = delete(&mut world, &web).unwrap_err();
    assert_eq!(refused.reason, "NETWORK_IN_USE");
    assert_eq!(
        (&*refused.metadata["vms"], &*refused.metadata["vm"]),
        ("2", "a")
    );
    let refused = delete(&mut world, &far).unwrap_err();
    assert_eq!(refused.message, "network far is in use: vm a is on it");
    world.state.check().unwrap();
    assert!(State::from_rows(world.state.rows()).unwrap() == world.state);

    world.delete("a");
    delete(&mut world, &far).unwrap();
    assert_eq!(reason(&delete(&mut world, &web)), "NETWORK_IN_USE");
    world.delete("b");
    delete(&mut world, &web).unwrap();
    world.state.check().unwrap();
}

/// Goal: a host is claimed only if it reaches the guest's networks. Method: reports without a bridge, with
/// one that puts no port into a VLAN, and with a smaller MTU; networks that need none, each and all of it.
#[test]
fn a_claim_is_for_a_host_that_reaches_the_network() {
    for (can_tag, mtu) in [(true, 1500), (false, 1500), (true, 1400), (false, 1400)] {
        for (vlan, needed) in [
            (None, None),
            (Some(7), None),
            (None, Some(1500)),
            (Some(7), Some(1500)),
        ] {
            let mut world = World::with_hosts(1);
            let mut host = world
                .state
                .host(&host_name("h1"))
                .unwrap()
                .host
                .report
                .clone();
            host.networks[0].can_tag = can_tag;
            host.networks[0].mtu = mtu;
            world.register("h1", host).unwrap();
            let mut web = network("web");
            web.link.vlan = vlan;
            web.link.mtu = needed;
            create(&mut world, &web).unwrap();
            let booted = world.begin_boot("a", &spec(vec![on(&web, 1)]), "h1");
            let expected = match (vlan, needed) {
                (Some(_), _) if !can_tag => "NETWORK_NEEDS_VLANS",
                (_, Some(needed)) if needed > mtu => "NETWORK_MTU_TOO_LARGE",
                _ => "ok",
            };
            assert_eq!(of(booted), expected, "{vlan:?} {needed:?} {can_tag} {mtu}");
        }
    }
    let mut world = World::with_hosts(1);
    let mut host = world
        .state
        .host(&host_name("h1"))
        .unwrap()
        .host
        .report
        .clone();
    host.networks.clear();
    world.register("h1", host).unwrap();
    create(&mut world, &network("web")).unwrap();
    let booted = world.begin_boot("a", &spec(vec![on(&network("web"), 1)]), "h1");
    assert_eq!(of(booted), "NETWORK_NOT_ON_HOST");
}

#[test]
fn an_older_cluster_has_none_and_a_full_one_no_more() {
    let mut world = World::at_version(ServiceVersion(3), 1);
    let refused = create(&mut world, &network("web")).unwrap_err();
    assert_eq!(refused.reason, "CLUSTER_VERSION_TOO_OLD");
    assert_eq!(
        refused.metadata["needed_version"],
        ServiceVersion::NETWORKS.to_string()
    );

    let mut world = World::with_hosts(1);
    for number in 0..NETWORKS_MAX {
        create(&mut world, &network(&format!("n{number}"))).unwrap();
    }
    let refused = create(&mut world, &network("more")).unwrap_err();
    assert_eq!(refused.reason, "TOO_MANY_NETWORKS");
}
