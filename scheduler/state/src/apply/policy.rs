//! What is preferred: one record, replaced as a whole.

use berth_domain::policy::{SchedulingPolicy, WEIGHT_MAX};
use berth_domain::refusal::{Code, Refusal};

use crate::refusals::invalid;
use crate::reply::Reply;
use crate::transaction::{Journal, Transaction};

impl<J: Journal> Transaction<'_, J> {
    /// The same again is no change.
    pub(super) fn set_policy(&mut self, policy: &SchedulingPolicy) -> Result<Reply, Refusal> {
        let old = self.state.policy.clone();
        if old.generation != policy.generation {
            return Err(Refusal::new(
                Code::Aborted,
                "POLICY_GENERATION",
                format!(
                    "the scheduling policy is at generation {}, not {}",
                    old.generation, policy.generation
                ),
            )
            .with_hint("read it again and repeat the change")
            .with("actual", old.generation)
            .with("given", policy.generation));
        }
        if !policy.is_bounded() {
            let rule = format!("a weight is at most {WEIGHT_MAX}");
            return Err(invalid("INVALID_POLICY", rule));
        }
        if *old == *policy {
            return Ok(Reply::Policy(old));
        }
        Ok(Reply::Policy(self.put_policy(SchedulingPolicy {
            generation: policy.generation.next(),
            ..policy.clone()
        })))
    }
}
