//! What the scenarios share: machines, aliases, flavors, and a boot with what came of it.

use std::fmt::Write as _;

use berth_tests::processes::{Answer, Cluster, Host};
use serde_json::Value;

/// The rule that offers every function of the scenarios.
pub(crate) const OFFERED: &str = "[[pci.device_spec]]\nvendor_id = \"8086\"\n";
/// What an alias says of these functions.
pub(crate) const ANY: &str = "vendor_id=8086";

/// A machine whose cells have equally many CPUs, in order.
pub(crate) struct Machine {
    /// The socket of each cell.
    pub(crate) sockets: &'static [u32],
    /// How many CPUs a cell has.
    pub(crate) cpus: u32,
    /// The CPUs that guests may have.
    pub(crate) dedicated: &'static str,
}

impl Machine {
    /// Returns a host of this shape with functions on these cells; one without a cell where it is
    /// `None`.
    pub(crate) fn host(&self, name: &str, cells: &[Option<u32>]) -> Host {
        let mut text = String::new();
        for (id, socket) in self.sockets.iter().enumerate() {
            let first = id * self.cpus as usize;
            let last = first + self.cpus as usize - 1;
            writeln!(
                text,
                "[[cells]]\nid = {id}\nsocket = {socket}\ncpus = \"{first}-{last}\"\n\
                 memory_mib = 8192\nhuge_pages = [{{ size_kib = 1048576, total = 4 }}]"
            )
            .unwrap();
        }
        Host::described(name, &text, self.dedicated, "").with_pci(&functions(cells), OFFERED)
    }
}

/// Describes one function for each of these cells; one without a cell where it is `None`.
pub(crate) fn functions(cells: &[Option<u32>]) -> String {
    let mut described = String::new();
    for (number, cell) in cells.iter().enumerate() {
        writeln!(
            described,
            "[[pci]]\naddress = \"0000:81:00.{number}\"\nvendor = \"8086\"\ndevice = \"1533\""
        )
        .unwrap();
        if let Some(cell) = cell {
            writeln!(described, "numa_node = {cell}").unwrap();
        }
    }
    described
}

/// What a guest was given.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Given {
    /// Its host cells, in order of its own.
    pub(crate) cells: Vec<u64>,
    /// Its functions, request by request.
    pub(crate) functions: Vec<String>,
}

/// Why a guest was refused.
#[derive(Debug)]
pub(crate) struct Refused {
    pub(crate) reason: String,
    pub(crate) causes: Vec<String>,
    pub(crate) message: String,
}

pub(crate) fn flavor(cluster: &Cluster, name: &str, vcpus: u32, specs: &[&str]) {
    let vcpus = vcpus.to_string();
    let mut words = vec![
        "flavor",
        "create",
        name,
        "--vcpus",
        &vcpus,
        "--memory-mib",
        "3072",
    ];
    words.extend(specs.iter().flat_map(|spec| ["--spec", spec]));
    cluster.run(&words);
}

pub(crate) fn alias(cluster: &Cluster, name: &str, policy: Option<&str>, any_of: &[&str]) {
    let mut words = vec!["pci-alias", "create", name];
    words.extend(any_of.iter().flat_map(|one| ["--match", one]));
    words.extend(policy.iter().flat_map(|policy| ["--policy", policy]));
    cluster.run(&words);
}

/// Boots a guest and says what came of it; one that was refused leaves nothing behind.
pub(crate) fn boot(
    cluster: &Cluster,
    vm: &str,
    flavor: &str,
    host: &str,
) -> Result<Given, Refused> {
    let words = [&Cluster::create(vm, flavor)[..], &["--host", host]].concat();
    let answer = cluster.berth(&words);
    if answer.status == Some(0) {
        return Ok(given(cluster, vm, host));
    }
    let absent = cluster.berth(&["vm", "show", vm]);
    let _ = absent.refused(1).saying(&["VM_NOT_FOUND"]);
    Err(refused(answer))
}

/// Returns what an active guest has.
pub(crate) fn given(cluster: &Cluster, vm: &str, host: &str) -> Given {
    let _ = cluster.pins_on(vm, host);
    let shown = cluster.json(&["vm", "show", vm]);
    let assignment = &shown["claims"][0]["assignment"];
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let cells = list(&assignment["cells"])
        .iter()
        .filter_map(|cell| cell["host_cell"].as_u64())
        .collect();
    let requests = list(&assignment["pci"]);
    let functions = requests.iter().flat_map(list);
    let text = |value: Value| value.as_str().unwrap_or_default().to_owned();
    Given {
        cells,
        functions: functions.map(text).collect(),
    }
}

pub(crate) fn refused(answer: Answer) -> Refused {
    let answer = answer.refused(1);
    let told: Value = serde_json::from_str(&answer.stderr).unwrap();
    let error = &told["error"];
    let causes = error["causes"].as_object();
    Refused {
        reason: error["reason"].as_str().unwrap_or_default().to_owned(),
        causes: causes
            .map(|c| c.keys().cloned().collect())
            .unwrap_or_default(),
        message: error["message"].as_str().unwrap_or_default().to_owned(),
    }
}

pub(crate) fn delete(cluster: &Cluster, vm: &str) {
    cluster.run(&["vm", "delete", vm]);
}
