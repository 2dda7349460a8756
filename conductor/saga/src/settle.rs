//! The verdict on a guest that was being moved, from the answers of the two hypervisors.
//!
//! Not the polling (that is `reconcile`): a function of the two answers alone. Its table is
//! tested over the full product.
//!
//! Invariant: it never guesses. [`Verdict::Arrived`], [`Verdict::Stayed`] and [`Verdict::Lost`]
//! need of each host its answer or the proof that it is dead, and no verdict that releases a claim is
//! given unless the claim's host has reported that it does not run the guest, or is proven dead.
//!
//! Of a guest whose host died nothing runs any more, on whichever host it is recorded; there it can
//! be restarted or evacuated. So a dead host leaves one question: where it ran last.
//!
//! The source has to be polled first, the destination after it. A hypervisor lets the guest go
//! only when the other one has it; so if the source no longer has it, and the destination, polled
//! later, does not have it either, it is nowhere.

use berth_domain::agent::DomainState;

/// What one host reported of the guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Seen {
    /// It answered.
    Reported(DomainState),
    /// It did not answer, or not to this.
    Silent,
    /// It was not polled: it is proven that nothing runs there any more.
    Dead,
}

/// Why it cannot be known where the guest is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Doubt {
    /// The source does not answer.
    SourceSilent,
    /// The destination does not answer.
    DestinationSilent,
    /// Both have a guest that runs or could go on.
    OnBoth,
    /// The two answers do not belong to this migration.
    Contradiction,
    /// The source does not drop what it kept of a guest that has arrived.
    SourceUnclean,
    /// The destination does not drop what it made ready for a guest that will not come.
    DestinationUnclean,
    /// It is partly on either, and the two have lost each other: neither has a guest that could go
    /// on, and neither may drop its part.
    PostCopyBroken,
}

/// What follows from the two answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Verdict {
    /// The guest is on the destination, and the source does not have it.
    Arrived,
    /// The guest is on the source, nothing moves it, and the destination does not run it.
    Stayed,
    /// Neither has it, and both have reported so.
    Lost,
    /// The source has let it go, and the destination is dead: it died there, unless both hosts
    /// lost it.
    LeftToDead,
    /// It ran on the destination with a part of its memory on the source, and the destination is
    /// dead. The source has a part with which nothing can go on.
    HalfAtSource,
    /// As [`Self::HalfAtSource`], but it is the source that is dead.
    HalfAtDestination,
    /// The source is sending.
    Moving,
    /// Neither an end nor a transfer: should pass by itself, and is doubtful if it does not.
    Passing,
    /// It cannot be known.
    Unknown(Doubt),
}

/// Returns what follows when the source, polled first, and the destination have answered.
#[must_use]
pub fn verdict(source: Seen, destination: Seen) -> Verdict {
    match (source, destination) {
        (Seen::Silent, Seen::Silent | Seen::Reported(_) | Seen::Dead) => {
            Verdict::Unknown(Doubt::SourceSilent)
        }
        // The job runs on whether or not the destination's agent is heard of, and has to end before
        // the guest is seen to stay.
        (
            Seen::Reported(DomainState::MigratingOut),
            Seen::Silent | Seen::Reported(_) | Seen::Dead,
        ) => Verdict::Moving,
        (Seen::Reported(_) | Seen::Dead, Seen::Silent) => {
            Verdict::Unknown(Doubt::DestinationSilent)
        }
        (Seen::Reported(source), Seen::Reported(destination)) => both_reported(source, destination),
        (Seen::Reported(source), Seen::Dead) => source_alone(source),
        (Seen::Dead, Seen::Reported(destination)) => destination_alone(destination),
        // It runs on neither. The source's disks are whole, whether or not it had left.
        (Seen::Dead, Seen::Dead) => Verdict::Stayed,
    }
}

/// The destination is dead.
fn source_alone(source: DomainState) -> Verdict {
    match source {
        DomainState::Running | DomainState::Paused | DomainState::Stopped => Verdict::Stayed,
        DomainState::Absent => Verdict::LeftToDead,
        DomainState::PostCopyBroken => Verdict::HalfAtSource,
        DomainState::MigratingOut => Verdict::Moving,
        DomainState::Starting | DomainState::MigratingIn | DomainState::Prepared => {
            Verdict::Unknown(Doubt::Contradiction)
        }
    }
}

/// The source is dead.
fn destination_alone(destination: DomainState) -> Verdict {
    match destination {
        DomainState::Running | DomainState::Paused | DomainState::Stopped => Verdict::Arrived,
        // It died on the source; or it arrived, and ended before a poll saw it.
        DomainState::Absent | DomainState::Prepared => Verdict::Stayed,
        // A receiver whose sender is dead gives up by itself, or reports that its half is all it has.
        DomainState::MigratingIn | DomainState::Starting => Verdict::Passing,
        DomainState::PostCopyBroken => Verdict::HalfAtDestination,
        DomainState::MigratingOut => Verdict::Unknown(Doubt::Contradiction),
    }
}

fn both_reported(source: DomainState, destination: DomainState) -> Verdict {
    if destination == DomainState::PostCopyBroken && source != DomainState::MigratingOut {
        return Verdict::Unknown(Doubt::PostCopyBroken);
    }
    match source {
        DomainState::Absent => source_without(destination),
        DomainState::Running => source_running(destination),
        DomainState::Paused => source_paused(destination),
        DomainState::Stopped => source_stopped(destination),
        DomainState::MigratingOut => Verdict::Moving,
        DomainState::PostCopyBroken => Verdict::Unknown(Doubt::PostCopyBroken),
        // A source neither starts nor receives the guest that it sends.
        DomainState::Starting | DomainState::MigratingIn | DomainState::Prepared => {
            Verdict::Unknown(Doubt::Contradiction)
        }
    }
}

/// The source has let it go.
fn source_without(destination: DomainState) -> Verdict {
    match destination {
        // Stopped after its arrival is still there, with its disks; where it is, is what counts.
        DomainState::Running | DomainState::Paused | DomainState::Stopped => Verdict::Arrived,
        DomainState::Absent | DomainState::Prepared => Verdict::Lost,
        DomainState::MigratingIn | DomainState::Starting => Verdict::Passing,
        DomainState::MigratingOut | DomainState::PostCopyBroken => {
            Verdict::Unknown(Doubt::Contradiction)
        }
    }
}

/// The source runs it, and nothing moves it.
fn source_running(destination: DomainState) -> Verdict {
    match destination {
        DomainState::Absent | DomainState::Prepared | DomainState::Stopped => Verdict::Stayed,
        DomainState::Running | DomainState::Paused => Verdict::Unknown(Doubt::OnBoth),
        // A receiver whose sender has stopped gives up by itself.
        DomainState::MigratingIn | DomainState::Starting => Verdict::Passing,
        DomainState::MigratingOut | DomainState::PostCopyBroken => {
            Verdict::Unknown(Doubt::Contradiction)
        }
    }
}

/// The source holds it still, and nothing moves it: a failed transfer before it goes on, or one
/// that has ended on the other side before the source has noticed.
fn source_paused(destination: DomainState) -> Verdict {
    match destination {
        DomainState::Absent | DomainState::Prepared | DomainState::Stopped => Verdict::Stayed,
        DomainState::Running => Verdict::Passing,
        DomainState::Paused => Verdict::Unknown(Doubt::OnBoth),
        DomainState::MigratingIn | DomainState::Starting => Verdict::Passing,
        DomainState::MigratingOut | DomainState::PostCopyBroken => {
            Verdict::Unknown(Doubt::Contradiction)
        }
    }
}

/// The source knows it, but it does not run there.
fn source_stopped(destination: DomainState) -> Verdict {
    match destination {
        DomainState::Running => Verdict::Arrived,
        DomainState::Absent | DomainState::Prepared | DomainState::Stopped => Verdict::Stayed,
        DomainState::Paused | DomainState::MigratingIn | DomainState::Starting => Verdict::Passing,
        DomainState::MigratingOut | DomainState::PostCopyBroken => {
            Verdict::Unknown(Doubt::Contradiction)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use DomainState as D;

    const STATES: [Seen; 11] = [
        Seen::Reported(D::Absent),
        Seen::Reported(D::Starting),
        Seen::Reported(D::Running),
        Seen::Reported(D::Paused),
        Seen::Reported(D::MigratingOut),
        Seen::Reported(D::MigratingIn),
        Seen::Reported(D::Prepared),
        Seen::Reported(D::Stopped),
        Seen::Reported(D::PostCopyBroken),
        Seen::Silent,
        Seen::Dead,
    ];

    /// Goal: the whole table, to be read. Method: one row per answer of the source, one letter
    /// per answer of the destination in the order of `STATES`.
    #[test]
    fn the_table_over_the_full_product() {
        let letter = |v: Verdict| match v {
            Verdict::Arrived => 'A',
            Verdict::Stayed => 'S',
            Verdict::Lost => 'L',
            Verdict::LeftToDead => 'l',
            Verdict::HalfAtSource | Verdict::HalfAtDestination => 'h',
            Verdict::Moving => 'm',
            Verdict::Passing => 'p',
            Verdict::Unknown(_) => '?',
        };
        let rows: Vec<String> = STATES
            .iter()
            .map(|s| STATES.iter().map(|d| letter(verdict(*s, *d))).collect())
            .collect();
        // Destination: absent, starting, running, paused, out, in, prepared, stopped, broken, silent,
        // dead.
        let expected = [
            "LpAA?pLA??l", // source absent
            "???????????", // starting
            "Sp???pSS??S", // running
            "Spp??pSS??S", // paused
            "mmmmmmmmmmm", // migrating out
            "???????????", // migrating in
            "???????????", // prepared
            "SpAp?pSS??S", // stopped
            "??????????h", // broken post-copy
            "???????????", // silent
            "SpAA?pSAh?S", // dead
        ];
        assert_eq!(rows, expected);
    }

    /// Goal: no verdict releases the claim of a host that may run the guest.
    #[test]
    fn a_claim_is_released_only_on_its_hosts_word_or_death() {
        let may_run = |s: Seen| {
            matches!(
                s,
                Seen::Silent
                    | Seen::Reported(
                        D::Running
                            | D::Paused
                            | D::Starting
                            | D::MigratingIn
                            | D::MigratingOut
                            | D::PostCopyBroken
                    )
            )
        };
        for source in STATES {
            for destination in STATES {
                match verdict(source, destination) {
                    Verdict::Arrived => assert!(!may_run(source), "{source:?} {destination:?}"),
                    Verdict::Stayed => assert!(!may_run(destination), "{source:?} {destination:?}"),
                    Verdict::Lost => {
                        assert!(!may_run(source) && !may_run(destination));
                    }
                    Verdict::LeftToDead => {
                        assert_eq!(
                            (source, destination),
                            (Seen::Reported(D::Absent), Seen::Dead)
                        );
                    }
                    // The half that is left is dropped first.
                    Verdict::HalfAtSource => assert_eq!(destination, Seen::Dead),
                    Verdict::HalfAtDestination => assert_eq!(source, Seen::Dead),
                    Verdict::Moving | Verdict::Passing | Verdict::Unknown(_) => {}
                }
            }
        }
    }
}
