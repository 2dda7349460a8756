//! The whole fit against a solver that tries everything: thread policies, emulator threads, pages,
//! ratios, PCI functions with their policies and exclusions.
//!
//! Goal: a fit is found exactly if there is one, what is given keeps every rule, `verify` says so
//! too, and what a refusal says is true. Method: random small hosts and guests from a seed; a solver that tries every map of
//! guest cells to host cells, every choice of CPUs and every choice of PCI functions, and judges
//! each by rules that are stated anew.
//!
//!   BERTH_FIT_CASES   how many cases (default 12,000)
//!   BERTH_FIT_SEED    the first seed (default 1); a failure names its own
//!
//! By hand: `BERTH_FIT_CASES=1000000 cargo test --release -p berth-domain --test all exact::`.

mod refusals;

use berth_domain::numa::{self, ExactDemand, Ground, Guest, HostUsage, Outline, Strategy};
use berth_testkit::fit::draw::{self, Case, Size, case};
use berth_testkit::fit::solver;

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().unwrap())
}

/// Compares one case with the solver; returns whether it fits.
fn check(case: &Case, seed: u64) -> bool {
    let outline = Outline::new(&case.topology, &case.usage, &case.limits);
    let ground = Ground {
        topology: &case.topology,
        usage: &case.usage,
        outline: &outline,
    };
    let demand = ExactDemand {
        topology: Some(&case.demand),
        pci: &case.pci,
        ..ExactDemand::default()
    };
    let guest = Guest::new(demand);
    let exists = solver::fits(case);
    let mut found = false;
    for strategy in [Strategy::Spread, Strategy::Pack] {
        let answer = numa::fit(ground, &guest, strategy);
        assert_eq!(answer.is_ok(), exists, "seed {seed}: {answer:?}\n{case:#?}");
        found = answer.is_ok();
        if let Err(refusal) = &answer {
            refusals::judge(case, refusal)
                .unwrap_or_else(|wrong| panic!("seed {seed}: {refusal}: {wrong}\n{case:#?}"));
        }
        if let Ok(given) = answer {
            solver::judge(case, &given)
                .unwrap_or_else(|wrong| panic!("seed {seed}: {wrong}\n{given:#?}\n{case:#?}"));
            let verdict = numa::verify(ground, demand, &given);
            assert_eq!(verdict, Ok(()), "seed {seed}: {given:#?}\n{case:#?}");
            give_and_take(case, &given, seed);
        }
    }
    assert_eq!(numa::is_feasible(ground, &guest), exists, "seed {seed}");
    found
}

/// Checks that what was given is taken from others, and comes back.
fn give_and_take(case: &Case, given: &numa::Assignment, seed: u64) {
    let mut after: HostUsage = case.usage.clone();
    after.add(&case.topology, given);
    let outline = Outline::new(&case.topology, &after, &case.limits);
    let ground = Ground {
        topology: &case.topology,
        usage: &after,
        outline: &outline,
    };
    let demand = ExactDemand {
        topology: Some(&case.demand),
        pci: &case.pci,
        ..ExactDemand::default()
    };
    if !given.dedicated().is_empty() || !given.pci.is_empty() {
        let again = numa::verify(ground, demand, given);
        assert!(again.is_err(), "seed {seed}: the same twice");
    }
    after.remove(&case.topology, given);
    assert_eq!(after, case.usage, "seed {seed}");
}

fn run(size: Size, cases: u64) {
    let first = number("BERTH_FIT_SEED", 1);
    let mut fits = 0;
    for seed in first..first + cases {
        fits += u64::from(check(&case(seed, size), seed));
    }
    println!("{cases} cases, {fits} fit");
    // A comparison in which nearly nothing fits, or everything, would show little.
    if cases >= 1000 {
        assert!(
            fits * 10 > cases && fits * 10 < cases * 9,
            "{fits} of {cases} fit"
        );
    }
}

#[test]
fn small_cases_agree_with_trying_everything() {
    run(Size::Small, number("BERTH_FIT_CASES", 12_000));
}

/// The same with 16 host cells and up to 6 guest cells, with devices on many of them.
#[test]
fn wide_cases_agree_with_trying_everything() {
    run(Size::Wide, number("BERTH_FIT_CASES", 12_000) / 40);
}

/// Goal: `verify` accepts a changed assignment only if it keeps all the rules. Method: good ones
/// with some CPUs or devices exchanged for others.
#[test]
fn changed_assignments_are_judged_alike() {
    let first = number("BERTH_FIT_SEED", 1);
    let mut refused = 0;
    for seed in first..first + number("BERTH_FIT_CASES", 12_000) {
        let case = case(seed, Size::Small);
        let outline = Outline::new(&case.topology, &case.usage, &case.limits);
        let ground = Ground {
            topology: &case.topology,
            usage: &case.usage,
            outline: &outline,
        };
        let demand = ExactDemand {
            topology: Some(&case.demand),
            pci: &case.pci,
            ..ExactDemand::default()
        };
        let Some(good) = numa::try_fit(ground, &Guest::new(demand), Strategy::Spread) else {
            continue;
        };
        let changed = draw::change(&case, good, seed);
        let expected = solver::judge(&case, &changed);
        let verdict = numa::verify(ground, demand, &changed);
        assert_eq!(
            verdict.is_ok(),
            expected.is_ok(),
            "seed {seed}: {verdict:?}, {expected:?}\n{changed:#?}\n{case:#?}"
        );
        refused += u64::from(verdict.is_err());
    }
    assert!(refused > 0);
}
