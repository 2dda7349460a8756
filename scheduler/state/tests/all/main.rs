//! The integration tests of the replicated state, command by command, in one binary.
//!
//! Each test starts a [`World`](berth_testkit::state::World), which checks every invariant after each
//! command.
//!
//! | module | what it tests |
//! |---|---|
//! | `aggregates` | aggregates and zones |
//! | `attached` | volumes of VMs |
//! | `audit` | the audit |
//! | `batch` | several writes of counted placement in one command |
//! | `catalog` | custom resource classes and traits |
//! | `cpu_models` | what guests see as their processor |
//! | `cpus` | the policy on shared CPUs |
//! | `cold_moves` | moves of VMs that are off |
//! | `disk_moves` | the disks of such VMs |
//! | `drains` | drains of hosts, and conductors that die at every turn of one |
//! | `fences` | hosts that were fenced |
//! | `groups` | server groups |
//! | `hosts` | what hosts may take, and their shapes |
//! | `import` | import from another Placement |
//! | `leases` | leases of operations |
//! | `memory` | the policy on memory |
//! | `metadata` | labels, descriptions and protections of VMs |
//! | `operations` | boots, migrations and deletions |
//! | `pci_aliases` | PCI aliases |
//! | `pci_functions` | PCI functions of claims |
//! | `placement` | resource providers, inventories, allocations |
//! | `pmem` | persistent memory of claims |
//! | `power` | stop, start, reboot, rebuild, snapshot |
//! | `reality` | what agents find on their hosts |
//! | `requests` | retries |
//! | `reshape` | the reshaper |
//! | `sagas` | the order of steps, as sagas log them and as the state takes them |
//! | `scale` | states of any size that the test kit makes |
//! | `sequences` | random sequences of commands |
//! | `transfer` | parameters of a transfer |
//! | `versions` | the cluster version |
//! | `volumes` | volumes of persistent memory |

mod aggregates;
mod attached;
mod audit;
mod batch;
mod bounded;
mod catalog;
mod cold_moves;
mod consoles;
mod cpu_models;
mod cpus;
mod disk_moves;
mod drains;
mod fences;
mod groups;
mod hosts;
mod images;
mod import;
mod leases;
mod memory;
mod metadata;
mod networks;
mod operations;
mod ownership;
mod pci_aliases;
mod pci_functions;
mod placement;
mod pmem;
mod power;
mod reality;
mod recovery;
mod reported_names;
mod requests;
mod reshape;
mod restarts;
mod revocations;
mod sagas;
mod scale;
mod sequences;
mod transfer;
mod versions;
mod volumes;
