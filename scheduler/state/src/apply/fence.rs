//! Hosts that were fenced: who says so, and what follows from it.

use berth_domain::fence::{Fenced, Method, OUTPUT_MAX};
use berth_domain::host::Liveness;
use berth_domain::id::Incarnation;
use berth_domain::name::HostName;
use berth_domain::refusal::Refusal;

use crate::refusals::{invalid, precondition};
use crate::reply::Reply;
use crate::transaction::{Journal, Transaction};

impl<J: Journal> Transaction<'_, J> {
    /// Records that a host was fenced. It counts as down from now on, until its agent is heard of.
    pub(super) fn fence_host(
        &mut self,
        name: &HostName,
        method: Method,
        by: &str,
        output: &str,
        incarnation: Incarnation,
    ) -> Result<Reply, Refusal> {
        let view = self.state.host(name);
        let host = &view.ok_or_else(|| Refusal::not_found("host", name))?.host;
        if output.len() > OUTPUT_MAX {
            return Err(invalid(
                "INVALID_FENCE",
                format!("a fence command's output has at most {OUTPUT_MAX} bytes"),
            ));
        }
        // A proof about an earlier run says nothing of what this one may have started.
        if host.report.incarnation != incarnation {
            return Err(precondition(
                "AGENT_RESTARTED",
                format!("the agent of host {name} was started again meanwhile"),
            )
            .with_hint("look whether the host is alive, and fence it again if it is not")
            .with("host", name));
        }
        // A word is easily given for the wrong host; a command that succeeded has done something.
        let heard = host.liveness == Liveness::Up;
        if heard && method != Method::FenceCommand {
            return Err(precondition(
                "HOST_IS_ALIVE",
                format!("the agent of host {name} is heard of, so the host is not off"),
            )
            .with_hint(format!(
                "look whether it is the right host; berth host fence {name} runs the fence command"
            ))
            .with("host", name));
        }
        // The leader has waited for the lease to lapse, from what it remembers of the reports. That
        // is true whenever it commits: a report that another leader takes comes after this entry,
        // and ends the proof.
        if method == Method::SelfFenced && host.report.self_fence_ms == 0 {
            return Err(precondition(
                "SELF_FENCE_NOT_PROMISED",
                format!("the agent of host {name} has not promised to stop its guests by itself"),
            )
            .with("host", name));
        }
        // Its agent would stop a guest that arrives now, but a moment after that.
        if method == Method::SelfFenced && self.state.receives(name) {
            return Err(precondition(
                "GUEST_ARRIVES",
                format!("a guest is on its way to host {name}, and may run there for a moment"),
            )
            .with_hint(format!("berth host fence {name}, if the host is off"))
            .with("host", name));
        }
        let fenced = Fenced {
            method,
            by: by.to_owned(),
            at: self.now(),
            incarnation,
            output: output.to_owned(),
            reported_since: false,
        };
        self.expect_later_comparison(name);
        self.change_host(name, |host| {
            host.liveness = Liveness::Down;
            host.fenced = Some(fenced);
        })
    }
}
