//! The cables of a lab: one switch, and a link from it to each machine.
//!
//! Every interface is made inside the namespaces; the test's own never sees one. So no
//! name can clash, neither with the machine's interfaces nor with another lab's.

use anyhow::{Context as _, Result, ensure};

use super::machine::Machine;

/// The length of the network's prefix. All guests are on the same network: the address
/// of one follows from its MAC address (see the guest's init).
const PREFIX_LENGTH: u8 = 8;

/// What the hardware addresses begin with.
///
/// They are given rather than left to the kernel: a bridge without an address of its own
/// takes the lowest of its ports', and that may be the tap of a guest. While the guest
/// moves, its tap has the same address on both hosts; the hosts' bridges would have it
/// too, and each take the other's frames for its own. With addresses by chance that
/// happens about once in a hundred migrations.
const LINK: [u8; 2] = [0x02, 0x00];
const BRIDGE: [u8; 2] = [0x06, 0x00];

/// Makes the bridge that all links end at.
pub(super) fn make_switch(switch: &Machine) -> Result<()> {
    make_bridge(switch)
}

/// Links a machine to the switch and gives it its address. A hypervisor gets it on a
/// bridge `br0`, to which its guests' interfaces can be added.
pub(super) fn plug_in(switch: &Machine, machine: &Machine, port: usize) -> Result<()> {
    let port = format!("port{port}");
    let init = machine.init_pid().to_string();
    let mac = hardware_address(LINK, machine);
    // Only the network namespace of the switch: the pid must be looked up outside.
    let output = std::process::Command::new("nsenter")
        .arg(format!("--target={}", switch.init_pid()))
        .args(["--net", "--", "ip", "link", "add", &port, "type", "veth"])
        .args(["peer", "name", "eth0", "address", &mac, "netns", &init])
        .output()?;
    ensure!(
        output.status.success(),
        "cannot link {}: {}",
        machine.name(),
        String::from_utf8_lossy(&output.stderr),
    );
    switch.run(&["ip", "link", "set", &port, "master", "br0", "up"])?;
    machine.plug_in()?;
    let address = format!("{}/{PREFIX_LENGTH}", machine.address());
    let interface = if machine.is_hypervisor() {
        make_bridge(machine)?;
        machine.run(&["ip", "link", "set", "eth0", "master", "br0"])?;
        "br0"
    } else {
        "eth0"
    };
    machine
        .run(&["ip", "address", "add", &address, "dev", interface])
        .with_context(|| format!("cannot give {} its address", machine.name()))?;
    Ok(())
}

fn make_bridge(machine: &Machine) -> Result<()> {
    let mac = hardware_address(BRIDGE, machine);
    let add = ["ip", "link", "add", "name", "br0", "address", &mac];
    machine.run(&[&add[..], &["type", "bridge", "forward_delay", "0"]].concat())?;
    machine.run(&["ip", "link", "set", "br0", "up"]).map(|_| ())
}

/// A hardware address that no other machine of the lab has.
fn hardware_address(beginning: [u8; 2], machine: &Machine) -> String {
    let bytes = [&beginning[..], &machine.address().octets()].concat();
    let digits: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    digits.join(":")
}
