//! Real guests between hypervisors of several generations.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use berth_domain::agent::DomainState;
use berth_domain::cpu_model::{GuestCpu, HostCpu, baseline};
use berth_domain::name::{CpuModelName, HostName};
use berth_domain::numa::Assignment;
use berth_domain::vm::BootSource;
use berth_driver::conformance::sample;
use berth_driver::libvirt::cpu::expand;
use berth_driver::libvirt::{Connection, LibvirtDriver, XmlView};
use berth_driver::xml::cpu as xml;
use berth_driver::{DomainSpec, Driver, Error, Sending};
use berth_tests::lab::{Console, Images, Lab, Machine, images};

use super::emulator::{self, Generation, plain};
use super::map;
use crate::driver::{driver_with, remove_sockets, runtime_dir};

/// Booting takes 5 s on an idle machine.
const PATIENCE: Duration = Duration::from_secs(240);

/// What the guest's CPUID is executed with: `guest-init.sh` prints the results in this order.
const LEAVES: [u32; 3] = [1, 7, 0x8000_0001];

/// The hosts. Neither of the first two has all that the other has; those of AMD lack much of their models.
/// None is of AMD's family 21: the kernel of the guests, emulated as one, hangs when it has set up its
/// mitigation of Retbleed.
const HOSTS: [Generation; 6] = [
    Generation {
        model: "Nehalem",
        beside: &["movbe"],
    },
    plain("Westmere"),
    plain("SandyBridge"),
    plain("Haswell-noTSX"),
    plain("EPYC"),
    plain("EPYC-Rome"),
];
const NEHALEM: usize = 0;
const WESTMERE: usize = 1;
const SANDY_BRIDGE: usize = 2;
const HASWELL: usize = 3;
const EPYC: usize = 4;
const ROME: usize = 5;

/// A host, with the driver that its agent would have.
struct Host<'a> {
    name: HostName,
    machine: &'a Machine,
    driver: LibvirtDriver,
    cpu: Arc<HostCpu>,
}

/// What all hosts and guests share.
struct Stage<'a> {
    hosts: Vec<Host<'a>>,
    images: &'a Images,
    shared: PathBuf,
}

/// A guest that runs, and where.
struct Guest<'a> {
    stage: &'a Stage<'a>,
    spec: DomainSpec,
    console: Console,
    at: usize,
    /// What CPUID says in it.
    cpuid: Vec<u32>,
    /// Its CPU as libvirt has it.
    live: GuestCpu,
}

impl<'a> Stage<'a> {
    fn set(lab: &'a Lab, images: &'a Images) -> Self {
        let shared = lab.directory().join("shared");
        // The same path everywhere, with another file on each machine: /run is its own.
        let path = runtime_dir(&shared).join("emulator");
        let open = |machine: &'a Machine, generation: &Generation| {
            let connection = Connection::open(&machine.libvirt_uri()).unwrap();
            let emulated = emulator::emulated(&connection);
            emulator::forget_emulators(machine);
            emulator::write(generation, &emulated, machine, &path);
            let instances = shared.join("instances");
            let emulator = Some(path.clone());
            let driver = driver_with(machine, &shared, &instances, images, emulator);
            let cpu = driver.cpu().unwrap().expect("libvirt has a model for it");
            Host {
                name: HostName::new(&generation.name()).unwrap(),
                machine,
                driver,
                cpu: Arc::new(cpu),
            }
        };
        let hosts = lab.machines().iter().zip(&HOSTS);
        let hosts = hosts.map(|(machine, generation)| open(machine, generation));
        Self {
            hosts: hosts.collect(),
            images,
            shared: shared.clone(),
        }
    }

    fn baseline(&self, hosts: [usize; 2]) -> Arc<GuestCpu> {
        let hosts = hosts.map(|host| &self.hosts[host]);
        let cpu = baseline(hosts.iter().map(|host| (&host.name, &host.cpu))).unwrap();
        for host in hosts {
            let lost = cpu.lost_of(&host.cpu);
            assert!(!lost.is_empty(), "the hosts of the pair differ both ways");
        }
        cpu.cpu
    }

    /// Starts a guest with a CPU on a host.
    fn start(&'a self, number: u32, cpu: &Arc<GuestCpu>, at: usize) -> Guest<'a> {
        let mut spec = sample::plain_spec(1);
        spec.boot = BootSource::Kernel {
            kernel: "kernel".to_owned(),
            initrd: "initrd".to_owned(),
            cmdline: self.images.command_line.clone(),
        };
        let name = format!("guest-{number}");
        let mut spec = sample::domain(&name, number.into(), spec, Assignment::default());
        spec.cpu = Some(cpu.clone());
        self.hosts[at].driver.create(&spec).unwrap();
        let log = self.shared.join("instances").join(spec.uid.to_string());
        let console = Console::new(log.join("console.log"));
        console.wait_for("count 1", PATIENCE).unwrap();
        let mut guest = Guest {
            stage: self,
            spec,
            console,
            at,
            cpuid: Vec::new(),
            live: GuestCpu::clone(cpu),
        };
        (guest.cpuid, guest.live) = (guest.read_cpuid(), guest.read_live());
        guest.assert_has_its_cpu();
        println!("{name} runs on {} with {cpu}", self.hosts[at].name);
        guest
    }
}

impl Guest<'_> {
    fn cpu(&self) -> &GuestCpu {
        self.spec.cpu.as_ref().expect("it was started with one")
    }

    fn host(&self) -> &Host<'_> {
        &self.stage.hosts[self.at]
    }

    /// Has the guest execute CPUID.
    fn read_cpuid(&self) -> Vec<u32> {
        let name = format!("{}.console", self.spec.uid);
        let socket = runtime_dir(&self.stage.shared).join(name);
        let socket = self.host().machine.outside(socket);
        let reply = self.console.ask(&socket, "cpuid", PATIENCE).unwrap();
        let words = reply.split_whitespace();
        let words: Result<Vec<_>, _> = words.map(|word| u32::from_str_radix(word, 16)).collect();
        let words = words.unwrap_or_else(|error| panic!("{reply:?}: {error}"));
        assert_eq!(words.len(), LEAVES.len() * 4, "{reply:?}");
        words
    }

    fn read_live(&self) -> GuestCpu {
        let connection = Connection::open(&self.host().machine.libvirt_uri()).unwrap();
        let domain = connection.domain_by_name(self.spec.vm.as_str()).unwrap();
        xml::definition(&domain.xml(XmlView::Live).unwrap()).unwrap()
    }

    /// Checks that libvirt and the guest see every feature that it was started with, and none that is disabled.
    fn assert_has_its_cpu(&self) {
        let cpu = self.cpu();
        assert_eq!(
            (&self.live.model, &self.live.vendor),
            (&cpu.model, &cpu.vendor)
        );
        assert!(
            self.live.required.is_superset(&cpu.required),
            "{:?}",
            self.live
        );
        assert!(
            self.live.disabled.is_superset(&cpu.disabled),
            "{:?}",
            self.live
        );
        let connection = Connection::open(&self.host().machine.libvirt_uri()).unwrap();
        let features = expand(&connection, cpu).unwrap().expect("a known model");
        let mut seen = 0;
        for (feature, bit) in map::bits(&LEAVES) {
            let leaf = LEAVES.iter().position(|leaf| *leaf == bit.leaf).unwrap();
            let is_set = self.cpuid[leaf * 4 + bit.register] & bit.mask != 0;
            if features.contains(&feature) {
                assert!(is_set, "{feature} of {cpu}");
                seen += 1;
            }
            assert!(
                !(is_set && cpu.disabled.contains(&feature)),
                "{feature} of {cpu}"
            );
        }
        assert!(seen > 20, "{seen} of {}", features.len());
    }

    /// Moves the guest to another host, where it has to be what it was.
    fn go(&mut self, to: usize) {
        let (source, target) = (self.host(), &self.stage.hosts[to]);
        assert_eq!(target.cpu.check(self.cpu(), true), Ok(()));
        target.driver.prepare_incoming(&self.spec, &[]).unwrap();
        let uri = target.machine.peer_uri();
        let begun = Instant::now();
        let sent = source
            .driver
            .migrate(self.spec.uid, &uri, &self.spec, &Sending::default());
        sent.unwrap_or_else(|error| panic!("{} to {}: {error}", self.spec.vm, target.name));
        let time = begun.elapsed().as_secs_f64();
        println!(
            "{} moved from {} to {}: {time:.1} s",
            self.spec.vm, source.name, target.name
        );
        source.driver.release(self.spec.uid).unwrap();
        self.at = to;
        self.assert_runs();
        assert_eq!(self.read_cpuid(), self.cpuid, "{}", self.cpu());
        assert_eq!(self.read_live(), self.live);
    }

    fn assert_runs(&self) {
        let status = self.host().driver.domain(self.spec.uid).unwrap();
        assert_eq!(status.state, DomainState::Running);
        let count = self.console.count().unwrap();
        self.console
            .wait_for_count_above(count + 2, PATIENCE)
            .unwrap();
        let known = self.host().driver.domains().unwrap();
        let mut known = known.iter().map(|known| &known.domain);
        assert!(
            known.any(|known| *known == self.spec),
            "the record has the CPU"
        );
    }

    /// Checks that the guest is refused by a host that cannot give it its CPU, by what is missing, and that
    /// it goes on where it is.
    fn is_refused(&self, by: usize, missing: &str) {
        let target = &self.stage.hosts[by];
        let berths = target.cpu.check(self.cpu(), true).unwrap_err().to_string();
        assert!(berths.contains(missing), "{berths}");
        let uri = target.machine.peer_uri();
        let prepared = target.driver.prepare_incoming(&self.spec, &[]);
        let sent = self
            .host()
            .driver
            .migrate(self.spec.uid, &uri, &self.spec, &Sending::default());
        // libvirt compares nothing at the destination: its QEMU is started, and reports what it gives.
        let at_start = "guest CPU doesn't match specification: missing features";
        for (refused, expected) in [(prepared, missing), (sent, at_start)] {
            let Err(Error::Refused { message }) = refused else {
                panic!("{} lacks {missing}: {refused:?}", target.name);
            };
            println!("{} refused by {}: {message}", self.spec.vm, target.name);
            assert!(message.contains(expected), "{message}");
        }
        let there = target.driver.domain(self.spec.uid).unwrap();
        assert_eq!(there.state, DomainState::Absent);
        self.assert_runs();
    }

    fn end(self) {
        self.host().driver.destroy(self.spec.uid).unwrap();
    }
}

/// Method: the guest itself executes CPUID after each move: what it sees is not what its kernel remembers.
pub(crate) fn guests_move_between_generations_and_keep_their_cpus() {
    let begun = Instant::now();
    let lab = Lab::hypervisors(6).unwrap();
    let images = images().unwrap();
    let stage = Stage::set(&lab, &images);
    let own = |host: usize| stage.hosts[host].cpu.host_model.clone();
    let nehalem = CpuModelName::new("Nehalem").unwrap();
    let journeys: [(Arc<GuestCpu>, &[usize]); 5] = [
        (own(WESTMERE), &[WESTMERE, SANDY_BRIDGE, HASWELL]),
        (
            stage.baseline([NEHALEM, WESTMERE]),
            &[NEHALEM, WESTMERE, NEHALEM],
        ),
        // Much of its model is disabled.
        (own(SANDY_BRIDGE), &[SANDY_BRIDGE, HASWELL]),
        (own(EPYC), &[EPYC, ROME, EPYC]),
        // A model as it is has no vendor that it requires.
        (Arc::new(GuestCpu::named(nehalem)), &[NEHALEM, EPYC]),
    ];
    for disabling in [2, 3] {
        assert!(!journeys[disabling].0.disabled.is_empty());
    }
    let moves: BTreeMap<_, _> = thread::scope(|scope| {
        let travelling: Vec<_> = (1..)
            .zip(&journeys)
            .map(|(number, (cpu, stops))| {
                let stage = &stage;
                scope.spawn(move || {
                    let mut guest = stage.start(number, cpu, stops[0]);
                    for &stop in &stops[1..] {
                        guest.go(stop);
                    }
                    match number {
                        1 => guest.is_refused(NEHALEM, "aes"),
                        4 => guest.is_refused(HASWELL, "vendor"),
                        _ => {}
                    }
                    guest.end();
                    (number, stops.len() - 1)
                })
            })
            .collect();
        let ended = travelling.into_iter().map(|one| one.join().unwrap());
        ended.collect()
    });
    let (all, time) = (moves.values().sum::<usize>(), begun.elapsed().as_secs_f64());
    println!(
        "{all} moves of {} guests, 2 refused; {time:.1} s",
        moves.len()
    );
    remove_sockets(&stage.shared);
}
