//! After the point of no return: polls both agents for the guest, until their answers make a
//! [`Verdict`], and settles the migration by it.
//!
//! ```text
//!   Source ─▶ Destination ─▶ verdict ─▶ moving, passing, unknown: wait, then Source again
//!                               ├─▶ arrived: CleanSource ─────────▶ commit
//!                               ├─▶ stayed, lost: CleanDestination ▶ commit
//!                               └─▶ half of it is dead: DropHalf ──▶ commit that it arrived
//! ```
//!
//! A host that is proven to be dead is not polled, and nothing is cleaned there: what its agent finds
//! when it is back, it removes.
//!
//! While it moves, users' requests are passed on to the source: to stop the transfer, or to end it
//! soon. Then it is polled again like any other.
//!
//! Not a saga: nothing is undone here, and nothing but the answers decides.
//!
//! Invariant: the first question raises the source's fence and makes it refuse a start of this
//! transfer that comes late; so "the source runs it and nothing moves it" stays true.

use std::collections::BTreeMap;

use berth_domain::agent::{Call, Reply};
use berth_domain::migration;
use berth_domain::name::HostName;
use berth_domain::operation::{self, Mark, Step};
use berth_domain::refusal::{Code, Refusal};
use berth_domain::version::ServiceVersion;

use crate::backoff::Backoff;
use crate::effect::{Effect, TransferWatch};
use crate::engine::{Goal, Outstanding, Saga};
use crate::live_migration;
use crate::refusals;
use crate::settle::{Doubt, Seen, Verdict, verdict};
use crate::survivor::{Half, comes_back_or_is_dead};

/// After how many rounds what should pass by itself counts as doubtful.
const PASSING_MAX: u32 = 40;
/// How often the source is called to clean up after a guest that has left.
const CLEAN_MAX: u32 = 5;
/// After how many rounds an agent that refuses to clean up is logged: a guest may be
/// about to go.
const UNCLEAN_MAX: u32 = 5;
/// How many entries the log gets for doubts: they are for people, and the log is bounded.
const DOUBTS_MAX: usize = 16;

/// The next call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Poll {
    /// Query the source for the guest.
    Source,
    /// Query the destination for it, after the source has reported this.
    Destination(Seen),
    /// The source drops what it kept of a guest that has arrived.
    CleanSource,
    /// The destination drops what it made ready for a guest that will not come.
    CleanDestination(migration::Event),
    /// The source stops the transfer, or ends it soon.
    Order(Order),
    /// The one that is alive drops its half of a guest whose other half is dead.
    DropHalf(Half),
}

/// A user's request about a transfer. It changes nothing about the verdict: how the transfer ends is
/// what the two hypervisors report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// That it is stopped.
    Abort,
    /// That it ends soon.
    ForceComplete,
}

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Miss {
    /// None came.
    Silent(String),
    /// The agent refused.
    Refused(String),
}

impl Miss {
    fn message(self) -> String {
        match self {
            Self::Silent(message) | Self::Refused(message) => message,
        }
    }
}

/// What is remembered of a transfer while it is watched.
#[derive(Clone, Debug, Default)]
pub(crate) struct Transfer {
    /// The source's plain "no" to the transfer.
    pub refused: Option<Refusal>,
    /// What was last heard of why it failed.
    error: Option<String>,
    /// Why the agent that was called last did not answer.
    silence: Option<String>,
    /// Rounds in a row in which it went its way, by which the waits grow.
    moving: u32,
    /// Rounds in a row in which something was in the way, by which the waits grow.
    blocked: u32,
    /// Rounds in a row in which something should have passed.
    passing: u32,
    /// How often the source was called to clean up.
    cleanings: u32,
    /// How often an agent refused to clean up.
    unclean: u32,
    /// The order whose refusal by the source was logged.
    order_refused: Option<Order>,
    /// Whether its end was reported, and not polled for since: an agent that reports an end which
    /// the hypervisor does not see must not make a busy loop.
    end_reported: bool,
    /// Whether neither host has it any more, and it stays where it was.
    pub has_ended: bool,
    /// The doubt that was logged last, as [`Saga::unsettled`] distinguishes them.
    logged_doubt: Option<BTreeMap<String, String>>,
}

/// What is reported where neither host gives a reason.
const NO_REASON: &str = "neither reports why";

impl Transfer {
    /// Records why it may have failed.
    pub(crate) fn record_error(&mut self, message: &str) {
        self.error = Some(message.to_owned());
    }
}

impl Saga {
    pub(crate) fn settle(&mut self, poll: Poll) -> Effect {
        let sides = self.sides();
        let Ok((source, destination)) = sides else {
            // Only the state knows the two sides; it has to be read again.
            return self.wait(Goal::Plan, Backoff::SCHEDULER);
        };
        let Ok(id) = live_migration::migration(&self.context).map(|m| m.id) else {
            return self.wait(Goal::Plan, Backoff::SCHEDULER);
        };
        if let Some(effect) = self.settle_dead(&poll, &source, &destination) {
            return effect;
        }
        let (host, call) = match &poll {
            Poll::Source => (source, Call::GetDomain),
            Poll::Destination(_) => (destination, Call::GetDomain),
            Poll::CleanSource => (source, Call::PostLiveMigrationAtSource { migration: id }),
            Poll::CleanDestination(event) => (
                destination,
                Call::RollbackLiveMigrationAtDestination {
                    migration: id,
                    // A guest that arrived, and ended before a poll saw it, left its disks there.
                    keep_disks: *event == migration::Event::Lost
                        || self.transfer.has_ended
                        || self.is_dead(&source),
                },
            ),
            Poll::Order(Order::Abort) => (source, Call::AbortLiveMigration { migration: id }),
            Poll::Order(Order::ForceComplete) => {
                let record = self.context.facts.migration.as_ref();
                let call = Call::ForceCompleteLiveMigration {
                    migration: id,
                    post_copy: record.is_some_and(|m| m.transfer.post_copy),
                };
                (source, call)
            }
            Poll::DropHalf(half) => {
                let host = match half {
                    Half::Source => source,
                    Half::Destination => destination,
                };
                let Some(call) = self.drop_half(*half) else {
                    return self.wait(Goal::Plan, Backoff::SCHEDULER);
                };
                (host, call)
            }
        };
        self.call(Goal::Settle(poll), host, call)
    }

    pub(crate) fn sides(&self) -> Result<(HostName, HostName), Refusal> {
        let source = live_migration::migration(&self.context)?.source.clone();
        Ok((source, live_migration::destination(&self.context)?))
    }

    /// Takes an agent's answer in; an error is why there is none.
    pub(crate) fn settle_answered(&mut self, poll: Poll, answer: Result<Reply, Miss>) -> Effect {
        match poll {
            Poll::Source => {
                let seen = self.seen(answer);
                self.go(Goal::Settle(Poll::Destination(seen)))
            }
            Poll::Destination(source) => {
                let destination = self.seen(answer);
                self.act_on(verdict(source, destination))
            }
            Poll::CleanSource => {
                self.transfer.cleanings += 1;
                let goal = Goal::Settle(Poll::CleanSource);
                match answer {
                    // It still has something of the guest: the verdict was too early.
                    Err(Miss::Refused(message)) => self.unclean(message, Doubt::SourceUnclean),
                    Err(Miss::Silent(_)) if self.transfer.cleanings < CLEAN_MAX => {
                        self.wait(goal, Backoff::CALL)
                    }
                    // A source that is dead after it has let the guest go is not waited for:
                    // it has reported that it does not have the guest.
                    Ok(_) | Err(Miss::Silent(_)) => {
                        self.commit_end(migration::Event::Arrived, None)
                    }
                }
            }
            Poll::CleanDestination(event) => match answer {
                Ok(_) => {
                    let refusal = self.why_not(event);
                    self.commit_end(event, Some(refusal))
                }
                // Its claim stays until it is clean; meanwhile things may have changed.
                Err(Miss::Refused(message)) => self.unclean(message, Doubt::DestinationUnclean),
                Err(Miss::Silent(message)) => {
                    self.transfer.silence = Some(message);
                    self.blocked()
                }
            },
            Poll::DropHalf(half) => match answer {
                Ok(_) => self.commit_end(migration::Event::Arrived, None),
                Err(Miss::Refused(message)) => {
                    let doubt = match half {
                        Half::Source => Doubt::SourceUnclean,
                        Half::Destination => Doubt::DestinationUnclean,
                    };
                    self.unclean(message, doubt)
                }
                Err(Miss::Silent(message)) => {
                    self.transfer.silence = Some(message);
                    self.blocked()
                }
            },
            Poll::Order(order) => match answer {
                Err(Miss::Refused(message)) if self.transfer.order_refused != Some(order) => {
                    self.transfer.order_refused = Some(order);
                    self.log_order_refused(order, message)
                }
                // Whether it was heard or not: the next look shows what came of it.
                Ok(_) | Err(Miss::Refused(_) | Miss::Silent(_)) => self.poll_again(),
            },
        }
    }

    /// Returns the order for the transfer, if the source's agent supports it. A transfer to a dead
    /// host, which may go on until its network gives up, is aborted.
    fn requested_order(&self) -> Option<Order> {
        let operation = &self.context.operation;
        let (source, destination) = self.sides().ok()?;
        let is_vain = self.is_dead(&destination);
        let order = match (operation.cancelled || is_vain, operation.force_complete) {
            (true, _) => Order::Abort,
            (false, true) => Order::ForceComplete,
            (false, false) => return None,
        };
        let version = self.context.facts.hosts.get(&source)?.service_version;
        (version >= ServiceVersion::TRANSFER_CONTROL).then_some(order)
    }

    /// Logs once that the source refuses an order for its transfer.
    fn log_order_refused(&mut self, order: Order, message: String) -> Effect {
        let what = match order {
            Order::Abort => "stopped",
            Order::ForceComplete => "made to end",
        };
        let vm = &self.context.facts.vm.name;
        let refusal = Refusal::new(
            Code::FailedPrecondition,
            "TRANSFER_GOES_ON",
            format!("the transfer of vm {vm} is not {what}: {message}"),
        );
        let refusal = refusal.with("vm", vm);
        let record = self.record(Step::Settle, Mark::Failed(refusal), operation::Effect::None);
        self.commit_log_entry(record, Goal::Settle(Poll::Source))
    }

    /// Waits, longer each time, for a transfer that goes its way; then looks again. The end of the
    /// transfer ends the wait, where the source's agent reports it.
    fn poll_again(&mut self) -> Effect {
        self.transfer.blocked = 0;
        self.transfer.moving += 1;
        let blind_ms = Backoff::TRANSFER.after(self.transfer.moving);
        let end_reported = std::mem::replace(&mut self.transfer.end_reported, false);
        let source = self.sides().map(|(source, _)| source);
        let known = source.ok().and_then(|source| {
            let address = &self.context.facts.hosts.get(&source)?.address;
            Some((source, address.clone()))
        });
        match known {
            Some((host, address)) if !end_reported => {
                self.outstanding = Outstanding::Watch;
                Effect::Watch(Box::new(TransferWatch {
                    host,
                    address,
                    vm: self.context.facts.vm.uid,
                    ms: Backoff::HEARD.after(self.transfer.moving),
                    blind_ms,
                }))
            }
            Some(_) | None => self.wait_ms(Goal::Settle(Poll::Source), blind_ms),
        }
    }

    /// Polls for the guest at once: nothing that is known of it otherwise matters any more.
    pub(crate) fn transfer_ended(&mut self) -> Effect {
        self.transfer.end_reported = true;
        self.go(Goal::Settle(Poll::Source))
    }

    /// Waits, longer each time, for what should pass by itself; then looks again.
    fn let_pass(&mut self) -> Effect {
        self.transfer.blocked = 0;
        let ms = Backoff::PASSING.after(self.transfer.passing);
        self.wait_ms(Goal::Settle(Poll::Source), ms)
    }

    fn seen(&mut self, answer: Result<Reply, Miss>) -> Seen {
        match answer {
            Ok(Reply::Domain(status)) => {
                if let Some(error) = status.migration_error {
                    self.transfer.error = Some(error);
                }
                Seen::Reported(status.state)
            }
            Ok(
                Reply::Done
                | Reply::Destination(_)
                | Reply::MigrateData(_)
                | Reply::Fit { .. }
                | Reply::Image { .. },
            ) => {
                self.transfer.silence = Some("it answers with something else".to_owned());
                Seen::Silent
            }
            Err(miss) => {
                self.transfer.silence = Some(miss.message());
                Seen::Silent
            }
        }
    }

    pub(crate) fn act_on(&mut self, verdict: Verdict) -> Effect {
        self.transfer.passing = match verdict {
            Verdict::Passing => self.transfer.passing + 1,
            Verdict::Arrived
            | Verdict::Stayed
            | Verdict::Lost
            | Verdict::LeftToDead
            | Verdict::HalfAtSource
            | Verdict::HalfAtDestination
            | Verdict::Moving
            | Verdict::Unknown(_) => 0,
        };
        match verdict {
            Verdict::Arrived => self.go(Goal::Settle(Poll::CleanSource)),
            Verdict::Stayed => self.go(Goal::Settle(Poll::CleanDestination(
                migration::Event::Stayed,
            ))),
            // As after a power cut: it can be started where it was, with all that it wrote.
            Verdict::Lost if self.leaves_all_at_source() => {
                self.transfer.has_ended = true;
                self.go(Goal::Settle(Poll::CleanDestination(
                    migration::Event::Stayed,
                )))
            }
            Verdict::Lost => self.go(Goal::Settle(Poll::CleanDestination(migration::Event::Lost))),
            // Which of the two copies is the newer one, and whether the destination's is whole, is
            // not known: both are kept, and neither is started from.
            Verdict::LeftToDead if self.copies_disks() => {
                self.go(Goal::Settle(Poll::CleanDestination(migration::Event::Lost)))
            }
            Verdict::LeftToDead => self.go(Goal::Settle(Poll::CleanSource)),
            Verdict::HalfAtSource => self.halved(Half::Source),
            Verdict::HalfAtDestination => self.halved(Half::Destination),
            Verdict::Passing if self.transfer.passing >= PASSING_MAX => {
                self.doubt(Doubt::Contradiction)
            }
            Verdict::Moving => match self.requested_order() {
                Some(order) => self.go(Goal::Settle(Poll::Order(order))),
                None => self.poll_again(),
            },
            Verdict::Passing => self.let_pass(),
            Verdict::Unknown(doubt) => self.doubt(doubt),
        }
    }

    /// Waits, longer each time, for what is in the way; then looks again.
    fn blocked(&mut self) -> Effect {
        self.transfer.moving = 0;
        self.transfer.blocked += 1;
        let ms = Backoff::UNSETTLED.after(self.transfer.blocked);
        self.wait_ms(Goal::Settle(Poll::Source), ms)
    }

    /// Waits for an agent that refuses to clean up, and logs it when that does not pass.
    fn unclean(&mut self, message: String, doubt: Doubt) -> Effect {
        self.transfer.silence = Some(message);
        self.transfer.unclean += 1;
        if self.transfer.unclean < UNCLEAN_MAX {
            return self.blocked();
        }
        self.doubt(doubt)
    }

    /// Logs what is waited for, where that is new, and polls again.
    fn doubt(&mut self, doubt: Doubt) -> Effect {
        let refusal = self.unsettled(doubt);
        let journal = self.journal();
        let logged = journal.last_failure(Step::Settle).map(|r| &r.metadata);
        let is_logged = logged == Some(&refusal.metadata)
            || self.transfer.logged_doubt.as_ref() == Some(&refusal.metadata)
            || journal.count(Step::Settle) >= DOUBTS_MAX;
        if is_logged {
            return self.blocked();
        }
        self.transfer.logged_doubt = Some(refusal.metadata.clone());
        let effect = operation::Effect::Settle {
            event: migration::Event::Unknown,
            refusal: Some(refusal.clone()),
        };
        let record = self.record(Step::Settle, Mark::Failed(refusal), effect);
        self.commit_log_entry(record, Goal::Settle(Poll::Source))
    }

    pub(crate) fn commit_end(
        &mut self,
        event: migration::Event,
        refusal: Option<Refusal>,
    ) -> Effect {
        let effect = operation::Effect::Settle { event, refusal };
        let record = self.record(Step::Settle, Mark::Succeeded, effect);
        self.commit_settle(record, Goal::Plan)
    }

    /// Returns what an unsettled migration waits for. Two doubts are the same when their metadata
    /// is: the sentence may hold what changes from one try to the next.
    fn unsettled(&self, doubt: Doubt) -> Refusal {
        let vm = &self.context.facts.vm.name;
        let (source, destination) = match self.sides() {
            Ok(sides) => sides,
            Err(refusal) => return refusal,
        };
        let silence = self.transfer.silence.as_deref().unwrap_or("no answer");
        let (waits_for, what, hint) = match doubt {
            Doubt::SourceSilent => (
                source.to_string(),
                format!("host {source} does not answer ({silence})"),
                comes_back_or_is_dead(&source),
            ),
            Doubt::DestinationSilent => (
                destination.to_string(),
                format!("host {destination} does not answer ({silence})"),
                comes_back_or_is_dead(&destination),
            ),
            Doubt::OnBoth => (
                format!("{source},{destination}"),
                format!("both {source} and {destination} have it"),
                "find out which guest is the right one, and stop the other on its host".to_owned(),
            ),
            Doubt::Contradiction => (
                format!("{source},{destination}"),
                format!("the answers of {source} and {destination} contradict each other"),
                format!("look at the hypervisors of {source} and {destination}"),
            ),
            Doubt::PostCopyBroken => (
                format!("{source},{destination}"),
                format!(
                    "its memory is partly on {source} and partly on {destination}, which have lost \
                     each other"
                ),
                format!(
                    "if it cannot be saved, stop it on both {source} and {destination}: the migration ends then"
                ),
            ),
            Doubt::SourceUnclean => (
                source.to_string(),
                format!("host {source} does not let go of it ({silence})"),
                format!("look at the hypervisor of {source}"),
            ),
            Doubt::DestinationUnclean => (
                destination.to_string(),
                format!("host {destination} does not drop what it made ready ({silence})"),
                format!("look at the hypervisor of {destination}"),
            ),
        };
        Refusal::new(
            Code::Unavailable,
            "MIGRATION_UNSETTLED",
            format!("it cannot be known yet where vm {vm} is: {what}; both claims stay"),
        )
        .with("vm", vm)
        .with("waits_for", waits_for)
        .with("doubt", format!("{doubt:?}"))
        .with_hint(hint)
    }

    /// Returns why the guest did not arrive.
    pub(crate) fn why_not(&self, event: migration::Event) -> Refusal {
        let vm = &self.context.facts.vm.name;
        let journal = self.journal();
        if self.transfer.has_ended {
            return self.why_ended();
        }
        let refused = self.transfer.refused.as_ref();
        if let Some(refusal) = refused.or_else(|| journal.last_failure(Step::LiveMigration)) {
            return refusal.clone();
        }
        if let Some(refusal) = self.why_dead(event) {
            return refusal;
        }
        let error = self.transfer.error.as_deref();
        if event == migration::Event::Stayed && self.context.operation.cancelled {
            return refusals::cancelled_on_the_way(&self.context.operation, vm, error);
        }
        let (reason, message) = match (event, self.sides()) {
            (migration::Event::Lost, Ok((source, destination))) => (
                "GUEST_LOST",
                format!(
                    "vm {vm} was lost while it was migrated: neither {source} nor {destination} \
                     has it any more ({})",
                    error.unwrap_or(NO_REASON)
                ),
            ),
            (
                migration::Event::Lost
                | migration::Event::Refuse
                | migration::Event::Begin
                | migration::Event::Arrived
                | migration::Event::Stayed
                | migration::Event::Unknown
                | migration::Event::Moved
                | migration::Event::Resized
                | migration::Event::Confirmed
                | migration::Event::Reverted,
                Ok(_) | Err(_),
            ) => (
                "MIGRATION_FAILED",
                format!(
                    "vm {vm} was not migrated and stays where it was: {}",
                    error.unwrap_or("its transfer was never begun")
                ),
            ),
        };
        Refusal::new(Code::Internal, reason, message).with("vm", vm)
    }
    /// Returns why a guest that ended on its way did not arrive.
    fn why_ended(&self) -> Refusal {
        let vm = &self.context.facts.vm.name;
        let why = self.transfer.error.as_deref().unwrap_or(NO_REASON);
        let message = match self.sides() {
            Ok((source, destination)) => format!(
                "vm {vm} ended while it was migrated: neither {source} nor {destination} has it any \
                 more ({why}); it stays on host {source}"
            ),
            Err(_) => format!("vm {vm} ended while it was migrated ({why})"),
        };
        Refusal::new(Code::Internal, "GUEST_ENDED", message)
            .with("vm", vm)
            .with_hint(format!("start it there: berth vm start {vm}"))
    }
}
