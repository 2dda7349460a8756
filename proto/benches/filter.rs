//! What a filter costs on 34,000 VMs: `cargo bench -p berth-proto --bench filter`.
//!
//! Each figure is that of one pass over all of them, as a list does that no VM meets: the least and the
//! median of 21, on one thread. Each VM is written as a list writes it for the filter, and as a whole.

use std::hint::black_box;
use std::time::{Duration, Instant};

use berth_domain::vm::Vm;
use berth_proto::convert::vm::write_for_filter;
use berth_proto::filter::Filter;
use berth_proto::scheduler::v1 as wire;
use berth_proto::types::v1::{BootSource, Disk, DiskBoot, Flavor, Nic, VmSpec, boot_source, disk};
use prost_types::Timestamp;

const VMS: u32 = 34_000;
const ROUNDS: usize = 21;

fn vm(number: u32) -> Vm {
    let id = |kind: u32| format!("{kind:08x}-0000-4000-8000-{number:012x}");
    let pairs = |pairs: &[(&str, &str)]| {
        let owned = pairs
            .iter()
            .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()));
        owned.collect()
    };
    let disk = |image: &str| Disk {
        image: Some(image.to_owned()),
        format: disk::Format::Qcow2.into(),
        size_gib: 20,
        seed: false,
    };
    let spec = VmSpec {
        flavor: Some(Flavor {
            name: "flavors/medium".to_owned(),
            vcpus: 4,
            memory_mib: 8192,
            disk_gib: 40,
            extra_specs: pairs(&[("hw:cpu_policy", "dedicated"), ("hw:numa_nodes", "1")]),
            ..Flavor::default()
        }),
        boot: Some(BootSource {
            source: Some(boot_source::Source::Disk(DiskBoot {})),
        }),
        disks: vec![disk("debian.qcow2"), disk("data.qcow2")],
        nics: vec![Nic {
            bridge: "br0".to_owned(),
            mac: "52:54:00:12:34:56".to_owned(),
            ..Nic::default()
        }],
        ..VmSpec::default()
    };
    let vm = wire::Vm {
        name: format!("vms/vm{number}"),
        uid: id(1),
        spec: Some(spec),
        state: wire::vm::State::Active.into(),
        host: format!("hosts/h{}", number / 34),
        claim: format!("claims/{}", id(2)),
        generation: 3,
        create_time: Some(Timestamp::default()),
        project: "default".to_owned(),
        creator: "operator:ann".to_owned(),
        labels: pairs(&[("env", "prod"), ("team", "blue"), ("example.com/tier", "1")]),
        description: "orders, primary".to_owned(),
        ..wire::Vm::default()
    };
    vm.try_into().expect("a valid VM")
}

/// Returns the least and the median time of a pass.
fn time(mut pass: impl FnMut() -> usize) -> [Duration; 2] {
    let mut times: Vec<Duration> = (0..ROUNDS)
        .map(|_| {
            let start = Instant::now();
            assert_eq!(black_box(pass()), 0, "no VM meets it");
            start.elapsed()
        })
        .collect();
    times.sort();
    [times[0], times[ROUNDS / 2]]
}

fn main() {
    let vms: Vec<Vm> = (0..VMS).map(vm).collect();
    let many = vec!["labels.env = test"; 64].join(" OR ");
    println!("{VMS} VMs, in ms          least  median   least  median (whole messages)");
    for (what, text) in [
        ("state", "state = ERROR"),
        ("label", "labels.env = test"),
        ("flavor", "spec.flavor.vcpus > 8"),
        ("disks", "spec.disks.image:windows*"),
        ("64 comparisons", many.as_str()),
    ] {
        let filter = Filter::new::<wire::Vm>(text).expect("a filter");
        let count = |write: &dyn Fn(&Vm) -> wire::Vm| {
            let met = vms.iter().filter(|vm| filter.matches(&write(vm)));
            met.count()
        };
        let parts = time(|| count(&|vm| write_for_filter(vm, &filter)));
        let whole = time(|| count(&|vm| vm.into()));
        let [a, b, c, d] = [parts, whole].concat()[..] else {
            unreachable!("four times");
        };
        let ms = |time: Duration| time.as_secs_f64() * 1e3;
        println!(
            "{what:22} {:7.1} {:7.1} {:7.1} {:7.1}",
            ms(a),
            ms(b),
            ms(c),
            ms(d)
        );
    }
}
