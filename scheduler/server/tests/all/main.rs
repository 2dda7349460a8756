//! The integration tests of the scheduler, over gRPC and REST, in one binary.
//!
//! | module | what it tests |
//! |---|---|
//! | `addresses` | members at other addresses than the recorded ones |
//! | `ahead` | numbers of agents that are ahead |
//! | `audit` | the audit |
//! | `backup` | backups of the whole state |
//! | `candidates` | allocation candidates |
//! | `common` | schedulers in this process and requests to them |
//! | `dead_members` | removal of members that do not answer |
//! | `events` | watches |
//! | `feed` | the feed behind watches |
//! | `filters` | filters of VMs in lists and refusals |
//! | `growth` | what each role can make the state hold |
//! | `hints` | what is advised where a request is refused |
//! | `hostile` | hosts and guests that cannot be |
//! | `import` | import from another Placement |
//! | `inputs` | invalid requests |
//! | `joining` | joining that is interrupted or refused |
//! | `liveness` | hosts whose heartbeats stop |
//! | `one` | one member from end to end |
//! | `pci_aliases` | PCI aliases |
//! | `placement` | counted placement |
//! | `placement_durable` | acknowledged writes after `kill -9` |
//! | `placement_forward` | writes to a follower |
//! | `placement_hostile` | slow and numerous clients |
//! | `placement_rest` | who may call the REST API |
//! | `process` | the program: refused starts and `kill -9` |
//! | `labels` | labels and descriptions of VMs in lists and refusals |
//! | `projects` | projects of VMs in lists and usages |
//! | `promises` | what answers state, under faults |
//! | `providers` | batches and watches of providers |
//! | `repeats` | repeated requests |
//! | `retained` | what a member retains in memory |
//! | `stops` | every way in which a member stops, and its remedy |
//! | `three` | three members |
//! | `versions` | every command at every cluster version |
//! | `volumes` | volumes of persistent memory |

mod addresses;
mod ahead;
mod audit;
mod backup;
mod candidates;
mod common;
mod dead_members;
mod diagnostics;
mod events;
mod feed;
mod filters;
mod growth;
mod hints;
mod history;
mod hostile;
mod import;
mod inputs;
mod joining;
mod labels;
mod liveness;
mod one;
mod pci_aliases;
mod placement;
mod placement_durable;
mod placement_forward;
mod placement_hostile;
mod placement_rest;
mod process;
mod projects;
mod promises;
mod providers;
mod reads;
mod repeats;
mod retained;
mod stops;
mod three;
mod versions;
mod volumes;
