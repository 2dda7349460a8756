//! Every guest on every host: Berth's verdict and libvirt's.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::Instant;

use berth_domain::cpu_model::{BaselineFault, CpuMismatch, GuestCpu, HostCpu, baseline};
use berth_domain::name::{CpuFeature, CpuModelName, HostName};
use berth_driver::Error;
use berth_driver::libvirt::cpu::{Expanded, describe, expand, host_cpu};
use berth_driver::libvirt::{Connection, CpuComparison};
use berth_driver::xml::cpu as xml;
use berth_tests::lab::{Lab, Machine};

use super::emulator::{self, Generation, plain, platform};
use super::map;

/// Processors of three vendors and fourteen years; two of them have something that later ones lack.
const GENERATIONS: [Generation; 21] = [
    plain("core2duo"),
    plain("Conroe"),
    plain("Penryn"),
    plain("Nehalem"),
    plain("Westmere"),
    plain("SandyBridge"),
    plain("IvyBridge"),
    plain("Haswell-noTSX"),
    plain("Broadwell-noTSX"),
    plain("Skylake-Client-noTSX-IBRS"),
    plain("Skylake-Server"),
    plain("Cascadelake-Server"),
    plain("Icelake-Server"),
    plain("Opteron_G3"),
    plain("Opteron_G5"),
    plain("EPYC"),
    plain("EPYC-Rome"),
    plain("EPYC-Milan"),
    plain("Dhyana"),
    Generation {
        model: "Nehalem",
        beside: &["movbe"],
    },
    Generation {
        model: "Opteron_G5",
        beside: &["erms", "smap"],
    },
];

/// One in that many sets of three hosts is tried.
const TRIPLE_STEP: usize = 25;

/// How often verdicts were given.
#[derive(Clone, Copy, Debug, Default)]
struct Count {
    yes: u32,
    no: u32,
}

impl Count {
    fn add(&mut self, is_yes: bool) {
        match is_yes {
            true => self.yes += 1,
            false => self.no += 1,
        }
    }

    /// Prints it; verdicts that are all alike show nothing.
    fn print(self, what: &str, begun: Instant) {
        let Self { yes, no } = self;
        let (all, time) = (yes + no, begun.elapsed().as_secs_f64());
        println!("{what}: {all} pairs, {yes} yes, {no} no; {time:.1} s since the start");
        assert!(yes > 0 && no > 0, "{what}");
    }
}

/// Expands each CPU once.
struct Expander<'a> {
    connection: &'a Connection,
    known: BTreeMap<GuestCpu, Expanded>,
}

impl Expander<'_> {
    fn expand(&mut self, cpu: &GuestCpu) -> Result<Expanded, Error> {
        if let Some(known) = self.known.get(cpu) {
            return Ok(known.clone());
        }
        let expanded = expand(self.connection, cpu)?;
        self.known.insert(cpu.clone(), expanded.clone());
        Ok(expanded)
    }

    fn features(&mut self, cpu: &GuestCpu) -> BTreeSet<CpuFeature> {
        self.expand(cpu).unwrap().expect("a known model")
    }
}

/// A host that is described by a model.
struct Described {
    name: HostName,
    own: GuestCpu,
    cpu: Arc<HostCpu>,
}

/// Returns libvirt's baseline of hosts; nothing where their vendors differ.
fn libvirts_baseline(
    connection: &Connection,
    hosts: &[&Described],
) -> Option<BTreeSet<CpuFeature>> {
    let descriptions: Vec<_> = hosts.iter().map(|host| xml::host(&host.own)).collect();
    match connection.baseline_cpu(&descriptions) {
        Ok(expanded) => Some(xml::definition(&expanded).unwrap().required),
        Err(error) => {
            let message = error.to_string();
            assert!(message.contains("CPU vendors do not match"), "{message}");
            None
        }
    }
}

/// Compares Berth's baseline of hosts with libvirt's, which is returned.
fn compare_baselines(
    expander: &mut Expander<'_>,
    hosts: &[&Described],
) -> Option<BTreeSet<CpuFeature>> {
    let libvirts = libvirts_baseline(expander.connection, hosts);
    let berths = baseline(hosts.iter().map(|host| (&host.name, &host.cpu)));
    let names: Vec<_> = hosts.iter().map(|host| &host.own.model).collect();
    match (&libvirts, berths) {
        (Some(features), Ok(berths)) => {
            assert_eq!(berths.features, *features, "{names:?}");
            // What the guest is given is that as well.
            assert_eq!(
                expander.features(&berths.cpu),
                *features,
                "{names:?}: {}",
                berths.cpu
            );
            for host in hosts {
                assert_eq!(host.cpu.check(&berths.cpu, true), Ok(()), "{names:?}");
            }
        }
        (None, Err(BaselineFault::Vendors(_))) => {}
        (libvirts, berths) => panic!("{names:?}: libvirt {libvirts:?}, Berth {berths:?}"),
    }
    libvirts
}

/// Method: each model of the map that has a vendor is a host and a guest. A guest runs on a host if what both
/// have in common is all that the guest has.
pub(crate) fn every_pair_of_models_agrees_with_libvirt() {
    let begun = Instant::now();
    let lab = Lab::hypervisors(1).unwrap();
    let connection = Connection::open(&lab.machines()[0].libvirt_uri()).unwrap();
    let models = map::models();
    let names: BTreeSet<CpuModelName> = models.keys().cloned().collect();
    let known = BTreeMap::new();
    let mut expander = Expander {
        connection: &connection,
        known,
    };
    let mut described = Vec::new();
    for (name, model) in &models {
        let own = GuestCpu {
            vendor: Some(model.vendor.clone()),
            ..GuestCpu::named(name.clone())
        };
        let cpu = describe(&own, &names, |cpu| expander.expand(cpu)).unwrap();
        let cpu = Arc::new(cpu.expect("libvirt knows its own map"));
        assert_eq!(*cpu.host_model, own, "a model is described by itself");
        assert!(
            cpu.models.len() == names.len(),
            "libvirt expands all of its map"
        );
        let name = HostName::new(name.as_str()).unwrap();
        described.push(Described { name, own, cpu });
    }
    assert!(described.len() >= 12, "{names:?}");
    let mut count = Count::default();
    for guest in &described {
        let of_guest = expander.features(&guest.own);
        for host in &described {
            let common = compare_baselines(&mut expander, &[guest, host]);
            let libvirts = common.is_some_and(|common| common == of_guest);
            let berths = host.cpu.check(&guest.own, false);
            assert_eq!(
                berths.is_ok(),
                libvirts,
                "{} on {}: {berths:?}",
                guest.name,
                host.name
            );
            count.add(libvirts);
        }
    }
    count.print("models of the map", begun);
    let mut count = Count::default();
    let all = described.len();
    for triple in (0..all.pow(3)).map(|n| [n / all / all, n / all % all, n % all]) {
        let [a, b, c] = triple;
        if a < b && b < c && (a + 2 * b + 3 * c) % TRIPLE_STEP == 0 {
            let hosts = triple.map(|index| &described[index]);
            count.add(compare_baselines(&mut expander, &hosts).is_some());
        }
    }
    count.print("baselines of three", begun);
}

/// A hypervisor of some generation.
struct Hypervisor {
    name: HostName,
    connection: Connection,
    emulator: PathBuf,
    cpu: Arc<HostCpu>,
}

impl Hypervisor {
    /// Starts libvirt on what the emulator of that generation offers, and reads it as an agent does.
    fn open(machine: &Machine, generation: &Generation, emulated: &HostCpu) -> Self {
        let connection = Connection::open(&machine.libvirt_uri()).unwrap();
        let name = generation.name();
        let emulator = Path::new("/run/berth-emulators").join(&name);
        emulator::write(generation, emulated, machine, &emulator);
        let cpu = host_cpu(&connection, platform(Some(&emulator))).unwrap();
        let cpu = cpu.expect("libvirt has a model for it");
        let features = generation.features(&connection);
        let expected: BTreeSet<_> = features.intersection(&emulated.features).cloned().collect();
        assert_eq!(cpu.features, expected, "{name}");
        assert!(cpu.is_consistent(), "{name}: {cpu:?}");
        println!("{name}: {}", cpu.host_model);
        Self {
            name: HostName::new(&name).unwrap(),
            connection,
            emulator,
            cpu: Arc::new(cpu),
        }
    }

    /// Returns libvirt's own verdict, as when it starts or receives a guest.
    fn gives(&self, guest: &GuestCpu) -> bool {
        let compared = self
            .connection
            .compare_cpu(platform(Some(&self.emulator)), &xml::guest(guest));
        match compared.unwrap() {
            CpuComparison::Identical | CpuComparison::Superset => true,
            CpuComparison::Incompatible => false,
        }
    }

    /// Returns whether both give it, which they have to agree upon.
    fn verdict(&self, guest: &GuestCpu) -> bool {
        let (berths, libvirts) = (self.cpu.check(guest, true), self.gives(guest));
        assert_eq!(
            berths.is_ok(),
            libvirts,
            "{guest} on {}: {berths:?}",
            self.name
        );
        libvirts
    }
}

/// Starts the hypervisors of all generations, on two machines: libvirt examines one emulator at a time.
fn hypervisors(lab: &Lab) -> Vec<Hypervisor> {
    let machines = lab.machines();
    let of_machine = |number: usize| {
        let machine = &machines[number];
        let connection = Connection::open(&machine.libvirt_uri()).unwrap();
        let emulated = emulator::emulated(&connection);
        emulator::forget_emulators(machine);
        let own = GENERATIONS.iter().skip(number).step_by(machines.len());
        own.map(|generation| Hypervisor::open(machine, generation, &emulated))
            .collect::<Vec<_>>()
    };
    thread::scope(|scope| {
        let opening: Vec<_> = (0..machines.len())
            .map(|number| scope.spawn(move || of_machine(number)))
            .collect();
        let opened = opening.into_iter().flat_map(|one| one.join().unwrap());
        opened.collect()
    })
}

/// Method: guests have each model that QEMU knows, and the CPU of each other hypervisor, whole, without its
/// vendor and without what is disabled in it.
pub(crate) fn every_pair_of_hypervisors_agrees_with_libvirt() {
    let begun = Instant::now();
    let lab = Lab::hypervisors(2).unwrap();
    let hypervisors = hypervisors(&lab);
    let mut count = Count::default();
    for host in &hypervisors {
        for model in host.cpu.models.keys() {
            count.add(host.verdict(&GuestCpu::named(model.clone())));
        }
    }
    count.print("named models on hypervisors", begun);
    let (mut whole, mut altered) = (Count::default(), Count::default());
    for host in &hypervisors {
        for other in &hypervisors {
            let guest = &*other.cpu.host_model;
            let is_given = host.verdict(guest);
            whole.add(is_given);
            assert!(is_given || host.name != other.name, "its own");
            altered.add(host.verdict(&GuestCpu {
                vendor: None,
                ..guest.clone()
            }));
            altered.add(host.verdict(&GuestCpu {
                disabled: BTreeSet::new(),
                ..guest.clone()
            }));
        }
    }
    whole.print("host models on hypervisors", begun);
    altered.print("altered host models on hypervisors", begun);
    let mut baselines = Count::default();
    for (index, one) in hypervisors.iter().enumerate() {
        for other in &hypervisors[index + 1..] {
            let pair = [one, other];
            let common = baseline(pair.map(|host| (&host.name, &host.cpu)).into_iter());
            baselines.add(common.is_ok());
            match common {
                Ok(common) => assert!(pair.iter().all(|host| host.verdict(&common.cpu))),
                Err(BaselineFault::Vendors(_)) => {
                    let mismatch = one.cpu.check(&other.cpu.host_model, true);
                    assert!(
                        matches!(mismatch, Err(CpuMismatch::Vendor { .. })),
                        "{mismatch:?}"
                    );
                }
                Err(fault @ (BaselineFault::NoHosts | BaselineFault::Models { .. })) => {
                    panic!("{} and {}: {fault}", one.name, other.name)
                }
            }
        }
    }
    baselines.print("baselines of hypervisors", begun);
}
