//! The integration tests of replication, in one binary.
//!
//! `processes` is a binary of its own: it starts itself as the process that is killed.
//!
//! | module | what it tests |
//! |---|---|
//! | `group` | three members in one process |
//! | `history` | states with their place, and the entries between them |
//! | `hung_disk` | three members of which one has a disk that does not answer |
//! | `lost_history` | members that come back with an older disk |
//! | `membership` | changes of the membership, and transfers of leadership |
//! | `patience` | commands that take longer than an election timeout |
//! | `simulation` | a group under simulated faults |
//! | `single` | one member on a real disk |
//! | `stops` | what makes a replica stop |
//! | `trio` | three members on disks in memory |

mod group;
mod history;
mod hung_disk;
mod lost_history;
mod membership;
mod patience;
mod simulation;
mod single;
mod stops;
mod trio;
