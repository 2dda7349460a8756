//! NUMA for real: agents, conductor and scheduler on a machine whose kernel has four nodes, with
//! two hypervisors in it.
//!
//! Goal: memory and threads are where the claim says, before and after a migration, by what the
//! kernel tells: policy and pages of each mapping, free huge pages of each node, affinity of each
//! thread. Method: the machine is emulated and runs this very program; in there every part of
//! Berth is a process, commands are typed as a user types them, and guests look after their memory
//! themselves. The scenarios follow each other, since starting the machine is what takes the time.
//!
//! Both hosts are on one kernel, so what one of them may give is kept from the other: by their
//! dedicated CPUs and their reserved pages.
//!
//! ```text
//!   node                 0          1          2          3
//!   CPUs                 0,1        2,3        4,5        6,7
//!   pages of 2 MiB       16         16         16         32, for nobody
//!   host-a may give                 2,3        4, pages   6
//!   host-b may give      0,1 pages  2 pages    4,5
//! ```

pub(crate) mod scenarios;

use std::path::Path;
use std::time::Duration;

use berth_tests::lab::{FourNodes, counting_guest};

use crate::harness::{FINISHED, ROLE};
use crate::{PROGRAMS, site};

/// The role of this program in the machine.
pub(crate) const SCENARIOS: &str = "nodes/scenarios";

/// It takes some 220 s of processor time, which two idle CPUs share.
const PATIENCE: Duration = Duration::from_secs(900);

pub(crate) fn memory_is_where_the_claim_says() {
    let directory = tempfile::tempdir().unwrap();
    let guest = directory.path().join("counter");
    counting_guest(&guest).unwrap();
    let outcome = FourNodes::default()
        .program(&std::env::current_exe().unwrap(), "/lab/test")
        .program(Path::new(PROGRAMS), site::PROGRAMS)
        .file(&guest, site::GUEST)
        .variable(ROLE, SCENARIOS)
        .variable("RUST_BACKTRACE", "1")
        .run(&["/lab/test"], PATIENCE)
        .unwrap();
    println!("{}", outcome.console);
    assert_eq!(outcome.status, Some(0), "the console is above");
    assert!(outcome.console.contains(FINISHED), "the console is above");
}
