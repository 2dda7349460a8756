//! Schedulers, conductors and agents as processes.
//!
//! Not the commands that tests run on it: see `commands`.

use std::fs;
use std::path::{Path, PathBuf};

use super::commands::list;
use berth_tls::Role;

use super::{Addresses, Certs, Gate, Part, Programs, certs, eventually};

/// A simulated host: its shape and what its agent is started with.
#[derive(Clone, Debug)]
pub struct Host {
    /// Its name.
    pub name: String,
    /// How many cells it has, each on a socket of its own.
    pub cells: u32,
    /// How many CPUs each cell has; the first of each is shared, the others are dedicated.
    pub cpus: u32,
    /// The service version that its agent behaves like; the newest if absent.
    pub service_version: Option<u32>,
    /// What else its machine has, as the description of a machine writes it.
    pub machine_more: String,
    /// More of its agent's configuration file: tables.
    pub config_more: String,
    /// The settings of volumes of its agent, beside their directory; it has none if absent.
    pub volumes: Option<String>,
    /// The namespaces of persistent memory that are for guests, as the agent's option names them.
    pub pmem_namespaces: String,
    /// How much persistent memory is erased in a second.
    pub erase_mib_per_s: u64,
    /// Its machine, where it is not made of `cells` and `cpus`.
    pub described: Option<Described>,
    /// Its storage, where the disks of its guests are files: hosts with the same one share them. All
    /// share one without files if absent.
    pub storage: Option<String>,
    /// The driver of its agent.
    pub driver: &'static str,
}

/// A machine that is described in full.
#[derive(Clone, Debug)]
pub struct Described {
    /// The description without what is in [`Host::machine_more`].
    pub machine: String,
    /// The flags that tell its agent which CPUs are for whom.
    pub cpu_sets: Vec<(&'static str, String)>,
}

impl Host {
    /// Returns a host of two cells of four CPUs.
    #[must_use]
    pub fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            cells: 2,
            cpus: 4,
            service_version: None,
            machine_more: String::new(),
            config_more: String::new(),
            volumes: None,
            pmem_namespaces: String::new(),
            erase_mib_per_s: 1 << 30,
            described: None,
            storage: None,
            driver: "sim",
        }
    }

    /// Returns a host that is there for volumes, and runs no guests.
    #[must_use]
    pub fn without_guests(name: &str) -> Self {
        Self {
            driver: "none",
            ..Self::new(name)
        }
    }

    /// Returns a host with this machine, of which these CPUs are dedicated and these are shared; a
    /// set that is empty is not passed to its agent.
    #[must_use]
    pub fn described(name: &str, machine: &str, dedicated: &str, shared: &str) -> Self {
        let sets = [
            ("--cpu-dedicated-set", dedicated),
            ("--cpu-shared-set", shared),
        ];
        let used = sets.into_iter().filter(|(_, cpus)| !cpus.is_empty());
        Self {
            described: Some(Described {
                machine: machine.to_owned(),
                cpu_sets: used.map(|(flag, cpus)| (flag, cpus.to_owned())).collect(),
            }),
            ..Self::new(name)
        }
    }

    /// Gives it a storage, with the disks of its guests as files.
    #[must_use]
    pub fn with_storage(mut self, name: &str) -> Self {
        self.storage = Some(name.to_owned());
        self
    }

    /// Returns a host with this machine, of which these CPUs are for guests of both kinds.
    #[must_use]
    pub fn described_with_pin_set(name: &str, machine: &str, cpus: &str) -> Self {
        Self {
            described: Some(Described {
                machine: machine.to_owned(),
                cpu_sets: vec![("--vcpu-pin-set", cpus.to_owned())],
            }),
            ..Self::new(name)
        }
    }

    /// Returns the same host with more configuration of its agent: keys of `[sim]`, then other tables.
    #[must_use]
    pub fn with_config(mut self, more: &str) -> Self {
        self.config_more = more.to_owned();
        self
    }

    /// Returns the same host with a bridge to a physical network.
    #[must_use]
    pub fn with_network(mut self, physical: &str, bridge: &str) -> Self {
        let table = format!("\n[[physical_networks]]\nname = {physical:?}\nbridge = {bridge:?}\n");
        self.config_more.push_str(&table);
        self
    }

    /// Returns the same host with these PCI functions and these rules about them.
    #[must_use]
    pub fn with_pci(mut self, functions: &str, rules: &str) -> Self {
        self.machine_more = functions.to_owned();
        self.config_more = rules.to_owned();
        self
    }

    /// Returns the same host with a hypervisor that offers this as a CPU: `[cpu]` of its description.
    #[must_use]
    pub fn with_cpu_model(mut self, cpu: &str) -> Self {
        self.machine_more.push_str(cpu);
        self
    }

    /// Returns the same host with these namespaces of persistent memory, each by its name, size in
    /// MiB and cell, of which the option names those for guests.
    #[must_use]
    pub fn with_pmem(mut self, namespaces: &[(&str, u64, u32)], option: &str) -> Self {
        for (name, size_mib, cell) in namespaces {
            let described =
                format!("[[pmem]]\nname = {name:?}\nsize_mib = {size_mib}\nnuma_node = {cell}\n");
            self.machine_more.push_str(&described);
        }
        self.pmem_namespaces = option.to_owned();
        self
    }

    /// Returns the same host with simulated volumes in these regions, each as `region0:1024` (MiB),
    /// made as `manager` says (`sim` or `sim-direct`), and their other settings.
    #[must_use]
    pub fn with_volumes(mut self, manager: &str, regions: &[&str], more: &str) -> Self {
        self.volumes = Some(format!(
            "manager = {manager:?}\nsim_regions = {regions:?}\n{more}\n"
        ));
        self
    }

    /// Returns the same host with so many CPUs per cell.
    #[must_use]
    pub fn with_cpus(mut self, cpus: u32) -> Self {
        self.cpus = cpus;
        self
    }

    /// Returns the same host with an agent of this service version.
    #[must_use]
    pub fn at_version(mut self, version: u32) -> Self {
        self.service_version = Some(version);
        self
    }

    fn machine(&self) -> String {
        if let Some(described) = &self.described {
            return format!("{}{}", described.machine, self.machine_more);
        }
        let cell = |id: u32| {
            let (first, last) = (id * self.cpus, (id + 1) * self.cpus - 1);
            format!(
                "[[cells]]\nid = {id}\nsocket = {id}\ncpus = \"{first}-{last}\"\n\
                 memory_mib = 65536\nhuge_pages = [{{ size_kib = 2048, total = 4096 }}]\n"
            )
        };
        let more = std::iter::once(self.machine_more.clone());
        (0..self.cells).map(cell).chain(more).collect()
    }

    fn cpu_sets(&self) -> Vec<(&'static str, String)> {
        if let Some(described) = &self.described {
            return described.cpu_sets.clone();
        }
        if self.driver == "none" {
            return Vec::new();
        }
        let shared = |id: u32| (id * self.cpus).to_string();
        let dedicated = |id: u32| format!("{}-{}", id * self.cpus + 1, (id + 1) * self.cpus - 1);
        let list = |of: &dyn Fn(u32) -> String| (0..self.cells).map(of).collect::<Vec<_>>();
        vec![
            ("--cpu-dedicated-set", list(&dedicated).join(",")),
            ("--cpu-shared-set", list(&shared).join(",")),
        ]
    }
}

/// What a cluster is to consist of.
#[derive(Debug)]
pub struct Builder {
    programs: Programs,
    schedulers: u32,
    conductors: u32,
    hosts: Vec<Host>,
    transfer_ms: u64,
    lease_ttl_ms: u64,
    checkpoint_entries: u64,
    scheduler_config: String,
    service_version: Option<u32>,
    certified: bool,
    given: Option<usize>,
    gated: bool,
    watched: bool,
    paged: bool,
    page_login: bool,
    tables: String,
}

impl Builder {
    /// Changes how many schedulers there are.
    #[must_use]
    pub fn schedulers(mut self, count: u32) -> Self {
        self.schedulers = count;
        self
    }

    /// Changes how many conductors there are.
    #[must_use]
    pub fn conductors(mut self, count: u32) -> Self {
        self.conductors = count;
        self
    }

    /// Adds a host.
    #[must_use]
    pub fn host(mut self, host: Host) -> Self {
        self.hosts.push(host);
        self
    }

    /// Changes how long a guest takes to move.
    #[must_use]
    pub fn transfer_ms(mut self, ms: u64) -> Self {
        self.transfer_ms = ms;
        self
    }

    /// Changes for how long conductors hold an operation at a time.
    #[must_use]
    pub fn lease_ttl_ms(mut self, ms: u64) -> Self {
        self.lease_ttl_ms = ms;
        self
    }

    /// Changes after how many log entries a checkpoint is written.
    #[must_use]
    pub fn checkpoint_entries(mut self, entries: u64) -> Self {
        self.checkpoint_entries = entries;
        self
    }

    /// Adds to the configuration file of every scheduler: keys, then tables.
    #[must_use]
    pub fn scheduler_config(mut self, more: &str) -> Self {
        self.scheduler_config = more.to_owned();
        self
    }

    /// Adds tables to the configuration file of every scheduler, conductor and agent.
    #[must_use]
    pub fn tables(mut self, more: &str) -> Self {
        self.tables = more.to_owned();
        self
    }

    /// Starts everything at this service version, this time only: a part that is started again is
    /// what its program can do.
    #[must_use]
    pub fn at_version(mut self, version: u32) -> Self {
        self.service_version = Some(version);
        self
    }

    /// Gives conductors, agents and controllers the addresses of the first so many schedulers only.
    #[must_use]
    pub fn given(mut self, schedulers: usize) -> Self {
        self.given = Some(schedulers);
        self
    }

    /// Has the scheduler, which must be the only one, advertise a gate to itself, so that no program
    /// learns another way to it than the one that it is given.
    #[must_use]
    pub fn gated(mut self) -> Self {
        self.gated = true;
        self
    }

    /// Has every part serve its metrics and its health.
    #[must_use]
    pub fn watched(mut self) -> Self {
        self.watched = true;
        self
    }

    /// Has every scheduler serve the page.
    #[must_use]
    pub fn paged(mut self) -> Self {
        self.paged = true;
        self
    }

    /// Has browsers log in to the pages.
    #[must_use]
    pub fn with_page_logins(mut self) -> Self {
        self.page_login = true;
        self.paged()
    }

    /// Gives everybody a certificate.
    #[must_use]
    pub fn certified(mut self) -> Self {
        self.certified = true;
        self
    }

    /// Starts everything, and waits until all of it has found each other.
    ///
    /// # Panics
    ///
    /// When it does not; the logs are shown.
    #[track_caller]
    #[must_use]
    pub fn start(self) -> Cluster {
        let folder = tempfile::Builder::new()
            .prefix("berth-processes-")
            .tempdir()
            .expect("a directory for a cluster");
        let addresses = Addresses::new();
        let certs = folder.path().join("certs");
        let certs = self.certified.then(|| Certs::new(certs, addresses.ip()));
        let mut cluster = Cluster {
            certs,
            programs: self.programs,
            schedulers: Vec::new(),
            conductors: Vec::new(),
            agents: Vec::new(),
            csi_controllers: Vec::new(),
            addresses,
            checkpoint_entries: self.checkpoint_entries,
            scheduler_config: self.scheduler_config,
            tables: self.tables,
            schedulers_made: 0,
            given: self.given,
            gated: self.gated,
            watched: self.watched,
            paged: self.paged,
            page_login: self.page_login,
            gate: None,
            begin_at: self.service_version.map(|version| version.to_string()),
            folder,
        };
        for _ in 0..self.schedulers {
            cluster.add_scheduler();
        }
        for number in 0..self.conductors {
            cluster.add_conductor(number, self.lease_ttl_ms);
        }
        for host in &self.hosts {
            cluster.add_agent(host, self.transfer_ms);
        }
        cluster.begin_at = None;
        cluster.wait();
        cluster
    }
}

/// A cluster of processes.
#[derive(Debug)]
pub struct Cluster {
    /// The programs.
    pub programs: Programs,
    /// The members, in the order in which they were started.
    pub schedulers: Vec<Part>,
    /// The conductors, `conductor-1` and so on.
    pub conductors: Vec<Part>,
    /// The agents, named like their hosts.
    pub agents: Vec<Part>,
    /// The controllers of volumes, in the order in which they were started.
    pub csi_controllers: Vec<Part>,
    /// The certificates of all of them, where they have any.
    pub certs: Option<Certs>,
    addresses: Addresses,
    checkpoint_entries: u64,
    /// The rest of the configuration file of a scheduler.
    scheduler_config: String,
    /// Tables of the configuration files of all parts.
    tables: String,
    /// How many schedulers there have ever been: a removed one's directory is of no use.
    schedulers_made: u32,
    /// How many of the schedulers' addresses the other parts are given; all if absent.
    given: Option<usize>,
    gated: bool,
    watched: bool,
    paged: bool,
    page_login: bool,
    /// The gate that the scheduler advertises, until it is taken.
    gate: Option<Gate>,
    /// The service version at which parts are started, while the first ones are.
    begin_at: Option<String>,
    /// Last, so that it is removed after the processes have ended.
    folder: tempfile::TempDir,
}

impl Cluster {
    /// Begins the description of a cluster with three schedulers and a conductor, of which all
    /// programs are in `binary` (`env!("CARGO_BIN_EXE_berth-programs")`).
    #[must_use]
    pub fn builder(binary: &str) -> Builder {
        Builder {
            programs: Programs::new(binary),
            schedulers: 3,
            conductors: 1,
            hosts: Vec::new(),
            transfer_ms: 300,
            lease_ttl_ms: 10_000,
            checkpoint_entries: 200_000,
            scheduler_config: String::new(),
            service_version: None,
            certified: false,
            given: None,
            gated: false,
            watched: false,
            paged: false,
            page_login: false,
            tables: String::new(),
        }
    }

    /// Returns the directory with all data and logs.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Returns the gate that the scheduler advertises.
    ///
    /// # Panics
    ///
    /// When it was started without, or the gate was taken before.
    #[must_use]
    pub fn take_gate(&mut self) -> Gate {
        self.gate.take().expect("the cluster is gated")
    }

    /// Returns the certificates of a cluster in which every part has one.
    ///
    /// # Panics
    ///
    /// When it was started without.
    #[must_use]
    pub fn certificates(&self) -> &Certs {
        self.certs.as_ref().expect("every part is certified")
    }

    /// Returns an address beside those of the parts that no process listens on.
    ///
    /// # Panics
    ///
    /// When there is none.
    #[must_use]
    pub fn free_address(&self) -> String {
        let bound = std::net::TcpListener::bind((self.addresses.ip(), 0));
        let bound = bound.and_then(|bound| bound.local_addr());
        bound.expect("a free port").to_string()
    }

    /// Returns the directory of a scheduler.
    #[must_use]
    pub fn data_dir(&self, scheduler: usize) -> PathBuf {
        self.folder().join(&self.schedulers[scheduler].name)
    }

    /// Returns the file that tells the simulated hypervisor of a host what happens to it.
    #[must_use]
    pub fn story_file(&self, host: &str) -> PathBuf {
        self.folder().join(format!("{host}-story.txt"))
    }

    /// Returns where the disks of guests are on a storage that has files.
    #[must_use]
    pub fn disk_dir(&self, storage: &str) -> PathBuf {
        self.folder().join(format!("disks-{storage}"))
    }

    /// Returns where a host has the files of the cluster's images.
    #[must_use]
    pub fn image_dir(&self, host: &str) -> PathBuf {
        self.folder().join(format!("{host}-images"))
    }

    /// Returns the file in which a simulated hypervisor keeps its guests.
    #[must_use]
    pub fn guests_file(&self, host: &str) -> PathBuf {
        self.folder().join(format!("{host}-guests.json"))
    }

    /// Starts one more scheduler: the first makes the cluster, the others join it.
    #[track_caller]
    pub fn add_scheduler(&mut self) {
        self.schedulers_made += 1;
        let name = format!("scheduler-{}", self.schedulers_made);
        let address = self.addresses.free();
        let config = self.folder().join(format!("{name}.toml"));
        let entries = self.checkpoint_entries;
        let (more, tables) = (&self.scheduler_config, &self.tables);
        let text = format!("checkpoint_entries = {entries}\n{more}\n{tables}");
        write(&config, &text);
        let data_dir = self.folder().join(&name);
        let mut arguments = vec![
            ("--config", shown(&config)),
            ("--data-dir", shown(&data_dir)),
            ("--listen", address.clone()),
        ];
        if self.gated {
            let gate = Gate::to(&address);
            arguments.push(("--advertise", gate.address().to_string()));
            self.gate = Some(gate);
        }
        let others = self.schedulers.iter_mut();
        let others: Vec<String> = others
            .filter_map(|other| other.is_running().then(|| other.address.clone()))
            .collect();
        let mut begin: Vec<&str> = match others.is_empty() {
            true => vec!["--bootstrap"],
            false => others.iter().flat_map(|o| ["--join", o]).collect(),
        };
        begin.extend(self.first_version());
        let mut part = self.part("berth-scheduler", name, address, &arguments);
        part.start_with(&self.programs, &begin);
        self.schedulers.push(part);
    }

    #[track_caller]
    fn add_conductor(&mut self, number: u32, lease_ttl_ms: u64) {
        let name = format!("conductor-{}", number + 1);
        let address = self.addresses.free();
        let config = self.folder().join(format!("{name}.toml"));
        let fence = self.folder().join("fence.sh");
        // Without the script, which a test may write, nothing is fenced.
        write(
            &config,
            &format!(
                "takeover_interval_ms = 200\nfence_command = [\"sh\", {fence:?}, \"{{host}}\"]\n{}",
                self.tables
            ),
        );
        let arguments = [
            ("--config", shown(&config)),
            ("--name", name.clone()),
            ("--listen", address.clone()),
            ("--scheduler", self.given_addresses()),
            ("--data-dir", shown(&self.learnt_dir(&name))),
            ("--lease-ttl-ms", lease_ttl_ms.to_string()),
        ];
        let mut part = self.part("berth-conductor", name, address, &arguments);
        part.start_with(&self.programs, &self.first_version());
        self.conductors.push(part);
    }

    #[track_caller]
    fn add_agent(&mut self, host: &Host, transfer_ms: u64) {
        let name = host.name.clone();
        let address = self.addresses.free();
        let machine = self.folder().join(format!("{name}-machine.toml"));
        write(&machine, &host.machine());
        let config = self.folder().join(format!("{name}.toml"));
        let guests = self.guests_file(&name);
        let story = self.story_file(&name);
        let images = self.image_dir(&name);
        // A fixed address: a guest that was on its way when the process ended is looked for there.
        let sim = self.addresses.free();
        let storage = host.storage.as_deref().unwrap_or("shared");
        let disks = host.storage.as_deref().map(|name| self.disk_dir(name));
        let disks = disks.map(|directory| format!("disk_dir = {directory:?}\n"));
        let disks = disks.unwrap_or_default();
        write(
            &config,
            &format!(
                "driver = {:?}\nmemory_reserved_mib = 0\nstorage_id = {storage:?}\n\
                 compare_interval_ms = 500\nimage_retention_ms = 1500\nsignals_interval_ms = 200\npmem_namespaces = {:?}\n\
                 [sim]\nlisten = {sim:?}\ntransfer_ms = {transfer_ms}\nstate_file = {guests:?}\n\
                 story_file = {story:?}\nimage_dir = {images:?}\nerase_mib_per_s = {}\n\
                 {disks}{}\n{}",
                host.driver,
                host.pmem_namespaces,
                host.erase_mib_per_s,
                self.config_more(host),
                self.tables
            ),
        );
        let mut arguments = vec![
            ("--config", shown(&config)),
            ("--name", name.clone()),
            ("--listen", address.clone()),
            ("--scheduler", self.given_addresses()),
            ("--data-dir", shown(&self.learnt_dir(&name))),
            ("--machine-file", shown(&machine)),
        ];
        arguments.extend(host.cpu_sets());
        if let Some(version) = host.service_version {
            arguments.push(("--service-version", version.to_string()));
        }
        let mut part = self.part("berth-compute-agent", name, address, &arguments);
        part.start_with(&self.programs, &self.first_version());
        self.agents.push(part);
    }

    /// Returns the other options of the agent of a host.
    fn config_more(&self, host: &Host) -> String {
        let Some(volumes) = &host.volumes else {
            return host.config_more.clone();
        };
        let folder = self.volume_dir(&host.name);
        let socket = format!("unix://{}", folder.join("csi.sock").display());
        format!(
            "{}\n[volumes]\nstate_dir = {folder:?}\ncsi_endpoint = {socket:?}\n{volumes}",
            host.config_more
        )
    }

    fn first_version(&self) -> Vec<&str> {
        let version = self.begin_at.iter();
        version
            .flat_map(|version| ["--service-version", version])
            .collect()
    }

    pub(super) fn part(
        &self,
        program: &'static str,
        name: String,
        address: String,
        arguments: &[(&'static str, String)],
    ) -> Part {
        let log = self.folder().join(format!("{name}.log"));
        let role = match program {
            "berth-scheduler" => Role::Scheduler,
            "berth-conductor" => Role::Conductor,
            "berth-csi-controller" => Role::CsiController,
            _ => Role::Agent,
        };
        let files = self.certs.as_ref().map(|certs| certs.files(role, &name));
        let certified = files.iter().flat_map(certs::flags);
        let words = arguments.iter().cloned().chain(certified);
        let words = words.flat_map(|(flag, value)| [flag.to_owned(), value]);
        let part = Part::new(program, name, address, words.collect(), log);
        let part = match self.watched {
            true => part.watched(self.free_address()),
            false => part,
        };
        if program != "berth-scheduler" {
            return part;
        }
        let part = match self.paged {
            true => part.paged(self.free_address()),
            false => part,
        };
        match self.page_login {
            true => part.with_logins(),
            false => part,
        }
    }

    /// Returns the schedulers' addresses as `--scheduler` takes them.
    #[must_use]
    pub fn addresses(&self) -> String {
        let addresses: Vec<&str> = self.schedulers.iter().map(|s| s.address.as_str()).collect();
        addresses.join(",")
    }

    /// Returns the addresses of the schedulers that conductors, agents and controllers are given.
    pub(super) fn given_addresses(&self) -> String {
        let count = self.given.unwrap_or(usize::MAX);
        let given = self.schedulers.iter().take(count);
        let given: Vec<&str> = given.map(|s| s.address.as_str()).collect();
        given.join(",")
    }

    /// Returns the directory in which a conductor, agent or controller stores the learnt schedulers.
    #[must_use]
    pub fn learnt_dir(&self, part: &str) -> PathBuf {
        self.folder().join(format!("{part}-data"))
    }

    /// Waits until all schedulers vote, and all conductors and hosts that run are registered.
    ///
    /// # Panics
    ///
    /// When they do not.
    #[track_caller]
    pub fn wait(&mut self) {
        let voters = self
            .schedulers
            .iter_mut()
            .filter_map(|s| s.is_running().then_some(()));
        let voters = voters.count();
        let hosts = self
            .agents
            .iter_mut()
            .filter_map(|a| a.is_running().then_some(()));
        let hosts = hosts.count();
        eventually("a cluster that is complete", || {
            let status = self.ask(&["cluster", "status"])?;
            let members = list(&status["members"]);
            let voting = members.iter().filter(|m| m["role"] == "voter").count();
            let conductors = list(&status["conductors"]).len();
            let up = self.ask(&["host", "list"])?;
            let up = list(&up)
                .iter()
                .filter(|h| h["host"]["liveness"] == "Up")
                .count();
            let complete = voting == voters && conductors >= self.conductors.len() && up >= hosts;
            complete.then_some(()).ok_or_else(|| {
                format!("{voting} of {voters} vote, {conductors} conductors, {up} of {hosts} hosts")
            })
        });
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let parts = self.schedulers.iter().chain(&self.conductors);
            for part in parts.chain(&self.agents).chain(&self.csi_controllers) {
                eprintln!("{}", part.shown());
            }
        }
    }
}

fn write(file: &Path, text: &str) {
    fs::write(file, text).expect("a file in a directory of our own");
}

fn shown(path: &Path) -> String {
    path.display().to_string()
}
