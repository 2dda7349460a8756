//! Whether Nova and Berth find a fit where there is one.
//!
//! Only guests that a flavor can make, on hosts that report pages, as all do: of others Nova need
//! not know anything. Where Nova differs, the seed is told on the standard error output.

use berth_cli::fit::{Options, respond};
use berth_domain::instance::{CpuPolicy, EmulatorThreads, InstanceCell};
use berth_testkit::fit::draw::{Case, Size, case};
use berth_testkit::fit::solver;
use serde_json::Value;

use super::nova::Nova;
use super::write;

/// How long Nova may take for one case, in seconds. It tries permutations.
const SECONDS: u64 = 10;

/// What was counted of some cases.
#[derive(Clone, Debug, Default)]
struct Tally {
    cases: u64,
    feasible: u64,
    /// Of Berth, and of Nova: where it differs from the solver.
    berth: Wrong,
    nova: Wrong,
    /// Fits of Nova that its own claim refuses.
    claim_refused: u64,
    /// Cases that Nova did not answer in time, or with an error.
    unanswered: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Wrong {
    missed: u64,
    impossible: u64,
}

impl Wrong {
    fn note(&mut self, exists: bool, fits: bool) {
        self.missed += u64::from(exists && !fits);
        self.impossible += u64::from(fits && !exists);
    }
}

/// A kind of cases: its name, and whether a case is of it.
type Kind = (&'static str, fn(&Case) -> bool);

/// One case may be of several kinds.
const KINDS: [Kind; 7] = [
    ("up to 4 host cells", |c| c.topology.cells().len() < 16),
    ("… 4 or 8 threads per core", |c| {
        is_small(c) && threads(c) >= 4
    }),
    ("… guest cells unlike each other", |c| {
        is_small(c) && is_asymmetric(c)
    }),
    ("… 8 devices and more", |c| {
        is_small(c) && c.topology.pci().len() >= 8
    }),
    ("16 host cells", |c| !is_small(c)),
    ("… guest cells unlike each other", |c| {
        !is_small(c) && is_asymmetric(c)
    }),
    ("… 8 devices and more", |c| {
        !is_small(c) && c.topology.pci().len() >= 8
    }),
];

fn is_small(case: &Case) -> bool {
    case.topology.cells().len() < 16
}

fn threads(case: &Case) -> usize {
    let cores = case.topology.cells().iter().flat_map(|cell| &cell.cores);
    cores.map(|core| core.len()).max().unwrap_or(0)
}

fn is_asymmetric(case: &Case) -> bool {
    let size = |cell: &InstanceCell| (cell.dedicated.len(), cell.shared.len(), cell.memory_mib);
    let cells = &case.demand.cells;
    cells.iter().any(|cell| size(cell) != size(&cells[0]))
}

/// Asks all, and prints a table.
pub(crate) fn run(mut nova: Option<&mut Nova>, first: u64, cases: u64) {
    let mut tallies: [Tally; KINDS.len()] = Default::default();
    for (size, cases) in [(Size::Small, cases), (Size::Wide, cases / 15)] {
        let drawn = (first..).map(|seed| (seed, drawn(seed, size)));
        let made = drawn.filter(|(_, case)| a_flavor_makes(case));
        for (seed, case) in made.take(usize::try_from(cases).expect("few")) {
            judge(seed, &case, nova.as_deref_mut(), &mut tallies);
        }
    }
    println!(
        "\n| cases | | feasible | Berth missed, impossible | Nova missed, impossible | Nova's claim refuses | Nova without answer |"
    );
    println!("|---|---|---|---|---|---|---|");
    for ((name, _), tally) in KINDS.iter().zip(&tallies) {
        let Tally {
            cases,
            feasible,
            berth,
            nova: by_nova,
            claim_refused,
            unanswered,
        } = tally;
        let of_nova = match nova {
            Some(_) => format!(
                "{}, {} | {claim_refused} | {unanswered}",
                by_nova.missed, by_nova.impossible
            ),
            None => "| |".to_owned(),
        };
        println!(
            "| {name} | {cases} | {feasible} | {}, {} | {of_nova} |",
            berth.missed, berth.impossible
        );
        assert_eq!((berth.missed, berth.impossible), (0, 0), "Berth is wrong");
    }
}

/// Returns the case of a seed. What cannot be written is left out: one ratio without the other.
fn drawn(seed: u64, size: Size) -> Case {
    let mut case = case(seed, size);
    if case.limits.cpu_ratio.is_none() || case.limits.ram_ratio.is_none() {
        (case.limits.cpu_ratio, case.limits.ram_ratio) = (None, None);
    }
    case
}

/// Returns whether a flavor can make the guest, and libvirt tell of the host.
fn a_flavor_makes(case: &Case) -> bool {
    let cells = &case.demand.cells;
    let policy = cells[0].cpu_policy;
    let any = |count: fn(&InstanceCell) -> usize| cells.iter().any(|cell| count(cell) > 0);
    let is_of_policy = match policy {
        CpuPolicy::Shared => case.demand.emulator_threads == EmulatorThreads::Unspecified,
        CpuPolicy::Dedicated => true,
        CpuPolicy::Mixed => any(|cell| cell.shared.len()) && any(|cell| cell.dedicated.len()),
    };
    let has_pages = case
        .topology
        .cells()
        .iter()
        .all(|cell| !cell.pages.is_empty());
    let is_whole = |cell: &InstanceCell| {
        cell.cpu_policy == policy && cell.shared.len() + cell.dedicated.len() > 0
    };
    is_of_policy && has_pages && cells.iter().all(is_whole)
}

fn judge(seed: u64, case: &Case, nova: Option<&mut Nova>, tallies: &mut [Tally]) {
    let mut written = write::case(case);
    let exists = solver::fits(case);
    let berth = respond(written.to_string().as_bytes(), Options::default());
    assert!(berth["error"].is_null(), "{berth}: {written}");
    let by_nova = nova.map(|nova| {
        written["seconds"] = Value::from(SECONDS);
        let answer = nova.ask(&written);
        if answer["fits"] != exists || (exists && answer["claim"] != "ok") {
            let cells = case.topology.cells().len();
            eprintln!("seed {seed}, {cells} host cells: {exists}, Nova: {answer}");
        }
        answer
    });
    for ((_, is_of), tally) in KINDS.iter().zip(tallies) {
        if !is_of(case) {
            continue;
        }
        tally.cases += 1;
        tally.feasible += u64::from(exists);
        tally.berth.note(exists, berth["fits"] == true);
        let Some(answer) = &by_nova else { continue };
        if answer["fits"].is_null() {
            tally.unanswered += 1;
            continue;
        }
        tally.nova.note(exists, answer["fits"] == true);
        let is_refused = answer["fits"] == true && answer["claim"] != "ok";
        tally.claim_refused += u64::from(is_refused);
    }
}
