//! Emulators that offer what a processor of some generation does.
//!
//! libvirt derives the CPU that guests can be given from the model `max` of the emulator. A script in the
//! place of QEMU turns off in that model what the generation lacks, and gives it the vendor and the numbers
//! of the generation's processors. In the models that guests are started with it turns off instructions
//! that the generation lacks, as the processor would.
//!
//! What it is not: the generation itself. What QEMU does not emulate is missing in all of them, as AVX-512.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use berth_domain::cpu_model::{GuestCpu, HostCpu};
use berth_domain::name::{CpuFeature, CpuModelName};
use berth_driver::libvirt::cpu::{expand, host_cpu};
use berth_driver::libvirt::{Connection, Platform};
use berth_tests::lab::Machine;

use super::map::{self, Model, Signature};

/// Every emulated processor runs under a hypervisor, and says so.
const ALWAYS: &str = "hypervisor";

/// For a model of which the map has no numbers: those of another early processor of Intel's.
const EARLY: Signature = Signature {
    family: 6,
    model: 15,
};

/// What is turned off in the models of guests too: the features that QEMU's models have just where libvirt's
/// have them. A guest that lacks another, as QEMU's Westmere may lack pclmuldq, would have it again at a
/// destination that has it, and libvirt refuses that.
const OF_GUESTS: [&str; 14] = [
    "ssse3", "sse4.1", "sse4.2", "popcnt", "aes", "avx", "f16c", "movbe", "fma", "avx2", "bmi1",
    "bmi2", "adx", "smap",
];

/// The beginning of an emulator: whatever a guest's model has and requires, it gets nothing of `off`. The last
/// value of a property holds.
const GUESTS: &str = r#"arguments=()
previous=
for argument; do
    [ "$previous" = -cpu ] && argument+=${off:+,$off}
    arguments+=("$argument")
    previous=$argument
done
exec qemu-system-x86_64 "${arguments[@]}""#;

/// The processors of a generation: a model, with features that it has beside.
#[derive(Clone, Copy, Debug)]
pub(super) struct Generation {
    pub(super) model: &'static str,
    pub(super) beside: &'static [&'static str],
}

/// Returns a generation as its model describes it.
pub(super) const fn plain(model: &'static str) -> Generation {
    Generation { model, beside: &[] }
}

impl Generation {
    /// Returns a name that no other generation has.
    pub(super) fn name(&self) -> String {
        [&[self.model], self.beside].concat().join("-")
    }

    fn model_name(&self) -> CpuModelName {
        CpuModelName::new(self.model).unwrap()
    }

    /// Returns all features of the generation, by libvirt's map.
    pub(super) fn features(&self, connection: &Connection) -> BTreeSet<CpuFeature> {
        let named = GuestCpu::named(self.model_name());
        let mut features = expand(connection, &named).unwrap().expect("a known model");
        let beside = self.beside.iter().chain(&[ALWAYS]);
        features.extend(beside.map(|name| CpuFeature::new(name).unwrap()));
        features
    }
}

/// Returns where the guests of the test are run.
pub(super) fn platform(emulator: Option<&Path>) -> Platform<'_> {
    Platform {
        emulator,
        arch: "x86_64",
        machine: "q35",
        virt_type: "qemu",
    }
}

/// Returns everything that QEMU emulates.
pub(super) fn emulated(connection: &Connection) -> HostCpu {
    let cpu = host_cpu(connection, platform(None)).unwrap();
    cpu.expect("QEMU emulates x86")
}

/// Returns what QEMU calls a feature.
fn qemu_name(feature: &CpuFeature) -> String {
    match feature.as_str() {
        "pclmuldq" => "pclmulqdq".to_owned(),
        name => name.replace(['_', '.'], "-"),
    }
}

/// Makes libvirt forget in a machine what other labs have discovered about emulators, and keep what it
/// discovers there to itself: emulators of several machines have the same path.
pub(super) fn forget_emulators(machine: &Machine) {
    let cache = "/var/cache/libvirt/qemu/capabilities";
    machine.run(&["umount", cache]).unwrap();
}

/// Writes the emulator of a generation into a file that the machine sees under this path.
pub(super) fn write(generation: &Generation, emulated: &HostCpu, machine: &Machine, path: &Path) {
    let connection = Connection::open(&machine.libvirt_uri()).unwrap();
    let models = map::models();
    let Model { vendor, signature } = &models[&generation.model_name()];
    let Signature { family, model } = signature.unwrap_or(EARLY);
    let vendor = map::vendor_string(vendor);
    let mut set = vec![
        format!("vendor={vendor}"),
        format!("family={family}"),
        format!("model={model}"),
    ];
    let features = generation.features(&connection);
    let lacking = emulated.features.difference(&features);
    let lacking: Vec<_> = lacking.collect();
    let off = |name: &&CpuFeature| qemu_name(name) + "=off";
    set.extend(lacking.iter().map(off));
    let of_guests = lacking.iter();
    let of_guests = of_guests.filter(|name| OF_GUESTS.contains(&name.as_str()));
    let set = set.iter().fold(String::new(), |mut text, property| {
        write!(text, " \\\n    -global max-x86_64-cpu.{property}")
            .expect("a string takes everything");
        text
    });
    let off = of_guests.map(off).collect::<Vec<_>>().join(",");
    let script = format!("#!/bin/bash\noff={off}\n{GUESTS}{set}\n");
    let file = machine.outside(path);
    std::fs::create_dir_all(file.parent().expect("a file")).unwrap();
    std::fs::write(&file, script).unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).unwrap();
}
