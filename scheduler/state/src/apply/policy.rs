//! What is preferred: one record, replaced as a whole. What it says of memory and shared CPUs is a
//! rule, and follows into the hosts in the same command.

use berth_domain::policy::{SchedulingPolicy, TERMS_MAX, WEIGHT_MAX};
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
            let rule = format!(
                "a weight is at most {WEIGHT_MAX}, a memory ratio from 1.0 to 16.0, a ratio of shared \
                 CPUs from 0.1 to 64.0, and at most {TERMS_MAX} groups and {TERMS_MAX} hosts have \
                 settings of either"
            );
            return Err(invalid("INVALID_POLICY", rule));
        }
        if *old == *policy {
            return Ok(Reply::Policy(old));
        }
        let (memory, cpu) = (old.memory != policy.memory, old.cpu != policy.cpu);
        if memory {
            self.examine_scoped(&old.memory, &policy.memory)?;
        }
        if cpu {
            self.examine_scoped(&old.cpu, &policy.cpu)?;
        }
        let before = match memory || cpu {
            true => self.rules_of_all(),
            false => Vec::new(),
        };
        let written = self.put_policy(SchedulingPolicy {
            generation: policy.generation.next(),
            ..policy.clone()
        });
        self.follow_rules(before);
        Ok(Reply::Policy(written))
    }
}
