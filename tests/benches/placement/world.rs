//! The worlds that both servers are filled with, and the queries that are asked of them.
//!
//! Identifiers follow from names, so that both servers hold the very same providers and a world
//! can be grown.

use serde_json::{Value, json};
use uuid::Uuid;

/// Hosts that have the rare trait, however many hosts there are.
pub(crate) const RARE: usize = 10;
/// Hosts of one rack, which is an aggregate.
const RACK: usize = 40;
/// What a host says of itself.
const TRAITS: [&str; 4] = [
    "HW_CPU_X86_AVX2",
    "HW_CPU_X86_SSE42",
    "COMPUTE_NODE",
    "COMPUTE_VOLUME_MULTI_ATTACH",
];
/// Traits that are not standard.
pub(crate) const CUSTOM_TRAITS: [&str; 2] = ["CUSTOM_GOLD", "CUSTOM_RARE"];
/// The class that is not standard.
pub(crate) const DEVICE: &str = "CUSTOM_GPU";

/// A resource provider.
#[derive(Clone, Debug)]
pub(crate) struct Provider {
    pub(crate) id: Uuid,
    pub(crate) name: String,
    pub(crate) parent: Option<Uuid>,
    pub(crate) root: Uuid,
    pub(crate) stocks: Vec<Stock>,
    pub(crate) traits: Vec<&'static str>,
    pub(crate) aggregates: Vec<Uuid>,
}

/// What a provider has of one class.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stock {
    pub(crate) class: &'static str,
    pub(crate) total: u64,
    pub(crate) reserved: u64,
    pub(crate) ratio: f64,
}

impl Stock {
    const fn new(class: &'static str, total: u64) -> Self {
        Self {
            class,
            total,
            reserved: 0,
            ratio: 1.0,
        }
    }
}

impl Provider {
    fn new(name: String, parent: Option<Uuid>, stocks: &[Stock], traits: &[&'static str]) -> Self {
        let id = named(&name);
        Self {
            id,
            name,
            parent,
            root: parent.unwrap_or(id),
            stocks: stocks.to_vec(),
            traits: traits.to_vec(),
            aggregates: Vec::new(),
        }
    }

    /// Returns its inventories as the API takes them.
    pub(crate) fn inventories(&self) -> Value {
        let inventories = self.stocks.iter().map(|stock| {
            let inventory = json!({
                "total": stock.total,
                "reserved": stock.reserved,
                "max_unit": stock.total,
                "allocation_ratio": stock.ratio,
            });
            (stock.class.to_owned(), inventory)
        });
        Value::Object(inventories.collect())
    }
}

/// Returns the identifier that belongs to a name.
pub(crate) fn named(name: &str) -> Uuid {
    // FNV-1a over 128 bits: spread like random identifiers, and always the same.
    let mut hash: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
    for byte in name.bytes() {
        hash = (hash ^ u128::from(byte)).wrapping_mul(0x0000_0000_0100_0000_0000_0000_0000_013b);
    }
    // The last bytes of similar names differ too little for the order to look random.
    uuid::Builder::from_random_bytes(hash.swap_bytes().to_be_bytes()).into_uuid()
}

/// Returns the tree of one flat host of so many.
pub(crate) fn flat(at: usize, hosts: usize) -> Vec<Provider> {
    let stocks = [
        Stock {
            reserved: 2,
            ratio: 16.0,
            ..Stock::new("VCPU", 64)
        },
        Stock {
            reserved: 4096,
            ratio: 1.5,
            ..Stock::new("MEMORY_MB", 262_144)
        },
        Stock {
            reserved: 100,
            ..Stock::new("DISK_GB", 4000)
        },
    ];
    let mut traits = TRAITS.to_vec();
    if at.is_multiple_of(10) {
        traits.push("CUSTOM_GOLD");
    }
    // So that a world that grew holds as many as one of the same size.
    if at < hosts.min(RARE) {
        traits.push("CUSTOM_RARE");
    }
    let mut host = Provider::new(format!("host-{at}"), None, &stocks, &traits);
    host.aggregates = vec![named("all"), rack(at / RACK)];
    vec![host]
}

/// Returns the aggregate of a rack.
pub(crate) fn rack(number: usize) -> Uuid {
    named(&format!("rack-{number}"))
}

/// Returns the tree of one host with 8 NUMA cells.
pub(crate) fn nested(at: usize) -> Vec<Provider> {
    let root = Provider::new(
        format!("numa-{at}"),
        None,
        &[Stock::new("DISK_GB", 4000)],
        &TRAITS,
    );
    let cells = (0..8).map(|cell| {
        let stocks = [Stock::new("PCPU", 32), Stock::new("MEMORY_MB", 131_072)];
        let name = format!("numa-{at}-{cell}");
        Provider::new(name, Some(root.id), &stocks, &["HW_NUMA_ROOT"])
    });
    let cells: Vec<_> = cells.collect();
    [vec![root], cells].concat()
}

/// Returns the tree of a host with 8 devices of one unit.
pub(crate) fn wide() -> Vec<Provider> {
    let root = Provider::new("wide".to_owned(), None, &[], &[]);
    let devices = (0..8).map(|device| {
        let stocks = [Stock::new(DEVICE, 1)];
        Provider::new(format!("wide-{device}"), Some(root.id), &stocks, &[])
    });
    let devices: Vec<_> = devices.collect();
    [vec![root], devices].concat()
}

const PLAIN: &str = "resources=VCPU:2,MEMORY_MB:2048,DISK_GB:20";

/// Returns the path that asks for a plain guest.
pub(crate) fn plain(limit: Option<u32>) -> String {
    candidates(PLAIN, limit)
}

/// Returns the path that asks for a plain guest under one more condition.
pub(crate) fn plain_with(condition: &str, limit: Option<u32>) -> String {
    candidates(&format!("{PLAIN}&{condition}"), limit)
}

/// Returns the path that asks for more memory than any host has.
pub(crate) fn nowhere() -> String {
    candidates("resources=VCPU:2,MEMORY_MB:1000000", Some(10))
}

/// Returns the path that asks for a guest with two cells on cells of their own.
pub(crate) fn two_cells(limit: u32) -> String {
    let cell = |n: u32| format!("resources_C{n}=PCPU:4,MEMORY_MB:4096&required_C{n}=HW_NUMA_ROOT");
    let query = format!(
        "resources=DISK_GB:20&{}&{}&group_policy=isolate",
        cell(0),
        cell(1)
    );
    candidates(&query, Some(limit))
}

/// Returns the path that asks for so many devices.
pub(crate) fn devices(number: u32, limit: Option<u32>) -> String {
    let groups = (0..number).map(|n| format!("resources_D{n}={DEVICE}:1&"));
    candidates(&(groups.collect::<String>() + "group_policy=none"), limit)
}

fn candidates(query: &str, limit: Option<u32>) -> String {
    let limit = limit.map_or(String::new(), |limit| format!("&limit={limit}"));
    format!("/allocation_candidates?{query}{limit}")
}
