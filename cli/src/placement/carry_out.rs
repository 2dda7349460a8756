//! Carrying a plan out.
//!
//! Writes go in batches, each of which is one command of the log: all or none. A batch that is
//! refused is halved until what is refused stands alone, so that one bad item holds up no other.
//! Written records stay, whatever follows: a second run continues from there.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;

use berth_domain::id::ProviderId;
use berth_domain::import::{ConsumerImport, ProviderImport};
use berth_domain::refusal::{Code, Refusal};
use berth_proto::placement::v1;
use berth_proto::status::name_of;
use prost::Message as _;
use serde::Serialize;

use super::here;
use super::meter::{Meter, Part};
use super::plan::Plan;
use crate::session::Session;

/// The most items of a batch.
const BATCH_MAX: usize = 100;
/// The most bytes of a batch, unless one item has more: far below what a scheduler takes.
const BATCH_BYTES_MAX: usize = 1 << 20;

/// Something that the scheduler refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Refused {
    /// What it is about.
    pub item: String,
    /// The code of the refusal.
    pub code: &'static str,
    /// The reason for programs.
    pub reason: String,
    /// The sentence for people.
    pub message: String,
    /// What to do about it, where there is something.
    pub hint: Option<String>,
}

/// Carries a plan out and returns what was refused of it.
///
/// # Errors
///
/// When no scheduler answers any more, or none supports imports.
pub async fn carry_out(
    session: &Session,
    source: &str,
    plan: &Plan,
    meter: Meter,
) -> Result<Vec<Refused>, Refusal> {
    let mut run = Run {
        session,
        source,
        meter,
        refused: Vec::new(),
        left_out: BTreeSet::new(),
    };
    run.catalog(plan).await?;
    for id in &plan.nameless {
        let outcome = here::rename(session, *id, &format!("berth-import-{id}")).await;
        run.record(format!("provider {id}"), outcome)?;
    }
    run.providers("providers written", &plan.providers).await?;
    run.consumers(&plan.consumers).await?;
    let left_out = run.left_out.clone();
    let finally = plan.finally.iter().filter(|p| !left_out.contains(&p.id));
    let finally: Vec<_> = finally.cloned().collect();
    if !finally.is_empty() {
        run.providers("inventories taken away", &finally).await?;
    }
    if !plan.gone.is_empty() {
        let mut part = meter.part("providers taken away", plan.gone.len());
        for id in &plan.gone {
            let outcome = here::delete(session, *id).await;
            run.record(format!("provider {id}"), outcome)?;
            part.step(1);
        }
        part.end();
    }
    Ok(run.refused)
}

struct Run<'a> {
    session: &'a Session,
    source: &'a str,
    meter: Meter,
    refused: Vec<Refused>,
    /// Providers that were refused.
    left_out: BTreeSet<ProviderId>,
}

impl Run<'_> {
    /// Records a refusal, unless it would concern every further write.
    fn record(&mut self, item: impl Display, outcome: Result<(), Refusal>) -> Result<(), Refusal> {
        let Err(refusal) = outcome else {
            return Ok(());
        };
        match refusal.code {
            Code::Unavailable
            | Code::DeadlineExceeded
            | Code::Cancelled
            | Code::PermissionDenied
            | Code::Unimplemented
            | Code::Internal => Err(refusal),
            Code::InvalidArgument
            | Code::NotFound
            | Code::AlreadyExists
            | Code::FailedPrecondition
            | Code::Aborted
            | Code::ResourceExhausted
            | Code::OutOfRange => {
                self.refused.push(Refused {
                    item: item.to_string(),
                    code: name_of(refusal.code),
                    reason: refusal.reason,
                    message: refusal.message,
                    hint: refusal.hint,
                });
                Ok(())
            }
        }
    }

    async fn catalog(&mut self, plan: &Plan) -> Result<(), Refusal> {
        let count = plan.classes.len() + plan.traits.len();
        if count == 0 {
            return Ok(());
        }
        let mut part = self.meter.part("custom names made", count);
        for class in &plan.classes {
            let outcome = here::make_class(self.session, class).await;
            self.record(format!("resource class {class}"), outcome)?;
            part.step(1);
        }
        for name in &plan.traits {
            let outcome = here::make_trait(self.session, name).await;
            self.record(format!("trait {name}"), outcome)?;
            part.step(1);
        }
        part.end();
        Ok(())
    }

    async fn providers(&mut self, what: &str, all: &[ProviderImport]) -> Result<(), Refusal> {
        let (session, source) = (self.session, self.source);
        let part = self.meter.part(what, all.len());
        let size = |one: &ProviderImport| v1::ProviderImport::from(one).encoded_len();
        let write =
            async |some: &[ProviderImport]| here::import_providers(session, source, some).await;
        let mut left_out = BTreeMap::new();
        in_batches(all, part, size, write, |one, refusal| {
            left_out.insert(one.id, refusal.clone());
            let item = format!("provider {} ({})", one.id, one.name);
            self.record(item, Err(refusal))
        })
        .await?;
        self.left_out.extend(left_out.into_keys());
        Ok(())
    }

    async fn consumers(&mut self, all: &[ConsumerImport]) -> Result<(), Refusal> {
        let (session, source) = (self.session, self.source);
        let part = self.meter.part("consumers written", all.len());
        let size = |one: &ConsumerImport| v1::ConsumerImport::from(one).encoded_len();
        let write =
            async |some: &[ConsumerImport]| here::import_consumers(session, source, some).await;
        in_batches(all, part, size, write, |one, refusal| {
            self.record(format!("consumer {}", one.id), Err(refusal))
        })
        .await
    }
}

/// Writes everything in order, in batches, and halves those that are refused.
async fn in_batches<T>(
    all: &[T],
    mut part: Part,
    size: impl Fn(&T) -> usize,
    write: impl AsyncFn(&[T]) -> Result<(), Refusal>,
    mut refused: impl FnMut(&T, Refusal) -> Result<(), Refusal>,
) -> Result<(), Refusal> {
    let mut rest = all;
    let mut waiting: Vec<&[T]> = Vec::new();
    loop {
        let batch = match waiting.pop() {
            Some(batch) => batch,
            None if rest.is_empty() => break,
            None => {
                let (batch, after) = rest.split_at(batch_len(rest, &size));
                rest = after;
                batch
            }
        };
        match (write(batch).await, batch) {
            (Ok(()), _) => part.step(batch.len()),
            (Err(refusal), [one]) => {
                refused(one, refusal)?;
                part.step(1);
            }
            // An error that concerns every item shows with the first of them.
            (Err(_), _) => {
                let (first, second) = batch.split_at(batch.len() / 2);
                waiting.extend([second, first]);
            }
        }
    }
    part.end();
    Ok(())
}

/// Returns how many of the first make up a batch: at least one.
fn batch_len<T>(rest: &[T], size: impl Fn(&T) -> usize) -> usize {
    let mut bytes = 0;
    let fit = rest.iter().take(BATCH_MAX).take_while(|one| {
        bytes += size(one);
        bytes <= BATCH_BYTES_MAX
    });
    fit.count().max(1)
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    /// Goal: whatever is refused, the rest is written, once and in order. Method: a scheduler that
    /// refuses every batch with a 13 or a 700 in it.
    #[tokio::test]
    async fn one_bad_item_holds_up_no_other() {
        let all: Vec<u32> = (0..1000).collect();
        let written = RefCell::new(Vec::new());
        let write = async |some: &[u32]| {
            assert!(some.len() <= BATCH_MAX);
            if some.contains(&13) || some.contains(&700) {
                return Err(Refusal::new(Code::FailedPrecondition, "BAD", "bad"));
            }
            written.borrow_mut().extend_from_slice(some);
            Ok(())
        };
        let mut refused = Vec::new();
        let part = Meter::new(true).part("", all.len());
        let done = in_batches(
            &all,
            part,
            |_| 1,
            write,
            |one, _| {
                refused.push(*one);
                Ok(())
            },
        );
        done.await.unwrap();
        assert_eq!(refused, [13, 700]);
        let good: Vec<u32> = (0..1000).filter(|n| ![13, 700].contains(n)).collect();
        assert_eq!(written.into_inner(), good);
    }

    #[test]
    fn batches_are_bounded_by_bytes_and_never_empty() {
        let len = |sizes: &[usize]| batch_len(sizes, |size| *size);
        assert_eq!(len(&[BATCH_BYTES_MAX + 1, 1]), 1);
        assert_eq!(len(&[BATCH_BYTES_MAX / 2; 5]), 2);
        assert_eq!(len(&[1; 500]), BATCH_MAX);
    }
}
