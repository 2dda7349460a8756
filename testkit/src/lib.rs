//! Helpers that the tests, examples and benchmarks of more than one target share. No product code
//! is here, and no product code may import it (`tests/tests/layering.rs`).
//!
//! Each module has a feature of its own name, so that the tests of a crate compile the crates that
//! their helpers need and no others. What a single test binary uses stays beside that binary.
//!
//! A crate uses it as a dev-dependency, also where the helpers depend on that crate itself. Its
//! integration tests and benchmarks then see one and the same type; its unit tests would see two,
//! and so must not use it.
//!
//! | module | what |
//! |---|---|
//! | `browser` | Debian's Chromium, driven |
//! | `fit` | random hosts and guests, and a solver that tries every assignment |
//! | `ganeti` | random Ganeti clusters, and Debian's htools where they are installed |
//! | `guests` | claims for guests, made and given back over gRPC by hand |
//! | `power` | a disk whose power can be cut |
//! | `replication` | a small replicated machine, and a group of members that runs it |
//! | `selection` | hosts of any shape, guests and claims for the choice of a host |
//! | `state` | a cluster whose state is checked after each command, and random commands |
//! | `wait` | waiting for a condition |

#[cfg(feature = "browser")]
pub mod browser;
#[cfg(feature = "fit")]
pub mod fit;
#[cfg(feature = "ganeti")]
pub mod ganeti;
#[cfg(feature = "guests")]
pub mod guests;
#[cfg(feature = "power")]
pub mod power;
#[cfg(feature = "replication")]
pub mod replication;
#[cfg(feature = "selection")]
pub mod selection;
#[cfg(feature = "state")]
pub mod state;
#[cfg(feature = "wait")]
pub mod wait;
