//! Volumes over mutual TLS: a controller calls schedulers and agents, under names of ours and under
//! those of PMEM-CSI. That Kubernetes calls the controller is in the target `real`.
//!
//! Goal: row C5. Who is a controller and who is a host's agent is what their certificates say, and
//! nobody else is taken for one. Method: whole processes with simulated memory.

use berth_process::access;
use berth_proto::host::v1::ReportHostRequest;
use berth_proto::host::v1::host_service_client::HostServiceClient;
use berth_proto::status::from_status;
use berth_tests::processes::csi::volume_request;
use berth_tests::processes::{Answer, Cluster, Csi, Host, eventually};
use berth_tls::{Expected, Files, Role, Tls};

use super::{ask_unreadably, channel, runtime};
use crate::PROGRAMS;

const MIB: i64 = 1 << 20;

#[test]
fn a_controller_and_its_hosts_know_each_other() {
    let host = |name| Host::new(name).with_volumes("sim", &["region0:1024"], "");
    let mut cluster = Cluster::builder(PROGRAMS)
        .schedulers(1)
        .conductors(0)
        .host(host("h1"))
        .host(host("h2"))
        .certified()
        .start();
    let csi = cluster.add_csi_controller();
    makes_and_deletes(&csi, "under-our-names");
    expect_asked(&cluster, "csi-controller:csi-controller-1");

    under_the_names_of_pmem_csi(&mut cluster, &csi);
    the_wrong_do_not_start(&mut cluster);
}

/// The controller asks the scheduler, which chooses, and the agent, which makes it.
fn makes_and_deletes(csi: &Csi, name: &str) {
    for number in 0..2 {
        let name = format!("{name}-{number}");
        let volume = eventually("a volume", || csi.create(&volume_request(&name, 64 * MIB)));
        csi.delete(&volume.volume_id).unwrap();
    }
}

fn expect_asked(cluster: &Cluster, principal: &str) {
    let listed = cluster.json(&["audit", "list", "--principal", principal]);
    let methods = listed.as_array().unwrap().iter();
    let mut methods: Vec<&str> = methods
        .filter_map(|entry| entry["asked"]["method"].as_str())
        .collect();
    methods.sort_unstable();
    methods.dedup();
    for method in ["CreateVolume", "DeleteVolume"] {
        assert!(methods.contains(&method), "{principal}: {methods:?}");
    }
}

/// Makes a certificate by command, as a person does.
fn issue(cluster: &Cluster, role: &str, name: &str, dns: &[&str]) -> Files {
    let directory = cluster.certificates().directory().to_owned();
    let ip = cluster.schedulers[0]
        .address
        .rsplit_once(':')
        .unwrap()
        .0
        .to_owned();
    let mut command = cluster.programs.command("berth");
    command.args(["certs", "issue"]).arg(&directory);
    command.args(["--role", role, "--name", name, "--ip", &ip]);
    command.args(dns.iter().flat_map(|dns| ["--dns", dns]));
    let _ = Answer::of(command).with_status(0);
    let pair = berth_tls::authority::Pair::named(&directory, &format!("{role}-{name}"));
    Files {
        ca: cluster.certificates().ca(),
        cert: pair.cert,
        key: pair.key,
    }
}

/// Puts a certificate in the place of another one.
fn install(files: &Files, over: &Files) {
    std::fs::copy(&files.key, &over.key).unwrap();
    std::fs::copy(&files.cert, &over.cert).unwrap();
}

/// Goal: PMEM-CSI's own certificates are enough: of its registry for the controller, of its node
/// controller for the agents of the hosts that it names, and for nothing else.
fn under_the_names_of_pmem_csi(cluster: &mut Cluster, csi: &Csi) {
    let registry = issue(cluster, "csi-controller", "pmem-registry", &[]);
    let nodes = issue(cluster, "agent", "pmem-node-controller", &["h1", "h2"]);
    let own = |role, name: &str| cluster.certificates().files(role, name);
    let controller = own(Role::CsiController, "csi-controller-1");
    let agents = [own(Role::Agent, "h1"), own(Role::Agent, "h2")];
    install(&registry, &controller);
    let programs = cluster.programs.clone();
    for (agent, files) in cluster.agents.iter_mut().zip(&agents) {
        agent.kill();
        install(&nodes, files);
        agent.start(&programs);
    }
    cluster.csi_controllers[0].kill();
    cluster.csi_controllers[0].start(&programs);
    cluster.wait();
    makes_and_deletes(csi, "under-theirs");
    expect_asked(cluster, "csi-controller:pmem-registry");
    let scheduler = &cluster.schedulers[0].address;
    let agent = &cluster.agents[0].address;
    runtime().block_on(async {
        let tls = |files: &Files| Tls::open(files.clone()).unwrap();
        // Each may what its role may.
        for (files, address, method) in [
            (
                &registry,
                scheduler,
                "berth.cluster.v1.ClusterService/JoinCluster",
            ),
            (
                &registry,
                scheduler,
                "berth.volume.v1.VolumeService/ReportVolumes",
            ),
            (
                &registry,
                agent,
                "berth.agent.v1.ComputeAgentService/SpawnVm",
            ),
            (
                &nodes,
                scheduler,
                "berth.cluster.v1.ClusterService/AddMember",
            ),
            (
                &nodes,
                agent,
                "berth.agent.v1.VolumeAgentService/SyncVolume",
            ),
        ] {
            let mut channel = channel(tls(files), address, Expected::AnyServer);
            let (code, message) = ask_unreadably(&mut channel, method).await;
            assert_eq!(code, "7", "{method}: {message}");
        }
        let report = |host: &str| ReportHostRequest {
            name: format!("hosts/{host}"),
            ..ReportHostRequest::default()
        };
        let channel = channel(tls(&nodes), scheduler, Expected::Scheduler);
        let mut hosts = HostServiceClient::new(channel);
        let refused = hosts.report_host(report("h3")).await.unwrap_err();
        assert_eq!(from_status(&refused).reason, access::NOT_YOURS);
        let own = hosts.report_host(report("h2")).await;
        let reason = own.map_err(|status| from_status(&status).reason);
        assert_ne!(reason.err().as_deref(), Some(access::NOT_YOURS));
    });
    // Neither is taken for a scheduler, nor the one for an agent or the other for a controller.
    for (files, expected) in [
        (&registry, Expected::Scheduler),
        (&registry, Expected::Agent("h1".to_owned())),
        (&nodes, Expected::Scheduler),
        (&nodes, Expected::Agent("h3".to_owned())),
    ] {
        let identity = Tls::open(files.clone()).unwrap().identity();
        assert!(expected.check("server", &identity).is_err(), "{expected:?}");
    }
    let meant = Expected::Agent("h1".to_owned());
    let identity = Tls::open(nodes).unwrap().identity();
    meant.check("server", &identity).unwrap();
}

/// Goal: a controller with the certificate of somebody else, or of an authority that schedulers do not
/// trust, is none.
fn the_wrong_do_not_start(cluster: &mut Cluster) {
    let controller = cluster
        .certificates()
        .files(Role::CsiController, "csi-controller-1");
    let programs = cluster.programs.clone();
    cluster.csi_controllers[0].kill();
    for (role, name) in [(Role::Agent, "h1"), (Role::Operator, "ann")] {
        install(&cluster.certificates().files(role, name), &controller);
        let told = cluster.csi_controllers[0].fails(&programs, 1);
        assert!(
            told.contains("a csi-controller needs one of its own"),
            "{told}"
        );
    }
}
