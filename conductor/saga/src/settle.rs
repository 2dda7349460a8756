//! What the answers of two hypervisors say of a guest that was being moved: the verdict.
//!
//! Not the polling (that is `reconcile`): a function of the two answers alone. Its table is
//! tested over the full product.
//!
//! Invariant: it never guesses. [`Verdict::Arrived`], [`Verdict::Stayed`] and [`Verdict::Lost`]
//! need the word of both hosts, and no verdict that releases a claim is given while the claim's
//! host has not said that it does not run the guest.
//!
//! The source has to be asked first, the destination after it. A hypervisor lets the guest go
//! only when the other one has it; so if the source no longer has it, and the destination, asked
//! later, does not have it either, it is nowhere.

use berth_domain::agent::DomainState;

/// What one host said of the guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Seen {
    /// It answered.
    Said(DomainState),
    /// It did not answer, or not to this.
    Silent,
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
    /// Neither has it, and both have said so.
    Lost,
    /// The source is sending.
    Moving,
    /// Neither an end nor a transfer: should pass by itself, and is doubtful if it does not.
    Passing,
    /// It cannot be known.
    Unknown(Doubt),
}

/// Returns what follows when the source, asked first, and the destination have answered.
#[must_use]
pub fn verdict(source: Seen, destination: Seen) -> Verdict {
    match (source, destination) {
        (Seen::Silent, Seen::Silent | Seen::Said(_)) => Verdict::Unknown(Doubt::SourceSilent),
        // The job runs on whether or not the destination's agent is heard of.
        (Seen::Said(DomainState::MigratingOut), Seen::Silent | Seen::Said(_)) => Verdict::Moving,
        (Seen::Said(_), Seen::Silent) => Verdict::Unknown(Doubt::DestinationSilent),
        (Seen::Said(source), Seen::Said(destination)) => both_said(source, destination),
    }
}

fn both_said(source: DomainState, destination: DomainState) -> Verdict {
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

    const STATES: [Seen; 10] = [
        Seen::Said(D::Absent),
        Seen::Said(D::Starting),
        Seen::Said(D::Running),
        Seen::Said(D::Paused),
        Seen::Said(D::MigratingOut),
        Seen::Said(D::MigratingIn),
        Seen::Said(D::Prepared),
        Seen::Said(D::Stopped),
        Seen::Said(D::PostCopyBroken),
        Seen::Silent,
    ];

    /// Goal: the whole table, to be read. Method: one row per answer of the source, one letter
    /// per answer of the destination in the order of `STATES`.
    #[test]
    fn the_table_over_the_full_product() {
        let letter = |v: Verdict| match v {
            Verdict::Arrived => 'A',
            Verdict::Stayed => 'S',
            Verdict::Lost => 'L',
            Verdict::Moving => 'm',
            Verdict::Passing => 'p',
            Verdict::Unknown(_) => '?',
        };
        let rows: Vec<String> = STATES
            .iter()
            .map(|s| STATES.iter().map(|d| letter(verdict(*s, *d))).collect())
            .collect();
        // Destination: absent, starting, running, paused, out, in, prepared, stopped, broken, silent.
        let expected = [
            "LpAA?pLA??", // source absent
            "??????????", // starting
            "Sp???pSS??", // running
            "Spp??pSS??", // paused
            "mmmmmmmmmm", // migrating out
            "??????????", // migrating in
            "??????????", // prepared
            "SpAp?pSS??", // stopped
            "??????????", // broken post-copy
            "??????????", // silent
        ];
        assert_eq!(rows, expected);
    }

    /// Goal: no verdict releases the claim of a host that may run the guest.
    #[test]
    fn a_claim_is_released_only_on_its_hosts_word() {
        let may_run = |s: Seen| {
            matches!(
                s,
                Seen::Silent
                    | Seen::Said(
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
                    Verdict::Moving | Verdict::Passing | Verdict::Unknown(_) => {}
                }
            }
        }
    }
}
