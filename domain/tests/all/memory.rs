//! How far memory is over-committed.
//!
//! Goal: what is promised exactly is there, whatever is shared and however high the ratio is; what
//! fits at a ratio fits at every greater one; no guest that is let in makes a violation; a glance at
//! the room never rules out what fits. Method: random hosts, random guests one after another, and the
//! rule stated anew in integers; tables for the words and for the swap.

use berth_domain::inventory::Inventory;
use berth_domain::memory::{Books, MemoryVerdict, MemoryViolation, Taken};
use berth_domain::overcommit::AllocationRatio;
use berth_domain::topology::HostTopology;
use proptest::prelude::*;

fn books(total: u64, node: u64, huge: u64, milli: u64) -> Books {
    Books {
        total_mib: total,
        mem_node_mib: node,
        huge_pages_mib: huge,
        ratio: AllocationRatio::from_milli(milli),
        taken: Taken::default(),
    }
}

fn shared(mib: u64) -> Taken {
    Taken {
        shared_mib: mib,
        ..Taken::default()
    }
}

fn exact(mib: u64) -> Taken {
    Taken {
        exact_mib: mib,
        ..Taken::default()
    }
}

/// States the rule anew, in integers and without a word of the other.
fn may_be(books: &Books, milli: u64) -> bool {
    let Taken {
        shared_mib: s,
        exact_mib: e,
        huge_mib: h,
    } = books.taken;
    let available = books.total_mib - books.mem_node_mib;
    let small = available.saturating_sub(books.huge_pages_mib);
    if s + e + h <= available {
        return true;
    }
    (s + e + h) * 1000 <= available * milli && e <= small && s * 1000 <= (small - e) * milli
}

prop_compose! {
    fn host()(
        total in 1_u64..200,
        node in 0_u64..60,
        huge in 0_u64..150,
        milli in prop_oneof![Just(1000), Just(1500), Just(2000), Just(4000), Just(16_000)],
    ) -> (Books, u64) {
        (books(total, node.min(total), huge.min(total), milli), milli)
    }
}

prop_compose! {
    fn guest()(kind in 0_u8..4, mib in 1_u64..60) -> Taken {
        match kind {
            0 | 1 => shared(mib),
            2 => exact(mib),
            _ => Taken { huge_mib: mib, ..Taken::default() },
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_guest_that_is_let_in_makes_a_violation(
        (books, milli) in host(),
        guests in proptest::collection::vec((guest(), any::<bool>()), 1..30),
    ) {
        let mut books = books;
        for (guest, leaves) in guests {
            let huge_left = books.huge_pages_mib - books.taken.huge_mib;
            if guest.huge_mib > huge_left {
                continue;
            }
            let mut after = books;
            after.taken.add(guest);
            let verdict = books.admit(guest);
            // Nobody is let in to over-commit with himself.
            let alone = guest.shared_mib <= books.available_mib();
            prop_assert_eq!(verdict.is_ok(), may_be(&after, milli) && alone);
            if verdict.is_err() {
                continue;
            }
            prop_assert!(guest.total_mib() <= books.headroom_mib(), "at a glance: {:?}", books);
            let greater = Books { ratio: AllocationRatio::from_milli(milli + 500), ..books };
            prop_assert!(greater.admit(guest).is_ok(), "at a greater ratio");
            prop_assert_eq!(
                MemoryVerdict::new(after, after.taken, 0).violation,
                MemoryViolation::None
            );
            if !leaves {
                books = after;
            }
        }
    }

    /// Guests that fit together fit in any order.
    #[test]
    fn it_does_not_matter_who_came_first(
        (books, _) in host(),
        guests in proptest::collection::vec(guest(), 1..8),
        turn in 1_usize..8,
    ) {
        let fit = |guests: &[Taken]| guests.iter().try_fold(books, |mut books, guest| {
            books.admit(*guest).ok()?;
            books.taken.add(*guest);
            Some(books)
        });
        let mut turned = guests.clone();
        turned.rotate_left(turn % guests.len());
        prop_assert_eq!(fit(&turned), fit(&guests));
    }
}

/// Goal: pages that are promised once are there, though others share the rest twice over. Method: a
/// table of what is taken, and what the next guest may have.
#[test]
fn what_is_promised_exactly_is_there() {
    // 100 MiB, 4 for the node, 32 in huge pages: 64 for everybody else.
    let host = |taken| Books {
        taken,
        ..books(100, 4, 32, 2000)
    };
    let taken = |shared_mib, exact_mib, huge_mib| Taken {
        shared_mib,
        exact_mib,
        huge_mib,
    };
    for (there, next, fits) in [
        (taken(0, 0, 0), shared(64), true),
        // Alone a guest cannot have more than there is, or than fits without over-commitment.
        (taken(0, 0, 0), shared(97), false),
        (taken(64, 0, 0), shared(64), true),
        (taken(64, 0, 32), shared(64), true),
        (taken(64, 0, 32), shared(65), false),
        (taken(100, 0, 32), exact(14), true),
        (taken(100, 0, 32), exact(15), false),
        (taken(0, 50, 32), exact(14), true),
        (taken(0, 50, 32), exact(15), false),
        (taken(0, 50, 32), shared(28), true),
        (taken(0, 50, 32), shared(29), false),
        (taken(14, 50, 32), shared(14), true),
        (taken(14, 50, 32), shared(15), false),
        (taken(128, 0, 0), taken(0, 0, 32), true),
        (taken(129, 0, 0), taken(0, 0, 32), false),
    ] {
        assert_eq!(host(there).admit(next).is_ok(), fits, "{there:?} {next:?}");
    }
}

#[test]
fn hard_is_what_runs_and_soft_what_is_on_the_books() {
    let mut host = books(1000, 0, 0, 1500);
    host.taken = shared(1600);
    let verdict = |running, reserve| MemoryVerdict::new(host, shared(running), reserve);
    let told = |running| verdict(running, 0).to_string();
    assert_eq!(verdict(1500, 0).violation, MemoryViolation::Soft);
    assert_eq!(
        told(1500),
        "guests have, running or not, 1600 MiB, 1.600 of the 1000 MiB available (ratio 1.5)"
    );
    assert_eq!(verdict(1501, 0).violation, MemoryViolation::Hard);
    assert_eq!(
        told(1501),
        "guests that run have 1501 MiB, 1.501 of the 1000 MiB available (ratio 1.5)"
    );
    host.taken = shared(1400);
    let verdict = |reserve| MemoryVerdict::new(host, shared(1400), reserve).violation;
    assert_eq!(
        (verdict(100), verdict(101)),
        (MemoryViolation::None, MemoryViolation::Soft)
    );
    // By the ratio alone it would do, but half of it is promised to guests that share nothing.
    host.taken = Taken {
        exact_mib: 500,
        ..shared(800)
    };
    let verdict = MemoryVerdict::new(host, host.taken, 0);
    assert_eq!(verdict.violation, MemoryViolation::Hard);
    assert!(
        verdict.to_string().ends_with(
            "; 800 MiB of it share the 500 MiB that neither huge pages nor exact promises take"
        ),
        "{verdict}"
    );
}

#[test]
fn swap_is_needed_for_what_is_promised_beyond_what_is_there() {
    let needed = |total, node, milli| books(total, node, 0, milli).swap_needed_mib();
    assert_eq!(needed(65_536, 1024, 1500), 32_256);
    assert_eq!(needed(65_536, 1024, 1000), 0);
    assert_eq!(needed(1024, 1024, 16_000), 0);
}

#[test]
fn books_follow_from_the_inventory() {
    let memory = Inventory {
        reserved: 2000,
        allocation_ratio: AllocationRatio::from_milli(1500),
        ..Inventory::exact(1000)
    };
    let books = Books::new(&HostTopology::default(), &memory, shared(1));
    assert_eq!((books.available_mib(), books.holds()), (0, false));
    assert_eq!(books.relative_milli(), None);
    let verdict = MemoryVerdict::new(books, shared(1), 0);
    assert!(
        verdict.to_string().ends_with("and nothing is available"),
        "{verdict}"
    );
}
