//! What the tests that cross crates share: harnesses and helpers. No product code is here.
//!
//! | room | what |
//! |---|---|
//! | `tests/layering.rs` | who may import whom |
//! | [`lab`] | machines in namespaces, hypervisors, guests that boot |
//! | [`processes`] | every part as a process on loopback, killed and started again |
//! | [`small`] | a whole Berth within a test, for scenarios |
//! | `tests/real_lab.rs` | the lab and the libvirt binding on real guests |
//! | `tests/real_system/` | the whole of Berth on real guests |
//! | `tests/real_nodes/` | the whole of Berth on a machine with four NUMA nodes |
//! | `tests/real_watchdog.rs` | machines that their watchdog resets |

pub mod lab;
pub mod processes;
pub mod small;
