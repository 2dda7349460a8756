//! The invariants of a state, checked on several threads with the result that one thread has.
//!
//! Rules are begun in their order. One that is broken ends the beginning of others; those before it were
//! begun by then, and end. So the first of all that are broken is the first in the order.
//!
//! Not here: which rules there are.

use std::num::NonZeroUsize;
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use berth_state::State;
use berth_state::check::{RULES, Rule, Violation};

/// A state with fewer claims is checked before threads have started.
const CLAIMS_MIN: usize = 1_000;

/// Says what [`State::check`] says, on all processors where the state is large.
pub(crate) fn check(state: &State) -> Result<(), Violation> {
    if state.claims().len() < CLAIMS_MIN {
        return state.check();
    }
    let threads = thread::available_parallelism().map_or(1, NonZeroUsize::get);
    check_rules(state, &RULES, threads)
}

fn check_rules(state: &State, rules: &[Rule], threads: usize) -> Result<(), Violation> {
    let next = AtomicUsize::new(0);
    let work = || run(state, rules, &next);
    let results: Vec<_> = thread::scope(|scope| {
        // This one only waits: a panic of its own would hide what others come upon.
        let running: Vec<_> = (0..threads.max(1)).map(|_| scope.spawn(work)).collect();
        running.into_iter().map(|thread| thread.join()).collect()
    });
    let mut panicked = None;
    let mut broken = Vec::new();
    for result in results {
        match result {
            Ok(first) => broken.extend(first),
            Err(panic) => panicked = Some(panic),
        }
    }
    let first = broken.into_iter().min_by_key(|(at, _)| *at);
    match (first, panicked) {
        // A rule may panic at what another one finds broken.
        (Some((_, violation)), _) => Err(violation),
        (None, Some(panic)) => resume_unwind(panic),
        (None, None) => Ok(()),
    }
}

/// Runs one rule after another that no other thread has begun, up to the first that is broken, which it
/// returns with its position.
fn run(state: &State, rules: &[Rule], next: &AtomicUsize) -> Option<(usize, Violation)> {
    loop {
        let at = next.fetch_add(1, Ordering::Relaxed);
        let rule = rules.get(at)?;
        if let Err(violation) = rule(state) {
            next.fetch_max(rules.len(), Ordering::Relaxed);
            return Some((at, violation));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holds(_: &State) -> Result<(), Violation> {
        Ok(())
    }

    fn broken(rule: &'static str) -> Result<(), Violation> {
        let what = String::new();
        Err(Violation { rule, what })
    }

    /// Goal: the first broken rule is returned, also where a later one is found broken before it. Method:
    /// the first takes longer; every number of threads.
    #[test]
    fn the_first_broken_rule_of_the_order_is_returned() {
        let slow: Rule = |_| {
            thread::yield_now();
            broken("first")
        };
        let rules: [Rule; 5] = [
            holds,
            slow,
            |_| broken("second"),
            holds,
            |_| broken("third"),
        ];
        for _ in 0..100 {
            for threads in 0..8 {
                let violation = check_rules(&State::new(), &rules, threads).unwrap_err();
                assert_eq!(violation.rule, "first", "{threads} threads");
            }
        }
        let sound: [Rule; 9] = [holds; 9];
        assert_eq!(check_rules(&State::new(), &sound, 3), Ok(()));
    }

    #[test]
    fn a_broken_rule_goes_before_a_panic() {
        let panics: Rule = |_| resume_unwind(Box::new("a rule panics"));
        let rules: [Rule; 3] = [holds, |_| broken("first"), panics];
        let violation = check_rules(&State::new(), &rules, 3).unwrap_err();
        assert_eq!(violation.rule, "first");
    }
}
