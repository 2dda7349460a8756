//! Remembering requests, and forgetting the oldest of them.

use berth_domain::refusal::Refusal;

use crate::command::RequestKey;
use crate::reply::Reply;
use crate::request::{OUTCOMES_BYTES_MAX, REMEMBERED_MAX, Receipt, Request, RequestName, made_at};
use crate::state::State;
use crate::transaction::{Journal, Transaction};

impl<J: Journal> Transaction<'_, J> {
    pub(super) fn remember(
        &mut self,
        principal: &str,
        key: &RequestKey,
        outcome: &Result<Reply, Refusal>,
    ) {
        self.state.header.requests += 1;
        self.put_request(Request {
            name: RequestName::new(principal, key).into(),
            sequence: self.state.header.requests,
            received_at: self.now(),
            payload_hash: key.payload_hash,
            receipt: Receipt::of(outcome, self.state.header.cluster_version),
        });
        while self.state.requests.len() > REMEMBERED_MAX {
            self.forget_oldest();
        }
        let outcomes = |state: &State| (state.index.outcomes_weight, state.index.outcomes.len());
        while let (weight, 2..) = outcomes(self.state)
            && weight > OUTCOMES_BYTES_MAX
        {
            self.forget_oldest_outcome();
        }
    }

    fn forget_oldest_outcome(&mut self) {
        let index = &self.state.index;
        let oldest = index.outcomes.get_min();
        let name = oldest.and_then(|sequence| index.remembered.get(sequence));
        let Some(request) = name.and_then(|name| self.state.requests.get(name)) else {
            return;
        };
        let mut request = (**request).clone();
        request.receipt = Receipt::Forgotten;
        self.put_request(request);
    }

    fn forget_oldest(&mut self) {
        let Some((_, name)) = self.state.index.remembered.get_min().cloned() else {
            return;
        };
        if let Some(request) = self.state.requests.get(&name)
            && let Some(made_at) = made_at(name.id.0)
        {
            let mark = made_at.min(request.received_at);
            let header = &mut self.state.header;
            header.forgotten = header.forgotten.max(mark);
        }
        self.remove_request(&name);
    }
}
