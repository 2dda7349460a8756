//! Certificates and authorities that are exchanged while requests go on.

use berth_process::access;
use berth_proto::client::{Dialer, SchedulerChannel};
use berth_proto::event::v1::WatchRequest;
use berth_proto::event::v1::event_service_client::EventServiceClient;
use berth_proto::scheduler::v1::scheduler_service_client::SchedulerServiceClient;
use berth_proto::scheduler::v1::{CreateFlavorRequest, DeleteFlavorRequest, ListVmsRequest};
use berth_proto::status::from_status;
use berth_proto::types::v1 as wire;
use berth_tests::processes::{Certs, Cluster, Host, eventually};
use berth_tls::{Expected, Files, Role, Tls};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::{channel, create_flavor, runtime};
use crate::PROGRAMS;

/// Goal: all certificates are exchanged while requests go on, and none is lost. Method: users who make
/// and delete flavors, look, and boot and delete guests through a conductor, while every file is
/// renewed twice.
#[test]
fn a_rotation_under_load_loses_nothing() {
    let cluster = Cluster::builder(PROGRAMS)
        .host(Host::new("h1"))
        .certified()
        .start();
    create_flavor(&cluster);
    let runtime = runtime();
    let stopping = CancellationToken::new();
    let tls = cluster.certificates().tls(Role::Operator, "ann");
    runtime.spawn(tls.clone().follow(stopping.clone()));
    let urls = cluster
        .schedulers
        .iter()
        .map(|s| format!("https://{}", s.address));
    let scheduler = SchedulerChannel::new(urls)
        .unwrap()
        .with_dialer(Dialer::new(Some(tls)));
    let users: Vec<_> = (0..4)
        .map(|number| runtime.spawn(use_it(scheduler.clone(), number, stopping.clone())))
        .collect();
    let parts = || {
        let parts = cluster.schedulers.iter().chain(&cluster.conductors);
        parts.chain(&cluster.agents)
    };
    for round in 1..=2 {
        cluster.certificates().renew_all();
        let vm = format!("vm-{round}");
        eventually("new certificates everywhere", || {
            // Users of the command too: each is a new process with what is in the files just now.
            cluster.run(&Cluster::create(&vm, "f"));
            cluster.run(&["vm", "delete", &vm]);
            let late = parts().find(|part| {
                let taken = part.said().matches("certificates reloaded").count();
                taken < round
            });
            late.map_or(Ok(()), |part| {
                Err(format!("{} has the old ones", part.name))
            })
        });
    }
    // Everything that is open now was made with the new ones, or serves on.
    cluster.run(&Cluster::create("last", "f"));
    stopping.cancel();
    let mut made = 0;
    for user in users {
        made += runtime.block_on(user).unwrap();
    }
    assert!(made >= 40, "requests went on: {made}");
    println!("{made} requests during two rotations, none lost");
}

/// Makes and deletes flavors until it is told to stop, and returns how many requests were answered.
/// Each has to be answered well.
async fn use_it(scheduler: SchedulerChannel, user: u32, stopping: CancellationToken) -> u32 {
    let mut answered = 0;
    while !stopping.is_cancelled() {
        let name = format!("flavor-{user}-{answered}");
        let create = CreateFlavorRequest {
            flavor: Some(wire::Flavor {
                name: format!("flavors/{name}"),
                vcpus: 1,
                memory_mib: 64,
                ..wire::Flavor::default()
            }),
            request_id: Uuid::now_v7().to_string(),
        };
        let delete = DeleteFlavorRequest {
            name: format!("flavors/{name}"),
            request_id: Uuid::now_v7().to_string(),
        };
        let made = scheduler.call(|channel| {
            let create = create.clone();
            async move {
                SchedulerServiceClient::new(channel)
                    .create_flavor(create)
                    .await
            }
        });
        made.await.expect("a flavor is made");
        let seen = scheduler.call(|channel| async move {
            let list = ListVmsRequest::default();
            SchedulerServiceClient::new(channel).list_vms(list).await
        });
        seen.await.expect("guests are listed");
        let gone = scheduler.call(|channel| {
            let delete = delete.clone();
            async move {
                SchedulerServiceClient::new(channel)
                    .delete_flavor(delete)
                    .await
            }
        });
        gone.await.expect("a flavor is deleted");
        answered += 3;
    }
    answered
}

/// Goal: an authority that is taken out of the files of a member lets nobody in any more who is in
/// already: streams that are open end, and the next request is not answered. Everybody else goes on.
#[test]
fn an_authority_that_is_taken_away_lets_nobody_go_on() {
    let cluster = Cluster::builder(PROGRAMS)
        .schedulers(1)
        .conductors(0)
        .certified()
        .start();
    let own = cluster.certificates();
    let other = Certs::new(cluster.folder().join("other"), [127, 0, 0, 1].into());
    let read = |certs: &Certs| std::fs::read_to_string(certs.ca()).unwrap();
    let (only, both) = (read(own), read(own) + &read(&other));
    let member = &cluster.schedulers[0];
    let is_taken = |times: usize| {
        eventually("other authorities", || {
            let taken = member.said().matches("certificates reloaded").count();
            (taken >= times).then_some(()).ok_or(taken)
        });
    };
    std::fs::write(own.ca(), both).unwrap();
    is_taken(1);
    let files = Files {
        ca: own.ca(),
        ..other.files(Role::Operator, "eve")
    };
    let eve = Tls::open(files).unwrap();
    let ann = own.tls(Role::Operator, "ann");
    runtime().block_on(async {
        let open = |tls: &Tls| channel(tls.clone(), &member.address, Expected::Scheduler);
        let list = ListVmsRequest::default();
        let mut channels = Vec::new();
        for tls in [&eve, &ann] {
            let channel = open(tls);
            let mut client = SchedulerServiceClient::new(channel.clone());
            client.list_vms(list.clone()).await.unwrap();
            let mut events = EventServiceClient::new(channel.clone());
            let events = events.watch(WatchRequest::default()).await.unwrap();
            channels.push((client, events.into_inner()));
        }
        std::fs::write(own.ca(), only).unwrap();
        is_taken(2);
        let (client, events) = &mut channels[0];
        // What was on its way may still come.
        let ended = loop {
            match events.message().await {
                Ok(Some(_)) => {}
                ended => break ended,
            }
        };
        assert!(!matches!(ended, Ok(Some(_))));
        let refused = client.list_vms(list.clone()).await.unwrap_err();
        let reason = from_status(&refused).reason;
        assert!(
            berth_proto::client::is_unanswered(&refused) || reason == access::NOT_TRUSTED,
            "{refused:?}"
        );
        let (client, _events) = &mut channels[1];
        client.list_vms(list).await.unwrap();
    });
}
