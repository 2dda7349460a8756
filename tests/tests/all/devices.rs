//! Goal: the PCI functions and traits of a host come from its agent to the operator's screen; one
//! that nobody has and that goes is simply gone, and a rule that contradicts the machine keeps the
//! agent from starting.
//!
//! Method: a scheduler and an agent with a described machine, as processes, asked by the real
//! command.

use std::fs;
use std::process::Command;

use berth_tests::processes::{Answer, Cluster, Host, eventually};

use crate::PROGRAMS;

/// A card with a virtual function.
const CARD: &str = r#"
[[pci]]
address = "0000:81:00.0"
vendor = "8086"
device = "1572"
numa_node = 1
sriov_totalvfs = 8
net = "ens1f0"
[[pci]]
address = "0000:81:02.0"
vendor = "8086"
device = "154c"
numa_node = 1
physfn = "0000:81:00.0"
"#;
/// One whose cell is not known.
const ACCELERATOR: &str = r#"
[[pci]]
address = "0000:c1:00.0"
vendor = "10de"
device = "1eb8"
class = "030200"
"#;
const RULES: &str = r#"
[[pci.device_spec]]
devname = "ens1f0"
physical_network = "blue"
[[pci.device_spec]]
vendor_id = "10de"
"#;

/// Returns what a person sees.
fn shown(cluster: &Cluster) -> String {
    let mut command = Command::new(cluster.programs.directory().join("berth"));
    let schedulers = cluster.addresses();
    command.args(["--scheduler", &schedulers, "host", "show", "h1"]);
    Answer::of(command).with_status(0).stdout
}

#[test]
fn what_an_agent_finds_is_what_the_operator_sees() {
    let functions = format!("{CARD}{ACCELERATOR}");
    let host = Host::new("h1").with_pci(&functions, RULES);
    let mut cluster = Cluster::builder(PROGRAMS).schedulers(1).host(host).start();
    let drawn = shown(&cluster);
    let card = "    pci        8086:154c VF physical_network=blue
               0000:81:02.0=·
    pci        8086:1572 PF physical_network=blue
               0000:81:00.0=·
";
    let (_, second) = drawn.split_once("NUMA node 1 ").expect("a second node");
    assert!(second.contains(card), "{drawn}");
    let accelerator =
        "NUMA node unknown\n    pci        10de:1eb8 PCI\n               0000:c1:00.0=·\n";
    assert!(second.contains(accelerator), "{drawn}");
    for name in ["COMPUTE_NODE", "COMPUTE_SOCKET_PCI_NUMA_AFFINITY"] {
        assert!(drawn.contains(name), "{name}: {drawn}");
    }
    let told = cluster.json(&["host", "show", "h1"]);
    let devices = &told["host"]["report"]["topology"]["pci"];
    assert_eq!(devices.as_array().map(Vec::len), Some(3), "{told}");

    // The card is taken out, and with it goes what named it.
    let machine = cluster.folder().join("h1-machine.toml");
    let text = fs::read_to_string(&machine).unwrap();
    fs::write(&machine, text.replace(CARD, "")).unwrap();
    cluster.agents[0].kill();
    let programs = &cluster.programs;
    let said = cluster.agents[0].fails(programs, 2);
    let config = cluster.folder().join("h1.toml");
    let text = fs::read_to_string(&config).unwrap();
    let named = text.lines().position(|l| l == "[[pci.device_spec]]");
    let line = 1 + named.expect("the first rule");
    let fault = format!(
        "h1.toml:{line}: pci.device_spec[0]: no PCI function is the network device ens1f0; there \
         are none"
    );
    assert!(said.contains(&fault), "{said}");
    let (_, kept) = RULES.split_at(RULES.rfind("[[").unwrap());
    fs::write(
        &config,
        format!(
            "traits = [\"CUSTOM_RACK_7\"]\n{}",
            text.replace(RULES, kept)
        ),
    )
    .unwrap();
    cluster.agents[0].start(&cluster.programs);
    let drawn = eventually("the card is gone", || {
        let drawn = shown(&cluster);
        let is_new = !drawn.contains("8086:") && drawn.contains("CUSTOM_RACK_7");
        if is_new { Ok(drawn) } else { Err(drawn) }
    });
    assert!(drawn.contains("0000:c1:00.0=·"), "{drawn}");
}
