//! Berth's nouns and arithmetic, and every hard constraint as a predicate.
//!
//! Invariant: this crate is pure. No I/O, no clock, no randomness, no threads; what it decides
//! depends on its arguments alone. It imports nothing else of Berth.
//!
//! | module | what |
//! |---|---|
//! | [`name`], [`id`] | names that people choose, identifiers that programs choose |
//! | [`cpu_set`], [`cell_id`], [`topology`], [`pci`] | a host's CPUs, cells, sockets, pages, PCI functions |
//! | [`pmem`] | namespaces of persistent memory and their labels |
//! | [`flavor`], [`image`], [`instance`], [`cpu_shape`] | what a guest requires |
//! | [`network`] | networks, and which hosts reach them |
//! | [`first_boot`] | what a guest is given for its first boot |
//! | [`platform`] | architectures, types of hypervisors |
//! | [`numa`], [`assignment`] | the fit of guest cells to host cells, and its result |
//! | [`resource`], [`standard`] | resource classes and traits, and their standard names |
//! | [`inventory`], [`overcommit`], [`provider`], [`allocation`] | counted resources |
//! | [`memory`] | how much memory of guests a host may hold, and whether it holds more |
//! | [`host_rule`] | how much of memory and shared CPUs of a host may be given away |
//! | [`volume`] | volumes of persistent memory: regions, sizes, extents |
//! | [`import`], [`origin`] | what is taken over from another Placement |
//! | [`claim`] | what a guest holds on a host, counted and exact |
//! | [`host`], [`service`], [`version`] | hosts and services as they report themselves |
//! | [`host_view`], [`constraint`] | a host with what is used of it, and every rule of placement |
//! | [`aggregate`] | hosts with something in common, availability zones |
//! | [`server_group`] | VMs that are kept together, or apart |
//! | [`policy`] | what operators prefer where a guest could go to several hosts |
//! | [`fence`] | proof that a host is dead |
//! | [`grant`] | what a conductor may do at agents under a lease |
//! | [`revocation`] | certificates that are revoked |
//! | [`signals`] | what agents measure of the memory of their hosts |
//! | [`reality`] | what a hypervisor has, compared with its host's claims |
//! | [`recovery`] | what a cluster does whose state is older than its hosts |
//! | [`ownership`] | the project of a record, and its creator |
//! | [`vm`], [`migration`], [`operation`] | long-lived things and their state machines |
//! | [`cpu_model`] | what guests see as their processor, and which hosts can give it |
//! | [`host_check`] | what a check of hosts observes, and what follows from comparing them |
//! | [`migration_tls`] | whether a pair of hosts encrypts live migrations |
//! | [`filter`] | the language in which lists are filtered |
//! | [`event`], [`audit`] | events of changes, and the audit of requests |
//! | [`bound`] | how much of each record the state holds, by the role that creates it |
//! | [`refusal`], [`missing`], [`fault`], [`field_fault`] | every refusal, with its reason |

pub mod agent;
pub mod aggregate;
pub mod allocation;
pub mod assignment;
pub mod audit;
pub mod bound;
pub mod cell_id;
pub mod claim;
pub mod constraint;
pub mod cpu_model;
pub mod cpu_set;
pub mod cpu_shape;
mod digest;
pub mod event;
pub mod fault;
pub mod fence;
pub mod field_fault;
pub mod filter;
pub mod first_boot;
pub mod flavor;
pub mod grant;
pub mod hint;
pub mod history;
pub mod host;
pub mod host_check;
pub mod host_rule;
pub mod host_view;
pub mod id;
pub mod image;
pub mod import;
pub mod instance;
pub mod inventory;
pub mod memory;
pub mod migration;
pub mod migration_tls;
pub mod missing;
pub mod name;
pub mod network;
pub mod numa;
pub mod operation;
pub mod origin;
pub mod overcommit;
pub mod ownership;
pub mod pci;
pub mod platform;
pub mod pmem;
pub mod policy;
pub mod provider;
pub mod reality;
pub mod recovery;
pub mod refusal;
pub mod resource;
pub mod revocation;
pub mod server_group;
pub mod service;
pub mod signals;
pub mod standard;
pub mod topology;
pub mod transfer;
pub mod version;
pub mod vm;
pub mod volume;
