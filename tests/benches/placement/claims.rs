//! Claims over REST: `PUT /allocations/{new consumer}` by clients that each wait for their answer,
//! beside etcd's puts of as many bytes.

use std::process::Child;
use std::sync::Arc;

use berth_tests::measure::etcd::{self, Etcd};
use bytes::Bytes;
use hyper::Method;
use serde_json::json;
use uuid::Uuid;

use crate::Bench;
use crate::measure::{Make, Measured, Server, measure};
use crate::peer::Peer;
use crate::rest::Ask;
use crate::{cpu, world};

/// Flat hosts on which claims are spread.
const HOSTS: usize = 1000;
/// Whose guests they are.
const PROJECT: &str = "5f3a1e6c-27b8-4f43-9f04-0d6a4a5cf001";

pub(crate) async fn claims(bench: &Bench) -> anyhow::Result<()> {
    println!("### Claims: PUT /allocations/{{new consumer}}, {HOSTS} hosts\n");
    println!(
        "| clients | server | members | per second | p50 ms | p99 ms | CPU ms | to etcd | to Placement |\n\
         |---|---|---|---|---|---|---|---|---|"
    );
    let folder = bench.folder.path();
    let members = bench.options.members;
    let trees: Vec<_> = (0..HOSTS).map(|at| world::flat(at, HOSTS)).collect();
    let clients = &bench.options.clients;
    let theirs = match &bench.database {
        None => Vec::new(),
        Some(database) => {
            let peer = Peer::start(database, "claims").await?;
            peer.fill(&trees.concat())?;
            let server = Server {
                address: peer.address().to_owned(),
                processes: peer.processes(),
            };
            phases(bench, &server, bench.time() * 2).await?
        }
    };
    let puts = match etcd::is_installed() {
        false => Vec::new(),
        true => {
            let etcd = Etcd::start(folder, members).await?;
            let bytes = body(world::named("host-0")).to_string().len();
            let mut puts = Vec::new();
            for &clients in clients {
                eprintln!("measuring etcd's puts with {clients} clients");
                let processes: Vec<u32> = etcd.members.iter().map(Child::id).collect();
                let before = cpu::time_of(&processes);
                let figures = etcd.put(clients, bytes, bench.time()).await?;
                let cpu = cpu::time_of(&processes).saturating_sub(before);
                puts.push(Measured::new(figures, cpu, Bytes::new()));
            }
            puts
        }
    };
    let own = {
        let berth = bench.berth("claims", members).await?;
        eprintln!("filling in {HOSTS} hosts");
        berth.fill(trees).await?;
        let server = Server {
            address: berth.address().to_owned(),
            processes: berth.processes(),
        };
        phases(bench, &server, bench.time()).await?
    };
    for (at, &clients) in clients.iter().enumerate() {
        let (peer, put) = (theirs.get(at), puts.get(at));
        if let Some(peer) = peer {
            print_row(clients, "Placement", 1, peer, None, None);
        }
        if let Some(put) = put {
            print_row(clients, "etcd put", members, put, None, None);
        }
        let ratio = |other: &Measured| own[at].figures.rate() / other.figures.rate();
        let (to_etcd, to_peer) = (put.map(ratio), peer.map(ratio));
        print_row(clients, "Berth", members, &own[at], to_etcd, to_peer);
    }
    println!();
    Ok(())
}

async fn phases(
    bench: &Bench,
    server: &Server,
    time: std::time::Duration,
) -> anyhow::Result<Vec<Measured>> {
    let mut all = Vec::new();
    for &clients in &bench.options.clients {
        eprintln!("measuring claims with {clients} clients");
        // Connections, caches and threads are there before the clock runs.
        measure(server, clients, std::time::Duration::ZERO, claim()).await?;
        all.push(measure(server, clients, time, claim()).await?);
    }
    Ok(all)
}

/// Returns what makes one more claim.
fn claim() -> Arc<Make> {
    let hosts: Vec<Uuid> = (0..HOSTS)
        .map(|at| world::named(&format!("host-{at}")))
        .collect();
    Arc::new(move |_, _| {
        let consumer = Uuid::new_v4();
        let at = consumer.as_u64_pair().1 % hosts.len() as u64;
        let host = hosts[usize::try_from(at).expect("below a usize")];
        let path = format!("/allocations/{consumer}");
        Ask::with(Method::PUT, path, &body(host))
    })
}

fn body(host: Uuid) -> serde_json::Value {
    json!({
        "allocations": {
            host.to_string(): {"resources": {"VCPU": 1, "MEMORY_MB": 64, "DISK_GB": 1}},
        },
        "consumer_generation": null,
        "consumer_type": "INSTANCE",
        "project_id": PROJECT,
        "user_id": PROJECT,
    })
}

fn print_row(
    clients: usize,
    server: &str,
    members: usize,
    of: &Measured,
    to_etcd: Option<f64>,
    to_peer: Option<f64>,
) {
    let (p50, p99) = (of.figures.quantile_ms(0.5), of.figures.quantile_ms(0.99));
    let ratio = |ratio: Option<f64>| ratio.map_or("-".to_owned(), |ratio| format!("{ratio:.2}"));
    println!(
        "| {clients} | {server} | {members} | {:.0} | {p50:.2} | {p99:.2} | {:.3} | {} | {} |",
        of.figures.rate(),
        of.cpu_us() / 1000.0,
        ratio(to_etcd),
        ratio(to_peer),
    );
}
