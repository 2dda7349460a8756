//! Allocation candidates, of both servers side by side.

use std::collections::BTreeSet;

use anyhow::ensure;
use serde_json::Value;

use crate::Bench;
use crate::berth::Berth;
use crate::measure::{Measured, Server, repeat};
use crate::peer::Peer;
use crate::rest::{Ask, Client};
use crate::world::{self, Provider};

/// Both servers with the same providers.
struct Pair {
    berth: Berth,
    peer: Option<Peer>,
}

impl Pair {
    async fn start(bench: &Bench, name: &str) -> anyhow::Result<Self> {
        let peer = match &bench.database {
            Some(database) => Some(Peer::start(database, name).await?),
            None => None,
        };
        Ok(Self {
            berth: bench.berth(name, bench.options.members).await?,
            peer,
        })
    }

    async fn fill(&self, trees: Vec<Vec<Provider>>) -> anyhow::Result<()> {
        eprintln!("filling in {} trees", trees.len());
        if let Some(peer) = &self.peer {
            peer.fill(&trees.concat())?;
        }
        self.berth.fill(trees).await?;
        Ok(())
    }

    /// Measures one query on both, and prints a row.
    async fn row(&self, bench: &Bench, what: &str, path: &str) -> anyhow::Result<()> {
        eprintln!("measuring {what}");
        let berth = repeat(&self.of_berth(), path, bench.time()).await?;
        let peer = match &self.peer {
            Some(peer) => {
                let server = of_peer(peer);
                Some(repeat(&server, path, bench.time() * 2).await?)
            }
            None => None,
        };
        let found = candidates(&berth.last)?.len();
        if let Some(peer) = &peer {
            let theirs = candidates(&peer.last)?.len();
            ensure!(
                found == theirs,
                "{path}: Berth finds {found} candidates, Placement {theirs}"
            );
        }
        print_row(what, found, peer.as_ref(), &berth);
        Ok(())
    }

    /// Checks that both find the very same candidates.
    async fn check(&self, path: &str) -> anyhow::Result<()> {
        let Some(peer) = &self.peer else {
            return Ok(());
        };
        let own = ask(self.berth.address(), path).await?;
        let theirs = ask(peer.address(), path).await?;
        ensure!(own == theirs, "{path}: the candidates differ");
        eprintln!("both find the same {} candidates", own.len());
        Ok(())
    }

    fn of_berth(&self) -> Server {
        Server {
            address: self.berth.address().to_owned(),
            processes: self.berth.processes(),
        }
    }
}

fn of_peer(peer: &Peer) -> Server {
    Server {
        address: peer.address().to_owned(),
        processes: peer.processes(),
    }
}

async fn ask(address: &str, path: &str) -> anyhow::Result<BTreeSet<String>> {
    let answer = Client::new(address).ask(&Ask::get(path)).await?;
    answer.json()?;
    candidates(&answer.body)
}

/// Returns the candidates of an answer, in an order of their own.
fn candidates(body: &[u8]) -> anyhow::Result<BTreeSet<String>> {
    let answer: Value = serde_json::from_slice(body)?;
    let requests = answer["allocation_requests"].as_array();
    Ok(requests
        .into_iter()
        .flatten()
        .map(Value::to_string)
        .collect())
}

pub(crate) async fn flat(bench: &Bench) -> anyhow::Result<()> {
    head("Allocation candidates over flat hosts");
    let pair = Pair::start(bench, "flat").await?;
    let mut filled = 0;
    for (step, &hosts) in bench.options.hosts.iter().enumerate() {
        let trees = (filled..hosts).map(|at| world::flat(at, hosts));
        pair.fill(trees.collect()).await?;
        filled = hosts;
        if step == 0 {
            pair.check(&world::plain(None)).await?;
        }
        for limit in [10, 1000] {
            let what = format!("{hosts} hosts, limit {limit}");
            pair.row(bench, &what, &world::plain(Some(limit))).await?;
        }
    }
    println!();
    Ok(())
}

pub(crate) async fn nested(bench: &Bench) -> anyhow::Result<()> {
    head("1,000 trees with 8 NUMA cells, two isolated groups");
    let pair = Pair::start(bench, "nested").await?;
    pair.fill((0..1000).map(world::nested).collect()).await?;
    for limit in [10, 1000] {
        let path = world::two_cells(limit);
        pair.row(bench, &format!("limit {limit}"), &path).await?;
    }
    println!();
    Ok(())
}

pub(crate) async fn wide(bench: &Bench) -> anyhow::Result<()> {
    head("One host with 8 devices of one unit, limit 1000");
    let mut pair = Pair::start(bench, "wide").await?;
    pair.fill(vec![world::wide()]).await?;
    pair.check(&world::devices(3, None)).await?;
    for groups in 2..=8 {
        let path = world::devices(groups, Some(1000));
        let what = format!("{groups} groups");
        if groups == 7 {
            eprintln!("Placement is left out from here on: 8 times 6 groups, and more memory");
            pair.peer = None;
        }
        pair.row(bench, &what, &path).await?;
    }
    println!();
    Ok(())
}

fn head(title: &str) {
    println!("### {title}\n");
    println!(
        "| | candidates | KiB | Placement p50 ms | p99 ms | CPU ms | Berth p50 ms | p99 ms | CPU ms \
         | p50, times | CPU, times |\n|---|---|---|---|---|---|---|---|---|---|---|"
    );
}

fn print_row(what: &str, found: usize, peer: Option<&Measured>, berth: &Measured) {
    let three = |of: &Measured| {
        let (p50, p99) = (of.figures.quantile_ms(0.5), of.figures.quantile_ms(0.99));
        format!("{p50:.2} | {p99:.2} | {:.3}", of.cpu_us() / 1000.0)
    };
    let peers = peer.map_or("- | - | -".to_owned(), three);
    let ratios = peer.map_or("- | -".to_owned(), |peer| {
        let p50 = peer.figures.quantile_ms(0.5) / berth.figures.quantile_ms(0.5);
        format!("{p50:.0} | {:.0}", peer.cpu_us() / berth.cpu_us())
    });
    let kib = berth.last.len() / 1024;
    println!(
        "| {what} | {found} | {kib} | {peers} | {} | {ratios} |",
        three(berth)
    );
}
