//! The scheduler extender: on which nodes a pod's volumes fit, and how well.
//!
//! ```text
//!   ExtenderArgs ─▶ need: sizes of the volumes that are still to be made
//!                     │ none: every node will do
//!                     ▼
//!                   one FitVolumes: packed together on the regions of each host
//!                     ├─▶ filter: nodes that fit, and a sentence for each that does not
//!                     └─▶ prioritize: 0 to 10, the less is left over the more
//! ```
//!
//! Invariant: `filter` answers every request, readable or not, with status 200, and
//! reports in `Error` what is wrong, because that is what a Kubernetes scheduler shows.

mod fit;
mod wire;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use berth_process::error_chain;
use berth_proto::client::SchedulerChannel;

use crate::kubernetes::lookup::Lookup;
use crate::kubernetes::need::{self, Unknown};
use fit::Unfit;
use wire::{Args, FilterResult, HostPriority};

/// The most volumes of a pod in one call.
const VOLUMES_MAX: usize = 64;
/// The most hosts of one call.
const HOSTS_MAX: usize = 10_000;

/// The most sentences of one answer that differ. A Kubernetes scheduler writes all of them, each with
/// the number of its nodes, into the pod and into an event.
const SENTENCES_MAX: usize = 16;
/// The sentence where there are more.
const OTHER_REASONS: &str = "other reasons: see `berth volume capacity`";

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The body is not a request to an extender.
    #[error("the body is not ExtenderArgs")]
    Malformed(#[source] serde_json::Error),
    /// It names no pod, or no nodes.
    #[error("incomplete parameters")]
    Incomplete,
    /// It is not known what the pod needs.
    #[error("checking for unbound volumes")]
    Need(#[from] Unknown),
    /// It needs more volumes than one call can hold.
    #[error("the pod needs {0} volumes; at most {VOLUMES_MAX} can be fitted together")]
    TooManyVolumes(usize),
    /// There are more nodes than one call can hold.
    #[error("{0} nodes; at most {HOSTS_MAX} can be filtered at once")]
    TooManyNodes(usize),
    /// The scheduler query failed.
    #[error("querying the scheduler failed: {0}")]
    Scheduler(String),
    /// It took too long.
    #[error("no answer within {} ms", .0.as_millis())]
    Late(Duration),
}

impl Error {
    /// Returns the message with those of all causes.
    #[must_use]
    pub fn chain(&self) -> String {
        error_chain(self)
    }
}

/// The scheduler extender.
#[derive(Debug)]
pub struct Extender {
    driver: String,
    scheduler: SchedulerChannel,
}

/// The evaluated candidates: which do not fit, and how well the others do.
struct Evaluation<'a> {
    args: Args<'a>,
    /// Nothing: the pod needs nothing.
    fits: Option<BTreeMap<String, Result<u32, Unfit>>>,
}

impl Extender {
    /// Returns an extender for the volumes of a driver.
    #[must_use]
    pub fn new(driver: String, scheduler: SchedulerChannel) -> Self {
        Self { driver, scheduler }
    }

    /// Answers `filter`: JSON in, JSON out, whatever comes in.
    pub async fn filter(&self, body: &[u8], lookup: &Lookup, timeout: Duration) -> Vec<u8> {
        match self.evaluate_in_time(body, lookup, timeout).await {
            Ok(evaluation) => evaluation.filtered(),
            Err(error) => Self::filter_error(&error.chain()),
        }
    }

    /// Returns the answer to a `filter` that cannot be answered.
    pub(crate) fn filter_error(why: &str) -> Vec<u8> {
        tracing::warn!(why, "filter request failed");
        FilterResult::error(why).to_json()
    }

    /// Answers `prioritize`.
    ///
    /// # Errors
    ///
    /// What a Kubernetes scheduler only logs: it takes all nodes for equal then.
    pub async fn prioritize(
        &self,
        body: &[u8],
        lookup: &Lookup,
        timeout: Duration,
    ) -> Result<Vec<u8>, Error> {
        let evaluation = self.evaluate_in_time(body, lookup, timeout).await?;
        Ok(evaluation.prioritized())
    }

    async fn evaluate_in_time<'a>(
        &self,
        body: &'a [u8],
        lookup: &Lookup,
        timeout: Duration,
    ) -> Result<Evaluation<'a>, Error> {
        let evaluation = tokio::time::timeout(timeout, self.evaluate(body, lookup)).await;
        evaluation.unwrap_or(Err(Error::Late(timeout)))
    }

    async fn evaluate<'a>(&self, body: &'a [u8], lookup: &Lookup) -> Result<Evaluation<'a>, Error> {
        let args: Args<'a> = serde_json::from_slice(body).map_err(Error::Malformed)?;
        if args.pod.metadata.name.is_empty() || args.candidates.is_none() {
            return Err(Error::Incomplete);
        }
        let sizes = need::sizes(&args.pod, &self.driver, lookup).await?;
        if sizes.is_empty() {
            return Ok(Evaluation { args, fits: None });
        }
        if sizes.len() > VOLUMES_MAX {
            return Err(Error::TooManyVolumes(sizes.len()));
        }
        let names: Vec<&str> = args.candidates.names().collect();
        if names.len() > HOSTS_MAX {
            return Err(Error::TooManyNodes(names.len()));
        }
        let fits = fit::query(&self.scheduler, &names, sizes).await;
        let fits = Some(fits.map_err(Error::Scheduler)?);
        Ok(Evaluation { args, fits })
    }
}

/// Keeps the first sentences that differ, in the order of the nodes' names.
fn shorten(failed: &mut BTreeMap<String, String>) {
    let mut kept = BTreeSet::new();
    for why in failed.values_mut() {
        if !kept.contains(why) && kept.len() == SENTENCES_MAX {
            OTHER_REASONS.clone_into(why);
        } else {
            kept.insert(why.clone());
        }
    }
}

impl Evaluation<'_> {
    /// Returns how well a node fits.
    fn of(&self, node: &str) -> Result<u32, &str> {
        let Some(fits) = &self.fits else {
            return Ok(0);
        };
        let fit = fits.get(node).map(Result::as_ref);
        let fit = fit.unwrap_or(Err(Unfit::unanswered()));
        fit.copied().map_err(|unfit| unfit.why.as_str())
    }

    fn filtered(&self) -> Vec<u8> {
        let mut failed = BTreeMap::new();
        let mut fits = |name: &str| match self.of(name) {
            Ok(_) => true,
            Err(why) => {
                failed.insert(name.to_owned(), why.to_owned());
                false
            }
        };
        let left = self.args.candidates.filtered(&mut fits);
        shorten(&mut failed);
        tracing::debug!(
            pod = self.args.pod.metadata.name,
            namespace = self.args.pod.metadata.namespace,
            refused = failed.len(),
            "filtered nodes"
        );
        FilterResult::of(left, failed).to_json()
    }

    fn prioritized(&self) -> Vec<u8> {
        let names = self.args.candidates.names();
        let scored = names.map(|host| HostPriority {
            host,
            // The scheduler's scores are 0 to 100.
            score: self.of(host).map_or(0, |score| (score.min(100) + 5) / 10),
        });
        let scored: Vec<HostPriority<'_>> = scored.collect();
        serde_json::to_vec(&scored).expect("names and numbers are JSON")
    }
}
