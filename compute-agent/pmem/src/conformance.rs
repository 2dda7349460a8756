//! Conformance suite of [`Pmem`]: run against simulated memory in this crate and against real
//! namespaces where there are any.
//!
//! Method: a host with namespaces that guests can be assigned and some that they cannot. Each check
//! states in its name what it checks, leaves the namespaces empty, and panics with what was seen.
//! Bytes are written and read past the implementation, as a guest would.

use std::time::{Duration, Instant};

use crate::memory::{EraseId, Error, Mark, Order, Pmem, Progress, State};
use crate::versions::Part;

/// A namespace as it is to be found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expected {
    /// Its name.
    pub name: String,
    /// Its label, in its one form.
    pub label: String,
    /// Its size.
    pub size_bytes: u64,
    /// Its alignment.
    pub align_bytes: u64,
    /// The node that it is near to.
    pub numa_node: Option<u32>,
}

/// What the suite runs on.
pub struct Bench<'a> {
    /// Begins as an agent does that starts: what ran before has been dropped. It erases two
    /// namespaces at the same time, and each in several pieces.
    pub start: &'a dyn Fn() -> Box<dyn Pmem>,
    /// The configured namespaces that can be used, by name; at least three.
    pub usable: &'a [Expected],
    /// The configured ones that cannot, by name: a part of the reason, and whether it stops a start.
    pub refused: &'a [(&'a str, &'a str, bool)],
    /// Writes a run of a byte.
    pub write: &'a dyn Fn(&str, u64, u64, u8),
    /// Reads.
    pub read: &'a dyn Fn(&str, u64, usize) -> Vec<u8>,
    /// Lets a little time go by.
    pub pass: &'a dyn Fn(),
    /// How long an erase may take before it counts as stuck.
    pub patience: Duration,
}

/// Runs the whole suite.
///
/// # Panics
///
/// At the first thing that an implementation does not hold.
pub fn run(bench: &Bench<'_>) {
    assert!(bench.usable.len() >= 3, "a bench with three namespaces");
    each_configured_namespace_is_usable_or_refused(bench);
    the_versions_of_this_host_will_do(bench);
    a_namespace_that_is_not_configured_is_not_touched(bench);
    a_namespace_that_cannot_be_used_is_not_erased(bench);
    everything_is_erased_and_nothing_beside_it(bench);
    an_erase_is_done_once_and_another_does_it_again(bench);
    what_is_stopped_goes_on_from_where_it_was(bench);
    what_was_cut_off_goes_on_in_another_process(bench);
    a_mark_of_another_namespace_counts_for_nothing(bench);
    more_than_are_erased_at_once_wait(bench);
}

/// How much is written and read back in one position.
const WITNESS: u64 = 4096;

/// Where a namespace is looked at: its beginning, its middle, its end, and some between.
fn places(namespace: &Expected) -> Vec<u64> {
    let last = namespace.size_bytes - WITNESS;
    (0..=8)
        .map(|eighth| last / 8 * eighth)
        .chain([last])
        .collect()
}

fn write_everywhere(bench: &Bench<'_>, namespace: &Expected) {
    for place in places(namespace) {
        (bench.write)(&namespace.name, place, WITNESS, 0xa5);
    }
}

fn holds_at(bench: &Bench<'_>, namespace: &Expected, place: u64) -> u8 {
    let length = usize::try_from(WITNESS).expect("a small number");
    let bytes = (bench.read)(&namespace.name, place, length);
    assert_eq!(bytes.len(), length, "{} at {place}", namespace.name);
    let first = bytes[0];
    assert!(
        bytes.iter().all(|byte| *byte == first),
        "{} at {place} is written in part",
        namespace.name
    );
    first
}

fn check_all(bench: &Bench<'_>, namespace: &Expected, from: u64, byte: u8) {
    for place in places(namespace).into_iter().filter(|p| *p >= from) {
        let found = holds_at(bench, namespace, place);
        assert_eq!(found, byte, "{} at {place}", namespace.name);
    }
}

fn order(id: u128, namespace: &Expected) -> Order {
    Order {
        id: EraseId(id),
        namespace: namespace.name.clone(),
        resume: None,
    }
}

/// Waits for a state of an erase, and checks on the way that its progress never goes back.
fn wait(
    bench: &Bench<'_>,
    pmem: &dyn Pmem,
    namespace: &str,
    is_expected: impl Fn(&Progress) -> bool,
) -> Progress {
    let begin = Instant::now();
    let mut done_bytes = 0;
    loop {
        let progress = pmem.erase(namespace).expect("it was started");
        assert!(
            progress.done_bytes >= done_bytes,
            "back from {done_bytes}: {progress:?}"
        );
        assert!(progress.done_bytes <= progress.size_bytes, "{progress:?}");
        if is_expected(&progress) {
            return progress;
        }
        assert!(progress.state.is_active(), "{progress:?}");
        assert!(begin.elapsed() < bench.patience, "stuck at {progress:?}");
        done_bytes = progress.done_bytes;
        (bench.pass)();
    }
}

fn is_done(progress: &Progress) -> bool {
    progress.state == State::Done
}

/// Begins an erase and waits until a part is done; all of it may be, where that was quicker.
fn begin(bench: &Bench<'_>, pmem: &dyn Pmem, order: &Order) -> Progress {
    pmem.start_erase(order).expect("it can be erased");
    wait(bench, pmem, &order.namespace, |progress| {
        is_done(progress) || progress.done_bytes > 0
    })
}

fn erase(bench: &Bench<'_>, pmem: &dyn Pmem, order: &Order) -> Progress {
    pmem.start_erase(order).expect("it can be erased");
    let progress = wait(bench, pmem, &order.namespace, is_done);
    assert_eq!(progress.id, order.id);
    assert_eq!(progress.done_bytes, progress.size_bytes);
    progress
}

/// Holds what is found against what there is.
pub fn each_configured_namespace_is_usable_or_refused(bench: &Bench<'_>) {
    let pmem = (bench.start)();
    let discovery = pmem.discover().expect("a listing");
    let found: Vec<Expected> = discovery
        .usable
        .iter()
        .map(|record| Expected {
            name: record.name.clone(),
            label: record.label.as_str().to_owned(),
            size_bytes: record.size_bytes,
            align_bytes: record.align_bytes,
            numa_node: record.numa_node,
        })
        .collect();
    assert_eq!(found, bench.usable);
    for record in &discovery.usable {
        assert!(record.uuid.is_some(), "{record:?}");
        assert!(record.region.is_some(), "{record:?}");
        assert!(record.path.starts_with("/dev"), "{record:?}");
    }
    let names: Vec<&str> = discovery.refused.iter().map(|r| r.name.as_str()).collect();
    let expected: Vec<&str> = bench.refused.iter().map(|(name, ..)| *name).collect();
    assert_eq!(names, expected);
    for (refused, (_, reason, stops)) in discovery.refused.iter().zip(bench.refused) {
        assert!(refused.to_string().contains(reason), "{refused}");
        assert_eq!(refused.reason.stops_start(), *stops, "{refused}");
    }
    let stopping = bench.refused.iter().filter(|(.., stops)| *stops).count();
    let stopped = discovery
        .check_start()
        .err()
        .map(|error| error.refused.len());
    assert_eq!(stopped.unwrap_or(0), stopping);
}

/// Holds that a host on which this runs is not too old for it.
pub fn the_versions_of_this_host_will_do(bench: &Bench<'_>) {
    let versions = (bench.start)().versions();
    let own = [Part::Linux, Part::Ndctl, Part::Daxio];
    assert_eq!(versions.check_parts(&own), Ok(()), "{versions:?}");
}

/// Holds that the configuration is the limit of what is written to.
pub fn a_namespace_that_is_not_configured_is_not_touched(bench: &Bench<'_>) {
    let pmem = (bench.start)();
    let order = Order {
        id: EraseId(1),
        namespace: "not-configured".to_owned(),
        resume: None,
    };
    let namespace = order.namespace.clone();
    let refused = pmem.start_erase(&order);
    assert_eq!(refused, Err(Error::NotConfigured { namespace }));
    assert_eq!(pmem.erase("not-configured"), None);
    pmem.abort_erase("not-configured");
    assert_eq!(pmem.erases(), []);
}

/// Checks that what is not understood is not written to, and that the reason is reported.
pub fn a_namespace_that_cannot_be_used_is_not_erased(bench: &Bench<'_>) {
    let pmem = (bench.start)();
    for (name, reason, _) in bench.refused {
        let order = Order {
            id: EraseId(2),
            namespace: (*name).to_owned(),
            resume: None,
        };
        pmem.start_erase(&order).expect("it is configured");
        let failed = |progress: &Progress| !progress.state.is_active();
        let progress = wait(bench, &*pmem, name, failed);
        let State::Failed(failure) = progress.state else {
            panic!("{progress:?}");
        };
        let said = failure.to_string();
        assert!(said.contains(name) && said.contains(reason), "{said}");
    }
}

/// Holds what an erase is for.
pub fn everything_is_erased_and_nothing_beside_it(bench: &Bench<'_>) {
    let pmem = (bench.start)();
    let (erased, other) = (&bench.usable[0], &bench.usable[1]);
    write_everywhere(bench, erased);
    write_everywhere(bench, other);
    check_all(bench, erased, 0, 0xa5);
    let progress = erase(bench, &*pmem, &order(10, erased));
    assert_eq!(progress.size_bytes, erased.size_bytes);
    check_all(bench, erased, 0, 0);
    check_all(bench, other, 0, 0xa5);
    erase(bench, &*pmem, &order(11, other));
    check_all(bench, other, 0, 0);
    let names: Vec<String> = pmem.erases().into_iter().map(|e| e.namespace).collect();
    assert_eq!(names, [erased.name.clone(), other.name.clone()]);
}

/// Checks that the id distinguishes a repeated call from the next erase.
pub fn an_erase_is_done_once_and_another_does_it_again(bench: &Bench<'_>) {
    let pmem = (bench.start)();
    let namespace = &bench.usable[0];
    erase(bench, &*pmem, &order(20, namespace));
    (bench.write)(&namespace.name, 0, WITNESS, 1);
    let again = pmem.start_erase(&order(20, namespace)).expect("it is done");
    assert!(is_done(&again), "{again:?}");
    assert_eq!(holds_at(bench, namespace, 0), 1, "it has an owner now");
    erase(bench, &*pmem, &order(21, namespace));
    check_all(bench, namespace, 0, 0);
}

/// Holds that stopping stops, that it is no end, and that what is done is not done again.
pub fn what_is_stopped_goes_on_from_where_it_was(bench: &Bench<'_>) {
    let pmem = (bench.start)();
    let namespace = &bench.usable[0];
    let order = order(30, namespace);
    write_everywhere(bench, namespace);
    let begun = begin(bench, &*pmem, &order);
    if !is_done(&begun) {
        let mut other = order.clone();
        other.id = EraseId(31);
        // It may have come to its end meanwhile, and then the other would begin.
        if let Err(refused) = pmem.start_erase(&other) {
            let namespace = namespace.name.clone();
            let by = order.id;
            assert_eq!(refused, Error::Busy { namespace, by });
        }
    }
    pmem.abort_erase(&namespace.name);
    let stopped = pmem.erase(&namespace.name).expect("it was started");
    assert!(!stopped.state.is_active(), "{stopped:?}");
    pmem.abort_erase(&namespace.name);
    if stopped.state == State::Aborted && stopped.id == order.id {
        // What comes after the mark may have been reached, but what comes before it is kept.
        (bench.write)(&namespace.name, 0, WITNESS, 7);
        let last = namespace.size_bytes - WITNESS;
        (bench.write)(&namespace.name, last, WITNESS, 7);
        let ended = erase(bench, &*pmem, &order);
        assert_eq!(holds_at(bench, namespace, 0), 7, "{stopped:?}, {ended:?}");
        check_all(bench, namespace, stopped.done_bytes.max(WITNESS), 0);
    }
    erase(bench, &*pmem, &self::order(32, namespace));
    check_all(bench, namespace, 0, 0);
}

/// Checks that a restarted agent continues where the one before it was cut off.
pub fn what_was_cut_off_goes_on_in_another_process(bench: &Bench<'_>) {
    let namespace = &bench.usable[0];
    let mut order = order(40, namespace);
    write_everywhere(bench, namespace);
    let before = (bench.start)();
    let begun = begin(bench, &*before, &order);
    drop(before);
    let mark = begun.mark().expect("it had begun");
    assert!(mark.done_bytes > 0, "{mark:?}");
    let pmem = (bench.start)();
    assert_eq!(pmem.erases(), []);
    // Without its mark it is erased from the beginning, with it from there.
    (bench.write)(&namespace.name, 0, WITNESS, 7);
    order.resume = Some(mark.clone());
    erase(bench, &*pmem, &order);
    assert_eq!(holds_at(bench, namespace, 0), 7, "{mark:?}");
    check_all(bench, namespace, mark.done_bytes.max(WITNESS), 0);
    order.resume = None;
    order.id = EraseId(41);
    erase(bench, &*pmem, &order);
    check_all(bench, namespace, 0, 0);
}

/// Holds that a mark does not vouch for what it was not made for.
pub fn a_mark_of_another_namespace_counts_for_nothing(bench: &Bench<'_>) {
    let pmem = (bench.start)();
    let namespace = &bench.usable[0];
    let mark = erase(bench, &*pmem, &order(50, namespace)).mark();
    let mark = mark.expect("a namespace with a uuid");
    let strangers = [
        Mark {
            uuid: "11111111-2222-4333-8444-555555555555".to_owned(),
            ..mark.clone()
        },
        Mark {
            size_bytes: mark.size_bytes + 1,
            ..mark.clone()
        },
        Mark {
            done_bytes: mark.size_bytes + 1,
            ..mark
        },
    ];
    for (id, mark) in (51..).zip(strangers) {
        (bench.write)(&namespace.name, 0, WITNESS, 7);
        let mut order = order(id, namespace);
        order.resume = Some(mark);
        erase(bench, &*pmem, &order);
        check_all(bench, namespace, 0, 0);
    }
}

/// Holds that all that was ordered is done, though not at once.
pub fn more_than_are_erased_at_once_wait(bench: &Bench<'_>) {
    let pmem = (bench.start)();
    let namespaces = &bench.usable[..3];
    for namespace in namespaces {
        write_everywhere(bench, namespace);
    }
    for (id, namespace) in (60..).zip(namespaces) {
        pmem.start_erase(&order(id, namespace)).expect("it can be");
    }
    let states: Vec<State> = pmem.erases().into_iter().map(|e| e.state).collect();
    let erasing = states.iter().filter(|s| **s == State::Erasing).count();
    assert!(erasing <= 2, "{states:?}");
    for namespace in namespaces {
        wait(bench, &*pmem, &namespace.name, is_done);
        check_all(bench, namespace, 0, 0);
    }
}
